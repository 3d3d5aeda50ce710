"""Second-order expansion of cost terms about a batch of knots, in the tangent space of the state.

With l = s/2 sum_i w_i r_i^2, where s is dt for a running term and 1 for a terminal one, and J = d r / d (dx, u):

    gradient        s J' W r
    Gauss-Newton    s J' W J
    exact           s (J' W J + sum_i w_i r_i H_i),   H_i the Hessian of (dx, du) -> r_i(x (+) dx, u + du) at 0

An objective l = s sum_i w_i f_i, which is not a sum of squares, has the gradient s J' w and always the exact Hessian s sum_i w_i
H_i.

J is computed with dual numbers; the H_i, contracted with w r, with a complex step over dual numbers. Residuals with analytic
derivatives use these instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, HasContraction, HasPartials, Jacobians, Map, Parameters
from dynamics_backends.registry import make_backend
from trajopt.problem.terms import CostTerm


class StageExpansion(NamedTuple):
    """Expansion of a term: value (N,), gradients lx (N, n), lu (N, m), Hessians lxx (N, n, n), lux (N, m, n), luu (N, m, m).

    n is ndx of the residual's manifold (0 if it does not read the state), m its number of controls.
    """

    value: Array
    lx: Array
    lu: Array
    lxx: Array
    lux: Array
    luu: Array


def term_value(term: CostTerm, x: Array, u: Array, t: Array, scale: Array, weight: Array, p: Parameters) -> Array:
    """Value (N,) of a term: scale/2 sum_i w_i r_i^2 for residuals r, or scale sum_i w_i f_i for objectives f.

    scale (N,): dt for a running term, 1 for a terminal one. weight: w, (nr,) or (N, nr). p: parameters by name, each (n,) or (N,
    n).
    """
    r = term.residual(*residual_batch(term.residual, x, u, t, p)).T
    return scale * (weight * (0.5 * r * r if term.squared else r)).sum(axis=1)


def quadratize(
    term: CostTerm, x: Array, u: Array, t: Array | float, scale: Array | float = 1.0, hessian: str = "gauss_newton"
) -> StageExpansion:
    """Value, gradients and Hessians of a term at x (N, nx), u (N, >= nu), t, with respect to the tangent of x and to u.

    scale: dt for a running term, 1 for a terminal one. hessian: "gauss_newton" or "exact"; a term that is not a square always gets
    the exact Hessian.
    """
    b = residual_batch(term.residual, x, u, t, term.parameters)
    r, fx, fu = residual_jacobians(term.residual, b)
    scale = np.broadcast_to(np.asarray(scale, float), (b.size,))
    J = np.concatenate([fx, fu], axis=2)
    n, weight = fx.shape[2], np.broadcast_to(scale[:, None] * term.weight, r.shape)
    slope = weight * r if term.squared else weight
    gradient = (J.transpose(0, 2, 1) @ slope[:, :, None])[:, :, 0]
    if term.squared:
        H = (J.transpose(0, 2, 1) * weight[:, None, :]) @ J
        if hessian == "exact":
            H = H + contracted_hessian(term.residual, b, slope)
    else:
        H = contracted_hessian(term.residual, b, slope)
    value = (weight * (0.5 * r * r if term.squared else r)).sum(axis=1)
    return StageExpansion(value, gradient[:, :n], gradient[:, n:], H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])


def phase_cost(terms: Sequence[CostTerm], x: Array, u: Array, t: Array, scale: Array) -> Array:
    """Sum (L, K) of the terms at the knots of trajectories x (L, K, nx), u (L, K, nu); scale (K,): dt of running costs, else 1."""
    count = len(x)
    total = np.zeros(x.shape[:2])
    for term in terms:
        weight, p = _tiled(term, count)
        values = term_value(term, _flat(x), _flat(u), np.tile(t, count), np.tile(scale, count), weight, p)
        total += values.reshape(count, -1)
    return total


def _tiled(term: CostTerm, count: int) -> tuple[Array, Mapping[str, Array]]:
    """Weight and parameters of a term, with rows by knot repeated for ``count`` concatenated trajectories."""

    def tile(v: Array) -> Array:
        """Value with rows by knot repeated for each trajectory; a constant value is unchanged."""
        return np.tile(v, (count, 1)) if v.ndim == 2 else v

    return tile(term.weight), {k: tile(v) for k, v in term.parameters.items()}


def _flat(a: Array) -> Array:
    """Reshape (L, S, n) to (L * S, n)."""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])


def residual_batch(residual: Map, x: Array, u: Array, t: Array | float, p: Parameters) -> Batch:
    """Batch with the entries of states (N, nx) and controls (N, >= nu) that a residual reads."""
    return Batch.of(residual, x[:, : residual.manifold.nx], u[:, : residual.nu], t, p)


def residual_jacobians(residual: Map, b: Batch) -> Jacobians:
    """Value (N, nr) and derivatives fx (N, nr, ndx), fu (N, nr, nu) of a residual.

    Derivatives are analytic if the residual has them, else by dual numbers in NumPy.
    """
    method = "analytic" if isinstance(residual, HasPartials) else "forward_ad"
    return make_backend(residual, method, engine="numpy").jacobians(*_batch_first(b))


def contracted_hessian(map: Map, b: Batch, factors: Array) -> Array:
    """Contraction sum_i factors_i H_i (N, K, K), K = ndx + nu, with H_i the Hessian of (dx, du) -> f_i(x (+) dx, u + du) at 0.

    factors: (N, n_out). Derivatives are analytic if the map has first and second ones, else by AD in NumPy.
    """
    own = isinstance(map, HasPartials) and isinstance(map, HasContraction)
    backend: Any = make_backend(map, "analytic" if own else "forward_ad", engine="numpy")
    _, (xx, ux, uu) = backend.hessian_contraction(*_batch_first(b), factors)
    return np.block([[xx, ux.transpose(0, 2, 1)], [ux, uu]])


def _batch_first(b: Batch) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Arguments x, u, t, p of a batch, with the batch axis first, as backends expect them."""
    return b.x.T, b.u.T, b.t, {name: rows.T for name, rows in b.p.items()}
