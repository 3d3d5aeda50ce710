"""Newton's method on the optimality conditions of a trajectory whose states are all variables, by Riccati sweeps.

Each iteration solves the LQ problem with the Hessian

    H(fraction, delta) = H_GN + fraction (H_exact - H_GN) + delta I

of the Lagrangian in states and controls, H_GN the Gauss-Newton one.  The whole curvature is used wherever the problem stays
convex on the linearized motion, which a Riccati sweep tells; else as large a fraction of it as does.  Far from a solution that is
often none, and then the next steps do not ask for it either.  delta shortens steps that
the search refuses, in the states as well as in the controls, so that the gaps, which grow with the square of the step in the
states, stay small.  Where most of the cost is the force that holds a weight, gaps lower it far below the optimum: gaps stay below a
share of the travel of the states, which has their unit.
Multipliers of the dynamics are costates under feedback (:mod:`trajopt.solvers.shooting.optimality`).
Bounds on the controls are a barrier (:mod:`trajopt.solvers.window.barrier`), a step is judged by a filter
(:mod:`trajopt.solvers.rules.filter`), and where the filter accepts none, the motion is restored: rolled out from x0 under the last
policy, without gaps.

D. Mayne, Int. J. Control 3, 1966; J. F. O. De O. Pantoja, Int. J. Control 47, 1988 (the stagewise Newton step); A. Waechter,
L. Biegler, Math. Program. 106, 2006 (filter, barrier, inertia correction).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from math import inf, isfinite, nan
from typing import Any, NamedTuple

from trajopt.results.status import SOLVED, STATIONARY
from trajopt.solvers.methods.method import End, Ended, Report, Size, Solve
from trajopt.solvers.methods.requests import (
    FRACTIONS,
    NOWHERE,
    Accept,
    Direction,
    FirstGains,
    Gains,
    IsFinite,
    OnBounds,
    Point,
    Request,
    Restore,
    Roll,
    Start,
    Step,
    Trial,
    Turn,
    hessian_name,
    size_of,
)
from trajopt.solvers.options import MethodOptions, SLQOptions
from trajopt.solvers.rules.barrier import first_weight, lowered
from trajopt.solvers.rules.filter import Filter
from trajopt.solvers.rules.rounding import RoundingTest
from trajopt.solvers.time_limits import start_of_solve

FIRST, LEAP, GROWTH, DECAY = 1e-4, 100.0, 8.0, 1.0 / 3.0
"""The first delta, its factors until one has served and after, and what a later one starts from (Waechter & Biegler 2006, IC)."""
SMALLEST, LARGEST = 1e-20, 1e20
"""Range of delta: small enough for a cost in any unit."""
SHORT = 0.25
"""A step no longer than this share of what the bounds allow is short."""
FAR, PLAIN = 0.1, 4
"""After a step without curvature, up to PLAIN further ones are first sought without it too, while they are not short and the
gradient is above the share FAR of the size of its terms."""
WIDE, WIDE_SHARE = 1e2, 0.25
"""Limit on the gaps of a first step, relative to those at the start (at least 1; Waechter and Biegler have 1e4 here); and on those
of later steps, as a share of the travel of the states, if not those at the start: wider gaps take dozens of iterations to close."""
MAX_RESTORED = 5
"""Restorations before giving up."""
AT_ROUNDING = 1e-13
"""A slope below this share of the cost tells no direction."""
NEARLY_SOLVED = 1e3
"""A search that fails with errors below so many times those of a solution has met rounding."""


class Found(NamedTuple):
    """A step that the filter accepts: where its policy and trajectory are, and what it promises and does."""

    place: int
    row: int
    fraction: int
    delta: float
    slope: float
    longest: float
    size: float
    alpha: float
    theta: float
    phi: float

    @property
    def is_short(self) -> bool:
        """True if the step length is a small share of the longest one within the bounds."""
        return self.alpha <= SHORT * self.longest


class Newton:
    """One solve: ``solve`` is the method; the attributes tell where it is, also after an interruption.

    at, kkt, stop: the errors of the point, see _arrive. begun: whether there is one. iteration: steps taken. change: the share
    by which the last one lowered the cost.
    """

    report: Report | None = None

    def __init__(self, size: Size, options: SLQOptions | MethodOptions, max_iterations: int) -> None:
        self.size, self.options, self.max_iterations = size, options, max_iterations
        self.at = NOWHERE
        self.kkt = self.stop = nan
        self.mu = self.last_delta = self.change = 0.0
        self.iteration = self.restored = self.plain = 0
        self.fraction: int | None = None
        self.begun, self.reported = False, -1
        self.rounding = RoundingTest()
        self.filter = Filter(1.0, WIDE)
        self.began = start_of_solve()

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a test is met; gains: whether feedback gains belong to the solution."""
        end = yield from self._start()
        while end is None:
            end = self._finished()
            if end is None:
                self._lower_barrier()
                step = yield from self._step()
                if step is None:
                    end = yield from self._restore()
                else:
                    left, promised = self.at, step.slope * step.alpha
                    self._leave(step, promised)
                    self._arrive((yield Accept(step.place, step.row, self._asked(), self.mu)))
                    self.iteration += 1
                    end = self._judge(left, promised)
        ended = self.ended(end)
        if self.size.bounded and self._succeeds(end):
            yield from self._put_on_bounds()
        if gains and self.begun:
            yield Gains(self.size.widest)
        return ended

    def stopped(self, *, gains: bool = True) -> Solve:
        """Gains where the solve is."""
        if gains:
            yield Gains(self.size.widest)
        return self.ended(End.INTERRUPTED)

    def ended(self, end: End) -> Ended:
        """An end where the solve is."""
        return Ended(end, self.iteration, self.at.gradient, self.at.defect, self.kkt, self.change)

    # -- the start ----------------------------------------------------------------------------------------------------------
    def _start(self) -> Generator[Request, Any, End | None]:
        """Gains for the first costates."""
        cost = yield Start()
        if self.size.bounded:
            self.mu = first_weight(cost, self.size.controls)
        delta, at = 0.0, self.at
        while delta < LARGEST:
            at = yield FirstGains(delta, self.mu)
            if at.found or not (isfinite(at.cost) and isfinite(at.theta)):
                break
            delta = max(FIRST, LEAP * delta)
        if not at.found:
            at = yield FirstGains(None, self.mu)
        if not (at.found and isfinite(at.gradient)) and not (yield IsFinite()):
            return End.NOT_FINITE
        self._arrive(at)
        self.filter.scale, self.begun = max(1.0, at.theta), True
        return None

    # -- points ----------------------------------------------------------------------------------------------------------
    def _arrive(self, at: Point) -> None:
        """Be at a point, with its scaled KKT error; stop: the largest of gradient, complementarity and gaps, each by its
        tolerance, NaN where numbers are not finite.
        """
        o, product = self.options, at.complementarity()
        self.at = at
        self.kkt = at.kkt()
        gradient = at.gradient if at.gradient > product else product
        self.stop = max(gradient / o.gradient_tolerance, at.defect / o.defect_tolerance)
        if self.begun:
            self.filter.largest = max(1.0, max(WIDE_SHARE * at.travel, at.theta) / self.filter.scale)
        if at.gradient != at.gradient:
            self.stop = nan

    @property
    def phi(self) -> float:
        """The cost with its barrier."""
        return self.at.cost + self.mu * self.at.logs if self.size.bounded else self.at.cost

    def _finished(self) -> End | None:
        o = self.options
        if self.stop <= 1.0 or (self.kkt <= o.kkt_tolerance and self.at.defect <= o.defect_tolerance):
            return End.OPTIMAL
        return self._limit()

    def _limit(self) -> End | None:
        """The end where iterations or time are used up."""
        if self.iteration >= self.max_iterations:
            return End.MOST_ITERATIONS
        limit = self.options.time_limit
        return End.OUT_OF_TIME if limit is not None and time.perf_counter() - self.began > limit else None

    def _lower_barrier(self) -> None:
        at = self.at
        while self.size.bounded and (mu := lowered(self.mu, at.kkt(self.mu), size_of(at.cost))) is not None:
            self.mu, self.filter.pairs = mu, []

    def _leave(self, step: Found, promised: float) -> None:
        """Remember the point in the filter if it is left for its gaps, and report it."""
        start = self.at.theta, self.phi
        if not self.filter.decides_by_cost(start, promised):
            self.filter.add(start)
        if self.report is not None:
            self._report(step)
        self.fraction = step.fraction

    def _judge(self, left: Point, promised: float) -> End | None:
        """The end, if the solve ends here: at a small change of the cost if asked, or where rounding rules."""
        o, at, kkt = self.options, self.at, self.kkt
        change = abs(left.cost - at.cost)
        if change < o.cost_tolerance * abs(at.cost) and at.defect <= o.defect_tolerance:
            self.change = change / abs(at.cost)
            return End.CHEAPER
        return End.ROUNDED if self.rounding.exhausted(kkt, promised, size_of(left.cost)) else None

    # -- steps ------------------------------------------------------------------------------------------------------------------
    def _asked(self) -> int:
        """The fractions that the next step will ask for, as bits; the others behind all of the curvature only once that fails."""
        first = len(FRACTIONS) - 1 if self.plain > 0 else self.size.widest
        if first == self.size.widest == self.fraction:
            return 1 << first
        return (1 << len(FRACTIONS)) - (1 << first)

    def _step(self) -> Generator[Request, Any, Found | None]:
        """A step that the filter accepts; None if there is none."""
        widest, past = self.size.widest, len(FRACTIONS)
        found = None
        if widest < past - 1 and self.plain > 0 and self.at.scaled > FAR:
            self.plain -= 1
            found = yield from self._damped_step(0, past - 1, past, 0.0)
        if found is None:
            found = yield from self._damped_step(0, widest, past, 0.0)
            self.plain = PLAIN if found is not None and found.fraction == past - 1 else 0
        if found is None or found.is_short:
            self.plain = 0
        return found

    def _damped_step(self, place: int, first: int, past: int, delta: float) -> Generator[Request, Any, Found | None]:
        """A step that the filter accepts, with more damping than delta until there is one."""
        while delta < LARGEST:
            step = yield Step(place, first, past, delta, self.mu)
            if step is not None:
                found = yield from self._searched(place, step, delta)
                if found is not None:
                    self.last_delta = delta or self.last_delta
                    return found
                if abs(step.slope) <= AT_ROUNDING * abs(self.phi) and self.at.defect <= self.options.defect_tolerance:
                    return None
                first, past = step.fraction, step.fraction + 1
            delta = self._raised(delta)
        return None

    def _raised(self, delta: float) -> float:
        if delta == 0.0:
            return max(SMALLEST, DECAY * self.last_delta) if self.last_delta else FIRST
        return delta * (GROWTH if self.last_delta else LEAP)

    def _searched(self, place: int, step: Direction, delta: float) -> Generator[Request, Any, Found | None]:
        """The first of the lengths longest / 2^i that the filter accepts; the longest one is tried alone."""
        trials, first, count = [step.trial], 0, self.options.max_backtracks + 1
        while True:
            for row, trial in enumerate(trials):
                found = self._accepted(place, row, step, delta, step.longest * 0.5 ** (first + row), trial)
                if found is not None:
                    return found
            first += len(trials)
            if first >= count:
                return None
            trials = yield Roll(place, first, count - first)

    def _accepted(
        self, place: int, row: int, step: Direction, delta: float, alpha: float, trial: Trial
    ) -> Found | None:
        """A trial, if the filter accepts it."""
        theta, phi = trial.theta, trial.cost + self.mu * trial.logs if self.size.bounded else trial.cost
        start = self.at.theta, self.phi
        if isfinite(theta) and isfinite(phi) and self.filter.accepts(start, (theta, phi), step.slope * alpha):
            return Found(place, row, step.fraction, delta, step.slope, step.longest, step.size, alpha, theta, phi)
        return None

    # -- where no step is accepted, and the end ------------------------------------------------------------------------
    def _restore(self) -> Generator[Request, Any, End | None]:
        """Go on from the rollout of the last policy, without gaps; or the end."""
        at = self.at
        if self.kkt <= SOLVED or at.theta == 0.0 or self.restored >= MAX_RESTORED:
            return self._no_progress()
        self.restored += 1
        if self.report is not None:
            self._report(None)
        new = yield Restore(self._asked(), self.mu)
        if not new.found:
            return self._no_progress()
        self._arrive(new)
        self.iteration += 1
        self.filter = Filter(max(1.0, new.theta), WIDE)
        return None

    def _no_progress(self) -> End:
        near = self.kkt <= NEARLY_SOLVED * SOLVED and self.at.defect <= NEARLY_SOLVED * self.options.defect_tolerance
        return End.ROUNDED if near else End.NO_STEP

    def _succeeds(self, end: End) -> bool:
        """True if an end is a success (:class:`trajopt.results.status.Status`)."""
        enough = {End.OPTIMAL: inf, End.CHEAPER: STATIONARY, End.ROUNDED: SOLVED}.get(end, -1.0)
        return enough == inf or self.kkt <= enough

    def _put_on_bounds(self) -> Generator[Request, Any, None]:
        """Go to the motion with controls on the bounds that hold them; nowhere where that spoils it."""
        new = yield OnBounds()
        spoiled = not abs(new.cost - self.at.cost) <= SOLVED * abs(self.at.cost)
        if not spoiled and new.kkt() <= max(SOLVED, self.kkt):
            yield Turn()
            self._arrive(new)

    # -- records -------------------------------------------------------------------------------------------------------
    def _report(self, step: Found | None) -> None:
        assert self.report is not None
        at, phi, self.reported = self.at, self.phi, self.iteration
        taken: dict[str, Any] = {"hessian": hessian_name(None)}
        if step is not None:
            taken = {
                "regularization": step.delta,
                "step_norm": step.alpha * step.size,
                "expected_decrease": -step.slope * step.alpha,
                "actual_decrease": phi - step.phi,
                "step_length": step.alpha,
                "hessian": hessian_name(FRACTIONS[step.fraction]),
            }
        errors = {"stop": self.stop, "gradient": at.gradient, "defect": at.defect, "kkt": self.kkt}
        self.report(iteration=self.iteration, cost=at.cost, merit=phi, **errors, **taken)

    def report_end(self) -> None:
        """The record of the solution, without a step, unless a failed restoration has made it."""
        if self.report is not None and self.reported < self.iteration:
            self._report(None)
