"""The loop of the shooting solvers: expand, sweep backward, search forward.

Single shooting, multiple shooting every K knots, GNMS and FDDP differ in the nodes and in how their gaps close
(:class:`~trajopt.evaluation.Shooting`), and in nothing else.  A step accepted has reduced the merit, cost + penalty |d|_1.  Where its
expected decrease is below what double precision can tell apart, full steps are taken while they reduce the residual
max(gradient / tolerance, defect / tolerance), so that gradients converge to the accuracy of the gradient, not to the square root
of that of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import verdicts
from trajopt.evaluation import Candidates, Direction, Evaluator, Expansion, Shooting
from trajopt.globalization import Merit, Regularisation, SearchResult, line_search
from trajopt.guesses import Guess
from trajopt.lq import (
    Bounds,
    LQProblem,
    LQStep,
    Policy,
    cost_change,
    costates,
    forward,
    reduced_gradient,
    solve_riccati,
)
from trajopt.ocp import OCP
from trajopt.options import SLQOptions
from trajopt.records import Callback, IterationRecord
from trajopt.solution import Solution
from trajopt.status import Status

ROUNDING = 1e-12
"""Expected decreases below this share of the merit are noise."""
GAP_ROUNDING = 2e-14
"""Gaps below this share of the states are noise."""
NEAR_ROUNDING = 1e-8
"""Below this share, a failed search is blamed on rounding if the full step reduces the residual."""
LOWER_AT, LOWER_RATIO, RAISE_AT = 0.5, 0.6, 0.5
MAX_IDLE, PROGRESS = 20, 0.99
"""Iterations near rounding level in which the residual does not fall below this share before giving up."""
POLISHING = 0.5 ** np.arange(4)
"""Step lengths that lower and raise mu (Mastalli et al., Crocoddyl, ICRA 2020: solver defaults)."""
Backward = Callable[[LQProblem, float, str, "Bounds | None"], Policy]


class Point(NamedTuple):
    """An iterate with its expansion, reduced gradient (N, m) and costates (N + 1, n).

    gradient, defect: largest entries, of the projected gradient and the gaps; gap: l1 norm of the gaps, 0 at rounding level.
    """

    xs: Array
    us: Array
    expansion: Expansion
    reduced: Array
    costates: Array
    gradient: float
    defect: float
    gap: float
    stop: float


class Step(NamedTuple):
    """A policy, its linear trajectory, the change of the cost along it, the largest multiplier of the dynamics."""

    policy: Policy
    linear: LQStep
    D1: float
    D2: float
    multiplier: float


def _slope(point: Point, du: Array, closed: Array) -> float:
    """The derivative of the cost at a point as the controls move by du (N, m) and gaps ``closed`` (N, n) are closed."""
    return float(np.sum(point.reduced * du) + np.sum(point.costates[1:] * closed))


class ShootingLoop:
    """One solve. ``run`` may be called once; it always returns a Solution, also after Ctrl-C."""

    def __init__(
        self,
        ocp: OCP,
        evaluator: Evaluator,
        options: SLQOptions,
        callback: Callback | None = None,
        backward: Backward = solve_riccati,
    ) -> None:
        self.ocp, self.evaluator, self.options = ocp, evaluator, options
        self.callback, self.backward = callback, backward
        self.shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        self.regularisation = Regularisation.of(options)
        self.merit = Merit(options.penalty, smallest=options.penalty)
        self.point: Point | None = None
        self.policy: Policy | None = None
        self.history: list[IterationRecord] = []
        self.iteration = 0
        self.best: Point | None = None
        self.idle = 0
        self.clock: dict[str, float] = {}

    def run(self, guess: Guess) -> Solution:
        """Iterate from a guess until a test fires."""
        self.began = time.perf_counter()
        self.guess = guess
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                status = self._iterate()
            except KeyboardInterrupt:
                status = verdicts.interrupted(self.iteration)
            return self._solution(status)

    def _iterate(self) -> Status:
        start = self._start()
        if isinstance(start, Status):
            return start
        self.point = start
        while (status := self._finished(self.point) or self._advance(self.point)) is None:
            pass
        self._final_record(self.point)
        return status

    # -- points ---------------------------------------------------------------------------------------------------------
    def _start(self) -> Point | Status:
        """The guess, from x0, within the bounds, with the parts between nodes rolled out."""
        xs, us = np.array(self.guess.xs, dtype=float), np.array(self.guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = np.clip(us, *self.ocp.control_bounds)
        still = Direction(*(np.zeros(shape) for shape in self._direction_shapes()))
        with self._timed("rollout"):
            nodes = Shooting(self.shooting.nodes, "linear")
            first = self.evaluator.rollout(xs, us, still, np.zeros(1), nodes)
        point = self._evaluated(first.xs[0], first.us[0])
        if point is None:
            expansion = self.evaluator.expand(first.xs[0], first.us[0])
            return verdicts.non_finite(self.ocp, first.xs[0], expansion)
        return point

    def _direction_shapes(self) -> tuple[tuple[int, ...], ...]:
        N, ndx, nu = self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        return (N + 1, ndx), (N, nu), (N, nu, ndx), (N, ndx)

    def _evaluated(self, xs: Array, us: Array) -> Point | None:
        """The point, or None if its expansion is not finite."""
        with self._timed("derivatives"):
            expansion = self.evaluator.expand(xs, us)
        lq = expansion.lq
        if not (np.isfinite(expansion.cost) and all(np.isfinite(block).all() for block in lq)):
            return None
        defect = float(np.abs(lq.d).max(initial=0.0))
        if defect <= GAP_ROUNDING * (1.0 + float(np.abs(xs).max())):
            lq = lq._replace(d=np.zeros_like(lq.d))  # multiplied by costates, noise would outweigh small gradients
            expansion = expansion._replace(lq=lq)
        with self._timed("backward"):
            lam = costates(lq)
            reduced = reduced_gradient(lq, lam)
            gradient = float(np.abs(self._projected(us, reduced)).max(initial=0.0))
        stop = max(gradient / self.options.gradient_tolerance, defect / self.options.defect_tolerance)
        gap = float(np.abs(lq.d).sum())
        return Point(xs, us, expansion, reduced, lam, gradient, defect, gap, stop)

    def _projected(self, us: Array, gradient: Array) -> Array:
        """us - P(us - gradient), P the projection on the bounds: zero at a constrained minimum."""
        if self.ocp.control_bounds is None:
            return gradient
        lower, upper = self.ocp.control_bounds
        return np.clip(gradient, us - upper, us - lower)

    # -- one iteration --------------------------------------------------------------------------------------------------
    def _finished(self, point: Point) -> Status | None:
        o = self.options
        if point.stop <= 1.0:
            return verdicts.converged(self.iteration, point.gradient, point.defect, o)
        if self.iteration >= o.max_iterations:
            return verdicts.max_iterations(point.gradient, point.defect, o)
        if o.time_limit is not None and time.perf_counter() - self.began > o.time_limit:
            return verdicts.time_limit(self.iteration, point.gradient, point.defect, o)
        return None

    def _advance(self, point: Point) -> Status | None:
        """One iteration: a direction, a search along it, the next point."""
        step = self._direction(point)
        if isinstance(step, Status):
            return step
        self.policy = step.policy
        self.merit = self.merit.adapted(step.D1, step.D2, point.gap, step.multiplier)
        phi = float(self.merit(point.expansion.cost, point.expansion.lq.d))
        hoped = abs(float(self._expected(point, step, np.ones(1))[0]))
        mu = self.regularisation.mu
        search, new = None, None
        if hoped > ROUNDING * abs(phi):
            search = self._search(point, step, phi)
            new = self._evaluated(search.xs, search.us) if search.accepted else None
        if new is None and hoped <= NEAR_ROUNDING * abs(phi):
            search, new = self._polish(point, step, phi)
        status = self._judge(point, new, search, hoped <= NEAR_ROUNDING * abs(phi))
        self._record(point, phi, mu, step, search, new is not None)
        if status is None or status.success:
            self.point = new or point
        return status

    def _direction(self, point: Point) -> Step | Status:
        """The backward sweep, repeated with more regularisation until Quu can be factorised."""
        lq, bounds = point.expansion.lq, self._relative_bounds(point.us)
        with self._timed("backward"):
            while True:
                policy = self.backward(lq, self.regularisation.mu, self.options.regularise, bounds)
                if policy.failed_at is None:
                    linear = forward(lq, policy)
                    multiplier = policy.Vx + (policy.Vxx @ linear.dx[:, :, None])[:, :, 0]
                    slope, (_, D2) = _slope(point, linear.du, lq.d), cost_change(lq, linear)
                    return Step(policy, linear, slope, D2, float(np.abs(multiplier).max()))
                if self.regularisation.saturated:
                    return verdicts.not_positive_definite(policy.failed_at, self.options)
                self.regularisation = self.regularisation.raised()

    def _relative_bounds(self, us: Array) -> Bounds | None:
        if self.ocp.control_bounds is None:
            return None
        lower, upper = self.ocp.control_bounds
        return lower - us, upper - us

    def _search(self, point: Point, step: Step, phi: float) -> SearchResult:
        current = step

        def corrected(tried: Candidates) -> Candidates:
            nonlocal current
            current = self._second_order(point, current, tried.defects[0])
            return self._rollout(point, current, np.ones(1))

        may_correct = self.shooting.gaps == "linear" and len(self.shooting.nodes) > 0
        with self._timed("rollout"):
            return line_search(
                lambda alphas: self._rollout(point, step, alphas),
                self.merit,
                phi,
                lambda alphas: self._expected(point, step, alphas),
                self.options,
                corrected if may_correct else None,
            )

    def _second_order(self, point: Point, step: Step, defects: Array) -> Step:
        """The step that closes the gaps left by ``step`` too, under the same policy (Nocedal & Wright, section 18.3).

        Without it the merit may refuse good steps for gaps that are of second order (the Maratos effect).
        """
        lq = point.expansion.lq._replace(d=defects, dx0=np.zeros_like(step.linear.dx[0]))
        extra = forward(lq, step.policy._replace(k=np.zeros_like(step.policy.k)))
        du = step.linear.du + extra.du
        bounds = self._relative_bounds(point.us)
        du = du if bounds is None else np.clip(du, *bounds)
        return step._replace(linear=LQStep(step.linear.dx + extra.dx, du))

    def _rollout(self, point: Point, step: Step, alphas: Array) -> Candidates:
        direction = Direction(*step.linear, step.policy.K, point.expansion.lq.d)
        return self.evaluator.rollout(point.xs, point.us, direction, alphas, self.shooting)

    def _polish(self, point: Point, step: Step, phi: float) -> tuple[SearchResult, Point | None]:
        """The longest of a few steps that reduces the residual, or the cost as told by the gradients at both ends.

        The trapezoidal rule on the slope of the cost along the step is free of the cancellation in a difference of costs;
        the merit phi itself may rise by noise only (compare the approximate Wolfe conditions of Hager & Zhang, SIAM J. Optim.
        16, 2005, eq. 4.1).
        """
        with self._timed("rollout"):
            tried = self._rollout(point, step, POLISHING)
        expected = self._expected(point, step, POLISHING)
        risen = np.asarray(self.merit(tried.cost, tried.defects)) - phi > 10.0 * ROUNDING * abs(phi)
        for i, alpha in enumerate(POLISHING):
            new = self._evaluated(tried.xs[i], tried.us[i])
            actual = -np.inf
            if new is not None:
                slopes = step.D1 + _slope(new, step.linear.du, (1.0 - alpha) * point.expansion.lq.d)
                actual = float(-0.5 * alpha * slopes + self.merit.penalty * (alpha * point.gap))
            sufficient = actual >= self.options.accept_ratio * expected[i] > 0.0
            good = new is not None and not risen[i]
            good = good and (new.stop < point.stop or (sufficient and self._closed(point, new)))
            search = SearchResult(good, float(alpha), float(expected[i]), actual, *(b[i] for b in tried))
            if good:
                return search, new
        return search, None

    def _closed(self, point: Point, new: Point) -> bool:
        """Whether gaps are within the tolerance or have not grown."""
        return new.defect <= max(point.defect, self.options.defect_tolerance)

    def _expected(self, point: Point, step: Step, alphas: Array) -> Array:
        return np.asarray(self.merit.expected_decrease(alphas, step.D1, step.D2, point.gap))

    def _judge(self, point: Point, new: Point | None, search: SearchResult, fine: bool) -> Status | None:
        """Adapt mu to the outcome; a status if the solve ends here. fine: the step is near rounding level."""
        o = self.options
        if self.best is None or not fine or point.stop < PROGRESS * self.best.stop:
            self.best, self.idle = point, 0
        self.idle += 1
        if self.idle > MAX_IDLE or (new is None and self.regularisation.saturated):
            return self._no_progress(self.best)
        if new is None:
            self.regularisation = self.regularisation.raised()
            return None
        if search.alpha > LOWER_AT and search.actual >= LOWER_RATIO * search.expected:
            self.regularisation = self.regularisation.lowered()
        elif search.alpha <= RAISE_AT:
            self.regularisation = self.regularisation.raised()
        change = abs(point.expansion.cost - new.expansion.cost)
        if change < o.cost_tolerance * abs(new.expansion.cost) and new.defect <= o.defect_tolerance:
            return verdicts.cost_converged(self.iteration + 1, change / abs(new.expansion.cost), o)
        return None

    def _no_progress(self, best: Point) -> Status:
        """The end of a search without success: rounding, if even the full step promised next to nothing."""
        self.point = best
        self.regularisation = Regularisation.of(replace(self.options, initial_regularisation=0.0))
        step = self._direction(best)
        if isinstance(step, Status):
            return step
        promised = abs(float(self._expected(best, step, np.ones(1))[0]))
        if promised <= NEAR_ROUNDING * abs(float(self.merit(best.expansion.cost, best.expansion.lq.d))):
            return verdicts.precision_limit(best.gradient, best.defect, self.options)
        return verdicts.line_search_failed(self.iteration + 1, best.gradient, self.options)

    # -- the account ----------------------------------------------------------------------------------------------------
    def _record(
        self, point: Point, phi: float, mu: float, step: Step, search: SearchResult, moved: bool
    ) -> None:
        size = max(float(np.abs(part).max(initial=0.0)) for part in step.linear)
        alpha = search.alpha if moved else 0.0
        self._tell(point, phi, mu, (alpha * size, search.expected, search.actual, alpha))
        self.iteration += 1

    def _final_record(self, point: Point) -> None:
        phi = float(self.merit(point.expansion.cost, point.expansion.lq.d))
        self._tell(point, phi, self.regularisation.mu, (0.0, 0.0, 0.0, 0.0))

    def _tell(self, point: Point, phi: float, mu: float, step: tuple[float, float, float, float]) -> None:
        step_norm, expected, actual, alpha = step
        record = IterationRecord(
            iteration=self.iteration,
            cost=point.expansion.cost,
            merit=phi,
            stop=point.stop,
            gradient=point.gradient,
            regularisation=mu,
            step_norm=step_norm,
            defect=point.defect,
            constraint_violation=self._violation(point.us),
            expected_decrease=expected,
            actual_decrease=actual,
            step_length=alpha,
            curvature=self.options.hessian,
            times=self.clock,
        )
        self.clock = {}
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def _violation(self, us: Array) -> float:
        if self.ocp.control_bounds is None:
            return 0.0
        lower, upper = self.ocp.control_bounds
        return float(np.maximum(lower - us, us - upper).max(initial=0.0))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.clock[phase] = self.clock.get(phase, 0.0) + time.perf_counter() - start

    def _solution(self, status: Status) -> Solution:
        N, ndx, nu = self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        K, k = np.zeros((N, nu, ndx)), np.zeros((N, nu))
        xs, us, cost = *self.guess, float("nan")
        if self.point is not None:
            xs, us, cost = self.point.xs, self.point.us, self.point.expansion.cost
            policy = self._policy_at(self.point)
            K, k = (policy.K, policy.k) if policy is not None else (K, k)
        return Solution(
            xs, us, K, k, status, cost, self.iteration, tuple(self.history), self.ocp.times
        )

    def _policy_at(self, point: Point) -> Policy | None:
        """The policy about the solution; that of the last sweep where Quu cannot be factorised there."""
        mu, bounds = self.regularisation.mu, self._relative_bounds(point.us)
        policy = self.backward(point.expansion.lq, mu, self.options.regularise, bounds)
        return policy if policy.failed_at is None else self.policy
