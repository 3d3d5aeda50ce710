"""A primal-dual interior-point method on the stages of an optimal control problem, by multiple shooting.

    minimize    f(x, u) - mu sum log (v - l) - mu sum log (u - v)    subject to   F_k(x_k, u_k) (-) x_(k+1) = 0,  g - s = 0,  e = 0

for mu that goes to zero: the primal-dual Newton system, solved along the horizon (:mod:`trajopt.solvers.interior.newton`); a line
search on a filter of the violation theta and the barrier objective phi with second-order corrections; if it finds no step, a
restoration phase (:mod:`trajopt.solvers.interior.feasibility`).  Steps move states on a Lie group by retraction, and each linear
system uses the tangent space at the iterate.  Charts and their second derivatives are not needed.

A step that reduces the violation slightly may raise the objective far above the objectives in the filter, whose pairs then
reject all but short steps.  If filter pairs, and not the iterate itself, shorten BLOCKED steps in a row, the filter is
emptied, at most EMPTIED times (as IPOPT does: filter_reset_trigger, max_filter_resets).

The filter also accepts steps that lower the objective and raise the violation far above that of the guess.  There the multipliers
of shortened steps can grow without bound: second derivatives contain the multipliers, and multipliers of the next step the second
derivatives.  If the gradient of the Lagrangian exceeds LOST at such an iterate, the solve starts again from the guess, once.
The filter then keeps theta below CEILING * max(1, theta of the guess) (R. Fletcher, S. Leyffer, User manual for filterSQP, Dundee
1998: tt), and indefinite Hessians are shifted, not reflected, which shortens the steps.

A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear
programming, Math. Program. 106, 2006, to whose sections and equations numbers refer; the structure is used as by C. V. Rao,
S. J. Wright, J. B. Rawlings, J. Optim. Theory Appl. 99, 1998, and in FATROP (L. Vanroye et al., IROS 2023).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from enum import IntEnum
from math import inf, isfinite, nan
from typing import Any, NamedTuple

from trajopt.solvers.methods import interior_requests as ask
from trajopt.solvers.methods.interior_requests import (
    Corrected,
    Direction,
    MultiplierStart,
    Request,
    RestorationEnd,
    Restored,
    Trial,
)
from trajopt.solvers.methods.method import Report
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.rules.barrier import FINAL_FRACTION, KAPPA_EPS, NEAR, NEAR_PUSH, PUSH, TAU, Barrier
from trajopt.solvers.rules.interior_measures import Optimality, Violation, optimality
from trajopt.solvers.rules.line_search import LARGE, MARGIN, BarrierFilter
from trajopt.solvers.rules.regularization import Curvature
from trajopt.solvers.termination import Descent
from trajopt.solvers.time_limits import start_of_solve

STEEPEST = 100.0
"""Largest gradient entry of the objective at the start; steeper objectives are scaled down (nlp_scaling_max_gradient)."""
OF_OBJECTIVE, SMALL_OBJECTIVE, LEAST_TOLERANCE = 1e-3, 1e-3, 1e-13
"""Upper limit on the gradient tolerance relative to the scaled objective, objective below which the tolerance falls in proportion,
and lower limit of the result: else the barrier would outweigh a small objective, or one that the gradient at a far guess scaled
down."""
CORRECTIONS, WORTH = 4, 0.99
"""p_max and kappa_soc: maximum number of second-order corrections, and the required reduction factor of the violation for each."""
BLOCKED, EMPTIED = 5, 5
"""Number of consecutive steps shortened by filter pairs before the filter is emptied, and the maximum number of resets."""
CREEPING, CREPT, CONVEXIFIED = 20, 1e-2, 1e-3
"""Restoration starts after CREEPING consecutive steps from infeasible iterates, all shorter than CREPT. CONVEXIFIED replaces CREPT
if the Hessian was convexified: the modification changes from step to step, which often ends a series of short steps."""
PARTLY = 1
"""Number of restorations that may end at points acceptable to the filter; later ones continue to a feasible or stationary point."""
LOST, CEILING = 1e10, 1.25
"""LOST: largest gradient of the Lagrangian of iterates with theta above CEILING times its value at the guess (at least 1). Beyond
it the solve restarts, once, and CEILING becomes the limit on theta."""
ACCEPTABLE = 1e-6
"""Below this error, a search without an acceptable step has reached the limit of double precision (acceptable_tol)."""
STAGNANT, LITTLE = 10, 0.95
"""Number of consecutive full steps below the error ACCEPTABLE that leave more than LITTLE of the violation, which exceeds its
tolerance, after which double precision allows no further progress: the equations are nearly dependent."""


class InteriorEnd(IntEnum):
    """Reason why a solve ended.

    STOPPED: iteration or time limit. PRECISION: double precision allows no further progress. LEAST_VIOLATION: stationary point of
    the violation. STALLED: at a limit, the violation is not stationary, but restoration hardly reduced it, or the solve had
    restarted. NO_STEP: neither the line search nor restoration found a step. REFERRED: the engine has no restoration.
    """

    CONVERGED = 0
    STOPPED = 1
    PRECISION = 2
    INTERRUPTED = 3
    UNBOUNDED = 4
    NOT_FINITE = 5
    LEAST_VIOLATION = 6
    NO_STEP = 7
    REFERRED = 8
    STALLED = 9


class InteriorEnded(NamedTuple):
    """Reason of the end, and errors of the final iterate.

    gradient and complementarity include only the factor ``scale`` of the objective; error: E_0 of eq. 5. After an unsuccessful
    restoration all errors but the violation are NaN.
    """

    end: InteriorEnd
    iterations: int
    objective: float
    gradient: float
    violation: float
    complementarity: float
    error: float
    scale: float


class InteriorSize(NamedTuple):
    """Problem size: numbers: length of v; equations: number of residuals; given: True if the guess has multipliers."""

    numbers: int
    equations: int
    given: bool


class Accepted(NamedTuple):
    """Step accepted by the filter, with objective and violation at its end; known: True if first derivatives there are known."""

    corrected: bool
    alpha: float
    alpha_z: float
    size: float
    known: bool
    objective: float
    at: Violation


Solve = Generator[Request, Any, InteriorEnded]
_NOWHERE = Violation(nan, nan, nan, nan, nan)
_UNKNOWN = Optimality(nan, nan, nan, nan, nan, 0.0, 0, nan)


class InteriorPoint:
    """Interior-point method on one problem: ``solve`` yields requests; attributes hold the iterate, also after an interruption.

    objective, at, now: objective, violation and optimality errors of the iterate. scale: factor of the objective. begun: True
    once an iterate exists. iteration: number of iterations, with the steps of restorations. reports: number of records. hessian:
    name of the problem's Hessian in records. monotone_since: iteration at which the adaptive barrier became monotone permanently,
    or None. stationary: True if the last restoration ended at a stationary point of the violation.
    """

    report: Report | None = None
    hessian = "exact"
    monotone_since: int | None

    def __init__(self, size: InteriorSize, options: IPMOptions) -> None:
        self.size, self.options = size, options
        self.scale, self.objective, self.at, self.now = 1.0, nan, _NOWHERE, _UNKNOWN
        self.iteration = self.reports = 0
        self.begun, self.began = False, start_of_solve()
        self._reset(LARGE)

    def _reset(self, ceiling: float, shifted: float = 0) -> None:
        """Reset barrier, filter and the counters of the search, for a start or restart from the guess.

        The counts of iterations and records continue. ceiling: limit on theta, relative to its value at the guess. shifted:
        number of first steps with a shift of the Hessian instead of reflected eigenvalues.
        """
        o = self.options
        self.barrier = Barrier(o.barrier, o.gradient_tolerance, o.barrier_strategy == "adaptive")
        self.curvature, self.filter = Curvature(shifted), BarrierFilter(1.0, ceiling)
        self.shift, self.reflected, self.descent = 0.0, 0.0, Descent()
        self.restorations = self.crept = self.blocked = self.emptied = self.stagnant = 0
        self.hopeless = self.stationary = self.matched = False
        self.monotone_since = None
        self.hopeful = (
            True  # True if the last full step was accepted: the next trial is then differentiated in the same call
        )

    def solve(self, *, gains: bool = False) -> Solve:
        """Iterate from the guess until a termination test holds; gains must be False: feedback gains are computed elsewhere."""
        assert not gains
        end = yield from self._start()
        while end is None:
            end = yield from self._iterate()
        return self.ended(end)

    def stopped(self, *, gains: bool = False) -> Solve:
        """Return the result of a solve interrupted by the caller; no request is needed."""
        assert not gains
        yield from ()
        return self.ended(InteriorEnd.INTERRUPTED)

    def ended(self, end: InteriorEnd) -> InteriorEnded:
        """Return the result: the given reason, with iterations, objective and errors of the current iterate."""
        now = self.now
        errors = now.gradient, now.violation, now.complementarity, now.error
        return InteriorEnded(end, self.iteration, self.objective, *errors, self.scale)

    # -- the start ----------------------------------------------------------------------------------------------------------
    def _start(self) -> Generator[Request, Any, InteriorEnd | None]:
        """Move the guess into its bounds, set the objective's scale and initialize the multipliers (section 3.6).

        Returns NOT_FINITE if objective or violation is not finite, else None.
        """
        near = self.options.barrier < NEAR
        self.objective, self.at, steepest = yield ask.Start(NEAR_PUSH if near else PUSH)
        if not isfinite(self.objective + self.at.theta):
            return InteriorEnd.NOT_FINITE
        self.begun, self.descent = True, Descent(self.objective, steepest)
        self.scale = min(1.0, STEEPEST / steepest) if 0.0 < steepest < inf else 1.0
        self.filter.scale = max(1.0, self.at.theta)
        start = MultiplierStart.GIVEN if self.size.given else MultiplierStart.NEAR if near else MultiplierStart.COLD
        self._measure((yield ask.Multipliers(start, self.barrier.mu, self.scale)))
        return None

    def _measure(self, sums: Sequence[float]) -> None:
        """Set ``now``, the optimality errors of the iterate, from the ten sums that the engine returned; see :func:`optimality`."""
        self.now = optimality(sums, self.at.largest)

    # -- an iteration ---------------------------------------------------------------------------------------------------------
    def _iterate(self) -> Generator[Request, Any, InteriorEnd | None]:
        """Run one iteration: termination test, barrier update, Newton step, line search.

        Return the reason if it is the last, else None. If multipliers have grown without bound, restarts from the guess instead,
        once. Restoration follows if no step is accepted, or after a series of very short steps. Without an accepted step at an
        error of at most ACCEPTABLE the solve ends: with CONVERGED if the tolerances of the options hold, else with PRECISION.
        """
        self.barrier.min_mu = FINAL_FRACTION * min(self._tolerance, self.options.constraint_tolerance)
        end = self._termination()
        if end is not None:
            self._report(0.0, 0.0)
            return end
        if self._is_lost:
            self._report(0.0, 0.0)
            self._reset(CEILING, shifted=inf)
            return (yield from self._start())
        adaptive = self.barrier.adaptive
        if self.barrier.watch(self.now.error, self.now.mean):
            self._empty_filter()
        if adaptive and not self.barrier.adaptive:
            self.monotone_since = self.iteration
        if not self.barrier.free:
            yield from self._lower_barrier()
        step = yield from self._direction()
        accepted = None if step is None else (yield from self._search(step))
        crept = accepted is not None and self._creeps(accepted.alpha)
        if accepted is None or crept:
            self.iteration += 1
            if crept or self.now.error > ACCEPTABLE:
                return (yield from self._restore(crept=crept))
            self._report(0.0, 0.0)
            return InteriorEnd.CONVERGED if self._is_optimal else InteriorEnd.PRECISION
        self.curvature.watch(self.now.error, accepted.alpha, self.indefinite)
        self._report(accepted.alpha, accepted.size)
        before = self.now.violation
        yield from self._take(accepted)
        stays = accepted.alpha == 1.0 and self.now.error <= ACCEPTABLE and self.now.violation > LITTLE * before
        self.stagnant = self.stagnant + 1 if stays and self.now.violation > self.options.constraint_tolerance else 0
        if self.stagnant == STAGNANT:
            self._report(0.0, 0.0)
            return InteriorEnd.PRECISION
        return None

    def _termination(self) -> InteriorEnd | None:
        """Return the reason if the iterate is optimal, not finite or unbounded, or if iterations or time are used up; else None.

        At a limit the reason is STOPPED, or LEAST_VIOLATION or STALLED if the problem seems infeasible.
        """
        o, now = self.options, self.now
        if not isfinite(now.error):
            return InteriorEnd.NOT_FINITE
        feasible = now.violation <= o.constraint_tolerance
        at_limit = self.iteration >= o.max_iterations or time.perf_counter() > self._deadline
        if self._is_optimal and (at_limit or now.error <= self._tolerance):
            return InteriorEnd.CONVERGED
        if at_limit:
            return self._not_feasible if not feasible and (self.hopeless or self._restarted) else InteriorEnd.STOPPED
        if feasible and self.descent.is_unbounded(self.objective):
            return InteriorEnd.UNBOUNDED
        return None

    @property
    def _tolerance(self) -> float:
        """Tolerance on the error: that of the options, limited by OF_OBJECTIVE and SMALL_OBJECTIVE unless the objective is 0."""
        size, given = abs(self.objective) * self.scale, self.options.gradient_tolerance
        if not size > 0.0:
            return given
        return min(given, max(LEAST_TOLERANCE, min(OF_OBJECTIVE * size, given * size / SMALL_OBJECTIVE)))

    @property
    def _is_optimal(self) -> bool:
        """True if the iterate meets the tolerances of the options."""
        o, now = self.options, self.now
        return now.error <= o.gradient_tolerance and now.violation <= o.constraint_tolerance

    @property
    def _is_lost(self) -> bool:
        """True if the solve must restart: theta and the Lagrangian's gradient are too large; False after a restart.

        Limits: CEILING times the theta of the guess (at least 1), and LOST.
        """
        far = self.at.theta > CEILING * self.filter.scale
        return far and self.now.gradient > LOST and not self._restarted

    @property
    def _restarted(self) -> bool:
        """True after the solve has restarted from the guess with a lower limit on the violation."""
        return self.filter.largest == CEILING

    @property
    def _deadline(self) -> float:
        """End of the time limit on the clock of time.perf_counter() [s]; infinite without a limit."""
        limit = self.options.time_limit
        return inf if limit is None else self.began + limit

    def _lower_barrier(self) -> Generator[Request, Any, None]:
        """Lower mu, down to its minimum, while the error of the barrier problem is small enough for mu (eq. 7).

        Each reduction empties the filter and measures the iterate again.
        """
        barrier = self.barrier
        while self.now.barrier_error <= KAPPA_EPS * barrier.mu and barrier.lowered() < barrier.mu:
            barrier.mu = barrier.lowered()
            self._empty_filter()
            self._measure((yield ask.Measure(barrier.mu, self.scale)))

    def _direction(self) -> Generator[Request, Any, Direction | None]:
        """Compute the Newton step and store its mu; a free mu is chosen with the step by a quality function, if there are bounds.

        Returns None if no step exists. The filter is emptied if mu changes.
        """
        barrier, now, reflect = self.barrier, self.now, not self.curvature.shifts
        if barrier.free and now.products > 0 and now.mean > 0.0:
            low, high = barrier.range_of_sigma(now.mean)
            dual, primal = now.squares / self.size.numbers, self.at.squares / self.size.equations
            tau = max(TAU, 1.0 - now.error)
            aim = tau, now.mean, dual, primal, low, high
            step = yield ask.SolveNewton(self.scale, reflect, self.hopeful, 0.0, True, *aim)
        else:
            step = yield ask.SolveNewton(self.scale, reflect, self.hopeful, barrier.mu, False, self._boundary_fraction)
        self.shift, self.reflected = step.shift, step.reflected
        if not step.found:
            return None
        if step.mu != barrier.mu:
            barrier.mu = step.mu
            self._empty_filter()
        return step

    @property
    def indefinite(self) -> bool:
        """True if the reduced Hessian of the last Newton step was indefinite, as near a saddle point, and was modified."""
        return self.reflected > 0 or self.shift > 0.0

    @property
    def _boundary_fraction(self) -> float:
        """Fraction-to-the-boundary parameter tau (eq. 8)."""
        return max(TAU, 1.0 - self.barrier.mu)

    def _take(self, step: Accepted) -> Generator[Request, Any, None]:
        """Accept a step: move the point, measure its errors and count the iteration."""
        self.objective, self.at = step.objective, step.at
        self.iteration += 1
        lengths = step.alpha, step.alpha_z
        self._measure((yield ask.Take(step.corrected, *lengths, step.known, self.barrier.mu, self.scale)))

    def _creeps(self, alpha: float) -> bool:
        """Count consecutive short steps from infeasible iterates; True, with a new count, if this is number CREEPING.

        Short: below CREPT, or below CONVEXIFIED if the Hessian was modified. Any other step ends the series.
        """
        length = CONVEXIFIED if self.indefinite else CREPT
        self.crept = self.crept + 1 if alpha < length and self.now.violation > self.options.constraint_tolerance else 0
        if self.crept < CREEPING:
            return False
        self.crept = 0
        return True

    # -- the line search ------------------------------------------------------------------------------------------------------
    def _empty_filter(self) -> None:
        """Remove all pairs of the filter; the scale of the filter does not change."""
        self.filter.pairs = []

    def _merit(self, objective: float, at: Violation) -> float:
        """Return the barrier objective phi: scaled objective plus mu times the log barrier."""
        return self.scale * objective + self.barrier.mu * at.barrier

    def _search(self, step: Direction) -> Generator[Request, Any, Accepted | None]:
        """Backtracking line search by halving: the first trial step that the filter accepts, or None below the minimum length.

        If the full step is rejected and does not reduce the violation, second-order corrections are tried first.
        """
        self._reset_blocked_filter()
        start = self.at.theta, self._merit(self.objective, self.at)
        alpha, trial, known, self.hopeful = step.alpha, step.trial, self.hopeful, True
        if self._takes(start, trial, alpha * step.slope):
            return Accepted(False, alpha, step.alpha_z, step.size, known, *trial)
        if trial.at.theta >= self.at.theta:
            corrected = yield from self._corrected(start, step)
            if corrected is not None:
                self.hopeful = False
                return corrected
        self.hopeful, least = False, self.filter.least_length(self.at.theta, step.slope)
        while (alpha := 0.5 * alpha) >= least:
            trial = yield ask.Try(alpha)
            if self._takes(start, trial, alpha * step.slope):
                return Accepted(False, alpha, step.alpha_z, step.size, False, *trial)
        return None

    def _reset_blocked_filter(self) -> None:
        """Count steps shortened by filter pairs; after BLOCKED in a row empty the filter, at most EMPTIED times in a solve."""
        self.blocked = self.blocked + 1 if self.matched else 0
        self.matched = False
        if self.blocked >= BLOCKED and self.emptied < EMPTIED:
            self.blocked, self.emptied = 0, self.emptied + 1
            self._empty_filter()

    def _takes(self, start: tuple[float, float], trial: Trial | Corrected, expected: float) -> bool:
        """True if a finite trial is accepted by the filter, which then gets the current iterate unless phi decided (see eq. 22).

        expected: slope of phi times step length. After a rejection, ``matched`` is True if a stored pair or the limit on theta
        rejected the trial, else False; an acceptance leaves it.
        """
        theta, merit = trial.at.theta, self._merit(trial.objective, trial.at)
        finite, new = isfinite(theta + merit), (theta, merit)
        matched = finite and self.filter.matched(new)
        if not finite or matched or not self.filter.improves(start, new, expected):
            self.matched = matched
            return False
        if not self.filter.decides_by_cost(start, expected):
            self.filter.add((start[0] * (1.0 - MARGIN), start[1] - MARGIN * start[0]))
        return True

    def _corrected(self, start: tuple[float, float], step: Direction) -> Generator[Request, Any, Accepted | None]:
        """Return the first accepted of up to CORRECTIONS second-order corrections of a rejected full step (section 2.4), or None.

        Each solves the same linear system for the violation at the last trial, and only while that violation decreases. None also
        if the violation of the full step is not finite or very large.
        """
        alpha, last = step.alpha, step.trial.at.theta
        if not isfinite(last) or last > LARGE * self.filter.scale:
            return None
        for i in range(CORRECTIONS):
            found = yield ask.Correct(alpha, i == 0, self._boundary_fraction)
            alpha = found.alpha
            if self._takes(start, found, alpha * step.slope):
                return Accepted(True, alpha, found.alpha_z, found.size, False, found.objective, found.at)
            if not found.at.theta <= WORTH * last:
                return None
            last = found.at.theta
        return None

    # -- restoration ----------------------------------------------------------------------------------------------------------
    def _restore(self, *, crept: bool) -> Generator[Request, Any, InteriorEnd | None]:
        """Run the restoration phase; return None if the solve continues, else the reason of its end.

        crept: True after short steps, False after a failed search. The solve continues with new multipliers if the restored point
        is acceptable, or after a failed search if the violation hardly decreases. If ``crept`` and restoration fails before a
        limit, the solve continues from the iterate before it, and no restoration for short steps follows. Such a failure, and a
        violation that hardly decreases, set ``hopeless``: at a limit, the status then reports an infeasible problem. REFERRED:
        the engine has no restoration.
        """
        measure = ask.Measure(self.barrier.mu, self.scale)
        if crept and self.hopeless:
            self._measure((yield measure))
            return None
        if not crept:
            self.filter.add((self.at.theta, self._merit(self.objective, self.at)))
        self.restorations += not crept
        to_feasible = crept or (self.restorations > PARTLY and not self.hopeless)
        max_steps = max(self.options.max_iterations - self.iteration, 1)
        found = yield ask.Restore(
            self.at, self.barrier.mu, self.scale, self.filter, max_steps, self._deadline, to_feasible
        )
        if found is None:
            return InteriorEnd.REFERRED
        self.iteration += found.iterations
        self.objective, self.at = found.objective, found.at
        self._report(0.0, 0.0)
        self.stationary = found.stationary
        self.hopeless |= found.end == RestorationEnd.NO_PROGRESS or (found.end == RestorationEnd.LIMIT and found.slow)
        self.hopeless |= crept and found.end in (RestorationEnd.LEAST_VIOLATION, RestorationEnd.NO_STEP)
        if crept and self.hopeless and found.end != RestorationEnd.LIMIT:
            self.objective, self.at = yield ask.Return()
            self._measure((yield measure))
            return None
        if found.end not in (RestorationEnd.ACCEPTABLE, RestorationEnd.NO_PROGRESS):
            return self._not_restored(found)
        if to_feasible:  # the filter's pairs may reject the restored point
            self._empty_filter()
        self._measure((yield ask.Multipliers(MultiplierStart.AGAIN, self.barrier.mu, self.scale)))
        return None

    def _not_restored(self, found: Restored) -> InteriorEnd:
        """Return the reason of the end after a failed restoration, and set all errors except the violation to NaN.

        LEAST_VIOLATION at a stationary point of the violation; STOPPED at a limit, or an infeasible end if the problem seems
        infeasible; else NO_STEP.
        """
        self.now = _UNKNOWN._replace(violation=found.at.largest)
        if found.end == RestorationEnd.LEAST_VIOLATION:
            return InteriorEnd.LEAST_VIOLATION
        if found.end == RestorationEnd.LIMIT and (self.hopeless or self._restarted):
            return self._not_feasible
        return InteriorEnd.STOPPED if found.end == RestorationEnd.LIMIT else InteriorEnd.NO_STEP

    @property
    def _not_feasible(self) -> InteriorEnd:
        """Reason of an infeasible end: LEAST_VIOLATION if restoration ended where the violation is stationary, else STALLED."""
        return InteriorEnd.LEAST_VIOLATION if self.stationary else InteriorEnd.STALLED

    # -- records ----------------------------------------------------------------------------------------------------------------
    def _report(self, alpha: float, size: float) -> None:
        """Call ``report``, if set, with the errors of the iterate and a step of length alpha and largest entry ``size``."""
        if self.report is None:
            return
        o, now, at = self.options, self.now, self.at
        self.report(
            iteration=self.reports,
            cost=self.objective,
            merit=self.objective + self.barrier.mu * at.barrier / self.scale,
            stop=max(now.error / o.gradient_tolerance, now.violation / o.constraint_tolerance),
            gradient=now.gradient / self.scale,
            regularization=self.shift,
            step_norm=alpha * size,
            defect=at.defect,
            constraint_violation=at.largest,
            step_length=alpha,
            hessian="mixed" if self.reflected else self.hessian,
            kkt=now.error,
        )
        self.reports += 1

    def report_end(self) -> None:
        """Do nothing: the iterations have reported the end."""
