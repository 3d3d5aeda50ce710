"""Stages of a time step with their first derivatives, for sensitivities and second derivatives of the step.

For a step x_next = x (+) delta(x, u), with w = (dx, u) and T, E the derivatives of (+) in its two arguments,

    A = T(delta) + E(delta) delta_x          B = E(delta) delta_u

and for the stages of RKMK, with D_i = d delta_i / d w,

    d x_i  = T(delta_i) [I 0] + E(delta_i) D_i                        the stage's sensitivity S_i
    d k_i  = f_x S_i + [0 f_u]
    d kt_i = dexp^-1(delta_i) d k_i + (d/d delta dexp^-1(delta) k_i) D_i

With implicit damping, f also reads the offset e_i = h sum_j (ai_ij - a_ij) a_j of the damped velocity. d e_i / d w follows from the
d k_j, and d k_i = f_x S_i + [0 f_u] + f_e d e_i (:mod:`trajopt.step.integrators`).

A backend provides the derivatives of f by any method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import d_dexp_inv
from dynamics_backends.protocol import IMPLICIT_STEP, Array, DynamicsBackend, Parameters, damping_offsets
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
        """Number of controls of the map that are offsets of the damped velocity; None without implicit damping."""
        return damping_offsets(self.backend.map)

    def arguments(self, share: float, e: Array | None) -> tuple[Array, Parameters]:
        """Arguments u and p of f at a stage with the implicit step ``share`` h and the offset e (N, offsets), None for zero."""
        if self.offsets is None:
            return self.u, self.p
        behind = np.zeros((len(self.u), self.offsets)) if e is None else e
        return np.concatenate([self.u, behind], axis=1), {**self.p, IMPLICIT_STEP: share * self.h[:, None]}

    def at_start(self, x: Array, t: Array, share: float) -> Stage:
        """Stage at the start of a step."""
        u, p = self.arguments(share, None)
        k, fx, fu = self.backend.jacobians(x, u, t, p)
        return Stage(x, t, u, p, k, np.concatenate([fx, fu[:, :, : self.u.shape[1]]], axis=2), fx)

    def at(
        self, x: Array, t: Array, moves: tuple[Array, Array], lags: tuple[Array, Array] | None, share: float
    ) -> Stage:
        """Stage at x (+) delta of a step that starts at x.

        moves: delta and its derivative in w. lags: offset of the stage and its derivative in w, or None for zero. share: fraction
        of the step length that implicit damping uses.
        """
        (delta, delta_w), manifold, m = moves, self.backend.map.manifold, self.u.shape[1]
        at = manifold.integrate(x.T, delta.T).T
        u, p = self.arguments(share, None if lags is None else lags[0])
        k, fx, fu = self.backend.jacobians(at, u, t, p)
        moved = moved_by(manifold, delta, delta_w)
        k_w = fx @ moved
        k_w[:, :, manifold.ndx :] += fu[:, :, :m]
        if not self.offsets or lags is None:
            return Stage(at, t, u, p, k, k_w, fx, delta, delta_w, moved)
        return Stage(at, t, u, p, k, k_w + fu[:, :, m:] @ lags[1], fx, delta, delta_w, moved, fu[:, :, m:], lags[1])


def substeps_of(
    backend: DynamicsBackend, scheme: str, count: int, x: Array, u: Array, t: Array, dt: Array, p: Parameters
) -> Iterator[Substep]:
    """Yield ``count`` equal steps over dt (N,) from x (N, nx), u (N, nu), t (N,). backend: backend of the stage map."""
    manifold, h = backend.map.manifold, dt / count
    field = Field(backend, u, p, h)
    for i in range(count):
        if scheme == SEMI_IMPLICIT_EULER:
            delta, delta_w, stages = _semi_implicit_step(field, x, t + i * h)
        else:
            delta, delta_w, stages = _runge_kutta(field, RUNGE_KUTTA[scheme], x, t + i * h)
        x = manifold.integrate(x.T, delta.T).T
        yield Substep(h, x, delta, delta_w, moved_by(manifold, delta, delta_w), stages)


Increment = tuple[Array, Array, tuple[Stage, ...]]
"""Increment delta, its derivative delta_w, and the stages."""


def _semi_implicit_step(field: Field, x: Array, t: Array) -> Increment:
    stage, h = field.at_start(x, t, 1.0), field.h
    return _semi_implicit(stage.k, h[:, None]), _semi_implicit(stage.k_w, h[:, None, None]), (stage,)


def _semi_implicit(f: Array, h: Array) -> Array:
    """Increment h (v + h a, a) along axis 1, from f = (v, a)."""
    nv = f.shape[1] // 2
    v, a = f[:, :nv], f[:, nv:]
    return np.concatenate([h * (v + h * a), h * a], axis=1)


def _runge_kutta(field: Field, tableau: Tableau, x: Array, t: Array) -> Increment:
    manifold, h1, h2 = field.backend.map.manifold, field.h[:, None], field.h[:, None, None]
    nv = field.offsets or 0
    stages: list[Stage] = []
    slopes: list[Array] = []  # kt_i
    slopes_w: list[Array] = []  # d kt_i
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        combined, combined_w, share = weighted_sum(row, slopes), weighted_sum(row, slopes_w), tableau.implicit[i][i]
        if combined is None:
            stage = field.at_start(x, t + c * field.h, share)
            slope, slope_w = stage.k, stage.k_w
        else:
            lags = None
            if field.offsets:
                e, e_w = (weighted_sum(tableau.lag(i), parts) for parts in (slopes, slopes_w))
                lags = h1 * e[:, nv : 2 * nv], h2 * e_w[:, nv : 2 * nv]
            stage = field.at(x, t + c * field.h, (h1 * combined, h2 * combined_w), lags, share)
            slope, slope_w = _pulled_back(manifold, stage)
        stages.append(stage)
        slopes.append(slope)
        slopes_w.append(slope_w)
    return h1 * weighted_sum(tableau.b, slopes), h2 * weighted_sum(tableau.b, slopes_w), tuple(stages)


def moved_by(manifold: Manifold, delta: Array, delta_w: Array) -> Array:
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
