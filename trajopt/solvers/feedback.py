"""Feedback gains of a linear-quadratic regulator along the trajectory of a direct method.

The cost is the Gauss-Newton expansion of the cost of the problem. Equalities at the final knot become a penalty, weighted by
FINAL_WEIGHT times the largest absolute entry of the running Hessians in the state (at least 1), so that the feedback leads to the
goal. Bounds and other constraints are omitted.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.ocp import OCP, fitting
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.evaluators import cached_evaluator

FINAL_WEIGHT = 1e3
"""Weight of final equalities, relative to the largest entry of the running Hessians in the state (at least 1)."""


def tracking_gains(
    ocp: OCP, xs: Array, us: Array, final: Array | None = None, evaluator: StageEvaluator | None = None
) -> Array:
    """Return LQR gains K (N, nu, ndx) of u = us + K (x (-) xs) along a trajectory.

    All are zero if a Quu cannot be factorized or a gain is not finite.

    The LQR uses the Gauss-Newton cost and a penalty on equalities at the final state; other constraints and bounds are omitted. xs
    (N + 1, nx), us (N, nu): trajectory. final: sum_i J_i'J_i (ndx, ndx) of the equalities at the final state; default: computed.
    evaluator: evaluates the stages; default: created. Raises ValueError for a trajectory of wrong shapes.
    """
    xs, us = fitting(ocp, xs, us)
    with np.errstate(all="ignore"):
        lq = (evaluator or cached_evaluator(None, ocp)).expand(xs, us).lq
        Q = lq.Q.copy()
        final = _final_equalities(ocp, xs[-1:]) if final is None else final
        Q[-1] += FINAL_WEIGHT * max(float(np.abs(Q[:-1]).max(initial=0.0)), 1.0) * final
        policy = shared_lq().solve_riccati(lq._replace(Q=Q, d=np.zeros_like(lq.d)))
    if policy.failed_at is not None or not np.isfinite(policy.K).all():
        return np.zeros_like(policy.K)
    return policy.K


def _final_equalities(ocp: OCP, x: Array) -> Array:
    """Return sum_i J_i'J_i (ndx, ndx) of the equalities at the final state x (1, nx)."""
    total = np.zeros((ocp.manifold.ndx, ocp.manifold.ndx))
    for c in ocp.terminal_constraints:
        lower, upper = (bound[0] for bound in c.bounds(1))
        if not (lower == upper).any():
            continue
        batch = residual_batch(c.residual, x, np.zeros((1, 0)), ocp.t[-1:], c.parameters)
        J = residual_jacobians(c.residual, batch).fx[0][lower == upper]
        total += J.T @ J
    return total
