"""The stages of a time step with their first derivatives: what sensitivities and curvature are made of.

For a step x_next = x (+) delta(x, u), with w = (dx, u) and T, E the derivatives of (+) in its two arguments,

    A = T(delta) + E(delta) delta_x          B = E(delta) delta_u

and through the stages of RKMK, with D_i = d delta_i / d w,

    d x_i  = T(delta_i) [I 0] + E(delta_i) D_i                        the stage's sensitivity S_i
    d k_i  = f_x S_i + [0 f_u]
    d kt_i = dexp^-1(delta_i) d k_i + (d/d delta dexp^-1(delta) k_i) D_i

The derivatives of f come from a backend; nothing here depends on how it finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import d_dexp_inv
from dynamics_backends.protocol import Array, DynamicsBackend, Parameters
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER, Tableau, weighted_sum


class Stage(NamedTuple):
    """One call of f, at x (N, nx) and t (N,): its value k (N, ndx), and fx (N, ndx, ndx).

    delta (N, ndx) leads from the start of the step to x, delta_w (N, ndx, ndx + nu) is its derivative, moved (as large) that of
    x, k_w that of k; delta, delta_w, moved are None for the stage at the start.
    """

    x: Array
    t: Array
    k: Array
    k_w: Array
    fx: Array
    delta: Array | None = None
    delta_w: Array | None = None
    moved: Array | None = None


class Substep(NamedTuple):
    """One step of length h (N,) to x_next (N, nx): delta (N, ndx), its derivative delta_w, that of x_next, moved; its stages."""

    h: Array
    x_next: Array
    delta: Array
    delta_w: Array
    moved: Array
    stages: tuple[Stage, ...]


def substeps_of(
    backend: DynamicsBackend, scheme: str, count: int, x: Array, u: Array, t: Array, dt: Array, p: Parameters
) -> Iterator[Substep]:
    """``count`` equal steps over dt (N,) from x (N, nx), u (N, nu), t (N,)."""
    manifold, h = backend.map.manifold, dt / count
    for i in range(count):
        if scheme == SEMI_IMPLICIT_EULER:
            delta, delta_w, stages = _semi_implicit_step(backend, x, u, t + i * h, h, p)
        else:
            delta, delta_w, stages = _runge_kutta(backend, RUNGE_KUTTA[scheme], x, u, t + i * h, h, p)
        x = manifold.integrate(x.T, delta.T).T
        yield Substep(h, x, delta, delta_w, moved_by(manifold, delta, delta_w), stages)


Increment = tuple[Array, Array, tuple[Stage, ...]]
"""delta, delta_w, and the stages."""


def _at_start(backend: DynamicsBackend, x: Array, u: Array, t: Array, p: Parameters) -> Stage:
    k, fx, fu = backend.jacobians(x, u, t, p)
    return Stage(x, t, k, np.concatenate([fx, fu], axis=2), fx)


def _semi_implicit_step(backend: DynamicsBackend, x: Array, u: Array, t: Array, h: Array, p: Parameters) -> Increment:
    stage = _at_start(backend, x, u, t, p)
    return _semi_implicit(stage.k, h[:, None]), _semi_implicit(stage.k_w, h[:, None, None]), (stage,)


def _semi_implicit(f: Array, h: Array) -> Array:
    """h (v + h a, a) along axis 1, from f = (v, a)."""
    nv = f.shape[1] // 2
    v, a = f[:, :nv], f[:, nv:]
    return np.concatenate([h * (v + h * a), h * a], axis=1)


def _runge_kutta(
    backend: DynamicsBackend, tableau: Tableau, x: Array, u: Array, t: Array, h: Array, p: Parameters
) -> Increment:
    manifold = backend.map.manifold
    h1, h2 = h[:, None], h[:, None, None]
    stages: list[Stage] = []
    slopes: list[Array] = []  # kt_i
    slopes_w: list[Array] = []  # d kt_i
    for row, c in zip(tableau.a, tableau.c, strict=True):
        combined, combined_w = weighted_sum(row, slopes), weighted_sum(row, slopes_w)
        if combined is None:
            stage = _at_start(backend, x, u, t + c * h, p)
            slope, slope_w = stage.k, stage.k_w
        else:
            stage = _stage(backend, x, h1 * combined, h2 * combined_w, u, t + c * h, p)
            slope, slope_w = _pulled_back(manifold, stage)
        stages.append(stage)
        slopes.append(slope)
        slopes_w.append(slope_w)
    return h1 * weighted_sum(tableau.b, slopes), h2 * weighted_sum(tableau.b, slopes_w), tuple(stages)


def _stage(
    backend: DynamicsBackend, x: Array, delta: Array, delta_w: Array, u: Array, t: Array, p: Parameters
) -> Stage:
    manifold = backend.map.manifold
    at = manifold.integrate(x.T, delta.T).T
    k, fx, fu = backend.jacobians(at, u, t, p)
    moved = moved_by(manifold, delta, delta_w)
    k_w = fx @ moved
    k_w[:, :, manifold.ndx :] += fu
    return Stage(at, t, k, k_w, fx, delta, delta_w, moved)


def moved_by(manifold: Manifold, delta: Array, delta_w: Array) -> Array:
    """d (x (+) delta) / d w (N, ndx, ndx + nu), from delta (N, ndx) and its derivative delta_w (N, ndx, ndx + nu)."""
    if manifold.is_vector_space:
        moved = delta_w.copy()
        diagonal = np.arange(manifold.ndx)
        moved[:, diagonal, diagonal] += 1.0
        return moved
    at_x, at_delta = manifold.d_integrate(delta)
    moved = at_delta @ delta_w
    moved[:, :, : manifold.ndx] += at_x
    return moved


def chained(step_w: Array, before: Array | None) -> Array:
    """d x_next / d w of a substep after others: step_x before + [0 step_u]."""
    if before is None:
        return step_w
    ndx = step_w.shape[1]
    total = step_w[:, :, :ndx] @ before
    total[:, :, ndx:] += step_w[:, :, ndx:]
    return total


def _pulled_back(manifold: Manifold, stage: Stage) -> tuple[Array, Array]:
    """kt = dexp^-1(delta) k (N, ndx) and its derivative (N, ndx, ndx + nu)."""
    if manifold.is_vector_space or stage.delta is None or stage.delta_w is None:
        return stage.k, stage.k_w
    _, inverse = manifold.d_difference(stage.delta)  # the derivative of log is dexp^-1
    along_delta = d_dexp_inv(manifold, stage.delta, stage.k)
    return (inverse @ stage.k[:, :, None])[:, :, 0], inverse @ stage.k_w + along_delta @ stage.delta_w
