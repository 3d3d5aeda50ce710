"""Any map as a tape.

The map's source is traced once with symbols.  For float64 rows the operations are encoded directly; for complex and dual rows they
are first evaluated on pairs (:mod:`~dynamics_backends.compiled.emit.pairs`), for all knots and directions.  Complex step and
forward AD thus run on tapes without a change.  Time and parameters are inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.pairs import ALGEBRAS, on_pairs
from dynamics_backends.compiled.emit.trace import Trace, trace_expressions
from dynamics_backends.methods.symbolic_map import Symbols, TraceError, symbolic_value
from dynamics_backends.protocol import Array, Map, is_second_order
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape

Sizes = tuple[tuple[str, int], ...]
_LOG = logging.getLogger(__name__)


class TracedMap:
    """Map that evaluates a tape on numbers, and the original function on other arguments (symbols).

    The map is traced at first use; there is one tape for each kind of numbers and set of parameter sizes.
    """

    def __init__(self, map: Map) -> None:
        self.wrapped = map
        self.manifold, self.nu, self.n_out = map.manifold, map.nu, map.n_out
        self.output_names, self.control_names = map.output_names, map.control_names
        self.second_order = is_second_order(map)
        self._untraced = False
        self._traces: dict[Sizes, Trace] = {}
        self._tapes: dict[tuple[str, tuple[bool, ...], Sizes], Tape] = {}

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) by the tape for float, complex or dual rows.

        The original function is called for other numbers, and if it cannot be traced, which is logged once.
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
        """Tape of the value for parameters of these sizes; None, logged once, if the map cannot be traced."""
        try:
            return None if self._untraced else self._tape("real", (), sizes)
        except TraceError as reason:
            self._give_up(reason)
            return None

    def _give_up(self, reason: TraceError) -> None:
        """Use NumPy from now on, and log the reason once."""
        self._untraced = True
        if not reason.logged:
            _LOG.warning("evaluated by NumPy: %s", reason)

    # -- kinds of numbers -------------------------------------------------------------------------------------------
    def _real(self, rows: list[Array], sizes: Sizes) -> Array:
        """Evaluate float64 rows by the tape."""
        return self._tape("real", (), sizes).rows(*_batch_first(rows))[0].T

    def _complex(self, rows: list[Array], sizes: Sizes) -> Array:
        """Evaluate rows of which some are complex by the tape on pairs (re, im)."""
        paired = tuple(np.iscomplexobj(r) for r in rows)
        arrays = [np.ascontiguousarray(a).view(float) for a in _batch_first(rows)]
        return self._tape("complex", paired, sizes).rows(*arrays)[0].view(complex)[..., 0].T

    def _dual(self, rows: list[Any], sizes: Sizes) -> Dual:
        """Evaluate dual rows: every knot once for each direction, with one tangent."""
        paired = tuple(isinstance(r, Dual) for r in rows)
        k = next(r.directions for r in rows if isinstance(r, Dual))
        values = _batch_first([r.val if isinstance(r, Dual) else r for r in rows])
        n = len(values[0])
        arrays = [_with_tangents(v, r, k) for v, r in zip(values, rows, strict=True)]
        result = self._tape("dual", paired, sizes).rows(*arrays)[0].reshape(n, k, self.n_out, 2)
        return Dual(result[:, 0, :, 0].T, result[..., 1].transpose(2, 0, 1))

    # -- tapes ------------------------------------------------------------------------------------------------------
    def _tape(self, algebra: str, paired: tuple[bool, ...], sizes: Sizes) -> Tape:
        """Cached tape for a number type, the arguments that are pairs, and parameter sizes."""
        key = (algebra, paired, sizes)
        if key not in self._tapes:
            with tracing:
                self._tapes[key] = self._traced(algebra, paired, sizes)
        return self._tapes[key]

    def _traced(self, algebra: str, paired: tuple[bool, ...], sizes: Sizes) -> Tape:
        """Tape of the map's trace, on pairs for complex and dual numbers. Raises TraceError."""
        symbols = Symbols.of(self.wrapped, dict(sizes))
        if sizes not in self._traces:
            value = symbolic_value(self.wrapped, symbols.x, symbols.u, symbols.t, symbols.p)
            self._traces[sizes] = trace_expressions(list(symbols), [value])
        t, lengths = self._traces[sizes], [s.numel() for s in symbols]
        pair = ALGEBRAS[algebra]
        if pair is None:
            return Tape.of(t, lengths)
        lengths = [n * (1 + two) for n, two in zip(lengths, paired, strict=True)]
        return Tape.of(on_pairs(t, pair, paired, lengths), lengths, [(self.n_out, 2)])


def _time_row(t: Scalar) -> Rows:
    """Time as rows (1, N), or (1, 1) for a number."""
    return sm.stack([t]) if getattr(t, "shape", ()) else np.full((1, 1), t)


def _algebra(rows: Sequence[Any]) -> str | None:
    """Number type of the rows: real, complex, dual; None for other types, among them complex dual rows."""
    duals = [r for r in rows if isinstance(r, Dual)]
    plain = [r.val for r in duals] + [r for r in rows if not isinstance(r, Dual)]
    if not all(isinstance(a, np.ndarray) and a.dtype.kind in "fciu" and a.ndim == 2 for a in plain):
        return None
    is_complex = any(np.iscomplexobj(a) for a in [*plain, *(r.tan for r in duals)])
    if duals:
        return None if is_complex or duals[0].directions == 0 else "dual"
    return "complex" if is_complex else "real"


def _batch_first(rows: Sequence[Array]) -> list[Array]:
    """Convert rows (n, N) or (n, 1) to arrays (N, n)."""
    size = np.broadcast_shapes(*(r.shape[1:] for r in rows))[0]
    return [np.broadcast_to(r.T, (size, len(r))) for r in rows]


def _with_tangents(value: Array, row: Any, directions: int) -> Array:
    """Values (N, n) repeated for every direction, each followed by its tangent if the row has one: (N * K, n or 2 n)."""
    n, width = value.shape
    if not isinstance(row, Dual):
        return np.repeat(value, directions, axis=0)
    both = np.empty((n, directions, width, 2))
    both[..., 0] = value[:, None]
    both[..., 1] = np.broadcast_to(row.tan, (width, n, directions)).transpose(1, 2, 0)
    return both.reshape(n * directions, 2 * width)
