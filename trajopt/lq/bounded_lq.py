"""LQ problem with bounds on the controls, solved by repeated Riccati sweeps about its own trajectories.

A bounded sweep chooses the clamped controls at dx = 0. The choice is correct for a
trajectory without gaps, and wrong if large gaps move the trajectory. So the gaps are closed first: a few policies are rolled out
with controls clipped to the bounds, and the cheapest trajectory is used. Then the problem is re-centered on this trajectory, where
it has no gaps,

    q <- q + Q dx + S'du,   r <- r + S dx + R du,   d <- 0,   bounds <- bounds - du,

and bounded sweeps reduce its cost until its projected gradient is small. The problem is convex, so every shortened step that stays
within the bounds and lowers the cost is progress (projected Newton, Bertsekas 1982).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, shared_lq

MAX_SWEEPS = 8
ENOUGH = 1e-2
"""Tolerance on the projected gradient, relative to its size at du = 0."""
STEP_LENGTHS = 0.5 ** np.arange(8)


class BoundedSolution(NamedTuple):
    """A policy whose gains are zero for the controls that the last sweep clamped, and a trajectory within the bounds."""

    policy: Policy
    step: LQStep


def solve_bounded_lq(
    lq: LQProblem,
    bounds: Bounds,
    mu: float,
    regularize: str,
) -> BoundedSolution:
    """Solve an LQ problem within bounds on du, each (N, m), to the tolerance above; mu as in :mod:`trajopt.lq.lq`.

    Regularization on "control" is part of the problem, mu/2 |du|^2; on "state"
    it damps one sweep. ``policy.failed_at`` reports a failed factorization.
    """
    if regularize == "control":
        lq, mu = lq._replace(R=lq.R + mu * np.eye(lq.R.shape[1])), 0.0
    enough = ENOUGH * _residual(lq, bounds)
    policy = shared_lq().solve_riccati(lq, mu, regularize, bounds)
    if policy.failed_at is not None:
        return BoundedSolution(policy, LQStep(np.zeros_like(lq.q), np.zeros_like(lq.r)))
    step = _start(lq, policy, bounds, mu, regularize)
    sweeps = MAX_SWEEPS if mu == 0.0 else int(not step.du.any())  # each would undo the damping of V'xx
    for _ in range(sweeps):
        local, remaining = recentered(lq, step), (bounds[0] - step.du, bounds[1] - step.du)
        if _residual(local, remaining) <= enough:
            break
        about = shared_lq().solve_riccati(local, mu, regularize, remaining)
        if about.failed_at is not None:  # with curvature, other clamped controls may leave Quu indefinite
            break
        policy, move = about, _descent(local, about, remaining)
        if not move.du.any():
            break
        step = LQStep(step.dx + move.dx, np.clip(step.du + move.du, *bounds))
    return BoundedSolution(policy, step)


def _start(lq: LQProblem, policy: Policy, bounds: Bounds, mu: float, regularize: str) -> LQStep:
    """Cheapest of three trajectories that close the gaps: of the policy, of its feedback alone, and of the unbounded policy."""
    policies = [policy, policy._replace(k=np.zeros_like(policy.k))]
    if lq.d.any() or lq.dx0.any():
        free = shared_lq().solve_riccati(lq, mu, regularize)
        policies += [] if free.failed_at is not None else [free]
    return min((shared_lq().forward(lq, p, bounds) for p in policies), key=lambda result: _gain(*result[1]))[0]


def _gain(D1: float, D2: float) -> float:
    """Change of the cost along the full step."""
    return D1 + 0.5 * D2


def _residual(lq: LQProblem, bounds: Bounds) -> float:
    """Largest entry of the gradient at du = 0, projected on the bounds."""
    return float(np.abs(np.clip(shared_lq().adjoint(lq)[1], -bounds[1], -bounds[0])).max(initial=0.0))


def recentered(lq: LQProblem, step: LQStep) -> LQProblem:
    """LQ problem in the deviations from ``step``, a trajectory that satisfies its dynamics."""
    dx, du = step
    q = lq.q + (lq.Q @ dx[:, :, None])[:, :, 0]
    q[:-1] += (du[:, None, :] @ lq.S)[:, 0]
    r = lq.r + (lq.S @ dx[:-1, :, None] + lq.R @ du[:, :, None])[:, :, 0]
    return lq._replace(q=q, r=r, d=np.zeros_like(lq.d), dx0=np.zeros_like(lq.dx0))


def _descent(lq: LQProblem, policy: Policy, remaining: Bounds) -> LQStep:
    """Longest step with a shortened k that lowers the cost; a zero step if rounding allows none."""
    for alpha in STEP_LENGTHS:
        move, change = shared_lq().forward(lq, policy._replace(k=alpha * policy.k), remaining)
        if _gain(*change) < 0.0:
            return move
    return LQStep(np.zeros_like(lq.q), np.zeros_like(lq.r))
