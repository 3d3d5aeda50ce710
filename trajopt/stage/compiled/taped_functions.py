"""Functions of a phase as tapes: kernels/functions.h.

Dynamics, costs and constraints are tapes, which may call kernels of the package's library. Tapes are cached on disk, so that a
second process need not trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.runtime.trace_cache import cached_value
from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.compiled.sources.dynamics_source import trace_inputs_of
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Map, unwrapped
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_dynamics import returned_force_count, traced_dynamics
from trajopt.stage.source.constraint_source import constraint_source
from trajopt.stage.source.term_source import StageShape, TermSource, term_source


class TapedFunctions(NamedTuple):
    """Functions of a phase: tapes by their names in functions_t.

    rows: the dynamics compute the last ``rows`` rows of xdot. forces: the members force_rows, force_columns and curved_forces of
    functions_t, for contact forces that the running cost reads.
    """

    tapes: dict[str, Tape]
    rows: int
    forces: tuple[int, int, int] = (0, 0, 0)

    @property
    def registers(self) -> int:
        """Largest workspace of the tapes for a block of knots, in vectors; 0 without tapes."""
        return max((tape.registers for tape in self.tapes.values()), default=0)


def taped_functions(backend: Any, shape: StageShape) -> TapedFunctions:
    """Return the tapes of a phase's functions: dynamics, costs and constraints.

    Raises TooLong for a function with too many operations, TraceError for one that cannot be traced.
    """
    map, sizes = unwrapped(backend.map), dict(shape.parameters)
    manifold = map.manifold
    terms = _other_terms(manifold, shape)
    running, forces = _running(map if returned_force_count(backend, sizes) else None, manifold, shape)
    own, rows = _dynamics(backend, shape, forces=forces[0] > 0, curved_forces=bool(forces[2]))
    return TapedFunctions(own | running | terms, rows, forces)


def _dynamics(backend: Any, shape: StageShape, *, forces: bool, curved_forces: bool) -> tuple[dict[str, Tape], int]:
    """Return tapes of the dynamics, cached on disk, and the number of computed rows of xdot.

    Second derivatives have a tape only if ``shape.second``, and not if all are zero. forces: contact forces are a result of value
    and analytic partial derivatives too. curved_forces: second derivatives include those of these forces, whose multipliers are a
    further argument.
    """

    def traced() -> list[Any]:
        """Trace the dynamics; returns the JSON value of the tapes, and the number of rows."""
        with tracing:
            parts = traced_dynamics(
                backend, dict(shape.parameters), second=shape.second, forces=forces, curved_forces=curved_forces
            )
        functions = dict(parts.functions)
        if "contracted" in functions and _affine(functions["contracted"]):
            del functions["contracted"]
        return [_encoded(list(functions.values())), parts.rows]

    known = cached_value(
        traced, "dynamics tapes", shape.second, forces, curved_forces, *trace_inputs_of(backend, dict(shape.parameters))
    )
    return _decoded(known[0]), known[1]


def _affine(contracted: TracedFunction) -> bool:
    """True if all second derivatives of dynamics_contracted, its results from the fourth on, are structural zeros."""
    return all(
        operand == 0.0 and isinstance(operand, float) for part in contracted.trace.outputs[3:] for operand in part
    )


def _running(moving: Map | None, manifold: Manifold, shape: StageShape) -> tuple[dict[str, Tape], tuple[int, int, int]]:
    """Return the tapes of the running cost, cached on disk, and ``forces`` of :class:`TapedFunctions`.

    moving: system whose time step provides the contact forces to terms that read them, None for none.
    """

    def traced() -> list[Any]:
        """Trace the running cost; returns the JSON value of its tapes, and ``forces`` of :class:`TapedFunctions` as a list."""
        with tracing:
            given = "running", shape.running, manifold, shape.nu
            source = term_source(*given, running=True, hessian=shape.hessian, moving=moving, curved=shape.second)
            forces = source.forces
            sizes = [0, 0, 0] if forces is None else [forces.rows, forces.columns, int(forces.exact)]
            return [_encoded(source.functions), sizes]

    given = shape.running, manifold, shape.nu, shape.hessian, shape.second, moving
    tapes, sizes = cached_value(traced, "running tapes", *given, traced_source.OPERATIONS_LIMIT)
    rows, columns, curved = sizes
    return _decoded(tapes), (rows, columns, curved)


def _other_terms(manifold: Manifold, shape: StageShape) -> dict[str, Tape]:
    """Return the tapes of the terminal cost, with its Hessian, and of the constraints, cached on disk.

    Second derivatives of constraints have tapes only if ``shape.second``.
    """
    orders = ["value", "first", *(["second"] if shape.second else [])]
    writers: dict[str, tuple[Callable[..., TermSource], Any, dict[str, Any]]] = {
        "terminal": (term_source, shape.terminal, {"running": False, "hessian": shape.hessian}),
        "path": (constraint_source, shape.path, {"running": True, "orders": orders}),
        "final": (constraint_source, shape.final, {"running": False, "orders": orders}),
    }
    tapes: dict[str, Tape] = {}
    for name, (write, parts, options) in writers.items():
        if not parts and write is constraint_source:
            continue  # no constraints, no functions
        given = name, parts, manifold, shape.nu
        functions = partial(_functions, write, given, options)
        tapes |= _decoded(cached_value(functions, "term tapes", *given, options, traced_source.OPERATIONS_LIMIT))
    return tapes


def _functions(write: Callable[..., TermSource], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Trace functions by write(*given, **options) and return the JSON value of their tapes.

    Raises TooLong for a function with too many operations, TraceError for one that cannot be traced.
    """
    with tracing:
        return _encoded(write(*given, **options).functions)


def _encoded(functions: Sequence[TracedFunction]) -> list[Any]:
    """Return the JSON value of the tapes of functions: name and data of each function that has results; others are left out."""
    return [[f.name, Tape.of(f.trace, f.sizes).data()] for f in functions if any(f.trace.outputs)]


def _decoded(known: list[Any]) -> dict[str, Tape]:
    """Return the tapes by name from the JSON value of :func:`_encoded`."""
    return {name: Tape.from_data(data) for name, data in known}
