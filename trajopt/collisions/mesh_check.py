"""Collisions by another hand: true shapes of links and bodies in the package coal, without capsules and without derivatives.

Along a motion the least distance is found without asking for every distance at every time. Between two times no point of a link
moves farther than a ball around it and its turn tell: the distance of boxes around shapes in the middle of a block of times, less
this way, is a lower bound within the block. From there a search looks at few pairs at few times
(:mod:`trajopt.collisions.mesh_search`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers.robot_cover import body_poses
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.boxes import box_around, boxes_apart, lengths, outside
from trajopt.collisions.mesh_motion import Ball, Part, Places
from trajopt.collisions.mesh_search import Look, Looks, least_distance, touching
from trajopt.collisions.true_shapes import geometry_of, hull_around, is_convex, pose, require_coal

RATE = 1000.0
"""Checks in a second of motion [1/s]."""
BLOCK = 25
"""Times that share a bound."""
CLOSE = 0.1
"""[m] What is nearer by balls is told apart by boxes."""
ROUNDING = 1e-5
"""[m] Distances of convex shapes, and their planes but for those of cylinders, are known to a part of this."""


class LeastDistance(NamedTuple):
    """distance [m], negative: depth; link and body (or other link) that come so close, and when [s]."""

    distance: float
    link: str
    body: str
    time: float

    def __str__(self) -> str:
        what = f"{1e3 * self.distance:.1f} mm between" if self.distance >= 0 else f"{-1e3 * self.distance:.1f} mm deep:"
        return f"{what} {self.link} and {self.body} at {self.time:.3f} s"


class MeshCheck:
    """shapes: of the robot's links. own: pairs of bodies of the robot that may touch each other (-1: the ground). disabled: pairs
    of links that need no look.

    Raises ModuleNotFoundError without coal.
    """

    def __init__(
        self,
        model: Model,
        shapes: Iterable[PlacedShape],
        scene: Scene,
        own: Sequence[tuple[int, int]] = (),
        disabled: frozenset[frozenset[str]] = frozenset(),
    ) -> None:
        self.coal = require_coal()
        self.model, self.scene = model, scene
        self.parts = [Part.of(model, placed) for placed in shapes]
        self.bodies = [geometry_of(body.shape) for body in scene.bodies]
        self.hulls = [hull_around(body.shape) for body in scene.bodies]
        count = len(self.bodies)
        movable = [i for i, part in enumerate(self.parts) if part.body >= 0]
        own_pairs = [
            (i, count + j)
            for near, far in own
            for i, a in enumerate(self.parts)
            for j, b in enumerate(self.parts)
            if a.body == far and b.body == near and frozenset((a.link, b.link)) not in disabled
        ]
        self.pairs = np.array([*((i, o) for i in movable for o in range(count)), *own_pairs], dtype=int).reshape(-1, 2)
        carriers, row = np.unique([part.body for part in self.parts], return_inverse=True)
        self._balls = [Ball.around([part for part in self.parts if part.body == body]) for body in carriers]
        self._way_of = np.concatenate([np.arange(count), count + row.ravel()]).astype(int)
        self._radii = np.array([part.radius for part in self.parts])
        self._halves = np.array([part.half for part in self.parts]).reshape(-1, 3)
        self._turned = np.array([body.R for body in scene.bodies]).reshape(-1, 3, 3)
        boxes = [box_around(geometry) for geometry in self.bodies]
        self._corners = tuple(np.array([box[side] for box in boxes]).reshape(-1, 3) for side in (0, 1))
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [pose(body.R, body.p) for body in scene.bodies]

    # -- one configuration ----------------------------------------------------------------------------------------------
    def nearest(self, q: Array, time: float = 0.0) -> LeastDistance:
        """The least distance at a configuration (nq,)."""
        return self.along(np.asarray(q, float)[None], np.array([time]))

    # -- a motion -------------------------------------------------------------------------------------------------------
    def along(self, qs: Array, times: Array) -> LeastDistance:
        """The least distance along configurations (M, nq) at times (M,) [s]; nothing to check: infinite."""
        return self.below(qs, times, -np.inf)[0]

    def below(self, qs: Array, times: Array, asked: float) -> tuple[LeastDistance, Array]:
        """The least distance along a motion, and (M,) that of each time where it is below ``asked`` [m], infinite elsewhere."""
        if not len(self.pairs):
            return LeastDistance(np.inf, "", "", 0.0), np.full(len(qs), np.inf)
        at = self._places(qs, times)
        found = least_distance(self._bounds(at), BLOCK, len(qs), self._looks(at), asked)
        i, o = self.pairs[found.pair]
        least = LeastDistance(found.distance, self.parts[i].link, self.name(o), float(times[found.time]))
        return least, found.near

    def is_clear(self, qs: Array) -> bool:
        """Whether nothing touches at configurations (M, nq) along a path, where the scene begins, and all is finite."""
        if not len(self.pairs):
            return True
        if not np.isfinite(qs).all():
            return False
        at = self._places(qs, np.zeros(len(qs)))
        return not touching(self._bounds(at), BLOCK, len(qs), self._looks(at))

    def _looks(self, at: Places) -> Looks:
        """A look at a pair at a time, see :mod:`trajopt.collisions.mesh_search`."""

        def look(pair: int, k: int, around: slice, known: float) -> Look:
            i, o = self.pairs[pair].tolist()
            found, normal = self.distance(i, o, k, at, known)
            if self._is_round(i, o):
                normal = None
            return Look(found, found - ROUNDING - self._nearer(i, o, k, around, at, normal))

        return look

    def _is_round(self, i: int, o: int) -> bool:
        """Whether one of a pair is a cylinder: planes between these and others are off by up to a millimeter."""
        count = len(self.bodies)
        other = self.bodies[o] if o < count else self.parts[o - count].geometry
        return any(isinstance(geometry, self.coal.Cylinder) for geometry in (self.parts[i].geometry, other))

    def _nearer(self, i: int, o: int, k: int, around: slice, at: Places, normal: Array | None) -> Array:
        """By how much (m,) less a pair is apart at most at times around k than at k; normal: of a plane between, if known."""
        part, count = self.parts[i], len(self.bodies)
        if o >= count:
            base = self.parts[o - count].body
            return at.way(part, i, k, around, base) if normal is None else at.spread(part, i, k, around, normal, base)
        found = at.way(part, i, k, around) if normal is None else at.spread(part, i, k, around, normal)
        if self.scene.bodies[o].way is None:
            return found
        moved = at.bodies[o, around] - at.bodies[o, k]
        return found + lengths(moved) if normal is None else found - moved @ normal

    def _places(self, qs: Array, times: Array) -> Places:
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(len(self.bodies), len(qs), 3)
        return Places(body_poses(self.model, qs), bodies)

    def _moved(self, at: Places, middle: Array) -> Array:
        """How far (B + C, blocks) any point of a body, and of what a body of the model carries, is at most from where it is in the
        middle of a block."""
        M, count = len(at.poses[-1][0]), len(self.bodies)
        blocks = np.minimum(np.arange(len(middle) * BLOCK), M - 1).reshape(-1, BLOCK)
        moved = np.zeros((count + len(self._balls), len(middle)))
        for n, body in enumerate(self.scene.bodies):
            if body.way is not None:
                moved[n] = lengths(at.bodies[n][blocks] - at.bodies[n, middle][:, None]).max(axis=1)
        for n, ball in enumerate(self._balls, count):
            moved[n] = at.moved(ball, blocks, middle)
        return moved

    def _bounds(self, at: Places) -> Array:
        """Lower bounds (blocks, pairs) of the distances in blocks, by balls around parts and by boxes around near ones."""
        M, count = len(at.poses[-1][0]), len(self.bodies)
        first = np.arange(0, M, BLOCK)
        middle = (first + np.minimum(first + BLOCK, M) - 1) // 2
        i, o = self.pairs.T
        moved = self._moved(at, middle).T
        moved = moved[:, self._way_of[count + i]] + moved[:, self._way_of[o]]
        gaps, centers = np.empty((len(first), len(self.pairs))), np.empty((len(first), len(self.parts), 3))
        R = np.empty((len(first), len(self.parts), 3, 3))
        for j, one in enumerate(self.parts):
            turn, place = (values[middle] for values in at.poses[one.body])
            centers[:, j], R[:, j] = turn @ one.center + place, turn @ one.R
        scene, own = np.flatnonzero(o < count), np.flatnonzero(o >= count)
        places = np.moveaxis(centers[:, i[scene]] - at.bodies[:, middle][o[scene]].transpose(1, 0, 2), 0, 1)
        local = places @ self._turned[o[scene]]  # (pairs, blocks, 3)
        low, high = (corners[o[scene], None] for corners in self._corners)
        gaps[:, scene] = outside(np.maximum(low - local, local - high)).T - self._radii[i[scene]]
        others = o[own] - count
        away = centers[:, i[own]] - centers[:, others]
        gaps[:, own] = lengths(away) - self._radii[i[own]] - self._radii[others]
        k, n = np.nonzero(gaps[:, scene] < CLOSE)
        pair = scene[n]
        part, body = i[pair], o[pair]
        turned = self._turned[body].transpose(0, 2, 1) @ R[k, part]
        corners = (side[body] for side in self._corners)
        gaps[k, pair] = boxes_apart(local[n, k], turned, self._halves[part], *corners)
        k, n = np.nonzero(gaps[:, own] < CLOSE)
        part, other = i[own[n]], others[n]
        back = R[k, other].transpose(0, 2, 1)
        half = self._halves[other]
        gaps[k, own[n]] = boxes_apart(
            (back @ away[k, n][..., None])[..., 0], back @ R[k, part], self._halves[part], -half, half
        )
        return gaps - moved

    def name(self, o: int) -> str:
        """The name of a body, or of the link of a part."""
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: Places, known: float = np.inf) -> tuple[float, Array | None]:
        """Between a part and a body, or another part, at a time, and the normal of a plane between, where these are convex.

        Where that is more than ``known``, the distance of convex hulls may be told in its place, which is between the two.
        """
        part, a, count = self.parts[i], at.placed(self.parts[i], i, k), len(self.bodies)
        if o >= count:
            second = self.parts[o - count]
            other, hull, b = second.geometry, second.hull, at.placed(second, o - count, k)
        else:
            body, other, hull = self.scene.bodies[o], self.bodies[o], self.hulls[o]
            b = self._rest[o] if body.way is None else pose(body.R, at.bodies[o, k])
        if part.hull is not None or hull is not None:
            one, two = part.geometry if part.hull is None else part.hull, other if hull is None else hull
            apart = self._apart(one, a, two, b)
            if apart > known + ROUNDING:
                return apart, self._normal(one, two, apart)
        apart = self._apart(part.geometry, a, other, b)
        return apart, self._normal(part.geometry, other, apart)

    def _normal(self, one: Any, two: Any, apart: float) -> Array | None:
        """The normal (3,) of the last distance, where it is that of a plane between the two."""
        return np.array(self._result.normal) if apart > 0.0 and is_convex(one) and is_convex(two) else None

    def _apart(self, one: Any, a: Any, other: Any, b: Any) -> float:
        self._result.clear()
        return float(self.coal.distance(one, a, other, b, self._request, self._result))
