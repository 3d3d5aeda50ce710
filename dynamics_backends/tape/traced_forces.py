"""Traces of constrained motion with its constraint forces, their derivatives, and their second derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynamics_backends.compiled.emit.emit import TracedFunction
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import curvature, directions
from dynamics_backends.systems.constraints.constraint_kinds import is_shifted
from dynamics_backends.systems.constraints.holonomic import Holonomic


def force_count(map: Any, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces, scalars, that the traced functions of a map return, 0 for none; sizes: of its parameters.

    Only a Holonomic without run-time parameters and without loops of frames has functions that return forces: cost terms of
    forces support neither parameters nor such loops.
    """
    with_forces = isinstance(map, Holonomic) and not sizes and not reports_shifted_forces(map)
    return map.constraints.rows if with_forces else 0


def reports_shifted_forces(map: Holonomic) -> bool:
    """True if any constraint force is reported at another point than the one it is computed at: that of a loop of frames."""
    return any(is_shifted(c) for c in map.constraints.bound)


def value_trace(traced: TracedDynamics) -> TracedFunction:
    """Trace of the function dynamics_value of a Holonomic, the accelerations, with the constraint forces as a second result.

    Raises TraceError if the map cannot be evaluated with symbols, TooLong for more than OPERATIONS_LIMIT operations.
    """
    s = traced.symbols
    motion = traced.attempt(lambda: _holonomic(traced).motion(s.x, s.u, s.p))
    return traced.traced("dynamics_value", {"f": motion.a, "forces": ca.vertcat(*motion.forces)}, {})


def partials_trace(traced: TracedDynamics) -> TracedFunction:
    """Trace of the function dynamics_partials of a Holonomic: computed rows of value, fx and fu, analytic, and a result "forces".

    The latter is one column of the constraint forces and of their derivatives in (q, v, u), row by row. Raises the errors of
    :func:`value_trace`.
    """
    s, map = traced.symbols, _holonomic(traced)
    motion, da, df = traced.attempt(lambda: map.sensitivities(s.x, s.u, s.p))
    first = traced.named(map.in_output(s.x, s.u, motion.a, da))
    return traced.traced("dynamics_partials", {**first, "forces": ca.vertcat(*motion.forces, by_rows(df))}, {})


def contracted_trace(traced: TracedDynamics) -> TracedFunction:
    """Trace of the function dynamics_contracted of a Holonomic: computed rows of value, fx and fu, and xx, ux, uu.

    The latter are the second derivatives of lam' f + phi' forces, with the constraint forces; lam (n_out) and phi, with a
    multiplier of each force, are its last arguments. Raises the errors of :func:`value_trace`.
    """
    s, system = traced.symbols, _holonomic(traced)
    lam, phi = ca.SX.sym("lam", system.n_out), ca.SX.sym("phi", system.constraints.rows)
    in_forces = [phi[i] for i in range(phi.numel())]
    parts = traced.attempt(lambda: system.derivative_equations(s.x, s.u, s.t, s.p, lam[system.model.nv :], in_forces))
    assert parts.g is not None
    found = directions(parts, system.driver)
    second = curvature(system, s.u, parts.g, found.through)
    outputs = traced.named(system.in_output(s.x, s.u, parts.x, found.dx))
    outputs |= dict(zip(("xx", "ux", "uu"), map(by_rows, second), strict=True))
    return traced.traced("dynamics_contracted", outputs, {"lam": lam, "phi": phi})


def _holonomic(traced: TracedDynamics) -> Holonomic:
    """Map of the traced dynamics. Raises AssertionError unless it is a Holonomic."""
    assert isinstance(traced.map, Holonomic)
    return traced.map
