"""Feedback about a trajectory that a sparse solver has found: the gains of the linear-quadratic regulator along it.

Its cost is the Gauss-Newton expansion of the problem's; equalities at the final knot, without which nothing would draw the motion
to its goal, weigh FINAL_WEIGHT times the largest entry of the running Hessian.  Bounds and other constraints are left out.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.ocp import OCP, fitting
from trajopt.stage.numerics import Numerics, numerics_for

FINAL_WEIGHT = 1e3


def tracking_gains(
    ocp: OCP, xs: Array, us: Array, final: Array | None = None, numerics: Numerics | None = None
) -> Array:
    """K (N, nu, ndx) of u = us + K (x (-) xs); zero where the problem weighs some control not at all.

    final: sum_i J_i'J_i (ndx, ndx) of the equalities at the final state, where it is known. numerics: of the problem, where they
    are known. Raises ValueError for a trajectory of other shapes, xs (N + 1, nx), us (N, nu).
    """
    xs, us = fitting(ocp, xs, us)
    with np.errstate(all="ignore"):
        numerics = numerics or numerics_for(ocp)
        lq = numerics.evaluator.expand(xs, us).lq
        Q = lq.Q.copy()
        final = _final_equalities(ocp, xs[-1:]) if final is None else final
        Q[-1] += FINAL_WEIGHT * max(float(np.abs(Q[:-1]).max(initial=0.0)), 1.0) * final
        policy = numerics.lq_solver.solve_riccati(lq._replace(Q=Q, d=np.zeros_like(lq.d)))
    if policy.failed_at is not None or not np.isfinite(policy.K).all():
        return np.zeros_like(policy.K)
    return policy.K


def _final_equalities(ocp: OCP, x: Array) -> Array:
    """sum_i J_i'J_i (ndx, ndx) of the equalities at the final state x (1, nx)."""
    total = np.zeros((ocp.manifold.ndx, ocp.manifold.ndx))
    for c in ocp.terminal_constraints:
        lower, upper = (bound[0] for bound in c.bounds(1))
        if not (lower == upper).any():
            continue
        batch = residual_batch(c.residual, x, np.zeros((1, 0)), ocp.t[-1:], c.parameters)
        J = residual_jacobians(c.residual, batch).fx[0][lower == upper]
        total += J.T @ J
    return total
