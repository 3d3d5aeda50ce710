"""The results of a study on disk: a group of zarr arrays (format 3), one entry of the first axis a row.

| array | shape | |
|---|---|---|
| vary/KEY | (n,) or (n, k) | the varied values; lists of texts, and tables, as JSON |
| status, reason | (n,) | how the solve ended, in a word and in a sentence; "error" and "died" without a solve |
| success, iterations, knots, session | (n,) | |
| cost, kkt, violation, solve_time | (n,) | as in a solution; violation: of constraints, bounds and dynamics |
| duration | (n,) | of the motion [s], which differs from the last of ``times`` where it was chosen |
| times, xs | (n, N + 1), (n, N + 1, nx) | NaN behind the last knot of a shorter row |
| us, K | (n, N, nu), (n, N, nu, ndx) | likewise; K if asked for |
| mark | (n,) | 0 for a row that is not there yet, else a hash of the study and the row |

Rows are written shard by shard: a file of each array for each ``shard`` rows. Each file appears whole or not at all, the marks
come last, and a row is where its number says: so a process that is killed, and a disk that is full, leave the rows that are
marked, and what is done again lands in the same place. The attributes of the group hold what the rows are functions of
(``study``), and for each session the versions of what computed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.solution import versions
from trajopt.sweeps.extra import require
from trajopt.sweeps.rows import SCALARS, Result
from trajopt.sweeps.variation import LISTS, Variation, Variations

FOLDER, LOCK = "sweep.zarr", "sweep.lock"
FORMAT, FORMAT_VERSION = "trajopt.sweep", 1
MARK = "mark"
_TYPES: dict[type, Any] = {
    str: np.dtypes.StringDType(),
    bool: np.dtype(bool),
    float: np.dtype(float),
    int: np.dtype(np.int64),
}
_EMPTY: dict[str, Any] = {"f": np.nan, "i": 0, "u": 0, "b": False, "T": ""}
_AXES = {"times": ("knot",), "xs": ("knot", "state"), "us": ("knot", "control"), "K": ("knot", "control", "tangent")}


class ForeignDataset(ValueError):
    """The folder holds another study, or a shard of one."""


def shard_size(n: int) -> int:
    """Rows of a shard: enough for a batch, few enough that a stop costs little."""
    return int(np.clip(n // 64, 8, 256))


class Dataset:
    """The dataset of a study, to be written by one process at a time.

    Raises :class:`ForeignDataset` where the folder holds another study, OSError where it cannot be written, or is being written.
    """

    def __init__(
        self, folder: Path, study: Mapping[str, Any], variations: Variations, n: int, shard: int | None
    ) -> None:
        self.folder, self.variations = folder, variations
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        try:
            self._group = self._opened(dict(study), n, shard)
            self.shard: int = self._group.attrs["shard"]
            self.rows = max(n, *(array.shape[0] for _, array in self._arrays()), 0)
            self._marks = _marks(self._group.attrs["digest"], self.rows)
            self._check_marks()
            for _, array in self._arrays():
                array.resize((self.rows, *array.shape[1:]))
            self._session = self._begun()
        except BaseException:
            self.close()
            raise

    def _opened(self, study: dict[str, Any], n: int, shard: int | None) -> Any:
        zarr = require("zarr")
        path = self.folder / FOLDER
        digest = hashlib.sha256(json.dumps(study, sort_keys=True).encode()).hexdigest()
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "study": study, "digest": digest, "sessions": []}
        head |= {"shard": shard or shard_size(n)}
        if not (path / "zarr.json").exists():
            return zarr.create_group(path, overwrite=path.exists(), attributes=head)
        group = opened(self.folder, "r+")
        there = group.attrs["study"]
        if group.attrs["digest"] != digest:
            if not _marked(group).any():  # it ended before its first row: nothing is lost
                return zarr.create_group(path, overwrite=True, attributes=head)
            keys = ", ".join(sorted(_differences(there, study))) or "its digest"
            raise ForeignDataset(
                f"{path} holds another study, which differs in {keys}: choose another folder, or remove this one"
            )
        if shard is not None and shard != group.attrs["shard"]:
            raise ForeignDataset(
                f"{path} is written in shards of {group.attrs['shard']} rows, which stay as they are: leave the shard of "
                f"{shard} out, or choose another folder"
            )
        for rest in path.rglob("*.partial"):  # of a process that was killed
            rest.unlink(missing_ok=True)
        return group

    def _arrays(self) -> list[tuple[str, Any]]:
        """All arrays, by name."""
        zarr = require("zarr")
        members = self._group.members(max_depth=None)
        return [(name, item) for name, item in members if isinstance(item, zarr.Array)]

    def _check_marks(self) -> None:
        found = self._found()
        wrong = np.flatnonzero((found != 0) & (found != self._marks[: len(found)]))
        if len(wrong):
            first = int(wrong[0]) // self.shard * self.shard
            raise ForeignDataset(
                f"the shard of rows {first} to {first + self.shard - 1} in {self.folder / FOLDER} belongs to another study, "
                f"or to another place: remove its files, those named {first // self.shard} in the folders c, and run again"
            )

    def _found(self) -> Array:
        return _marked(self._group)

    def _begun(self) -> int:
        """The number of this session, noted with its versions."""
        sessions = self._group.attrs["sessions"]
        made_by = versions() | {"zarr": require("zarr").__version__}
        if not sessions or sessions[-1] != made_by:
            self._group.attrs["sessions"] = [*sessions, made_by]
            return len(sessions)
        return len(sessions) - 1

    def missing(self, n: int) -> Iterator[range]:
        """The rows below n that are not there, each range within a shard."""
        there = np.zeros(n, dtype=bool)
        found = self._found()[:n]
        there[: len(found)] = found != 0
        for first in range(0, n, self.shard):
            rows = np.flatnonzero(~there[first : first + self.shard]) + first
            if len(rows):
                yield range(int(rows[0]), int(rows[-1]) + 1)

    def write(self, results: Sequence[Result]) -> None:
        """Keep results, consecutive rows of one shard.

        Raises OSError, after which the rows that were finished before are there, and none of these.
        """
        try:
            self._write_all(results)
        except OSError as error:
            kept = (
                f"{error.strerror or error}; rows that are finished are kept, and the same study goes on where it was"
            )
            raise OSError(error.errno, kept, str(self.folder)) from error

    def _write_all(self, results: Sequence[Result]) -> None:
        rows = slice(results[0].row, results[-1].row + 1)
        assert [r.row for r in results] == list(range(rows.start, rows.stop))
        drawn = [self.variations.values(r.row) for r in results]
        for key, variation in self.variations.by_key.items():
            self._write(f"vary/{key}", rows, column([values[key] for values in drawn], variation))
        for name, kind in SCALARS.items():
            self._write(name, rows, np.array([r.scalars[name] for r in results], dtype=_TYPES[kind]))
        self._write("session", rows, np.full(len(results), self._session))
        for name in dict.fromkeys(name for r in results for name in r.arrays):
            self._write(name, rows, _padded([r.arrays.get(name) for r in results]))
        self._write(MARK, rows, self._marks[rows])

    def _write(self, name: str, rows: slice, values: Array) -> None:
        """Values of some rows; the array is made when it is first needed, and grows with the longest row."""
        array = self._group[name] if name in self._group else self._created(name, values)
        shape = (array.shape[0], *map(max, zip(array.shape[1:], values.shape[1:], strict=True)))
        if shape != array.shape:
            array.resize(shape)
        array[(rows, *(slice(size) for size in values.shape[1:]))] = values

    def _created(self, name: str, values: Array) -> Any:
        kind, inner = values.dtype.kind, tuple(max(1, size) for size in values.shape[1:])
        whole = {"chunks": (self.shard, *inner)}
        single = {"chunks": (1, *inner), "shards": (self.shard, *inner)}  # a trajectory can be read alone
        return self._group.create_array(
            name,
            shape=(self.rows, *values.shape[1:]),
            dtype=str if kind == "T" else values.dtype,
            fill_value=_EMPTY[kind],
            dimension_names=("row", *_AXES.get(name, ("entry",) * (values.ndim - 1))),
            **(single if name in _AXES else whole),
        )

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(folder: Path, mode: str = "r") -> Any:
    """The zarr group of a study's folder. Raises FileNotFoundError, ForeignDataset for something else."""
    zarr = require("zarr")
    path = folder / FOLDER
    if not (path / "zarr.json").exists():
        raise FileNotFoundError(f"there is no study in {folder}: it would hold {FOLDER}")
    group = zarr.open_group(path, mode=mode)
    if group.attrs.get("format") != FORMAT:
        raise ForeignDataset(f"{path} is no dataset of a study: choose another folder")
    if group.attrs["format_version"] > FORMAT_VERSION:
        raise ForeignDataset(f"{path} was written by a newer version of this package: update it")
    return group


def column(values: Sequence[Any], variation: Variation) -> Array:
    """Values of a key as an array: of numbers, truths, or lists of numbers of one length; all else as texts.

    Its type follows from the variation, so that it is the same for all rows.
    """
    if variation.kind not in LISTS:
        return np.array(values, dtype=int if variation.kind == "integers" else float)
    try:
        kind = np.array(variation.arguments).dtype
    except ValueError:  # lists of several lengths
        kind = np.dtype(object)
    if kind.kind in "bif":
        return np.array(values, dtype=kind)
    return np.array([v if isinstance(v, str) else json.dumps(v) for v in values], dtype=_TYPES[str])


def _padded(arrays: Sequence[Array | None]) -> Array:
    """Arrays side by side in the shape of the largest, with NaN behind the ends of others."""
    there = [a for a in arrays if a is not None]
    shape = np.max([a.shape for a in there], axis=0)
    found = np.full((len(arrays), *shape), np.nan)
    for row, a in enumerate(arrays):
        if a is not None:
            found[row][tuple(map(slice, a.shape))] = a
    return found


def _marks(digest: str, n: int) -> Array:
    """For each row a number that no other row, and no row of another study, has; not zero."""
    head = hashlib.blake2b(digest.encode(), digest_size=8).digest()
    hashed = (hashlib.blake2b(head + row.to_bytes(8, "little"), digest_size=8).digest() for row in range(n))
    return np.frombuffer(b"".join(hashed), dtype=np.uint64) | np.uint64(1)


def _marked(group: Any) -> Array:
    """The marks that are there."""
    return group[MARK][:] if MARK in group else np.zeros(0, dtype=np.uint64)


def _differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """The paths at which two plain values differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif a != b:
        yield path


def _locked(folder: Path) -> Any:
    filelock = require("filelock")
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise OSError(
            f"another process is writing the study in {folder}: wait for it, or choose another folder"
        ) from error
    return lock
