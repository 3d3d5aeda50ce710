"""Analytic derivatives defined by the map: first order, and second order contracted with a vector if available."""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.base import Method, SecondOrderMethod
from dynamics_backends.protocol import (
    Array,
    Batch,
    HasContraction,
    HasPartials,
    Hessians,
    Jacobians,
    Map,
    Matrix,
    MissingCapability,
    Partials,
    unwrapped,
)


class Analytic(Method):
    """Analytic first derivatives of a map; raises MissingCapability if the map has none."""

    name = "analytic"

    def __init__(self, map: Map) -> None:
        own = unwrapped(map)
        if not isinstance(own, HasPartials):
            raise MissingCapability(without_partials(map))
        super().__init__(map)
        self._own = own

    @classmethod
    def of(cls, map: Map) -> Analytic:
        """Create the method for a map, with second derivatives if the map has them."""
        return AnalyticSecondOrder(map) if isinstance(unwrapped(map), HasContraction) else Analytic(map)

    def _jacobians(self, b: Batch) -> Jacobians:
        """Jacobians, batch first, by the map's ``partials``."""
        return self._batch_first(self._own.partials(*b), b.size)

    def _batch_first(self, first: Partials, size: int) -> Jacobians:
        """Jacobians, batch first, from the partial derivatives by rows."""
        n, ndx, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
        value = np.ascontiguousarray(np.asarray(first.value).T)
        return Jacobians(value, batch_first(first.fx, n, ndx, size), batch_first(first.fu, n, nu, size))


class AnalyticSecondOrder(Analytic, SecondOrderMethod):
    """:class:`Analytic` method of a map with second derivatives; raises MissingCapability if the map has none."""

    def __init__(self, map: Map) -> None:
        super().__init__(map)
        own = unwrapped(map)
        if not isinstance(own, HasContraction):
            raise MissingCapability(
                f"{type(own).__name__} has no analytic second derivatives; choose backend = 'forward_ad'"
            )
        self._contracted = own.contracted

    def _contraction(self, b: Batch, lam: Array) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out), by the map's ``contracted``."""
        first, (xx, ux, uu) = self._contracted(*b, lam.T)
        ndx, nu = self.map.manifold.ndx, self.map.nu
        second = Hessians(
            batch_first(xx, ndx, ndx, b.size), batch_first(ux, nu, ndx, b.size), batch_first(uu, nu, nu, b.size)
        )
        return self._batch_first(first, b.size), second


def without_partials(map: Map) -> str:
    """Error message, with the remedy, for a map without analytic partial derivatives."""
    return (
        f"{type(unwrapped(map)).__name__} has no analytic derivatives; choose backend = 'forward_ad' or 'complex_step', which need "
        "only its source"
    )


def batch_first(M: Matrix, rows: int, columns: int, size: int) -> Array:
    """Matrices (size, rows, columns) from M, ``rows`` rows (columns, N) with N = size, or (columns, 1) for constant ones."""
    out = np.empty((size, rows, columns))
    for i, row in enumerate(M):
        out[:, i] = np.asarray(row).T
    return out
