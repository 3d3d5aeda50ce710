"""Spherical obstacle for an arm, and guesses around it: a joint-space path bent to one side of the sphere.

    q(s) = q_straight(s) + a b(s) d,      d = J^+ n

At the knot and link point with the deepest penetration, n is one of :data:`DIRECTIONS` normals to the point's motion, J is
the Jacobian of its position and d the smallest joint motion that moves it along n. b is a bump of height 1 at this knot with
horizontal tangents, zero at both ends. a is the smallest of the :data:`STEPS` that clears all points at all knots within the
joint limits. The n with the smallest a |d| is used.

Near the middle of a sphere, all directions out are equal to first order, so a solver's local minimum would depend on chance;
from a path beside the sphere, solvers agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.model.model import Model
from trajopt.config.task import Checked, Checks, not_negative
from trajopt.problem.constraints import link_points
from trajopt.problem.residuals import LinkPoint

Point = tuple[float, float, float]

MAX_SPACING = 0.2
"""Largest default distance between checked points [m]."""
LONGEST = 1e3
"""Distance between points [m] that leaves only the ends of the links."""
DIRECTIONS = 16
STEPS = np.arange(1, 101) / 50.0
"""Values of a |d|, up to a joint displacement of 2 [rad or m]."""
DIFFERENCE = 1e-6
"""Step [rad or m] of the Jacobian by central differences, which is accurate enough for a guess."""


@dataclass(frozen=True, kw_only=True)
class Obstacle(Checked):
    """Spherical obstacle for points on the lines between joints; the thickness of the links is not included.

    center: center in world coordinates (3,) [m]. radius: radius of the sphere [m]. spacing: distance between checked points
    along the links [m]; default: half of radius plus margin, at most 0.2 m; the line between two points then enters this
    wider sphere by at most 3 % of its radius. frame: end of the last checked link; default: the frame of the task.

    margin: added to the radius, for the thickness of the links [m]. weight: weight of the slack of a relaxed constraint
    (:func:`trajopt.softened`); default: a hard constraint. width: width of the smoothed corner of the slack cost [m].
    """

    center: Point
    radius: float
    margin: float = 0.0
    weight: float | None = None
    width: float = 0.01
    spacing: float | None = None
    frame: str | None = None

    def checks(self) -> Checks:
        return {
            **{key: (getattr(self, key) > 0, "a positive length [m]") for key in ("radius", "width")},
            "spacing": (self.spacing is None or self.spacing > 0, "a positive length [m]"),
            "margin": not_negative(self.margin),
            "weight": (self.weight is None or self.weight > 0, "a positive weight"),
        }

    @property
    def default_spacing(self) -> float:
        """Default distance between checked points [m]."""
        return min(MAX_SPACING, 0.5 * (self.radius + self.margin))

    def points(self, model: Model, frame: str) -> tuple[LinkPoint, ...]:
        """Return the points that stay outside the sphere. frame: frame of the task."""
        return link_points(model, self.frame or frame, self.spacing or self.default_spacing)

    def axes(self, model: Model, frame: str) -> tuple[LinkPoint, ...]:
        """Return the ends of the link axes, lines from the origins of their bodies. frame: frame of the task."""
        return tuple(p for p in link_points(model, self.frame or frame, LONGEST) if any(p.offset))


def axis_distances(model: Model, qs: Array, axes: Sequence[LinkPoint], center: Array) -> Array:
    """Return the distances (M, L) [m] of a point (3,) from link axes at qs (M, nq); axes: their ends (:meth:`Obstacle.axes`)."""
    origins = [end._replace(offset=(0.0, 0.0, 0.0)) for end in axes]
    start, end = np.split(places(model, qs, [*origins, *axes]), 2, axis=1)
    along = end - start
    part = ((center - start) * along).sum(axis=2) / (along**2).sum(axis=2)
    return np.asarray(np.linalg.norm(start + np.clip(part, 0.0, 1.0)[:, :, None] * along - center, axis=2))


def around_sphere(model: Model, qs: Array, points: Sequence[LinkPoint], center: Array, radius: float) -> Array:
    """Bend a path qs (N + 1, nq) of a robot with a vector-space q around a sphere; returns a collision-free path unchanged.

    The path is also unchanged if no bend within the joint limits clears the sphere, or if the deepest knot is the first or last.
    """
    distances = np.linalg.norm(places(model, qs, points) - center, axis=2)
    knot, point = (int(i) for i in np.unravel_index(np.argmin(distances), distances.shape))
    if distances[knot, point] >= radius or not 0 < knot < len(qs) - 1:
        return qs
    deepest = [points[point]]
    J = np.stack(
        [
            places(model, np.stack([qs[knot] + e, qs[knot] - e]), deepest)[:, 0].T @ [0.5, -0.5] / DIFFERENCE
            for e in DIFFERENCE * np.eye(len(qs[knot]))
        ],
        axis=1,
    )
    before, after = places(model, qs[[knot - 1, knot + 1]], deepest)[:, 0]
    bends = [np.linalg.pinv(J) @ n for n in normals(after - before)]
    paths = [_clear(model, qs, bump(len(qs), knot), d, points, center, radius) for d in bends]
    found = [path for path in paths if path is not None]
    return min(found, key=lambda path: np.linalg.norm(path[knot] - qs[knot])) if found else qs


def places(model: Model, qs: Array, points: Sequence[LinkPoint]) -> Array:
    """Return world positions (M, P, 3) [m] of link points at configurations (M, nq)."""
    at = point_positions(model, qs.T, [(point.body, point.offset) for point in points])
    return np.stack([np.stack(np.broadcast_arrays(*p, qs[:, 0])[:3], axis=1) for p in at], axis=1)


def bump(count: int, top: int) -> Array:
    """Return b (count,): one at the index ``top``, zero at both ends, with horizontal tangents at the three."""
    s = np.arange(count)
    return np.sin(0.5 * np.pi * np.where(s < top, s / top, (count - 1 - s) / (count - 1 - top))) ** 2


def normals(motion: Array) -> Array:
    """Return unit vectors (DIRECTIONS, 3) normal to a direction (3,), at equal angles."""
    basis = np.linalg.svd(motion[None])[2][1:]
    angles = 2.0 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    return np.cos(angles)[:, None] * basis[0] + np.sin(angles)[:, None] * basis[1]


def _clear(
    model: Model, qs: Array, shape: Array, d: Array, points: Sequence[LinkPoint], center: Array, radius: float
) -> Array | None:
    """Return the path with the smallest bend along d that is collision-free, or None."""
    unit = d / max(float(np.linalg.norm(d)), DIFFERENCE)
    paths = qs + STEPS[:, None, None] * shape[None, :, None] * unit
    at = places(model, paths.reshape(-1, qs.shape[1]), points)
    outside = np.linalg.norm(at - center, axis=2).min(axis=1).reshape(len(STEPS), -1).min(axis=1) >= radius
    within = ((paths >= model.q_lower) & (paths <= model.q_upper)).all(axis=(1, 2))
    good = np.flatnonzero(outside & within)
    return paths[good[0]] if len(good) else None
