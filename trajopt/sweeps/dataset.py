"""Results of a study on disk: a group of zarr arrays (format 3), one row per entry of the first axis.

| array | shape | |
|---|---|---|
| vary/KEY | (n,) or (n, k) | the varied values; lists of texts, and tables, as JSON |
| status, reason | (n,) | reason why the solve ended, as a word and as a sentence; "error" and "died" without a solve |
| success, iterations, knots, session | (n,) | |
| cost, kkt, violation, solve_time | (n,) | as in a solution; violation: maximum over constraints, bounds and dynamics |
| duration | (n,) | of the motion [s]; differs from the last of ``times`` if the duration is free |
| times, xs | (n, N + 1), (n, N + 1, nx) | NaN behind the last knot of a shorter row |
| us, K | (n, N, nu), (n, N, nu, ndx) | likewise; K only with ``gains`` |
| mark | (n, arrays) | 0 for a row that is not stored yet, else a hash of the study, the row and its content for each array |

Each array has a file for each shard of ``shard`` rows, unless all of them are empty. A file is written completely or not at all,
and is on disk before the next one. The marks of rows are written after their values. After a crash, a power cut or a full
disk, the marked rows are intact. Unmarked files are removed when the study resumes, and their rows are solved again.
The group attributes store the definition of the study (``study``), the array names in the order of the marks, and the package
versions of each session.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.solution import versions
from trajopt.sweeps.rows import SCALARS, Result
from trajopt.sweeps.stored import (
    FOLDER,
    FORMAT,
    FORMAT_VERSION,
    MARK,
    ForeignDataset,
    Stored,
    digest,
    durable_store,
    finished_rows,
    require,
    settle,
)
from trajopt.sweeps.variation import LISTS, Variation, Variations

LOCK, VARY, SESSION = "sweep.lock", "vary/", "session"
_TYPES: dict[type, Any] = {
    str: np.dtypes.StringDType(),
    bool: np.dtype(bool),
    float: np.dtype(float),
    int: np.dtype(np.int64),
}
_EMPTY: dict[str, Any] = {"f": np.nan, "i": 0, "u": 0, "b": False, "T": ""}
_AXES = {"times": ("knot",), "xs": ("knot", "state"), "us": ("knot", "control"), "K": ("knot", "control", "tangent")}


def shard_size(n: int) -> int:
    """Return the default number of rows of a shard: n / 64, at least 8 and at most 256."""
    return int(np.clip(n // 64, 8, 256))


class Dataset:
    """Dataset of a study, written by one process at a time.

    variations: those of the study. n: number of rows; a dataset with more rows keeps them. shard: rows per shard, None for that of
    the dataset or :func:`shard_size`.

    Raises :class:`ForeignDataset` if the folder contains another study, one of another package version or shard size, or damaged
    rows; OSError if the folder cannot be written, or if another process is writing to it.
    """

    def __init__(
        self, folder: Path, study: Mapping[str, Any], variations: Variations, n: int, shard: int | None
    ) -> None:
        self.folder, self.variations = folder, variations
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        try:
            self._stored = self._open(dict(study), n, shard)
            self._group, self.shard = self._stored.group, self._stored.shard
            self._tidy()
            self.rows = max(n, self._stored.n)
            for _, array in self._arrays():
                array.resize((self.rows, *array.shape[1:]))
            self._session = self._start_session()
        except BaseException:
            self.close()
            raise

    def _open(self, study: dict[str, Any], n: int, shard: int | None) -> Stored:
        """Open the dataset of a study, or create it if the folder has none, or one without finished rows, which is overwritten.

        Raises ForeignDataset for another study, other array names (of another version), another shard size, and damaged rows.
        """
        path = self.folder / FOLDER
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "study": study, "digest": digest(study)}
        head |= {"sessions": [], "shard": shard or shard_size(n), "arrays": _names(study)}
        if not (path / "zarr.json").exists():
            return self._begin(head)
        stored = Stored(self.folder, writable=True)
        if not len(finished_rows(stored.marks())):  # no finished row: start again
            return self._begin(head)
        there = stored.group.attrs["study"]
        if stored.group.attrs["digest"] != head["digest"]:
            keys = ", ".join(sorted(map(_config_key, _differences(there, study)))) or "its digest"
            raise ForeignDataset(
                f"{path} contains another study, which differs in {keys}: choose another folder, or delete this one"
            )
        if stored.arrays != head["arrays"]:
            raise ForeignDataset(
                f"{path} was written by another version of this package: it can be read, but not resumed; "
                "choose another folder"
            )
        if shard is not None and shard != stored.shard:
            raise ForeignDataset(
                f"{path} has shards of {stored.shard} rows, which cannot change: remove the shard size "
                f"{shard}, or choose another folder"
            )
        stored.check()
        return stored

    def _begin(self, head: dict[str, Any]) -> Stored:
        """Create an empty dataset with these attributes; overwrites an earlier one."""
        store = durable_store(self.folder / FOLDER)
        require("zarr").create_group(store, overwrite=store.root.exists(), attributes=head)
        settle(self.folder)
        return Stored(self.folder, writable=True)

    def _arrays(self) -> list[tuple[str, Any]]:
        """Return all existing arrays with their names."""
        return [(name, self._group[name]) for name in (*self._stored.arrays, MARK) if name in self._group]

    def _tidy(self) -> None:
        """Remove files that a killed process left behind: temporary files, and shards without a mark."""
        for rest in self._stored.path.rglob(".*.tmp"):
            rest.unlink(missing_ok=True)
        marked_shards = set(np.unique(finished_rows(self._stored.marks()) // self.shard).astype(str))
        for folder in (self._stored.path / name / "c" for name, _ in self._arrays()):
            left = [rest for rest in folder.iterdir() if rest.name not in marked_shards] if folder.is_dir() else []
            for rest in left:
                shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
            if left:
                settle(folder)

    def _start_session(self) -> int:
        """Return the number of this session, that of the last one if it has the same package versions; else stores a new one."""
        sessions = self._group.attrs["sessions"]
        made_by = versions() | {"zarr": require("zarr").__version__}
        if not sessions or sessions[-1] != made_by:
            self._group.attrs["sessions"] = [*sessions, made_by]
            return len(sessions)
        return len(sessions) - 1

    def missing(self, n: int) -> Iterator[range]:
        """Yield a range of rows for each shard with missing rows below n, from the first to the last of them.

        Finished rows in between are included.
        """
        there = np.zeros(n, dtype=bool)
        there[[row for row in finished_rows(self._stored.marks()) if row < n]] = True
        for first in range(0, n, self.shard):
            rows = np.flatnonzero(~there[first : first + self.shard]) + first
            if len(rows):
                yield range(int(rows[0]), int(rows[-1]) + 1)

    def write(self, results: Sequence[Result]) -> None:
        """Store results of consecutive rows of one shard.

        Raises OSError if writing fails; then their marks are unchanged, so that new rows count as missing; other rows are intact.
        """
        try:
            self._write_all(results)
        except OSError as error:
            sentence = f"{error.strerror or error}; finished rows are saved; run the same study again to resume"
            raise OSError(error.errno, sentence, str(self.folder)) from error

    def _write_all(self, results: Sequence[Result]) -> None:
        """Write the values of consecutive rows array by array, then the marks of the rows."""
        rows = [r.row for r in results]
        at = slice(rows[0], rows[-1] + 1)
        assert rows == list(range(at.start, at.stop))
        hashes = self._stored.hashes
        marks = np.zeros((len(rows), len(hashes.column)), dtype=np.uint64)
        for name, column in hashes.column.items():
            values = self._values(name, results)
            if values is not None:
                self._write(name, at, values)
            marks[:, column] = hashes.hash_rows(name, rows, values)
        self._write(MARK, at, marks)

    def _values(self, name: str, results: Sequence[Result]) -> Array | None:
        """Return the entries of an array for these results; None if no row has one, as for trajectories of failed rows."""
        if name.startswith(VARY):
            key = name.removeprefix(VARY)
            drawn = [self.variations.values(r.row)[key] for r in results]
            return column(drawn, self.variations.by_key[key])
        if name in SCALARS:
            return np.array([r.scalars[name] for r in results], dtype=_TYPES[SCALARS[name]])
        if name == SESSION:
            return np.full(len(results), self._session)
        wide = self._group[name].shape[1:] if name in self._group else None
        return _padded([r.arrays.get(name) for r in results], wide)

    def _write(self, name: str, rows: slice, values: Array) -> None:
        """Write the entries of some rows. The array is created on first use and grows with the longest row."""
        array = self._group[name] if name in self._group else self._create_array(name, values)
        if array.shape[1:] != values.shape[1:]:
            array.resize((array.shape[0], *values.shape[1:]))
        array[rows] = values

    def _create_array(self, name: str, values: Array) -> Any:
        """Create an array for all rows, with the shape and type of these values."""
        kind, inner = values.dtype.kind, tuple(max(1, size) for size in values.shape[1:])
        whole = {"chunks": (self.shard, *inner)}
        single = {"chunks": (1, *inner), "shards": (self.shard, *inner)}  # each trajectory can be read separately
        return self._group.create_array(
            name,
            shape=(self.rows, *values.shape[1:]),
            dtype=str if kind == "T" else values.dtype,
            fill_value=_EMPTY[kind],
            dimension_names=("row", *_AXES.get(name, ("entry",) * (values.ndim - 1))),
            **(single if name in _AXES else whole),
        )

    def close(self) -> None:
        """Release the lock, so that another process can write."""
        self._lock.release()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _names(study: Mapping[str, Any]) -> list[str]:
    """Return the names of all arrays of a study, except the marks."""
    gains = ("K",) if study["gains"] else ()
    return [*(f"{VARY}{key}" for key in study["vary"]), *SCALARS, SESSION, "times", "xs", "us", *gains]


def column(values: Sequence[Any], variation: Variation) -> Array:
    """Convert the values of a key to an array of numbers, booleans, equally long lists of these, or else of texts.

    Texts stay; other values of arrays of texts are written as JSON. The type depends on the variation alone, so all rows have the
    same type.
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


def _padded(arrays: Sequence[Array | None], wide: tuple[int, ...] | None) -> Array | None:
    """Stack arrays of different shapes, padded with NaN to the largest shape (at least ``wide``); None counts as NaN.

    Returns None if all arrays and ``wide`` are None.
    """
    shapes = [a.shape for a in arrays if a is not None] + ([] if wide is None else [wide])
    if not shapes:
        return None
    found = np.full((len(arrays), *np.max(shapes, axis=0)), np.nan)
    for row, a in enumerate(arrays):
        if a is not None:
            found[row][tuple(map(slice, a.shape))] = a
    return found


def _differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted paths at which two plain values differ; tables are compared key by key, other values as a whole."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif a != b:
        yield path


def _config_key(path: str) -> str:
    """Return the key of a configuration that a path of a study refers to, or the part of a function."""
    parts = {"problem.function": "the name of the function", "problem.content": "the code or data of the function"}
    return parts.get(path, path.removeprefix("problem."))


def _locked(folder: Path) -> Any:
    """Return the acquired lock of a folder, without waiting. Raises OSError if another process holds it."""
    filelock = require("filelock")
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise OSError(f"another process is writing to {folder}: wait for it, or choose another folder") from error
    return lock
