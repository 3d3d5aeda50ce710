"""Wrench cone of flat feet: unilateral contact, friction, yaw torque and center of pressure; as a cost and as a constraint.

A sole extends from -b to a along x and from -r to l along y, level and aligned with the world. With force f and moment m at its
origin, its contact satisfies

    f_z - min_force >= 0,                     |(f_x, f_y)| <= mu f_z,
    m_y + a f_z >= 0,   b f_z - m_y >= 0,   l f_z - m_x >= 0,   m_x + r f_z >= 0         center of pressure (-m_y, m_x) / f_z
    |m_z| <= mu (h_x + h_y)/2 f_z                                                       h: half the length, half the width

(compare S. Caron et al., ICRA 2015, where the last is exact).  Margins are relative to the robot's weight divided by its number
of feet; moments are divided by h_x, h_y or their mean.  The cost uses the residual of
:mod:`~problems.legged.contact.friction_cone`; the constraint uses its pyramid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import ComposedMap, composed
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt.problem.terms import Values
from ..robot.soles import Sole
from .friction_cone import (
    FACETS,
    SMOOTHING,
    first_rows,
    no_parameters,
    pyramid,
    smooth_hinge,
    weight_per_foot,
)

PRESSURE = (
    "pressure before the toe",
    "pressure behind the heel",
    "pressure left",
    "pressure right",
    "turn",
    "turn back",
)


def wrench_cost(
    system: Holonomic,
    soles: Sequence[Sole],
    friction: float,
    weight: Values,
    *,
    min_force: float = 0.0,
    feet: int = 2,
    name: str = "wrench cone",
) -> to.CostTerm:
    """Return the cost that frame contacts on these soles stay within the cone. friction, min_force: run-time parameters.

    feet: number of feet that share the weight. Raises ValueError for a coefficient that is not positive, UnknownName for a sole
    without a contact in the system.
    """
    residual = _composed(system, soles, feet, friction, partial(_margin_residuals), ("pushes", "sticks", *PRESSURE))
    return to.CostTerm(
        name, residual, np.asarray(weight), {"friction": np.array([friction]), "min_force": np.array([min_force])}
    )


def wrench_constraint(
    system: Holonomic,
    soles: Sequence[Sole],
    friction: float,
    *,
    min_force: float = 0.0,
    feet: int = 2,
    facets: int = FACETS,
    name: str | None = None,
) -> to.Constraint:
    """Return the cone as inequality constraints, linear in the wrenches, with an inscribed friction pyramid."""
    kinds = ("pushes", *(f"facet {j}" for j in range(facets)), *PRESSURE)
    residual = _composed(system, soles, feet, friction, partial(_margins, facets), kinds)
    lower = np.tile([min_force, *np.zeros(len(kinds) - 1)], len(soles))
    name = name or f"wrench cone of {', '.join(sole.frame for sole in soles)}"
    return to.Constraint(name, residual, lower, np.asarray(np.inf), {"friction": np.array([friction])})


def wrench_rows(system: Holonomic, frames: Sequence[str]) -> tuple[int, ...]:
    """Return the first force row of each frame contact. Raises UnknownName for a frame without contact."""
    return first_rows(system, frames, "fx", "frame contact")


def _composed(system, soles, feet, friction, margins, kinds) -> ComposedMap:
    if not friction > 0:
        raise ValueError(f"friction = {friction}; expected a positive number")
    rows = wrench_rows(system, [sole.frame for sole in soles])
    per_unit = 1.0 / weight_per_foot(system.model, feet)
    names = tuple(f"{sole.frame} {kind}" for sole in soles for kind in kinds)
    outer = partial(_margins_of_soles, margins, rows, tuple(soles), per_unit)
    return composed(ConstraintForces(system), outer, no_parameters, names)


def _margins_of_soles(margins, rows, soles, per_unit: float, forces: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the margins of all soles, one after the other."""
    found: list[Scalar] = []
    for at, sole in zip(rows, soles, strict=True):
        found += margins(sole, [forces[at + i] * per_unit for i in range(6)], p)
    return found


def _pressures(sole: Sole, w: list[Scalar], mu: Scalar) -> list[Scalar]:
    """Return the margins of :data:`PRESSURE` of a scaled wrench (6)."""
    (h_x, h_y), normal, (m_x, m_y, m_z) = sole.half, w[2], w[3:]
    turn = 0.5 * (h_x + h_y)
    return [
        (m_y + normal * sole.front) * (1.0 / h_x),
        (normal * sole.back - m_y) * (1.0 / h_x),
        (normal * sole.left - m_x) * (1.0 / h_y),
        (normal * sole.right + m_x) * (1.0 / h_y),
        mu * normal - m_z * (1.0 / turn),
        mu * normal + m_z * (1.0 / turn),
    ]


def _margin_residuals(sole: Sole, w: list[Scalar], p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the residuals of all margins."""
    mu = p["friction"][0]
    sideways = sm.sqrt(w[0] * w[0] + w[1] * w[1] + SMOOTHING**2)
    return [smooth_hinge(y) for y in (w[2] - p["min_force"][0], mu * w[2] - sideways, *_pressures(sole, w, mu))]


def _margins(facets: int, sole: Sole, w: list[Scalar], p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the left sides of the inequalities."""
    mu = p["friction"][0]
    return [w[2], *pyramid(w[:3], mu, facets), *_pressures(sole, w, mu)]
