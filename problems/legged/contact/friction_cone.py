"""Friction cone of point contacts, as a cost and as a constraint: f_n >= 0 and |f_t| <= mu f_n on level ground.

As a cost, a margin y >= 0 has the smooth residual  (sqrt(y^2 + eps^2) - y) / 2,  which is about -y for negative y and
vanishes for large y:

    y = (f_n - min_force) / unit        the contact pushes
    y = (mu f_n - sqrt(f_x^2 + f_y^2 + (eps unit)^2)) / unit     it sticks

As a constraint, the cone is replaced by an inscribed pyramid with m facets, which is linear in the forces and smooth at its tip,
for a foot without load (D. Stewart, J. Trinkle, Int. J. Numer. Methods Eng. 39, 1996):

    f_n - min_force >= 0,        mu cos(pi/m) f_n - (cos a_j f_x + sin a_j f_y) >= 0,   a_j = 2 pi j / m,   j = 0 .. m - 1

Forces are in units of the robot's weight divided by its number of feet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt.problem.terms import Values

SMOOTHING = 0.05
"""eps."""
FACETS = 4


def friction_cost(
    system: Holonomic,
    contacts: Sequence[str],
    friction: float,
    weight: Values,
    *,
    min_force: float = 0.0,
    feet: int = 4,
    name: str = "friction",
) -> to.CostTerm:
    """Return the cost that point contacts push with at least ``min_force`` and stay within the cone of ``friction``.

    contacts: names in the system. feet: number of feet that share the weight, which defines the unit of forces. Raises ValueError
    for a coefficient that is not positive, UnknownName for an unknown contact.
    """
    if not friction > 0:
        raise ValueError(f"friction = {friction}; expected a positive number")
    unit = weight_per_foot(system.model, feet)
    rows = force_rows(system, contacts)
    names = tuple(f"{contact} {what}" for contact in contacts for what in ("pushes", "sticks"))
    residual = composed(ConstraintForces(system), partial(_margin_residuals, rows, 1.0 / unit), no_parameters, names)
    return to.CostTerm(
        name, residual, np.asarray(weight), {"friction": np.array([friction]), "min_force": np.array([min_force])}
    )


def friction_constraint(
    system: Holonomic,
    contacts: Sequence[str],
    friction: float,
    *,
    min_force: float = 0.0,
    feet: int = 4,
    facets: int = FACETS,
    name: str | None = None,
) -> to.Constraint:
    """Return the constraint that point contacts push with at least ``min_force`` and stay within a pyramid in the friction cone.

    feet: number of feet that share the weight, which defines the unit of forces. friction is a run-time parameter. name: default:
    includes the contact names, so that multipliers of different stances have different names.
    Raises ValueError for a coefficient that is not positive or fewer than three facets, UnknownName for an unknown contact.
    """
    if not friction > 0:
        raise ValueError(f"friction = {friction}; expected a positive number")
    if facets < 3:
        raise ValueError(f"facets = {facets}; expected at least 3")
    per_unit = 1.0 / weight_per_foot(system.model, feet)
    kinds = ("pushes", *(f"facet {j}" for j in range(facets)))
    names = tuple(f"{c} {kind}" for c in contacts for kind in kinds)
    margins = partial(_margins, force_rows(system, contacts), per_unit, facets)
    residual = composed(ConstraintForces(system), margins, no_parameters, names)
    lower = np.tile([min_force, *np.zeros(facets)], len(contacts))
    name = name or f"friction cone of {', '.join(contacts)}"
    return to.Constraint(name, residual, lower, np.asarray(np.inf), {"friction": np.array([friction])})


def weight_per_foot(model: Model, feet: int) -> float:
    """Return the robot's weight divided by a number of feet [N]."""
    return float(model.total_mass * np.linalg.norm(model.gravity)) / feet


def force_rows(system: Holonomic, contacts: Sequence[str]) -> tuple[int, ...]:
    """Return the first force row of each point contact. Raises UnknownName for an unknown contact."""
    return first_rows(system, contacts, "x", "point contact")


def first_rows(system: Holonomic, contacts: Sequence[str], component: str, kind: str) -> tuple[int, ...]:
    """Return the row of a component of each contact among the forces. kind: name of such contacts in errors."""
    names = ConstraintForces(system).output_names
    known = [name.removesuffix(f".{component}") for name in names if name.endswith(f".{component}")]
    for contact in contacts:
        if contact not in known:
            raise unknown_name(kind, contact, known)
    return tuple(names.index(f"{contact}.{component}") for contact in contacts)


def no_parameters(p: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """Return no parameters: constraint forces have none."""
    return {}


def _margin_residuals(
    first_rows: tuple[int, ...], per_unit: float, forces: Rows, p: Mapping[str, Rows]
) -> list[Scalar]:
    """Return the residuals (2 C) of pushing and sticking of C contacts, with the parameters friction (1) and min_force (1)."""
    rows: list[Scalar] = []
    for at in first_rows:
        f = [forces[at + i] * per_unit for i in range(3)]
        sideways = sm.sqrt(f[0] * f[0] + f[1] * f[1] + SMOOTHING**2)
        rows += [smooth_hinge(f[2] - p["min_force"][0]), smooth_hinge(p["friction"][0] * f[2] - sideways)]
    return rows


def smooth_hinge(y: Scalar) -> Scalar:
    """Return the smooth residual of a margin y >= 0."""
    return 0.5 * (sm.sqrt(y * y + SMOOTHING**2) - y)


def _margins(
    first_rows: tuple[int, ...], per_unit: float, facets: int, forces: Rows, p: Mapping[str, Rows]
) -> list[Scalar]:
    """Return the left sides (C (1 + m)) of the inequalities of the module docstring, with the parameter friction (1)."""
    rows: list[Scalar] = []
    for at in first_rows:
        f = [forces[at + i] * per_unit for i in range(3)]
        rows += [f[2], *pyramid(f, p["friction"][0], facets)]
    return rows


def pyramid(f: Sequence[Scalar], friction: Scalar, facets: int) -> list[Scalar]:
    """Return the margins of a force (3) to the facets."""
    angles = 2.0 * np.pi * np.arange(facets) / facets
    held = f[2] * (friction * float(np.cos(np.pi / facets)))
    return [held - (f[0] * float(np.cos(a)) + f[1] * float(np.sin(a))) for a in angles]
