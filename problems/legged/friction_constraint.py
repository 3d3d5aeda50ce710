"""Contact forces that push and stay within the friction cone, as constraints.

The cone |f_t| <= mu f_n on level ground is replaced by a pyramid of m facets inside of it, which is linear in the forces and
smooth at its tip, where a foot carries nothing (D. Stewart, J. Trinkle, Int. J. Numer. Methods Eng. 39, 1996):

    f_n - least >= 0,        mu cos(pi/m) f_n - (cos a_j f_x + sin a_j f_y) >= 0,   a_j = 2 pi j / m,   j = 0 .. m - 1

Rows are in shares of the robot's weight over its number of feet, as the costs of :mod:`~problems.legged.contact_terms` are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Matrix, Partials
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import RigidBodyMap
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces

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
    residual = PyramidMargins(ConstraintForces(system), contacts, feet, facets)
    lower = np.tile([least, *np.zeros(facets)], len(contacts))
    name = name or f"friction cone of {', '.join(contacts)}"
    return to.Constraint(name, residual, lower, np.asarray(np.inf), {"friction": np.array([friction])})


class PyramidMargins(RigidBodyMap):
    """The left sides (C (1 + m),) of the inequalities of the module docstring, with the parameter friction (1).

    Raises UnknownName for a contact that has no force.
    """

    def __init__(self, forces: ConstraintForces, contacts: Sequence[str], feet: int, facets: int) -> None:
        kinds = ("pushes", *(f"facet {j}" for j in range(facets)))
        super().__init__(forces.model, forces.control_names, tuple(f"{c} {kind}" for c in contacts for kind in kinds))
        self.forces = forces
        unit = float(forces.model.total_mass * np.linalg.norm(forces.model.gravity)) / feet
        angles = 2.0 * np.pi * np.arange(facets) / facets
        self.directions = [(float(np.cos(a)) / unit, float(np.sin(a)) / unit) for a in angles]
        self.per_unit, self.inside = 1.0 / unit, float(np.cos(np.pi / facets)) / unit
        self._first_rows = [self._first_row(contact) for contact in contacts]

    def _first_row(self, contact: str) -> int:
        """Where a contact's three components begin among the forces."""
        names = self.forces.output_names
        if f"{contact}.x" not in names:
            known = [name.removesuffix(".x") for name in names if name.endswith(".x")]
            raise unknown_name("point contact", contact, known)
        return names.index(f"{contact}.x")

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return sm.stack(self._combined(self.forces(x, u, t, {}), p["friction"][0]))

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Closed form: the same combinations of the derivatives of the forces."""
        forces, mu = self.forces.partials(x, u, t, {}), p["friction"][0]
        value = sm.stack(self._combined(forces.value, mu))
        return Partials(value, self._combined(forces.fx, mu), self._combined(forces.fu, mu))

    def _combined(self, forces: Rows | Matrix, mu: Scalar) -> list[Rows]:
        """The left sides, of forces or of their derivatives, by rows."""
        rows = []
        for at in self._first_rows:
            rows.append(forces[at + 2] * self.per_unit)
            for c, s in self.directions:
                rows.append(forces[at + 2] * (mu * self.inside) - (forces[at] * c + forces[at + 1] * s))
        return rows
