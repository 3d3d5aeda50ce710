"""Stored data of a study: durable writes, hashes of the rows, and checked access to them.

Every value read is the value that the study wrote, or an error, except in datasets of format version 1, which have no hashes. A
file is on disk before its name appears, and its name before the next write, so that files survive power cuts.

The hashes show whether a row was written completely, for this study and this row number. Array widths may grow later: trailing
NaN of a row are not hashed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.user_input import InputError, quoted
from trajopt.results.archive import write_atomically


def require(package: str) -> Any:
    """Import and return a package. Raises ModuleNotFoundError, with the command that installs it, if it is missing."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        message = f"studies need the package {error.name}: pip install 'urdf-trajopt[sweep]'"
        raise ModuleNotFoundError(message, name=error.name) from error


def durable_store(path: Path) -> Any:
    """Return a zarr store in a folder, for a single writing process. Its durability is that of the file system's fsync."""
    LocalStore: Any = require("zarr").storage.LocalStore

    class DurableStore(LocalStore):
        """Store whose files are written atomically and flushed to disk."""

        async def set(self, key: str, value: Any) -> None:
            self._check_writable()
            target = self.root / key
            _make_folder(target.parent)
            write_atomically(target, lambda file: file.write(value.as_buffer_like()))
            settle(target.parent)

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            if not (self.root / key).exists():
                await self.set(key, value)

    return DurableStore(path)


def settle(folder: Path) -> None:
    """Flush the entries of a folder to disk; does nothing if this fails, as on systems that cannot."""
    with suppress(OSError):  # some systems cannot fsync folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each flushed to disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        settle(folder.parent)


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
        """Return a hash for each row (m,), of its number and its values of the array ``name``; never zero.

        The digest of the study and the name are its key. values None: the array does not exist.
        """
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
    """Return the entries up to the last index with a non-NaN entry along each axis, after these sizes; b"" if all are NaN."""
    there = ~np.isnan(values)
    if not there.any():
        return b""
    ends = np.argwhere(there).max(axis=0) + 1
    return ends.astype("<i8").tobytes() + values[tuple(map(slice, ends))].tobytes()


FOLDER = "sweep.zarr"
FORMAT, FORMAT_VERSION = "trajopt.sweep", 2
MARK = "mark"


SMALL, LARGEST_RATIO = 1 << 30, 1000
"""Size limits: arrays of at most SMALL bytes are accepted; larger ones may claim at most LARGEST_RATIO times their file size."""


class ForeignDataset(InputError):
    """The folder contains another study, a dataset that cannot be read or resumed, or rows that the study did not write."""


class Stored:
    """Dataset in the folder of a study, open for reading. writable: open it for writing too.

    Raises FileNotFoundError without a dataset; :class:`ForeignDataset` for anything but the dataset of a study.
    """

    def __init__(self, folder: Path, writable: bool = False) -> None:
        zarr = require("zarr")
        self.path = folder / FOLDER
        if not (self.path / "zarr.json").exists():
            raise FileNotFoundError(f"no study in {folder}: {FOLDER} is missing")
        store: Any = durable_store(self.path) if writable else self.path
        with self._readable("zarr.json"):
            self.group: Any = zarr.open_group(store, mode="r+" if writable else "r")
            attributes = self.group.attrs
            if attributes.get("format") != FORMAT:
                raise ForeignDataset(f"{self.path} is not the dataset of a study: choose another folder")
            if attributes["format_version"] > FORMAT_VERSION:
                raise ForeignDataset(f"{self.path} was written by a newer version of this package: update it")
            if attributes["digest"] != digest(attributes["study"]):
                raise ForeignDataset(
                    f"{self.path}/zarr.json belongs to another study: restore it, or delete this folder"
                )
            _check_attributes(attributes)
            self._check_arrays(attributes.get("arrays", ()))
        self.shard: int = attributes["shard"]
        self.arrays: Sequence[str] = attributes.get("arrays", ())
        """Names of the arrays with marks; empty for format version 1, which is read without checks."""
        self.hashes = RowHashes(attributes["digest"], self.arrays)

    @property
    def n(self) -> int:
        """Number of rows, finished or not."""
        return int(self.group[MARK].shape[0]) if MARK in self.group else 0

    def marks(self) -> Array:
        """Return the marks of all rows (n, arrays); zeros for rows that are not stored yet."""
        if not self.n:
            return np.zeros((0, 1), dtype=np.uint64)
        return self._read_rows(MARK, np.arange(self.n)).reshape(self.n, -1)

    def values(self, name: str, rows: Array, marks: Array) -> Any:
        """Return the values of an array in finished rows, or None if the array does not exist. marks: marks of all rows.

        Raises :class:`ForeignDataset` if the values differ from those that the study wrote; datasets of version 1 are not checked.
        """
        with self._readable(f"{name}/zarr.json"):
            there = name in self.group
        found = self._read_rows(name, rows) if there else None
        if name in self.arrays:
            wrong = np.flatnonzero(self.hashes.hash_rows(name, rows, found) != marks[rows, self.hashes.column[name]])
            if len(wrong):
                raise self._damage_error(name, int(rows[wrong[0]]), "does not match what this study wrote")
        return found

    def check(self) -> None:
        """Read all finished rows. Raises :class:`ForeignDataset` if a row differs from what the study wrote."""
        marks = self.marks()
        there = finished_rows(marks)
        for rows in np.split(there, np.flatnonzero(np.diff(there // self.shard)) + 1):
            for name in self.arrays:
                self.values(name, rows, marks)

    def _read_rows(self, name: str, rows: Array) -> Array:
        """Read the entries of some rows, as stored. Raises ForeignDataset with the damaged shard if decoding fails."""
        array = self.group[name]
        try:
            if not len(rows):
                return array[:0]
            return array[rows[0] : rows[-1] + 1] if (np.diff(rows) == 1).all() else array.oindex[rows]
        except OSError:
            raise
        except Exception as error:  # each codec raises its own exceptions
            for first in np.unique(rows // self.shard) * self.shard:
                try:
                    array[first : first + self.shard]
                except Exception:
                    raise self._damage_error(name, int(first), f"cannot be read ({error})") from error
            raise

    def _check_arrays(self, names: Sequence[str]) -> None:
        """Raise ForeignDataset for arrays with fewer rows than marks, or with a shape far larger than their files."""
        for name in (MARK, *names):
            with self._readable(f"{name}/zarr.json"):
                if name in self.group:
                    self._check_array(name, self.group[name])

    def _check_array(self, name: str, array: Any) -> None:
        """Raise ValueError for an array with fewer rows than the marks, or with a shape far larger than its files."""
        shape = getattr(array, "shape", ())
        if not shape or shape[0] < self.n:
            raise ValueError(f"it has shape {quoted(shape)}, and the study {self.n} rows")
        stored = sum(file.stat().st_size for file in (self.path / name).rglob("*") if file.is_file())
        for entries in (math.prod(shape), math.prod(array.shards or array.chunks)):
            claimed = entries * max(getattr(array.dtype, "itemsize", 8), 1)
            if claimed > max(SMALL, LARGEST_RATIO * stored):
                raise ValueError(f"it claims {claimed} bytes, and its files have {stored}")

    @contextmanager
    def _readable(self, file: str) -> Iterator[None]:
        """Context that converts errors in array metadata to ForeignDataset, with the name of a file for the message."""
        try:
            yield
        except ForeignDataset:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ForeignDataset(
                f"{self.path / file} cannot be read ({error}): restore it, or choose another folder"
            ) from error

    def _damage_error(self, name: str, row: int, how: str) -> ForeignDataset:
        """Return the error for a damaged shard of an array: rows, files and remedy. how: the defect in words."""
        number = row // self.shard
        first, last = number * self.shard, min((number + 1) * self.shard, self.n) - 1
        return ForeignDataset(
            f"{name} of rows {first} to {last} in {self.path} {how}: {name}/c/{number} there is damaged, missing, or "
            f"belongs to another study or row. Restore it, or delete {self.path / MARK}/c/{number} and run the study "
            "again to solve these rows"
        )


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raise KeyError for missing attributes of a dataset, ValueError for attributes of the wrong kind; ``arrays`` is optional."""
    study, shard = attributes["study"], attributes["shard"]
    names, sessions = attributes.get("arrays", []), attributes["sessions"]
    checks = {
        "study": (isinstance(study, dict) and isinstance(study.get("vary"), dict), "a table with a table vary"),
        "shard": (type(shard) is int and 0 < shard < 2**31, "a number of rows"),
        "arrays": (isinstance(names, list) and all(isinstance(name, str) for name in names), "a list of names"),
        "sessions": (isinstance(sessions, list) and all(isinstance(one, dict) for one in sessions), "a list of tables"),
    }
    for key, (good, expected) in checks.items():
        if not good:
            raise ValueError(f"{key!r} is {quoted(attributes.get(key))}; expected {expected}")


def finished_rows(marks: Array) -> Array:
    """Return the numbers of the finished rows, from the marks of all rows."""
    return np.flatnonzero(marks[:, 0])
