"""Analytic backend of long steps with contacts in compiled code (:mod:`~dynamics_backends.compiled.sources.stepped_source`)."""

from __future__ import annotations

import numpy as np

from dynamics_backends.compiled.loops.kernel import CompiledKernel, HoldsKernels
from dynamics_backends.compiled.sources.constrained_source import derivatives_kernel
from dynamics_backends.compiled.sources.stepped_source import stepped_second_source, stepped_source
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.analytic import AnalyticSecondOrder
from dynamics_backends.protocol import IMPLICIT_STEP, Array, Batch, Hessians, Jacobians, Parameters
from dynamics_backends.systems.contact.stepped_contact import SteppedContact


class SteppedAnalytic(HoldsKernels, AnalyticSecondOrder):
    """Compiled :class:`~dynamics_backends.methods.analytic.AnalyticSecondOrder` of long steps with contacts."""

    def __init__(self, map: SteppedContact) -> None:
        super().__init__(map)
        self._steps = map if map.offsets is not None else map.implicit(offset=False)
        self._kernels: dict[tuple[bool, tuple[tuple[str, int], ...]], CompiledKernel] = {}

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """See :class:`~dynamics_backends.protocol.DynamicsBackend`."""
        return self._jacobians(Batch.of(self.map, x, u, t, p)).value

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """See :class:`~dynamics_backends.protocol.SecondOrderBackend`."""
        b = self._stepping(Batch.of(self.map, x, u, t, p))
        results = self._kernel(b, second=True)(*b.arrays(), np.asarray(lam, float))
        return Jacobians(*results[:3]), Hessians(*results[3:])

    def _jacobians(self, b: Batch) -> Jacobians:
        b = self._stepping(b)
        return Jacobians(*self._kernel(b, second=False)(*b.arrays()))

    def _stepping(self, b: Batch) -> Batch:
        """Batch with the step length as the last parameter."""
        step = b.p.get(IMPLICIT_STEP, np.full((1, b.size), self._steps.step))
        rows = {name: value for name, value in b.p.items() if name != IMPLICIT_STEP}
        return b._replace(p={**rows, IMPLICIT_STEP: step})

    def _kernel(self, b: Batch, *, second: bool) -> CompiledKernel:
        sizes = tuple((name, len(value)) for name, value in b.p.items())
        if (second, sizes) not in self._kernels:
            traced = TracedDynamics(self._steps, dict(sizes))
            m, n, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
            parts = [write(traced) for write in (stepped_source, stepped_second_source)[: 1 + second]]
            source = "\n".join(text for text, _ in parts), " + ".join(room for _, room in parts)
            kernel = derivatives_kernel(traced, second=second, source=source)
            shapes: list[tuple[int, ...]] = [(m,), (m, n), (m, nu), *([(n, n), (nu, n), (nu, nu)] if second else [])]
            self._kernels[second, sizes] = CompiledKernel(kernel, None, shapes)
        return self._kernels[second, sizes]
