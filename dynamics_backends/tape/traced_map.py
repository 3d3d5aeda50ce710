"""Any map as a tape.

The map's source is traced with symbols, once for each set of parameter sizes; recursions that the library contains are calls of its
kernels.  Time and parameters are inputs of the tape.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import Array, Map, is_second_order
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_dynamics import with_kernels
from dynamics_backends.trace import trace_expressions

Sizes = tuple[tuple[str, int], ...]
"""Names of the parameters, each with its number of components."""
_LOG = logging.getLogger(__name__)
_LOGGED = set[str]()
"""Reasons of evaluation by NumPy that the log contains: several maps are made of one function."""


class TracedMap:
    """Map that evaluates a tape on real rows, and the original map ``wrapped`` on other arguments (complex, dual, symbols).

    The map is traced at first use; there is one tape for each set of parameter sizes. If the map cannot be traced, the original map
    is used for all arguments.
    """

    def __init__(self, map: Map) -> None:
        self.wrapped = map
        self.manifold, self.nu, self.n_out = map.manifold, map.nu, map.n_out
        self.output_names, self.control_names = map.output_names, map.control_names
        self.second_order = is_second_order(map)
        self._untraced = False
        self._tapes: dict[Sizes, Tape] = {}

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) by the tape for real rows; by the original map for others, and if it cannot be traced."""
        rows = [sm.stack(a) if isinstance(a, list) else a for a in (x, u, _time_row(t), *p.values())]
        real = all(isinstance(a, np.ndarray) and a.dtype.kind in "fiu" and a.ndim == 2 for a in rows)
        tape = self.tape(tuple((name, len(r)) for name, r in zip(p, rows[3:], strict=True))) if real else None
        return self.wrapped(x, u, t, p) if tape is None else tape.rows(*_batch_first(rows))[0].T

    def tape(self, sizes: Sizes) -> Tape | None:
        """Cached tape of the value; sizes: (name, size) of each parameter. None, logged once, if it cannot be traced."""
        try:
            if sizes not in self._tapes and not self._untraced:
                with tracing:
                    self._tapes[sizes] = self._traced(sizes)
        except TraceError as reason:
            self._untraced = True
            if not reason.logged and str(reason) not in _LOGGED:
                _LOGGED.add(str(reason))
                _LOG.warning("evaluated by NumPy: %s", reason)
        return self._tapes.get(sizes)

    def _traced(self, sizes: Sizes) -> Tape:
        """Tape of the map's trace. Raises TraceError if the map cannot be evaluated with symbols, UnknownOperation."""
        traced = with_kernels(TracedDynamics(self.wrapped, dict(sizes)))
        t = trace_expressions(list(traced.symbols), [traced.value_expression])
        return Tape.of(t, [s.numel() for s in traced.symbols])


def _time_row(t: Scalar) -> Rows:
    """Time as rows (1, N), or (1, 1) for a number."""
    return sm.stack([t]) if getattr(t, "shape", ()) else np.full((1, 1), t)


def _batch_first(rows: Sequence[Array]) -> list[Array]:
    """Arrays (N, n) from rows (n, N), or (n, 1), which are repeated for the whole batch."""
    size = np.broadcast_shapes(*(r.shape[1:] for r in rows))[0]
    return [np.broadcast_to(r.T, (size, len(r))) for r in rows]
