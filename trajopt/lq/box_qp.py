"""Box-constrained quadratic programs by projected Newton.

    minimize 1/2 x' H x + g' x   subject to   lower <= x <= upper,     H symmetric, positive definite on the free variables

Variables at a bound whose gradient points outwards are clamped. The others take a Newton step, projected on the box, with an Armijo
line search. (Y. Tassa, N. Mansard, E. Todorov, Control-Limited Differential Dynamic Programming, ICRA 2014, section III-B;
D. Bertsekas, Projected Newton methods, SIAM J. Control Optim. 20, 1982.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lapack import cholesky, cholesky_solve

MAX_ITERATIONS = 100
ARMIJO = 0.1
"""Minimum decrease of a step relative to the decrease predicted by the gradient; gamma of eq. 16 of Tassa 2014."""
SHORTEN = 0.6
"""Factor on the length of a rejected step; stepDec of the code published with Tassa 2014."""
SHORTEST = 1e-10
"""Step length below which rounding allows no decrease."""
GRADIENT_TOLERANCE = 1e-14
"""Tolerance on the gradient of the free variables, relative to the size of its terms: rounding level."""


class BoxQPResult(NamedTuple):
    """Minimizer x (n,), free variables (n,) bool, lower Cholesky factor of H[free, free]; failed: H[free, free] is not definite."""

    x: Array
    free: Array
    factor: Array
    failed: bool = False


def solve_box_qp(H: Array, g: Array, lower: Array, upper: Array, start: Array | None = None) -> BoxQPResult:
    """Solve the QP with H (n, n), g (n,), bounds (n,) (infinite if absent), from start (n,) (default 0), projected on the box."""
    x = np.clip(np.zeros_like(g) if start is None else start, lower, upper)
    for _ in range(MAX_ITERATIONS):
        gradient = g + H @ x
        free = ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))
        factor, info = _factorized(H[np.ix_(free, free)])
        if info:
            return BoxQPResult(x, free, factor, failed=True)
        scale = np.abs(g) + np.abs(H) @ np.abs(x)
        if not np.any(np.abs(gradient) > GRADIENT_TOLERANCE * scale, where=free):
            break
        new = _projected_step(H, g, lower, upper, x, gradient, free, factor)
        if np.array_equal(new, x):
            break
        x = new
    return BoxQPResult(x, free, factor)


def _factorized(H: Array) -> tuple[Array, int]:
    return cholesky(H) if H.size else (H, 0)


def _projected_step(H, g, lower, upper, x, gradient, free, factor) -> Array:
    """Projected Newton step from x, shortened until it decreases the objective; returns x itself if rounding allows no decrease."""
    direction = np.zeros_like(x)
    if free.any():
        direction[free] = -cholesky_solve(factor, gradient[free])
    alpha = 1.0
    while alpha > SHORTEST:
        new = np.clip(x + alpha * direction, lower, upper)
        move = new - x
        decrease = -(gradient @ move + 0.5 * move @ H @ move)
        if decrease >= -ARMIJO * (gradient @ move) and gradient @ move < 0:
            return new
        alpha *= SHORTEN
    return x
