"""Functions of a phase as tapes, which need no compiler: kernels/functions.h.

The terminal cost and the constraints are tapes; so are the running cost and the dynamics, unless the dynamics are in the package's
library, or one of them needs iterations (contacts), or is long and a compiler is available. Tapes are cached on disk, so that a
second process need not trace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from dynamics_backends.compiled.interface.libraries import (
    code_of,
    has_compiler,
    kernels,
    remembered,
    structs_in,
    template,
)
from dynamics_backends.compiled.interface.sources import (
    TooLong,
    TracedFunction,
    forces_beside,
    has_prebuilt_contraction,
    is_prebuilt,
    operations_limit,
    question_of,
    traced_dynamics,
)
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import unwrapped
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape
from trajopt.stage.source.constraint_source import constraint_source
from trajopt.stage.source.inner_maps import reads_inner_maps
from trajopt.stage.source.stage_source import StageShape
from trajopt.stage.source.term_source import TermShape, term_source

OPERATIONS_LIMIT = 300
"""Maximum number of operations of a tape of the dynamics or the running cost, where a compiler is available.

Time steps, rollouts and sweeps of batches evaluate these block by block, and a tape takes five to ten times the time of compiled
code on a single block.
"""
ALONG = "dynamics_along"
(DirectionsData,) = structs_in(
    "\n".join(map(template, ("lanes/function.h", "differences/partials_along.h"))), "directions_t"
)


class TapedFunctions(NamedTuple):
    """Functions of a phase: tapes by their names in functions_t, and the structure of those that need a compiler.

    compiled: structure of the functions to compile, None for none. rows: computed rows of xdot by the tapes. directions: struct
    directions_t of partial derivatives by complex or dual numbers, whose tape is named :data:`ALONG`.
    """

    tapes: dict[str, Tape]
    compiled: StageShape | None
    rows: int
    directions: Any = None

    def members(self, lanes: int) -> dict[str, tuple[int | None, int, int | None]]:
        """Values of run, self and run_blocks of each member of functions_t."""
        found = {name: tape.function for name, tape in self.tapes.items()}
        if self.directions is not None:
            self.directions.along_run, self.directions.along_self, _ = found.pop(ALONG)
            found["dynamics_partials"] = code_of(kernels(lanes).partials_along), ctypes.addressof(self.directions), None
        return found

    @property
    def registers(self) -> int:
        """Workspace of a block in vectors."""
        return max((tape.registers for tape in self.tapes.values()), default=0)


def taped_functions(backend: Any, shape: StageShape) -> TapedFunctions:
    """Tapes of a phase's functions. Raises TooLong, TraceError for cost terms and constraints without a tape."""
    map, sizes = unwrapped(backend.map), dict(shape.parameters)
    moving = map if forces_beside(backend, sizes) else None
    if reads_inner_maps(shape.running, exact=shape.hessian == "exact", moving=moving):
        running = None
    else:
        running = _tapes_of_terms("running", shape.running, map.manifold, shape, along=True)
    dynamics = _dynamics(backend, shape) if running is not None or is_prebuilt(backend) else None
    terms = (running or {}) | _other_terms(map.manifold, shape)
    if running is not None and dynamics is not None:
        tapes, rows, step = dynamics
        directions = DirectionsData(n=map.manifold.ndx, m=map.nu, rows=rows, step=step) if ALONG in tapes else None
        return TapedFunctions(tapes | terms, None, rows, directions)
    compiled = StageShape(shape.scheme, shape.parameters, shape.nu, second=shape.second)
    if running is None:
        compiled = compiled._replace(running=shape.running, hessian=shape.hessian)
    return TapedFunctions(terms, compiled, map.manifold.ndx // 2)


def _limit() -> int | None:
    return OPERATIONS_LIMIT if has_compiler() else None


def _dynamics(backend: Any, shape: StageShape) -> tuple[dict[str, Tape], int, float] | None:
    """Tapes of the dynamics that are not in the package's library, computed rows of xdot, and size of a perturbation.

    None if the dynamics have to be compiled.
    """
    if is_prebuilt(backend):
        return {}, unwrapped(backend.map).manifold.ndx // 2, 0.0

    def traced() -> list[Any] | None:
        with tracing:
            try:
                parts = traced_dynamics(backend, dict(shape.parameters), second=shape.second, long=not has_compiler())
            except TooLong:
                return None
        if parts is None:
            return None
        functions = {f"dynamics_{order}": function for order, function in parts.functions.items()}
        if has_prebuilt_contraction(backend):
            functions.pop("dynamics_contracted", None)
        tapes = _encoded(functions, _limit())
        return None if tapes is None else [tapes, parts.rows, parts.step]

    known = remembered(traced, "dynamics tapes", _limit(), shape.second, *question_of(backend, dict(shape.parameters)))
    return None if known is None else (_decoded(known[0]), known[1], known[2])


def _other_terms(manifold: Manifold, shape: StageShape) -> dict[str, Tape]:
    """Tapes of the terminal cost and the constraints."""
    tapes: dict[str, Tape] = {}
    for name, parts in (("terminal", shape.terminal), ("path", shape.path), ("final", shape.final)):
        tapes |= _tapes_of_terms(name, parts, manifold, shape, along=name == "path") or {}
    return tapes


def _tapes_of_terms(
    name: str, parts: tuple[TermShape, ...], manifold: Manifold, shape: StageShape, *, along: bool
) -> dict[str, Tape] | None:
    """Tapes of cost terms or constraints; None for a running cost that has to be compiled. along: they read controls."""
    limit = _limit() if name == "running" else None
    given = name, parts, manifold, shape.nu
    orders = ["value", "first", *(["second"] if shape.second else [])]

    def traced() -> list[Any] | None:
        with tracing:
            if name in ("running", "terminal"):
                source = term_source(*given, running=along, hessian=shape.hessian)
            else:
                source = constraint_source(*given, running=along, orders=orders)
            return _encoded({f.name: f for f in source.functions if any(f.trace.outputs)}, limit)

    kind = shape.hessian if name in ("running", "terminal") else orders
    known = remembered(traced, "term tapes", *given, kind, limit, operations_limit())
    return None if known is None else _decoded(known)


def _encoded(functions: Mapping[str, TracedFunction], limit: int | None) -> list[Any] | None:
    """JSON value of the tapes of functions; None if one has more operations than the limit."""
    if limit is not None and any(f.operations > limit for f in functions.values()):
        return None
    return [[name, Tape.of(f.trace, f.sizes).data()] for name, f in functions.items()]


def _decoded(known: list[Any]) -> dict[str, Tape]:
    return {name: Tape.from_data(data) for name, data in known}
