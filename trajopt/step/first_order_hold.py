"""First-order hold: controls change linearly over a time step, u(t) = u_k + s (u_(k+1) - u_k) with s = (t - t_k) / dt_k.

A time step with this hold has the controls (u_k, u_(k+1)):

    d f/d u_k = (1 - s) f_u      d f/d u_(k+1) = s f_u

Internally, f reads the line (u_k, u_(k+1), t_k, dt_k) as its controls; derivatives in t_k and dt_k are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import (
    Array,
    DampsImplicitly,
    DynamicsBackend,
    Hessians,
    Jacobians,
    Map,
    Parameters,
    SecondOrderBackend,
    damping_offsets,
    is_second_order,
    unwrapped,
)
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.ocp import LinearizedStep, Sampling, StepContraction
from trajopt.step.sensitivities import SampledSystem, contraction_of


class HeldStep:
    """Sampled system with a first-order hold: a :class:`~trajopt.problem.ocp.DiscreteMap` of the controls at both ends."""

    takes_time = True
    sampling: Sampling | None = None

    def __init__(self, sampled: SampledSystem) -> None:
        self.inner = SampledSystem(_HeldBackend.from_backend(sampled.backend), sampled.scheme, sampled.substeps)
        self.manifold, self.nu = sampled.manifold, 2 * sampled.nu
        self.control_names = self.inner.control_names[: self.nu]

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """Return x_next (N, nx) from x (N, nx) and controls u = (u_k, u_(k+1)), (N, 2 nu of the system)."""
        return self.inner.step(x, _line(u, t, dt), t, dt, p)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """Return x_next (N, nx), A (N, ndx, ndx), B (N, ndx, nu), with nu controls (u_k, u_(k+1))."""
        x_next, A, B = self.inner.linearize(x, _line(u, t, dt), t, dt, p)
        return LinearizedStep(x_next, A, B[:, :, : self.nu])

    @property
    def contract(self) -> StepContraction:
        """Function for the second derivatives of the step, by forward differentiation if the backend has none.

        Raises MissingCapability if that is impossible too.
        """
        contraction, m = contraction_of(self.inner, from_source=True), self.nu

        def contracted(x: Array, u: Array, t: Any, dt: Any, p: Parameters | None, lam: Array) -> Hessians:
            """Second derivatives of lam' x_next in x and (u_k, u_(k+1))."""
            xx, ux, uu = contraction(x, _line(u, t, dt), t, dt, p, lam)
            return Hessians(xx, ux[:, :m], uu[:, :m, :m])

        return contracted


class _HeldMap:
    """Map with controls (u_k, u_(k+1), t_k, dt_k), followed by the offsets of an implicitly damped system."""

    def __init__(self, map: Map) -> None:
        self.held = map
        self.offsets = damping_offsets(map)
        self._nu_inner = map.nu - (self.offsets or 0)
        names = map.control_names[: self._nu_inner]
        self.manifold, self.nu, self.n_out = map.manifold, self._nu_inner + map.nu + 2, map.n_out
        self.output_names = map.output_names
        following = (f"next {name}" for name in names)
        ends = ("start of the step", "length of the step")
        self.control_names = (*names, *following, *ends, *map.control_names[self._nu_inner :])
        self.second_order = is_second_order(map)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Evaluate the inner map at time t with interpolated controls; returns rows (n_out, N).

        u: (u_k, u_(k+1), t_k, dt_k), then the offsets of an implicitly damped system.
        """
        m = self._nu_inner
        s = (t - u[2 * m]) / u[2 * m + 1]
        behind = (u[i] for i in range(2 * m + 2, self.nu))
        return self.held(x, sm.stack([*(u[i] + s * (u[m + i] - u[i]) for i in range(m)), *behind]), t, p)

    @property
    def damps(self) -> bool:
        """True if the map has damping that can be implicit."""
        own = unwrapped(self.held)
        return isinstance(own, DampsImplicitly) and own.damps

    def implicit(self, *, offset: bool) -> _HeldMap:
        """Held map with implicit damping; offset: with controls for the velocity offset at which the damping acts."""
        return _HeldMap(unwrapped(self.held).implicit(offset=offset))


class _HeldBackend:
    """Backend of a held map, with derivatives by the chain rule from the backend of the inner map; zero in t_k and dt_k."""

    def __init__(self, backend: DynamicsBackend) -> None:
        self.inner = backend
        self.map: Map = _HeldMap(backend.map)
        self.name, self.engine, self.options = backend.name, backend.engine, backend.options

    @classmethod
    def from_backend(cls, backend: DynamicsBackend) -> _HeldBackend:
        """Held backend, with second derivatives if the inner backend has them."""
        return _HeldSecondOrder(backend) if isinstance(backend, SecondOrderBackend) else cls(backend)

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """Value (N, n_out) of the held map at controls u (N, nu of the held map)."""
        return self.inner.f(x, self._controls_at(u, t)[0], t, p)

    def jacobians(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Jacobians:
        """Value and Jacobians of the held map in x and in its controls (u_k, u_(k+1), t_k, dt_k, offsets); zero in t_k and dt_k."""
        now, s = self._controls_at(u, t)
        return _held_jacobians(self.inner.jacobians(x, now, t, p), s, self._m)

    def of_stages(self, stages: Callable[[DynamicsBackend], DynamicsBackend]) -> _HeldBackend:
        """Held backend of ``stages(inner)``; this one if ``stages`` returns the inner backend unchanged."""
        inner = stages(self.inner)
        return self if inner is self.inner else _HeldBackend.from_backend(inner)

    @property
    def _m(self) -> int:
        """Number of controls of the inner map, without offsets."""
        return self.inner.map.nu - (damping_offsets(self.map) or 0)

    def _controls_at(self, u: Array, t: Array | float) -> tuple[Array, Array]:
        """Interpolated controls at t, followed by the offsets, (N, nu of the inner map), and the fraction s (N, 1) of the step."""
        m = self._m
        s = ((np.asarray(t) - u[:, 2 * m]) / u[:, 2 * m + 1]).reshape(-1, 1)
        return np.concatenate([u[:, :m] + s * (u[:, m : 2 * m] - u[:, :m]), u[:, 2 * m + 2 :]], axis=1), s


class _HeldSecondOrder(_HeldBackend):
    """Held backend with second derivatives."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """Jacobians, and second derivatives contracted with lam, of the held map."""
        now, s = self._controls_at(u, t)
        first, (xx, ux, uu) = self.inner.hessian_contraction(x, now, t, p, lam)  # type: ignore[attr-defined]
        Z = _controls_by_line(s, self._m, now.shape[1])
        Zt = Z.transpose(0, 2, 1)
        return _held_jacobians(first, s, self._m), Hessians(xx, Zt @ ux, Zt @ uu @ Z)


def _controls_by_line(s: Array, m: int, size: int) -> Array:
    """Derivative (N, size, size + m + 2) of the ``size`` controls of the inner map in those of the held map; m: without offsets."""
    Z = np.zeros((len(s), size, size + m + 2))
    Z[:, range(m), range(m)], Z[:, range(m), range(m, 2 * m)] = 1.0 - s, s
    Z[:, range(m, size), range(2 * m + 2, size + m + 2)] = 1.0
    return Z


def _held_jacobians(first: Jacobians, s: Array, m: int) -> Jacobians:
    """Jacobians of the held map from those of the inner map, by the chain rule."""
    return Jacobians(first.value, first.fx, first.fu @ _controls_by_line(s, m, first.fu.shape[2]))


def _line(u: Array, t: Array | float, dt: Array | float) -> Array:
    """Controls (u_k, u_(k+1), t_k, dt_k) of the held map, (N, nu + 2), from u = (u_k, u_(k+1)), (N, nu), t and dt."""
    u = np.asarray(u, float)
    ends = (np.broadcast_to(np.asarray(v, float), (len(u),))[:, None] for v in (t, dt))
    return np.concatenate([u, *ends], axis=1)
