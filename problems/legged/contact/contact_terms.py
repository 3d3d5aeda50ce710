"""Cost terms of robots in contact: where the feet go, and forces that push and stay within the friction cone.

A margin y >= 0 is asked for by the smooth residual  (sqrt(y^2 + eps^2) - y) / 2,  which is about -y where y < 0 and
vanishes where it is large.  Margins are shares of the robot's weight over its number of feet:

    y = (f_n - least) / unit        the contact pushes
    y = (mu f_n - sqrt(f_x^2 + f_y^2 + (eps unit)^2)) / unit     friction, on level ground
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import ComposedMap
from dynamics_backends.manifold import Manifold
from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position, frame_velocity, point_positions
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from trajopt.problem.terms import Values

SMOOTHING = 0.05
"""eps."""
_AXES = ("x", "y", "z")


def feet_cost(
    model: Model,
    manifold: Manifold,
    feet: Sequence[str],
    goal: Values,
    weight: Values,
    name: str = "feet",
    marks: Sequence[Sequence[float]] = (),
) -> to.CostTerm:
    """r = positions of the feet - goal, in the world, (3 F,) [m]; goal and weight (3 F,) or (N, 3 F).

    marks: where a point in the axes of each frame [m] stands for it, default its origin; a foot may come several times, with
    several points. Raises UnknownName if the model has no such frame.
    """
    frames = [model.frames[model.frame_id(foot)] for foot in feet]
    offsets = np.array(marks) if len(marks) else np.zeros((len(feet), 3))
    at = [frame.p + frame.R @ offset for frame, offset in zip(frames, offsets, strict=True)]
    points = tuple((frame.body, tuple(p.tolist())) for frame, p in zip(frames, at, strict=True))
    repeated = [f"{foot}{'' if feet.index(foot) == i else f' {i}'}" for i, foot in enumerate(feet)]
    return to.residual_cost(
        name,
        partial(_away, model, points),
        manifold,
        3 * len(feet),
        weight,
        parameters={"goal": goal},
        output_names=tuple(f"{foot}.{axis}" for foot in repeated for axis in _AXES),
    )


def _away(model: Model, points, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    at = point_positions(model, x[: model.nq], points)
    return [at[f][i] - p["goal"][3 * f + i] for f in range(len(points)) for i in range(3)]


def slip_cost(
    model: Model, manifold: Manifold, feet: Sequence[str], clearance: float, weight: Values, name: str = "slip"
) -> to.CostTerm:
    """r = e^(-z / clearance) times the horizontal velocity [m/s] of each foot, (2 F,), z its height over the ground [m].

    The ground is a plane, level at 0; its height and its rise along x and y are the parameter ground (3). What slides is told to
    lift off, and what flies low to fly higher. Raises UnknownName if the model has no such frame.
    """
    return to.residual_cost(
        name,
        partial(_slip, model, tuple(model.frame_id(foot) for foot in feet)),
        manifold,
        2 * len(feet),
        weight,
        parameters={"clearance": [clearance], "ground": [0.0, 0.0, 0.0]},
        output_names=tuple(f"{foot}.v{axis} near the ground" for foot in feet for axis in _AXES[:2]),
    )


def _slip(model: Model, frames, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    q, v, rows = x[: model.nq], x[model.nq :], []
    for frame in frames:
        at = frame_position(model, q, frame)
        below = p["ground"][0] + p["ground"][1] * at[0] + p["ground"][2] * at[1]
        near = sm.exp(-((at[2] - below) / p["clearance"][0]))
        w = frame_velocity(model, q, v, frame)
        rows += [near * w[0], near * w[1]]
    return rows


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
    unit = weight_share(system.model, feet)
    rows = force_rows(system, contacts)
    names = tuple(f"{contact} {what}" for contact in contacts for what in ("pushes", "sticks"))
    residual = ComposedMap(ConstraintForces(system), partial(_lacking_margins, rows, 1.0 / unit), names, no_parameters)
    return to.CostTerm(
        name, residual, np.asarray(weight), {"friction": np.array([friction]), "least": np.array([least])}
    )


def weight_share(model: Model, feet: int) -> float:
    """The robot's weight over a number of feet [N]."""
    return float(model.total_mass * np.linalg.norm(model.gravity)) / feet


def force_rows(system: Holonomic, contacts: Sequence[str]) -> tuple[int, ...]:
    """Where the three components of each contact begin among the forces. Raises UnknownName for a contact that has no force."""
    names = ConstraintForces(system).output_names
    points = [name.removesuffix(".x") for name in names if name.endswith(".x")]
    for contact in contacts:
        if contact not in points:
            raise unknown_name("point contact", contact, points)
    return tuple(names.index(f"{contact}.x") for contact in contacts)


def no_parameters(p: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """The forces' own, of which there are none."""
    return {}


def _lacking_margins(first_rows: tuple[int, ...], per_unit: float, forces: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
    """Pushing and sticking of some contacts, (2 C), with the parameters friction (1) and least (1)."""
    rows: list[Scalar] = []
    for at in first_rows:
        f = [forces[at + i] * per_unit for i in range(3)]
        sideways = sm.sqrt(f[0] * f[0] + f[1] * f[1] + SMOOTHING**2)
        rows += [lacking(f[2] - p["least"][0]), lacking(p["friction"][0] * f[2] - sideways)]
    return rows


def lacking(y: Scalar) -> Scalar:
    """The smooth residual of a margin y >= 0."""
    return 0.5 * (sm.sqrt(y * y + SMOOTHING**2) - y)
