"""Derivatives of a map by the functions of its time steps: tapes, alone or called by the library's kernels of derivatives.

analytic, casadi_ad              tapes of the derivatives
forward_ad, complex_step, ...    templates/differences/partials_along.h calls a tape of the slope along one direction
finite differences               templates/differences/partials_by_differences.h calls the tape of the value
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.sources.differences import PartialsKernel, by_differences, by_directions
from dynamics_backends.compiled.sources.dynamics_source import ALONG_DIRECTIONS
from dynamics_backends.compiled.sources.function_rows import FunctionRows
from dynamics_backends.compiled.sources.traced_source import TooLong, TracedDynamics
from dynamics_backends.methods.base import Method
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_dynamics import with_kernels
from dynamics_backends.tape.traced_map import Sizes, TracedMap

Evaluate = Callable[[Batch, Sequence[Array]], list[Array]]
"""Function of a batch, and of further arguments (N, n), that returns arrays (N, ...)."""
_LOG = logging.getLogger(__name__)


class CompiledDerivatives:
    """First and second derivatives of the map of one method; the map is traced once for each set of parameter sizes."""

    def __init__(self) -> None:
        self._known: dict[tuple[bool, Sizes], Evaluate | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without traced functions."""
        return {"_known": {}}  # they belong to a process

    def jacobians(self, method: Method, b: Batch) -> Jacobians | None:
        """Value and first derivatives; None if they cannot be traced."""
        evaluate = self._evaluator(method, b, second=False)
        return None if evaluate is None else Jacobians(*evaluate(b, ()))

    def contraction(self, method: Method, b: Batch, lam: Array) -> tuple[Jacobians, Hessians] | None:
        """Value, first derivatives and second derivatives of lam' f for lam (N, n_out).

        None if they cannot be traced, and for finite differences, which have no second derivatives here.
        """
        evaluate = None if isinstance(method, FiniteDifference) else self._evaluator(method, b, second=True)
        if evaluate is None:
            return None
        results = evaluate(b, (lam,))
        return Jacobians(*results[:3]), Hessians(*results[3:])

    def _evaluator(self, method: Method, b: Batch, *, second: bool) -> Evaluate | None:
        """Cached function of value and first derivatives, and with ``second`` also second ones, for the batch's parameter sizes.

        None, with a log message, if a trace is impossible or too long.
        """
        key = second, tuple((name, len(rows)) for name, rows in b.p.items())
        if key not in self._known:
            try:
                with tracing:
                    self._known[key] = _traced(method, key[1], second)
            except (TooLong, TraceError) as reason:
                _LOG.info("derivatives are evaluated by NumPy: %s", reason)
                self._known[key] = None
        return self._known[key]


def _traced(method: Method, sizes: Sizes, second: bool) -> Evaluate | None:
    """Function of value and first derivatives, and with ``second`` also second ones; None if the value cannot be traced.

    Second derivatives by AD that are too long beside the first ones have a tape of their own.
    Raises TooLong for more than OPERATIONS_LIMIT operations, TraceError if derivatives cannot be evaluated with symbols.
    """
    map = method.map
    value = map.tape(sizes) if isinstance(map, TracedMap) else None
    if value is None or not map.manifold.ndx + map.nu:
        return None
    if isinstance(method, FiniteDifference):
        kernel = by_differences(method, value.function, value.sizes, map.n_out)
        rows = _by_kernel(kernel, value, map, value.sizes)
        return lambda b, _: rows(b.arrays())
    plain = TracedDynamics(map.wrapped, dict(sizes), all_rows=True)  # type: ignore[attr-defined]
    mode = None if method.name == "analytic" else str(getattr(method, "mode", "auto"))
    own = with_kernels(plain) if mode is None else plain
    if second:
        try:
            return _by_tape(own.traced_contraction(mode), map)
        except TooLong:
            if mode is None:
                raise
            hessian, first = _by_tape(plain.traced_hessian(mode), map), _traced(method, sizes, second=False)
            return None if first is None else lambda b, more: [*first(b, ()), *hessian(b, more)]
    if method.name in ALONG_DIRECTIONS:
        function = plain.traced_direction(method.name)
        tape, inputs = Tape.of(function.trace, function.sizes), function.sizes[:-1]
        kernel = by_directions(method, tape.function, inputs, map.n_out)
        along = _by_kernel(kernel, tape, map, inputs)
        return lambda b, _: along(_arguments(b))
    return _by_tape(own.traced_partials(mode), map)


def _by_tape(function: TracedFunction, map: Map) -> Evaluate:
    """Function of a batch by the tape of a traced function of x, u, t, p and further arguments."""
    m, n, nu = map.n_out, map.manifold.ndx, map.nu
    shapes = {"f": (m,), "fx": (m, n), "fu": (m, nu), "xx": (n, n), "ux": (nu, n), "uu": (nu, nu)}
    tape = Tape.of(function.trace, function.sizes, [shapes[name] for name in function.outputs])
    return lambda b, more: tape.rows(*_arguments(b), *more)


def _by_kernel(kernel: PartialsKernel, tape: Tape, map: Map, sizes: Sequence[int]) -> FunctionRows:
    """Value (N, m) and derivatives (N, m, n), (N, m, nu) by a kernel that calls a tape; sizes: components of its arguments."""
    shapes = [(map.n_out, *shape) for shape in ((), (map.manifold.ndx,), (map.nu,))]
    return FunctionRows((*kernel.function, None), sizes, shapes, kernel.points * tape.registers, (kernel, tape))


def _arguments(b: Batch) -> list[Array]:
    """Arguments x, u, t and all parameters together, (N, n) each."""
    x, u, t, *p = b.arrays()
    return [x, u, t, np.concatenate([np.empty((b.size, 0)), *p], axis=1)]
