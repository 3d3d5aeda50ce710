"""Derivatives of constraints in a transcription: sparsity pattern of the Jacobian, and semidefinite Hessian.

The pattern is that of the traced residual. The Hessian is J'(y psi'')J of constraints psi(r(x, u)) <= u_i with convex outer
functions psi (R. Verschueren, N. van Duijkeren, R. Quirynen, M. Diehl, Exploiting convexity in direct optimal control: a sequential
convex quadratic programming method, CDC 2016, eq. 9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.runtime.trace_cache import cached_value
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import contracted_hessian, residual_batch, residual_jacobians


def constraint_hessians(
    constraints: Sequence[Constraint], x: Array, u: Array, t: Array, y: Array
) -> Iterator[tuple[int, int, Array]]:
    """Yield (k, m, Hessian (K, k + m, k + m)) for each constraint psi(r(x, u)) with an outer function and a nonzero multiplier.

    The Hessian is J'(y psi'')J, J = dr/d(x, u), restricted to multipliers y of the sign that makes it semidefinite. The constraint
    reads k states and m controls. x (K, nx), u (K, m), t (K,), y (K, ng): states, controls, times, multipliers. Constraints without
    an outer function, or on a Lie group, yield nothing.
    """
    at = 0
    for c in constraints:
        own = y[:, at : (at := at + c.residual.n_out)]
        manifold = c.residual.manifold
        known = c.composition is not None and c.composition.inner.manifold is manifold and manifold.is_flat
        if known and own.any():
            yield c.residual.manifold.ndx, c.residual.nu, _outer(c, x, u, t, own)


def _outer(c: Constraint, x: Array, u: Array, t: Array, y: Array) -> Array:
    """Return the Hessians (K, k + m, k + m) of y'psi(r(x, u)) by the outer function psi alone: J'(y psi'')J.

    Multipliers y of the sign that makes them indefinite (negative for convex, positive for concave psi) count as zero.
    """
    assert c.composition is not None
    inner, outer, convex = c.composition
    signed = np.maximum(y, 0.0) if convex else np.minimum(y, 0.0)
    r, rx, ru = residual_jacobians(inner, residual_batch(inner, x, u, t, c.parameters))
    W = contracted_hessian(outer, residual_batch(outer, r, np.zeros((len(x), 0)), t, c.parameters), signed)
    J = np.concatenate([rx, ru], axis=2)
    return np.asarray(J.transpose(0, 2, 1) @ W @ J)


def jacobian_pattern(constraints: Sequence[Constraint], n: int, m: int) -> Array:
    """Return the mask (ng, n + m) of structural nonzeros in the stacked constraints' Jacobian, in the tangent of x and m controls.

    The mask holds in every chart; a residual that cannot be traced counts as full.
    """
    masks = [np.zeros((0, n + m), dtype=bool)]
    for c in constraints:
        residual: Any = c.residual
        own = _structure(residual, tuple((key, value.shape[-1]) for key, value in c.parameters.items()))
        k = residual.manifold.ndx
        mask = np.zeros((len(own), n + m), dtype=bool)
        mask[:, :k], mask[:, n : n + residual.nu] = own[:, :k], own[:, k:]
        masks.append(mask)
    return np.concatenate(masks)


@lru_cache(maxsize=256)
def _structure(residual: Any, sizes: tuple[tuple[str, int], ...]) -> Array:
    """Return the mask (nr, ndx + nu) of the Jacobian of one residual, cached; all True if the residual cannot be traced.

    sizes: names and sizes of its parameters.
    """

    def found() -> list[list[bool]]:
        """Return the mask as nested lists, for the cache on disk."""
        return _traced(residual, sizes).tolist()

    width = residual.manifold.ndx + residual.nu
    return np.array(cached_value(found, "pattern", residual, sizes), dtype=bool).reshape(residual.n_out, width)


def _traced(residual: Any, sizes: tuple[tuple[str, int], ...]) -> Array:
    """Trace a residual and return the sparsity mask (nr, ndx + nu) of its Jacobian; all True if it cannot be traced."""
    import casadi as ca

    from dynamics_backends.methods.symbolic_map import Symbols, TraceError, symbolic_value

    symbols, manifold = Symbols.of(residual, dict(sizes)), residual.manifold
    flat = manifold.is_flat
    dx = symbols.x if flat else ca.SX.sym("dx", manifold.ndx)
    try:
        x = dx if flat else manifold.integrate(symbols.x, dx)
        value = symbolic_value(residual, x, symbols.u, symbols.t, symbols.p)
    except TraceError:
        return np.ones((residual.n_out, manifold.ndx + residual.nu), dtype=bool)
    sparsity = ca.jacobian(value, ca.vertcat(dx, symbols.u)).sparsity()
    mask = np.zeros(sparsity.shape, dtype=bool)
    mask[sparsity.row(), sparsity.get_col()] = True
    return mask
