"""Sampled dynamics: a time step with its sensitivities A = d x_next / d x, B = d x_next / d u, in the tangent spaces.

For a step x_next = x (+) delta(x, u), with w = (x, u) and T, E the derivatives of (+) in its two arguments,

    A = T(delta) + E(delta) delta_x          B = E(delta) delta_u

and through the stages of RKMK, with D_i = d delta_i / d w,

    d x_i  = T(delta_i) [I 0] + E(delta_i) D_i                        the stage's sensitivity S_i
    d k_i  = f_x S_i + [0 f_u]
    d kt_i = dexp^-1(delta_i) d k_i + (d/d delta dexp^-1(delta) k_i) D_i

Substeps are chained.  The derivatives of f come from a backend; nothing here depends on how it finds them.
"""

from __future__ import annotations

import difflib

import numpy as np

from dynamics_backends.dual import Dual
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, Batch, DynamicsBackend, Parameters
from trajopt.integrators import RUNGE_KUTTA, SCHEMES, SEMI_IMPLICIT_EULER, Tableau, step_rows, weighted_sum
from trajopt.ocp import LinearizedStep


class SampledSystem:
    """A system under a backend, sampled by a scheme: a :class:`~trajopt.ocp.DiscreteMap`.

    scheme: one of :data:`~trajopt.integrators.SCHEMES`. substeps: steps of the scheme per dt, the control held.
    Raises ValueError for an unknown scheme, or where semi-implicit Euler meets a system whose state is not (q, v).
    """

    def __init__(self, backend: DynamicsBackend, scheme: str = SEMI_IMPLICIT_EULER, substeps: int = 1) -> None:
        _check_scheme(backend, scheme, substeps)
        self.backend = backend
        self.scheme = scheme
        self.substeps = substeps
        self.system = backend.map
        self.manifold = backend.map.manifold
        self.nu = backend.map.nu
        self.control_names = backend.map.control_names

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """x_next (N, nx) from x (N, nx), u (N, nu); t, dt a number or (N,) [s]."""
        b = Batch.of(self.system, x, u, t, p)
        h = np.broadcast_to(np.asarray(dt, float), b.t.shape)
        return np.ascontiguousarray(step_rows(self.system, self.scheme, self.substeps, b.x, b.u, b.t, h, b.p).T)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """x_next (N, nx), A (N, ndx, ndx), B (N, ndx, nu)."""
        x, u = np.asarray(x, float), np.asarray(u, float)
        t = np.broadcast_to(np.asarray(t, float), (len(x),))
        h = np.broadcast_to(np.asarray(dt, float), (len(x),)) / self.substeps
        total = np.empty(0)  # d x / d w, chained over the substeps
        for i in range(self.substeps):
            delta, slope = self._increment(x, u, t + i * h, h, p or {})
            own = _moved(self.manifold, delta, slope)
            total = own if i == 0 else _chained(own, total)
            x = self.manifold.integrate(x.T, delta.T).T
        ndx = self.manifold.ndx
        return LinearizedStep(np.ascontiguousarray(x), total[:, :, :ndx], total[:, :, ndx:])

    def _increment(self, x: Array, u: Array, t: Array, h: Array, p: Parameters) -> tuple[Array, Array]:
        """delta (N, ndx) of one step of length h and d delta / d w (N, ndx, ndx + nu)."""
        if self.scheme == SEMI_IMPLICIT_EULER:
            f, fx, fu = self.backend.jacobians(x, u, t, p)
            f_w = np.concatenate([fx, fu], axis=2)
            return _semi_implicit(f, h[:, None]), _semi_implicit(f_w, h[:, None, None])
        return self._runge_kutta(RUNGE_KUTTA[self.scheme], x, u, t, h, p)

    def _runge_kutta(
        self, tableau: Tableau, x: Array, u: Array, t: Array, h: Array, p: Parameters
    ) -> tuple[Array, Array]:
        manifold = self.manifold
        h1, h2 = h[:, None], h[:, None, None]
        slopes: list[Array] = []  # kt_i
        slopes_w: list[Array] = []  # d kt_i
        for row, c in zip(tableau.a, tableau.c, strict=True):
            combined, combined_w = weighted_sum(row, slopes), weighted_sum(row, slopes_w)
            if combined is None:
                k, fx, fu = self.backend.jacobians(x, u, t + c * h, p)
                k_w = np.concatenate([fx, fu], axis=2)
            else:
                delta, delta_w = h1 * combined, h2 * combined_w
                stage = manifold.integrate(x.T, delta.T).T
                k, fx, fu = self.backend.jacobians(stage, u, t + c * h, p)
                k_w = fx @ _moved(manifold, delta, delta_w)
                k_w[:, :, manifold.ndx :] += fu
                k, k_w = _pulled_back(manifold, delta, delta_w, k, k_w)
            slopes.append(k)
            slopes_w.append(k_w)
        return h1 * weighted_sum(tableau.b, slopes), h2 * weighted_sum(tableau.b, slopes_w)


def _check_scheme(backend: DynamicsBackend, scheme: str, substeps: int) -> None:
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown scheme {scheme!r}{hint}; known: {', '.join(SCHEMES)}")
    if not isinstance(substeps, int) or substeps < 1:
        raise ValueError(f"substeps = {substeps!r}; expected an integer of at least 1")
    system = backend.map
    if system.n_out != system.manifold.ndx:
        raise ValueError(f"the map has {system.n_out} outputs; xdot needs ndx = {system.manifold.ndx}")
    if scheme == SEMI_IMPLICIT_EULER and not getattr(system, "second_order", False):
        raise ValueError(
            "semi_implicit_euler needs a state (q, v) with qdot = v; declare second_order=True if that holds, "
            "or choose scheme = 'rk4' or 'euler'"
        )


def _semi_implicit(f: Array, h: Array) -> Array:
    """h (v + h a, a) along axis 1, from f = (v, a)."""
    nv = f.shape[1] // 2
    v, a = f[:, :nv], f[:, nv:]
    return np.concatenate([h * (v + h * a), h * a], axis=1)


def _moved(manifold: Manifold, delta: Array, delta_w: Array) -> Array:
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


def _chained(step_w: Array, before: Array) -> Array:
    """d x_next / d w of a substep after others: step_x before + [0 step_u]."""
    ndx = step_w.shape[1]
    total = step_w[:, :, :ndx] @ before
    total[:, :, ndx:] += step_w[:, :, ndx:]
    return total


def _pulled_back(manifold: Manifold, delta: Array, delta_w: Array, k: Array, k_w: Array) -> tuple[Array, Array]:
    """kt = dexp^-1(delta) k (N, ndx) and its derivative (N, ndx, ndx + nu)."""
    if manifold.is_vector_space:
        return k, k_w
    _, inverse = manifold.d_difference(delta)  # the derivative of log is dexp^-1
    along_delta = d_dexp_inv(manifold, delta, k)
    return (inverse @ k[:, :, None])[:, :, 0], inverse @ k_w + along_delta @ delta_w


def d_dexp_inv(manifold: Manifold, delta: Array, k: Array) -> Array:
    """The derivative of dexp^-1(delta) k in delta, (N, ndx, ndx), from delta (N, ndx), k (N, ndx); by dual numbers."""
    n, ndx = delta.shape
    result = np.zeros((n, ndx, ndx))
    start = 0
    for group in manifold.groups:
        block = slice(start, start + group.nv)
        start += group.nv
        if group.to_se3 is None:
            continue
        d = Dual.seed(delta[:, block].T, np.eye(group.nv))
        components = group.dexp_inv([d[i] for i in range(group.nv)], list(k[:, block].T))
        result[:, block, block] = np.stack([c.tan for c in components], axis=1)
    return result
