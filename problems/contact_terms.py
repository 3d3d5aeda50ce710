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
from dynamics_backends.manifold import Manifold
from dynamics_backends.rigid_body.kinematics import point_positions
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.holonomic import Holonomic
from trajopt.terms import Values

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
    positive.
    """
    if not friction > 0:
        raise ValueError(f"friction = {friction}; it must be positive")
    unit = float(system.model.total_mass * np.linalg.norm(system.model.gravity)) / feet
    return to.residual_cost(
        name,
        partial(_margins, system, tuple(contacts), unit),
        system.manifold,
        2 * len(contacts),
        weight,
        nu=system.nu,
        parameters={"friction": friction, "least": least},
        output_names=tuple(f"{foot} {what}" for foot in contacts for what in ("pushes", "sticks")),
        control_names=system.control_names,
    )


def _margins(
    system: Holonomic, names: Sequence[str], unit: float, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    found = []
    forces = system.outputs(x, u, t, {})
    for name in names:
        f = [forces[name][i] * (1.0 / unit) for i in range(3)]
        sideways = sm.sqrt(f[0] * f[0] + f[1] * f[1] + SMOOTHING**2)
        found += [lacking(f[2] - p["least"][0]), lacking(p["friction"][0] * f[2] - sideways)]
    return found


def lacking(y: Scalar) -> Scalar:
    """The smooth residual of a margin y >= 0."""
    return 0.5 * (sm.sqrt(y * y + SMOOTHING**2) - y)
