"""Independent collision check by the package coal: true shapes of links and bodies, without capsules and derivatives.

The smallest distance along a motion is found without computing every distance at every time. The distance of bounding volumes is
a lower bound: the balls of two parts, or the ball of a part and the box of a body of the scene. From these bounds, a search
evaluates the pair and time with the smallest bound, until no bound is small enough.

The distance d of convex bodies a and b that are apart is that of two parallel planes with normal n, from a to b, which touch them.
At another time, the distance of the touching planes with the same normal in the frame of b is a lower bound. In the frame of b, if
a lies in a box with center c and half edges h_j along axes e_j that turn with it,

    d(t) >= d - n'(c(t) - c) - sum_j h_j |n'(e_j(t) - e_j)|

(directional motion bounds: X. Zhang, M. Lee, Y. J. Kim, Interactive continuous collision detection for non-convex polyhedra, The
Visual Computer 22, 2006). So a body that slides along another one needs few evaluations. For non-convex bodies,
cylinders, and bodies in contact, motion in any direction counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.mesh_motion import GROUND, Part, Places, box_around
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import geometry_of, hull_around, is_convex, pose, require_coal

AROUND = 240
"""A distance evaluation updates the bounds at up to this many times before, and as many after it."""


DistanceFunction = Callable[[int, int, slice, float, Array], float]
"""Function distance_of(pair, time, around, known, lower) that returns the distance [m] of a pair at a time, both by index.

A result of at most ``known`` [m] is exact; a larger one may be too small, but is then above ``known``. The call may raise the lower
bounds ``lower`` (M,) [m] of the pair, in place, at the times in the slice ``around``.
"""


class SmallestDistance(NamedTuple):
    """Smallest distance [m], with the indices of its pair and time; near (M,) [m]: the smallest distance at each time.

    near is infinite at times without a distance below the threshold of :func:`minimum_distance`.
    """

    distance: float
    pair: int
    time: int
    near: Array


class Search:
    """Best-first search on lower bounds of the distances of pairs at M times.

    bounds (pairs, M): lower bounds [m], of at least one pair; the search changes them. distance_of: computes a distance.
    """

    def __init__(self, bounds: Array, distance_of: DistanceFunction) -> None:
        self.bounds, self.distance_of = bounds, distance_of
        smallest, places = bounds.min(axis=1).tolist(), bounds.argmin(axis=1).tolist()
        self.pairs = list(zip(smallest, range(len(bounds)), places, strict=True))
        heapq.heapify(self.pairs)

    @property
    def smallest_bound(self) -> float:
        """Smallest lower bound [m] on distances that are not evaluated yet; infinite if there are none."""
        return self.pairs[0][0]

    def evaluate(self, known: float) -> tuple[float, int, int]:
        """Evaluate the distance with the smallest bound. Returns distance [m], pair and time index, and raises the nearby bounds.

        A distance above ``known`` [m] may be too small.
        """
        _, pair, k = self.pairs[0]
        lower = self.bounds[pair]
        around = slice(max(k - AROUND, 0), k + AROUND + 1)
        distance = self.distance_of(pair, k, around, known, lower)
        lower[k] = np.inf
        place = int(lower.argmin())
        heapq.heapreplace(self.pairs, (float(lower[place]), pair, place))
        return distance, pair, k


def minimum_distance(bounds: Array, distance_of: DistanceFunction, threshold: float) -> SmallestDistance:
    """Find the smallest distance of any pair at any time, and for each time the smallest distance if it is below ``threshold``.

    threshold [m]. Other arguments: see :class:`Search`.
    """
    search, near = Search(bounds, distance_of), np.full(bounds.shape[1], np.inf)
    best = np.inf, -1, -1
    while search.smallest_bound < max(best[0], threshold):
        found, pair, k = search.evaluate(max(best[0], threshold))
        if found < threshold:
            near[k] = min(near[k], found)
        best = min(best, (found, pair, k))
    return SmallestDistance(*best, near)


def touching(bounds: Array, distance_of: DistanceFunction) -> bool:
    """True if any pair's distance at any time is at most zero; arguments as of :class:`Search`."""
    search = Search(bounds, distance_of)
    while search.smallest_bound <= 0.0:
        if search.evaluate(0.0)[0] <= 0.0:
            return True
    return False


RATE = 1000.0
"""Number of configurations to check per second of motion [1/s]."""
SHIFTS = 1e-3 * 1.25 ** np.arange(32)
"""Lengths of the translations that are tried to separate two meshes that overlap, from 1 mm to 1 m [m]."""
DIRECTIONS = np.array([d for d in np.ndindex(3, 3, 3) if d != (1, 1, 1)]) - 1.0
DIRECTIONS /= np.linalg.norm(DIRECTIONS, axis=1)[:, None]
"""Unit vectors (26, 3) of these translations."""
ROUNDING = 1e-5
"""Accuracy of distances between convex shapes and of their separating planes, except for cylinders [m]."""


class MinimumDistance(NamedTuple):
    """Smallest distance of a motion. distance [m], negative: depth; names of link and body (or second link); time [s].

    Without pairs or configurations, the distance is infinite, the names are empty, and the time is 0.
    """

    distance: float
    link: str
    body: str
    time: float

    def __str__(self) -> str:
        what = f"{1e3 * self.distance:.1f} mm between" if self.distance >= 0 else f"{-1e3 * self.distance:.1f} mm deep:"
        return f"{what} {self.link} and {self.body} at {self.time:.3f} s"


class MeshCheck:
    """Collision check with true shapes by coal: of a robot's movable bodies with a scene, and of pairs of the robot's bodies.

    shapes: shapes of the links. self_pairs: pairs of robot bodies to check (-1: the ground). disabled: pairs of names of links that
    are ignored in self_pairs. Two non-convex meshes that overlap have distance 0 (:meth:`depth` estimates their overlap); a shape
    inside a non-convex mesh that touches no triangle has a positive distance.

    Raises ModuleNotFoundError without coal.
    """

    def __init__(
        self,
        model: Model,
        shapes: Iterable[PlacedShape],
        scene: Scene,
        self_pairs: Sequence[tuple[int, int]] = (),
        disabled: frozenset[frozenset[str]] = frozenset(),
    ) -> None:
        self.coal = require_coal()
        self.model, self.scene = model, scene
        self.parts = [Part.from_shape(model, placed) for placed in shapes]
        self.bodies = [geometry_of(body.shape) for body in scene.bodies]
        self.hulls = [hull_around(body.shape) for body in scene.bodies]
        count = len(self.bodies)
        movable = [i for i, part in enumerate(self.parts) if part.body >= 0]
        self_pairs = [
            (i, count + j)
            for near, far in self_pairs
            for i, a in enumerate(self.parts)
            for j, b in enumerate(self.parts)
            if a.body == far and b.body == near and frozenset((a.link, b.link)) not in disabled
        ]
        self.pairs = np.array([*((i, o) for i in movable for o in range(count)), *self_pairs], dtype=int).reshape(-1, 2)
        self._boxes = [box_around(geometry) for geometry in self.bodies]
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [pose(body.R, body.p) for body in scene.bodies]

    # -- one configuration ----------------------------------------------------------------------------------------------
    def nearest(self, q: Array, time: float = 0.0) -> MinimumDistance:
        """Return the smallest distance [m] at a configuration (nq,), with the scene at a time [s]; infinite without pairs.

        Raises ValueError for a configuration that is not finite.
        """
        return self.along(np.asarray(q, float)[None], np.array([time]))

    # -- a motion -------------------------------------------------------------------------------------------------------
    def along(self, qs: Array, times: Array) -> MinimumDistance:
        """Return the smallest distance [m] at the configurations (M, nq), not between them, with the scene at times (M,) [s].

        Negative: depth; infinite without pairs or configurations. Raises ValueError for configurations that are not finite, unless
        there are no pairs.
        """
        return self.below(qs, times, -np.inf)[0]

    def below(self, qs: Array, times: Array, threshold: float) -> tuple[MinimumDistance, Array]:
        """Return the smallest distance [m], as :meth:`along`, and the smallest distance (M,) [m] at each time.

        The distance at a time is infinite unless below ``threshold`` [m]. Raises ValueError for configurations that are not finite,
        unless there are no pairs.
        """
        if not len(self.pairs) or not len(qs):
            return MinimumDistance(np.inf, "", "", 0.0), np.full(len(qs), np.inf)
        finite = np.isfinite(qs).all(axis=1)
        if not finite.all():  # NaN bounds would accept the rest of the motion
            raise ValueError(f"the configuration at {times[finite.argmin()]:.3f} s is not finite")
        at = self.places(qs, times)
        found = minimum_distance(self._bounds(at), self._distance_function(at), threshold)
        i, o = self.pairs[found.pair]
        least = MinimumDistance(found.distance, self.parts[i].link, self.name(o), float(times[found.time]))
        return least, found.near

    def is_clear(self, qs: Array) -> bool:
        """True if all configurations (M, nq) are finite and all distances positive, with the scene at time 0; not checked between.

        True without pairs, even for configurations that are not finite.
        """
        if not len(self.pairs) or not len(qs):
            return True
        if not np.isfinite(qs).all():
            return False
        at = self.places(qs)
        return not touching(self._bounds(at), self._distance_function(at))

    def _distance_function(self, at: Places) -> DistanceFunction:
        """Return the function of distances for :class:`Search`, with poses ``at`` by time index; it raises nearby bounds."""
        pairs, count = self.pairs.tolist(), len(self.bodies)

        def distance_of(pair: int, k: int, around: slice, known: float, lower: Array) -> float:
            """Distance [m] of a pair at time index k, exact if at most ``known``; raises ``lower`` in the slice ``around``."""
            i, o = pairs[pair]
            found, normal = self.distance(i, o, k, at, known)
            base = self.parts[o - count].body if o >= count else GROUND
            moves = o < count and self.scene.bodies[o].path is not None
            other = at.bodies[o] if moves else None
            at.raise_bounds(lower, found - ROUNDING, k, around, (self.parts[i], i), normal, base, other)
            return found

        return distance_of

    def places(self, qs: Array, times: Array | None = None) -> Places:
        """Return the poses of robot and scene at configurations (M, nq) and times (M,) [s], default zeros, for :meth:`distance`."""
        times = np.zeros(len(qs)) if times is None else times
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(len(self.bodies), len(qs), 3)
        return Places(body_poses(self.model, qs), bodies)

    def _bounds(self, at: Places) -> Array:
        """Return lower bounds (pairs, M) [m] on the distances of each pair at M times; negative: upper bounds on the depth."""
        (first, second), poses = self.pairs.T, [at.poses[part.body] for part in self.parts]
        centers = np.array([(R @ part.ball[0] + p).T for part, (R, p) in zip(self.parts, poses, strict=True)])
        radii = np.array([part.ball[1] for part in self.parts])[:, None]
        bounds = np.empty((len(self.pairs), centers.shape[2]))
        for o, body in enumerate(self.scene.bodies):
            low, high = (corner[:, None] for corner in self._boxes[o])
            center = body.R.T @ (centers[first[second == o]] - at.bodies[o].T)
            gaps = np.maximum(low - center, center - high)
            outside, inside = np.linalg.norm(np.maximum(gaps, 0.0), axis=1), np.minimum(gaps.max(axis=1), 0.0)
            bounds[second == o] = outside + inside
        links = second >= len(self.bodies)
        other = second[links] - len(self.bodies)
        bounds[links] = np.linalg.norm(centers[first[links]] - centers[other], axis=1) - radii[other]
        return bounds - radii[first]

    def name(self, o: int) -> str:
        """Return the name of ``o``, the second member of a pair: a body of the scene or, numbered after them, a part's link."""
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: Places, known: float = np.inf) -> tuple[float, Array | None]:
        """Return the distance [m] of part i from body or part o at time index k, and the normal of a separating plane if known.

        o: index of a body of the scene, or their number plus the index of a part. at: poses by time index. If the distance with
        convex hulls in place of non-convex meshes exceeds ``known`` [m] by more than ROUNDING, it is returned; it is at most the
        exact distance. The unit normal (3,) in the world points from part i to o. It is None unless the two compared geometries are
        convex and apart, and for cylinders, whose separating planes are off by up to a millimeter.
        """
        part, a, count = self.parts[i], at.placed(self.parts[i], i, k), len(self.bodies)
        if o >= count:
            second = self.parts[o - count]
            other, hull, b = second.geometry, second.hull, at.placed(second, o - count, k)
        else:
            body, other, hull = self.scene.bodies[o], self.bodies[o], self.hulls[o]
            b = self._rest[o] if body.path is None else pose(body.R, at.bodies[o, k])
        plane = not any(isinstance(geometry, self.coal.Cylinder) for geometry in (part.geometry, other))
        if part.hull is not None or hull is not None:
            one, two = part.geometry if part.hull is None else part.hull, other if hull is None else hull
            apart = self._apart(one, a, two, b)
            if apart > known + ROUNDING:
                return apart, self._normal(one, two, apart) if plane else None
        apart = self._apart(part.geometry, a, other, b)
        return apart, self._normal(part.geometry, other, apart) if plane else None

    def is_deeper(self, i: int, o: int, k: int, at: Places, depth: float) -> bool:
        """True if parts i and o overlap at time index k by more than a depth [m], 0 or more; faster than :meth:`depth`.

        o: index of a part. Two non-convex meshes do if no translation of this length along DIRECTIONS separates them.
        """
        one, two = self.parts[i].geometry, self.parts[o].geometry
        if is_convex(one) or is_convex(two):
            return -self.distance(i, len(self.bodies) + o, k, at)[0] > depth
        a, b = at.placed(self.parts[i], i, k), at.placed(self.parts[o], o, k)
        request, result = self.coal.CollisionRequest(), self.coal.CollisionResult()
        for shift in depth * DIRECTIONS if depth > 0.0 else np.zeros((1, 3)):
            result.clear()
            moved = pose(a.getRotation(), a.getTranslation() + shift)
            if not self.coal.collide(one, moved, two, b, request, result):
                return False
        return True

    def depth(self, i: int, o: int, k: int, at: Places) -> float:
        """Return the penetration depth [m] of parts i and o at time index k, 0 if they are apart.

        o: index of a part. The distance gives it, except for two non-convex meshes that overlap: then it is the length of the
        shortest translation, of SHIFTS along DIRECTIONS, that separates them, at least 1 mm.
        """
        if is_convex(self.parts[i].geometry) or is_convex(self.parts[o].geometry):
            return max(-self.distance(i, len(self.bodies) + o, k, at)[0], 0.0)
        if not self.is_deeper(i, o, k, at, 0.0):
            return 0.0
        return float(next((s for s in SHIFTS if not self.is_deeper(i, o, k, at, s)), SHIFTS[-1]))

    def _normal(self, one: Any, two: Any, distance: float) -> Array | None:
        """Return the unit normal (3,) in the world, from ``one`` to ``two``, of the last computed distance.

        distance [m]: that distance. None unless both coal geometries are convex and the distance is positive.
        """
        return np.array(self._result.normal) if distance > 0.0 and is_convex(one) and is_convex(two) else None

    def _apart(self, one: Any, a: Any, other: Any, b: Any) -> float:
        """Return the distance [m] of two coal geometries at poses a and b; negative: depth, 0 for overlapping surfaces."""
        self._result.clear()
        return float(self.coal.distance(one, a, other, b, self._request, self._result))
