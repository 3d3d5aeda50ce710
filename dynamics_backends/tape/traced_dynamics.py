"""Functions of a backend's dynamics as traces: see :mod:`~dynamics_backends.compiled.sources.dynamics_source` for their arguments
and results.

Analytic derivatives, and values by the methods "analytic" and finite differences, contain calls of the package's kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.sources.dynamics_source import ALONG_DIRECTIONS, with_step
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import DynamicsBackend, HasContraction, HasRecursions, unwrapped
from dynamics_backends.tape import traced_forces
from dynamics_backends.tape.kernel_driver import kernel_driver as kernel_driver


def with_kernels(traced: TracedDynamics) -> TracedDynamics:
    """Traces of the same map, in which recursions that the library contains become calls of kernels.

    They are for values and analytic derivatives, since calls cannot be differentiated by AD. Returns ``traced`` itself if the map
    is not a HasRecursions.
    """
    map: Any = traced.map
    return replace(traced, map=map.with_recursions(kernel_driver)) if isinstance(map, HasRecursions) else traced


class TracedParts(NamedTuple):
    """Traced dynamics_value, dynamics_partials and dynamics_contracted by these names, and the number of computed rows.

    rows: the functions compute the last ``rows`` rows of xdot. For ALONG_DIRECTIONS, "along" replaces "partials": value
    and slope along a direction. Finite differences have no "partials"; "contracted" exists if second derivatives were requested.
    """

    functions: dict[str, TracedFunction]
    rows: int


def traced_dynamics(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, second: bool, forces: bool, curved_forces: bool
) -> TracedParts:
    """Functions of a backend's map as traces: value, and first derivatives by the backend's method (none for finite differences).

    sizes: number of components of the parameters by name. second: with second derivatives, analytic if the map has them, else by
    CasADi's AD, for any method. forces: the value, and partial derivatives by "analytic", have constraint forces as their last
    result. curved_forces: second derivatives, if any, include those of the forces, whose multipliers are the last argument.
    Raises TooLong for more than OPERATIONS_LIMIT operations, TraceError if the map cannot be evaluated with symbols.
    """
    map, name, differs = unwrapped(backend.map), backend.name, isinstance(backend, FiniteDifference)
    plain, mode = TracedDynamics(map, with_step(map, sizes)), str(getattr(backend, "mode", "auto"))
    calling = with_kernels(plain)
    value = calling if differs or name == "analytic" else plain
    parts = {"value": traced_forces.value_trace(value) if forces else value.traced_value()}
    if name in ALONG_DIRECTIONS:
        parts["along"] = plain.traced_direction(name)
    elif name == "analytic":
        parts["partials"] = traced_forces.partials_trace(calling) if forces else calling.traced_partials(None)
    elif not differs:
        parts["partials"] = plain.traced_partials(mode)
    if second and curved_forces:
        parts["contracted"] = traced_forces.contracted_trace(calling)
    elif second:
        closed = isinstance(map, HasContraction)
        parts["contracted"] = calling.traced_contraction(None) if closed else plain.traced_contraction(mode)
    return TracedParts(parts, value.rows)


def returned_force_count(backend: DynamicsBackend, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces that the functions of a backend's map return, known without tracing.

    0 for methods other than "analytic", and for maps without constraints, with run-time parameters or with loops of frames.
    """
    map = unwrapped(backend.map)
    return traced_forces.force_count(map, with_step(map, sizes)) if backend.name == "analytic" else 0
