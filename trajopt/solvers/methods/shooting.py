"""Shooting method with a line search: each iteration solves an LQ problem, searches along its solution, and expands there.

Single shooting, multiple shooting every K knots, GNMS and FDDP differ only in the shooting nodes and in the rule that closes their
gaps (:class:`~trajopt.stage.evaluation.Shooting`).  The line search accepts steps that reduce the merit, cost + penalty |d|_1
(:mod:`trajopt.solvers.rules.line_search`). If the expected decrease is below the rounding error of the cost, gradients decide
instead. Gradients then converge to their accuracy, not to the square root of that of the cost.

The direction may come from one of several models, ordered by curvature, the most exact last. If the step of the preferred model is
rejected or short, the steps of the other models compete with it, and the winner becomes the preferred model. The last model becomes
preferred after an iteration that reduces the merit by less than the fraction ``switch``: curvature pays when progress is slow
(compare the switch of R. Fletcher, C. Xu, IMA J. Numer. Anal. 7, 1987), and progress is slow near the solution.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from math import inf, nan, sqrt
from typing import Any, NamedTuple

from trajopt.results.status import SOLVED, STATIONARY
from trajopt.solvers.methods import shooting_requests as ask
from trajopt.solvers.methods.method import End, Ended, Report, Solve
from trajopt.solvers.methods.shooting_requests import GO, MARK, STAY, Direction, Optimality, Point, Request
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.line_search import (
    DOUBLINGS,
    LOWER_RATIO,
    MAX_CORRECTIONS,
    MAX_IDLE,
    NEAR_ROUNDING,
    POLISHED,
    PROGRESS,
    ROUNDING,
    STEADY,
    TOO_MUCH,
    Found,
    Trial,
    adapted,
    decrease,
    expected_decrease,
    reference,
    relative_decrease,
)
from trajopt.solvers.rules.regularization import Regularization
from trajopt.solvers.termination import Descent
from trajopt.solvers.time_limits import start_of_solve

NEARLY = 100.0
"""The scaled KKT error is computed only if that of the last iterate was at most this multiple of its tolerance."""
SHORT_STEP = 0.25
"""Step length at or below which the steps of other models are tried too, because second derivatives may be misleading."""
CURVED_LENGTHS = 4
"""Number of lengths 1, 1/2, ... tried along a parabola; at shorter lengths the parabola is nearly straight."""
STRETCHED = 2
"""Number of doublings of the straight step, tried in addition to parabolas."""


class Models(NamedTuple):
    """Models of the search direction: names of their Hessians, and True for each that can make Quu positive definite.

    switch: relative merit decrease below which the last model is preferred. curved: True to search along parabolas too; all models
    then compete once progress is slow.
    """

    names: tuple[str, ...]
    modify: tuple[bool, ...] = (False,)
    switch: float = 0.0
    curved: bool = False


class TrialStep(NamedTuple):
    """Step of a model with the result of its line search, and the penalty and regularization after it.

    mu: regularization of the step. polished: True if gradients decided the search, not the merit. new: the next iterate; None if
    the step was rejected, or was no better than the step of another model. kkt: scaled KKT error of the next iterate under the
    policy of the step, NaN if not computed.
    """

    model: int
    mu: float
    step: Direction
    found: Found
    polished: bool
    new: Point | None
    kkt: float
    penalty: float
    regularization: Regularization

    @property
    def rejected_or_short(self) -> bool:
        """True without a next iterate, or if a search on the merit (not on gradients) shortened the step to SHORT_STEP or less."""
        return self.new is None or (not self.polished and self.found.alpha <= SHORT_STEP)


class ShootingMethod:
    """Shooting method on one problem: ``solve`` yields requests; attributes hold the iterate, also after an interruption.

    at: the iterate. stop: the larger of its gradient and its defect, each divided by its tolerance. begun: True once an iterate
    exists. kkt: scaled KKT error under the last policy, NaN if not computed. going: move that the slot still has to make to reach
    the iterate (STAY: none). iteration: number of iterations. last: the last iterates. corrects: True if the gaps of some nodes
    close linearly.
    """

    report: Report | None = None

    def __init__(self, models: Models, options: SLQOptions, corrects: bool, max_iterations: int) -> None:
        self.models, self.options, self.corrects, self.max_iterations = models, options, corrects, max_iterations
        self.several = len(models.names) > 1 or any(models.modify)
        self.slow = models.switch >= 1.0
        self.preferred = len(models.names) - 1 if self.slow else 0
        self.regularization = Regularization.from_options(options)
        self.penalty, self.drift = options.penalty, STEADY
        self.at = Point(False, *[nan] * 5)
        self.best, self.best_stop, self.is_best = self.at, inf, False
        self.last = deque[Point](maxlen=options.nonmonotone)
        self.kkt = self.cheaper_kkt = self.stop = nan
        self.change, self.failed_at, self.descent = 0.0, -1, Descent()
        self.iteration = self.idle = 0
        self.going, self.begun, self.nearly = STAY, False, False
        self.began = start_of_solve()

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a termination test holds, then request feedback gains if ``gains``; returns the result.

        NOT_FINITE if the guess has no finite expansion.
        """
        at = yield ask.Start(self.regularization.mu)
        if not at.finite:
            return self.ended(End.NOT_FINITE)
        self._arrive(at)
        self.descent = Descent(at.cost, at.gradient)
        self.begun, end = True, None
        while end is None:
            end = yield from self._termination()
            if end is None:
                end = yield from self._advance()
        yield from self._measured()
        if end in (End.OPTIMAL, End.CHEAPER, End.ROUNDED):  # the open-loop gradient does not decide these ends
            found: Optimality = yield ask.Kkt()
            self.kkt, self.at = found.kkt, self.at._replace(gradient=found.gradient)
        kkt = self.cheaper_kkt if end is End.CHEAPER else self.kkt
        if gains:
            yield self._gains()
        return self.ended(end)._replace(kkt=kkt)

    def stopped(self, *, gains: bool = True) -> Solve:
        """Move the slot to the iterate, compute gains if requested, and return the result of an interrupted solve."""
        yield from self._measured()
        if gains:
            yield self._gains()
        return self.ended(End.INTERRUPTED)

    def ended(self, end: End) -> Ended:
        """Return the result: the given reason, with iterations, cost and errors of the current iterate."""
        at = self.at
        return Ended(end, self.iteration, at.gradient, at.defect, self.kkt, self.change, self.failed_at, at.cost)

    def _gains(self) -> ask.Gains:
        """Return the request for feedback gains with the present regularization.

        They come from the last model; from model 0 if parabolas are searched and progress has not been slow.
        """
        return ask.Gains(
            self.regularization.mu, len(self.models.names) - 1 if self.slow or not self.models.curved else 0
        )

    # -- iterates -----------------------------------------------------------------------------------------------------------
    def _arrive(self, at: Point) -> None:
        """Make an iterate the current one: set ``at`` and ``stop``, and append it to the last iterates (nonmonotone search)."""
        o = self.options
        gradient, defect = at.gradient / o.gradient_tolerance, at.defect / o.defect_tolerance
        self.at, self.stop = at, defect if defect > gradient else gradient
        self.last.append(at)

    def _measured(self) -> Generator[Request, Any, float]:
        """Make the slot's pending move to the iterate; return its scaled KKT error under the last policy, computed if unknown."""
        if self.going:
            going, self.going = self.going, STAY
            yield ask.Go(going)
        if self.kkt != self.kkt:
            self.kkt = (yield ask.Kkt()).kkt
        return self.kkt

    def _termination(self) -> Generator[Request, Any, End | None]:
        """Return the reason if the iterate is stationary (CONVERGED), optimal or unbounded, or a limit is reached, else None.

        The scaled KKT error is computed for CONVERGED, which it must confirm to STATIONARY, and for OPTIMAL if ``nearly`` is set
        and the defect is small.
        """
        o = self.options
        if self.stop <= 1.0 and (yield from self._measured()) <= max(STATIONARY, o.kkt_tolerance):
            return End.CONVERGED
        if self.nearly and self.at.defect <= o.defect_tolerance and (yield from self._measured()) <= o.kkt_tolerance:
            return End.OPTIMAL
        feasible = not self.at.theta or self.at.defect <= o.defect_tolerance
        if feasible and self.descent.is_unbounded(self.at.cost):
            return End.UNBOUNDED
        if self.iteration >= self.max_iterations:
            return End.MOST_ITERATIONS
        if o.time_limit is not None and time.perf_counter() - self.began > o.time_limit:
            return End.OUT_OF_TIME
        return None

    # -- an iteration -------------------------------------------------------------------------------------------------------
    def _advance(self) -> Generator[Request, Any, End | None]:
        """Run one iteration: direction, line search, next iterate. Return the reason if the solve ends, else None.

        A rejected step raises the regularization, a good one lowers it. The solve ends without a direction, after a rejected step
        at the largest regularization, after many iterations without progress, or if gaps stay open.
        """
        chosen = yield from (self._best_step() if self.several else self._trial_step(0, False, None))
        if chosen is None:
            return End.NOT_POSITIVE_DEFINITE
        at, new = self.at, chosen.new
        self.penalty, self.regularization, self.kkt = chosen.penalty, chosen.regularization, chosen.step.kkt
        self._update_best(chosen)
        open_gaps = self.corrects and at.defect > self.options.defect_tolerance
        alpha = 0.0 if new is None else chosen.found.alpha
        self.drift = self.drift.after(alpha, at.theta) if open_gaps else STEADY
        given_up = self.idle > MAX_IDLE or self.drift.over or (new is None and self.regularization.saturated)
        if self.report is not None:
            self._report(chosen)
        self._update_nearly(chosen, alpha)
        self.iteration += 1
        if given_up:
            return (yield from self._settled())
        if new is None:
            self.regularization = self.regularization.raised()
            return None
        if chosen.found.allows_lower_mu:
            self.regularization = self.regularization.lowered()
        return (yield from self._move_to(chosen, new))

    def _update_best(self, chosen: TrialStep) -> None:
        """Mark the iterate as the best and set ``idle`` to 0, unless gradients decided the step and the iterate is hardly better.

        In both cases then add 1 to ``idle``.
        """
        if not chosen.polished or self.stop < PROGRESS * self.best_stop:
            self.best, self.best_stop, self.is_best, self.idle = self.at, self.stop, True, 0
        self.idle += 1

    def _update_nearly(self, chosen: TrialStep, alpha: float) -> None:
        """Set ``nearly``: True if the scaled KKT error of the next iterate should be computed.

        This needs an accepted step, a small error of the current iterate and a small expected decrease. The last condition matters
        on unstable horizons: costates grow there, and so do the terms that scale the error.
        """
        tolerance = self.options.kkt_tolerance
        self.nearly = (
            chosen.step.kkt <= NEARLY * tolerance
            and alpha > 0.0
            and abs(chosen.found.expected) <= sqrt(tolerance) * abs(self.at.cost)
        )

    def _move_to(self, chosen: TrialStep, new: Point) -> Generator[Request, Any, End | None]:
        """Move to the next iterate.

        Return CHEAPER if the change of the cost is within its tolerance and gaps are closed, else None. With CHEAPER the solve
        moves only if the next iterate is nearly stationary.
        """
        o, change = self.options, abs(self.at.cost - new.cost)
        end, kkt = None, chosen.kkt
        if change < o.cost_tolerance * abs(new.cost) and new.defect <= o.defect_tolerance:
            end, self.change = End.CHEAPER, change / abs(new.cost)
            if kkt != kkt:
                kkt, _ = yield ask.Rate(chosen.found.alpha)
            self.cheaper_kkt = kkt
        if end is None or kkt <= STATIONARY:
            self.going, self.is_best, self.kkt = MARK if self.is_best else GO, False, kkt
            self._arrive(new)
        return end

    def _settled(self) -> Generator[Request, Any, End]:
        """Return to the best iterate, and return the reason after an unsuccessful search.

        NOT_POSITIVE_DEFINITE if the first model has no step at any regularization. Else ROUNDED if the scaled KKT error is small,
        or the full step with the least possible regularization promises a negligible decrease; GAPS_OPEN if only short steps were
        accepted; else NO_STEP.
        """
        if not self.is_best:
            yield ask.Back()
            self.kkt = nan
        self._arrive(self.best)
        kkt = yield from self._measured()
        self.regularization = self.regularization._replace(mu=0.0, delta=1.0)
        step = yield from self._direction(0, False)
        if step is None:
            return End.NOT_POSITIVE_DEFINITE
        at = self.at
        expected = expected_decrease(self.penalty, 1.0, step.D1, step.D2, at.theta)
        if kkt <= SOLVED or relative_decrease(expected, at.cost + self.penalty * at.theta) <= NEAR_ROUNDING:
            return End.ROUNDED
        return End.GAPS_OPEN if self.drift.over else End.NO_STEP

    # -- steps ------------------------------------------------------------------------------------------------------------------
    def _direction(self, model: int, definite: bool) -> Generator[Request, Any, Direction | None]:
        """Solve a model's LQ problem, raising the regularization until Quu can be factorized; None at the largest regularization.

        A model that can make Quu positive definite returns None at the first failure, because other models are tried first.
        ``failed_at`` stores the knot of a failure.
        """
        rolled = not self.models.curved
        while True:
            going, self.going = self.going, STAY
            step: Direction = yield ask.SolveLQ(self.regularization.mu, going, rolled, model, definite)
            if step.failed < 0:
                return step
            self.failed_at = step.failed
            if self.regularization.saturated or self.models.modify[model]:
                return None
            self.regularization = self.regularization.raised()

    def _trial_step(
        self, model: int, definite: bool, best: TrialStep | None
    ) -> Generator[Request, Any, TrialStep | None]:
        """Compute the step of a model, raise the penalty as needed, and search along it; None if the LQ problem has no solution.

        definite: True to make Quu positive definite. best: best step of other models, or None; an accepted trial no better than
        it is not expanded. If the expected decrease is at rounding level, or near it after a failed
        search, gradients decide instead of the merit.
        """
        step = yield from self._direction(model, definite)
        if step is None:
            return None
        at = self.at
        self.penalty = penalty = adapted(self.penalty, step.D1, step.D2, at.theta)
        start, regularization = reference(self.last, penalty), self.regularization
        expected = expected_decrease(penalty, 1.0, step.D1, step.D2, at.theta)
        promise = relative_decrease(expected, start)
        found, new, kkt = None, None, nan
        if promise > ROUNDING:
            search = self._curve_search if self.models.curved else self._line_search
            found = yield from search(step, start, expected)
            if found.accepted:
                if best is not None and is_no_better(found.trial, penalty, best):
                    return TrialStep(model, regularization.mu, step, found, False, None, nan, penalty, regularization)
                mu = regularization.lowered().mu if found.allows_lower_mu and regularization.mu else regularization.mu
                new = yield ask.Expand(found.row, mu, self._next(model, found) if self.several else model)
                new = new if new.finite else None
        polished = found is None or (new is None and promise <= NEAR_ROUNDING)
        if found is None or polished:
            found, new, kkt = yield from self._polished(model, step, start)
        return TrialStep(model, regularization.mu, step, found, polished, new, kkt, penalty, regularization)

    def _best_step(self) -> Generator[Request, Any, TrialStep | None]:
        """Return the step of the preferred model, or the best of several steps; None if no model has a step.

        If the step is rejected or short, the other models are tried, last with modified Quu, until the best step is neither; in a
        search along parabolas all are tried once progress has become slow. A winner other than the preferred model becomes
        preferred; if the preferred model wins with a slow step, the last model.
        """
        before, preferred, models = (self.penalty, self.regularization), self.preferred, self.models
        best = yield from self._trial_step(preferred, False, None)
        failed_at = self.failed_at
        self.slow = self.slow or best is None or self._is_slow(best.found)
        numbers = range(len(models.names))
        others = [(i, False) for i in numbers if i != preferred] + [(i, True) for i in numbers if models.modify[i]]
        for model, definite in others:
            if not (best is None or (self.slow if models.curved else best.rejected_or_short)):
                break
            self.penalty, self.regularization = before
            if best is not None:
                yield ask.Swap()
            one, best = best, better(best, (yield from self._trial_step(model, definite, best)))
            if one is not None and best is one:
                yield ask.Swap()
        if best is None:
            self.failed_at = failed_at
        else:
            self.preferred = best.model if best.model != preferred else self._next(best.model, best.found)
        return best

    def _next(self, model: int, found: Found) -> int:
        """Return the index of the model to prefer next: the last one after a slow step, else the given one."""
        return len(self.models.names) - 1 if self._is_slow(found) else model

    def _is_slow(self, found: Found) -> bool:
        """True if a step decreased the merit by less than the fraction ``switch`` of its magnitude."""
        return found.actual < self.models.switch * abs(self.at.cost + self.penalty * self.at.theta)

    # -- searches -----------------------------------------------------------------------------------------------------------
    def _line_search(self, step: Direction, start: float, expected: float) -> Generator[Request, Any, Found]:
        """Backtracking line search on the merit, over the lengths 1, 1/2, 1/4, ...; expected: decrease of the full step.

        The full step is tried alone, then, if linear gaps allow it, with second-order corrections while they help, then the
        shorter steps together. start: reference merit. A step that realizes less than
        :data:`~trajopt.solvers.rules.line_search.LOWER_RATIO` of the expected decrease is replaced by the next shorter one while
        that reduces the merit more. A full step that gains much more than expected is lengthened: the Gauss-Newton Hessian omits
        curvature of either sign, and if the omitted part is negative its steps are too short.
        """
        ratio, actual = self.options.accept_ratio, decrease(start, self.penalty, step.trial, self.at.theta)
        risen = start - (self.at.cost + self.penalty * self.at.theta)
        best = Found(actual >= ratio * expected > 0.0, 0, 1.0, expected, actual, step.trial)
        if best.accepted:
            if actual - risen >= TOO_MUCH * expected:
                return (yield from self._stretched(best, start))
            if actual >= LOWER_RATIO * expected:
                return best
        elif self.corrects:
            best = yield from self._corrected(best, start)
            if best.accepted:
                return best
        return (yield from self._shortened(step, best, start))

    def _stretched(self, full: Found, start: float) -> Generator[Request, Any, Found]:
        """Return the step with the lowest merit among the full step and those of length 2, 4 and 8; the shortest of equal ones."""
        best, first = full, -DOUBLINGS
        while first <= 0:
            trials = yield ask.Roll(first, 1 - first, False)
            for row, trial in enumerate(trials):
                actual = decrease(start, self.penalty, trial, self.at.theta)
                if best is full or actual >= best.actual:  # of equal ones the shortest
                    best = Found(True, row, 0.5 ** (first + row), full.expected, actual, trial)
                    last = first
            first += len(trials)
        if last + len(trials) != 1:  # later trials have overwritten the rows
            return (yield from self._rolled_again(last + best.row, best))
        return best

    def _rolled_again(self, number: int, found: Found, curved: bool = False) -> Generator[Request, Any, Found]:
        """Roll out the step of length 2^-number again, into row 0, because later trials have overwritten it.

        curved: True along the parabola. Return it with row 0.
        """
        yield ask.Roll(number, 1, curved)
        return found._replace(row=0)

    def _corrected(self, full: Found, start: float) -> Generator[Request, Any, Found]:
        """Return the first accepted second-order correction of a rejected full step.

        If none, the best of full step and corrections. Stops after MAX_CORRECTIONS, or once a correction raises the merit; a
        non-finite full step is not corrected.
        """
        ratio, best = self.options.accept_ratio, full
        for number in range(MAX_CORRECTIONS):
            if full.actual == -inf:
                break
            trial = yield ask.Correct(number > 0)
            before, actual = full.actual, decrease(start, self.penalty, trial, self.at.theta)
            full = full._replace(accepted=actual >= ratio * full.expected > 0.0, actual=actual, trial=trial)
            if full.accepted:
                return full
            if actual > best.actual:
                best = full
            if actual < before:
                break
        return best

    def _shortened(self, step: Direction, best: Found, start: float) -> Generator[Request, Any, Found]:
        """Return the first accepted step of 1/2, 1/4, ..., or a shorter one while that reduces the merit more.

        best: result for the full step. If it is accepted, it takes part in this comparison. Shorter steps are tried until one is
        good (:attr:`~trajopt.solvers.rules.line_search.Found.good`). If no step is accepted, return the one with the lowest
        merit, the full one included.
        """
        o, at, penalty = self.options, self.at, self.penalty
        first, number, looking, last = 1, 0, True, 0
        while looking and first <= o.max_backtracks:
            trials = yield ask.Roll(first, o.max_backtracks + 1 - first, False)
            for row, trial in enumerate(trials):
                alpha = 0.5 ** (first + row)
                expected = expected_decrease(penalty, alpha, step.D1, step.D2, at.theta)
                actual = decrease(start, penalty, trial, self.at.theta)
                accepted = actual >= o.accept_ratio * expected > 0.0
                looking = not best.accepted or actual > best.actual
                if not looking:
                    break
                if accepted or actual > best.actual:
                    best = Found(accepted or best.accepted, row, alpha, expected, actual, trial)
                    number = first + row
                if best.good:
                    looking = False
                    break
            last, first = first, first + len(trials)
        if best.accepted and number < last:  # later trials have overwritten the rows
            return (yield from self._rolled_again(number, best))
        return best

    def _curve_search(self, step: Direction, start: float, expected: float) -> Generator[Request, Any, Found]:
        """Return the step with the lowest merit along the line (lengths 4, 2, 1, 1/2, ...) and the parabola (1 to 1/8).

        It is accepted if it realizes the fraction ``accept_ratio`` of the decrease expected for its length, or for 1 if it is
        longer.
        """
        o, theta = self.options, self.at.theta
        best, number, parabolic, stored = None, 0, False, False
        for first, past, curved in (
            (-STRETCHED, o.max_backtracks + 1, False),
            (0, min(CURVED_LENGTHS, o.max_backtracks + 1), True),
        ):
            while first < past:
                trials = yield ask.Roll(first, past - first, curved)
                if not trials:
                    break
                stored = False  # these trials have overwritten the rows of earlier ones
                for row, trial in enumerate(trials):
                    actual = decrease(start, self.penalty, trial, self.at.theta)
                    if best is None or actual > best.actual:
                        alpha, number, parabolic, stored = 0.5 ** (first + row), first + row, curved, True
                        expected = expected_decrease(self.penalty, min(alpha, 1.0), step.D1, step.D2, theta)
                        accepted = actual >= o.accept_ratio * expected > 0.0
                        best = Found(accepted, row, alpha, expected, actual, trial)
                first += len(trials)
        assert best is not None
        if best.accepted and not stored:
            return (yield from self._rolled_again(number, best, parabolic))
        return best

    def _polished(
        self, model: int, step: Direction, start: float
    ) -> Generator[Request, Any, tuple[Found, Point | None, float]]:
        """Return the longest of a few steps that reduces the scaled KKT error, or the merit computed from gradients at both ends.

        In the latter case the largest gap must not grow beyond its tolerance. Without such a step returns the last trial, None
        and NaN; else the trial, its iterate and its KKT error. Errors are under the policy of the step
        (:mod:`trajopt.solvers.rules.cost_size`). The trapezoidal rule on the slope of the cost avoids the cancellation in a
        difference of costs. The cost itself may rise only within rounding error (compare the approximate Wolfe conditions of W.
        Hager, H. Zhang, SIAM J. Optim. 16, 2005, eq. 4.1).
        """
        o, at, penalty = self.options, self.at, self.penalty
        first, trials = 0, list[Trial]()
        for i in range(POLISHED):
            if i == first + len(trials):
                first, trials = i, (yield ask.Roll(i, POLISHED - i, False))
            trial, alpha = trials[i - first], 0.5**i
            expected = expected_decrease(penalty, alpha, step.D1, step.D2, at.theta)
            new: Point = yield ask.Expand(i - first, self.regularization.mu, model)
            actual, good, kkt = -inf, False, nan
            if new.finite:
                kkt, slope = yield ask.Rate(alpha)
                actual = -0.5 * alpha * (step.D1 + slope) + penalty * alpha * at.theta
                sufficient = actual >= o.accept_ratio * expected > 0.0
                closed = new.defect <= max(at.defect, o.defect_tolerance)
                risen = trial.cost - at.cost > 10.0 * ROUNDING * abs(start)
                good = not risen and (kkt < step.kkt or (sufficient and closed))
            found = Found(good, i - first, alpha, expected, actual, trial)
            if good:
                return found, new, kkt
        return found, None, nan

    # -- records -------------------------------------------------------------------------------------------------------
    def _report(self, chosen: TrialStep | None) -> None:
        """Call ``report`` with the errors of the iterate and the chosen step from it; step length 0 if it was rejected or None."""
        assert self.report is not None
        at, alpha, expected, actual, size = self.at, 0.0, 0.0, 0.0, 0.0
        mu, name = self.regularization.mu, self.models.names[self.preferred if chosen is None else chosen.model]
        if chosen is not None:
            mu, size = chosen.mu, chosen.step.size
            _, _, alpha, expected, actual, _ = chosen.found
            if chosen.new is None:
                alpha = 0.0
        self.report(
            iteration=self.iteration,
            cost=at.cost,
            merit=at.cost + self.penalty * at.theta,
            stop=self.stop,
            gradient=at.gradient,
            regularization=mu,
            step_norm=alpha * size,
            defect=at.defect,
            constraint_violation=at.violation,
            expected_decrease=expected,
            actual_decrease=actual,
            step_length=alpha,
            hessian=name,
            kkt=self.kkt,
        )

    def report_end(self) -> None:
        """Report the solution as a record without a step; does nothing without ``report``."""
        if self.report is not None:
            self._report(None)


def is_no_better(trial: Trial, penalty: float, by: TrialStep) -> bool:
    """True if the trial step ``by`` was not rejected and its merit is at most that of the trial, both with the larger penalty."""
    if by.new is None:
        return False
    penalty, own = max(by.penalty, penalty), by.found.trial
    return own.cost + penalty * own.theta <= trial.cost + penalty * trial.theta


def better(one: TrialStep | None, other: TrialStep | None) -> TrialStep | None:
    """Return the trial step with the lower merit; the first if the second is rejected or no better. None: return the other."""
    if other is None or one is None:
        return other or one
    return one if other.new is None or is_no_better(other.found.trial, other.penalty, one) else other
