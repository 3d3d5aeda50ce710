"""Cost terms of feet: tracking of foot positions, and little sliding near the ground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position, frame_velocity, point_positions
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.terms import Values

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

    marks: tracked point in each frame's axes [m]; default: its origin; a foot may occur several times, with different points.
    Raises UnknownName for an unknown frame.
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
    """r = e^(-z / clearance) times the horizontal velocity [m/s] of each foot, (2 F,), with height z above the ground [m].

    The ground is a plane, by default level at 0; its height and its slopes along x and y are the parameter ground (3). The term
    lifts feet that move horizontally. Raises UnknownName for an unknown frame.
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
