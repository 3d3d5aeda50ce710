"""Second derivatives of a time step, contracted with a covector, from the second derivatives of f.

The Hessian of lam' (Phi(x (+) dx, u + du) (-) Phi(x, u)) in w = (dx, du) is computed by an adjoint sweep backward through the
stages. Every operation adds its curvature, chained with the sensitivity of its arguments:

    f at a stage          S_i' (kb_i . f_ww) S_i             S_i = d (x_i, u, e_i) / d w,  kb_i the adjoint of k_i = f(x_i, u, e_i)
    x_i = x (+) delta_i   with d delta_i / d w               :func:`~dynamics_backends.manifold_curvature.integrate_curvature`
    dexp^-1(delta_i) k_i  with d (delta_i, k_i) / d w        these two only on Lie groups

Intermediate perturbations are coordinates of the exponential chart about the respective point. In these coordinates the chain rule
is that of vector spaces, and the result is symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import d_dexp_inv, dexp_inv_curvature, integrate_curvature, slope
from dynamics_backends.protocol import Array, Hessians, SecondOrderBackend
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER
from trajopt.step.runge_kutta_stages import Stage, Substep, chained


def step_hessian(
    backend: SecondOrderBackend,
    manifold: Manifold,
    scheme: str,
    substeps: Sequence[Substep],
    lam: Array,
) -> Hessians:
    """Blocks of the Hessian, from the substeps of a step and lam (N, ndx) in the tangent space at its end."""
    total: Array | None = None
    before: list[Array | None] = []  # d x / d w at the start of each substep
    for s in substeps:
        before.append(total)
        total = chained(s.moved, total)
    n, H = manifold.ndx, np.zeros(1)
    for s, S in zip(reversed(substeps), reversed(before), strict=True):
        H = H + chain_hessian(_substep_hessian(backend, manifold, scheme, s, lam), S)
        lam = _adjoint(s.moved[:, :, :n], lam)
    return Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])


def chain_hessian(H: Array, S: Array | None, E: Array | None = None) -> Array:
    """Transform a Hessian in (x, u, e) to w: Z' H Z (N, ndx + nu, ndx + nu), Z = [S; 0 I; E], S = d x / d w, E = d e / d w.

    S: None for [I 0]. E: None for zeros or without offsets.
    """
    if S is None:
        return H
    size, n = S.shape[2], S.shape[1]
    Z = np.zeros((len(S), H.shape[1], size))
    Z[:, :n] = S
    Z[:, range(n, size), range(n, size)] = 1.0
    if E is not None:
        Z[:, size:] = E
    return Z.transpose(0, 2, 1) @ H @ Z


def _adjoint(J: Array, lam: Array) -> Array:
    """Product J' lam (N, n)."""
    return (lam[:, None] @ J)[:, 0]


def _substep_hessian(backend: SecondOrderBackend, manifold: Manifold, scheme: str, s: Substep, lam: Array) -> Array:
    H = _integrate_hessian(manifold, s.delta, s.delta_w, lam)
    at_delta, h = _delta_adjoint(manifold, s.delta, lam), s.h[:, None]
    if scheme == SEMI_IMPLICIT_EULER:
        nv = at_delta.shape[1] // 2
        q, v = h * at_delta[:, :nv], h * at_delta[:, nv:]
        return H + _f_hessian(backend, s.stages[0], np.concatenate([q, h * q + v], axis=1))
    tableau = RUNGE_KUTTA[scheme]
    adjoints = [h * b * at_delta for b in tableau.b]  # of kt_i
    for i in range(len(s.stages) - 1, -1, -1):
        own, at_delta, at_offset = _stage_hessian(backend, manifold, s.stages[i], adjoints[i])
        H = H + own
        if at_offset is not None:
            nv = at_offset.shape[1]
            for j, lag in enumerate(tableau.lag(i)):
                adjoints[j][:, nv : 2 * nv] += lag * h * at_offset
        for j, a in enumerate(tableau.a[i]):
            adjoints[j] = adjoints[j] + a * h * at_delta
    return H


def _stage_hessian(
    backend: SecondOrderBackend, manifold: Manifold, stage: Stage, adjoint: Array
) -> tuple[Array, Array, Array | None]:
    """Contribution of a stage to the Hessian, and the adjoints of its delta and of its offset (None without one).

    adjoint: adjoint of the slope kt of the stage.
    """
    if stage.delta is None or stage.delta_w is None:
        return _f_hessian(backend, stage, adjoint), np.zeros_like(adjoint), None
    at_k = adjoint if manifold.is_flat else _adjoint(manifold.d_difference(stage.delta)[1], adjoint)
    at_x = _adjoint(stage.fx, at_k)
    at_delta = _delta_adjoint(manifold, stage.delta, at_x)
    H = _f_hessian(backend, stage, at_k) + _integrate_hessian(manifold, stage.delta, stage.delta_w, at_x)
    if not manifold.is_flat:
        at_delta = at_delta + _adjoint(d_dexp_inv(manifold, stage.delta, stage.k), adjoint)
        H = H + _dexp_inv_hessian(manifold, stage, adjoint)
    return H, at_delta, None if stage.fe is None else _adjoint(stage.fe, at_k)


def _f_hessian(backend: SecondOrderBackend, stage: Stage, lam: Array) -> Array:
    """Hessian of lam' f at a stage, (N, ndx + nu, ndx + nu)."""
    _, (xx, ux, uu) = backend.hessian_contraction(stage.x, stage.u, stage.t, stage.p, lam)
    above = np.concatenate([xx, ux.transpose(0, 2, 1)], axis=2)
    H = np.concatenate([above, np.concatenate([ux, uu], axis=2)], axis=1)
    if stage.moved is None:
        size = stage.k_w.shape[2]
        return H[:, :size, :size]
    return chain_hessian(H, stage.moved, stage.offset_w)


def _delta_adjoint(manifold: Manifold, delta: Array, lam: Array) -> Array:
    """Adjoint of delta from the adjoint of x (+) delta."""
    return lam if manifold.is_flat else _adjoint(manifold.d_integrate(delta)[1], lam)


def _integrate_hessian(manifold: Manifold, delta: Array, delta_w: Array, lam: Array) -> Array:
    """Hessian of lam' (x (+) delta) in w, where x and delta depend on w."""
    if manifold.is_flat:
        return np.zeros((1, 1, 1))
    ye, ee = integrate_curvature(manifold, delta, lam)
    H = delta_w.transpose(0, 2, 1) @ ee @ delta_w
    cross, n = ye @ delta_w, manifold.ndx
    H[:, :n] += cross
    H[:, :, :n] += cross.transpose(0, 2, 1)
    return H


def _dexp_inv_hessian(manifold: Manifold, stage: Stage, lam: Array) -> Array:
    """Hessian of lam' dexp^-1(delta) k in w, where delta and k depend on w."""
    assert stage.delta is not None and stage.delta_w is not None
    D = stage.delta_w.transpose(0, 2, 1)
    cross = D @ slope(manifold, "dexp_inv", stage.delta, lam) @ stage.k_w
    curvature = dexp_inv_curvature(manifold, stage.delta, stage.k, lam)
    return D @ curvature @ stage.delta_w + cross + cross.transpose(0, 2, 1)
