"""Animation of a motion as one self-contained HTML page: a stick figure in a side view and a rotatable view.

Lines connect the joint origins of parents and children. A body with three or more child joints is drawn as a plate. Each last
link ends at a foot, at the task's frame, or at its farthest frame. Arrows show contact forces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.model.model import Model
from trajopt import Solution
from trajopt.config.task import Task
from ..analysis.gait_analysis import contact_forces, contacts
from ..view.scenes import with_motion_times
from .animation_page import PAGE

FRAME_RATE = 50.0
"""Maximum frame rate [Hz]; the page holds each knot until the next one."""
SHORT = 1e-3
"""Lines shorter than this [m] are not drawn."""
DIGITS = 4
"""Decimal places of coordinates [m] in the page."""
FILE = "animation.html"

Place = tuple[int, tuple[float, float, float]]
"""A body, -1 for the world, and coordinates (3) [m] in its internal frame."""


class Skeleton(NamedTuple):
    """Stick figure. places: points on bodies; lines: pairs of point indices; plates: polygons of point indices.

    ends: name -> point index of the tips.
    """

    places: list[Place]
    lines: list[tuple[int, int]]
    plates: list[list[int]]
    ends: dict[str, int]


def skeleton(model: Model, ends: tuple[str, ...] = ()) -> Skeleton:
    """Build the stick figure of a model. ends: frames that must be tips. Raises UnknownName for an unknown frame."""
    places: list[Place] = [(b, (0.0, 0.0, 0.0)) for b in range(model.nb)]
    children = [[c for c in range(model.nb) if model.parent[c] == b] for b in range(model.nb)]
    carried = [b for b in range(model.nb) if len(children[b]) >= 3]
    lines = [(b, c) for b in range(model.nb) for c in children[b] if b not in carried]
    places, lines = _rooted(model, places, lines)
    plates = [_sorted_by_angle(model, children[b]) for b in carried]
    named: dict[str, int] = {}
    for name, body, at in _tips(model, children, ends):
        named[name] = len(places)
        lines.append((body, len(places)))
        places.append((body, at))
    return Skeleton(places, lines, plates, named)


def _rooted(
    model: Model, places: list[Place], lines: list[tuple[int, int]]
) -> tuple[list[Place], list[tuple[int, int]]]:
    """Add a world point and a line for each root joint, except that of a floating base."""
    for b in range(model.nb):
        if model.parent[b] < 0 and not (b == 0 and model.floating_base):
            lines = [*lines, (len(places), b)]
            places = [*places, (-1, _triple(model.placement_p[b]))]
    return places, lines


def _sorted_by_angle(model: Model, joints: list[int]) -> list[int]:
    """Sort joints of one body by their angle about the mean position, in the best-fitting plane."""
    p = model.placement_p[joints] - model.placement_p[joints].mean(axis=0)
    plane = np.linalg.svd(p)[2][:2]
    angles = np.arctan2(p @ plane[1], p @ plane[0])
    return [joints[i] for i in np.argsort(angles)]


def _tips(
    model: Model, children: list[list[int]], ends: tuple[str, ...]
) -> list[tuple[str, int, tuple[float, float, float]]]:
    """Return the tips: the named frames; for other last links the farthest frame, else the center of mass."""
    found = []
    for name in dict.fromkeys(ends):
        frame = model.frames[model.frame_id(name)]
        if frame.body >= 0:
            found.append((name, frame.body, _triple(frame.p)))
    for b in range(model.nb):
        if children[b] or any(body == b for _, body, _ in found):
            continue
        candidates = [(f.name, f.p) for f in model.frames if f.body == b] + [(model.body_names[b], model.com[b])]
        name, at = max(candidates, key=lambda c: float(np.linalg.norm(c[1])) * (0.5 if c[1] is model.com[b] else 1.0))
        if np.linalg.norm(at) > SHORT:
            found.append((name, b, _triple(at)))
    return found


def _triple(p: Array) -> tuple[float, float, float]:
    x, y, z = p.tolist()
    return x, y, z


def positions(model: Model, places: list[Place], q: Array) -> Array:
    """World positions (N, points, 3) [m] of points at configurations q (N, nq)."""
    moving = [(b, at) for b, at in places if b >= 0]
    found = iter(point_positions(model, np.ascontiguousarray(q.T), moving))
    return np.stack([next(found).T if b >= 0 else np.tile(at, (len(q), 1)) for b, at in places], axis=1)


def write_animation(path: Path, solution: Solution, task: Task) -> Path:
    """Write the animation page of a solution. Raises ValueError for a task without a robot."""
    model = task.ocp.model
    if model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")
    scene = scene_of(with_motion_times(solution, task), task)
    title = escape(f"{task.ocp.name}: {model.name}")
    # "</" would end the script, even inside a name
    data = json.dumps(scene, separators=(",", ":")).replace("</", "<\\/")
    path.write_text(PAGE.replace("@TITLE@", title).replace("@SCENE@", data), encoding="utf-8")
    return path


def scene_of(solution: Solution, task: Task) -> dict[str, Any]:
    """Return the data of the page as JSON values; coordinates with z up."""
    model, feet = task.ocp.model, task.feet
    assert model is not None
    ends = (*feet, *([] if task.frame is None else [task.frame]))
    figure = skeleton(model, ends)
    knots = _frame_knots(solution.times)
    upright = _upright(model.gravity)
    points = positions(model, figure.places, solution.xs[knots, : model.nq]) @ upright.T
    forces = _forces(solution, task, figure.ends, knots, upright)
    touching = _touching(solution, task, knots)
    trail = 0 if model.floating_base else figure.ends.get(task.frame or "", len(figure.places) - 1)
    return {
        "times": _rounded(solution.times[knots]),
        "points": _rounded(points.reshape(len(knots), -1)),
        "lines": figure.lines,
        "plates": figure.plates,
        "joints": list(range(model.nb)),
        "ends": list(figure.ends.values()),
        "feet": [figure.ends[foot] for foot in feet if foot in figure.ends],
        "touching": touching,
        "forces": forces,
        "weight": round(model.total_mass * float(np.linalg.norm(model.gravity)), 3),
        "trail": trail,
        "goal": None if task.goal is None else _rounded(upright @ task.goal),
        "ground": bool(feet),
    }


def _frame_knots(times: Array) -> Array:
    """Return the knots of the animation: the last knot before each frame time, and the first and last knot."""
    ticks = np.arange(times[0], times[-1], 1.0 / FRAME_RATE)
    chosen = np.searchsorted(times, ticks + 1e-9 * times[-1], side="right") - 1
    return np.unique(np.r_[chosen, len(times) - 1])


def _upright(gravity: Array) -> Array:
    """Return the rotation (3, 3) that maps the upward axis (y or z) to z."""
    if abs(gravity[1]) > abs(gravity[2]):
        return np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    return np.eye(3)


def _forces(
    solution: Solution, task: Task, ends: Mapping[str, int], knots: Array, upright: Array
) -> list[dict[str, Any]]:
    """Return the contact forces at the tips of the figure."""
    knots = np.minimum(knots, len(solution.us) - 1)
    found = contact_forces(task.ocp, solution.xs, solution.us)
    return [
        {"at": ends[name], "values": _rounded((force[knots] @ upright.T).ravel(), 1)}
        for name, force in found.items()
        if name in ends
    ]


def _touching(solution: Solution, task: Task, knots: Array) -> list[list[int]]:
    if not task.feet:
        return []
    knots = np.minimum(knots, len(solution.us) - 1)
    return contacts(task.ocp, task.feet, solution.xs, solution.us)[knots].astype(int).tolist()


def _rounded(values: Array, digits: int = DIGITS) -> Any:
    return np.round(np.where(np.isfinite(values), values, 0.0), digits).tolist()
