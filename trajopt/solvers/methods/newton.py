"""Newton's method on the optimality conditions of a trajectory whose states are all variables, by Riccati sweeps.

Each iteration solves the LQ problem with the Hessian

    H(fraction, delta) = H_GN + fraction (H_exact - H_GN) + delta I

of the Lagrangian in states and controls; H_GN is the Gauss-Newton Hessian.  The fraction is the largest one for which the LQ
problem is convex on the linearized dynamics; the Riccati sweep tests this.  Far from a solution the fraction is often zero, and
the next steps then start with zero too.  delta shortens rejected steps, in the states as well as in the controls.  This limits
the defects, which grow with the square of the step in the states.  If most of the cost is the force that holds a weight, defects
lower the cost far below the optimum; defects are therefore limited to a fraction of the travel of the states, which has the same
unit. Multipliers of the dynamics are costates under feedback (:mod:`trajopt.solvers.rules.cost_size`). Bounds on the controls
are a barrier (window/kernels/barrier.h), and a filter accepts or rejects steps
(:mod:`trajopt.solvers.rules.line_search`). If the filter accepts no step, the trajectory is restored by a rollout from x0 under
the last policy, which has no defects.

D. Mayne, Int. J. Control 3, 1966; J. F. O. De O. Pantoja, Int. J. Control 47, 1988 (the stagewise Newton step); A. Waechter,
L. Biegler, Math. Program. 106, 2006 (filter, barrier, inertia correction).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from math import inf, isfinite, nan
from typing import Any, NamedTuple

from trajopt.results.status import SOLVED, STATIONARY
from trajopt.solvers import termination
from trajopt.solvers.methods import requests as ask
from trajopt.solvers.methods.method import End, Ended, Report, Size, Solve
from trajopt.solvers.methods.requests import FRACTIONS, NOWHERE, Direction, Point, Request, Trial, hessian_name
from trajopt.solvers.options import MethodOptions, NearOptions, SLQOptions
from trajopt.solvers.rules.barrier import NEAR_PUSH, NEAR_WEIGHT, PUSH, first_weight, lowered
from trajopt.solvers.rules.cost_size import is_zero, size_of
from trajopt.solvers.rules.line_search import Filter, RoundingTest
from trajopt.solvers.rules.regularization import raised_shift
from trajopt.solvers.time_limits import start_of_solve

GROWN = 1e6
"""Growth of the cost above which its first barrier parameter is replaced, if it has not been lowered yet."""
SMALLEST, LARGEST = 1e-20, 1e20
"""Range of delta, wide enough for a cost in any unit."""
SHORT = 0.25
"""A step is short up to this fraction of the longest step within the bounds."""
FAR, PLAIN = 0.1, 4
"""After a step with curvature fraction 0, the next PLAIN steps try fraction 0 first. This ends with a short step, or if the
gradient is below FAR times the size of its terms."""
WIDE, WIDE_SHARE = 1e2, 0.25
"""Limits on defects. WIDE: of the first step, and of the first one after a restoration, relative to the defects there (at least
1; Waechter and Biegler: 1e4). WIDE_SHARE: of later steps, as a fraction of the travel of the states; the limit is at least the
defects of the current point and the scale of the filter. Larger defects take dozens of iterations to close."""
MAX_RESTORED = 5
"""Maximum number of restorations."""
AT_ROUNDING = 1e-13
"""A slope below this fraction of the cost is rounding error."""
NEARLY_SOLVED = 1e3
"""A failed search counts as limited by rounding if the errors are below this multiple of the tolerances of a solution."""


class Found(NamedTuple):
    """Step accepted by the filter: place of its policy, row of its trial, and the filter pair (theta, phi) of the trial.

    fraction: index in FRACTIONS. delta: damping. slope: of phi along the step. longest: largest step length within the bounds.
    size: largest entry of the step. alpha: step length.
    """

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
        """True if the step length is at most a fraction SHORT of the longest one within the bounds."""
        return self.alpha <= SHORT * self.longest


class Newton:
    """Newton's method on one problem: ``solve`` yields requests; attributes hold the point, also after an interruption.

    near: True for a guess near a solution, so that the barrier starts small and close to the bounds. at, kkt, stop: the point and
    its errors, see _arrive. begun: True once a point exists. iteration: number of steps and restorations. change: relative cost
    change of the last step after the end CHEAPER, else 0.
    """

    report: Report | None = None

    def __init__(self, size: Size, options: SLQOptions | MethodOptions, max_iterations: int) -> None:
        self.size, self.options, self.max_iterations = size, options, max_iterations
        self.at = NOWHERE
        self.kkt = self.stop = nan
        self.mu = self.first_mu = self.last_delta = self.change = 0.0
        self.of_guess, self.descent = nan, termination.Descent()
        self.iteration = self.restored = self.plain = 0
        self.fraction: int | None = None
        self.begun, self.reported = False, -1
        self.rounding = RoundingTest()
        self.filter = Filter(1.0, WIDE)
        self.near = isinstance(options, NearOptions)
        self.began = start_of_solve()

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a termination test holds; return the result.

        After that, requests feedback gains if ``gains`` and a point exists.
        """
        ended = self.ended((yield from self._iterate()))
        if gains and self.begun:
            yield ask.Gains(self.size.widest)
        return ended

    def _iterate(self) -> Generator[Request, Any, End]:
        """Iterate from the guess until a termination test holds; return its reason.

        After a success with bounds, controls move onto their active bounds (:meth:`_put_on_bounds`).
        """
        end = yield from self._start()
        while end is None:
            end = self._termination()
            if end is None:
                yield from self._raise_barrier()
                self._lower_barrier()
                step = yield from self._step()
                if step is None:
                    end = yield from self._restore()
                else:
                    left, expected = self.at, step.slope * step.alpha
                    self._leave(step, expected)
                    self._arrive((yield ask.Accept(step.place, step.row, self._fractions(), self.mu)))
                    self.iteration += 1
                    end = self._judge(left, expected)
        if self.size.bounded and self._succeeds(end):
            yield from self._put_on_bounds()
        return end

    def stopped(self, *, gains: bool = True) -> Solve:
        """Finish a solve interrupted by the caller: request gains at the current point if ``gains``, and return the result."""
        if gains:
            yield ask.Gains(self.size.widest)
        return self.ended(End.INTERRUPTED)

    def ended(self, end: End) -> Ended:
        """Return the result: the given reason, with iterations, cost and errors of the current point."""
        at = self.at
        return Ended(end, self.iteration, at.gradient, at.defect, self.kkt, self.change, cost=at.cost)

    # -- the start ----------------------------------------------------------------------------------------------------------
    def _start(self) -> Generator[Request, Any, End | None]:
        """Load the guess, set the first barrier parameter, and compute first gains and costates; return NOT_FINITE or None.

        NOT_FINITE: cost or derivatives are not finite, so that gains or gradient are not.
        """
        cost = yield ask.Start(NEAR_PUSH if self.near else PUSH)
        if self.size.bounded:
            self.mu = self.first_mu = self._first_weight(cost)
        at = yield from self._first_gains()
        if not (at.found and isfinite(at.gradient)) and not (yield ask.IsFinite()):
            return End.NOT_FINITE
        self.of_guess = at.cost
        self._arrive(at)
        self.descent = termination.Descent(at.cost, at.gradient)
        self.filter.scale, self.begun = max(1.0, at.theta), True
        return None

    def _first_gains(self) -> Generator[Request, Any, Point]:
        """Compute gains and costates at the point from the Gauss-Newton LQ problem, and set the multipliers of the bounds.

        A growing shift makes the LQ problem convex; gains are zero if no shift does.
        """
        delta, at = 0.0, self.at
        while delta < LARGEST:
            at = yield ask.FirstGains(delta, self.mu)
            if at.found or not (isfinite(at.cost) and isfinite(at.theta)):
                return at
            delta = raised_shift(delta, 0.0, SMALLEST)
        return (yield ask.FirstGains(None, self.mu))

    # -- points ----------------------------------------------------------------------------------------------------------
    def _arrive(self, at: Point) -> None:
        """Make a point the current one; set ``kkt``, ``stop`` and, after the start, the filter's limit on defects.

        stop: the largest of gradient, complementarity and defect, each divided by its tolerance; NaN if the gradient is NaN.
        kkt: zero if ``stop`` is at most 1 and the cost has vanished: errors relative to it would stay large.
        """
        o, product = self.options, at.complementarity()
        self.at = at
        gradient = at.gradient if at.gradient > product else product
        self.stop = max(gradient / o.gradient_tolerance, at.defect / o.defect_tolerance)
        if self.begun:
            self.filter.largest = max(1.0, max(WIDE_SHARE * at.travel, at.theta) / self.filter.scale)
        if at.gradient != at.gradient:
            self.stop = nan
        self.kkt = 0.0 if self.stop <= 1.0 and is_zero(at.cost, self.of_guess) else at.kkt()

    @property
    def phi(self) -> float:
        """Cost plus mu times the log barrier of the control bounds; the cost alone without bounds."""
        return self.at.cost + self.mu * self.at.logs if self.size.bounded else self.at.cost

    def _termination(self) -> End | None:
        """Return OPTIMAL, UNBOUNDED or the reason of an exhausted limit at the current point, else None.

        OPTIMAL: the defect is within tolerance, and either the scaled KKT error is, or gradient and complementarity are and the
        scaled KKT error is at most STATIONARY, above which checks would not call the solution converged.
        """
        o = self.options
        stationary = self.kkt <= max(STATIONARY, o.kkt_tolerance)
        if (self.stop <= 1.0 and stationary) or (self.kkt <= o.kkt_tolerance and self.at.defect <= o.defect_tolerance):
            return End.OPTIMAL
        feasible = self.at.defect <= o.defect_tolerance * max(1.0, self.at.travel)
        if feasible and self.descent.is_unbounded(self.at.cost):
            return End.UNBOUNDED
        return self._limit()

    def _limit(self) -> End | None:
        """Return the reason if the maximum of iterations or the time limit is reached, else None."""
        if self.iteration >= self.max_iterations:
            return End.MOST_ITERATIONS
        return End.OUT_OF_TIME if self._is_late() else None

    def _is_late(self) -> bool:
        """True if the time limit is reached."""
        limit = self.options.time_limit
        return limit is not None and time.perf_counter() - self.began > limit

    def _first_weight(self, cost: float) -> float:
        """Return the first mu for this cost."""
        return (NEAR_WEIGHT if self.near else 1.0) * first_weight(cost, self.size.controls)

    def _raise_barrier(self) -> Generator[Request, Any, None]:
        """Set the first mu again, with multipliers and gains, if the cost has grown by the factor GROWN since.

        The cost of a guess may be zero. A barrier without a weight would not keep controls away from bounds, and steps would
        shrink to nothing.
        """
        if self.size.bounded and self.mu == self.first_mu:
            mu = self._first_weight(self.at.cost)
            if mu > GROWN * self.first_mu:
                self.mu = self.first_mu = mu
                self.filter.pairs = []
                self._arrive((yield from self._first_gains()))

    def _lower_barrier(self) -> None:
        """Lower mu while its barrier problem is solved accurately enough, and empty the filter each time.

        Nothing without bounds.
        """
        at = self.at
        while self.size.bounded and (mu := lowered(self.mu, at.kkt(self.mu), size_of(at.cost))) is not None:
            self.mu, self.filter.pairs = mu, []

    def _leave(self, step: Found, expected: float) -> None:
        """Add the point to the filter unless the cost decided the step; report the step and store its curvature fraction.

        expected: slope of phi times step length.
        """
        start = self.at.theta, self.phi
        if not self.filter.decides_by_cost(start, expected):
            self.filter.add(start)
        if self.report is not None:
            self._report(step)
        self.fraction = step.fraction

    def _judge(self, left: Point, expected: float) -> End | None:
        """Return CHEAPER if cost change and defect are within tolerance, else None while steps are above rounding level.

        After too many steps at rounding level, return ROUNDED or NO_STEP as :meth:`_no_progress`.

        left: the point before the step. expected: slope of phi times length of the step. CHEAPER also stores the relative change.
        """
        o, at, kkt = self.options, self.at, self.kkt
        change = abs(left.cost - at.cost)
        if change < o.cost_tolerance * abs(at.cost) and at.defect <= o.defect_tolerance:
            self.change = change / abs(at.cost)
            return End.CHEAPER
        return self._no_progress() if self.rounding.exhausted(kkt, expected, size_of(left.cost)) else None

    # -- steps ------------------------------------------------------------------------------------------------------------------
    def _fractions(self) -> int:
        """Return the curvature fractions that the next step may use, as bits, bit i for FRACTIONS[i].

        All up to the largest available; only that one if the last step used it; only the Gauss-Newton one while it is preferred.
        """
        first = len(FRACTIONS) - 1 if self.plain > 0 else self.size.widest
        if first == self.size.widest == self.fraction:
            return 1 << first
        return (1 << len(FRACTIONS)) - (1 << first)

    def _step(self) -> Generator[Request, Any, Found | None]:
        """Return a step that the filter accepts, or None; the largest curvature fraction with a convex LQ problem is used.

        After a Gauss-Newton step, the next PLAIN steps try fraction 0 first, unless the last step was short or the gradient is
        small. If that finds no step, all fractions are tried.
        """
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
        """Increase the damping from ``delta`` until the filter accepts a step; None at the largest damping.

        first, past: range of indices of curvature fractions, ``past`` excluded; after the first convex LQ problem only its
        fraction is used. None also if no trial of a step is accepted, its slope is at rounding level and defects are closed.
        """
        while delta < LARGEST:
            step = yield ask.Step(place, first, past, delta, self.mu)
            if step is not None:
                found = yield from self._searched(place, step, delta)
                if found is not None:
                    self.last_delta = delta or self.last_delta
                    return found
                if abs(step.slope) <= AT_ROUNDING * abs(self.phi) and self.at.defect <= self.options.defect_tolerance:
                    return None
                first, past = step.fraction, step.fraction + 1
            delta = raised_shift(delta, self.last_delta, SMALLEST)
        return None

    def _searched(self, place: int, step: Direction, delta: float) -> Generator[Request, Any, Found | None]:
        """Backtracking line search: the first of longest / 2^i, i <= max_backtracks, that the filter accepts, or None."""
        trials, first, count = [step.trial], 0, self.options.max_backtracks + 1
        while True:
            for row, trial in enumerate(trials):
                found = self._accepted(place, row, step, delta, step.longest * 0.5 ** (first + row), trial)
                if found is not None:
                    return found
            first += len(trials)
            if first >= count:
                return None
            trials = yield ask.Roll(place, first, count - first)

    def _accepted(
        self, place: int, row: int, step: Direction, delta: float, alpha: float, trial: Trial
    ) -> Found | None:
        """Return the trial of length alpha as an accepted step if it is finite and the filter accepts it, else None."""
        theta, phi = trial.theta, trial.cost + self.mu * trial.logs if self.size.bounded else trial.cost
        start = self.at.theta, self.phi
        if isfinite(theta) and isfinite(phi) and self.filter.accepts(start, (theta, phi), step.slope * alpha):
            return Found(place, row, step.fraction, delta, step.slope, step.longest, step.size, alpha, theta, phi)
        return None

    # -- restoration and termination -----------------------------------------------------------------------------------
    def _restore(self) -> Generator[Request, Any, End | None]:
        """Continue from a rollout of the controls under the last gains; return the reason if the solve ends instead.

        It ends if the point is nearly optimal or has no defects, after MAX_RESTORED restorations, or if the rollout is not
        finite. A successful rollout counts as an iteration, and empties the filter.
        """
        at = self.at
        if self.kkt <= SOLVED or at.theta == 0.0 or self.restored >= MAX_RESTORED:
            return self._no_progress()
        self.restored += 1
        if self.report is not None:
            self._report(None)
        new = yield ask.Restore(self._fractions(), self.mu)
        if not new.found:
            return self._no_progress()
        self._arrive(new)
        self.iteration += 1
        self.filter = Filter(max(1.0, new.theta), WIDE)
        return None

    def _no_progress(self) -> End:
        """Return the reason without a further step: ROUNDED if scaled KKT error and defect are nearly small, else NO_STEP."""
        near = self.kkt <= NEARLY_SOLVED * SOLVED and self.at.defect <= NEARLY_SOLVED * self.options.defect_tolerance
        return End.ROUNDED if near else End.NO_STEP

    def _succeeds(self, end: End) -> bool:
        """True for OPTIMAL, for CHEAPER with a scaled KKT error of at most STATIONARY, and for ROUNDED with at most SOLVED."""
        enough = {End.OPTIMAL: inf, End.CHEAPER: STATIONARY, End.ROUNDED: SOLVED}.get(end, -1.0)
        return enough == inf or self.kkt <= enough

    def _put_on_bounds(self) -> Generator[Request, Any, None]:
        """Put controls exactly on their active bounds, unless this changes the cost or raises the scaled KKT error too much.

        The cost may change by the fraction SOLVED; the error may rise to at most SOLVED.
        """
        new = yield ask.OnBounds()
        same_cost = abs(new.cost - self.at.cost) <= SOLVED * abs(self.at.cost)
        if same_cost and new.kkt() <= max(SOLVED, self.kkt):
            yield ask.AcceptOnBounds()
            self._arrive(new)

    # -- records -------------------------------------------------------------------------------------------------------
    def _report(self, step: Found | None) -> None:
        """Call ``report`` with the errors of the current point and the step from it; None: no step."""
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
        """Report the final point as a record without a step, unless it has been reported already or ``report`` is None."""
        if self.report is not None and self.reported < self.iteration:
            self._report(None)
