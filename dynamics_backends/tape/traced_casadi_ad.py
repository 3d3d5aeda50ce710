"""CasADi's derivatives, evaluated by tapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.methods.casadi_ad import CasadiAD, Evaluate
from dynamics_backends.symbols import ca
from dynamics_backends.tape.tape import Tape


class TracedCasadiAD(CasadiAD):
    """:class:`~dynamics_backends.methods.casadi_ad.CasadiAD` on tapes in place of CasADi's virtual machine."""

    def _made(self, name: str, inputs: list[Any], outputs: Sequence[Any]) -> Evaluate:
        """Function from arrays (N, n), one for each input, to the outputs (N, rows, columns), by a tape; ``name`` is not used."""
        t = trace_expressions(inputs, [ca.vec(e.T) for e in outputs])
        tape = Tape.of(t, [s.numel() for s in inputs], [e.shape for e in outputs])
        return lambda arguments: tape.rows(*arguments)
