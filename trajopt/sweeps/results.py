"""Read a study: scalars as a pandas table, trajectories as NumPy arrays or as a torch dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.sweeps.rows import COLUMNS, SCALARS
from trajopt.sweeps.stored import Stored, finished_rows, require


class Trajectories(NamedTuple):
    """Trajectories of m rows: row numbers (m,), times (m, N + 1) [s], xs (m, N + 1, nx), us (m, N, nu).

    NaN after the last knot of a shorter one, and for rows without a trajectory.
    """

    rows: Array
    times: Array
    xs: Array
    us: Array


@dataclass(frozen=True)
class Sweep:
    """A study in a folder, finished or not; missing rows are omitted.

    Every value that the methods read is checked against the marks of its row, except in datasets of format version 1; a mismatch
    raises ForeignDataset, which names the file.

    folder: folder of the study. Raises FileNotFoundError if it contains none, ForeignDataset if its dataset is no study's.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _ = self._stored

    @cached_property
    def _stored(self) -> Stored:
        """Stored data of the study, opened at the first use."""
        return Stored(self.folder)

    @property
    def group(self) -> Any:
        """The zarr group, read-only; values read from it are not checked."""
        return self._stored.group

    @property
    def study(self) -> Mapping[str, Any]:
        """Definition of the study: problem, vary (variations as texts), seed, gains; solver and options if they were given."""
        return self.group.attrs["study"]

    @property
    def sessions(self) -> Sequence[Mapping[str, str]]:
        """Package versions of each session, by package."""
        return self.group.attrs["sessions"]

    @property
    def n(self) -> int:
        """Number of rows of the study, finished or not."""
        return self._stored.n

    @property
    def finished(self) -> Array:
        """Numbers of the finished rows (m,)."""
        return finished_rows(self._stored.marks())

    @property
    def keys(self) -> list[str]:
        """The varied keys."""
        return list(self.study["vary"])

    def values(self, key: str) -> Array:
        """Return the values of a varied key in the finished rows, (m,) or (m, k); None if nothing is stored yet.

        Lists of texts or of different lengths, and tables, are JSON texts.
        """
        marks = self._stored.marks()
        return self._stored.values(f"vary/{key}", finished_rows(marks), marks)

    def scalars(self) -> Any:
        """Return a pandas.DataFrame with a line per finished row: varied values, results (``rows.SCALARS``), and session.

        A key with list values has a column per entry: key[0], key[1], ... A key named like a result is called vary/key. Results
        that a dataset of an older version lacks are omitted.
        """
        pandas = require("pandas")
        marks = self._stored.marks()
        rows, names = finished_rows(marks), (*SCALARS, "session")
        columns: dict[str, Any] = {}
        for key in self.keys if len(rows) else ():
            columns |= by_entry(_column(key), self._stored.values(f"vary/{key}", rows, marks))
        found = {name: self._stored.values(name, rows, marks) if len(rows) else [] for name in names}
        columns |= {
            name: values for name, values in found.items() if values is not None
        }  # datasets of older versions lack some
        return pandas.DataFrame(columns, index=pandas.Index(rows, name="row"))

    def trajectories(self, rows: Sequence[int] | None = None, success: bool = True) -> Trajectories:
        """Return the trajectories of rows; default: all finished rows. success: leave out rows without success.

        If none is left, or no row of the study has a trajectory, times, xs and us are empty. Raises IndexError for rows that are
        not finished.
        """
        marks = self._stored.marks()
        chosen = self._chosen(rows, success, marks)
        found = [self._stored.values(name, chosen, marks) for name in ("times", "xs", "us")]
        if not len(chosen) or any(values is None for values in found):  # none was solved
            return Trajectories(chosen, np.zeros((0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0)))
        return Trajectories(chosen, *found)

    def items(self, rows: Sequence[int] | None = None, success: bool = True) -> Items:
        """Return rows as a dataset for torch.utils.data.DataLoader, each read when accessed.

        rows, success: as in :meth:`trajectories`.
        """
        return Items(self.folder, tuple(map(int, self._chosen(rows, success, self._stored.marks()))))

    def _chosen(self, rows: Sequence[int] | None, success: bool, marks: Array) -> Array:
        """Return ``rows`` (None: all finished ones), without failed ones if ``success``.

        marks: stored marks of all rows, zero for unfinished ones. Raises IndexError for rows that are not finished.
        """
        there = finished_rows(marks)
        if rows is not None:
            missing = np.setdiff1d(rows, there)
            if len(missing):
                raise IndexError(f"row {missing[0]} is not among the {len(there)} finished rows of {self.folder}")
            there = np.asarray(rows, dtype=int)
        return there[self._stored.values("success", there, marks)] if success and len(there) else there


@dataclass(frozen=True)
class Items:
    """Rows of a study as a torch map-style dataset: ``len``, and items that are mappings of NumPy arrays.

    An item contains row, times (N + 1,), xs (N + 1, nx), us (N, nu), cost, and the varied values that are numbers, booleans or
    lists of them, by key (vary/KEY for the name of a result). Instances can be pickled, so that the workers of a DataLoader open
    the files themselves.
    """

    folder: Path | str | os.PathLike[str]
    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Item i: its row number, cost, times, xs, us without padding, and numeric varied values, read from the files."""
        row = self.rows[i]
        knots, cost, times, xs, us = (self._value(name, row) for name in ("knots", "cost", "times", "xs", "us"))
        item = {"row": row, "cost": float(cost), "times": times[: knots + 1], "xs": xs[: knots + 1], "us": us[:knots]}
        return item | {_column(key): values[i] for key, values in self._varied.items()}

    def _value(self, name: str, row: int) -> Any:
        """Return the checked value of an array in a row."""
        return self._stored.values(name, np.array([row]), self._marks)[0]

    @cached_property
    def _stored(self) -> Stored:
        """Stored data of the study, opened at the first use in each process."""
        return Stored(Path(self.folder))

    @cached_property
    def _marks(self) -> Array:
        """Marks of all rows, read at the first use."""
        return self._stored.marks()

    @cached_property
    def _varied(self) -> dict[str, Array]:
        """Varied values of the rows that are numbers or booleans, or lists of them, by key; values that are texts are omitted."""
        names = {key: f"vary/{key}" for key in self._stored.group.attrs["study"]["vary"]}
        rows = np.array(self.rows, dtype=int)
        found = {key: self._stored.values(name, rows, self._marks) for key, name in names.items()}
        return {key: values for key, values in found.items() if values.dtype.kind in "bif"}

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "rows": self.rows}


def _column(key: str) -> str:
    """Return the column name of a varied key: vary/KEY if a result has the same name."""
    return f"vary/{key}" if key in COLUMNS else key


def by_entry(key: str, values: Array) -> dict[str, Array]:
    """Split the values of a varied key into columns: one, or one for each list entry."""
    if values.ndim == 1:
        return {key: values}
    flat = values.reshape(len(values), -1)
    return {f"{key}[{i}]": flat[:, i] for i in range(flat.shape[1])}
