"""Derivatives of a time step, from those of f: the sensitivities of its stages, and second derivatives contracted with a covector.

For a step x_next = x (+) delta(x, u), with w = (dx, u) and T, E the derivatives of (+) in its two arguments,

    A = T(delta) + E(delta) delta_x          B = E(delta) delta_u

and for the stages of RKMK, with D_i = d delta_i / d w,

    d x_i  = T(delta_i) [I 0] + E(delta_i) D_i                        the stage's sensitivity S_i
    d k_i  = f_x S_i + [0 f_u]
    d kt_i = dexp^-1(delta_i) d k_i + (d/d delta dexp^-1(delta) k_i) D_i

With implicit damping, f also reads the offset e_i = h sum_j (ai_ij - a_ij) a_j of the damped velocity. d e_i / d w follows from the
d k_j, and d k_i = f_x S_i + [0 f_u] + f_e d e_i (:mod:`trajopt.step.integrators`).

A backend provides the derivatives of f by any method.

The Hessian of lam' (Phi(x (+) dx, u + du) (-) Phi(x, u)) in w = (dx, du) is computed by an adjoint sweep backward through the
stages. Every operation adds its curvature, chained with the sensitivity of its arguments:

    f at a stage          S_i' (kb_i . f_ww) S_i             S_i = d (x_i, u, e_i) / d w,  kb_i the adjoint of k_i = f(x_i, u, e_i)
    x_i = x (+) delta_i   with d delta_i / d w               :func:`~dynamics_backends.manifold_curvature.integrate_curvature`
    dexp^-1(delta_i) k_i  with d (delta_i, k_i) / d w        these two only on Lie groups

Intermediate perturbations are coordinates of the exponential chart about the respective point. In these coordinates the chain rule
is that of vector spaces, and the result is symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import d_dexp_inv, dexp_inv_curvature, integrate_hessian
from dynamics_backends.protocol import (
    IMPLICIT_STEP,
    Array,
    DynamicsBackend,
    Hessians,
    Parameters,
    SecondOrderBackend,
    damping_offsets,
)
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER, Tableau, weighted_sum


class Stage(NamedTuple):
    """Evaluation of f at x (N, nx), t (N,), u (N, nu + offsets) and p: value k (N, ndx), derivative fx (N, ndx, ndx).

    delta (N, ndx): increment from the start of the step to x. delta_w, moved, k_w (N, ndx, ndx + nu): derivatives of delta, x and k
    in w. delta, delta_w and moved are None for the stage at the start. fe (N, ndx, offsets): derivative of f in the offset.
    offset_w (N, offsets, ndx + nu): derivative of the offset in w. Both are None without an offset, and at the start.
    """

    x: Array
    t: Array
    u: Array
    p: Parameters
    k: Array
    k_w: Array
    fx: Array
    delta: Array | None = None
    delta_w: Array | None = None
    moved: Array | None = None
    fe: Array | None = None
    offset_w: Array | None = None


class Substep(NamedTuple):
    """Step of length h (N,) to x_next (N, nx): increment delta (N, ndx), its derivative delta_w, that of x_next (moved), stages."""

    h: Array
    x_next: Array
    delta: Array
    delta_w: Array
    moved: Array
    stages: tuple[Stage, ...]


class Field(NamedTuple):
    """Data shared by the stages of a step: backend of the stage map, u (N, nu), p, and the step length h (N,)."""

    backend: DynamicsBackend
    u: Array
    p: Parameters
    h: Array

    @property
    def offsets(self) -> int | None:
        """Number of controls of the map that are offsets e of the damped velocity; None without implicit damping."""
        return damping_offsets(self.backend.map)

    def arguments(self, fraction: float, e: Array | None) -> tuple[Array, Parameters]:
        """Arguments u and p of f at a stage.

        With implicit damping, u is followed by the offset e (N, offsets), and p has the implicit step. fraction: length of the
        implicit step, as a fraction of h. e: None for zero.
        """
        if self.offsets is None:
            return self.u, self.p
        behind = np.zeros((len(self.u), self.offsets)) if e is None else e
        return np.concatenate([self.u, behind], axis=1), {**self.p, IMPLICIT_STEP: fraction * self.h[:, None]}

    def at_start(self, x: Array, t: Array, fraction: float) -> Stage:
        """Stage at the start of a step, where the increment and the velocity offset are zero; fraction: see :meth:`arguments`."""
        u, p = self.arguments(fraction, None)
        k, fx, fu = self.backend.jacobians(x, u, t, p)
        return Stage(x, t, u, p, k, np.concatenate([fx, fu[:, :, : self.u.shape[1]]], axis=2), fx)

    def at(
        self,
        x: Array,
        t: Array,
        increment: tuple[Array, Array],
        offset: tuple[Array, Array] | None,
        fraction: float,
    ) -> Stage:
        """Stage at x (+) delta of a step that starts at x.

        increment: delta and its derivative in w = (x, u) at the start of the step. offset: of the damped velocity at this stage,
        with its derivative in w, or None for zero. fraction: fraction of the step length that implicit damping uses.
        """
        (delta, delta_w), manifold, m = increment, self.backend.map.manifold, self.u.shape[1]
        at = manifold.integrate(x.T, delta.T).T
        u, p = self.arguments(fraction, None if offset is None else offset[0])
        k, fx, fu = self.backend.jacobians(at, u, t, p)
        moved = next_state_derivative(manifold, delta, delta_w)
        k_w = fx @ moved
        k_w[:, :, manifold.ndx :] += fu[:, :, :m]
        if not self.offsets or offset is None:
            return Stage(at, t, u, p, k, k_w, fx, delta, delta_w, moved)
        return Stage(at, t, u, p, k, k_w + fu[:, :, m:] @ offset[1], fx, delta, delta_w, moved, fu[:, :, m:], offset[1])


def substeps_of(
    backend: DynamicsBackend, scheme: str, count: int, x: Array, u: Array, t: Array, dt: Array, p: Parameters
) -> Iterator[Substep]:
    """Yield ``count`` equal steps over dt (N,) from x (N, nx), u (N, nu), t (N,), each with its derivatives in w = (dx, u) at its
    own start.

    backend: backend of the stage map.
    """
    manifold, h = backend.map.manifold, dt / count
    field = Field(backend, u, p, h)
    for i in range(count):
        if scheme == SEMI_IMPLICIT_EULER:
            delta, delta_w, stages = _semi_implicit_step(field, x, t + i * h)
        else:
            delta, delta_w, stages = _runge_kutta(field, RUNGE_KUTTA[scheme], x, t + i * h)
        x = manifold.integrate(x.T, delta.T).T
        yield Substep(h, x, delta, delta_w, next_state_derivative(manifold, delta, delta_w), stages)


Increment = tuple[Array, Array, tuple[Stage, ...]]
"""Increment delta, its derivative delta_w, and the stages."""


def _semi_implicit_step(field: Field, x: Array, t: Array) -> Increment:
    """Increment delta = h (v + h a, a), its derivative in w = (dx, u), and the only stage, of a step of semi-implicit Euler."""
    stage, h = field.at_start(x, t, 1.0), field.h
    return _semi_implicit(stage.k, h[:, None]), _semi_implicit(stage.k_w, h[:, None, None]), (stage,)


def _semi_implicit(f: Array, h: Array) -> Array:
    """Increment h (v + h a, a) along axis 1, from f = (v, a)."""
    nv = f.shape[1] // 2
    v, a = f[:, :nv], f[:, nv:]
    return np.concatenate([h * (v + h * a), h * a], axis=1)


def _runge_kutta(field: Field, tableau: Tableau, x: Array, t: Array) -> Increment:
    """Increment of a Runge-Kutta(-Munthe-Kaas) step, its derivative in w = (dx, u), and the stages."""
    manifold, h1, h2 = field.backend.map.manifold, field.h[:, None], field.h[:, None, None]
    nv = field.offsets or 0
    stages: list[Stage] = []
    slopes: list[Array] = []  # kt_i
    slopes_w: list[Array] = []  # d kt_i
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        combined, combined_w, fraction = (
            weighted_sum(row, slopes),
            weighted_sum(row, slopes_w),
            tableau.implicit[i][i],
        )
        if combined is None:
            stage = field.at_start(x, t + c * field.h, fraction)
            slope, slope_w = stage.k, stage.k_w
        else:
            lags = None
            if field.offsets:
                e, e_w = (weighted_sum(tableau.lag(i), parts) for parts in (slopes, slopes_w))
                lags = h1 * e[:, nv : 2 * nv], h2 * e_w[:, nv : 2 * nv]
            stage = field.at(x, t + c * field.h, (h1 * combined, h2 * combined_w), lags, fraction)
            slope, slope_w = _pulled_back(manifold, stage)
        stages.append(stage)
        slopes.append(slope)
        slopes_w.append(slope_w)
    return h1 * weighted_sum(tableau.b, slopes), h2 * weighted_sum(tableau.b, slopes_w), tuple(stages)


def next_state_derivative(manifold: Manifold, delta: Array, delta_w: Array) -> Array:
    """Derivative of x (+) delta in w, (N, ndx, ndx + nu), from delta (N, ndx) and its derivative delta_w (N, ndx, ndx + nu)."""
    if manifold.is_flat:
        moved = delta_w.copy()
        diagonal = np.arange(manifold.ndx)
        moved[:, diagonal, diagonal] += 1.0
        return moved
    at_x, at_delta = manifold.d_integrate(delta)
    moved = at_delta @ delta_w
    moved[:, :, : manifold.ndx] += at_x
    return moved


def chained(step_w: Array, before: Array | None) -> Array:
    """Chain rule over substeps: d x_next / d w = step_x before + [0 step_u]; before: earlier substeps, or None."""
    if before is None:
        return step_w
    ndx = step_w.shape[1]
    total = step_w[:, :, :ndx] @ before
    total[:, :, ndx:] += step_w[:, :, ndx:]
    return total


def _pulled_back(manifold: Manifold, stage: Stage) -> tuple[Array, Array]:
    """Slope kt = dexp^-1(delta) k (N, ndx) of a stage, and its derivative in w (N, ndx, ndx + nu)."""
    if manifold.is_flat or stage.delta is None or stage.delta_w is None:
        return stage.k, stage.k_w
    _, inverse = manifold.d_difference(stage.delta)  # the derivative of log is dexp^-1
    along_delta = d_dexp_inv(manifold, stage.delta, stage.k)
    return (inverse @ stage.k[:, :, None])[:, :, 0], inverse @ stage.k_w + along_delta @ stage.delta_w


def step_hessian(
    backend: SecondOrderBackend,
    manifold: Manifold,
    scheme: str,
    substeps: Sequence[Substep],
    lam: Array,
) -> Hessians:
    """Second derivatives of lam' x_next in (dx, u), from the substeps of a step; lam (N, ndx): in the tangent space at x_next."""
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
    """Transform a Hessian in (x, u, e) at a stage to w = (dx, u): Z' H Z (N, ndx + nu, ndx + nu), Z = [S; 0 I; E].

    S = d x / d w, E = d e / d w, with the velocity offsets e of implicit damping.

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
    """Product J' lam (N, n) of Jacobians J (N, m, n) and lam (N, m)."""
    return (lam[:, None] @ J)[:, 0]


def _substep_hessian(backend: SecondOrderBackend, manifold: Manifold, scheme: str, s: Substep, lam: Array) -> Array:
    """Hessian of lam' x_next of one substep in w = (dx, u) at its start, by a backward pass over its stages."""
    H = integrate_hessian(manifold, s.delta, s.delta_w, lam)
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
    H = _f_hessian(backend, stage, at_k) + integrate_hessian(manifold, stage.delta, stage.delta_w, at_x)
    if not manifold.is_flat:
        at_delta = at_delta + _adjoint(d_dexp_inv(manifold, stage.delta, stage.k), adjoint)
        H = H + _dexp_inv_hessian(manifold, stage, adjoint)
    return H, at_delta, None if stage.fe is None else _adjoint(stage.fe, at_k)


def _f_hessian(backend: SecondOrderBackend, stage: Stage, lam: Array) -> Array:
    """Hessian (N, ndx + nu, ndx + nu) of lam' f at a stage, in w = (dx, u) at the start of the step.

    It contains the curvature of f, not that of the stage's state in w.
    """
    _, (xx, ux, uu) = backend.hessian_contraction(stage.x, stage.u, stage.t, stage.p, lam)
    above = np.concatenate([xx, ux.transpose(0, 2, 1)], axis=2)
    H = np.concatenate([above, np.concatenate([ux, uu], axis=2)], axis=1)
    if stage.moved is None:
        size = stage.k_w.shape[2]
        return H[:, :size, :size]
    return chain_hessian(H, stage.moved, stage.offset_w)


def _delta_adjoint(manifold: Manifold, delta: Array, lam: Array) -> Array:
    """Adjoint of delta, E(delta)' lam, from the adjoint lam of x (+) delta."""
    return lam if manifold.is_flat else _adjoint(manifold.d_integrate(delta)[1], lam)


def _dexp_inv_hessian(manifold: Manifold, stage: Stage, lam: Array) -> Array:
    """Hessian of lam' dexp^-1(delta) k in w, where delta and k depend on w."""
    assert stage.delta is not None and stage.delta_w is not None
    D = stage.delta_w.transpose(0, 2, 1)
    mixed, curvature = dexp_inv_curvature(manifold, stage.delta, stage.k, lam)
    cross = D @ mixed @ stage.k_w
    return D @ curvature @ stage.delta_w + cross + cross.transpose(0, 2, 1)
