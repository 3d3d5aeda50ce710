"""Hessian J'(y psi'')J of constraints psi(r(x, u)) <= u_i with convex outer functions psi, where it is semidefinite.

R. Verschueren, N. van Duijkeren, R. Quirynen, M. Diehl, Exploiting convexity in direct optimal control: a sequential convex
quadratic programming method, CDC 2016, eq. 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import contracted_hessian, residual_batch, residual_jacobians


def constraint_hessians(
    constraints: Sequence[Constraint], x: Array, u: Array, t: Array, y: Array
) -> Iterator[tuple[int, int, Array]]:
    """Yield (k, m, Hessian (K, k + m, k + m)) for each constraint with an outer function and a nonzero multiplier.

    The constraint reads k states and m controls. x (K, nx), u (K, m), t (K,), y (K, ng): states, controls, times, multipliers.
    Constraints without an outer function yield nothing.
    """
    at = 0
    for c in constraints:
        own = y[:, at : (at := at + c.residual.n_out)]
        manifold = c.residual.manifold
        known = c.composition is not None and c.composition.inner.manifold is manifold and manifold.is_flat
        if known and own.any():
            yield c.residual.manifold.ndx, c.residual.nu, _outer(c, x, u, t, own)


def _outer(c: Constraint, x: Array, u: Array, t: Array, y: Array) -> Array:
    assert c.composition is not None
    inner, outer, convex = c.composition
    signed = np.maximum(y, 0.0) if convex else np.minimum(y, 0.0)
    r, rx, ru = residual_jacobians(inner, residual_batch(inner, x, u, t, c.parameters))
    W = contracted_hessian(outer, residual_batch(outer, r, np.zeros((len(x), 0)), t, c.parameters), signed)
    J = np.concatenate([rx, ru], axis=2)
    return np.asarray(J.transpose(0, 2, 1) @ W @ J)
