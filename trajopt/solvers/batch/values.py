"""Layout of a batch in memory for the C kernels: one row of array addresses for each problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.solvers.problems.batch import Batch
from trajopt.stage.compiled.compiled_end import CompiledEnd


class Rows:
    """Table of array addresses for ``count`` problems; holds references to the arrays."""

    def __init__(self, count: int) -> None:
        self.count, self._kept = count, list[Array]()

    def table(self, columns: Sequence[Array | None]) -> Array:
        """Return addresses (n, columns) of the row of each problem in arrays with n rows or one shared row; 0 for None."""
        return np.ascontiguousarray(np.stack([self.addresses(column) for column in columns], axis=1))

    def addresses(self, array: Array | None) -> Array:
        """Return one column (n,) of the table: the address of the row of each problem in an array; 0 for None."""
        if array is None:
            return np.zeros(self.count, np.int64)
        array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._kept.append(array)
        step = array.strides[0] if len(array) == self.count else 0
        return address(array) + step * np.arange(self.count, dtype=np.int64)

    def stages(self, batch: Batch, i: int, own: Any, path: Array | None = None) -> Array:
        """Return stages_t of phase i for each problem as 64-bit words (n, 7).

        own: stages_t of one problem, for the shared words. path: parameters of its path constraints, by problem; None to share.
        """
        knots = batch.ocp.phase_slices[i]
        values = (
            batch.t()[:, knots],
            batch.weights(i),
            batch.parameters(i),
            batch.theta(lambda ocp: ocp.phases[i].terms, batch.ocp.phases[i].knots),
        )
        fixed = [np.full(self.count, word, np.int64) for word in (own.structure, own.substeps)]
        last = np.full(self.count, own.pg, np.int64) if path is None else self.addresses(path)
        return np.stack([*fixed, *map(self.addresses, values), last], axis=1)

    def end(self, batch: Batch, end: CompiledEnd, path: Array | None = None) -> list[Array]:
        """Return the columns of end_t for each problem, one 64-bit word each."""
        values = batch.t()[:, -1:], batch.theta(lambda ocp: ocp.terminal, 1)
        last = np.full(self.count, end.data.pg, np.int64) if path is None else self.addresses(path)
        return [np.full(self.count, end.data.structure, np.int64), *map(self.addresses, values), last]
