"""A quadratic barrier for any bounds: 1/2 w |g - P(g)|^2, with P the projection on [lower, upper].

It costs nothing within the bounds and is once differentiable at them (Crocoddyl's ActivationModelQuadraticBarrier); where second
derivatives matter there, :func:`~trajopt.problem.constraints.softened` rounds the corner. A residual that writes out its own
derivatives keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import HasPartials, Map, Matrix, Partials
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.constraints import UNBOUNDED, Constraint
from trajopt.problem.residuals import limit_excess
from trajopt.problem.terms import CostTerm, Values


def quadratic_barrier(constraint: Constraint, weight: Values = 1.0, name: str | None = None) -> CostTerm:
    """The bounds of a constraint as a cost; weight: a number, (nr,) or (N, nr)."""
    low, high = constraint.lower, constraint.upper
    present = [np.isfinite(b).reshape(-1, b.shape[-1]).any(axis=0).tolist() for b in (low, high)]
    finite = tuple(zip(*present, strict=True))
    kind = _ExcessInClosedForm if isinstance(constraint.residual, HasPartials) else _Excess
    bounds = {"lower": np.maximum(low, -UNBOUNDED), "upper": np.minimum(high, UNBOUNDED)}
    residual: Map = kind(constraint.residual, finite)
    return CostTerm(name or constraint.name, residual, np.asarray(weight), {**constraint.parameters, **bounds})


class _Excess:
    """g - P(g) of a map g; finite: which of (lower, upper) each output has."""

    def __init__(self, g: Map, finite: Sequence[tuple[bool, bool]]) -> None:
        self.g, self.finite = g, finite
        self.manifold, self.nu, self.n_out = g.manifold, g.nu, g.n_out
        self.output_names, self.control_names = g.output_names, g.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return self._beyond(self.g(x, u, t, p), u, t, p)

    def _beyond(self, g: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return sm.stack(limit_excess(range(self.n_out), self.finite, g, u, t, p))


class _ExcessInClosedForm(_Excess):
    """The same of a map that has partials: they count where a bound is passed."""

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """See :class:`~dynamics_backends.protocol.HasPartials`."""
        g: Any = self.g
        value, fx, fu = g.partials(x, u, t, p)
        counts = [self._counts(value[i], p["lower"][i], p["upper"][i], *f) for i, f in enumerate(self.finite)]
        return Partials(self._beyond(value, u, t, p), _scaled(fx, counts), _scaled(fu, counts))

    def _counts(self, g: Scalar, lower: Scalar, upper: Scalar, has_lower: bool, has_upper: bool) -> Scalar:
        one, zero = 1.0 + 0.0 * g, 0.0 * g
        over = sm.select(g - upper, one, zero) if has_upper else zero
        return over + sm.select(lower - g, one, zero) if has_lower else over


def _scaled(M: Matrix, factors: Sequence[Scalar]) -> Matrix:
    return [[f * e for e in row] if isinstance(row, list) else f * row for row, f in zip(M, factors, strict=True)]
