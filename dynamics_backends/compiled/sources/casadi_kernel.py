"""CasADi's derivatives as compiled code: the graph is emitted as straight-line C, lanes over knots, unless it is too long."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.kernel import CompiledKernel
from dynamics_backends.compiled.loops.unrolled import straight_kernel
from dynamics_backends.methods.casadi_ad import LARGE_GRAPH, CasadiAD, Evaluate, interpreted
from dynamics_backends.methods.symbolic_map import description
from dynamics_backends.symbols import ca

_LOG = logging.getLogger(__name__)


class CompiledCasadiAD(CasadiAD):
    """Compiled :class:`~dynamics_backends.methods.casadi_ad.CasadiAD`; CasADi interprets graphs above LARGE_GRAPH operations."""

    def _made(self, name: str, inputs: list[Any], names: list[str], outputs: Sequence[Any]) -> Evaluate:
        by_rows, shapes = [ca.vec(e.T) for e in outputs], [e.shape for e in outputs]
        if not self._short_enough(inputs, by_rows):
            return interpreted(name, inputs, by_rows, shapes)
        results = [f"y{i}" for i in range(len(by_rows))]
        trace = trace_expressions(inputs, by_rows)
        source = straight_kernel(name, trace, names, results, [s.numel() for s in inputs])
        kernel = CompiledKernel(source, None, shapes)
        return lambda arguments: list(kernel(*arguments))

    def _short_enough(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """True if the graph is short enough to compile; otherwise log a warning."""
        size = ca.Function("size", inputs, outputs).n_instructions()
        if size > LARGE_GRAPH:
            _LOG.warning(
                "the graph of %s has %d operations: CasADi interprets it, because compiling would take minutes; "
                "backend = 'analytic' is much faster",
                description(self.map),
                size,
            )
        return size <= LARGE_GRAPH
