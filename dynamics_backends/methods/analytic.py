"""The map's own closed-form derivatives: first order, and second order contracted with a vector where it has it."""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.base import Method
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
    Parameters,
    Partials,
    unwrapped,
)


class Analytic(Method):
    """First derivatives that the map supplies itself; raises MissingCapability for a map that does not."""

    name = "analytic"

    def __init__(self, map: Map) -> None:
        if not isinstance(map, HasPartials):
            raise MissingCapability(without_partials(map))
        super().__init__(map)
        self._own = map

    @classmethod
    def of(cls, map: Map) -> Analytic:
        """The method for a map: one with second derivatives, where the map has them."""
        return AnalyticSecondOrder(map) if isinstance(map, HasContraction) else Analytic(map)

    def _jacobians(self, b: Batch) -> Jacobians:
        return self._batch_first(self._own.partials(*b), b.size)

    def _batch_first(self, first: Partials, size: int) -> Jacobians:
        n, ndx, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
        value = np.ascontiguousarray(np.asarray(first.value).T)
        return Jacobians(value, batch_first(first.fx, n, ndx, size), batch_first(first.fu, n, nu, size))


class AnalyticSecondOrder(Analytic):
    """An :class:`Analytic` method of a map that has second derivatives."""

    def __init__(self, map: Map) -> None:
        super().__init__(map)
        if not isinstance(map, HasContraction):
            raise MissingCapability(
                f"{type(map).__name__} has no analytic second derivatives; choose backend = 'forward_ad'"
            )
        self._contracted = map.contracted

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """See :class:`~dynamics_backends.protocol.SecondOrderBackend`."""
        b = Batch.of(self.map, x, u, t, p)
        first, (xx, ux, uu) = self._contracted(*b, np.asarray(lam, float).T)
        ndx, nu = self.map.manifold.ndx, self.map.nu
        second = Hessians(
            batch_first(xx, ndx, ndx, b.size), batch_first(ux, nu, ndx, b.size), batch_first(uu, nu, nu, b.size)
        )
        return self._batch_first(first, b.size), second


def without_partials(map: Map) -> str:
    """The sentence for a map that has no partial derivatives of its own, with the remedy."""
    return (
        f"{type(unwrapped(map)).__name__} has no analytic derivatives; choose backend = 'forward_ad' or 'complex_step', which need "
        "nothing but its source"
    )


def batch_first(M: Matrix, rows: int, columns: int, size: int) -> Array:
    """(N, rows, columns) from rows (columns, N), or (columns, 1) where they are constant."""
    out = np.empty((size, rows, columns))
    for i, row in enumerate(M):
        out[:, i] = np.asarray(row).T
    return out
