"""Collisions by another hand: true shapes of links and bodies in the package coal, without capsules and without derivatives.

Along a motion the least distance is found without asking for every distance at every time. Between two times no point of a link
moves farther than the way that bounds it: a distance that was found, or that of a ball around the link, less this way is a lower
bound at another time, and what is farther apart than the least known distance is left out. Blocks of times come in the order of
their bounds, so that the least distance is known early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.robot_cover import body_poses
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.true_shapes import geometry_of, require_coal

RATE = 1000.0
"""Checks in a second of motion [1/s]."""
BLOCK = 20
"""Times that share a bound."""


class LeastDistance(NamedTuple):
    """distance [m], negative: depth; link and body (or other link) that come so close, and when [s]."""

    distance: float
    link: str
    body: str
    time: float

    def __str__(self) -> str:
        what = f"{1e3 * self.distance:.1f} mm between" if self.distance >= 0 else f"{-1e3 * self.distance:.1f} mm deep:"
        return f"{what} {self.link} and {self.body} at {self.time:.3f} s"


class _Part(NamedTuple):
    """A shape of a link: its name, the body of the model that carries it, its pose there, coal's geometry, and center (in the frame
    of that body) and radius of a ball that holds it."""

    link: str
    body: int
    R: Array
    p: Array
    geometry: Any
    center: Array
    radius: float


class _Places(NamedTuple):
    """Parts along a motion: rotations R (M, P, 3, 3), places p and centers (M, P, 3); bodies of the scene: places (B, M, 3). way
    (M, B + P): how far any point of a body or part has moved at most since the start."""

    R: Array
    p: Array
    centers: Array
    bodies: Array
    way: Array


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
        self.parts = [self._part(placed) for placed in shapes]
        self.bodies = [geometry_of(body.shape) for body in scene.bodies]
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
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [self._pose(body.R, body.p) for body in scene.bodies]

    def _part(self, placed: PlacedShape) -> _Part:
        frame = self.model.frames[self.model.frame_id(placed.link)]
        R, p = frame.R @ placed.R, frame.R @ placed.p + frame.p
        geometry = geometry_of(placed.shape)
        geometry.computeLocalAABB()
        center = R @ np.asarray(geometry.aabb_center) + p
        return _Part(placed.link, frame.body, R, p, geometry, center, float(geometry.aabb_radius))

    def _pose(self, R: Array, p: Array) -> Any:
        return self.coal.Transform3s(np.ascontiguousarray(R), np.ascontiguousarray(p))

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
        search, bounds = _Search(self, at, times, asked), self._bounds(at)
        for block, n in search.nearer_than_known(bounds):
            bounds[block, n] = search.middle(block, n)
        for block, n in search.nearer_than_known(bounds):
            search.walk(block, n)
        return search.best, search.near

    def _places(self, qs: Array, times: Array) -> _Places:
        poses = body_poses(self.model, qs)
        at_R, at_p = (np.stack([poses[part.body][i] for part in self.parts], axis=1) for i in (0, 1))
        centers, own_p, own_R = (np.array([getattr(part, key) for part in self.parts]) for key in ("center", "p", "R"))
        c = (at_R @ centers[:, :, None])[..., 0] + at_p
        sizes = np.array([part.radius for part in self.parts])
        turn = np.sqrt(0.5 * ((at_R[1:] - at_R[:-1]) ** 2).sum(axis=(-1, -2)))
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(len(self.bodies), len(qs), 3)
        steps = [
            np.linalg.norm(np.diff(bodies, axis=1), axis=-1).T,
            np.linalg.norm(np.diff(c, axis=0), axis=-1) + turn * sizes,
        ]
        way = np.concatenate(
            [np.zeros((1, len(bodies) + len(sizes))), np.cumsum(np.concatenate(steps, axis=1), axis=0)]
        )
        return _Places(at_R @ own_R, (at_R @ own_p[:, :, None])[..., 0] + at_p, c, bodies, way)

    def _bounds(self, at: _Places) -> Array:
        """Lower bounds (blocks, pairs) of the distances, by balls around the parts and boxes around the bodies."""
        M, count = len(at.way), len(self.bodies)
        first = np.arange(0, M, BLOCK)
        last = np.minimum(first + BLOCK, M) - 1
        middle = (first + last) // 2
        moved = np.maximum(at.way[middle] - at.way[first], at.way[last] - at.way[middle])
        centers = at.centers[middle]
        radii = np.array([part.radius for part in self.parts])
        i, o = self.pairs.T
        gaps = np.empty((len(first), len(self.pairs)))
        for b, body in enumerate(self.scene.bodies):
            own = o == b
            local = (centers[:, i[own]] - at.bodies[b][middle, None]) @ body.R
            low, high = _box(self.bodies[b])
            gaps[:, own] = np.linalg.norm(np.maximum(np.maximum(low - local, local - high), 0.0), axis=-1)
        own = o >= count
        gaps[:, own] = np.linalg.norm(centers[:, i[own]] - centers[:, o[own] - count], axis=-1) - radii[o[own] - count]
        return gaps - radii[i] - moved[:, count + i] - moved[:, o]

    def name(self, o: int) -> str:
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: _Places) -> float:
        """Between a part and a body, or another part, at a time."""
        a, count = self.coal.Transform3s(at.R[k, i], at.p[k, i]), len(self.bodies)
        if o >= count:
            other, b = self.parts[o - count].geometry, self.coal.Transform3s(at.R[k, o - count], at.p[k, o - count])
        else:
            body, other = self.scene.bodies[o], self.bodies[o]
            b = self._rest[o] if body.way is None else self._pose(body.R, at.bodies[o, k])
        self._result.clear()
        return float(self.coal.distance(self.parts[i].geometry, a, other, b, self._request, self._result))


class _Search:
    """Distances below the least known one, or below ``asked``."""

    def __init__(self, check: MeshCheck, at: _Places, times: Array, asked: float) -> None:
        self.check, self.at, self.times, self.asked = check, at, times, asked
        self.best, self.near = LeastDistance(np.inf, "", "", 0.0), np.full(len(times), np.inf)

    def nearer_than_known(self, bounds: Array) -> Iterator[tuple[int, int]]:
        """Blocks and pairs by their lower bounds (blocks, pairs), as long as these are of interest."""
        values = bounds.flatten()
        first = int(np.argmin(values))
        yield divmod(first, bounds.shape[1])
        rest = np.flatnonzero(values < max(self.best.distance, self.asked))
        rest = rest[np.argsort(values[rest], kind="stable")]
        for flat, bound in zip(rest.tolist(), values[rest].tolist(), strict=True):
            if flat == first:
                continue
            if bound >= max(self.best.distance, self.asked):
                return
            yield divmod(flat, bounds.shape[1])

    def middle(self, block: int, n: int) -> float:
        """The lower bound of a pair in a block by its distance in the middle."""
        first, last = self._ends(block)
        way, k = self._way(n), (first + last) // 2
        return self._distance(n, k) - max(way[k] - way[first], way[last] - way[k])

    def walk(self, block: int, n: int) -> None:
        """Look at the times of a block, without those at which the pair is too far apart."""
        k, last = self._ends(block)
        way = self._way(n)
        while k <= last:
            spare = self._distance(n, k) - max(self.best.distance, self.asked)
            k = max(k + 1, int(np.searchsorted(way, way[k] + spare, side="right")))

    def _ends(self, block: int) -> tuple[int, int]:
        return block * BLOCK, min((block + 1) * BLOCK, len(self.times)) - 1

    def _way(self, n: int) -> Array:
        i, o = self.check.pairs[n]
        return np.asarray(self.at.way[:, o] + self.at.way[:, len(self.check.bodies) + i])

    def _distance(self, n: int, k: int) -> float:
        i, o = self.check.pairs[n].tolist()
        found = self.check.distance(i, o, k, self.at)
        if found < self.asked:
            self.near[k] = min(self.near[k], found)
        if found < self.best.distance:
            self.best = LeastDistance(found, self.check.parts[i].link, self.check.name(o), float(self.times[k]))
        return found


def _box(geometry: Any) -> tuple[Array, Array]:
    """The corners (3,) of a box in its frame that holds a geometry, infinite where that is."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high


HUGE = 1e300
"""Coal's corners of boxes without an end lie beyond."""
