"""The numbers of a batch as kernels read them: one row of addresses for each problem, and arrays behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.solvers.problems.batch import Batch
from trajopt.stage.compiled.compiled_end import CompiledEnd


class Rows:
    """Addresses of what belongs to each of ``count`` problems, and the arrays behind them."""

    def __init__(self, count: int) -> None:
        self.count, self._kept = count, list[Array]()

    def table(self, columns: Sequence[Array | None]) -> Array:
        """(n, columns) where the row of each problem is, of arrays with n rows or one for all; zeros for none."""
        return np.ascontiguousarray(np.stack([self.addresses(column) for column in columns], axis=1))

    def addresses(self, array: Array | None) -> Array:
        """(n,): a column of the table."""
        if array is None:
            return np.zeros(self.count, np.int64)
        array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._kept.append(array)
        step = array.strides[0] if len(array) == self.count else 0
        return address(array) + step * np.arange(self.count, dtype=np.int64)

    def stages(self, batch: Batch, i: int, own: Any, path: Array | None = None) -> Array:
        """(n, 8) words: stages_t of phase i for each problem.

        own: that of one of them; path: parameters of its constraints, if they are rows.
        """
        knots = batch.ocp.phase_slices[i]
        values = (
            batch.t()[:, knots],
            batch.weights(i),
            batch.parameters(i),
            batch.theta(lambda ocp: ocp.phases[i].terms, batch.ocp.phases[i].knots),
        )
        fixed = [np.full(self.count, word, np.int64) for word in (own.ti, own.td, own.substeps)]
        last = np.full(self.count, own.pg, np.int64) if path is None else self.addresses(path)
        return np.stack([*fixed, *map(self.addresses, values), last], axis=1)

    def end(self, batch: Batch, end: CompiledEnd, path: Array | None = None) -> list[Array]:
        """end_t for each problem, by words."""
        values = batch.t()[:, -1:], batch.theta(lambda ocp: ocp.terminal, 1)
        last = np.full(self.count, end.data.pg, np.int64) if path is None else self.addresses(path)
        return [*map(self.addresses, values), last]
