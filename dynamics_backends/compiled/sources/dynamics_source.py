"""Functions of a backend's dynamics on blocks of lanes, as traces.

    dynamics_value         x, u, t, p -> f
    dynamics_partials      x, u, t, p -> f, fx, fu
    dynamics_contracted    x, u, t, p, lam -> f, fx, fu, and the second derivatives xx, ux, uu of lam' xdot

f, fx (by rows, in the tangent space) and fu are the last ``rows`` rows of xdot: all of them, or for a second-order system those
below qdot = v; lam has an entry for every row of xdot.  ``p`` holds the concatenated parameters.

Every map is traced, with calls of the library's kernels (:mod:`dynamics_backends.tape.kernel_driver`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.compiled.sources.differences import Function, PartialsKernel, by_differences, by_directions
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

ALONG = "dynamics_along"
"""Name of the function of value and slope along a direction."""
ALONG_DIRECTIONS = ("complex_step", "forward_ad", "structured_ad")
"""Methods whose compiled derivatives come from the slope along one direction at a time."""
BY_TRACE = ("casadi_ad", *ALONG_DIRECTIONS, "forward_difference")
"""Methods whose compiled second derivatives come from the trace if the map defines none: exact methods, and forward_difference,
which has none of its own.
"""
METHODS = ("analytic", "central_difference", *BY_TRACE)


def has_source(backend: DynamicsBackend) -> bool:
    """True if a backend's dynamics can be compiled: a method in METHODS, and analytic derivatives for "analytic".

    Tracing shows later if the map is short enough.
    """
    if not isinstance(backend, Method) or backend.name not in METHODS:
        return False
    return backend.name != "analytic" or isinstance(unwrapped(backend.map), HasPartials)


def trace_inputs_of(backend: DynamicsBackend, sizes: Mapping[str, int]) -> tuple:
    """Key of the trace cache for a backend's functions: method, its settings, map, parameter sizes and OPERATIONS_LIMIT."""
    settings = backend.settings if isinstance(backend, Method) else ()
    return (backend.name, settings, unwrapped(backend.map), tuple(sizes.items()), traced_source.OPERATIONS_LIMIT)


def partials_kernel(
    backend: DynamicsBackend, tapes: Mapping[str, Function], sizes: Mapping[str, int], rows: int
) -> PartialsKernel | None:
    """Function dynamics_partials of a backend of finite differences, complex step or forward AD; None for other methods.

    tapes: functions of the tapes "dynamics_value" and ALONG, if the method has them. sizes: components of the parameters by name.
    rows: number of computed rows of xdot.
    """
    inputs = _input_sizes(backend, sizes)
    if isinstance(backend, FiniteDifference):
        return by_differences(backend, tapes.get("dynamics_value", (None, None, None)), inputs, rows)
    if ALONG in tapes:
        return by_directions(backend, tapes[ALONG], inputs, rows)
    return None


def _input_sizes(backend: DynamicsBackend, sizes: Mapping[str, int]) -> list[int]:
    """Components of x, u, t and of all parameters together, a step length included."""
    map = unwrapped(backend.map)
    return [map.manifold.nx, map.nu, 1, sum(with_step(map, sizes).values())]


def straight_functions(map: Map) -> tuple[list[TracedFunction], int]:
    """Traces of dynamics_value and dynamics_partials of a map whose only parameter may be the implicit step, and ``rows`` of xdot.

    The derivatives are analytic, or by CasADi's AD for a map without analytic ones. Raises TraceError if the map cannot be
    evaluated with symbols, TooLong for more than OPERATIONS_LIMIT operations.
    """
    traced = TracedDynamics(map, with_step(map, {}))
    partials = traced.traced_partials(None if isinstance(map, HasPartials) else "auto")
    return [traced.traced_value(), partials], traced.rows


def with_step(map: Map, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Parameter sizes, followed by the step of an implicitly damped system; unchanged for other maps."""
    return sizes if damping_offsets(map) is None else {**sizes, IMPLICIT_STEP: 1}


def has_contraction(backend: DynamicsBackend) -> bool:
    """True if second derivatives can be compiled: the map defines them, or the method (BY_TRACE) takes them from the trace.

    The trace has none for a map of whole time steps (NeedsScheme). Tracing shows later if the trace is possible and short enough.
    """
    map = unwrapped(backend.map)
    return isinstance(map, HasContraction) or (backend.name in BY_TRACE and not isinstance(map, NeedsScheme))
