"""How near an arm comes to the spheres it is to stay out of: points of its links' axes, and the links as thick as they are.

The problem keeps points on the lines between joints out of a sphere, at the knots. A link is thicker than that line. Where the
robot's file has collision shapes, their least distance from the sphere at the knots tells what is left: that of the true shapes
where the package coal is installed, else that of capsules that cover them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import ceil

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from dynamics_backends.rigid_body.model.model import Model
from problems.arms.obstacle import Obstacle, places
from problems.arms.scenes.scene_robot import robot_shapes, scene_robot
from problems.task import Nearness
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.problem.residuals import LinkPoint

Nearest = tuple[float, str, int, str]
"""Distance [m], negative: depth; the link; the knot; and what was measured."""

ROUNDING = 1e-3
"""Share of a millimeter that is not rounded up to the next."""


def nearness(
    model: Model, obstacles: Mapping[str, Obstacle], points: Mapping[str, Sequence[LinkPoint]], qs: Array
) -> Nearness:
    """What is to be told of obstacles by their names; points: of the axes that stay out of each; qs: configurations (M, nq)."""
    sentences, warnings, unknown = [], [], ""
    for name, o in obstacles.items():
        axes = float(np.linalg.norm(places(model, qs, points[name]) - o.center, axis=2).min()) - o.radius
        sentence = f"{name}: points of the links' axes stay {_away(axes)} at the knots"
        try:
            nearest = links_from(model, o, qs)
        except (ValueError, ModuleNotFoundError) as error:
            unknown = f"the thickness of the links is not looked at: {error}"
        else:
            sentence += f", {nearest[3]} {_away(nearest[0])} ({nearest[1]})"
            bodies = {point.body for point in points[name]}
            widened = o.frame == nearest[1] or _body_of(model, nearest[1]) in bodies  # margin alone helps then
            warnings += [] if nearest[0] >= 0.0 else [_inside(name, o, nearest, widened)]
        sentences.append(sentence)
    return Nearness((*sentences, *([unknown] if unknown else [])), tuple(warnings))


def links_from(model: Model, o: Obstacle, qs: Array, exact: bool | None = None) -> Nearest:
    """How near the links come to a sphere. exact: by true shapes, default where coal is installed.

    Raises ValueError for a robot without collision shapes, ModuleNotFoundError where what reads its meshes is not installed.
    """
    scene = Scene((Body("obstacle", Sphere(o.radius), np.eye(3), np.array(o.center)),))
    knots = np.arange(float(len(qs)))
    if find_spec("coal") is not None if exact is None else exact:
        found = MeshCheck(model, robot_shapes(model, "leave_out")[0], scene).along(qs, knots)
        return found.distance, found.link, round(found.time), "the shapes of the links"
    cover = scene_robot(model, missing="leave_out", self_collision=False).cover
    gaps = CollisionPairs(cover, scene, reach=np.inf).gaps(qs, knots)[:, :, 0]
    gaps[:, cover.bodies < 0] = np.inf
    knot, piece = (int(i) for i in np.unravel_index(int(np.argmin(gaps)), gaps.shape))
    return float(gaps[knot, piece]), cover.links[piece], knot, "capsules around the links"


def _away(distance: float) -> str:
    return f"{1e3 * distance:.3g} mm away" if distance > -ROUNDING / 1e3 else f"{-1e3 * distance:.3g} mm inside"


def _body_of(model: Model, link: str) -> int | None:
    """The body that a link is part of; None for a name that is no frame."""
    return next((frame.body for frame in model.frames if frame.name == link), None)


def _inside(name: str, o: Obstacle, nearest: Nearest, has_points: bool) -> str:
    """has_points: whether points of this link are kept out, or it has none although points reach to its frame."""
    distance, link, knot, what = nearest
    enough = o.margin + ceil(-1e3 * distance - ROUNDING) / 1e3
    remedy = (
        f"raise margin in its table from {o.margin:g} to {enough:g} or more and look again"
        if has_points
        else f'{link} has none, since they end before it: let them reach it by frame = "{link}" in its table'
    )
    return (
        f"{link} is {-1e3 * distance:.3g} mm inside of the {name} at knot {knot} ({what}): points of the links' axes alone are "
        f"kept out; {remedy}, or take the problem arm_in_scene, which keeps the shapes out"
    )
