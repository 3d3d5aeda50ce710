"""Composition of two maps: r(x, u, t, p) = outer(inner(x, u, t, given(p)), p), with derivatives by the chain rule.

``given`` computes the parameters of the inner map from those of the composed map, by default the same.

The inner map is costly and has analytic derivatives, such as contact forces.  The outer map is a short function of rows,
differentiated by forward AD, or by CasADi if it is traced.  Friction cones, barriers and softened constraints of such maps thus
need no hand-written derivatives, and an engine may compute the inner map differently.

If the inner map has second derivatives, so has the composed one: with weights lam of the outputs, y the inner value and
w = (dx, du),

    lam' r_ww = (lam' outer_y) inner_ww + inner_w' (lam' outer_yy) inner_w
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import (
    Contraction,
    HasContraction,
    HasPartials,
    HasRecursions,
    HasSecondDerivatives,
    Matrix,
    Partials,
)
from dynamics_backends.scalar import STEP, Rows, Scalar
from dynamics_backends.scalars.dual import Dual

ca = deferred("casadi")
Given = Mapping[str, Rows]
Outer = Callable[[Rows, Given], Sequence[Scalar]]


def all_given(p: Given) -> Given:
    """Return the parameters unchanged."""
    return p


class _Composition:
    """Composition of a map ``inner`` and ``outer(y, p)`` of rows y = inner(x, u, t, given(p)).

    outer returns one scalar for each output name. given: computes the parameters of the inner map from those of this map.
    """

    def __init__(
        self, inner: Any, outer: Outer, output_names: tuple[str, ...], given: Callable[[Given], Given] = all_given
    ) -> None:
        self.inner, self.outer, self.inner_parameters = inner, outer, given
        self.manifold, self.nu, self.control_names = inner.manifold, inner.nu, inner.control_names
        self.output_names, self.n_out = output_names, len(output_names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Rows:
        """Rows (n_out, N) of the value outer(inner(x, u, t, given(p)), p)."""
        return sm.stack(list(self.outer(self.inner(x, u, t, self.inner_parameters(p)), p)))


class PlainComposedMap(_Composition):
    """Composed map whose inner map has no ``partials``: both are differentiated together, as one function."""

    @property
    def map(self) -> Any:
        """The inner map."""
        return self.inner


class ComposedMap(_Composition):
    """Composed map whose inner map has ``partials``."""

    def with_recursions(self, driver: Any) -> ComposedMap:
        """Copy whose inner map has its recursions evaluated by ``driver``; an inner map without recursions is unchanged."""
        other = copy(self)
        other.inner = self.inner.with_recursions(driver) if isinstance(self.inner, HasRecursions) else self.inner
        return other

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Partials:
        """Value and derivatives in x and u by the chain rule: the analytic ones of the inner map times those of ``outer``.

        Those of ``outer`` are by forward AD, or by CasADi for symbols.
        """
        return self._chained(*self._first_derivatives(x, u, t, p), p)

    def _first_derivatives(self, x: Rows, u: Rows, t: Scalar, p: Given) -> tuple[Partials, list[dict[int, Scalar]]]:
        """Value (rows) and derivatives of the inner map, and the derivatives of the outer function at this value."""
        own = self.inner.partials(x, u, t, self.inner_parameters(p))
        y = sm.stack(list(own.value)) if isinstance(own.value, list) else own.value
        return own._replace(value=y), outer_jacobian(self.outer, y, p)

    def _chained(self, own: Partials, slopes: list[dict[int, Scalar]], p: Given) -> Partials:
        """Value and derivatives of the composed map by the chain rule; fx or fu is [] if the inner map's is empty.

        own: value and derivatives of the inner map; slopes: d outer / d y by output and row of y.
        """

        def chained(M: Any) -> list[Rows]:
            """Rows of the product of the slopes and the inner derivatives M; [] if M has no rows."""
            if not len(M):  # a map without controls
                return []
            return [sum((s * M[j] for j, s in row.items()), 0.0 * M[0]) for row in slopes]

        return Partials(sm.stack(list(self.outer(own.value, p))), chained(own.fx), chained(own.fu))


class CurvedComposedMap(ComposedMap):
    """Composed map whose inner map has second derivatives."""

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Given, lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives, and the second derivatives of lam' r by the chain rule, with y = inner and w = (x, u):

        (lam' outer_y) inner_ww + inner_w' (lam' outer_yy) inner_w.
        """
        own, slopes = self._first_derivatives(x, u, t, p)
        zero = 0.0 * own.value[0]
        through = [
            sum((lam[i] * row[j] for i, row in enumerate(slopes) if j in row), zero) for j in range(self.inner.n_out)
        ]
        xx, ux, uu = self._inner_second_derivatives(x, u, t, self.inner_parameters(p), sm.stack(through))
        _, second = outer_hessian(self.outer, own.value, p, lam)
        if not second:
            return self._chained(own, slopes, p), Contraction(xx, ux, uu)
        in_x, in_u = (_weighted(second, M) for M in (own.fx, own.fu))
        along = Contraction(_sum(own.fx, in_x, xx), _sum(own.fu, in_x, ux), _sum(own.fu, in_u, uu))
        return self._chained(own, slopes, p), along

    def _inner_second_derivatives(self, x: Rows, u: Rows, t: Scalar, p: Given, lam: Rows) -> Contraction:
        """Second derivatives of lam' inner by its method ``second_derivatives`` if it has this method, else by ``contracted``."""
        inner: Any = self.inner
        return (
            inner.second_derivatives(x, u, t, p, lam)
            if isinstance(inner, HasSecondDerivatives)
            else inner.contracted(x, u, t, p, lam)[1]
        )


def _weighted(weights: Mapping[int, Mapping[int, Scalar]], rows: Matrix) -> dict[int, Rows]:
    """Rows of W M by index, for the rows of W that ``weights`` contains: row -> column -> entry; rows: M. {} if M has no rows."""
    return (
        {j: sum((c * rows[k] for k, c in own.items()), 0.0 * rows[j]) for j, own in weights.items()}
        if len(rows)
        else {}
    )


def _sum(left: Matrix, right: Mapping[int, Rows], more: Matrix) -> list[Rows]:
    """Rows of left' right + more, with ``right`` as row index -> row and missing rows zero."""
    return [row + sum((left[j][a] * along for j, along in right.items()), 0.0 * row) for a, row in enumerate(more)]


def outer_jacobian(outer: Outer, y: Rows, p: Given) -> list[dict[int, Scalar]]:
    """Derivatives of ``outer`` by the rows of y (n, N), by forward AD, or by CasADi for symbols.

    Returns a list with a dict for each output: row of y -> derivative, without rows whose derivative is zero at all points.
    """
    n = len(y) if isinstance(y, np.ndarray) else y.shape[0]
    if hasattr(y, "is_symbolic"):
        symbol = ca.SX.sym("y", n)
        J = ca.substitute(ca.jacobian(ca.vertcat(*outer(symbol, p)), symbol), symbol, y)
        return [{j: J[i, j] for j in range(n) if not J[i, j].is_zero()} for i in range(J.shape[0])]
    rows = outer(Dual.seed(y, np.eye(n)), p)
    found = [row.tan if isinstance(row, Dual) else np.zeros((*np.shape(row), n)) for row in rows]
    return [_nonzero(tangent) for tangent in found]


def outer_hessian(
    outer: Outer, y: Rows, p: Given, lam: Rows, first: int = 0
) -> tuple[list[Scalar], dict[int, dict[int, Scalar]]]:
    """Gradient of lam' outer in the rows of y, and second derivatives: row -> row -> derivative, without those that are zero at
    all points, and without the rows before ``first``.
    """
    n = len(y) if isinstance(y, np.ndarray) else y.shape[0]
    if hasattr(y, "is_symbolic"):
        symbol, weights = ca.SX.sym("y", n), ca.SX.sym("lam", lam.shape[0])
        H, gradient = ca.hessian(ca.dot(weights, ca.vertcat(*outer(symbol, p))), symbol)
        H, gradient = ca.substitute([H, gradient], [symbol, weights], [y, lam])
        found = {j: {k: H[j, k] for k in range(n) if not H[j, k].is_zero()} for j in range(first, n)}
        return [gradient[j] for j in range(n)], {j: row for j, row in found.items() if row}
    steps = 1j * STEP * np.eye(n)[:, first:, None]  # (n, n - first, 1): a point for each row
    H = _gradient(outer, y[:, None] + steps, p, lam).imag / STEP
    found = {first + j: _nonzero(row) for j, row in enumerate(H)}
    return list(np.moveaxis(_gradient(outer, y, p, lam), -1, 0)), {j: row for j, row in found.items() if row}


def _gradient(outer: Outer, y: Any, p: Given, lam: Rows) -> Any:
    """Gradient (..., N, n) of lam' outer at y (n, ..., N), real or complex, by dual numbers."""
    rows = outer(Dual.seed(y, np.eye(len(y))), p)
    tangents = [lam[i][..., None] * row.tan for i, row in enumerate(rows) if isinstance(row, Dual)]
    return sum(tangents, np.zeros((*np.shape(y[0]), len(y)), y.dtype))


def _nonzero(rows: Any) -> dict[int, Any]:
    """Columns of rows (..., n) that are not zero at all points."""
    return {int(j): rows[..., j] for j in np.flatnonzero(rows.any(axis=tuple(range(rows.ndim - 1))))}


def composed(
    map: Any, outer: Outer, given: Callable[[Given], Given] = all_given, names: tuple[str, ...] | None = None
) -> Any:
    """Map outer(map(x, u, t, given(p)), p); names: of its outputs, default those of ``map``.

    Returns a ComposedMap if the map has partials, a CurvedComposedMap if it has second derivatives too, else a PlainComposedMap.
    If the map is itself a ComposedMap, its inner map is composed with both outer functions.
    """
    if isinstance(map, ComposedMap):
        composition = map

        def both(y: Rows, p: Given) -> Sequence[Scalar]:
            """Outer function of the composed map, followed by ``outer``."""
            return outer(sm.stack(list(composition.outer(y, given(p)))), p)

        return composed(
            composition.inner, both, lambda p: composition.inner_parameters(given(p)), names or composition.output_names
        )
    kind: type[_Composition] = PlainComposedMap
    if isinstance(map, HasPartials):
        curved = (
            map.has_second_derivatives if isinstance(map, HasSecondDerivatives) else isinstance(map, HasContraction)
        )
        kind = CurvedComposedMap if curved else ComposedMap
    return kind(map, outer, names or map.output_names, given)
