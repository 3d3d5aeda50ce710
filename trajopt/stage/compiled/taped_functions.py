"""Functions of a phase as tapes, which need no compiler: kernels/functions.h."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from dynamics_backends.compiled.interface.libraries import (
    code_of,
    has_compiler,
    kernels,
    structs_in,
    template,
)
from dynamics_backends.compiled.interface.sources import (
    TracedFunction,
    has_prebuilt_contraction,
    is_prebuilt,
    traced_dynamics,
)
from dynamics_backends.protocol import unwrapped
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from trajopt.stage.source.stage_source import StageShape, traced_terms

OPERATIONS_LIMIT = 300
"""Maximum number of operations of a tape that is evaluated at every knot, where a compiler is available.

A tape takes five to ten times the time of compiled code: little beside the time step for short functions, up to half of a solve for
the pose of a link as a running cost (about 700 operations).
"""
FINAL_LIMIT = 4_000
"""Maximum number of operations of a tape that is evaluated at the final knot only."""
ALONG = "dynamics_along"
(DirectionsData,) = structs_in(
    "\n".join(map(template, ("lanes/function.h", "differences/partials_along.h"))), "directions_t"
)


class TapedFunctions(NamedTuple):
    """Tapes by their names in functions_t, and the number of computed rows of xdot.

    directions: struct directions_t of partial derivatives by complex or dual numbers, whose tape is named :data:`ALONG`.
    """

    tapes: dict[str, Tape]
    rows: int
    directions: Any = None

    def members(self, lanes: int) -> dict[str, tuple[int | None, int]]:
        """Addresses of the function and its data of each member of functions_t."""
        library = kernels(lanes)
        run, along = code_of(library.tape_function), code_of(library.partials_along)
        found = {name: (run, tape.address) for name, tape in self.tapes.items()}
        if self.directions is not None:
            self.directions.along_run, self.directions.along_self = found.pop(ALONG)
            found["dynamics_partials"] = along, ctypes.addressof(self.directions)
        return found

    @property
    def room(self) -> int:
        """Workspace in vectors."""
        return max((tape.registers for tape in self.tapes.values()), default=0)


def taped_functions(backend: Any, shape: StageShape) -> TapedFunctions | None:
    """Tapes of a phase's functions; None if some of them need a compiler, or are long and a compiler is available.

    Functions in the package's library have no tape. Raises TooLong, TraceError.
    """
    with tracing:
        functions, rows, directions = {}, unwrapped(backend.map).manifold.ndx // 2, None
        if not is_prebuilt(backend):
            parts = traced_dynamics(backend, dict(shape.parameters), second=shape.second, long=not has_compiler())
            if parts is None:
                return None
            rows = parts.rows
            if ALONG.removeprefix("dynamics_") in parts.functions:
                m = unwrapped(backend.map)
                directions = DirectionsData(n=m.manifold.ndx, m=m.nu, rows=rows, step=parts.step)
            functions = {f"dynamics_{order}": function for order, function in parts.functions.items()}
        if has_prebuilt_contraction(backend):
            functions.pop("dynamics_contracted", None)
        terms = traced_terms(None, unwrapped(backend.map), shape)
    if any(part.inner is not None for part in terms):
        return None
    functions |= {f.name: f for part in terms for f in part.functions if _has_results(f)}
    if has_compiler() and any(f.operations > _limit(f.name) for f in functions.values()):
        return None
    return TapedFunctions({name: Tape.of(f.trace, f.sizes) for name, f in functions.items()}, rows, directions)


def _limit(name: str) -> int:
    return FINAL_LIMIT if name.startswith(("terminal", "final")) else OPERATIONS_LIMIT


def _has_results(f: TracedFunction) -> bool:
    return any(f.trace.outputs)
