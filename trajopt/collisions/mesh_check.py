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
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.block_bounds import BlockBounds
from trajopt.collisions.mesh_motion import GROUND, Places, parts_of
from trajopt.collisions.mesh_search import Looks, least_distance, touching
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import geometry_of, hull_around, is_convex, pose, require_coal

RATE = 1000.0
"""Checks in a second of motion [1/s]."""
BLOCK = 25
"""Times that share a bound."""
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
        self.parts = parts_of(model, shapes)
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
        self._blocks = BlockBounds(self.parts, scene, self.bodies, self.pairs)
        self._round = [isinstance(g, self.coal.Cylinder) for g in (*self.bodies, *(p.geometry for p in self.parts))]
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [pose(body.R, body.p) for body in scene.bodies]

    # -- one configuration ----------------------------------------------------------------------------------------------
    def nearest(self, q: Array, time: float = 0.0) -> LeastDistance:
        """The least distance at a configuration (nq,)."""
        return self.along(np.asarray(q, float)[None], np.array([time]))

    # -- a motion -------------------------------------------------------------------------------------------------------
    def along(self, qs: Array, times: Array) -> LeastDistance:
        """The least distance along configurations (M, nq) at times (M,) [s]; nothing to check: infinite.

        Raises ValueError for configurations that are not finite.
        """
        return self.below(qs, times, -np.inf)[0]

    def below(self, qs: Array, times: Array, asked: float) -> tuple[LeastDistance, Array]:
        """The least distance along a motion, and (M,) that of each time where it is below ``asked`` [m], infinite elsewhere.

        Raises ValueError for configurations that are not finite.
        """
        if not len(self.pairs) or not len(qs):
            return LeastDistance(np.inf, "", "", 0.0), np.full(len(qs), np.inf)
        finite = np.isfinite(qs).all(axis=1)
        if not finite.all():  # bounds by numbers that are none would pass the rest of the motion too
            raise ValueError(f"the configuration at {times[finite.argmin()]:.3f} s is not finite")
        at = self._places(qs, times)
        found = least_distance(self._bounds(at), BLOCK, len(qs), self._looks(at), asked)
        i, o = self.pairs[found.pair]
        least = LeastDistance(found.distance, self.parts[i].link, self.name(o), float(times[found.time]))
        return least, found.near

    def is_clear(self, qs: Array) -> bool:
        """True if nothing touches at configurations (M, nq) along a path, where the scene begins, and all is finite."""
        if not len(self.pairs) or not len(qs):
            return True
        if not np.isfinite(qs).all():
            return False
        at = self._places(qs, np.zeros(len(qs)))
        return not touching(self._bounds(at), BLOCK, len(qs), self._looks(at))

    def _looks(self, at: Places) -> Looks:
        """A look at a pair at a time, see :mod:`trajopt.collisions.mesh_search`."""
        pairs, count = self.pairs.tolist(), len(self.bodies)

        def look(pair: int, k: int, around: slice, known: float, lower: Array) -> float:
            i, o = pairs[pair]
            found, normal = self.distance(i, o, k, at, known)
            base = self.parts[o - count].body if o >= count else GROUND
            moves = o < count and self.scene.bodies[o].way is not None
            other = at.bodies[o] if moves else None
            at.raise_bounds(lower, found - ROUNDING, k, around, (self.parts[i], i), normal, base, other)
            return found

        return look

    def places(self, qs: Array) -> Places:
        """Poses at configurations (M, nq), for :meth:`distance`."""
        return self._places(qs, np.zeros(len(qs)))

    def _places(self, qs: Array, times: Array) -> Places:
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(len(self.bodies), len(qs), 3)
        return Places(body_poses(self.model, qs), bodies)

    def _bounds(self, at: Places) -> Array:
        """Lower bounds (blocks, pairs) of the distances in blocks."""
        return self._blocks.bounds(at, BLOCK)

    def name(self, o: int) -> str:
        """The name of a body, or of the link of a part."""
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: Places, known: float = np.inf) -> tuple[float, Array | None]:
        """Between a part and a body, or another part, at a time, and the normal of a plane between, where these are convex.

        Where that is more than ``known``, the distance of convex hulls may be told in its place, which is between the two. Planes
        between cylinders and others are off by up to a millimeter: none is told.
        """
        part, a, count = self.parts[i], at.placed(self.parts[i], i, k), len(self.bodies)
        if o >= count:
            second = self.parts[o - count]
            other, hull, b = second.geometry, second.hull, at.placed(second, o - count, k)
        else:
            body, other, hull = self.scene.bodies[o], self.bodies[o], self.hulls[o]
            b = self._rest[o] if body.way is None else pose(body.R, at.bodies[o, k])
        plane = not (self._round[count + i] or self._round[o])
        if part.hull is not None or hull is not None:
            one, two = part.geometry if part.hull is None else part.hull, other if hull is None else hull
            apart = self._apart(one, a, two, b)
            if apart > known + ROUNDING:
                return apart, self._normal(one, two, apart) if plane else None
        apart = self._apart(part.geometry, a, other, b)
        return apart, self._normal(part.geometry, other, apart) if plane else None

    def _normal(self, one: Any, two: Any, apart: float) -> Array | None:
        """The normal (3,) of the last distance, where it is that of a plane between the two."""
        return np.array(self._result.normal) if apart > 0.0 and is_convex(one) and is_convex(two) else None

    def _apart(self, one: Any, a: Any, other: Any, b: Any) -> float:
        self._result.clear()
        return float(self.coal.distance(one, a, other, b, self._request, self._result))
