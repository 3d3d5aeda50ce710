"""Augmented Lagrangian loop around solvers without constraints.

Inner solves, with the cost terms of :mod:`.penalized`, alternate with updates of multipliers and penalties. The penalty of a
constraint grows if its violation, with that of complementarity, falls too slowly (R. Andreani, E. Birgin, J. Martinez, M.
Schuverdt, SIAM J. Optim. 18, 2007, algorithm 3.1). The method is a generator that requests the inner solves of one problem.
:class:`Rounds` holds the arrays and answers the requests, here for one problem and in :mod:`trajopt.solvers.batch.rounds` for a
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import SolveRequest, at_end
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import DDPOptions, NearOptions, SLQOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.rules.cost_size import cost_size, least_with_effect
from trajopt.solvers.shooting.penalized import (
    Augmented,
    Imposed,
    imposed,
    key_of,
    non_finite_constraint,
    values,
    worst_violation,
)
from trajopt.solvers.time_limits import remaining, start_of_solve

GROWTH, SUFFICIENT = 10.0, 0.25
"""A penalty grows by the factor GROWTH if its constraint's error (:class:`Moved`) exceeds its tolerance and SUFFICIENT times the
last one."""
FIRST_TOLERANCE, TIGHTENING = 1e-2, 0.1
"""Gradient tolerance of the first inner solve, at least that of the options, and its factor from one inner solve to the next."""
CERTAIN_PENALTY = 1e4
"""Only if max_constraint_penalty is at least this, does a minimizer of the penalized problem count as a stationary point of the
violation.
"""
IDLE = 2
"""Number of failed inner solves in a row without a step, at the same penalties, after which the solve ends."""
EXACT = 10.0
"""If the penalty terms exceed this multiple of the cost, the cost is recomputed: a subtraction would lose digits."""

Solver = Callable[[OCP, Guess, Any, "Callback | None"], Solution]


class Inner(NamedTuple):
    """Request: raise penalties, run an inner solve, update the multipliers.

    slow: for each constraint, True to raise its penalty. solve: request of the inner solve.
    """

    slow: Sequence[bool]
    solve: SolveRequest


class Moved(NamedTuple):
    """Answer to Inner: the solution and the constraint errors at it; the answer is None if the solve was not started.

    errors, rho: violation of feasibility and complementarity, and penalty, of each constraint. violation: the largest constraint
    violation. cost: without the penalty terms.
    """

    solution: Solution
    errors: tuple[float, ...]
    violation: float
    rho: tuple[float, ...]
    cost: float


class Outcome(NamedTuple):
    """Final status, iterations, and the last answer (None if no inner solve was started).

    iterations: sum of the inner solves, plus 1 for each inner solve but the first.
    """

    status: Status
    iterations: int
    moved: Moved | None


_GOES_ON = (
    StatusCode.CONVERGED,
    StatusCode.COST_CONVERGED,
    StatusCode.PRECISION_LIMIT,
    StatusCode.LINE_SEARCH_FAILED,
)
"""Status codes of an inner solve after which another one may follow."""


def augmented_lagrangian(
    problem: Callable[[], OCP], options: SLQOptions, constraints: int, violation: float, *, warm: bool = False
) -> Generator[Inner, Moved | None, Outcome]:
    """Run inner solves of a problem until its constraints are satisfied: yield requests, and return status and last answer.

    From one inner solve to the next, the gradient tolerance falls, and penalties rise where errors fell too slowly. The solve
    also ends if an inner solve fails, after IDLE of them without a step, at the limits of the options, or if a penalty at its
    maximum would have to rise. problem: returns the problem, called only to name a constraint in a message. constraints: number
    of constraints. violation: largest constraint violation of the guess; if it is not finite, a first request without iterations
    evaluates the rollout of the guess. The initial evaluation of each inner solve but the first counts as an iteration. warm: True
    if the guess is near a solution, as the guesses of all inner solves but the first are.
    """
    o, began, made, updates, moved = options, start_of_solve(), 0, 0, None
    slow, last = [False] * constraints, (np.inf,) * constraints
    tolerance, previous, idle = max(o.gradient_tolerance, FIRST_TOLERANCE), None, 0
    # an infinite violation: first evaluate the rollout of the guess, whose values may be finite
    evaluates_guess = not np.isfinite(violation)
    while True:
        seconds = remaining(o.time_limit, began)
        left = 0 if evaluates_guess else max(0, o.max_iterations - made)
        answer = yield Inner(slow, SolveRequest(_inner_options(o, tolerance, near=warm or updates > 0), left, seconds))
        if answer is None:
            n = max(0, made - 1)
            return Outcome(termination.interrupted(n) if made else termination.not_started(), n, moved)
        found, errors, violation, rho, cost = moved = answer
        made += found.iterations + 1
        inner, ended = found.status, partial(Outcome, iterations=made - 1, moved=moved)
        if not (np.isfinite(found.cost) and np.isfinite(violation) and np.isfinite(found.xs).all()):
            culprit = non_finite_constraint(problem(), found.xs, found.us)  # penalties of NaN may be zero
            return ended(inner if culprit is None else termination.non_finite(culprit))
        if evaluates_guess and inner.code is StatusCode.MAX_ITERATIONS:
            evaluates_guess = False
            continue
        met = at_end(found)["defect"] <= o.defect_tolerance and max(errors) <= o.constraint_tolerance
        if inner.code not in _GOES_ON or (met and tolerance <= o.gradient_tolerance):
            return ended(_final_status(inner, _measured(moved, made - 1, o, None if inner.success else problem), o))
        measured = partial(_measured, moved, made - 1, o, problem)
        slow = [e > max(o.constraint_tolerance, SUFFICIENT * before) for e, before in zip(errors, last, strict=True)]
        same = previous is not None and all(map(np.array_equal, (previous.xs, previous.us), (found.xs, found.us)))
        previous, idle = found, idle + 1 if same and not any(slow) else 0
        if idle == IDLE and not inner.success:
            return ended(_final_status(inner, measured(), o))
        if any(grows and own >= largest_penalty(o, cost) for grows, own in zip(slow, rho, strict=True)):
            return ended(_at_largest_penalty(moved, measured(), o))
        tolerance, last, updates = max(o.gradient_tolerance, TIGHTENING * tolerance), errors, updates + 1
        if updates >= o.max_outer_iterations:
            advice = "Increase max_outer_iterations or constraint_penalty, or start from a better guess."
            limit = o.max_outer_iterations
            return ended(termination.max_iterations(limit, measured(), advice, option="max_outer_iterations"))
        if made > o.max_iterations:
            return ended(termination.max_iterations(o.max_iterations, measured()))


def _at_largest_penalty(moved: Moved, at: termination.Measured, o: SLQOptions) -> Status:
    """Return the status of a solve in which a penalty at its maximum would have to rise.

    A minimizer is then a stationary point of the violation, up to the gradient of the cost over the penalty. So is a point at
    which double precision allows no decrease, or whose gradient meets its tolerance.
    """
    inner, gradient = moved.solution.status, at.errors.gradient
    small = gradient is not None and gradient <= o.gradient_tolerance
    if not (inner.success or inner.code is StatusCode.PRECISION_LIMIT or small):
        return termination.max_penalty(inner.code, at)
    large = o.max_constraint_penalty >= CERTAIN_PENALTY
    prevails = 0.5 * max(moved.rho) * moved.violation**2 >= abs(moved.cost)
    return termination.violation_remains(at, stationary=large and prevails)


def largest_penalty(options: SLQOptions, cost: float) -> float:
    """Return the largest penalty for a cost without penalty terms: that of the options, times the cost if it exceeds 1."""
    return options.max_constraint_penalty * max(1.0, abs(cost))


@lru_cache(maxsize=64)
def _inner_options(options: SLQOptions, tolerance: float, *, near: bool) -> SLQOptions:
    """Return the options of an inner solve (cached). near: True if it starts near a solution."""
    if near and type(options) is DDPOptions:
        options = NearOptions(**vars(options))
    return replace(options, gradient_tolerance=tolerance)


def _measured(moved: Moved, n: int, o: SLQOptions, problem: Callable[[], OCP] | None) -> termination.Measured:
    """Collect the errors after an inner solve. moved: its answer; n: iterations of all inner solves.

    problem: returns the problem, to name the worst constraint, or None for no name.
    """
    found, end = moved.solution, at_end(moved.solution)
    # the terms of a gradient vanish with a control that is zero at the optimum
    relative = end["gradient"] / least_with_effect(cost_size(moved.cost), found.us)
    kkt = min(end["kkt"], max(end["defect"], relative))
    if moved.violation > o.constraint_tolerance:  # a small gradient at such a point is no success
        kkt = max(kkt, moved.violation)
    errors = termination.Errors(kkt, end["gradient"], end["defect"], moved.violation)
    worst = None if problem is None else worst_violation(problem(), found.xs, found.us)
    return termination.Measured(n, errors, o.tolerances, worst)


def _final_status(inner: Status, at: termination.Measured, o: SLQOptions) -> Status:
    """Convert the status of the last inner solve to that of the whole solve: every success becomes "converged".

    Limits, also of precision, keep their code, with the errors ``at`` of the whole solve; so does an interruption, without
    errors. A failed line search and a cost that hardly decreases are marked as those of the last inner solve; other failures are
    returned as they are.
    """
    match inner.code:
        case _ if inner.success:
            return termination.converged(at)
        case StatusCode.MAX_ITERATIONS:
            return termination.max_iterations(o.max_iterations, at)
        case StatusCode.TIME_LIMIT:
            return termination.time_limit(o.time_limit, at)
        case StatusCode.PRECISION_LIMIT:
            return termination.precision_limit(at)
        case StatusCode.INTERRUPTED:
            return termination.interrupted(at.iterations)
        case StatusCode.LINE_SEARCH_FAILED | StatusCode.COST_CONVERGED:
            return termination.last_inner_solve(inner)
    return inner


class Rounds:
    """State of the problems of a batch between inner solves: multipliers, penalties and trajectories.

    guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). multipliers: of an earlier solution, by name. violation (n,): constraint
    violation of the last trajectories. penalty (n,): value of the penalty terms in their costs. largest (n,): largest penalty
    (:func:`largest_penalty`). seconds (n,): solve time [s]. warm: True with multipliers of an earlier solution.
    count: number of calls of :meth:`answer`.
    """

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: SLQOptions,
        multipliers: Mapping[str, Array] | None = None,
    ) -> None:
        n, self.batch, self.options, self.count = len(batch), batch, options, 0
        self.warm = bool(multipliers)
        self.parts = imposed(batch, options.constraint_penalty, multipliers)
        self.xs, self.us = (np.array(np.broadcast_to(rows, (n, *rows.shape[1:])), dtype=float) for rows in guess)
        xs = self.xs.copy()
        xs[:, 0] = batch.x0()
        found = zip(self.parts, values(batch, self.parts, xs, self.us), strict=True)
        self.violation = np.max([part.violation(g) for part, g in found], axis=0, initial=0.0)
        self.penalty, self.seconds = np.zeros(n), np.zeros(n)
        self.largest = np.full(n, options.max_constraint_penalty)

    def methods(self) -> list[Generator[Inner, Moved | None, Outcome]]:
        """Return the augmented Lagrangian generator of each problem."""
        given = self.options, len(self.parts)
        rows = [
            (partial(self.batch.__getitem__, i), *given, violation)
            for i, violation in enumerate(self.violation.tolist())
        ]
        return [augmented_lagrangian(*row, warm=self.warm) for row in rows]

    def answer(
        self,
        numbers: Sequence[int],
        requests: Sequence[Inner],
        solve: Callable[[Augmented, tuple[Array, Array], Sequence[Inner]], Iterable[Solution]],
    ) -> list[Moved | None]:
        """Raise penalties, solve the penalized problems, store trajectories, update multipliers; return an answer per request.

        numbers: index of the problem of each request. solve: returns the solutions of a batch, called with the batch, the guesses
        xs (n, N + 1, nx), us (n, N, nu), which are the last trajectories, and the requests. Penalties of the constraints that a
        request marks as slow rise by GROWTH up to their largest one. The answer is None for problems whose solve was not
        started.
        """
        chosen = list(numbers)
        for part, slow in zip(self.parts, np.array([r.slow for r in requests], bool).T, strict=True):
            if slow.any():
                larger = np.minimum(GROWTH * part.rho[chosen], self.largest[chosen])
                part.rho[chosen] = np.where(slow, larger, part.rho[chosen])
        own, self.count = Augmented(self.batch, self.parts), self.count + 1
        if len(chosen) < len(self.batch):
            own = own.subset(chosen)
        found = list(solve(own, (self.xs[chosen], self.us[chosen]), requests))
        waits = termination.not_started()
        begun = [j for j, s in enumerate(found) if s.status != waits]
        if not begun:
            return [None] * len(numbers)
        if len(begun) < len(found):
            chosen, own, found = [chosen[j] for j in begun], own.subset(begun), [found[j] for j in begun]
        moved = dict(zip(begun, self._update_multipliers(chosen, own, found), strict=True))
        return [moved.get(j) for j in range(len(numbers))]

    def _update_multipliers(self, chosen: list[int], own: Augmented, found: Sequence[Solution]) -> list[Moved]:
        """Store trajectories, multipliers, violations, penalty terms and times of solved problems.

        chosen: indices of the problems. own: their batch with penalty terms. found: their solutions. Returns for each the answer
        to its request: solution, errors of each part, violation and penalty parameters.
        """
        xs, us = np.array([s.xs for s in found]), np.array([s.us for s in found])
        self.xs[chosen], self.us[chosen] = xs, us
        errors, violation, penalty = list[list[float]](), np.zeros(len(found)), np.zeros(len(found))
        for part, whole, g in zip(own.parts, self.parts, values(own.whole, own.parts, xs, us), strict=True):
            y, error = part.next_multipliers(g)
            violation = np.maximum(violation, part.violation(g))
            penalty += (y * y).sum(axis=(1, 2)) / (2.0 * part.rho)
            errors.append(error.tolist())
            whole.y[chosen] = y
        self.violation[chosen], self.penalty[chosen] = violation, penalty
        self.seconds[chosen] += [s.meta.get("solve_time", 0.0) for s in found]
        costs = [s.cost - own_penalty for s, own_penalty in zip(found, penalty.tolist(), strict=True)]
        self.largest[chosen] = [largest_penalty(self.options, cost) for cost in costs]
        rows = (
            zip(*errors, strict=True),
            violation.tolist(),
            zip(*(p.rho.tolist() for p in own.parts), strict=True),
            costs,
        )
        return [Moved(*row) for row in zip(found, *rows, strict=True)]

    def solution(self, i: int, ended: Outcome) -> Solution | Status:
        """Return the solution of problem i without setting its multipliers, or the status if no inner solve was started.

        Its cost excludes the penalty terms; it is recomputed if these are much larger than the cost.
        """
        if ended.moved is None:
            return ended.status
        found, penalty = ended.moved.solution, float(self.penalty[i])
        cost = found.cost - penalty
        if not penalty <= EXACT * abs(cost) and np.isfinite(found.xs).all():
            cost = self.batch[i].cost(found.xs, found.us)
        return replace(found, status=ended.status, cost=cost, iterations=ended.iterations)


def solve_constrained(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    solver: Solver,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a constrained problem with an unconstrained solver; multipliers: of an earlier solution, by name.

    The history numbers the records of all inner solves in one sequence. Cost and merit of its last record are those without
    penalties, unless the solve was interrupted; the callback gets them with penalties. The solution has multipliers by constraint
    name.
    """
    rounds = Rounds(Batch.from_problems([ocp]), (guess.xs[None], guess.us[None]), options, multipliers)
    records: list[IterationRecord] = []

    def renumbered(record: IterationRecord, number: int) -> IterationRecord:
        """Return a record with this iteration number, and with the constraint violation after the last inner solve if larger."""
        violation = max(record.constraint_violation, float(rounds.violation[0]))
        return replace(record, iteration=number, constraint_violation=violation)

    def solve(own: Augmented, at: tuple[Array, Array], requests: Sequence[Inner]) -> list[Solution]:
        """Run the inner solve from the last trajectory, and add its records to those of the solve."""
        first = len(records)
        report = None if callback is None else (lambda r: callback(renumbered(r, first + r.iteration)))
        found = solver(own.ocp, Guess(at[0][0], at[1][0]), requests[0].solve.limited, report)
        records.extend(renumbered(r, first + k) for k, r in enumerate(found.history))
        return [found]

    ended: Outcome = run_alone(rounds.methods()[0], lambda request: rounds.answer([0], [request], solve)[0])
    found = rounds.solution(0, ended)
    assert isinstance(found, Solution)
    if records and found.status.code is not StatusCode.INTERRUPTED:  # record of the returned point, without penalties
        last = replace(records[-1], cost=found.cost, merit=found.cost, constraint_violation=0.0)
        records[-1] = renumbered(last, len(records) - 1)
    return replace(found, history=tuple(records), multipliers=_by_name(rounds.parts, ocp))


def _by_name(parts: Sequence[Imposed], ocp: OCP) -> dict[str, Array]:
    """Return the multipliers of one problem by name; phases with a name in common and equal widths are concatenated.

    If a name occurs with several widths, only the last width is returned.
    """
    own = [(key_of(part.place, part.place(ocp)), part.y[0]) for part in parts]
    widths = dict.fromkeys((key, y.shape[1]) for key, y in own)
    return {key: np.concatenate([y for name, y in own if (name, y.shape[1]) == (key, width)]) for key, width in widths}
