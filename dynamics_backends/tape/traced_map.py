"""Any map as a tape.

The map's source is traced with symbols, once for each set of parameter sizes.  For real rows the operations are encoded directly,
and recursions that the library contains are calls of its kernels.  For complex and dual rows the operations are first evaluated on
pairs (:mod:`~dynamics_backends.compiled.emit.pairs`), and the tape is evaluated for all knots and directions.  Complex step and
forward AD thus run on tapes without a change.  Time and parameters are inputs of the tape.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.pairs import ALGEBRAS, on_pairs
from dynamics_backends.compiled.emit.trace import Trace, trace_expressions
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import Array, Map, is_second_order
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_dynamics import with_kernels

Sizes = tuple[tuple[str, int], ...]
"""Names of the parameters, each with its number of components."""
_LOG = logging.getLogger(__name__)


class TracedMap:
    """Map that evaluates a tape on real, complex and dual rows, and the original map ``wrapped`` on other arguments (symbols).

    The map is traced at first use; there is one tape for each number type, set of arguments that are complex or dual, and set of
    parameter sizes. If the map cannot be traced, the original map is used for all arguments.
    """

    def __init__(self, map: Map) -> None:
        self.wrapped = map
        self.manifold, self.nu, self.n_out = map.manifold, map.nu, map.n_out
        self.output_names, self.control_names = map.output_names, map.control_names
        self.second_order = is_second_order(map)
        self._untraced = False
        self._traces: dict[tuple[bool, Sizes], Trace] = {}
        self._tapes: dict[tuple[str, tuple[bool, ...], Sizes], Tape] = {}

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) by the tape for real, complex or dual rows.

        The original map is called for other arguments (:func:`_algebra`), and if it cannot be traced, which is logged once.
        """
        rows = [sm.stack(a) if isinstance(a, list) else a for a in (x, u, _time_row(t), *p.values())]
        algebra = _algebra(rows)
        if algebra is None or self._untraced:
            return self.wrapped(x, u, t, p)
        sizes = tuple((name, len(r)) for name, r in zip(p, rows[3:], strict=True))
        try:
            return getattr(self, f"_{algebra}")(rows, sizes)
        except TraceError as reason:
            self._give_up(reason)
            return self.wrapped(x, u, t, p)

    def tape(self, sizes: Sizes) -> Tape | None:
        """Tape of the value in real numbers; sizes: (name, size) of each parameter. None, logged once, if it cannot be traced."""
        try:
            return None if self._untraced else self._tape("real", (), sizes)
        except TraceError as reason:
            self._give_up(reason)
            return None

    def _give_up(self, reason: TraceError) -> None:
        """Use the original map from now on, and log the reason unless the log already contains it."""
        self._untraced = True
        if not reason.logged:
            _LOG.warning("evaluated by NumPy: %s", reason)

    # -- kinds of numbers -------------------------------------------------------------------------------------------
    def _real(self, rows: list[Array], sizes: Sizes) -> Array:
        """Rows (n_out, N) from real rows, by the tape."""
        return self._tape("real", (), sizes).rows(*_batch_first(rows))[0].T

    def _complex(self, rows: list[Array], sizes: Sizes) -> Array:
        """Complex rows (n_out, N) from rows of which some are complex, by the tape on pairs (re, im)."""
        paired = tuple(np.iscomplexobj(r) for r in rows)
        arrays = [
            np.ascontiguousarray(a, complex if pair else float).view(float)
            for a, pair in zip(_batch_first(rows), paired, strict=True)
        ]
        return self._tape("complex", paired, sizes).rows(*arrays)[0].view(complex)[..., 0].T

    def _dual(self, rows: list[Any], sizes: Sizes) -> Dual:
        """Dual rows (n_out, N) from rows of which some are dual, by the tape on pairs (value, tangent).

        The tape evaluates every knot once for each direction.
        """
        paired = tuple(isinstance(r, Dual) for r in rows)
        k = next(r.directions for r in rows if isinstance(r, Dual))
        values = _batch_first([r.val if isinstance(r, Dual) else r for r in rows])
        n = len(values[0])
        arrays = [_with_tangents(v, r, k) for v, r in zip(values, rows, strict=True)]
        result = self._tape("dual", paired, sizes).rows(*arrays)[0].reshape(n, k, self.n_out, 2)
        return Dual(result[:, 0, :, 0].T, result[..., 1].transpose(2, 0, 1))

    # -- tapes ------------------------------------------------------------------------------------------------------
    def _tape(self, algebra: str, paired: tuple[bool, ...], sizes: Sizes) -> Tape:
        """Cached tape for a number type and parameter sizes. Raises the errors of :meth:`_traced`.

        paired: for each argument, True if it has complex or dual numbers, as pairs; () for real numbers.
        """
        key = (algebra, paired, sizes)
        if key not in self._tapes:
            with tracing:
                self._tapes[key] = self._traced(algebra, paired, sizes)
        return self._tapes[key]

    def _traced(self, algebra: str, paired: tuple[bool, ...], sizes: Sizes) -> Tape:
        """Tape of the map's trace, on pairs for complex and dual numbers, with arguments as in :meth:`_tape`.

        The value then alternates first and second numbers (n_out, 2). Raises TraceError if the map cannot be evaluated with
        symbols, ValueError for an operation that pairs or tapes do not have, and the other errors of :func:`symbolic_value`.
        """
        pair, traced = ALGEBRAS[algebra], TracedDynamics(self.wrapped, dict(sizes))
        if pair is None:
            traced = with_kernels(traced)
        lengths = [s.numel() for s in traced.symbols]
        key = traced.map is self.wrapped, sizes
        if key not in self._traces:
            self._traces[key] = trace_expressions(list(traced.symbols), [traced.value_expression])
        t = self._traces[key]
        if pair is None:
            return Tape.of(t, lengths)
        lengths = [n * (1 + two) for n, two in zip(lengths, paired, strict=True)]
        return Tape.of(on_pairs(t, pair, paired, lengths), lengths, [(self.n_out, 2)])


def _time_row(t: Scalar) -> Rows:
    """Time as rows (1, N), or (1, 1) for a number."""
    return sm.stack([t]) if getattr(t, "shape", ()) else np.full((1, 1), t)


def _algebra(rows: Sequence[Any]) -> str | None:
    """Number type of the rows: "real" (also integers), "complex" if any row is, "dual" if any row is.

    None for complex dual rows, dual rows without directions, rows that are not 2-D, and other types such as symbols.
    """
    duals = [r for r in rows if isinstance(r, Dual)]
    plain = [r.val for r in duals] + [r for r in rows if not isinstance(r, Dual)]
    if not all(isinstance(a, np.ndarray) and a.dtype.kind in "fciu" and a.ndim == 2 for a in plain):
        return None
    is_complex = any(np.iscomplexobj(a) for a in [*plain, *(r.tan for r in duals)])
    if duals:
        return None if is_complex or duals[0].directions == 0 else "dual"
    return "complex" if is_complex else "real"


def _batch_first(rows: Sequence[Array]) -> list[Array]:
    """Arrays (N, n) from rows (n, N), or (n, 1), which are repeated for the whole batch."""
    size = np.broadcast_shapes(*(r.shape[1:] for r in rows))[0]
    return [np.broadcast_to(r.T, (size, len(r))) for r in rows]


def _with_tangents(value: Array, row: Any, directions: int) -> Array:
    """Values (N, n) repeated for each of K directions: (N K, n), or (N K, 2 n), each number followed by its tangent, if the row
    is dual.
    """
    n, width = value.shape
    if not isinstance(row, Dual):
        return np.repeat(value, directions, axis=0)
    both = np.empty((n, directions, width, 2))
    both[..., 0] = value[:, None]
    both[..., 1] = np.broadcast_to(row.tan, (width, n, directions)).transpose(1, 2, 0)
    return both.reshape(n * directions, 2 * width)
