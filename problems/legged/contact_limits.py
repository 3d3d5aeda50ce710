"""What rigid contacts cannot do, looked for in a solution: pull at the ground, or push sideways beyond the friction cone.

f_n >= 0,     |f_t| <= mu f_n     on level ground, z upward
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt import OCP
from trajopt.validation.broken_limits import BrokenLimit, worst_of

NOTICED = 1e-3
"""[N]"""


class PointForces(NamedTuple):
    """Forces (K, F, 3) [N] of point contacts, by names, at knots of a phase."""

    feet: tuple[str, ...]
    knots: slice
    values: Array


def point_forces(ocp: OCP, xs: Array, us: Array) -> Iterator[PointForces]:
    """What rigid contacts do in states xs (N + 1, nx) under controls us (N, nu), for each phase that has point contacts."""
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        map = getattr(getattr(phase.dynamics, "backend", None), "map", None)
        system = getattr(map, "wrapped", map)
        if not isinstance(system, Holonomic):
            continue
        forces = ConstraintForces(system)
        feet = tuple(name.removesuffix(".z") for name in forces.output_names if name.endswith(".z"))
        columns = [[forces.output_names.index(f"{foot}.{axis}") for axis in "xyz"] for foot in feet]
        values = make_backend(forces, "analytic", engine="numpy").f(xs[knots], us[knots, : phase.dynamics.nu])
        yield PointForces(feet, knots, values[:, columns])


def contact_limits(ocp: OCP, friction: float, xs: Array, us: Array) -> list[BrokenLimit]:
    """The worst pull and the worst sliding of each point contact; empty where nothing touches by rigid contacts."""
    found: list[BrokenLimit] = []
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return found
    for feet, knots, f in point_forces(ocp, xs, us):
        normal, sideways, times = f[..., 2], np.hypot(f[..., 0], f[..., 1]), ocp.times[knots]
        held = friction * np.maximum(normal, 0.0)
        pulls, slides = -normal - NOTICED, sideways - held - NOTICED
        found += worst_of("pull", [f"{foot} at the ground" for foot in feet], pulls, times, "N", knots.start)
        found += worst_of("friction cone", feet, slides, times, "N", knots.start)
    return _one_each(found)


def _one_each(found: list[BrokenLimit]) -> list[BrokenLimit]:
    """The worst over all phases."""
    worst: dict[tuple[str, str], BrokenLimit] = {}
    for b in found:
        known = worst.get((b.kind, b.name))
        if known is not None:
            total = b.knots + known.knots
            b = (b if b.excess > known.excess else known)._replace(knots=total)
        worst[b.kind, b.name] = b
    return list(worst.values())
