"""Second derivatives of a manifold's operations, contracted with a covector lam; batch first, float64, zero on flat manifolds.

With T, E the derivatives of x (+) delta in x and delta (E = dexp), and W(delta)[a, b] = d/d delta_a (lam' dexp(delta) e_b),

    integrate    lam' G(y, delta + e),  G = ((x (+) y) (+) (delta + e)) (-) (x (+) delta), has at 0
                 G_yy = 0,   G_ye = -T' W(0) E,   G_ee = sym W(delta)
    difference   lam' (d (+) e),  in coordinates: log(exp(d) exp(e)), has at 0
                 sym(dexp^-1(d)' W-(d)),  W- the same as W for dexp^-1

since the second-order terms are brackets (Baker, Campbell, Hausdorff), 1/2 [a, b] = -d/d delta_a dexp(0) b, and the
antisymmetric parts of the remaining terms cancel theirs.  Derivatives of dexp are CasADi's; C code is made of the same expressions
(:mod:`dynamics_backends.compiled.sources.manifold_source`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import LieGroup, Manifold
from dynamics_backends.symbols import Evaluate, ca, interpreted, tracing

Array = np.ndarray


def integrate_curvature(manifold: Manifold, delta: Array, lam: Array) -> tuple[Array, Array]:
    """Second derivatives, contracted with lam, of x (+) delta in perturbations y of x and e of delta: G_ye, G_ee (N, ndx, ndx).

    The block yy is zero. delta (N, ndx); lam (N, ndx) in the tangent space at x (+) delta.
    """
    ye, ee = _evaluated(manifold, "integrate_hessian", 2, delta, lam)
    return ye, ee


def integrate_hessian(manifold: Manifold, delta: Array, delta_w: Array, lam: Array) -> Array:
    """Hessian (N, n, n) of lam' (x (+) delta) in w, which begins with the perturbation of x; zeros (1, 1, 1) on a vector space.

    delta depends on w with the derivatives delta_w (N, ndx, n), without a curvature of its own. Other arguments as in
    :func:`integrate_curvature`.
    """
    if manifold.is_flat:
        return np.zeros((1, 1, 1))
    ye, ee = integrate_curvature(manifold, delta, lam)
    H = delta_w.transpose(0, 2, 1) @ ee @ delta_w
    cross, n = ye @ delta_w, manifold.ndx
    H[:, :n] += cross
    H[:, :, :n] += cross.transpose(0, 2, 1)
    return H


def difference_curvature(manifold: Manifold, d: Array, lam: Array) -> Array:
    """Hessian (N, ndx, ndx) of e -> lam' ((x (+) e) (-) x0) for d = x (-) x0 (N, ndx), lam in the tangent space at x0."""
    return _evaluated(manifold, "difference_hessian", 1, d, lam)[0]


def d_dexp_inv(manifold: Manifold, delta: Array, k: Array) -> Array:
    """Derivative (N, ndx, ndx) of dexp^-1(delta) k in delta, from delta (N, ndx), k (N, ndx)."""
    return _evaluated(manifold, "d_dexp_inv", 1, delta, k)[0]


def dexp_inv_curvature(manifold: Manifold, delta: Array, k: Array, lam: Array) -> tuple[Array, Array]:
    """Second derivatives (N, ndx, ndx) of lam' dexp^-1(delta) k: in delta and k, and in delta twice."""
    mixed, twice = _evaluated(manifold, "dexp_inv_hessian", 2, delta, k, lam)
    return mixed, twice


def _evaluated(manifold: Manifold, name: str, count: int, *arguments: Array) -> list[Array]:
    """Matrices (N, ndx, ndx), ``count`` of them, with the blocks of the groups other than vector spaces and SO(2).

    arguments: (N, ndx) each. name: of :func:`derivatives`.
    """
    results, start = [np.zeros((len(arguments[0]), manifold.ndx, manifold.ndx)) for _ in range(count)], 0
    for group in manifold.groups:
        block = slice(start, start := start + group.nv)
        if group.to_se3 is not None:
            own = _function(group, name)([a[:, block] for a in arguments])
            for result, part in zip(results, own, strict=True):
                result[:, block, block] = part
    return results


@lru_cache(maxsize=32)
def _function(group: LieGroup, name: str) -> Evaluate:
    """Function of a batch that evaluates derivatives of a group; cached."""
    with tracing:
        inputs, values = derivatives(group)[name]
        return interpreted(name, list(inputs), ca.cse(values))


@lru_cache(maxsize=8)
def derivatives(group: LieGroup) -> dict[str, tuple[tuple[Any, ...], list[Any]]]:
    """Symbolic inputs (columns) and values (matrices) of derivatives of a group by name; cached.

    d_dexp_inv: of dexp_inv(d) k in d. Second derivatives, contracted with a covector l: integrate_hessian: the blocks ye and ee;
    dexp_inv_hessian: d^2 / dd dk and d^2 / dd^2 of dexp_inv(d) k; difference_hessian.
    """
    d, k, lam = (ca.SX.sym(name, group.nv) for name in ("d", "k", "l"))
    T, E, inverse = (linear_map(group, name, d) for name in ("transport", "dexp", "dexp_inv"))

    def slope(M: Any) -> Any:
        """Derivative W[a, b] = d (l' M e_b) / d d_a of a matrix M(d)."""
        return ca.jacobian(ca.mtimes(M.T, lam), d).T

    at_zero = ca.substitute(slope(E), d, ca.SX.zeros(group.nv))
    along, moved = slope(inverse), ca.mtimes(inverse, k)
    return {
        "d_dexp_inv": ((d, k), [ca.jacobian(moved, d)]),
        "integrate_hessian": ((d, lam), [-ca.mtimes([T.T, at_zero, E]), _symmetric(slope(E))]),
        "dexp_inv_hessian": ((d, k, lam), [along, ca.hessian(ca.dot(lam, moved), d)[0]]),
        "difference_hessian": ((d, lam), [_symmetric(ca.mtimes(inverse.T, along))]),
    }


def linear_map(group: LieGroup, name: str, d: Any) -> Any:
    """Matrix of a linear map of the group, such as dexp, at the tangent vector d, by its columns."""
    unit = ca.SX.eye(group.nv)
    columns = [ca.vertcat(*getattr(group, name)(sm.rows_of(d), sm.rows_of(unit[:, j]))) for j in range(group.nv)]
    return ca.horzcat(*columns)


def _symmetric(M: Any) -> Any:
    """Symmetric part of a matrix."""
    return 0.5 * (M + M.T)
