"""Scaled KKT error of the shooting solvers.

With costates lambda of the linearized motion under a feedback K,

    lambda_N = q_N,   lambda_k = q + A'lambda_(k+1) + K'g_k        g_k = r + B'lambda_(k+1)

g_k is the gradient of the Lagrangian in u_k, and K'g_k the remaining gradient in x_k.  Both vanish with g, so that any K
certifies a solution.  K = 0 is the adjoint sweep: its costates grow on unstable motions until rounding errors exceed the gradient
of a light wrist.  With the gains of the last Riccati sweep, costates have the size of V'x.

The error is the largest of

    |g_i| / s_i          s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|), the size of the terms that cancel in it, for each control
    z (u - bound) / |J|  complementarity relative to the cost, where bounds have multipliers z
    gaps and violations  in the units of the states and constraints

The first two do not depend on the units of controls and cost, so that a tolerance has the same meaning for every robot.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, Stationarity, shared_lq


def scaled(found: Stationarity, gradient: Array) -> Array:
    """Divide the entries of a gradient (N, m) by the sizes of their terms; entries of unused controls are zero."""
    return np.divide(gradient, found.size, out=np.zeros_like(gradient), where=found.size > 0.0)


def optimality(lq: LQProblem, us: Array, bounds: Bounds | None, K: Array | None = None) -> tuple[float, float]:
    """Return the scaled KKT error and the largest entry of the gradient of controls us (N, m) within bounds, under gains K.

    Controls on a bound have zero gains; the outward part of their gradient is the multiplier of the bound.
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
