"""Reports on the distance of an arm from its obstacles at the knots.

The problem keeps points on the lines between joints outside a sphere, but a link is thicker than this line. If the robot's file has
collision shapes, the report has their smallest distance from each sphere, and from the bodies around the arm: of the true shapes if
the package coal is installed, else of capsules that cover them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import ceil
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
from .obstacle import Obstacle, places
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


ROUNDING = 1e-3
"""Rounding tolerance when a depth is rounded up to millimeters [mm]."""


def nearness(
    model: Model, obstacles: Mapping[str, Obstacle], points: Mapping[str, Sequence[LinkPoint]], qs: Array
) -> Nearness:
    """Report the distances from obstacles, given by name. points: checked link points; qs: configurations (M, nq)."""
    sentences, warnings, unknown = [], [], ""
    for name, o in obstacles.items():
        axes = float(np.linalg.norm(places(model, qs, points[name]) - o.center, axis=2).min()) - o.radius
        sentence = f"{name}: smallest distance at the knots: link axes {_distance_text(axes)}"
        try:
            nearest = links_from(model, _sphere_scene(o), qs)
        except (ValueError, ModuleNotFoundError) as error:
            unknown = f"the thickness of the links is not checked: {error}"
        else:
            sentence += f", {nearest.what} {_distance_text(nearest.distance)} ({nearest.link})"
            bodies = {point.body for point in points[name]}
            widened = o.frame == nearest.link or _body_of(model, nearest.link) in bodies  # margin alone helps then
            warnings += [] if nearest.distance >= 0.0 else [_inside(name, o, nearest, widened)]
        sentences.append(sentence)
    return Nearness((*sentences, *([unknown] if unknown else [])), tuple(warnings))


def nearness_of_bodies(model: Model, scene: Scene, weight: float, qs: Array) -> Nearness:
    """Report the distances from the bodies around an arm at configurations qs (M, nq). weight: weight of the distance term."""
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


def _inside(name: str, o: Obstacle, nearest: Nearest, has_points: bool) -> str:
    """Return the warning about a link in an obstacle. has_points: the obstacle's constraint covers points of this link."""
    distance, link, _, knot, what = nearest
    enough = o.margin + ceil(-1e3 * distance - ROUNDING) / 1e3
    remedy = (
        f"increase margin in its table from {o.margin:g} to at least {enough:g} and solve again"
        if has_points
        else f'no point of {link} is constrained: set frame = "{link}" in the table of the obstacle'
    )
    return (
        f"{link} is {-1e3 * distance:.3g} mm inside the {name} at knot {knot} ({what}): only points on the link axes are "
        f"constrained; {remedy}, or use the problem arm_in_scene, which avoids collisions of the shapes"
    )
