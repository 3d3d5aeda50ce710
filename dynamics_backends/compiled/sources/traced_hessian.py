"""Second derivatives of a map from its trace, as straight-line compiled code: CasADi's Hessian of lam' f, lanes over knots."""

from __future__ import annotations

import logging

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.kernel import CompiledKernel, HoldsKernels
from dynamics_backends.compiled.loops.unrolled import straight_kernel
from dynamics_backends.compiled.sources.traced_source import TooLong, TracedDynamics, short_enough
from dynamics_backends.methods.symbolic_map import TraceError, description
from dynamics_backends.protocol import Array, Batch, Map
from dynamics_backends.symbols import ca, tracing

_LOG = logging.getLogger(__name__)


class TracedHessian(HoldsKernels):
    """Compiled Hessian (:class:`~dynamics_backends.methods.exact_method.CompiledHessian`); kernels are compiled at first call."""

    def __init__(self, map: Map) -> None:
        self.map = map
        self._kernels: dict[tuple[tuple[str, int], ...], CompiledKernel | None] = {}

    def __call__(self, b: Batch, lam: Array) -> Array | None:
        """Hessians (N, K, K) in (dx, du), K = ndx + nu; None, logged once, if the trace is impossible or too long."""
        sizes = tuple((name, len(rows)) for name, rows in b.p.items())
        if sizes not in self._kernels:
            self._kernels[sizes] = self._built(sizes)
        kernel = self._kernels[sizes]
        if kernel is None:
            return None
        return np.asarray(kernel(*(rows.T for rows in (b.x, b.u, b.t[None], *b.p.values())), lam)[0])

    def _built(self, sizes: tuple[tuple[str, int], ...]) -> CompiledKernel | None:
        traced, size = TracedDynamics(self.map, dict(sizes)), self.map.manifold.ndx + self.map.nu
        try:
            with tracing:
                lam = ca.SX.sym("lam", self.map.n_out)
                inputs = [*traced.symbols, lam]
                hessian = ca.vec(traced.second_by_ad(lam)[2].T)
                t = short_enough(f"the Hessian of {description(self.map)}", trace_expressions(inputs, [hessian]))
        except (TooLong, TraceError) as reason:
            _LOG.info("second derivatives are evaluated by NumPy: %s", reason)
            return None
        names = [*traced.symbols.names, "lam"]
        kernel = straight_kernel("map_hessian", t, names, ["h"], [s.numel() for s in inputs])
        return CompiledKernel(kernel, None, [(size, size)])
