"""Cost terms of robots in contact: where the feet go, and forces that push and stay within the friction cone.

A margin y >= 0 is asked for by the smooth residual  (sqrt(y^2 + eps^2) - y) / 2,  which is about -y where y < 0 and
vanishes where it is large.  Margins are shares of the robot's weight over its number of feet:

    y = (f_n - least) / unit        the contact pushes
    y = (mu f_n - sqrt(f_x^2 + f_y^2 + (eps unit)^2)) / unit     friction, on level ground
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Matrix, Partials
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import RigidBodyMap
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt.problem.terms import Values

SMOOTHING = 0.05
"""eps."""
_AXES = ("x", "y", "z")


def feet_cost(
    model: Model, manifold: Manifold, feet: Sequence[str], goal: Values, weight: Values, name: str = "feet"
) -> to.CostTerm:
    """r = positions of the feet - goal, in the world, (3 F,) [m]; goal and weight (3 F,) or (N, 3 F).

    Raises UnknownName if the model has no such frame.
    """
    frames = [model.frames[model.frame_id(foot)] for foot in feet]
    points = tuple((frame.body, tuple(frame.p.tolist())) for frame in frames)
    return to.residual_cost(
        name,
        partial(_away, model, points),
        manifold,
        3 * len(feet),
        weight,
        parameters={"goal": goal},
        output_names=tuple(f"{foot}.{axis}" for foot in feet for axis in _AXES),
    )


def _away(model: Model, points, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    at = point_positions(model, x[: model.nq], points)
    return [at[f][i] - p["goal"][3 * f + i] for f in range(len(points)) for i in range(3)]


def friction_cost(
    system: Holonomic,
    contacts: Sequence[str],
    friction: float,
    weight: Values,
    *,
    least: float = 0.0,
    feet: int = 4,
    name: str = "friction",
) -> to.CostTerm:
    """Point contacts of a system, by name, push with at least ``least`` and stay within the cone of ``friction``.

    feet: how many share the weight: their share is the unit of forces. Raises ValueError for a coefficient that is not
    positive, UnknownName for a contact that the system does not have.
    """
    if not friction > 0:
        raise ValueError(f"friction = {friction}; it must be positive")
    residual = ConeResidual(ConstraintForces(system), contacts, feet)
    return to.CostTerm(
        name, residual, np.asarray(weight), {"friction": np.array([friction]), "least": np.array([least])}
    )


class ConeResidual(RigidBodyMap):
    """Pushing and sticking of some point contacts, (2 C,), with the parameters friction (1) and least (1).

    Raises UnknownName for a contact that has no force.
    """

    def __init__(self, forces: ConstraintForces, contacts: Sequence[str], feet: int) -> None:
        names = tuple(f"{contact} {what}" for contact in contacts for what in ("pushes", "sticks"))
        super().__init__(forces.model, forces.control_names, names)
        self.forces = forces
        self.unit = float(forces.model.total_mass * np.linalg.norm(forces.model.gravity)) / feet
        self._first_rows = [self._first_row(contact) for contact in contacts]

    def _first_row(self, contact: str) -> int:
        """Where a contact's three components begin among the forces."""
        points = [name.removesuffix(".x") for name in self.forces.output_names if name.endswith(".x")]
        if contact not in points:
            raise unknown_name("point contact", contact, points)
        return self.forces.output_names.index(f"{contact}.x")

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return sm.stack([lacking(margin.value) for margin in self._margins(self.forces(x, u, t, {}), p)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Closed form: the derivatives of the forces, through those of the margins."""
        forces = self.forces.partials(x, u, t, {})
        margins = list(self._margins(forces.value, p))
        slopes = [lacking_slope(margin.value) * (1.0 / self.unit) for margin in margins]

        def chained(of: Matrix) -> list[Rows]:
            return [
                sum(slope * weight * of[row] for row, weight in margin.gradient.items())
                for slope, margin in zip(slopes, margins, strict=True)
            ]

        values = sm.stack([lacking(margin.value) for margin in margins])
        return Partials(values, chained(forces.fx), chained(forces.fu))

    def _margins(self, forces: Rows, p: Mapping[str, Rows]) -> Iterator[_Margin]:
        mu = p["friction"][0]
        for at in self._first_rows:
            f = [forces[at + i] * (1.0 / self.unit) for i in range(3)]
            sideways = sm.sqrt(f[0] * f[0] + f[1] * f[1] + SMOOTHING**2)
            yield _Margin(f[2] - p["least"][0], {at + 2: 1.0})
            yield _Margin(mu * f[2] - sideways, {at: -f[0] / sideways, at + 1: -f[1] / sideways, at + 2: mu})


class _Margin(NamedTuple):
    """A margin, and its derivatives in the forces that it reads, by row, in units of force."""

    value: Scalar
    gradient: dict[int, Scalar]


def lacking(y: Scalar) -> Scalar:
    """The smooth residual of a margin y >= 0."""
    return 0.5 * (sm.sqrt(y * y + SMOOTHING**2) - y)


def lacking_slope(y: Scalar) -> Scalar:
    """Its derivative."""
    return 0.5 * (y / sm.sqrt(y * y + SMOOTHING**2) - 1.0)
