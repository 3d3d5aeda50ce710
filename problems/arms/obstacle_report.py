"""Reports on the distance of an arm from its obstacles at the knots.

The problem keeps points on the lines between joints outside a sphere, but a link is thicker than this line. If the robot's file has
collision shapes, the report has their smallest distance from each sphere, and from the bodies around the arm: of the true shapes if
the package coal is installed, else of capsules that cover them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.config.task import Nearness
from trajopt.problem.residuals import LinkPoint
from .obstacle import MAX_SPACING, Obstacle, axis_distances
from .scenes.scene_robot import robot_shapes, scene_robot


class Nearest(NamedTuple):
    """Smallest distance [m] of a motion from obstacles, negative if inside, with its link, body and knot.

    what: description of the measured geometry.
    """

    distance: float
    link: str
    body: str
    knot: int
    what: str


MAX_ENTRY = 1.0 - sqrt(15.0 / 16.0)
"""Depth by which the line between two points at the default spacing enters a sphere, relative to its radius."""
ROUNDING = 1e-3
"""Rounding tolerance when a depth is rounded up to millimeters [mm]."""


def nearness(
    model: Model, obstacles: Mapping[str, Obstacle], axes: Mapping[str, Sequence[LinkPoint]], qs: Array
) -> Nearness:
    """Report the distances from obstacles, given by name. axes: :meth:`Obstacle.axes`; qs: configurations (M, nq)."""
    sentences, warnings, unknown = [], [], ""
    for name, o in obstacles.items():
        distances = axis_distances(model, qs, axes[name], np.asarray(o.center)) - o.radius
        nearest_axis = float(distances.min())
        sentence = f"{name}: smallest distance at the knots: link axes {_distance_text(nearest_axis)}"
        try:
            nearest = links_from(model, _sphere_scene(o), qs)
        except (ValueError, ModuleNotFoundError) as error:
            unknown = f"the thickness of the links is not checked: {error}"
            warnings += (
                [_axes_inside(name, o, nearest_axis)] if nearest_axis < -MAX_ENTRY * o.radius - ROUNDING / 1e3 else []
            )
        else:
            sentence += f", {nearest.what} {_distance_text(nearest.distance)} ({nearest.link})"
            body = _body_of(model, nearest.link)
            of_link = [i for i, end in enumerate(axes[name]) if end.body == body or o.frame == nearest.link]
            axis = float(distances[nearest.knot, of_link].min()) if of_link else None
            warnings += [] if nearest.distance >= 0.0 else [_inside(name, o, nearest, axis)]
        sentences.append(sentence)
    return Nearness((*sentences, *([unknown] if unknown else [])), tuple(warnings))


def goal_in_body(model: Model, scene: Scene, q: Array) -> str:
    """Return the warning about a joint-space goal q (nq,) inside a body; "" if it is outside."""
    nearest = links_from(model, scene, q[None])
    if nearest.distance >= 0.0:
        return ""
    return (
        f"the goal itself is inside {nearest.body}: at goal_q {nearest.link} is {-1e3 * nearest.distance:.3g} mm deep "
        f"({nearest.what}): choose another goal, or move the body"
    )


def nearness_of_bodies(model: Model, scene: Scene, weight: float, qs: Array, inside: bool = False) -> Nearness:
    """Report the distances from the bodies around an arm at configurations qs (M, nq).

    weight: weight of the distance term. inside: the goal is inside a body, so that no weight helps.
    """
    nearest = links_from(model, scene, qs)
    pair = f"{nearest.link} and {nearest.body}"
    sentence = (
        f"surroundings: smallest distance at the knots: {nearest.what} {_distance_text(nearest.distance)} ({pair})"
    )
    if nearest.distance >= 0.0:
        return Nearness((sentence,))
    remedy = (
        "the distances cannot be maintained between this start and this goal"
        if np.isinf(weight)
        else f"surroundings.weight = {weight:g} is too small to keep the distance: increase it, or make the "
        "distances constraints with weight = inf"
    )
    deep = f"{nearest.link} is {-1e3 * nearest.distance:.3g} mm inside {nearest.body} at knot {nearest.knot} ({nearest.what})"
    if inside:
        return Nearness(
            (sentence,), (f"{deep}: the goal itself is inside a body: choose another goal, or move the body",)
        )
    return Nearness(
        (sentence,), (f"{deep}: {remedy}; or use the problem arm_in_scene, which avoids collisions of the shapes",)
    )


def links_from(model: Model, scene: Scene, qs: Array, exact: bool | None = None) -> Nearest:
    """Compute the smallest distance of the links from static bodies. exact: use true shapes; default: if coal is installed.

    Raises ValueError for a robot without collision shapes, ModuleNotFoundError if a package that reads its meshes is missing.
    """
    knots = np.arange(float(len(qs)))
    if find_spec("coal") is not None if exact is None else exact:
        found = MeshCheck(model, robot_shapes(model, "leave_out")[0], scene).along(qs, knots)
        return Nearest(found.distance, found.link, found.body, round(found.time), "the shapes of the links")
    cover = scene_robot(model, missing="leave_out", self_collision=False).cover
    pairs = CollisionPairs(cover, scene, reach=np.inf)
    gaps = pairs.gaps(qs, knots)
    gaps[:, cover.bodies < 0] = np.inf
    knot, piece, core = (int(i) for i in np.unravel_index(int(np.argmin(gaps)), gaps.shape))
    body = scene.bodies[pairs.cores[core][0]].name
    return Nearest(float(gaps[knot, piece, core]), cover.links[piece], body, knot, "capsules around the links")


def _sphere_scene(o: Obstacle) -> Scene:
    return Scene((Body("obstacle", Sphere(o.radius), np.eye(3), np.array(o.center)),))


def _distance_text(distance: float) -> str:
    return f"{1e3 * distance:.3g} mm away" if distance > -ROUNDING / 1e3 else f"{-1e3 * distance:.3g} mm inside"


def _body_of(model: Model, link: str) -> int | None:
    """Return the body that a link belongs to; None for an unknown name."""
    return next((frame.body for frame in model.frames if frame.name == link), None)


def _inside(name: str, o: Obstacle, nearest: Nearest, axis: float | None) -> str:
    """Return the warning about a link in an obstacle. axis: distance [m] of the link's axis, None without points on it."""
    distance, link, _, knot, what = nearest
    remedy = f'no point of {link} is constrained: set frame = "{link}" in the table of the obstacle'
    if axis is not None:
        reach = o.radius + axis - distance  # of the link's surface, from the center
        widths = (
            reach / (1.0 - MAX_ENTRY),
            *(sqrt(reach**2 + 0.25 * s**2) for s in (o.spacing or np.inf, MAX_SPACING)),
        )
        enough = min(widths) - o.radius  # the line between two points keeps this distance, too
        if o.spacing is None or o.spacing <= replace(o, margin=max(enough, 0.0)).default_spacing:
            enough = ceil(1e3 * max(enough, o.margin - distance) - ROUNDING) / 1e3
            remedy = f"increase margin in its table from {o.margin:g} to at least {enough:g} and solve again"
        else:
            enough = ceil(1e3 * max(enough, o.margin) - ROUNDING) / 1e3
            spacing = replace(o, margin=enough).default_spacing
            remedy = f"set spacing = {spacing:.3g} and margin = {enough:g} in its table and solve again"
    return (
        f"{link} is {-1e3 * distance:.3g} mm inside the {name} at knot {knot} ({what}): only points on the link axes are "
        f"constrained; {remedy}, or use the problem arm_in_scene, which avoids collisions of the shapes"
    )


def _axes_inside(name: str, o: Obstacle, axes: float) -> str:
    """Return the warning about link axes that enter an obstacle between two checked points, at a distance ``axes`` [m]."""
    if o.spacing is not None and o.spacing > o.default_spacing:
        remedy = f"only points {o.spacing:g} m apart are constrained; set spacing = {o.default_spacing:g} in its table"
    else:
        remedy = "move the obstacle, the start or the goal" if o.weight is None else "increase weight in its table"
    return f"the link axes are {-1e3 * axes:.3g} mm inside the {name}: {remedy}"
