"""C functions of a system's dynamics and its derivatives, on blocks of lanes, for inclusion in larger kernels.

    dynamics_value(ctx, x, u, t, p, f)
    dynamics_partials(ctx, x, u, t, p, f, fx, fu)
    dynamics_contracted(ctx, x, u, t, p, lam, to)       to: f, fx, fu, and the second derivatives xx, ux, uu of lam' xdot

f, fx (by rows, in the tangent space) and fu are the last ``rows`` rows of xdot: all of them, or for a second-order system those
below qdot = v.  ``p`` holds the concatenated parameters.  ``ctx`` holds a workspace ``w`` of ``room`` vectors and the address for
constraint forces (templates/lanes/context.h).

For steps of several stages straight-line code packs sparse rows of fx and fu: :func:`traced_source.packed`.  Their second
derivatives are returned without first ones.

Free rigid bodies need no source: their functions are in the package's library (:mod:`free_body_source`). Every other map is
straight-line code, except for the solution of constrained motion and the iterations of long steps with contacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from dynamics_backends.compiled.runtime.trace_cache import remembered
from dynamics_backends.compiled.sources import constrained_source, traced_source
from dynamics_backends.compiled.sources.differences import Differences, differences_source
from dynamics_backends.compiled.sources.free_body_source import ORDERS, FreeBodyFunctions
from dynamics_backends.compiled.sources.stepped_source import stepped_second_source, stepped_source
from dynamics_backends.compiled.sources.traced_function import TracedFunction
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
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
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constrained_derivatives import ConstrainedDerivatives
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.stepped_contact import SteppedContact

_ALGEBRAS = {"complex_step": "complex", "forward_ad": "dual", "structured_ad": "dual"}
BY_TRACE = ("casadi_ad", *_ALGEBRAS, "forward_difference")
"""Methods whose second derivatives come from the trace if the map defines none: exact methods, and one without second
derivatives.
"""
METHODS = ("analytic", "central_difference", *BY_TRACE)
FEW_JOINTS = 2
"""Degrees of freedom up to which the dynamics of a robot are tapes: most such robots are planar, and a tape of the few operations
that remain takes a third of the time of the recursions.
"""


@dataclass(frozen=True)
class DynamicsSource:
    """C source of dynamics functions.

    room: workspace in vectors. rows: computed rows of xdot. forces: number of constraint forces that the functions return if ctx
    requests them. has_partials: False if dynamics_partials is :class:`Differences` of the value.
    """

    source: str
    room: str
    rows: int
    forces: int = 0
    has_partials: bool = True


def has_source(backend: DynamicsBackend) -> bool:
    """True if this module supports a backend's method; tracing shows later if the map is short enough."""
    if not isinstance(backend, Method) or backend.name not in METHODS:
        return False
    return backend.name != "analytic" or isinstance(unwrapped(backend.map), HasPartials)


def question_of(backend: DynamicsBackend, sizes: Mapping[str, int]) -> tuple:
    """Everything that the functions of this module depend on, for :mod:`dynamics_backends.compiled.runtime.trace_cache`."""
    settings = backend.settings if isinstance(backend, Method) else ()
    return (backend.name, settings, unwrapped(backend.map), tuple(sizes.items()), traced_source.OPERATIONS_LIMIT)


def dynamics_source(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, several_stages: bool = False
) -> DynamicsSource:
    """C source of value and partial derivatives of a backend's map by its method; sizes: of the parameters, by name.

    The source has no dynamics_partials by finite differences: see :func:`with_differences`. several_stages: for steps of several
    stages. Raises TooLong for code that would take too long to compile, TraceError for a map
    that cannot be traced.
    """

    def write() -> list[Any]:
        return list(_written(backend, sizes, several_stages))

    source, room, rows = remembered(write, "dynamics", several_stages, *question_of(backend, sizes))
    differs = isinstance(backend, FiniteDifference)
    return DynamicsSource(source, room, rows, forces_beside(backend, sizes), not differs)


def with_differences(dynamics: DynamicsSource, backend: DynamicsBackend, sizes: Mapping[str, int]) -> DynamicsSource:
    """Complete source of a backend by finite differences, which follows the groups of its manifold; others are returned."""
    if not isinstance(backend, FiniteDifference):
        return dynamics
    partials = differences_source(backend, _input_sizes(backend, sizes), dynamics.rows)
    return replace(dynamics, source="\n".join([dynamics.source, partials]), has_partials=True)


def differences_of(
    backend: DynamicsBackend,
    value: tuple[int | None, int | None, int | None],
    sizes: Mapping[str, int],
    rows: int,
    lanes: int,
) -> Differences | None:
    """Function dynamics_partials of a backend by finite differences; None for other backends.

    value: members of function_t of dynamics_value. sizes: of the parameters. rows: computed rows of xdot. lanes: SIMD lanes.
    """
    if not isinstance(backend, FiniteDifference):
        return None
    return Differences(backend, value, _input_sizes(backend, sizes), rows, lanes)


def _input_sizes(backend: DynamicsBackend, sizes: Mapping[str, int]) -> list[int]:
    """Components of x, u, t and p."""
    map = unwrapped(backend.map)
    return [map.manifold.nx, map.nu, 1, sum(_with_step(map, sizes).values())]


def prebuilt_functions(
    backend: DynamicsBackend, sizes: Mapping[str, int], lanes: int | None
) -> tuple[FreeBodyFunctions, tuple[str, ...]] | None:
    """Functions of a backend's map in the package's library, and which of them to use; None if it has none.

    Free bodies have their analytic derivatives there; finite differences use the value and second derivatives, other methods only
    second derivatives.
    """
    if not has_prebuilt_contraction(backend):
        return None
    map = cast(FreeBody, unwrapped(backend.map))
    functions = FreeBodyFunctions(map, sum(sizes.values()), lanes)
    if isinstance(backend, FiniteDifference):
        return functions, (ORDERS[0], ORDERS[2])
    return functions, ORDERS if backend.name == "analytic" else ORDERS[2:]


def is_prebuilt(backend: DynamicsBackend) -> bool:
    """True if value and partial derivatives of a backend's map are functions of the package's library."""
    prebuilt = backend.name == "analytic" or isinstance(backend, FiniteDifference)
    return prebuilt and has_prebuilt_contraction(backend)


def has_prebuilt_contraction(backend: DynamicsBackend) -> bool:
    """True if second derivatives of a backend's map are in the package's library and faster there than as tapes."""
    map = unwrapped(backend.map)
    return isinstance(map, FreeBody) and map.model.nv > FEW_JOINTS


class TracedParts(NamedTuple):
    """Traced dynamics_value, dynamics_partials and dynamics_contracted, by their order in ORDERS, and the computed rows of xdot.

    By complex or dual numbers, "along" takes the place of "partials": the derivative in one direction, of a perturbation ``step``.
    Finite differences have no "partials".
    """

    functions: dict[str, TracedFunction]
    rows: int
    step: float = 0.0


def traced_dynamics(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, second: bool, long: bool
) -> TracedParts | None:
    """Functions of a backend's map as traces; None if they are more than straight-line code.

    Those are long steps with contacts, and derivatives of constrained motion except first finite differences. second: with second
    derivatives. long: False omits constrained motion, whose traces are long, without tracing it. Raises TooLong, TraceError.
    """
    map, name, differs = unwrapped(backend.map), backend.name, isinstance(backend, FiniteDifference)
    if isinstance(map, SteppedContact) or name not in METHODS:
        return None
    if isinstance(map, (ConstrainedDerivatives, Holonomic)) and (second or not differs or not long):
        return None
    traced = TracedDynamics(map, _with_step(map, sizes))
    mode = str(getattr(backend, "mode", "auto"))
    parts, step = {"value": traced.traced_value()}, 0.0
    if name in _ALGEBRAS:
        parts["along"], step = traced.traced_direction(_ALGEBRAS[name])
    elif not differs:
        parts["partials"] = traced.traced_partials(None if name == "analytic" else mode)
    if second:
        parts["contracted"] = traced.traced_contraction(mode)
    return TracedParts(parts, traced.rows, step)


def forces_beside(backend: DynamicsBackend, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces that the functions of a backend's map return, known without tracing."""
    map = unwrapped(backend.map)
    return constrained_source.forces_given(map, _with_step(map, sizes)) if backend.name == "analytic" else 0


def _written(backend: DynamicsBackend, sizes: Mapping[str, int], several_stages: bool) -> tuple[str, str, int]:
    """Source, workspace and rows."""
    map, name = unwrapped(backend.map), backend.name
    traced = TracedDynamics(map, _with_step(map, sizes), several_stages)
    if isinstance(map, SteppedContact) and name == "analytic":
        return *stepped_source(traced), traced.rows
    value, room = constrained_source.value_source(traced)
    if isinstance(backend, FiniteDifference):
        return value, room, traced.rows
    if name in _ALGEBRAS:
        partials, more = traced.on_pairs(_ALGEBRAS[name])
    elif name == "casadi_ad":
        partials, more = traced.casadi_ad(backend.mode)  # type: ignore[attr-defined]
    else:
        partials, more = constrained_source.analytic_source(traced)
    return "\n".join([value, partials]), f"{room} + {more}", traced.rows


def contracted_source(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, several_stages: bool = False
) -> DynamicsSource:
    """C source of dynamics_contracted for a backend with :func:`has_contraction`; it follows the :func:`dynamics_source`.

    Raises TooLong, TraceError.
    """
    map, mode = unwrapped(backend.map), str(getattr(backend, "mode", "auto"))
    sizes = _with_step(map, sizes)

    def write() -> list[Any]:
        traced = TracedDynamics(map, sizes, several_stages)
        if isinstance(map, SteppedContact):
            return [*stepped_second_source(traced), traced.rows]
        return [*constrained_source.contracted_source(traced, mode), traced.rows]

    question = ("contracted", several_stages, mode, map, tuple(sizes.items()), traced_source.OPERATIONS_LIMIT)
    return DynamicsSource(*remembered(write, *question))


def _with_step(map: Map, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Parameter sizes, followed by the step of an implicitly damped system."""
    return sizes if damping_offsets(map) is None else {**sizes, IMPLICIT_STEP: 1}


def has_contraction(backend: DynamicsBackend) -> bool:
    """True if second derivatives can be compiled: the map defines them, or the method can take them from the trace.

    Tracing shows later if the trace is possible and short enough.
    """
    map = unwrapped(backend.map)
    return isinstance(map, HasContraction) or (backend.name in BY_TRACE and not isinstance(map, NeedsScheme))
