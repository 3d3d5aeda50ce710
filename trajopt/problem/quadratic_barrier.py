"""Quadratic barrier for bounds: 1/2 w |g - P(g)|^2, with P the projection on [lower, upper].

The cost is zero within the bounds and once differentiable at them (Crocoddyl's ActivationModelQuadraticBarrier). For continuous
second derivatives, use :func:`~trajopt.problem.constraints.softened`, which rounds the corner. Analytic derivatives of a residual
are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.protocol import HasPartials, Map
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.constraints import UNBOUNDED, Constraint
from trajopt.problem.residuals import limit_excess
from trajopt.problem.terms import CostTerm, Values


def quadratic_barrier(constraint: Constraint, weight: Values = 1.0, name: str | None = None) -> CostTerm:
    """Cost term for the bounds of a constraint; weight: a number, (nr,) or (N, nr)."""
    low, high = constraint.lower, constraint.upper
    present = [np.isfinite(b).reshape(-1, b.shape[-1]).any(axis=0).tolist() for b in (low, high)]
    finite = tuple(zip(*present, strict=True))
    bounds = {"lower": np.maximum(low, -UNBOUNDED), "upper": np.minimum(high, UNBOUNDED)}
    own = constraint.residual
    residual: Map = (
        composed(own, partial(_excess_rows, finite)) if isinstance(own, HasPartials) else _Excess(own, finite)
    )
    return CostTerm(name or constraint.name, residual, np.asarray(weight), {**constraint.parameters, **bounds})


class _Excess:
    """Map g - P(g) of a map g. finite: flags (lower, upper) of the finite bounds of each output."""

    def __init__(self, g: Map, finite: Sequence[tuple[bool, bool]]) -> None:
        self.g, self.finite = g, finite
        self.manifold, self.nu, self.n_out = g.manifold, g.nu, g.n_out
        self.output_names, self.control_names = g.output_names, g.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return sm.stack(_excess_rows(self.finite, self.g(x, u, t, p), p))


def _excess_rows(finite: Sequence[tuple[bool, bool]], g: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
    """Components of g - P(g)."""
    return limit_excess(range(len(finite)), finite, g, None, None, p)
