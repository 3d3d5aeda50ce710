"""Second derivatives of a map from its trace, as a tape: CasADi's Hessian of lam' f."""

from __future__ import annotations

import logging

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.sources.traced_source import TooLong, TracedDynamics, short_enough
from dynamics_backends.methods.symbolic_map import TraceError, description
from dynamics_backends.protocol import Array, Batch, Map
from dynamics_backends.symbols import ca, tracing
from dynamics_backends.tape.tape import Tape

_LOG = logging.getLogger(__name__)


class TracedHessian:
    """Hessian of a map (:class:`~dynamics_backends.methods.exact_methods.TracedHessian`) by a tape.

    The map is traced at the first call with parameters of given sizes.
    """

    def __init__(self, map: Map) -> None:
        self.map = map
        self._tapes: dict[tuple[tuple[str, int], ...], Tape | None] = {}

    def __call__(self, b: Batch, lam: Array) -> Array | None:
        """Hessians (N, K, K) of lam' f in (dx, du), K = ndx + nu, for lam (N, n_out).

        None, logged once for each set of parameter sizes, if the trace is impossible or too long.
        """
        sizes = tuple((name, len(rows)) for name, rows in b.p.items())
        if sizes not in self._tapes:
            self._tapes[sizes] = self._traced(sizes)
        tape = self._tapes[sizes]
        return None if tape is None else tape.rows(*b.arrays(), lam)[0]

    def _traced(self, sizes: tuple[tuple[str, int], ...]) -> Tape | None:
        """Tape from x, u, t, the parameters and lam to the Hessian of lam' f; sizes: names and sizes of the parameters.

        None, with a log message, if the trace is impossible or too long (OPERATIONS_LIMIT). Raises UnknownOperation.
        """
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
        return Tape.of(t, [s.numel() for s in inputs], [(size, size)])
