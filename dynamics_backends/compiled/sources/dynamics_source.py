"""C functions of a system's dynamics and its derivatives, on blocks of lanes, for inclusion in larger kernels.

    dynamics_value(ctx, x, u, t, p, f)
    dynamics_partials(ctx, x, u, t, p, f, fx, fu)
    dynamics_contracted(ctx, x, u, t, p, lam, to)       to: f, fx, fu, and the second derivatives xx, ux, uu of lam' xdot

f, fx (by rows, in the tangent space) and fu are the last ``rows`` rows of xdot: all of them, or for a second-order system those
below qdot = v.  ``p`` holds the concatenated parameters.  ``ctx`` holds the model's tables ``ti``, ``td``, a workspace ``w`` of
``room`` vectors, and the address for constraint forces (templates/lanes/context.h).

For steps of several stages straight-line code packs sparse rows of fx and fu: :func:`traced_source.packed`.  Their second
derivatives are returned without first ones.

Free rigid bodies are loops over their model's tables unless the robot is small.  Every other map is straight-line code, except for
the solution of constrained motion and the iterations of long steps with contacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import NO_TABLES
from dynamics_backends.compiled.loops.tables import double_tables, int_tables
from dynamics_backends.compiled.runtime.trace_cache import remembered
from dynamics_backends.compiled.sources import constrained_source, traced_source
from dynamics_backends.compiled.sources.free_body_source import contracted_loops, partials_loops, value_loops
from dynamics_backends.compiled.sources.stepped_source import stepped_second_source, stepped_source
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, differences
from dynamics_backends.methods.base import Method
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import (
    IMPLICIT_STEP,
    DynamicsBackend,
    HasContraction,
    HasPartials,
    Map,
    NeedsScheme,
    damping_offsets,
    unwrapped,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.stepped_contact import SteppedContact

STRAIGHT_UP_TO_DOFS = 10
"""Free bodies with more degrees of freedom are loops: straight-line code would take too long to compile."""
_ALGEBRAS = {"complex_step": "complex", "forward_ad": "dual", "structured_ad": "dual"}
BY_TRACE = ("casadi_ad", *_ALGEBRAS, "forward_difference")
"""Methods whose second derivatives come from the trace if the map defines none: exact methods, and one without second
derivatives.
"""
METHODS = ("analytic", "central_difference", *BY_TRACE)


@dataclass(frozen=True)
class DynamicsSource:
    """C source of dynamics functions.

    room: workspace in vectors, a C expression in nb, nv, nq. rows: computed rows of xdot. model: model whose tables are read, or
    None.
    forces: number of constraint forces that the functions return if ctx requests them.
    """

    source: str
    room: str
    rows: int
    model: Model | None = None
    forces: int = 0


def has_source(backend: DynamicsBackend) -> bool:
    """True if this module supports a backend's method; tracing shows later if the map is short enough."""
    if not isinstance(backend, Method) or backend.name not in METHODS:
        return False
    return backend.name != "analytic" or isinstance(unwrapped(backend.map), HasPartials)


def question_of(backend: DynamicsBackend, sizes: Mapping[str, int]) -> tuple:
    """Everything that the functions of this module depend on, for :mod:`dynamics_backends.compiled.runtime.trace_cache`."""
    settings = backend.settings if isinstance(backend, Method) else ()
    return (backend.name, settings, unwrapped(backend.map), tuple(sizes.items()), *_limits())


def _limits() -> tuple[int, int]:
    return STRAIGHT_UP_TO_DOFS, traced_source.OPERATIONS_LIMIT


def dynamics_source(
    backend: DynamicsBackend,
    sizes: Mapping[str, int],
    *,
    straight: bool | None = None,
    several_stages: bool = False,
) -> DynamicsSource:
    """C source of value and partial derivatives of a backend's map by its method; sizes: of the parameters, by name.

    straight: straight-line code or loops; default by the size of the robot. several_stages: for steps of several stages. Raises
    TooLong for straight-line code that would take too long to compile, TraceError for a map that cannot be traced.
    """
    map = unwrapped(backend.map)
    body = _looped(map) if straight is None else None if straight else _free_body(map)

    def write() -> list[Any]:
        return list(_written(backend, sizes, body, several_stages))

    source, room, rows = remembered(write, "dynamics", straight, several_stages, *question_of(backend, sizes))
    return DynamicsSource(source, room, rows, None if body is None else body.model, forces_beside(backend, sizes))


def forces_beside(backend: DynamicsBackend, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces that the functions of a backend's map return, known without tracing."""
    map = unwrapped(backend.map)
    return constrained_source.forces_given(map, _with_step(map, sizes)) if backend.name == "analytic" else 0


def _written(
    backend: DynamicsBackend, sizes: Mapping[str, int], body: FreeBody | None, several_stages: bool
) -> tuple[str, str, int]:
    """Source, workspace and rows; body: the robot to write as loops, or None."""
    map, name = unwrapped(backend.map), backend.name
    before, sizes = sum(sizes.values()), _with_step(map, sizes)
    traced = TracedDynamics(map, sizes, several_stages)
    if isinstance(map, SteppedContact) and name == "analytic":
        return *stepped_source(traced), traced.rows
    rows = traced.rows if body is None else map.manifold.ndx // 2
    value, room = constrained_source.value_source(traced) if body is None else value_loops(body, before)
    if isinstance(backend, FiniteDifference):
        partials, more = differences(map, rows, backend.scheme, backend.step), "0"
    elif name in _ALGEBRAS:
        partials, more = traced.on_pairs(_ALGEBRAS[name])
    elif name == "casadi_ad":
        partials, more = traced.casadi_ad(backend.mode)  # type: ignore[attr-defined]
    else:
        partials, more = constrained_source.analytic_source(traced) if body is None else partials_loops(body)
    return "\n".join([value, partials]), f"{room} + {more}", rows


def contracted_source(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, several_stages: bool = False
) -> DynamicsSource:
    """C source of dynamics_contracted for a backend with :func:`has_contraction`; it follows the :func:`dynamics_source`.

    Raises TooLong, TraceError.
    """
    map, mode = unwrapped(backend.map), str(getattr(backend, "mode", "auto"))
    body = _looped(map)
    sizes = _with_step(map, sizes)
    if body is not None:
        source, room = contracted_loops(body)
        return DynamicsSource(source, room, map.manifold.ndx // 2, body.model)

    def write() -> list[Any]:
        traced = TracedDynamics(map, sizes, several_stages)
        if isinstance(map, SteppedContact):
            return [*stepped_second_source(traced), traced.rows]
        return [*constrained_source.contracted_source(traced, mode), traced.rows]

    question = ("contracted", several_stages, mode, map, tuple(sizes.items()), *_limits())
    return DynamicsSource(*remembered(write, *question))


def model_in_loops(map: Map) -> Model | None:
    """Model whose tables the functions of a map read by default, or None."""
    body = _looped(unwrapped(map))
    return None if body is None else body.model


def _with_step(map: Map, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Parameter sizes, followed by the step of an implicitly damped system."""
    return sizes if damping_offsets(map) is None else {**sizes, IMPLICIT_STEP: 1}


def _looped(map: Map) -> FreeBody | None:
    body = _free_body(map)
    return None if body is None or body.model.nv <= STRAIGHT_UP_TO_DOFS else body


def _free_body(map: Map) -> FreeBody | None:
    return map if isinstance(map, FreeBody) else None


def has_contraction(backend: DynamicsBackend) -> bool:
    """True if second derivatives can be compiled: the map defines them, or the method can take them from the trace.

    Tracing shows later if the trace is possible and short enough.
    """
    map = unwrapped(backend.map)
    return isinstance(map, HasContraction) or (backend.name in BY_TRACE and not isinstance(map, NeedsScheme))


def tables_of(model: Model | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Integer and double tables that the functions read."""
    return NO_TABLES if model is None else (int_tables(model), double_tables(model))
