"""A map made of two: r(x, u, t, p) = outer(inner(x, u, t, p), p), with the derivatives of both by the chain rule.

The inner map is a costly one that writes out its derivatives, such as the forces of contacts; the outer one is a short function of
rows, whose derivatives are found by forward differentiation, or by CasADi where it is traced.  So cones, barriers and softened
constraints of such maps need no derivatives of their own, and an engine may compute the inner map by other means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import HasRecursions, Partials
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.dual import Dual

ca = deferred("casadi")
Given = Mapping[str, Rows]
Outer = Callable[[Rows, Given], Sequence[Scalar]]


def all_given(p: Given) -> Given:
    """The parameters as they are."""
    return p


class ComposedMap:
    """inner: a map with ``partials``. outer(y, p): as many scalars as there are names, of rows y = inner(x, u, t, given(p)).

    given: the parameters of the inner map from those of this one.
    """

    def __init__(
        self, inner: Any, outer: Outer, output_names: tuple[str, ...], given: Callable[[Given], Given] = all_given
    ) -> None:
        self.inner, self.outer, self.given = inner, outer, given
        self.manifold, self.nu, self.control_names = inner.manifold, inner.nu, inner.control_names
        self.output_names, self.n_out = output_names, len(output_names)

    def until_compiled(self, driver: Any) -> ComposedMap:
        """See :class:`~dynamics_backends.protocol.HasRecursions`."""
        other = copy(self)
        other.inner = self.inner.until_compiled(driver) if isinstance(self.inner, HasRecursions) else self.inner
        return other

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Rows:
        """Rows (n_out, N)."""
        return sm.stack(list(self.outer(self.inner(x, u, t, self.given(p)), p)))

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Partials:
        """Closed form: the derivatives of the inner map through those of the outer one."""
        own = self.inner.partials(x, u, t, self.given(p))
        y = sm.stack(list(own.value)) if isinstance(own.value, list) else own.value
        slopes = _slopes(self.outer, y, p)

        def chained(of: Any) -> list[Rows]:
            if not len(of):  # of a map without controls
                return []
            return [sum((s * of[j] for j, s in row.items()), 0.0 * of[0]) for row in slopes]

        return Partials(sm.stack(list(self.outer(y, p))), chained(own.fx), chained(own.fu))


def _slopes(outer: Outer, y: Rows, p: Given) -> list[dict[int, Scalar]]:
    """The derivatives of a function of rows y (n, N), by output and row, those that are zero by structure left out."""
    n = len(y) if isinstance(y, np.ndarray) else y.shape[0]
    if hasattr(y, "is_symbolic"):
        symbol = ca.SX.sym("y", n)
        J = ca.substitute(ca.jacobian(ca.vertcat(*outer(symbol, p)), symbol), symbol, y)
        return [{j: J[i, j] for j in range(n) if not J[i, j].is_zero()} for i in range(J.shape[0])]
    rows = outer(Dual.seed(y, np.eye(n)), p)
    found = [row.tan if isinstance(row, Dual) else np.zeros((*np.shape(row), n)) for row in rows]
    return [{j: tangent[..., j] for j in range(n) if np.any(tangent[..., j])} for tangent in found]


def composed(map: Any, outer: Outer, given: Callable[[Given], Given] = all_given) -> ComposedMap:
    """outer(map(x, u, t, given(p)), p) with the output names of a map with partials, one that is composed taken apart."""
    if not isinstance(map, ComposedMap):
        return ComposedMap(map, outer, map.output_names, given)
    within = map

    def both(y: Rows, p: Given) -> Sequence[Scalar]:
        return outer(sm.stack(list(within.outer(y, given(p)))), p)

    return ComposedMap(within.inner, both, within.output_names, lambda p: within.given(given(p)))
