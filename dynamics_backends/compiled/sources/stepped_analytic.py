"""Long steps with contacts as a backend of compiled code: values and derivatives of batches, by the loops of
:mod:`~dynamics_backends.compiled.sources.stepped_source`."""

from __future__ import annotations

import numpy as np

from dynamics_backends.compiled.loops.kernel import CompiledKernel
from dynamics_backends.compiled.sources.constrained_source import derivatives_kernel
from dynamics_backends.compiled.sources.stepped_source import stepped_source
from dynamics_backends.compiled.sources.traced_analytic import arguments_of
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.analytic import Analytic
from dynamics_backends.protocol import IMPLICIT_STEP, Array, Batch, Jacobians, Parameters
from dynamics_backends.systems.contact.stepped_contact import SteppedContact


class SteppedAnalytic(Analytic):
    """See :class:`~dynamics_backends.methods.analytic.Analytic`."""

    def __init__(self, map: SteppedContact) -> None:
        super().__init__(map)
        self._steps = map if map.offsets is not None else map.implicit(offset=False)
        self._kernels: dict[tuple[tuple[str, int], ...], CompiledKernel] = {}

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """See :class:`~dynamics_backends.protocol.DynamicsBackend`."""
        return self._jacobians(Batch.of(self.map, x, u, t, p)).value

    def _jacobians(self, b: Batch) -> Jacobians:
        step = b.p.get(IMPLICIT_STEP, np.full((1, b.size), self._steps.step))
        rows = {**{name: value for name, value in b.p.items() if name != IMPLICIT_STEP}, IMPLICIT_STEP: step}
        kernel = self._kernel(tuple((name, len(value)) for name, value in rows.items()))
        return Jacobians(*kernel(*arguments_of(b._replace(p=rows))))

    def _kernel(self, sizes: tuple[tuple[str, int], ...]) -> CompiledKernel:
        if sizes not in self._kernels:
            traced = TracedDynamics(self._steps, dict(sizes))
            m, n, nu = self.map.n_out, self.map.manifold.ndx, self.map.nu
            kernel = derivatives_kernel(traced, second=False, source=stepped_source(traced))
            self._kernels[sizes] = CompiledKernel(kernel, None, [(m,), (m, n), (m, nu)])
        return self._kernels[sizes]
