"""Second-order expansion of cost terms about a batch of knots, in the tangent space of the state.

With l = s/2 sum_i w_i r_i^2, where s is dt for a running term and 1 for a terminal one, and J = d r / d (dx, u):

    gradient        s J' W r
    Gauss-Newton    s J' W J
    exact           s (J' W J + sum_i w_i r_i H_i),   H_i the Hessian of (dx, du) -> r_i(x (+) dx, u + du) at 0

J comes from dual numbers; the H_i, contracted with w r, from dual numbers at points perturbed by i h: a complex step
over duals has no difference in it, and so no cancellation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.dual import Dual
from dynamics_backends.methods.analytic import Analytic
from dynamics_backends.methods.base import one_at_a_time
from dynamics_backends.methods.complex_step import STEP
from dynamics_backends.methods.forward_ad import ForwardAD
from dynamics_backends.protocol import Array, Batch, HasPartials, Jacobians, Parameters
from trajopt.terms import CostTerm


class StageExpansion(NamedTuple):
    """value (N,), gradients lx (N, n), lu (N, m), Hessians lxx (N, n, n), lux (N, m, n), luu (N, m, m).

    n is ndx of the residual's manifold (0 if it does not read the state), m its number of controls.
    """

    value: Array
    lx: Array
    lu: Array
    lxx: Array
    lux: Array
    luu: Array


def term_value(term: CostTerm, x: Array, u: Array, t: Array, scale: Array, weight: Array, p: Parameters) -> Array:
    """s/2 sum_i w_i r_i^2 (N,); weight: (nr,) or (N, nr), p: name -> (n,) or (N, n)."""
    r = term.residual(*_batch(term, x, u, t, p)).T
    return 0.5 * scale * (weight * r * r).sum(axis=1)


def quadratize(
    term: CostTerm, x: Array, u: Array, t: Array | float, scale: Array | float = 1.0, hessian: str = "gauss_newton"
) -> StageExpansion:
    """The expansion of a term at x (N, nx), u (N, >= nu), t; scale: dt of a running term, 1 of a terminal one."""
    b = _batch(term, x, u, t, term.parameters)
    r, fx, fu = _jacobians(term, b)
    scale = np.broadcast_to(np.asarray(scale, float), (b.size,))
    J = np.concatenate([fx, fu], axis=2)
    weight = scale[:, None] * term.weight
    JW = J.transpose(0, 2, 1) * weight[:, None, :]
    gradient = (JW @ r[:, :, None])[:, :, 0]
    H = JW @ J
    if hessian == "exact":
        H = H + contracted_hessian(term, b, weight * r)
    n = fx.shape[2]
    value = 0.5 * (weight * r * r).sum(axis=1)
    return StageExpansion(value, gradient[:, :n], gradient[:, n:], H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])


def contracted_hessian(term: CostTerm, b: Batch, factors: Array) -> Array:
    """sum_i factors_i H_i (N, K, K), K = ndx + nu, from factors (N, nr)."""
    residual = term.residual
    directions = residual.manifold.ndx + residual.nu
    steps = one_at_a_time(residual, b, np.full((directions, b.size), 1j * STEP))
    result = residual(*_seeded_around(residual, b, steps))
    if not isinstance(result, Dual):  # a constant residual
        return np.zeros((b.size, directions, directions))
    second = result.tan.imag.reshape(residual.n_out, b.size, directions, directions) / STEP
    H = np.einsum("ni,injk->njk", factors, second)
    return 0.5 * (H + H.transpose(0, 2, 1))


def _seeded_around(residual, b: Batch, steps: Array) -> tuple:
    """Arguments x (+) (steps + eps e_k), u + ..., all directions k at once.

    One tangent step carries both perturbations, so that the derivative is that of the exponential chart at x: a
    symmetric Hessian on a Lie group too.
    """
    ndx, nu = residual.manifold.ndx, residual.nu
    unit = np.eye(ndx + nu)
    many = b.repeated(steps.shape[1] // b.size)
    x = residual.manifold.integrate(many.x, Dual.seed(steps[:ndx], unit[:ndx]))
    u = Dual.seed(many.u + steps[ndx:], unit[ndx:])
    return x, u, many.t, many.p


def _batch(term: CostTerm, x: Array, u: Array, t: Array | float, p: Parameters) -> Batch:
    """Rows of what the residual reads of states (N, nx) and controls (N, >= nu)."""
    residual = term.residual
    return Batch.of(residual, x[:, : residual.manifold.nx], u[:, : residual.nu], t, p)


def _jacobians(term: CostTerm, b: Batch) -> Jacobians:
    residual = term.residual
    return (Analytic if isinstance(residual, HasPartials) else ForwardAD)(residual)._jacobians(b)
