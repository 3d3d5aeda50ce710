"""The numbers of a batch as kernels/shooting_seats.h reads them: one row of addresses for each problem, and arrays behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.solution import MEASURES
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages

_OWN = (
    "optimal",
    "converged",
    "max_iterations",
    "time_limit",
    "interrupted",
    "non_finite",
    "precision_limit",
    "line_search_failed",
    "gaps_stay_open",
)
ENDS = {name: 16 + i for i, name in enumerate(_OWN)}
"""How a solve ended, beside the ends of an iteration; values of an enumeration that stands before shooting_seats.h."""
COST_CONVERGED, NOT_POSITIVE_DEFINITE = 1, 2
"""How an iteration ended; values of the enumeration of iterate.h."""
NOT_BEGUN = -1
RESULT = np.dtype(
    [(name, np.int64) for name in ("code", "iterations", "failed_at")]
    + [(name, float) for name in ("cost", "gradient", "defect", "kkt", "change", "seconds")]
)
"""result_t of shooting_seats.h."""


def measures_of(results: Any) -> dict[str, list[float]]:
    """What a solution tells of the ends of its problems, which have no constraints: gaps are all that they can violate."""
    of = {name: name for name in MEASURES} | {"violation": "defect"}
    return {f"{name}s": results[column].tolist() for name, column in of.items()}


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


class Members(Rows):
    """member_t of shooting_seats.h for each problem, and where the solutions come to be.

    xs (n or 1, N + 1, nx), us (n or 1, N, nu): guesses. max_iterations (n,).
    """

    def __init__(
        self,
        batch: Batch,
        stages: Sequence[CompiledStages],
        end: CompiledEnd,
        guess: tuple[Array, Array],
        max_iterations: Array,
        gains: bool,
    ) -> None:
        ocp, n = batch.ocp, len(batch)
        N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
        super().__init__(n)
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan)
        self.K = np.zeros((n, N, nu, ndx)) if gains else None
        self.k = np.zeros((n, N, nu)) if gains else None
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        data = [self.stages(batch, i, s.data) for i, s in enumerate(stages)]
        self._phases = np.ascontiguousarray(np.stack(data, axis=1))
        self._ends = np.ascontiguousarray(np.stack(self.end(batch, end), axis=1))
        bounds = batch.bounds() or (None, None)
        columns = [
            *map(self.addresses, (self._phases, self._ends, batch.x0(), *guess)),
            *map(self.addresses, bounds),
            np.asarray(max_iterations, dtype=np.int64),
            *map(self.addresses, (self.xs, self.us, self.K, self.k, self.results)),
        ]
        self._words = np.ascontiguousarray(np.stack(np.broadcast_arrays(*columns), axis=1))
        self.address = address(self._words)
