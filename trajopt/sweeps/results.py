"""Reading a study: scalars as a table of pandas, trajectories as arrays of NumPy or item by item for torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.sweeps.extra import require
from trajopt.sweeps.rows import COLUMNS, SCALARS
from trajopt.sweeps.stored import Stored, finished


class Trajectories(NamedTuple):
    """rows (m,), times (m, N + 1), xs (m, N + 1, nx), us (m, N, nu); NaN behind the last knot of a shorter one."""

    rows: Array
    times: Array
    xs: Array
    us: Array


@dataclass(frozen=True)
class Sweep:
    """The study in a folder, finished or not; rows that are not there yet are left out.

    What is read is checked against the marks of its rows: values that the study did not write there are an error, which says where.

    folder: of the study. Raises FileNotFoundError, ForeignDataset where it holds something else.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _ = self._stored

    @cached_property
    def _stored(self) -> Stored:
        return Stored(self.folder)

    @property
    def group(self) -> Any:
        """The zarr group, read-only; what is read from it is not checked."""
        return self._stored.group

    @property
    def study(self) -> Mapping[str, Any]:
        """Definition of the study: the problem, the variations, the seed, the solver."""
        return self.group.attrs["study"]

    @property
    def sessions(self) -> Sequence[Mapping[str, str]]:
        """The versions of what computed, by session."""
        return self.group.attrs["sessions"]

    @property
    def n(self) -> int:
        """Number of rows of the study, finished or not."""
        return self._stored.n

    @property
    def finished(self) -> Array:
        """The rows that are there (m,)."""
        return finished(self._stored.marks())

    @property
    def keys(self) -> list[str]:
        """The keys that are varied."""
        return list(self.study["vary"])

    def values(self, key: str) -> Array:
        """The values of a varied key in the finished rows, (m,) or (m, k)."""
        marks = self._stored.marks()
        return self._stored.values(f"vary/{key}", finished(marks), marks)

    def scalars(self) -> Any:
        """A pandas.DataFrame: a line for each finished row, the varied values, then those of
        :data:`~trajopt.sweeps.rows.SCALARS` and the session.

        A key whose values are lists has a column for each entry: key[0], key[1], ...; one that is called as a result is vary/key.
        """
        pandas = require("pandas")
        marks = self._stored.marks()
        rows, names = finished(marks), (*SCALARS, "session")
        columns: dict[str, Any] = {}
        for key in self.keys if len(rows) else ():
            columns |= by_entry(_column(key), self._stored.values(f"vary/{key}", rows, marks))
        found = {name: self._stored.values(name, rows, marks) if len(rows) else [] for name in names}
        columns |= {name: values for name, values in found.items() if values is not None}  # an older one has fewer
        return pandas.DataFrame(columns, index=pandas.Index(rows, name="row"))

    def trajectories(self, rows: Sequence[int] | None = None, success: bool = True) -> Trajectories:
        """The trajectories of rows, default all finished ones; success: only of those that were solved."""
        marks = self._stored.marks()
        chosen = self._chosen(rows, success, marks)
        found = [self._stored.values(name, chosen, marks) for name in ("times", "xs", "us")]
        if not len(chosen) or any(values is None for values in found):  # none was solved
            return Trajectories(chosen, np.zeros((0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0)))
        return Trajectories(chosen, *found)

    def items(self, rows: Sequence[int] | None = None, success: bool = True) -> Items:
        """Rows, read lazily: a dataset for torch.utils.data.DataLoader."""
        return Items(self.folder, tuple(map(int, self._chosen(rows, success, self._stored.marks()))))

    def _chosen(self, rows: Sequence[int] | None, success: bool, marks: Array) -> Array:
        there = finished(marks)
        if rows is not None:
            missing = np.setdiff1d(rows, there)
            if len(missing):
                raise IndexError(f"row {missing[0]} is not among the {len(there)} finished rows of {self.folder}")
            there = np.asarray(rows, dtype=int)
        return there[self._stored.values("success", there, marks)] if success and len(there) else there


@dataclass(frozen=True)
class Items:
    """Rows of a study by number, as torch asks for them: ``len``, and items that are mappings of NumPy arrays.

    An item has row, times (N + 1,), xs (N + 1, nx), us (N, nu), cost, and by key the varied values that are numbers.
    It can be pickled, so that the workers of a DataLoader read for themselves.
    """

    folder: Path | str | os.PathLike[str]
    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        row = self.rows[i]
        knots, cost, times, xs, us = (self._value(name, row) for name in ("knots", "cost", "times", "xs", "us"))
        item = {"row": row, "cost": float(cost), "times": times[: knots + 1], "xs": xs[: knots + 1], "us": us[:knots]}
        return item | {_column(key): values[i] for key, values in self._varied.items()}

    def _value(self, name: str, row: int) -> Any:
        return self._stored.values(name, np.array([row]), self._marks)[0]

    @cached_property
    def _stored(self) -> Stored:
        return Stored(Path(self.folder))

    @cached_property
    def _marks(self) -> Array:
        return self._stored.marks()

    @cached_property
    def _varied(self) -> dict[str, Array]:
        names = {key: f"vary/{key}" for key in self._stored.group.attrs["study"]["vary"]}
        rows = np.array(self.rows, dtype=int)
        found = {key: self._stored.values(name, rows, self._marks) for key, name in names.items()}
        return {key: values for key, values in found.items() if values.dtype.kind in "bif"}

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "rows": self.rows}


def _column(key: str) -> str:
    return f"vary/{key}" if key in COLUMNS else key


def by_entry(key: str, values: Array) -> dict[str, Array]:
    """The columns of a varied key: its values, or one column for each entry of lists."""
    if values.ndim == 1:
        return {key: values}
    flat = values.reshape(len(values), -1)
    return {f"{key}[{i}]": flat[:, i] for i in range(flat.shape[1])}
