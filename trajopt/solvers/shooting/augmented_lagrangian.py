"""Constraints for solvers that know none: an augmented Lagrangian around their loop.

Inner solves, of the problem with the cost terms of :mod:`.penalized`, and updates of multipliers and penalties take turns.  A
penalty grows where the violation does not fall fast enough (R. Andreani, E. Birgin, J. Martinez, M. Schuverdt, SIAM J. Optim. 18,
2007, algorithm 3.1).  The method is a generator, which asks for the inner solves of one problem; arrays stay in :class:`Rounds`,
which answers it, for one problem here and for those of a batch in :mod:`trajopt.solvers.batch.rounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import SolveRequest, at_end
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.problems.batch import Batch
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
"""A penalty grows by GROWTH where the violation is above this share of the last one."""
FIRST_TOLERANCE, TIGHTENING = 1e-2, 0.1
"""The tolerance on the gradient of the first inner solve, and its factor from one to the next."""
CERTAIN_PENALTY = 1e4
"""Below this one the gradient of the cost moves a minimizer of the penalized problem off the stationary points of the violation."""
EXACT = 10.0
"""Penalties above this multiple of a cost are not subtracted from their sum: digits would be lost."""

Solver = Callable[[OCP, Guess, Any, "Callback | None"], Solution]


class Inner(NamedTuple):
    """Request: raise the penalties of the constraints that are slow, solve without constraints, move the multipliers."""

    slow: Sequence[bool]
    solve: SolveRequest


class Moved(NamedTuple):
    """The answer: the solution, and where the constraints are there; None in its place where the solve was not begun.

    errors, rho: the violation of feasibility and complementarity, and the penalty, by constraint. violation: of feasibility, the
    largest one.
    """

    solution: Solution
    errors: tuple[float, ...]
    violation: float
    rho: tuple[float, ...]


class Ended(NamedTuple):
    """The status, and the iterations of all inner solves; moved: the answer of the last one, None where there was none."""

    status: Status
    iterations: int
    moved: Moved | None


_GOES_ON = (
    StatusCode.CONVERGED,
    StatusCode.COST_CONVERGED,
    StatusCode.PRECISION_LIMIT,
    StatusCode.LINE_SEARCH_FAILED,
)
"""Ends of an inner solve after which multipliers are worth updating."""


def augmented_lagrangian(
    problem: Callable[[], OCP], options: SLQOptions, constraints: int, violation: float
) -> Generator[Inner, Moved | None, Ended]:
    """Inner solves of a problem until its constraints are met.

    problem: returns it, where a constraint is to be named. violation: of its constraints by the guess.
    The look of an inner solve at its start counts as an iteration, but for the first, as in a solve without constraints.
    """
    o, began, made, updates, moved = options, start_of_solve(), 0, 0, None
    slow, last = [False] * constraints, (np.inf,) * constraints
    tolerance = max(o.gradient_tolerance, FIRST_TOLERANCE)
    # a look first, whether the rollout of a guess leads to where values are finite
    looks = not np.isfinite(violation)
    while True:
        seconds = remaining(o.time_limit, began)
        left = 0 if looks else max(0, o.max_iterations - made)
        answer = yield Inner(slow, SolveRequest(_with_tolerance(o, tolerance), left, seconds))
        if answer is None:
            n = max(0, made - 1)
            return Ended(termination.interrupted(n) if made else termination.not_started(), n, moved)
        found, errors, violation, rho = moved = answer
        made += found.iterations + 1
        inner, ended = found.status, partial(Ended, iterations=made - 1, moved=moved)
        if not (np.isfinite(found.cost) and np.isfinite(violation) and np.isfinite(found.xs).all()):
            culprit = non_finite_constraint(problem(), found.xs, found.us)  # penalties of NaN may be zero
            return ended(inner if culprit is None else termination.non_finite(culprit))
        if looks and inner.code is StatusCode.MAX_ITERATIONS:
            looks = False
            continue
        met = at_end(found)["defect"] <= o.defect_tolerance and max(errors) <= o.constraint_tolerance
        if inner.code not in _GOES_ON or (met and tolerance <= o.gradient_tolerance):
            return ended(_of_last(inner, _measured(moved, made - 1, o, None if inner.success else problem), o))
        measured = partial(_measured, moved, made - 1, o, problem)
        slow = [
            error > max(o.constraint_tolerance, SUFFICIENT * before) for error, before in zip(errors, last, strict=True)
        ]
        if any(grows and own >= o.max_constraint_penalty for grows, own in zip(slow, rho, strict=True)):
            # a minimizer is a stationary point of the violation up to the gradient of the cost over the penalty
            if inner.success:
                large = o.max_constraint_penalty >= CERTAIN_PENALTY
                return ended(termination.violation_remains(measured(), stationary=large))
            return ended(termination.max_penalty(inner.code, measured()))
        tolerance, last, updates = max(o.gradient_tolerance, TIGHTENING * tolerance), errors, updates + 1
        if updates >= o.max_outer_iterations:
            advice = "Increase max_outer_iterations or constraint_penalty, or start from a better guess."
            limit = o.max_outer_iterations
            return ended(termination.max_iterations(limit, measured(), advice, of="max_outer_iterations"))
        if made > o.max_iterations:
            return ended(termination.max_iterations(o.max_iterations, measured()))


@lru_cache(maxsize=64)
def _with_tolerance(options: SLQOptions, tolerance: float) -> SLQOptions:
    return replace(options, gradient_tolerance=tolerance)


def _measured(moved: Moved, n: int, o: SLQOptions, problem: Callable[[], OCP] | None) -> termination.Measured:
    """The errors at the end of an inner solve; problem: returns that of which the worst constraint is to be named."""
    found, end = moved.solution, at_end(moved.solution)
    errors = termination.Errors(end["kkt"], end["gradient"], end["defect"], moved.violation)
    worst = None if problem is None else worst_violation(problem(), found.xs, found.us)
    return termination.Measured(n, errors, o.tolerances, worst)


def _of_last(inner: Status, at: termination.Measured, o: SLQOptions) -> Status:
    """The status where the last inner solve has decided."""
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
            return termination.of_last_inner_solve(inner)
    return inner


class Rounds:
    """The problems of a batch between inner solves: multipliers and penalties, and the trajectory of each.

    guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). multipliers: of an earlier solution, by name. violation (n,): of the
    constraints by the last trajectories, penalty (n,): that in their costs, seconds (n,): spent in solves. count: rounds.
    """

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: SLQOptions,
        multipliers: Mapping[str, Array] | None = None,
    ) -> None:
        n, self.batch, self.options, self.count = len(batch), batch, options, 0
        self.parts = imposed(batch, options.constraint_penalty, multipliers)
        self.xs, self.us = (np.array(np.broadcast_to(rows, (n, *rows.shape[1:])), dtype=float) for rows in guess)
        xs = self.xs.copy()
        xs[:, 0] = batch.x0()
        found = zip(self.parts, values(batch, self.parts, xs, self.us), strict=True)
        self.violation = np.max([part.violation(g) for part, g in found], axis=0, initial=0.0)
        self.penalty, self.seconds = np.zeros(n), np.zeros(n)

    def methods(self) -> list[Generator[Inner, Moved | None, Ended]]:
        """The method of each problem."""
        given = self.options, len(self.parts)
        rows = enumerate(self.violation.tolist())
        return [augmented_lagrangian(partial(self.batch.__getitem__, i), *given, violation) for i, violation in rows]

    def answer(
        self,
        numbers: Sequence[int],
        requests: Sequence[Inner],
        solve: Callable[[Augmented, tuple[Array, Array], Sequence[Inner]], Iterable[Solution]],
    ) -> list[Moved | None]:
        """Answer the requests of some problems; solve: finds their solutions from guesses xs (n, N + 1, nx), us (n, N, nu)."""
        chosen = list(numbers)
        for part, slow in zip(self.parts, np.array([r.slow for r in requests], bool).T, strict=True):
            if slow.any():
                larger = np.minimum(GROWTH * part.rho[chosen], self.options.max_constraint_penalty)
                part.rho[chosen] = np.where(slow, larger, part.rho[chosen])
        own, self.count = Augmented(self.batch, self.parts), self.count + 1
        if len(chosen) < len(self.batch):
            own = own.subset(chosen)
        found = list(solve(own, (self.xs[chosen], self.us[chosen]), requests))
        waits = termination.not_started()
        begun = [j for j, s in enumerate(found) if s.status != waits]
        if len(begun) < len(found):
            chosen, own, found = [chosen[j] for j in begun], own.subset(begun), [found[j] for j in begun]
        moved = dict(zip(begun, self._moved(chosen, own, found), strict=True))
        return [moved.get(j) for j in range(len(numbers))]

    def _moved(self, chosen: list[int], own: Augmented, found: Sequence[Solution]) -> list[Moved]:
        if not found:
            return []
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
        rows = zip(*errors, strict=True), violation.tolist(), zip(*(p.rho.tolist() for p in own.parts), strict=True)
        return [Moved(*row) for row in zip(found, *rows, strict=True)]

    def solution(self, i: int, ended: Ended) -> Solution | Status:
        """The solution of problem i, or the status of one that was not begun; it has no multipliers."""
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
    """A problem with constraints by a solver of problems without; multipliers: of an earlier solution, by name."""
    rounds = Rounds(Batch.of([ocp]), (guess.xs[None], guess.us[None]), options, multipliers)
    records: list[IterationRecord] = []

    def of_all(record: IterationRecord, number: int) -> IterationRecord:
        violation = max(record.constraint_violation, float(rounds.violation[0]))
        return replace(record, iteration=number, constraint_violation=violation)

    def solve(own: Augmented, at: tuple[Array, Array], requests: Sequence[Inner]) -> list[Solution]:
        first = len(records)
        tell = None if callback is None else (lambda r: callback(of_all(r, first + r.iteration)))
        found = solver(own.ocp, Guess(at[0][0], at[1][0]), requests[0].solve.limited, tell)
        records.extend(of_all(r, first + k) for k, r in enumerate(found.history))
        return [found]

    ended: Ended = run_alone(rounds.methods()[0], lambda request: rounds.answer([0], [request], solve)[0])
    found = rounds.solution(0, ended)
    assert isinstance(found, Solution)
    status = found.status
    if records and status.code is not StatusCode.INTERRUPTED:  # of the point returned, without penalties
        last = replace(records[-1], cost=found.cost, merit=found.cost, constraint_violation=0.0, times={})
        records.append(of_all(last, len(records)))
        trajectory = np.array(found.xs), np.array(found.us)
        try:
            if callback is not None:
                callback(replace(records[-1], iterate=lambda: trajectory))
        except KeyboardInterrupt:
            status = termination.interrupted(ended.iterations)
    return replace(found, status=status, history=tuple(records), multipliers=_by_name(rounds.parts, ocp))


def _by_name(parts: Sequence[Imposed], ocp: OCP) -> dict[str, Array]:
    """The multipliers of one problem; those of one name have as many rows in all phases, or else the last ones stay."""
    own = [(key_of(part.place, part.place(ocp)), part.y[0]) for part in parts]
    widths = dict.fromkeys((key, y.shape[1]) for key, y in own)
    return {key: np.concatenate([y for name, y in own if (name, y.shape[1]) == (key, width)]) for key, width in widths}
