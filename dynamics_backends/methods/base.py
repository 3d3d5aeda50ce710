"""Base class of derivative methods: evaluation of the map, and perturbation of a batch in many directions.

A direction is one of the ndx + nu tangent directions of (x, u).  Complex steps and finite differences evaluate all knots and all K
directions as one batch, knot by knot: element ``i * K + k`` is knot i perturbed in direction k.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map, Parameters, unwrapped


class Compiled(Protocol):
    """Derivatives by compiled code."""

    def jacobians(self, method: Method, b: Batch) -> Jacobians | None:
        """Value and first derivatives by a method; None if compiled code cannot evaluate them."""

    def contraction(self, method: Method, b: Batch, lam: Array) -> tuple[Jacobians, Hessians] | None:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out); None as above."""


class Method:
    """Derivative method applied to a map; subclasses implement :meth:`_jacobians` on rows.

    compiled: derivatives by compiled code, or None.
    """

    name = ""
    engine = "numpy"
    compiled: Compiled | None = None
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, map: Map) -> None:
        self.map = map

    def __repr__(self) -> str:
        options = "".join(f", {key} = {value!r}" for key, value in self.options.items())
        return f"Backend({self.name!r}, {unwrapped(self.map)!r}, engine = {self.engine!r}{options})"

    @property
    def settings(self) -> tuple[Any, ...]:
        """Settings that the derivatives depend on, besides the method and the map; () by default."""
        return ()

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """Value (N, n_out) of the map."""
        return np.ascontiguousarray(self.map(*Batch.of(self.map, x, u, t, p)).T)

    def jacobians(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Jacobians:
        """Value (N, n_out), fx (N, n_out, ndx), fu (N, n_out, nu)."""
        b = Batch.of(self.map, x, u, t, p)
        found = None if self.compiled is None else self.compiled.jacobians(self, b)
        return self._jacobians(b) if found is None else found

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives, batch first; the base class raises TypeError."""
        raise TypeError(f"{type(self).__name__} is not a complete derivative method")

    def split(self, value: Array, both: Array) -> Jacobians:
        """Jacobians, batch first, from the value (n_out, N) and its derivatives (n_out, N, ndx + nu) in dx and then du."""
        both = both.transpose(1, 0, 2)
        ndx = self.map.manifold.ndx
        return Jacobians(np.ascontiguousarray(value.T), both[:, :, :ndx], both[:, :, ndx:])


class SecondOrderMethod(Method):
    """Method with second derivatives; subclasses implement :meth:`_contraction` too."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out)."""
        b, lam = Batch.of(self.map, x, u, t, p), np.asarray(lam, float)
        found = None if self.compiled is None else self.compiled.contraction(self, b, lam)
        return self._contraction(b, lam) if found is None else found

    def _contraction(self, b: Batch, lam: Array) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f; the base class raises TypeError."""
        raise TypeError(f"{type(self).__name__} has no second derivatives")


def perturbed(map: Map, b: Batch, steps: Array) -> Batch:
    """Batch of N K points: column i K + k of ``steps`` (ndx + nu, N K) perturbs knot i of a batch of N by a tangent step."""
    ndx = map.manifold.ndx
    many = b.repeated(steps.shape[1] // b.size)
    return many._replace(x=map.manifold.integrate(many.x, steps[:ndx]), u=many.u + steps[ndx:])


def one_at_a_time(map: Map, b: Batch, sizes: Array) -> Array:
    """Steps (K, N K) of :func:`perturbed`: column i K + k is sizes[k, i] in direction k; sizes (K, N), K = ndx + nu."""
    k, n = sizes.shape
    steps = np.zeros((k, n, k), dtype=sizes.dtype)
    steps[np.arange(k), :, np.arange(k)] = sizes
    return steps.reshape(k, n * k)
