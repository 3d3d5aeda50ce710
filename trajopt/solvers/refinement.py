"""Consecutive solves: each starts from the solution of the last one, until a check accepts a solution.

    margins     tighten the bounds of an inequality that is violated within time steps, at the adjacent knots, by MARGIN times the
                rise of the violation. Margins add up over at most ROUNDS solves. If these do not help, as at an obstacle between
                two knots, margins at all knots follow, over at most ROUNDS_EVERYWHERE solves.
    substeps    double the substeps of the integrator if the replay fails, up to a factor of 2^DOUBLINGS.

If no solve with margins holds between the knots, the last solution that reduced the violation clearly (PROGRESS) is returned, or
the first one. If no replay with more substeps holds, the first solution is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP, Phase
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import iterations_of
from trajopt.step.sensitivities import SampledSystem
from trajopt.validation.between_knots import BetweenKnots, leaves_room, tightened

MARGIN, ROUNDS, ROUNDS_EVERYWHERE = 1.2, 8, 4
"""Factor from the rise of a violation to its margin, and maximum numbers of solves with margins near violations, and at all
knots."""
PROGRESS = 0.7
"""Factor on the smallest ratio of a violation to its tolerance so far, to which a solve must reduce it to count as better, and if a
margin would exceed the range between two bounds; such motions need shorter time steps."""
TIMES, AT_LEAST = 10, 300
"""Solves with margins may take TIMES the iterations of the first solve, and AT_LEAST so many."""
DOUBLINGS = 3
"""Maximum number of doublings of the substeps."""
NEAR_BARRIER = 1e-3
"""Initial barrier parameter of a solve that starts near its solution."""


class Again(NamedTuple):
    """Request: solve a problem from a guess. multipliers: initial multipliers. sharp: True for a smaller tolerance."""

    ocp: OCP
    guess: Guess
    multipliers: Mapping[str, Array] = {}
    sharp: bool = False

    @property
    def warm(self) -> WarmStart:
        """Warm start from the guess and multipliers, with the small barrier parameter NEAR_BARRIER."""
        return WarmStart(self.guess, multipliers=self.multipliers, barrier=NEAR_BARRIER)


Check = Callable[[Solution], Again | None]
"""Check of the solutions of consecutive solves.

It returns the next solve to run, or None if the solution is accepted or no further solve is worthwhile.
"""


def most_iterations(first: Solution) -> int:
    """Return the number of iterations after which no further solve with margins, or from another start, follows a solution."""
    return max(TIMES * first.iterations, AT_LEAST)


def consecutive_solves(first: Solution, check: Check, solve: Callable[[Again], Solution]) -> list[Solution]:
    """Return the first solution and those of the solves that a check requests, until it requests none or Ctrl-C stops one.

    check: called with each solution. solve: runs a requested solve.
    """
    solutions = [first]
    while (again := check(solutions[-1])) is not None and solutions[-1].status.code is not StatusCode.INTERRUPTED:
        solutions.append(solve(again))
    return solutions


def with_near_barrier(options: Any) -> Any:
    """Return the options with their initial barrier parameter limited to NEAR_BARRIER, unchanged if they have none."""
    known = {f.name for f in fields(options)}
    return replace(options, barrier=min(options.barrier, NEAR_BARRIER)) if "barrier" in known else options


_SLOWER = "Small errors grow along this motion: make it slower, by larger weights of controls or velocities, or a longer duration."
"""Advice if the replay fails with any number of substeps that was tried."""


class _Improving:
    """Base class of checks of consecutive solves, with their state and result.

    best: the solution to return, None at first. solved: the problem that it solves. solves: number of requested solves. reason:
    sentence on the end of the solves, "" for none. advice: in place of that of the best solution, "" to keep it. has_time: returns
    True while another solve may start.
    """

    def __init__(self, ocp: OCP, has_time: Callable[[], bool]) -> None:
        self.solved = self._next = ocp
        self._has_time = has_time
        self.solves, self.reason, self.advice = 0, "", ""
        self.best: Solution | None = None

    def _again(self, solution: Solution, ocp: OCP) -> Again | None:
        """Return the next solve, of ``ocp`` from a solution; None if the time limit leaves no time."""
        if not self._has_time():
            self.reason = "The time limit left no time for another solve."
            return None
        self._next, self.solves = ocp, self.solves + 1
        return Again(ocp, Guess(solution.xs, solution.us), solution.multipliers)

    def _accept(self, solution: Solution) -> None:
        """Store a solution as the best one, and the problem that it solves."""
        self.best, self.solved = solution, self._next

    def result(self, solutions: list[Solution], key: str, count: int) -> Solution:
        """Return the best solution with iterations and records of all solves; meta[key] is ``count``.

        Its status is "interrupted" if Ctrl-C stopped the last solve; the reason why no further solve ran is appended.
        meta["starts"] and meta["starts_seconds"] come from the first solution, meta["attempts"] from the first and the best one.
        """
        best, both = self.best or solutions[0], iterations_of(*solutions)
        status: Status = best.status
        if solutions[-1].status.code is StatusCode.INTERRUPTED:
            status = termination.interrupted(both["iterations"])
        if self.reason:
            status = replace(status, message=f"{status.message} {self.reason}", advice=self.advice or status.advice)
        first = {
            key: solutions[0].meta[key] for key in ("starts", "starts_seconds", "attempts") if key in solutions[0].meta
        }
        meta = {**best.meta, **first, key: count}
        if best is not solutions[0] and "attempts" in best.meta:
            meta["attempts"] = [*first.get("attempts", ()), *best.meta["attempts"]]
        return replace(best, status=status, meta=meta, **both)


class Margins(_Improving):
    """Check that tightens inequalities violated between the knots.

    measure: returns these violations of a solution. near_only: margins near violations only, none at all knots.
    """

    def __init__(
        self,
        ocp: OCP,
        measure: Callable[[Solution], BetweenKnots | None],
        has_time: Callable[[], bool],
        *,
        near_only: bool = False,
    ) -> None:
        super().__init__(ocp, has_time)
        self._near_only, self._iterations = near_only, 0
        self._given, self._measure, self._least = ocp, measure, np.inf
        self._first: tuple[Solution, BetweenKnots] | None = None
        self._local: int | None = None
        """Number of solves with margins near violations only, once margins at all knots began."""
        self.rounds = 0
        """Number of solves with margins of the best solution."""

    @property
    def everywhere(self) -> bool:
        """True if margins at all knots were tried, as those near the violations did not help."""
        return self._local is not None

    def __call__(self, solution: Solution) -> Again | None:
        """Return the solve with larger margins, or None if the solution holds between the knots, or after the last solve.

        Margins near the violations grow until a solve fails or for ROUNDS solves; then those at all knots grow likewise from the
        first solution, for ROUNDS_EVERYWHERE solves. Where bounds leave no room for them, each solve must reduce the violation. The
        best solution is the last one that reduced the violation clearly, relative to its tolerance. None also for a first solution
        that failed, after the iterations of :func:`most_iterations`, and without time left.
        """
        valid = solution.status.success or solution.status.code is StatusCode.VIOLATED_BETWEEN_KNOTS
        found = self._measure(solution) if valid else None
        if valid and (found is None or found.ratio <= 1.0):
            self._accept(solution)
            self.rounds = self.solves
            if self.solves:
                self.reason = (
                    f"This is the last of {self.solves + 1} solves, with margins for the motion between the knots."
                )
            return None
        helps = found is not None and found.ratio <= PROGRESS * self._least
        if found is not None and (helps or self._first is None):
            self._accept(solution)
            self.rounds, self._least = self.solves, found.ratio
        if found is not None and self._first is None:
            self._first = solution, found
        if self._first is None:
            return None
        if not (helps or leaves_room(self._given, self._first[1], MARGIN)):
            self.reason = "The bounds leave no room for larger margins: the time steps are too long for this motion."
            return None
        self._iterations += solution.iterations if self.solves else 0
        if not self._near_only and self._local is None and (found is None or self.solves == ROUNDS):
            start, violated = self._first
            self._local = self.solves
            return self._again(start, tightened(self._given, violated, MARGIN, everywhere=True))
        last = ROUNDS if self._local is None else self._local + ROUNDS_EVERYWHERE
        if found is None or self.solves == last or self._iterations > most_iterations(self._first[0]):
            self.reason = "Larger margins for the motion between the knots do not help."
            return None
        return self._again(solution, tightened(self._next, found, MARGIN, everywhere=self._local is not None))


class Substeps(_Improving):
    """Check that doubles the substeps while the replay of a solution fails; violations between the knots are left to margins."""

    factor = 1
    """Factor on the number of substeps of the best solution."""

    def __call__(self, solution: Solution) -> Again | None:
        """Return the solve with twice as many substeps, or None unless the replay failed and a further doubling is allowed.

        Returns None also for a first-order hold, for time steps that cannot be divided, and without time left.
        """
        if solution.status.code is not StatusCode.DOES_NOT_HOLD or LAST_CONTROL in solution.meta:
            held = solution.status.success or solution.status.code is StatusCode.VIOLATED_BETWEEN_KNOTS
            if held and self.solves:
                self._accept(solution)
                self.factor = 2**self.solves
                self.reason = f"Solved with {self.factor} times as many substeps, which the replay confirms."
            elif self.solves:
                self.reason = f"A solve with {2**self.solves} times as many substeps failed: {solution.status}"
            return None
        if self.solves == DOUBLINGS:
            self.reason = f"The replay also fails with {2**self.solves} times as many substeps."
            self.advice = _SLOWER
            return None
        finer = _with_substeps(self._next)
        if finer is None:
            return None
        self.best = self.best or solution  # until the replay confirms a new one
        return self._again(solution, finer)


def _with_substeps(ocp: OCP) -> OCP | None:
    """Return the problem with twice as many substeps, or None if a time step is not a sampled system or must not be divided."""
    phases = []
    for phase in ocp.phases:
        d: Any = phase.dynamics
        if d.takes_time:
            if not isinstance(d, SampledSystem) or d.sampling is None or isinstance(d.system, MeetsInSteps):
                return None
            d = SampledSystem(d.backend, d.scheme, 2 * d.substeps)
        phases.append(Phase(d, phase.dt, phase.terms, phase.parameters, phase.constraints))
    return replace(ocp, phases=tuple(phases))
