"""What rows of a dataset are known by: a number for each array, a hash of the study, the row and what the array holds of it.

So a row tells by itself whether it was written for this study and this place, and whether all of it is there. How wide an array
has become since then does not count: the NaN behind the end of a row are none of its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array


def digest(study: Mapping[str, Any]) -> str:
    """A hash of what the rows of a study are functions of, the same before and after it was written as JSON."""
    plain = json.loads(json.dumps(study))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class Marks:
    """The marks of a study with a digest. arrays: their names, in the order of a row's marks."""

    def __init__(self, digest: str, arrays: Sequence[str]) -> None:
        self.column = {name: k for k, name in enumerate(arrays)}
        self._keys = {name: hashlib.blake2b(f"{digest} {name}".encode(), digest_size=32).digest() for name in arrays}

    def of(self, name: str, rows: Sequence[int] | Array, values: Array | None) -> Array:
        """The marks of rows (m,) with these values of an array, None where there is no such array; none is zero."""
        contents: Iterable[bytes] = [b""] * len(rows) if values is None else _contents(values)
        key = self._keys[name]
        hashed = (
            hashlib.blake2b(content, digest_size=8, key=key, salt=int(row).to_bytes(16, "little")).digest()
            for row, content in zip(rows, contents, strict=True)
        )
        return np.frombuffer(b"".join(hashed), dtype="<u8").astype(np.uint64) | np.uint64(1)


def _contents(values: Array) -> Iterator[bytes]:
    """What is there of each row, in bytes."""
    if values.dtype.kind == "T":
        yield from (str(text).encode() for text in values)
        return
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values)  # all NaN alike
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    yield from (row.tobytes() if values.ndim == 1 else _trimmed(row) for row in values)


def _trimmed(values: Array) -> bytes:
    """The shape and the entries up to the last that is not NaN; nothing where all are."""
    there = ~np.isnan(values)
    if not there.any():
        return b""
    ends = np.argwhere(there).max(axis=0) + 1
    return ends.astype("<i8").tobytes() + values[tuple(map(slice, ends))].tobytes()
