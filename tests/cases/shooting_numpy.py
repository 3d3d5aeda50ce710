"""NumPy answers to shooting methods with the plain model, as the reference of the C kernels, and their parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from answering import Answering

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, Stationarity
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods.requests import Solved
from trajopt.solvers.methods.shooting_requests import (
    MARK,
    STAY,
    Back,
    Correct,
    Direction,
    Expand,
    Gains,
    Go,
    Kkt,
    Optimality,
    Point,
    Rate,
    Roll,
    SolveLQ,
    Start,
)
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.line_search import Trial
from trajopt.solvers.shooting.ddp_model import Damping, PlainModel
from trajopt.solvers.window.shooting_slot import FALLEN, GAP_ROUNDING, HOLDING
from trajopt.stage.evaluation import Candidates, Direction as Along, Expansion, Shooting, StageEvaluator

REFUSED = Trial(np.inf, np.inf)


def curvature_along(lq: LQProblem, step: LQStep) -> float:
    """Return the second derivative D2 of the LQ cost along alpha (dx, du): the quadratic form of Q, S and R at the step."""
    dx, du = step
    Qdx = (lq.Q @ dx[:, :, None])[:, :, 0]
    cross, Rdu = (lq.S @ dx[:-1, :, None])[:, :, 0], (lq.R @ du[:, :, None])[:, :, 0]
    return float(np.sum(dx * Qdx) + np.sum(du * (2.0 * cross + Rdu)))


class At(NamedTuple):
    """Trajectory with its expansion, reduced gradient (N, m) and costates (N + 1, n).

    evaluator: computed the expansion. gradient, defect: largest entries of the projected gradient and of the gaps. theta: l1 norm
    of the gaps, 0 at rounding level. others: LQ problems of other evaluators, for models.
    """

    xs: Array
    us: Array
    expansion: Expansion
    evaluator: StageEvaluator
    reduced: Array
    costates: Array
    gradient: float
    defect: float
    theta: float
    others: dict[StageEvaluator, LQProblem]

    @property
    def cost(self) -> float:
        return self.expansion.cost

    @property
    def lq(self) -> LQProblem:
        return self.expansion.lq


class OneStep(NamedTuple):
    """A policy, its linear step, and the predicted cost change alpha D1 + alpha^2/2 D2."""

    policy: Policy
    linear: LQStep
    D1: float
    D2: float


def measured(xs: Array, us: Array, expansion: Expansion, evaluator: StageEvaluator, bounds: Bounds | None) -> At | None:
    """Return the iterate with its error measures, or None if cost or LQ problem are not finite; bounds: on u."""
    lq = expansion.lq
    if not (np.isfinite(expansion.cost) and shared_lq().is_finite(lq)):
        return None
    defect = float(np.abs(lq.d).max(initial=0.0))
    if defect <= GAP_ROUNDING * (1.0 + float(np.abs(xs).max())):
        lq = lq._replace(d=np.zeros_like(lq.d))
        expansion = expansion._replace(lq=lq)
    lam, reduced, _ = shared_lq().stationarity(lq)
    projected = reduced if bounds is None else np.clip(reduced, us - bounds[1], us - bounds[0])
    gradient = float(np.abs(projected).max(initial=0.0))
    return At(xs, us, expansion, evaluator, reduced, lam, gradient, defect, float(np.abs(lq.d).sum()), {})


def step_of(at: At, policy: Policy, linear: LQStep, D2: float) -> OneStep:
    """Return the step along the linear trajectory of a policy, with its slope D1 from the iterate; D2: second derivative."""
    return OneStep(policy, linear, slope(at.lq, policy.K, linear, at.lq.d), D2)


def slope(lq: LQProblem, K: Array, linear: LQStep, closed: Array) -> float:
    """Return the derivative of the cost along a step that closes the gaps ``closed`` (N, n), under the gains K (N, m, n)."""
    at = shared_lq().stationarity(lq, K)
    free = linear.du - (K @ linear.dx[:-1, :, None])[:, :, 0]
    return float(np.sum(at.gradient * free) + np.sum(at.costates[1:] * closed))


def rolled_out(xs: Array, us: Array, nodes: Shooting, evaluator: StageEvaluator) -> tuple[Array, Array]:
    """Roll out a guess between its nodes; feedback holds it if the open-loop rollout diverges and feedback costs less."""
    N, nu = us.shape
    ndx = evaluator.manifold.ndx
    still = Along(np.zeros((N + 1, ndx)), np.zeros((N, nu)), np.zeros((N, nu, ndx)), np.zeros((N, ndx)))
    first = evaluator.rollout(xs, us, still, np.zeros(1), nodes)
    if len(nodes.nodes) == N:
        return first.xs[0], first.us[0]
    expansion = evaluator.expand(xs, us)
    if not first.cost[0] <= FALLEN * max(1.0, abs(float(expansion.cost))):
        held = _held(xs, us, expansion.lq, nodes, evaluator)
        first = held if held is not None and not first.cost[0] <= held.cost[0] else first
    return first.xs[0], first.us[0]


def _held(xs: Array, us: Array, lq: LQProblem, nodes: Shooting, evaluator: StageEvaluator) -> Candidates | None:
    """Return the cheaper rollout of a guess under the policy of its LQ problem or under its gains alone; None without one."""
    if not shared_lq().is_finite(lq):
        return None
    policy = shared_lq().solve_riccati(lq, HOLDING)
    if policy.failed_at is not None:
        return None
    tried = [
        evaluator.rollout(xs, us, Along(np.zeros_like(lq.q), du, policy.K, np.zeros_like(lq.d)), np.ones(1), nodes)
        for du in (np.zeros_like(us), policy.k)
    ]
    finite = [c for c in tried if np.isfinite(c.cost[0])]
    return min(finite, key=lambda c: float(c.cost[0]), default=None)


def scaled(found: Stationarity, gradient: Array) -> Array:
    """Return a gradient (N, m) divided by the sizes of its terms, for each control; zero for controls of size zero."""
    return np.divide(gradient, found.size, out=np.zeros_like(gradient), where=found.size > 0.0)


def optimality(lq: LQProblem, us: Array, bounds: Bounds | None, K: Array | None = None) -> tuple[float, float]:
    """Return the scaled KKT error and the largest entry of the gradient of controls us (N, m) within bounds, under gains K.

    Controls on a bound have zero gains; the outward part of their gradient is the multiplier of the bound, and no error.
    """
    gap = float(np.abs(lq.d).max(initial=0.0))
    if bounds is None or not (held := (us <= bounds[0]) | (us >= bounds[1])).any():
        found = shared_lq().stationarity(lq, K)
        inward = found.gradient
    else:
        lower, upper = bounds
        found = shared_lq().stationarity(lq, None if K is None else np.where(held[:, :, None], 0.0, K))
        inward = np.where(us <= lower, np.minimum(found.gradient, 0.0), found.gradient)
        inward = np.where(us >= upper, np.maximum(inward, 0.0), inward)
    kkt = float(np.abs(scaled(found, inward)).max(initial=0.0))
    return max(kkt, gap), float(np.abs(inward).max(initial=0.0))


class ShootingNumpy(Answering):
    """Iterates and steps of a shooting method for one problem; NumPy answers its requests.

    models: the plain model alone. The arguments are those of CallingShootingSlot.
    """

    def __init__(
        self, ocp: OCP, evaluator: StageEvaluator, options: SLQOptions, models: Any, *, curved: bool = False
    ) -> None:
        (self._model,) = models
        assert isinstance(self._model, PlainModel) and not curved
        self.ocp, self.options, self._evaluator = ocp, options, evaluator
        self._shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        self._policy: Policy | None = None
        self._at: At | None = None
        self._best: At | None = None
        self._next: At | None = None
        self._answers = {
            Start: lambda _: self._start(),
            SolveLQ: self._direction,
            Roll: lambda r: self._rolled(self._step, 0.5 ** np.arange(r.first, r.first + r.count, dtype=float)),
            Correct: self._correct,
            Expand: self._expand,
            Rate: self._rate,
            Go: lambda r: self._go(r.going),
            Back: lambda _: self._back(),
            Kkt: lambda _: self._optimality(self.at, self._policy),
            Gains: self._gains,
        }

    def take(self, ocp: OCP, guess: Guess) -> None:
        """Store a guess for the next start. The problem is that of the constructor."""
        self._guess = guess

    @property
    def at(self) -> At:
        """The current iterate."""
        assert self._at is not None
        return self._at

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """States and controls of the current iterate; without a finite start, of the rolled-out guess."""
        return self._tried_start if self._at is None else (self._at.xs, self._at.us)

    @property
    def cost(self) -> float:
        """Cost of the current iterate."""
        return float(self.at.cost)

    def solution(self) -> Solved:
        """Return a copy of the current iterate, with the gains of the last Gains request."""
        return Solved(*map(np.array, (*self.trajectory, self.K, self.k)))

    def _start(self) -> Point:
        xs, us = np.array(self._guess.xs, dtype=float), np.array(self._guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = np.clip(us, *self.ocp.control_bounds)
        self._tried_start = rolled_out(xs, us, Shooting(self._shooting.nodes, "linear"), self._evaluator)
        self._at = self._expanded(*self._tried_start)
        return self._point(self._at)

    def _expanded(self, xs: Array, us: Array) -> At | None:
        evaluator = self._model.evaluator
        return measured(xs, us, evaluator.expand(xs, us), evaluator, self.ocp.control_bounds)

    def _point(self, at: At | None) -> Point:
        if at is None:
            return Point(False, *[np.nan] * 5)
        bounds, violation = self.ocp.control_bounds, 0.0
        if bounds is not None:
            violation = float(np.maximum(bounds[0] - at.us, at.us - bounds[1]).max(initial=0.0))
        return Point(True, float(at.cost), at.gradient, at.defect, at.theta, violation)

    def _expand(self, r: Expand) -> Point:
        self._next = self._expanded(self._trials.xs[r.row], self._trials.us[r.row])
        return self._point(self._next)

    def _go(self, going: int) -> None:
        if going == STAY:
            return
        if going == MARK:
            self._best = self._at
        self._at = self._next

    def _back(self) -> None:
        self._at = self._best

    def _optimality(self, at: At, policy: Policy | None) -> Optimality:
        K = None if policy is None else policy.K
        return Optimality(*optimality(at.lq, at.us, self.ocp.control_bounds, K))

    def _rate(self, r: Rate) -> tuple[float, float]:
        new, step = self._next, self._step
        assert new is not None
        along = slope(new.lq, step.policy.K, step.linear, (1.0 - r.alpha) * self.at.lq.d)
        return self._optimality(new, step.policy).kkt, along

    def _bounds(self) -> Bounds | None:
        limits, us = self.ocp.control_bounds, self.at.us
        return None if limits is None else (limits[0] - us, limits[1] - us)

    def _direction(self, r: SolveLQ) -> Direction:
        self._go(r.going)
        at, regularize, bounds = self.at, self.options.regularize, self._bounds()
        lq = self._model.problem(at, Damping(r.mu, regularize, bounds), r.definite).lq
        if bounds is None:
            policy = shared_lq().solve_riccati(lq, r.mu, regularize)
            linear, (_, D2) = shared_lq().forward(lq, policy)
        else:
            policy, linear = shared_lq().solve_bounded(lq, bounds, r.mu, regularize)
            D2 = curvature_along(lq, linear)
        if policy.failed_at is not None:
            return Direction(policy.failed_at, 0.0, 0.0, 0.0, 0.0, REFUSED)
        self._policy, self._step = policy, step_of(at, policy, linear, D2)
        size = max(float(np.abs(part).max(initial=0.0)) for part in linear)
        trial = self._rolled(self._step, np.ones(1))[0] if r.rolled else REFUSED
        return Direction(-1, self._step.D1, float(D2), size, self._optimality(at, policy).kkt, trial)

    def _rolled(self, step: OneStep, alphas: Array) -> list[Trial]:
        at = self.at
        along = Along(*step.linear, step.policy.K, at.lq.d)
        self._trials = tried = self._evaluator.rollout(at.xs, at.us, along, alphas, self._shooting)
        finite = np.isfinite(tried.xs).all(axis=(1, 2))
        gaps = np.where(finite, np.abs(tried.defects).sum(axis=(1, 2)), np.inf)
        return [Trial(float(cost), float(gap)) for cost, gap in zip(tried.cost, gaps, strict=True)]

    def _correct(self, r: Correct) -> Trial:
        """The step that also closes the gaps of the last trial, under its policy; slope and D2 stay."""
        last, bounds, lq = self._corrected if r.again else self._step, self._bounds(), self.at.lq
        lq = lq._replace(d=self._trials.defects[0], dx0=np.zeros_like(last.linear.dx[0]))
        feedback = last.policy._replace(k=np.zeros_like(last.policy.k))
        left = None if bounds is None else (bounds[0] - last.linear.du, bounds[1] - last.linear.du)
        extra, _ = shared_lq().forward(lq, feedback, left)
        self._corrected = last._replace(linear=LQStep(last.linear.dx + extra.dx, last.linear.du + extra.du))
        return self._rolled(self._corrected, np.ones(1))[0]

    def _gains(self, r: Gains) -> None:
        damping = Damping(r.mu, self.options.regularize, self._bounds())
        policy = shared_lq().solve_riccati(self._model.problem(self.at, damping).lq, *damping)
        if policy.failed_at is not None:
            policy = self._policy or policy
        self.K, self.k = policy.K, policy.k
