"""Analytic derivatives of a map by tapes: value and first derivatives, or these and second derivatives, traced as a whole.

For maps whose closed forms consist of many small parts, such as robots in contact: NumPy operations on batches become
instructions on blocks of knots, and recursions that the library contains become calls of its kernels.
"""

from __future__ import annotations

import logging

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.sources.traced_source import TooLong, TracedDynamics, short_enough
from dynamics_backends.methods.analytic import Analytic, AnalyticSecondOrder
from dynamics_backends.methods.symbolic_map import TraceError, description
from dynamics_backends.protocol import Array, Batch, HasContraction, Hessians, Jacobians, Map, Parameters
from dynamics_backends.symbols import ca, tracing
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_dynamics import with_kernels
from dynamics_backends.tape.traced_map import TracedMap

_LOG = logging.getLogger(__name__)


class TracedAnalytic(Analytic):
    """:class:`~dynamics_backends.methods.analytic.Analytic` on tapes.

    NumPy evaluates derivatives with more than OPERATIONS_LIMIT operations in a trace, or that cannot be traced.
    """

    def __init__(self, map: Map) -> None:
        super().__init__(map)
        self.map = TracedMap(map)
        self._tapes: dict[tuple[bool, tuple[tuple[str, int], ...]], Tape | None] = {}

    @classmethod
    def of(cls, map: Map) -> TracedAnalytic:
        """Create the method for a map, with second derivatives if the map has them."""
        return TracedAnalyticSecondOrder(map) if isinstance(map, HasContraction) else TracedAnalytic(map)

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives by the tape, or by NumPy without one."""
        tape = self._tape(b, second=False)
        return super()._jacobians(b) if tape is None else Jacobians(*tape.rows(*b.arrays()))

    def _tape(self, b: Batch, *, second: bool) -> Tape | None:
        """Cached tape of value and first derivatives, and with ``second`` also second ones, for the batch's parameter sizes.

        None if the trace is too long or impossible.
        """
        key = (second, tuple((name, len(rows)) for name, rows in b.p.items()))
        if key not in self._tapes:
            self._tapes[key] = self._traced(with_kernels(TracedDynamics(self._own, dict(key[1]))), second)
        return self._tapes[key]

    def _traced(self, traced: TracedDynamics, second: bool) -> Tape | None:
        """Tape of value, fx, fu, and with ``second`` also xx, ux, uu of lam' f, which has lam as its last input.

        None, with a log message, if the trace is too long or impossible. Raises UnknownOperation.
        """
        m, n, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
        shapes: list[tuple[int, ...]] = [(m,), (m, n), (m, nu), *([(n, n), (nu, n), (nu, nu)] if second else [])]
        try:
            with tracing:
                lam = ca.SX.sym("lam", m)
                parts = traced.both(lam) if second else traced.first()
                inputs = [*traced.symbols, *([lam] if second else [])]
                t = short_enough(f"the derivatives of {description(self._own)}", trace_expressions(inputs, parts))
        except (TooLong, TraceError) as reason:
            _LOG.info("derivatives are evaluated by NumPy: %s", reason)
            return None
        return Tape.of(t, [s.numel() for s in inputs], shapes)


class TracedAnalyticSecondOrder(TracedAnalytic, AnalyticSecondOrder):
    """:class:`TracedAnalytic` of a map with second derivatives."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """Value and first derivatives, and the second derivatives of lam' f for lam (N, n_out)."""
        b = Batch.of(self.map, x, u, t, p)
        tape = self._tape(b, second=True)
        if tape is None:
            return super().hessian_contraction(x, u, t, p, lam)
        results = tape.rows(*b.arrays(), np.asarray(lam, float))
        return Jacobians(*results[:3]), Hessians(*results[3:])
