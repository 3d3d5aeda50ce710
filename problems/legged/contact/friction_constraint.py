"""Contact forces that push and stay within the friction cone, as constraints.

The cone |f_t| <= mu f_n on level ground is replaced by a pyramid of m facets inside of it, which is linear in the forces and
smooth at its tip, where a foot carries nothing (D. Stewart, J. Trinkle, Int. J. Numer. Methods Eng. 39, 1996):

    f_n - least >= 0,        mu cos(pi/m) f_n - (cos a_j f_x + sin a_j f_y) >= 0,   a_j = 2 pi j / m,   j = 0 .. m - 1

Rows are in shares of the robot's weight over its number of feet, as the costs of :mod:`~problems.legged.contact.contact_terms` are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.composed_map import ComposedMap
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from problems.legged.contact.contact_terms import force_rows, no_parameters, weight_share

FACETS = 4


def friction_constraint(
    system: Holonomic,
    contacts: Sequence[str],
    friction: float,
    *,
    least: float = 0.0,
    feet: int = 4,
    facets: int = FACETS,
    name: str | None = None,
) -> to.Constraint:
    """Point contacts of a system, by name, push with at least ``least`` and stay within the pyramid in the cone of ``friction``.

    feet: how many share the weight: their share is the unit of forces. friction is a run-time parameter. name: default with those
    of the contacts, so that multipliers of phases on different feet have different names.
    Raises ValueError for a coefficient that is not positive or fewer than three facets, UnknownName for a contact that the system
    does not have.
    """
    if not friction > 0:
        raise ValueError(f"friction = {friction}; it must be positive")
    if facets < 3:
        raise ValueError(f"facets = {facets}; a pyramid has at least 3")
    per_unit = 1.0 / weight_share(system.model, feet)
    kinds = ("pushes", *(f"facet {j}" for j in range(facets)))
    names = tuple(f"{c} {kind}" for c in contacts for kind in kinds)
    margins = partial(_margins, force_rows(system, contacts), per_unit, facets)
    residual = ComposedMap(ConstraintForces(system), margins, names, no_parameters)
    lower = np.tile([least, *np.zeros(facets)], len(contacts))
    name = name or f"friction cone of {', '.join(contacts)}"
    return to.Constraint(name, residual, lower, np.asarray(np.inf), {"friction": np.array([friction])})


def _margins(
    first_rows: tuple[int, ...], per_unit: float, facets: int, forces: Rows, p: Mapping[str, Rows]
) -> list[Scalar]:
    """The left sides (C (1 + m)) of the inequalities of the module docstring, with the parameter friction (1)."""
    rows: list[Scalar] = []
    for at in first_rows:
        f = [forces[at + i] * per_unit for i in range(3)]
        rows += [f[2], *pyramid(f, p["friction"][0], facets)]
    return rows


def pyramid(f: Sequence[Scalar], friction: Scalar, facets: int) -> list[Scalar]:
    """The margins of a force (3) from the facets."""
    angles = 2.0 * np.pi * np.arange(facets) / facets
    held = f[2] * (friction * float(np.cos(np.pi / facets)))
    return [held - (f[0] * float(np.cos(a)) + f[1] * float(np.sin(a))) for a in angles]
