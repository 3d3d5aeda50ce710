"""Violated limits of rigid contacts in a solution: pulling forces, forces outside the friction cone, and a center of pressure
outside the sole of a flat foot.

f_n >= 0,     |f_t| <= mu f_n,     (-m_y, m_x) / f_n within the sole     on level ground, z upward
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, unwrapped
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt import OCP
from trajopt.validation.limit_violations import LimitViolation, worst_of
from ..robot.soles import Sole

NOTICED = 1e-3
"""Tolerance on forces [N]."""
NEGLIGIBLE = 1e-4
"""Tolerance on the center of pressure [m]."""


class PointForces(NamedTuple):
    """Forces (K, F, 3) [N] of named contacts at knots of a phase, and moments (K, F, 3) [N m], zero for point contacts."""

    feet: tuple[str, ...]
    knots: slice
    values: Array
    moments: Array


def point_forces(ocp: OCP, xs: Array, us: Array) -> Iterator[PointForces]:
    """Yield the forces of rigid contacts in states xs (N + 1, nx) with controls us (N, nu), for each phase with contacts."""
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        sampling = phase.dynamics.sampling
        system = None if sampling is None else unwrapped(sampling.backend.map)
        if not isinstance(system, Holonomic):
            continue
        forces = ConstraintForces(system)
        names, values = (
            forces.output_names,
            make_backend(forces, "analytic", engine="numpy").f(xs[knots], us[knots, : phase.dynamics.nu]),
        )
        first = {n.rpartition(".")[0]: i for i, n in enumerate(names) if n.rpartition(".")[2] in ("x", "fx")}
        moments = np.stack(
            [
                values[:, i + 3 : i + 6] if names[i].endswith(".fx") else np.zeros((len(values), 3))
                for i in first.values()
            ],
            1,
        )
        columns = [[i, i + 1, i + 2] for i in first.values()]
        yield PointForces(tuple(first), knots, values[:, columns], moments)


def contact_limits(ocp: OCP, friction: float, xs: Array, us: Array, soles: Sequence[Sole] = ()) -> list[LimitViolation]:
    """Return the worst pull, sliding and center-of-pressure violation of each contact; empty without rigid contacts."""
    found: list[LimitViolation] = []
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return found
    for feet, knots, f, moments in point_forces(ocp, xs, us):
        normal, sideways, times = f[..., 2], np.hypot(f[..., 0], f[..., 1]), ocp.times[knots]
        held = friction * np.maximum(normal, 0.0)
        pulls, slides = -normal - NOTICED, sideways - held - NOTICED
        found += worst_of("pull", [f"{foot} at the ground" for foot in feet], pulls, times, "N", knots.start)
        found += worst_of("friction cone", feet, slides, times, "N", knots.start)
        for sole in soles:
            if sole.frame in feet:
                i = feet.index(sole.frame)
                beside = beside_sole(sole, normal[:, i], moments[:, i])[:, None]
                found += worst_of("center of pressure", [sole.frame], beside, times, "m", knots.start)
    return _worst_by_limit(found)


def beside_sole(sole: Sole, normal: Array, moment: Array) -> Array:
    """Return the distance (K,) [m] of the center of pressure from a sole, minus 0.1 mm; negative inside.

    normal (K,) [N], moment (K, 3) [N m]. Contacts without load count as inside."""
    pressed = normal > NOTICED
    x, y = (np.where(pressed, m, 0.0) / np.where(pressed, normal, 1.0) for m in (-moment[:, 1], moment[:, 0]))
    return np.max([x - sole.front, -sole.back - x, y - sole.left, -sole.right - y], axis=0) - NEGLIGIBLE


def _worst_by_limit(found: list[LimitViolation]) -> list[LimitViolation]:
    """Keep the worst violation of each limit over all phases."""
    worst: dict[tuple[str, str], LimitViolation] = {}
    for b in found:
        known = worst.get((b.kind, b.name))
        if known is not None:
            total = b.knots + known.knots
            b = (b if b.excess > known.excess else known)._replace(knots=total)
        worst[b.kind, b.name] = b
    return list(worst.values())
