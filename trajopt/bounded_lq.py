"""The LQ problem with bounds on the controls, solved by sweeps about its own trajectories.

A bounded sweep (:func:`~trajopt.lq.solve_riccati`) chooses the clamped controls at dx = 0.  That is right about a trajectory that
stays where it is, and wrong where gaps move it.  So the gaps are closed first, by the policy without bounds, projected on
the bounds as it is rolled out; then the problem is re-centred on the trajectory found, where it has no gaps,

    q <- q + Q dx + S'du,   r <- r + S dx + R du,   d <- 0,   bounds <- bounds - du,

and bounded sweeps reduce its cost.  It is convex, so every shortened step that keeps the bounds and falls is progress
(projected Newton, Bertsekas 1982); one sweep whose policy stays within the bounds ends it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq import Bounds, LQProblem, LQStep, Policy, cost_change, forward, solve_riccati

MAX_SWEEPS = 8
ENOUGH = 1e-2
"""Sweeps end with one that gains less than this share of all the gain before it."""
STEP_LENGTHS = 0.5 ** np.arange(8)


class BoundedSolution(NamedTuple):
    """A policy whose gains are zero for the controls that the last sweep clamped, and a trajectory within the bounds."""

    policy: Policy
    step: LQStep


def solve_bounded_lq(lq: LQProblem, bounds: Bounds, mu: float = 0.0, regularise: str = "control") -> BoundedSolution:
    """The solution within bounds on du, each (N, m), to the accuracy above; mu as in :func:`~trajopt.lq.solve_riccati`.

    Regularisation on the control is part of the problem, mu/2 |du|^2. ``policy.failed_at`` reports a failure to factorise.
    """
    if regularise == "control":
        lq, mu = lq._replace(R=lq.R + mu * np.eye(lq.R.shape[1])), 0.0
    step = LQStep(np.zeros_like(lq.q), np.zeros_like(lq.r))
    if lq.d.any() or lq.dx0.any():
        policy = solve_riccati(lq, mu, regularise)
        if policy.failed_at is not None:
            return BoundedSolution(policy, step)
        step = forward(lq, policy, bounds)
        if _unclipped(policy, step, 1.0):
            return BoundedSolution(policy, step)
    gained = 0.0
    for _ in range(MAX_SWEEPS):
        local, room = recentred(lq, step), (bounds[0] - step.du, bounds[1] - step.du)
        policy = solve_riccati(local, mu, regularise, room)
        if policy.failed_at is not None:
            break
        move, gain, exact = _descent(local, policy, room)
        step = LQStep(step.dx + move.dx, np.clip(step.du + move.du, *bounds))
        gained += gain
        if exact or gain <= ENOUGH * gained:
            break
    return BoundedSolution(policy, step)


def recentred(lq: LQProblem, step: LQStep) -> LQProblem:
    """The same problem in the deviations from a trajectory that satisfies its dynamics."""
    dx, du = step
    q = lq.q + (lq.Q @ dx[:, :, None])[:, :, 0]
    q[:-1] += (du[:, None, :] @ lq.S)[:, 0]
    r = lq.r + (lq.S @ dx[:-1, :, None] + lq.R @ du[:, :, None])[:, :, 0]
    return lq._replace(q=q, r=r, d=np.zeros_like(lq.d), dx0=np.zeros_like(lq.dx0))


def _descent(lq: LQProblem, policy: Policy, room: Bounds) -> tuple[LQStep, float, bool]:
    """The longest step with k shortened that lowers the cost, its gain, and whether it was whole and within the bounds."""
    for alpha in STEP_LENGTHS:
        shortened = policy._replace(k=alpha * policy.k)
        move = forward(lq, shortened, room)
        D1, D2 = cost_change(lq, move)
        if D1 + 0.5 * D2 < 0.0:
            return move, -(D1 + 0.5 * D2), _unclipped(policy, move, alpha)
    return LQStep(np.zeros_like(lq.q), np.zeros_like(lq.r)), 0.0, False


def _unclipped(policy: Policy, step: LQStep, alpha: float) -> bool:
    """Whether a roll-out is that of the whole policy, unaffected by the bounds."""
    wanted: Array = policy.k + (policy.K @ step.dx[:-1, :, None])[:, :, 0]
    return alpha == 1.0 and bool(
        np.allclose(wanted, step.du, rtol=0.0, atol=1e-12 * (1.0 + np.abs(step.du).max(initial=0.0)))
    )
