"""Scaled KKT error of shooting methods, and the size of a cost to which errors are relative.

With costates lambda of the linearized motion under a feedback K,

    lambda_N = q_N,   lambda_k = q + A'lambda_(k+1) + K'g_k        g_k = r + B'lambda_(k+1)

g_k is the gradient of the Lagrangian in u_k, and K'g_k the remaining gradient in x_k.  Both vanish with g, so that any K
certifies a solution.  K = 0 is the adjoint sweep: its costates grow on unstable motions until rounding errors exceed the gradient
of a light wrist.  With the gains of the last Riccati sweep, costates have the size of V'x.

The error is the largest of the following. `kkt` of shooting_slot.h computes the first, where the outward part of a gradient at a
bound is the multiplier of the bound, and the gaps; :meth:`trajopt.solvers.methods.requests.Point.kkt` computes all but the
violations.

    |g_i| / s_i          s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|), the size of the terms that cancel in it, for each control
    z (u - bound) / |J|  complementarity relative to the cost, where bounds have multipliers z
    gaps and violations  in the units of the states and constraints

The first two do not depend on the units of controls and cost, so that a tolerance has the same meaning for every robot.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array

OF_GUESS, LEAST_SIZE = 1e-6, 1e-12
"""Smallest size of a cost: relative to the cost of the guess, and absolute."""
ZERO = 1e-13
"""Cost that counts as zero, relative to that of the guess."""
TINY = 2.2250738585072014e-308
"""Smallest cost used as a scale of errors."""
EFFECT = 1e-2
"""Smallest first-order change of a cost, relative to its size, to which gradients are relative: all terms of a gradient vanish with
a control that is zero at the optimum."""


def size_of(cost: float) -> float:
    """Return the scale of errors in the unit of the cost: its absolute value, at least TINY."""
    return max(abs(cost), TINY)


def cost_size(cost: float, of_guess: float = 0.0) -> float:
    """Return the size of a cost: |cost|, or OF_GUESS times that of the guess if this is larger and finite, at least LEAST_SIZE."""
    return max(abs(cost), OF_GUESS * abs(of_guess) if np.isfinite(of_guess) else 0.0, LEAST_SIZE)


def is_zero(cost: float, of_guess: float) -> bool:
    """True if a cost is at most ZERO times that of the guess, and at most LEAST_SIZE: errors relative to it have no meaning."""
    return abs(cost) <= min(ZERO * abs(of_guess), LEAST_SIZE)


def least_with_effect(size: float, us: Array) -> float:
    """Return the smallest size of the terms of a gradient: EFFECT size / max(1, |u|), for the size of a cost and all controls u."""
    return EFFECT * size / max(1.0, float(np.abs(us).max(initial=0.0)))
