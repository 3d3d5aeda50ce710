"""A problem on a Lie group as one on a vector space: x_k = reference_k (+) delta_k.

Sparse programs need variables in R^n. Every residual and time step is composed with the charts, whose references are
run-time parameters, so that all derivatives, second ones too, are those in delta, at every delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, Hessians, Map, Parameters
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP, DiscreteMap, LinearizedStep, Phase, Sampling, StepContraction
from trajopt.problem.terms import CostTerm
from trajopt.stage.knots import CHART, NEXT_CHART
from trajopt.step.contraction import contraction_of
from trajopt.step.manifold_curvature import difference_curvature, integrate_curvature

Part = TypeVar("Part", CostTerm, Constraint)


class ChartedMap:
    """A residual as a map of delta; the parameter ``chart`` is the reference."""

    def __init__(self, map: Map) -> None:
        self.inner = map
        self.manifold = Manifold.vector(map.manifold.ndx, map.manifold.tangent_names)
        self.nu, self.n_out = map.nu, map.n_out
        self.output_names, self.control_names = map.output_names, map.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N)."""
        own = {key: value for key, value in p.items() if key != CHART}
        return self.inner(self.inner.manifold.integrate(p[CHART], x), u, t, own)


class ChartedStep:
    """A time step between charts: a :class:`~trajopt.problem.ocp.DiscreteMap` on R^ndx."""

    sampling: Sampling | None = None

    def __init__(self, inner: DiscreteMap) -> None:
        self.inner = inner
        self.manifold = Manifold.vector(inner.manifold.ndx, inner.manifold.tangent_names)
        self.nu, self.control_names = inner.nu, inner.control_names
        self.takes_time = inner.takes_time

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """delta_next (N, ndx)."""
        chart, next_chart, own = _charts(p)
        manifold = self.inner.manifold
        x_next = self.inner.step(manifold.integrate(chart.T, x.T).T, u, t, dt, own)
        return np.ascontiguousarray(manifold.difference(next_chart.T, x_next.T).T)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """delta_next with its derivatives."""
        chart, next_chart, own = _charts(p)
        manifold = self.inner.manifold
        x_next, A, B = self.inner.linearize(manifold.integrate(chart.T, x.T).T, u, t, dt, own)
        end = np.ascontiguousarray(manifold.difference(next_chart.T, x_next.T).T)
        _, into = manifold.d_integrate(x)
        _, out = manifold.d_difference(end)
        return LinearizedStep(end, out @ A @ into, out @ B)

    @property
    def contract(self) -> StepContraction:
        """Second derivatives of lam' delta_next: those of the step, seen through the charts, and those of the charts."""
        contraction, manifold = contraction_of(self.inner, from_source=True), self.inner.manifold

        def contracted(x: Array, u: Array, t: Any, dt: Any, p: Parameters | None, lam: Array) -> Hessians:
            chart, next_chart, own = _charts(p)
            at = np.ascontiguousarray(manifold.integrate(chart.T, x.T).T)
            x_next, A, B = self.inner.linearize(at, u, t, dt, own)
            end = np.ascontiguousarray(manifold.difference(next_chart.T, x_next.T).T)
            (_, into), (_, out) = manifold.d_integrate(x), manifold.d_difference(end)
            lam_next = (lam[:, None] @ out)[:, 0]
            xx, ux, uu = contraction(at, u, t, dt, own, lam_next)
            gap, J = difference_curvature(manifold, end, lam), np.concatenate([A, B], axis=2)
            H = J.transpose(0, 2, 1) @ gap @ J
            n, turned = A.shape[2], into.transpose(0, 2, 1)
            bend = integrate_curvature(manifold, x, (lam_next[:, None] @ A)[:, 0]).ee
            xx, ux, uu = xx + H[:, :n, :n], ux + H[:, n:, :n], uu + H[:, n:, n:]
            return Hessians(turned @ xx @ into + bend, ux @ into, uu)

        return contracted


def charted(ocp: OCP, xs: Array) -> OCP:
    """The problem in deltas about the states xs (N + 1, nx): x0 becomes its own delta, every manifold R^ndx."""
    phases = []
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        here, ahead = xs[knots], xs[knots.start + 1 : knots.stop + 1]
        values = {**phase.parameters, CHART: here, NEXT_CHART: ahead}
        terms = tuple(_about(term, here) for term in phase.terms)
        constraints = tuple(_about(c, here) for c in phase.constraints)
        phases.append(Phase(ChartedStep(phase.dynamics), phase.dt, terms, values, constraints))
    x0 = ocp.manifold.difference(xs[:1].T, ocp.x0[:, None])[:, 0]
    terminal = tuple(_about(term, xs[-1:]) for term in ocp.terminal)
    final = tuple(_about(c, xs[-1:]) for c in ocp.terminal_constraints)
    return replace(ocp, phases=tuple(phases), x0=x0, terminal=terminal, terminal_constraints=final)


def _about(part: Part, chart: Array) -> Part:
    """A term or constraint in deltas about the states of its knots."""
    if not part.residual.manifold.nx:
        return part
    residual: Any = part.residual
    return replace(part, residual=_charted_map(residual), parameters={**part.parameters, CHART: chart})


@lru_cache(maxsize=256)
def _charted_map(map: Any) -> ChartedMap:
    return ChartedMap(map)


def _charts(p: Parameters | None) -> tuple[Array, Array, Parameters]:
    assert p is not None
    return p[CHART], p[NEXT_CHART], {key: v for key, v in p.items() if key not in (CHART, NEXT_CHART)}
