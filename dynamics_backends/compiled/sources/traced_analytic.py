"""Analytic derivatives of a map as straight-line compiled code: value, partials and contraction traced as a whole.

For maps whose closed forms consist of many small parts, such as robots in contact: many NumPy operations on batches become a few
instructions for a block of knots.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.kernel import CompiledKernel, HoldsKernels
from dynamics_backends.compiled.loops.unrolled import straight_kernel
from dynamics_backends.compiled.sources.constrained_source import derivatives_kernel
from dynamics_backends.compiled.sources.traced_map import TracedMap
from dynamics_backends.compiled.sources.traced_source import TooLong, TracedDynamics, short_enough
from dynamics_backends.methods.analytic import Analytic, AnalyticSecondOrder
from dynamics_backends.methods.symbolic_map import Symbols, TraceError
from dynamics_backends.protocol import Array, Batch, HasContraction, Hessians, Jacobians, Map, Parameters
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import ConstrainedDerivatives

_LOG = logging.getLogger(__name__)


class TracedAnalytic(HoldsKernels, Analytic):
    """Compiled :class:`~dynamics_backends.methods.analytic.Analytic`; NumPy evaluates maps that are too long or cannot be
    traced.
    """

    def __init__(self, map: Map) -> None:
        super().__init__(map)
        self.map = TracedMap(map)
        self._kernels: dict[tuple[bool, tuple[tuple[str, int], ...]], CompiledKernel | None] = {}

    @classmethod
    def of(cls, map: Map) -> TracedAnalytic:
        """Create the method for a map, with second derivatives if the map has them."""
        return TracedAnalyticSecondOrder(map) if isinstance(map, HasContraction) else TracedAnalytic(map)

    def _jacobians(self, b: Batch) -> Jacobians:
        kernel = self._kernel(b, second=False)
        return super()._jacobians(b) if kernel is None else Jacobians(*kernel(*arguments_of(b)))

    def _kernel(self, b: Batch, *, second: bool) -> CompiledKernel | None:
        key = (second, tuple((name, len(rows)) for name, rows in b.p.items()))
        if key not in self._kernels:
            self._kernels[key] = self._built(TracedDynamics(self._own, dict(key[1])), second)
        return self._kernels[key]

    def _built(self, traced: TracedDynamics, second: bool) -> CompiledKernel | None:
        m, n, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
        shapes: list[tuple[int, ...]] = [(m,), (m, n), (m, nu), *([(n, n), (nu, n), (nu, nu)] if second else [])]
        try:
            if isinstance(self._own, ConstrainedDerivatives):
                return CompiledKernel(derivatives_kernel(traced, second=second), None, shapes)
            if not second:
                return _compiled(traced.symbols, [], traced.first(), shapes)
            lam = ca.SX.sym("lam", m)
            return _compiled(traced.symbols, [lam], traced.both(lam), shapes)
        except (TooLong, TraceError) as reason:
            _LOG.info("derivatives are evaluated by NumPy: %s", reason)
            return None


class TracedAnalyticSecondOrder(TracedAnalytic, AnalyticSecondOrder):
    """:class:`TracedAnalytic` of a map with second derivatives."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """See :class:`~dynamics_backends.protocol.SecondOrderBackend`."""
        b = Batch.of(self.map, x, u, t, p)
        kernel = self._kernel(b, second=True)
        if kernel is None:
            return super().hessian_contraction(x, u, t, p, lam)
        results = kernel(*arguments_of(b), np.asarray(lam, float))
        return Jacobians(*results[:3]), Hessians(*results[3:])


def arguments_of(b: Batch) -> list[Array]:
    """Arguments of a map, batch first, in the order of Symbols."""
    return [rows.T for rows in (b.x, b.u, b.t[None], *b.p.values())]


def _compiled(
    symbols: Symbols, more: Sequence[Any], parts: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> CompiledKernel:
    inputs, names = [*symbols, *more], [*symbols.names, *(f"l{i}" for i in range(len(more)))]
    t = short_enough("the map", trace_expressions(inputs, [ca.densify(e) for e in parts]))
    outputs = [f"y{i}" for i in range(len(parts))]
    return CompiledKernel(straight_kernel("map_analytic", t, names, outputs, [s.numel() for s in inputs]), None, shapes)
