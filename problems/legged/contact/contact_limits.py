"""Violated limits of contacts in a solution: pulling forces, forces outside the friction cone, and a center of pressure outside
the sole of a flat foot.

f_n >= 0,     |f_t| <= mu f_n,     (-m_y, m_x) / f_n within the sole     on level ground, z upward

Landings have impulses, with the first two limits. Soft ground is checked for pulls alone: its law decides whether feet slip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, unwrapped
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt import OCP
from trajopt.validation.limit_violations import LimitViolation, worst_of
from ..robot.soles import Sole

NOTICED = 1e-3
"""Tolerance on forces of rigid contacts [N]."""
NEGLIGIBLE = 1e-4
"""Tolerance on the center of pressure [m]."""
SOFT_SHARE = 0.01
"""Tolerance on pulls of soft ground, relative to the robot's weight."""
IMPULSE_TIME = 1e-3
"""Tolerance on impulses: that of the robot's weight in this time [s]."""
IMPULSE_SHARE = 0.05
"""Fraction of the normal impulse of a landing below which the impulse of a foot is negligible."""
SOFT_LANDING = 1e-4
"""A landing is negligible if its normal impulse is below that of the robot's weight in this time [s]."""


class PointForces(NamedTuple):
    """Forces (K, F, 3) [N], or impulses [N s], of named contacts at knots of a phase, and moments (K, F, 3), zero for points.

    system: :class:`Holonomic`, :class:`SoftContact` or :class:`Impact`.
    """

    system: Holonomic | SoftContact | Impact
    feet: tuple[str, ...]
    knots: slice
    values: Array
    moments: Array


def point_forces(ocp: OCP, xs: Array, us: Array) -> Iterator[PointForces]:
    """Yield the contact forces in states xs (N + 1, nx) with controls us (N, nu), for each phase with contacts, and the impulses
    of landings.
    """
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        dynamics = phase.dynamics
        backend = getattr(dynamics, "backend", None) if dynamics.sampling is None else dynamics.sampling.backend
        system = None if backend is None else unwrapped(backend.map)
        if not isinstance(system, (Holonomic, SoftContact, Impact)):
            continue
        given = Batch.of(system, xs[knots], us[knots, : dynamics.nu], ocp.times[knots], phase.parameters)
        named = {name: rows.T for name, rows in system.outputs(*given).items() if len(rows) in (3, 6)}
        if named:
            values, moments = ([r[:, part] for r in named.values()] for part in (slice(3), slice(3, 6)))
            moments = [m if m.size else np.zeros_like(f) for f, m in zip(values, moments, strict=True)]
            yield PointForces(system, tuple(named), knots, np.stack(values, 1), np.stack(moments, 1))


def contact_limits(
    ocp: OCP, friction: float | None, xs: Array, us: Array, soles: Sequence[Sole] = ()
) -> list[LimitViolation]:
    """Return the worst pull, sliding and center-of-pressure violation of each contact, and the worst of each landing.

    friction: coefficient of rigid contacts and landings; None if the problem has none of them.
    """
    found: list[LimitViolation] = []
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return found
    for system, feet, knots, f, moments in point_forces(ocp, xs, us):
        normal, sideways, times = f[..., 2], np.hypot(f[..., 0], f[..., 1]), ocp.times[knots]
        at, kind, unit, noticed = knots.start, "", "N", NOTICED
        if isinstance(system, SoftContact):
            kind, noticed = "soft-ground ", SOFT_SHARE * weight(system.model)
        elif isinstance(system, Impact):
            kind, unit, noticed = "landing ", "N s", IMPULSE_TIME * weight(system.model)
        pulls = np.where(normal < -noticed, -normal, 0.0)
        found += worst_of(f"{kind}pull", [f"{foot} at the ground" for foot in feet], pulls, times, unit, at)
        if friction is not None and not isinstance(system, SoftContact):
            slides = sideways - friction * np.maximum(normal, 0.0)
            slides = np.where(slides > noticed, slides, 0.0)
            found += worst_of(f"{kind}friction cone", feet, slides, times, unit, at)
        for sole in () if isinstance(system, Impact) else soles:
            if sole.frame in feet:
                i = feet.index(sole.frame)
                beside = beside_sole(sole, normal[:, i], moments[:, i])[:, None]
                found += worst_of("center of pressure", [sole.frame], beside, times, "m", at)
    return _worst_by_limit(found)


def landing_sentences(ocp: OCP, friction: float | None, xs: Array, times: Array) -> list[str]:
    """Return a sentence about the impulse farthest outside the friction cone, however small, in states xs (M, nx).

    [] if there is none, or if the times (M,) [s] are not those of the knots. Impulses below IMPULSE_SHARE of their landing are left
    out.
    """
    found: list[tuple[float, str]] = []
    at_knots = len(times) == ocp.horizon + 1 and np.isfinite(xs).all()
    landings = point_forces(ocp, xs, np.zeros((ocp.horizon, ocp.nu))) if at_knots and friction is not None else ()
    for system, feet, knots, f, _ in landings:
        if not isinstance(system, Impact):
            continue
        normal, sideways = f[0, :, 2], np.hypot(f[0, :, 0], f[0, :, 1])
        total = np.maximum(normal, 0.0).sum()
        for foot, n, t in zip(feet, normal, sideways, strict=True):
            if n > IMPULSE_SHARE * total and t > friction * n and total > SOFT_LANDING * weight(system.model):
                what = f"of {foot} at {times[knots.start]:.3g} s, {t:.3g} N s along the ground and {n:.3g} N s upward"
                found.append((t / n, f"{what}, needs a friction of {t / n:.2f} (given {friction:g})"))
    return [f"the impulse {max(found)[1]}: the foot may slip as it lands"] if found else []


def weight(model: Model) -> float:
    """Return the weight of a robot [N]."""
    return float(model.total_mass * np.linalg.norm(model.gravity))


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
