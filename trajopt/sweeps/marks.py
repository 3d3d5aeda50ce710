"""Row hashes of a dataset: one number per array, a hash of the study, the row number and the row's content.

The hashes show whether a row was written completely, for this study and this row number. Array widths may grow later: trailing
NaN of a row are not hashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array


def digest(study: Mapping[str, Any]) -> str:
    """Return a hash of the definition of a study, equal before and after a JSON round trip."""
    plain = json.loads(json.dumps(study))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class RowHashes:
    """Hashes of rows, keyed by the digest of a study. arrays: array names, in the order of a row's hashes."""

    def __init__(self, digest: str, arrays: Sequence[str]) -> None:
        self.column = {name: k for k, name in enumerate(arrays)}
        self._keys = {name: hashlib.blake2b(f"{digest} {name}".encode(), digest_size=32).digest() for name in arrays}

    def hash_rows(self, name: str, rows: Sequence[int] | Array, values: Array | None) -> Array:
        """Return the hashes of rows (m,) with these values of an array; None: the array does not exist. A hash is never zero."""
        contents: Iterable[bytes] = [b""] * len(rows) if values is None else _contents(values)
        key = self._keys[name]
        hashed = (
            hashlib.blake2b(content, digest_size=8, key=key, salt=int(row).to_bytes(16, "little")).digest()
            for row, content in zip(rows, contents, strict=True)
        )
        return np.frombuffer(b"".join(hashed), dtype="<u8").astype(np.uint64) | np.uint64(1)


def _contents(values: Array) -> Iterator[bytes]:
    """Yield the content of each row as bytes."""
    if values.dtype.kind == "T":
        yield from (str(text).encode() for text in values)
        return
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values)  # one bit pattern for NaN
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    yield from (row.tobytes() if values.ndim == 1 else _trimmed(row) for row in values)


def _trimmed(values: Array) -> bytes:
    """Return shape and entries up to the last non-NaN entry; empty if all are NaN."""
    there = ~np.isnan(values)
    if not there.any():
        return b""
    ends = np.argwhere(there).max(axis=0) + 1
    return ends.astype("<i8").tobytes() + values[tuple(map(slice, ends))].tobytes()
