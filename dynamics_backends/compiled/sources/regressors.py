"""Derivatives in inertial parameters as compiled code: a trace of :mod:`dynamics_backends.rigid_body.algorithms.regressor`."""

from __future__ import annotations

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.kernel import CompiledKernel, HoldsKernels
from dynamics_backends.compiled.loops.unrolled import straight_kernel
from dynamics_backends.compiled.sources.traced_source import by_rows, short_enough
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.regressor import (
    PARAMETERS,
    ForwardDynamicsParameters,
    forward_parameters_rows,
    regressor_rows,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.symbols import ca


class CompiledRegressor(HoldsKernels):
    """Regressors of inverse and forward dynamics of one model, batch first; kernels are compiled at first use.

    Raises TooLong for a robot whose straight-line code would take too long to compile.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._kernels: dict[bool, CompiledKernel] = {}

    def inverse(self, q: Array, v: Array, a: Array) -> Array:
        """Regressor Y (N, nv, 10 nb) = d tau / d pi from q (N, nq), v and a (N, nv)."""
        return self._kernel(forward=False)(q, v, a)[0]

    def forward(self, q: Array, v: Array, tau: Array) -> ForwardDynamicsParameters:
        """Accelerations a (N, nv) and d a / d pi (N, nv, 10 nb) from q (N, nq), v and tau (N, nv)."""
        return ForwardDynamicsParameters(*self._kernel(forward=True)(q, v, tau))

    def _kernel(self, *, forward: bool) -> CompiledKernel:
        if forward not in self._kernels:
            self._kernels[forward] = self._built(forward)
        return self._kernels[forward]

    def _built(self, forward: bool) -> CompiledKernel:
        model, sizes = self.model, [self.model.nq, self.model.nv, self.model.nv]
        symbols = [ca.SX.sym(name, n) for name, n in zip("qva", sizes, strict=True)]
        matrix = (model.nv, PARAMETERS * model.nb)
        if forward:
            a, rows = forward_parameters_rows(model, *symbols)
            parts, shapes = [ca.densify(a), by_rows(rows)], [(model.nv,), matrix]
        else:
            parts, shapes = [by_rows(regressor_rows(model, *symbols))], [matrix]
        t = short_enough(f"the regressor of {model.name}", trace_expressions(symbols, parts))
        outputs = [f"y{i}" for i in range(len(parts))]
        return CompiledKernel(straight_kernel("regressor", t, "qva", outputs, sizes), None, shapes)
