"""Solutions of a batch, as one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.problem.annotations import Annotations
from trajopt.problem.guess import Guess
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.success import unchecked_status

MEASURES = ("gradient", "defect", "kkt", "violation")
"""Termination measures of each problem, stored as ``meta["gradients"]`` and so on."""
_ONE = {f"{name}s": name for name in ("solve_time", *MEASURES)} | {
    "attempts": "attempts",
    "goal_tolerances": "goal_tolerance",
    "replays": "replay",
    "findings": "findings",
    "last_controls": LAST_CONTROL,
}
"""Key in the metadata of a solution for each per-problem list in the metadata of a batch."""


def unchecked_statuses(found: BatchSolution, tolerance: float = 0.0) -> tuple[Status, ...]:
    """Return the statuses of a batch by the numbers of the solver: successes become "converged", failures stay.

    A success with a scaled KKT error or a cost sensitivity above its tolerance becomes "acceptable"
    (:func:`trajopt.solvers.success.unchecked_status`). tolerance: of the solver on the scaled KKT error.
    """
    gradients = found.meta.get("gradients", [0.0] * len(found))
    rows = zip(found.status, gradients, found.us, found.cost, strict=True)
    return tuple(
        unchecked_status(s, float(g) if np.isfinite(g) else 0.0, us, float(c), tolerance) for s, g, us, c in rows
    )


@dataclass(frozen=True, eq=False, repr=False)
class BatchSolution:
    """Solutions of n problems, equal to those of single solves; item i is a :class:`~trajopt.results.solution.Solution`.

    xs (n, N + 1, nx), us (n, N, nu), cost (n,), iterations (n,); times (n or 1, N + 1) [s]. status: one per problem.
    K (n, N, nu, ndx), k (n, N, nu): feedback gains and last feed-forward steps; None unless requested. An invalid problem (see its
    status) has zero K and k, its guess as the trajectory, and a cost of NaN.
    model: robot model or None. annotations: annotations of the first problem, for plots. meta:

    - solver, options, total "seconds", and "how" and "lanes": how processes, threads and lanes shared the work
    - "solve_times" (n,) [s]: wall time of each problem; in lanes it is divided by the number of slots of a window
    - "gradients", "kkts", "violations" (n,): final largest gradient, scaled KKT error, largest defect or constraint violation;
      NaN after single solves
    - "defects" (n,): largest final defect, NaN after single solves; absent or NaN for the interior point
    - "referred", "second_starts": numbers of the problems repeated as single solves, or with nonlinear gaps; absent without any
    - "rounds": number of rounds of inner solves, for augmented Lagrangians
    - "attempts" of the solver "auto", by problem
    - "last_controls" (n, nu): controls at the last knot with a first-order hold, NaN for problems without a solution; else absent
    - "goal_tolerances" (n,): tolerance of relaxed goals, None for problems without relaxation; absent without any
    - "replays" (n,): results of the replays (:meth:`trajopt.validation.replay.Replay.as_meta`), or the reason "left_out" of those
      that failed; absent unless requested
    - "findings" (n,): lists of findings of these checks; absent unless requested
    - "scaling": factors of the states, of the controls and of the cost; absent if the problems were not scaled
    - "stopped": True if Ctrl-C ended the batch
    """

    xs: Array
    us: Array
    cost: Array
    iterations: Array
    status: tuple[Status, ...]
    times: Array
    K: Array | None = None
    k: Array | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    model: Model | None = None
    annotations: Annotations | None = None

    def __len__(self) -> int:
        return len(self.status)

    @cached_property
    def success(self) -> Array:
        """Success flag (n,) of each problem."""
        return np.array([s.success for s in self.status])

    @property
    def stopped(self) -> bool:
        """True if Ctrl-C stopped the batch, even if all started problems finished."""
        return bool(self.meta.get("stopped")) or any(s.code is StatusCode.INTERRUPTED for s in self.status)

    @property
    def messages(self) -> list[str]:
        """Status message of each problem."""
        return [str(s) for s in self.status]

    @cached_property
    def _metas(self) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        """Shared metadata, and (key, list) pairs of per-problem metadata."""
        shared = {key: v for key, v in self.meta.items() if key not in _ONE}
        return shared, [(one, self.meta[all_]) for all_, one in _ONE.items() if all_ in self.meta]

    def __getitem__(self, i: int) -> Solution:
        K = np.zeros((*self.us.shape[1:], 0)) if self.K is None else self.K[i]
        k = np.zeros(self.us.shape[1:]) if self.k is None else self.k[i]
        times = self.times[i if len(self.times) == len(self) else 0]
        numbers = float(self.cost[i]), int(self.iterations[i])
        shared, of_each = self._metas
        meta = {**shared, **{name: rows[i] for name, rows in of_each}}
        seen: dict[str, Any] = {"model": self.model, "annotations": self.annotations}
        return Solution(self.xs[i], self.us[i], K, k, self.status[i], *numbers, (), times, meta, **seen)

    @cached_property
    def _solutions(self) -> list[Solution]:
        """All items, cached for iteration."""
        return [self[i] for i in range(len(self))]

    def __iter__(self) -> Iterator[Solution]:
        return iter(self._solutions)

    def __repr__(self) -> str:
        ends = ", ".join(f"{count} {code}" for code, count in Counter(str(s.code) for s in self.status).most_common())
        return f"BatchSolution({len(self)} problems: {ends})"


def guess_of(guess: tuple[Array, Array], i: int, n: int) -> Guess:
    """Return the guess of problem i, out of n; a guess with one row is shared by all problems."""
    return Guess(*(rows[i if len(rows) == n else 0] for rows in guess))


def rows_of(guess: tuple[Array, Array], numbers: list[int], n: int) -> tuple[Array, Array]:
    """Return the guesses of the problems in ``numbers``, out of n; a guess shared by all problems stays one row.

    If ``numbers`` has all n problems, the guess is returned unchanged.
    """
    xs, us = (rows[numbers] if len(rows) == n and len(numbers) < n else rows for rows in guess)
    return xs, us


def renumbered(meta: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Convert problem indices in the lists "referred" and "second_starts" of a sub-batch to indices of the whole batch.

    numbers: indices of the sub-batch's problems.
    """
    lists = ("referred", "second_starts")
    return {key: [numbers[j] for j in value] if key in lists else value for key, value in meta.items()}


def gathered(
    batch: Batch, found: Mapping[int, Solution | Status], *, gains: bool, meta: Mapping[str, Any]
) -> BatchSolution:
    """Stack solutions into a BatchSolution; a problem may have only a status; a missing problem was not started.

    Trajectory and cost of a problem without a solution are NaN, its gains zero. gains: include K and k.
    """
    ocp, n = batch.ocp, len(batch)
    N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
    xs, us, cost = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan), np.full(n, np.nan)
    iterations, status = np.zeros(n, int), [termination.not_started()] * n
    K, k = (np.zeros((n, N, nu, ndx)), np.zeros((n, N, nu))) if gains else (None, None)
    each: dict[str, list[Any]] = {f"{name}s": [np.nan] * n for name in ("solve_time", *MEASURES)}
    if any(isinstance(s, Solution) and "attempts" in s.meta for s in found.values()):
        each["attempts"] = [[] for _ in range(n)]
    if any(isinstance(s, Solution) and s.meta.get("goal_tolerance") is not None for s in found.values()):
        each["goal_tolerances"] = [None] * n
    if any(isinstance(s, Solution) and LAST_CONTROL in s.meta for s in found.values()):
        each["last_controls"] = [[np.nan] * nu for _ in range(n)]
    if any(isinstance(s, Solution) and "replay" in s.meta for s in found.values()):
        each |= {"replays": [{"left_out": "the solve failed"}] * n, "findings": [[] for _ in range(n)]}
    for i, s in found.items():
        if isinstance(s, Status):
            status[i] = s
            continue
        xs[i], us[i], cost[i], iterations[i], status[i] = s.xs, s.us, s.cost, s.iterations, s.status
        if K is not None and k is not None:
            K[i], k[i] = s.K, s.k
        for name, rows in each.items():
            rows[i] = s.meta.get(_ONE[name], rows[i])
    return BatchSolution(xs, us, cost, iterations, tuple(status), batch.times(), K, k, {**meta, **each})
