"""Derivatives in inertial parameters as tapes: traces of :mod:`dynamics_backends.rigid_body.algorithms.regressor`."""

from __future__ import annotations

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.sources.traced_source import by_rows
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.regressor import (
    PARAMETERS,
    ForwardDynamicsParameters,
    forward_parameters_rows,
    regressor_rows,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.symbols import ca, tracing
from dynamics_backends.tape.tape import Tape


class TracedRegressor:
    """Regressors of inverse and forward dynamics of one model, batch first; the algorithms are traced at first use."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._tapes: dict[bool, Tape] = {}

    def inverse(self, q: Array, v: Array, a: Array) -> Array:
        """Regressor Y (N, nv, 10 nb) = d tau / d pi from q (N, nq), v and a (N, nv)."""
        return self._tape(forward=False).rows(q, v, a)[0]

    def forward(self, q: Array, v: Array, tau: Array) -> ForwardDynamicsParameters:
        """Accelerations a (N, nv) and d a / d pi (N, nv, 10 nb) from q (N, nq), v and tau (N, nv)."""
        return ForwardDynamicsParameters(*self._tape(forward=True).rows(q, v, tau))

    def _tape(self, *, forward: bool) -> Tape:
        if forward not in self._tapes:
            with tracing:
                self._tapes[forward] = self._traced(forward)
        return self._tapes[forward]

    def _traced(self, forward: bool) -> Tape:
        model, sizes = self.model, [self.model.nq, self.model.nv, self.model.nv]
        symbols = [ca.SX.sym(name, n) for name, n in zip("qva", sizes, strict=True)]
        matrix = (model.nv, PARAMETERS * model.nb)
        if forward:
            a, rows = forward_parameters_rows(model, *symbols)
            return Tape.of(trace_expressions(symbols, [a, by_rows(rows)]), sizes, [(model.nv,), matrix])
        return Tape.of(trace_expressions(symbols, [by_rows(regressor_rows(model, *symbols))]), sizes, [matrix])
