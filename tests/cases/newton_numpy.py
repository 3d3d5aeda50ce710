"""NumPy answers to Newton's method, and its barrier of control bounds, as the reference of the C kernels.

    phi = J - mu sum log((u - lower) / w) - mu sum log((upper - u) / w),   w = upper - lower

The primal-dual system eliminates the multipliers z = mu / slack: Newton's method gets the gradient -mu / slack and the curvature
z / slack, and all controls keep feedback gains. If a side is free, its term is left out, and w = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from answering import Answering
from shooting_numpy import scaled

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.lq import LQProblem, LQStep, Policy, Stationarity
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods.method import Size
from trajopt.solvers.methods.requests import (
    FRACTIONS,
    GAUSS_NEWTON,
    Accept,
    AcceptOnBounds,
    Direction,
    FirstGains,
    Gains,
    IsFinite,
    OnBounds,
    Point,
    Restore,
    Roll,
    Solved,
    Start,
    Step,
    Trial,
)
from trajopt.solvers.rules.barrier import HELD, KAPPA_SIGMA, PUSH, TAU, WIDEST
from trajopt.solvers.shooting.ddp_model import mixed, with_curvature
from trajopt.stage.evaluation import Candidates, Direction as Along, Expansion, Shooting, StageEvaluator


@dataclass
class Barrier:
    """Primal-dual barrier of control bounds lower, upper (N, m), infinite for a free side, with mu and multipliers z (2, N, m)."""

    lower: Array
    upper: Array
    mu: float
    z: Array

    @classmethod
    def at_controls(cls, bounds: tuple[Array, Array], us: Array, mu: float) -> Barrier:
        """Create the barrier at interior controls (N, m), with multipliers mu / slack."""
        barrier = cls(*bounds, mu, np.zeros((2, *us.shape)))
        barrier.z = mu / barrier.slacks(us)
        return barrier

    @property
    def width(self) -> Array:
        """Range upper - lower (N, m) of the controls; 1 where a side is free.

        It is limited to WIDEST max(1, magnitude of the nearer bound).
        """
        width = self.upper - self.lower
        nearer = np.maximum(1.0, np.minimum(np.abs(self.lower), np.abs(self.upper)))
        return np.where(np.isfinite(width), np.minimum(width, WIDEST * nearer), 1.0)

    def slacks(self, us: Array) -> Array:
        """Return the distances us - lower and upper - us of controls (..., N, m) from their bounds, (2, ..., N, m)."""
        return np.stack([us - self.lower, self.upper - us])

    def logs(self, us: Array) -> Array:
        """Return minus the sum of log(slack / range) over both bounds of all controls (..., N, m): the barrier (...) for mu = 1.

        Free sides count 0. The barrier is infinite if a control is on a bound or outside.
        """
        slacks = self.slacks(us) / self.width
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(np.isfinite(slacks), np.log(slacks), 0.0)
        total = -logs.sum(axis=(0, -2, -1))
        return np.where((slacks > 0.0).all(axis=(0, -2, -1)), total, np.inf)

    def imposed(self, lq: LQProblem, us: Array) -> LQProblem:
        """Return the LQ problem plus the barrier at controls us: its gradient -mu / slack (+mu / slack at upper bounds) in r, and
        its curvature z / slack on the diagonal of R.
        """
        slacks = self.slacks(us)
        push, curvature = self.mu / slacks, (self.z / slacks).sum(axis=0)
        R, i = lq.R.copy(), np.arange(us.shape[1])
        R[:, i, i] += curvature
        return lq._replace(R=R, r=lq.r - push[0] + push[1])

    def force(self) -> Array:
        """Return the bound multipliers' term in the Lagrangian's gradient in the controls, z_upper - z_lower (N, m)."""
        return self.z[1] - self.z[0]

    def products(self, us: Array) -> tuple[float, float]:
        """Return the smallest and largest product of a multiplier and its slack; (inf, -inf) without finite bounds."""
        slacks = self.slacks(us)
        finite = np.isfinite(slacks)
        product = self.z[finite] * slacks[finite]
        return float(product.min(initial=np.inf)), float(product.max(initial=-np.inf))

    def longest(self, us: Array, du: Array) -> float:
        """Return the largest step length, at most 1, that leaves the fraction 1 - TAU of every slack (fraction to the boundary)."""
        return _longest(self.slacks(us), np.stack([du, -du]))

    def stepped(self, us: Array, du: Array, new: Array) -> Array:
        """Return the multipliers (2, N, m) after their Newton step for a control step du (N, m) from us; ``new``: controls there.

        The fraction-to-the-boundary rule shortens the step of the multipliers. The results are clipped to at most KAPPA_SIGMA
        times, and at least 1 / KAPPA_SIGMA times, mu / slack at ``new``.
        """
        slacks, moves = self.slacks(us), np.stack([du, -du])
        dz = self.mu / slacks - self.z - self.z / slacks * moves
        ahead = self.mu / self.slacks(new)
        return np.clip(self.z + _longest(self.z, dz) * dz, ahead / KAPPA_SIGMA, ahead * KAPPA_SIGMA)

    def snapped(self, us: Array) -> tuple[Array, Array]:
        """Return the controls (N, m) with those at an active bound set to that bound, and a mask (N, m) of these.

        A bound is active if the slack is at most HELD times the range and the multiplier exceeds mu / (HELD range).
        """
        slacks = self.slacks(us)
        near = (slacks <= HELD * self.width) & (self.z * self.width > self.mu / HELD)
        return np.where(near[0], self.lower, np.where(near[1], self.upper, us)), near.any(axis=0)


def interior(us: Array, bounds: tuple[Array, Array], push: float = PUSH) -> Array:
    """Return controls (N, m) clipped to the interior of their bounds, push min(max(1, |bound|), range) or more from each bound.

    IPOPT, section 3.6.
    """
    lower, upper = (
        bound
        + sign
        * push
        * np.where(np.isfinite(bound), np.minimum(np.maximum(1.0, np.abs(bound)), bounds[1] - bounds[0]), 0.0)
        for sign, bound in zip((1.0, -1.0), bounds, strict=True)
    )
    return np.clip(us, lower, upper)


def _longest(values: Array, moves: Array) -> float:
    """Return the largest step length, at most 1, along ``moves`` that leaves the fraction 1 - TAU of positive ``values``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(moves < 0.0, -TAU * values / moves, 1.0)
    return float(min(1.0, np.nan_to_num(steps, nan=1.0).min(initial=1.0)))


class _At(NamedTuple):
    """Trajectory with its expansion (with the exact Hessian of the cost, if used), costates and gradient."""

    xs: Array
    us: Array
    expansion: Expansion
    optimality: Stationarity


class _Step(NamedTuple):
    """Policy, its linear step, and the maximum step length."""

    policy: Policy
    linear: LQStep
    longest: float


class NewtonNumpy(Answering):
    """Iterates and steps of Newton's method for one problem; NumPy answers its requests.

    evaluator: with the Gauss-Newton Hessian of the cost. exact: with the Hessian to which the curvature of the dynamics is added;
    None for Gauss-Newton alone.
    """

    def __init__(self, ocp: OCP, evaluator: StageEvaluator, exact: StageEvaluator | None) -> None:
        self.ocp = ocp
        self._evaluator, self._exact = evaluator, exact
        self._shooting = Shooting.every("all", ocp.horizon, "linear")
        self._barrier: Barrier | None = None
        self._policy: Policy | None = None
        self._steps: list[_Step | None] = [None, None]
        self._answers = {
            Start: self._start,
            FirstGains: self._first_gains,
            IsFinite: lambda _: bool(np.isfinite(self._at.expansion.cost)) and self._is_finite(self._at.expansion.lq),
            Step: self._step,
            Roll: self._roll,
            Accept: self._accept,
            Restore: self._restore,
            OnBounds: self._on_bounds,
            AcceptOnBounds: lambda _: self._accept_on_bounds(),
            Gains: self._gains,
        }

    def take(self, ocp: OCP, guess: Guess) -> Size:
        """Load a copy of a guess, and set the gains to zero; return the sizes. The problem is that of the constructor."""
        self._guess = Guess(np.array(guess.xs, dtype=float), np.array(guess.us, dtype=float))
        N, m, n = *guess.us.shape, self.ocp.manifold.ndx
        self.K, self.k = np.zeros((N, m, n)), np.zeros((N, m))
        return Size(GAUSS_NEWTON if self._exact is None else 0, N * m, self.ocp.control_bounds is not None)

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """States and controls of the current iterate."""
        return self._at.xs, self._at.us

    @property
    def cost(self) -> float:
        """Cost of the current iterate."""
        return float(self._at.expansion.cost)

    def solution(self) -> Solved:
        """Return the current iterate, with the gains of the last :class:`Gains` request (zero before the first one)."""
        return Solved(*self.trajectory, self.K, self.k)

    # -- points -------------------------------------------------------------------------------------------------------------
    @property
    def _one_evaluator(self) -> bool:
        """True if the Gauss-Newton and the exact evaluator are the same, or there is no exact one."""
        return self._exact is None or self._exact is self._evaluator

    def _expanded(self, xs: Array, us: Array) -> Expansion:
        """Return the expansion about a trajectory by the exact evaluator, if there is one, else by the Gauss-Newton one."""
        return (self._exact or self._evaluator).expand(xs, us)

    def _is_finite(self, lq: LQProblem) -> bool:
        """True if all numbers of an LQ problem are finite."""
        return shared_lq().is_finite(lq)

    def _measured(self, xs: Array, us: Array, expansion: Expansion) -> _At:
        """Return a trajectory with its expansion, and costates and gradient of the Lagrangian under the last gains.

        Without gains they are those of the open loop. The gradient includes the multipliers of the bounds.
        """
        lq = expansion.lq
        if self._barrier is not None:
            lq = lq._replace(r=lq.r + self._barrier.force())
        K = None if self._policy is None else self._policy.K
        return _At(xs, us, expansion, shared_lq().stationarity(lq, K))

    def _set_current(self, at: _At) -> None:
        """Make a trajectory the current iterate, and drop the cached LQ problems of the last one."""
        self._at = at
        self._curvature: LQProblem | None = None
        self._convex_part: LQProblem | None = None

    def _point(self, at: _At, *, found: bool = True) -> Point:
        """Return cost and errors of a trajectory; found: True if the request succeeded.

        The gradients are NaN if the cost, a gradient, a costate or a defect is not finite.
        """
        optimality, d = at.optimality, at.expansion.lq.d
        gradient = float(np.abs(optimality.gradient).max(initial=0.0))
        relative = float(np.abs(scaled(optimality, optimality.gradient)).max(initial=0.0))
        if not np.isfinite([at.expansion.cost, gradient, np.abs(optimality.costates).max(), np.abs(d).sum()]).all():
            gradient = relative = np.nan
        products, logs = (np.inf, -np.inf), 0.0
        if self._barrier is not None:
            products, logs = self._barrier.products(at.us), float(self._barrier.logs(at.us))
        gaps = float(np.abs(d).max(initial=0.0)), float(np.abs(d).sum())
        travel = float(np.abs(np.diff(at.xs, axis=0)).sum())
        return Point(float(at.expansion.cost), gradient, relative, *gaps, travel, *products, logs, float(found))

    def _start(self, r: Start) -> float:
        """Load the guess, with x0 as its first state and controls moved inside their bounds, expand there, and return the cost."""
        xs, us = self._guess
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = interior(us, self.ocp.control_bounds, r.push)
        zero = Stationarity(np.zeros_like(xs[:, :0]), np.zeros_like(us), np.zeros(us.shape[1]))
        self._set_current(_At(xs, us, self._expanded(xs, us), zero))
        return float(self._at.expansion.cost)

    def _first_gains(self, r: FirstGains) -> Point:
        """Compute gains of the Gauss-Newton LQ problem with delta I in its Hessian (delta None: no new ones); measure the guess.

        With bounds and delta = 0, the barrier is created first. Returns the errors under these gains; found: True if there are
        gains. If the LQ problem is not convex there are none.
        """
        at, bounds = self._at, self.ocp.control_bounds
        if bounds is not None and r.delta == 0.0:
            self._barrier = Barrier.at_controls(bounds, at.us, r.mu)
        if r.delta is not None:
            policy = shared_lq().solve_riccati(self._damped(self._gauss_newton(), r.delta))
            self._policy = policy if policy.failed_at is None and np.isfinite(policy.K).all() else None
        self._at = self._measured(at.xs, at.us, at.expansion)
        return self._point(self._at, found=self._policy is not None)

    # -- LQ problems --------------------------------------------------------------------------------------------------------
    def _gauss_newton(self) -> LQProblem:
        """Return the LQ problem with the Gauss-Newton Hessian of the cost at the current iterate, computed once per iterate."""
        if self._one_evaluator:
            return self._at.expansion.lq
        if self._convex_part is None:
            self._convex_part = self._evaluator.expand(self._at.xs, self._at.us).lq
        return self._convex_part

    def _exact_lq(self) -> LQProblem:
        """Return the LQ problem with the exact Hessian of the Lagrangian at the current iterate, computed once per iterate."""
        assert self._exact is not None
        if self._curvature is None:
            at = self._at
            curvature = self._exact.curvature(at.xs, at.us, at.optimality.costates[1:])
            self._curvature = with_curvature(at.expansion.lq, curvature)
        return self._curvature

    def _with_fraction(self, number: int) -> LQProblem:
        """Return the LQ problem with the curvature fraction of an index: Gauss-Newton for 0, exact for 1, else their blend."""
        fraction = FRACTIONS[number]
        if fraction == 0.0:
            return self._gauss_newton()
        return self._exact_lq() if fraction == 1.0 else mixed(self._gauss_newton(), self._exact_lq(), fraction)

    def _damped(self, lq: LQProblem, delta: float) -> LQProblem:
        """Return the LQ problem with delta I added to Q and R, and with the barrier terms if controls have bounds."""
        if delta != 0.0:
            lq = lq._replace(Q=lq.Q + delta * np.eye(lq.Q.shape[1]), R=lq.R + delta * np.eye(lq.R.shape[1]))
        return lq if self._barrier is None else self._barrier.imposed(lq, self._at.us)

    def _convex(self, first: int, past: int, delta: float) -> tuple[int, LQProblem, Policy] | None:
        """Return index, damped LQ problem and policy of the first curvature fraction that makes the problem convex.

        Tries the indices of FRACTIONS from ``first`` to before ``past``; returns None if none is convex. delta: damping of the LQ
        problem.
        """
        for number in range(first, past):
            lq = self._with_fraction(number)
            lq = self._damped(lq, delta)
            policy = shared_lq().solve_riccati(lq)
            if policy.failed_at is None and np.isfinite(policy.Vxx).all():
                return number, lq, policy
        return None

    # -- steps --------------------------------------------------------------------------------------------------------------
    def _step(self, r: Step) -> Direction | None:
        """Compute a step with the first convex curvature fraction, store it in its place, and roll out its longest length.

        Returns None if none of the requested fractions gives a convex LQ problem.
        """
        self._set_mu(r.mu)
        convex = self._convex(r.first, r.past, r.delta)
        if convex is None:
            return None
        number, lq, policy = convex
        linear, (slope, _) = shared_lq().forward(lq, policy)
        longest = 1.0 if self._barrier is None else self._barrier.longest(self._at.us, linear.du)
        self._steps[r.place] = _Step(policy, linear, longest)
        size = max(float(np.abs(part).max(initial=0.0)) for part in linear)
        (trial,) = self._roll_out(self._steps[r.place], np.array([longest]))
        return Direction(number, float(slope), longest, size, trial)

    def _set_mu(self, mu: float) -> None:
        """Set the parameter mu of the barrier; no effect without a barrier."""
        if self._barrier is not None:
            self._barrier.mu = mu

    def _roll(self, r: Roll) -> list[Trial]:
        """Roll out the step in a place with the lengths longest / 2^i, for ``max_trials`` numbers i from ``first`` on."""
        step = self._steps[r.place]
        assert step is not None
        return self._roll_out(step, step.longest * 0.5 ** np.arange(r.first, r.first + r.max_trials))

    def _roll_out(self, step: _Step | None, alphas: Array) -> list[Trial]:
        """Roll out a step with several step lengths, store the trajectories as last trials, and return their measures."""
        assert step is not None
        at, d = self._at, self._at.expansion.lq.d
        along = Along(*step.linear, step.policy.K, d)
        self._trials: Candidates = self._evaluator.rollout(at.xs, at.us, along, alphas, self._shooting)
        return [self._trial(i) for i in range(len(alphas))]

    def _trial(self, i: int) -> Trial:
        """Return cost, barrier (mu = 1) and l1 norm of the defects of trial i; the norm is infinite if a state is not finite."""
        tried = self._trials
        logs = 0.0 if self._barrier is None else float(self._barrier.logs(tried.us[i]))
        theta = float(np.abs(tried.defects[i]).sum()) if np.isfinite(tried.xs[i]).all() else np.inf
        return Trial(float(tried.cost[i]), logs, theta)

    def _accept(self, r: Accept) -> Point:
        """Make a trial the current iterate: expand there, step the bound multipliers, and make its policy the last one."""
        self._set_mu(r.mu)
        step, xs, us = self._steps[r.place], self._trials.xs[r.row], self._trials.us[r.row]
        assert step is not None
        expansion = self._expanded(xs, us)
        if self._barrier is not None:
            self._barrier.z = self._barrier.stepped(self._at.us, step.linear.du, us)
        self._policy = step.policy
        self._set_current(self._measured(xs, us, expansion))
        return self._point(self._at)

    # -- trajectories without defects -------------------------------------------------------------------------------------------
    def _rollout_under_gains(self, us: Array, K: Array) -> Candidates:
        """Roll out controls from x0, without defects, under feedback gains K about the current trajectory."""
        lq = self._at.expansion.lq
        still = Along(np.zeros_like(lq.q), np.zeros_like(us), K, lq.d)
        return self._evaluator.rollout(self._at.xs, us, still, np.zeros(1), Shooting((), "linear"))

    def _last_gains(self) -> Array:
        """Return the gains K of the last policy; zero without one."""
        return np.zeros_like(self.K) if self._policy is None else self._policy.K

    def _restore(self, r: Restore) -> Point:
        """Replace the iterate by a rollout of its controls under the last gains, without defects; then return its errors.

        With bounds, the controls of the rollout are then moved inside them, which may open defects, and the bound multipliers
        become mu / slack. If a number is not finite, the iterate stays, and its errors are returned with found False.
        """
        self._set_mu(r.mu)
        tried = self._rollout_under_gains(self._at.us, self._last_gains())
        if not (np.isfinite(tried.cost[0]) and np.isfinite(tried.xs[0]).all()):
            return self._point(self._at, found=False)
        us, before = tried.us[0], None if self._barrier is None else self._barrier.z
        if self._barrier is not None:
            us = interior(us, (self._barrier.lower, self._barrier.upper))
            self._barrier.z = self._barrier.mu / self._barrier.slacks(us)
        new = self._measured(tried.xs[0], us, self._expanded(tried.xs[0], us))
        found = self._point(new)
        if np.isfinite(found.gradient):
            self._set_current(new)
            return found
        if self._barrier is not None and before is not None:
            self._barrier.z = before
        return self._point(self._at, found=False)

    def _on_bounds(self, _: OnBounds) -> Point:
        """Roll out a candidate with controls at active bounds set to these, without defects; return its errors.

        The last gains of these controls become zero; the current iterate stays.
        """
        assert self._barrier is not None
        us, held = self._barrier.snapped(self._at.us)
        K = np.where(held[:, :, None], 0.0, self._last_gains())
        self._policy = None if self._policy is None else self._policy._replace(K=K)
        tried = self._rollout_under_gains(us, K)
        self._next = self._measured(tried.xs[0], tried.us[0], self._expanded(tried.xs[0], tried.us[0]))
        return self._point(self._next)

    def _accept_on_bounds(self) -> None:
        """Make the candidate of the last :class:`OnBounds` request the current iterate."""
        self._set_current(self._next)

    def _gains(self, r: Gains) -> None:
        """Set the gains of the solution: those of the first convex curvature fraction from an index on, else of the last policy.

        Gains of controls at active bounds are zero. Without any policy, the gains stay unchanged.
        """
        convex = self._convex(r.first, len(FRACTIONS), 0.0)
        policy = self._policy if convex is None else convex[2]
        if policy is None:
            return
        self.K, self.k = policy.K, policy.k
        if self._barrier is not None:
            held = self._barrier.snapped(self._at.us)[1]
            self.K, self.k = np.where(held[:, :, None], 0.0, self.K), np.where(held, 0.0, self.k)
