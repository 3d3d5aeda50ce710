"""Constraints for solvers that know none: an augmented Lagrangian around their loop.

Inner solves, of the problem with the cost terms of :mod:`.penalized`, and updates of multipliers and penalties take turns.  A
penalty grows where the violation does not fall fast enough (R. Andreani, E. Birgin, J. Martinez, M. Schuverdt, SIAM J. Optim. 18,
2007, algorithm 3.1).  What the updates decide is :class:`Rounds`, for one problem here and for those of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.penalized import Imposed, augmented, imposed, key_of, named, values, worst_violation

GROWTH, SUFFICIENT = 10.0, 0.25
"""A penalty grows by GROWTH where the violation is above this share of the last one."""
FIRST_TOLERANCE, TIGHTENING = 1e-2, 0.1
"""The tolerance on the gradient of the first inner solve, and its factor from one to the next."""

Solver = Callable[[OCP, Guess, Any, "Callback | None"], Solution]


class End(Enum):
    """Why no inner solve follows."""

    SOLVED = 1
    STOPPED = 2
    """The last inner solve was: by a limit, or by somebody."""
    NON_FINITE = 3
    SATURATED = 4
    """A constraint that is violated has the largest penalty."""
    NOT_MET = 5
    """The limit of updates."""
    USED_UP = 6
    """The last inner solve has taken the last of all iterations."""


class Inner(NamedTuple):
    """What is read of an inner solve: its status, whether its trajectory and cost are finite, its iterations, and measures at its
    end."""

    status: Status
    finite: bool
    iterations: int
    gradient: float
    defect: float
    kkt: float


class Rounds:
    """The inner solves of a problem: what their tolerance is, and when they end.

    violation: of the constraints at the end of the last one.
    """

    def __init__(self, options: SLQOptions, constraints: int) -> None:
        self.options, self.count, self.violation = options, 0, np.inf
        self._looks_and_steps = 0
        self.tolerance = max(options.gradient_tolerance, FIRST_TOLERANCE)
        self._last = [np.inf] * constraints

    @property
    def begun(self) -> bool:
        """Whether there was one."""
        return self._looks_and_steps > 0

    @property
    def iterations(self) -> int:
        """Iterations of all; the look at the start of each counts as one, but for the first, as in a solve without constraints."""
        return max(0, self._looks_and_steps - 1)

    @property
    def left(self) -> int:
        """Iterations that the next inner solve may take after its look at the start."""
        return max(0, self.options.max_iterations - self._looks_and_steps)

    def after(
        self, inner: Inner, errors: Sequence[float], violation: float, rho: Sequence[float]
    ) -> tuple[End | None, list[bool]]:
        """Why none follows, or None; and the constraints whose penalties grow.

        errors, rho: the violation of feasibility and complementarity, and the penalty, by constraint. violation: the largest one.
        """
        o, stays = self.options, [False] * len(errors)
        self._looks_and_steps += inner.iterations + 1
        if not (inner.finite and np.isfinite(violation)):  # penalties of NaN may be zero
            return End.NON_FINITE, stays
        self.violation = violation
        if inner.status.code not in _GOES_ON:
            return End.STOPPED, stays
        met = inner.defect <= o.defect_tolerance and max(errors) <= o.constraint_tolerance
        if met and self.tolerance <= o.gradient_tolerance:
            return End.SOLVED, stays
        pairs = zip(errors, self._last, strict=True)
        grows = [error > max(o.constraint_tolerance, SUFFICIENT * before) for error, before in pairs]
        if any(slow and own >= o.max_constraint_penalty for slow, own in zip(grows, rho, strict=True)):
            return End.SATURATED, grows
        self.tolerance, self._last = max(o.gradient_tolerance, TIGHTENING * self.tolerance), list(errors)
        self.count += 1
        if self.count >= o.max_outer_iterations:
            return End.NOT_MET, grows
        return End.USED_UP if self.iterations >= o.max_iterations else None, grows


def stiffened(part: Imposed, grows: Any, options: SLQOptions) -> Imposed:
    """With larger penalties where they grow: a bool, or (n,)."""
    larger = np.minimum(GROWTH * part.rho, options.max_constraint_penalty)
    return replace(part, rho=np.where(grows, larger, part.rho))


_GOES_ON = (
    StatusCode.CONVERGED,
    StatusCode.COST_CONVERGED,
    StatusCode.PRECISION_LIMIT,
    StatusCode.LINE_SEARCH_FAILED,
)
"""Ends of an inner solve after which multipliers are worth updating."""


def status_of(end: End, ocp: OCP, xs: Array, us: Array, inner: Inner, rounds: Rounds) -> Status:
    """The status of a problem that ended at a trajectory."""
    if end is End.NON_FINITE:
        found = _non_finite_constraint(ocp, xs, us)
        return inner.status if found is None else termination.non_finite(found)
    o, n = rounds.options, rounds.iterations
    errors = termination.Errors(inner.kkt, inner.gradient, inner.defect, rounds.violation)
    measured = termination.Measured(n, errors, o.tolerances)
    if end is End.SOLVED and inner.status.success:
        return termination.converged(measured)
    if end is not End.SOLVED:
        measured = measured._replace(worst=worst_violation(ocp, xs, us))
    if end is End.NOT_MET:
        advice = "Increase max_outer_iterations or constraint_penalty, or start from a better guess."
        return termination.max_iterations(o.max_outer_iterations, measured, advice, of="max_outer_iterations")
    if end is End.SATURATED:
        # at the largest penalties a minimizer is a stationary point of the violation; others are not
        if inner.status.success:
            return termination.locally_infeasible(n, measured.worst)
        return termination.max_penalty(inner.status.code, measured)
    code = StatusCode.MAX_ITERATIONS if end is End.USED_UP else inner.status.code
    if code is StatusCode.MAX_ITERATIONS:
        return termination.max_iterations(o.max_iterations, measured)
    if code is StatusCode.TIME_LIMIT:
        return termination.time_limit(o.time_limit, measured)
    if code is StatusCode.PRECISION_LIMIT:
        return termination.precision_limit(measured)
    if code is StatusCode.INTERRUPTED:
        return termination.interrupted(n)
    counts = code in (StatusCode.LINE_SEARCH_FAILED, StatusCode.COST_CONVERGED)
    return termination.of_last_inner_solve(inner.status) if counts else inner.status


def _non_finite_constraint(ocp: OCP, xs: Array, us: Array) -> termination.NonFinite | None:
    """The first constraint that is NaN or infinite along a trajectory, or None."""
    parts = imposed(ocp, 1.0, {})
    for part, g in zip(parts, values(ocp, parts, xs, us), strict=True):
        if not np.isfinite(g).all():
            k, i = (int(v) for v in np.argwhere(~np.isfinite(g))[0])
            return termination.NonFinite(named(ocp, part, k, i), "the constraint")
    return None


def solve_constrained(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    solver: Solver,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """A problem with constraints by a solver of problems without; multipliers: of an earlier solution, by name."""
    return _Solve(ocp, options, callback, solver).run(guess, multipliers or {})


class _Solve:
    """Inner solves of one problem, and what is told of them."""

    def __init__(self, ocp: OCP, options: SLQOptions, callback: Callback | None, solver: Solver) -> None:
        self.ocp, self.options, self.callback, self.solver = ocp, options, callback, solver
        self.records: list[IterationRecord] = []
        self.began = time.perf_counter()

    def run(self, guess: Guess, multipliers: Mapping[str, Array]) -> Solution:
        """Inner solves until the constraints are met."""
        parts = imposed(self.ocp, self.options.constraint_penalty, multipliers)
        self.rounds = rounds = Rounds(self.options, len(parts))
        xs = np.array(guess.xs, dtype=float)
        xs[0] = self.ocp.x0
        rounds.violation = _largest(parts, values(self.ocp, parts, xs, np.asarray(guess.us)))
        # a look first, whether the roll-out of a guess leads to where values are finite
        looks = not np.isfinite(rounds.violation)
        while True:
            solution = self._inner(parts, guess, 0 if looks else rounds.left)
            guess, inner, errors, violation = Guess(solution.xs, solution.us), _read(solution), [0.0], np.inf
            if inner.finite:
                g = values(self.ocp, parts, solution.xs, solution.us)
                pairs = [part.multiplied(own) for part, own in zip(parts, g, strict=True)]
                parts, errors = [part for part, _ in pairs], [float(error) for _, error in pairs]
                violation = _largest(parts, g)
            end, grows = rounds.after(inner, errors, violation, [float(part.rho) for part in parts])
            if looks and end is End.STOPPED and inner.status.code is StatusCode.MAX_ITERATIONS:
                looks = False
                continue
            if end is not None:
                status = status_of(end, self.ocp, solution.xs, solution.us, inner, rounds)
                return self._ended(solution, parts, status)
            parts = [stiffened(part, slow, self.options) for part, slow in zip(parts, grows, strict=True)]

    def _inner(self, parts: Sequence[Imposed], guess: Guess, iterations: int) -> Solution:
        """The solution for fixed multipliers, by at most so many iterations."""
        o, rounds = self.options, self.rounds
        left = None if o.time_limit is None else max(1e-9, o.time_limit - (time.perf_counter() - self.began))
        inner = replace(o, gradient_tolerance=rounds.tolerance, max_iterations=iterations, time_limit=left)

        def told(record: IterationRecord) -> None:
            self._tell(replace(record, constraint_violation=max(record.constraint_violation, rounds.violation)))

        return self.solver(augmented(self.ocp, parts), guess, inner, told)

    def _tell(self, record: IterationRecord) -> None:
        record = replace(record, iteration=len(self.records))
        self.records.append(replace(record, iterate=None))
        if self.callback is not None:
            self.callback(record)

    def _ended(self, solution: Solution, parts: Sequence[Imposed], status: Status) -> Solution:
        cost = self.ocp.cost(solution.xs, solution.us)
        # Multipliers of one name have as many rows in all phases, or else the last ones stay.
        own = [(key_of(part.place, part.place(self.ocp)), part.y) for part in parts]
        widths = dict.fromkeys((key, y.shape[1]) for key, y in own)
        found = {
            key: np.concatenate([y for name, y in own if (name, y.shape[1]) == (key, width)]) for key, width in widths
        }
        if self.records and status.code is not StatusCode.INTERRUPTED:  # of the point returned, without penalties
            last = replace(
                self.records[-1], cost=cost, merit=cost, constraint_violation=self.rounds.violation, times={}
            )
            try:
                self._tell(replace(last, iterate=lambda: (np.array(solution.xs), np.array(solution.us))))
            except KeyboardInterrupt:
                status = termination.interrupted(self.rounds.iterations)
        return replace(
            solution,
            status=status,
            cost=cost,
            iterations=self.rounds.iterations,
            history=tuple(self.records),
            multipliers=found,
        )


def _read(solution: Solution) -> Inner:
    """What is read of a solution."""
    finite = bool(np.isfinite(solution.cost) and np.isfinite(solution.xs).all())
    last = solution.history[-1] if solution.history else None
    measures = (0.0, 0.0, 0.0) if last is None else (last.gradient, last.defect, last.kkt)
    return Inner(solution.status, finite, len(solution.history) - 1, *measures)


def _largest(parts: Sequence[Imposed], g: Sequence[Array]) -> float:
    return max((float(part.violation(own)) for part, own in zip(parts, g, strict=True)), default=0.0)
