"""Functions of a backend's dynamics as traces, with calls of the package's kernels: see
:mod:`~dynamics_backends.compiled.sources.dynamics_source` for their arguments and results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.sources.dynamics_source import ALGEBRAS, with_step
from dynamics_backends.compiled.sources.traced_source import TracedDynamics
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import DynamicsBackend, HasContraction, HasRecursions, unwrapped
from dynamics_backends.tape import traced_forces
from dynamics_backends.tape.kernel_driver import kernel_driver as kernel_driver


def with_kernels(traced: TracedDynamics) -> TracedDynamics:
    """Traces of the same map, whose recursions become calls of kernels, for values and analytic derivatives.

    Unchanged if the map has no recursions.
    """
    map: Any = traced.map
    return replace(traced, map=map.with_recursions(kernel_driver)) if isinstance(map, HasRecursions) else traced


class TracedParts(NamedTuple):
    """Traced dynamics_value, dynamics_partials and dynamics_contracted, by their order in ORDERS, and the computed rows of xdot.

    By complex or dual numbers, "along" replaces "partials": the derivative in one direction, of a perturbation ``step``.
    Finite differences have no "partials".
    """

    functions: dict[str, TracedFunction]
    rows: int
    step: float = 0.0


def traced_dynamics(
    backend: DynamicsBackend, sizes: Mapping[str, int], *, second: bool, forces: bool, curved_forces: bool
) -> TracedParts:
    """Functions of a backend's map as traces: value, and derivatives by the backend's method.

    second: with second derivatives. forces: value and partial derivatives have constraint forces as their last result.
    curved_forces: second derivatives take multipliers of these forces as their last argument. Raises TooLong, TraceError.
    """
    map, name, differs = unwrapped(backend.map), backend.name, isinstance(backend, FiniteDifference)
    plain, mode = TracedDynamics(map, with_step(map, sizes)), str(getattr(backend, "mode", "auto"))
    calling = with_kernels(plain)
    value = calling if differs or name == "analytic" else plain
    parts, step = {"value": traced_forces.value_trace(value) if forces else value.traced_value()}, 0.0
    if name in ALGEBRAS:
        parts["along"], step = plain.traced_direction(ALGEBRAS[name])
    elif name == "analytic":
        parts["partials"] = traced_forces.partials_trace(calling) if forces else calling.traced_partials(None)
    elif not differs:
        parts["partials"] = plain.traced_partials(mode)
    if second and curved_forces:
        parts["contracted"] = traced_forces.contracted_trace(calling)
    elif second:
        exact = calling if isinstance(map, HasContraction) else plain
        parts["contracted"] = exact.traced_contraction(mode)
    return TracedParts(parts, plain.rows, step)


def returned_force_count(backend: DynamicsBackend, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces that the functions of a backend's map return, known without tracing.

    0 for methods other than "analytic", and for maps without forces or with run-time parameters.
    """
    map = unwrapped(backend.map)
    return traced_forces.force_count(map, with_step(map, sizes)) if backend.name == "analytic" else 0
