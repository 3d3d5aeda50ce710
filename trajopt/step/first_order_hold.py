"""Controls that change linearly over a time step, u(t) = u_k + s (u_(k+1) - u_k) with s = (t - t_k) / dt_k.

A backend under this hold has the controls (u_k, u_(k+1)), and t_k and dt_k as run-time parameters:

    d f/d u_k = (1 - s) f_u      d f/d u_(k+1) = s f_u
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import (
    Array,
    DynamicsBackend,
    Hessians,
    Jacobians,
    Map,
    Parameters,
    SecondOrderBackend,
    is_second_order,
)
from dynamics_backends.scalar import Rows, Scalar
from trajopt.step.sensitivities import SampledSystem

START, LENGTH = "hold start", "hold length"
"""The parameters t_k and dt_k [s], each (1,) or (N, 1)."""


class HeldMap:
    """A map of the controls at both ends of a time step."""

    def __init__(self, map: Map) -> None:
        self.held = map
        self.manifold, self.nu, self.n_out = map.manifold, 2 * map.nu, map.n_out
        self.output_names = map.output_names
        self.control_names = (*map.control_names, *(f"next {name}" for name in map.control_names))
        self.second_order = is_second_order(map)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N)."""
        m = self.held.nu
        s = (t - p[START][0]) / p[LENGTH][0]
        now = sm.stack([u[i] + s * (u[m + i] - u[i]) for i in range(m)])
        return self.held(x, now, t, _without_hold(p))


class HeldBackend:
    """The derivatives of a :class:`HeldMap` from those of a backend of the map it holds."""

    def __init__(self, backend: DynamicsBackend) -> None:
        self.inner = backend
        self.map: Map = HeldMap(backend.map)
        self.name, self.engine = backend.name, backend.engine

    @classmethod
    def of(cls, backend: DynamicsBackend) -> HeldBackend:
        """With second derivatives, where the backend has them."""
        return HeldSecondOrder(backend) if isinstance(backend, SecondOrderBackend) else cls(backend)

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """The map's value (N, n_out)."""
        now, _, rest = self._now(u, t, p)
        return self.inner.f(x, now, t, rest)

    def jacobians(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Jacobians:
        """Value and partial derivatives."""
        now, s, rest = self._now(u, t, p)
        return self._both(self.inner.jacobians(x, now, t, rest), s)

    def _now(self, u: Array, t: Array | float, p: Parameters | None) -> tuple[Array, Array, Parameters]:
        """The controls (N, nu) at t, s (N, 1), and the map's own parameters."""
        assert p is not None
        s = ((np.asarray(t) - _column(p[START])) / _column(p[LENGTH])).reshape(-1, 1)
        m = self.inner.map.nu
        return u[:, :m] + s * (u[:, m:] - u[:, :m]), s, _without_hold(p)

    def _both(self, first: Jacobians, s: Array) -> Jacobians:
        share = s[:, :, None]
        return Jacobians(first.value, first.fx, np.concatenate([(1.0 - share) * first.fu, share * first.fu], axis=2))


class HeldSecondOrder(HeldBackend):
    """The same with second derivatives."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """See :class:`~dynamics_backends.protocol.SecondOrderBackend`."""
        now, s, rest = self._now(u, t, p)
        first, (xx, ux, uu) = self.inner.hessian_contraction(x, now, t, rest, lam)  # type: ignore[attr-defined]
        a, b = 1.0 - s[:, :, None], s[:, :, None]
        rows = [np.concatenate([a * a * uu, a * b * uu], axis=2), np.concatenate([a * b * uu, b * b * uu], axis=2)]
        second = Hessians(xx, np.concatenate([a * ux, b * ux], axis=1), np.concatenate(rows, axis=1))
        return self._both(first, s), second


def held(sampled: SampledSystem) -> SampledSystem:
    """The same sampled system under a first-order hold; its controls are (u_k, u_(k+1))."""
    return SampledSystem(HeldBackend.of(sampled.backend), sampled.scheme, sampled.substeps)


def _without_hold(p: Mapping[str, Rows]) -> dict[str, Rows]:
    return {key: value for key, value in p.items() if key not in (START, LENGTH)}


def _column(value: Array) -> Array:
    return value[:, 0] if value.ndim == 2 else value[0]
