"""Second derivatives of a manifold's operations, contracted with a covector lam; batch first, float64, zero on flat manifolds.

With T, E the derivatives of x (+) delta in x and delta (E = dexp), and W(delta)[a, b] = d/d delta_a (lam' dexp(delta) e_b),

    integrate    lam' G(y, delta + e),  G = ((x (+) y) (+) (delta + e)) (-) (x (+) delta), has at 0
                 G_yy = 0,   G_ye = -T' W(0) E,   G_ee = sym W(delta)
    difference   lam' (d (+) e),  in coordinates: log(exp(d) exp(e)), has at 0
                 sym(dexp^-1(d)' W-(d)),  W- the same as W for dexp^-1

since the second-order terms are brackets (Baker, Campbell, Hausdorff), 1/2 [a, b] = -d/d delta_a dexp(0) b, and the
antisymmetric parts of the remaining terms cancel theirs.  Derivatives of dexp come from dual numbers on the small blocks of the
groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import LieGroup, Manifold
from dynamics_backends.scalar import STEP
from dynamics_backends.scalars.dual import Dual

Array = np.ndarray


class IntegrateCurvature(NamedTuple):
    """Second derivatives of integrate: the blocks G_ye, G_ee (N, ndx, ndx)."""

    ye: Array
    ee: Array


def integrate_curvature(manifold: Manifold, delta: Array, lam: Array) -> IntegrateCurvature:
    """Second derivatives, contracted with lam, of x (+) delta in perturbations y of x and e of delta; the block yy is zero.

    delta (N, ndx); lam (N, ndx) in the tangent space at x (+) delta.
    """
    T, E = manifold.d_integrate(delta)
    at_zero = slope(manifold, "dexp", np.zeros_like(delta), lam)
    return IntegrateCurvature(-T.transpose(0, 2, 1) @ at_zero @ E, _symmetric(slope(manifold, "dexp", delta, lam)))


def difference_curvature(manifold: Manifold, d: Array, lam: Array) -> Array:
    """Hessian (N, ndx, ndx) of e -> lam' ((x (+) e) (-) x0) for d = x (-) x0 (N, ndx), lam in the tangent space at x0."""
    _, inverse = manifold.d_difference(d)
    return _symmetric(inverse.transpose(0, 2, 1) @ slope(manifold, "dexp_inv", d, lam))


def d_dexp_inv(manifold: Manifold, delta: Array, k: Array) -> Array:
    """Derivative (N, ndx, ndx) of dexp^-1(delta) k in delta, from delta (N, ndx), k (N, ndx), by dual numbers."""
    n, ndx = delta.shape
    result = np.zeros((n, ndx, ndx))
    for group, block in _lie_blocks(manifold):
        d = Dual.seed(delta[:, block].T, np.eye(group.nv))
        components = group.dexp_inv([d[i] for i in range(group.nv)], list(k[:, block].T))
        result[:, block, block] = np.stack([c.tan for c in components], axis=1)
    return result


def dexp_inv_curvature(manifold: Manifold, delta: Array, k: Array, lam: Array) -> Array:
    """Hessian (N, ndx, ndx) in delta of lam' dexp^-1(delta) k, by a complex step over dual numbers."""
    n, ndx = delta.shape
    result = np.zeros((n, ndx, ndx))
    for group, block in _lie_blocks(manifold):
        m = group.nv
        steps = 1j * STEP * np.tile(np.eye(m), (n, 1))
        d = Dual.seed((np.repeat(delta[:, block], m, axis=0) + steps).T, np.eye(m))
        components = group.dexp_inv([d[i] for i in range(m)], list(np.repeat(k[:, block], m, axis=0).T))
        result[:, block, block] = _weighted(components, lam[:, block]).imag / STEP
    return _symmetric(result)


def slope(manifold: Manifold, which: str, delta: Array, lam: Array) -> Array:
    """Derivative W (N, ndx, ndx): W[a, b] = d/d delta_a (lam' which(delta) e_b); which: "dexp" or "dexp_inv"."""
    n, ndx = delta.shape
    result = np.zeros((n, ndx, ndx))
    for group, block in _lie_blocks(manifold):
        m = group.nv
        d = Dual.seed(np.repeat(delta[:, block], m, axis=0).T, np.eye(m))
        components = getattr(group, which)([d[i] for i in range(m)], list(np.tile(np.eye(m), n)))
        result[:, block, block] = _weighted(components, lam[:, block]).transpose(0, 2, 1)
    return result


def _weighted(components: list[Dual], lam: Array) -> Array:
    """Sum over c of lam_c times the tangents (N m, m) of component c, as (N, m, m)."""
    n, m = lam.shape
    tangents = np.stack([c.tan for c in components]).reshape(m, n, m, m)
    return np.einsum("nc,cnba->nba", lam, tangents)


def _lie_blocks(manifold: Manifold) -> Iterator[tuple[LieGroup, slice]]:
    """Yield the groups other than vector spaces and SO(2), with their slices of a tangent vector."""
    start = 0
    for group in manifold.groups:
        if group.to_se3 is not None:
            yield group, slice(start, start + group.nv)
        start += group.nv


def _symmetric(M: Array) -> Array:
    """Symmetric parts (M + M') / 2 of matrices (K, n, n)."""
    return 0.5 * (M + M.transpose(0, 2, 1))
