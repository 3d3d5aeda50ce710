"""Collisions by another hand: true shapes of links and bodies in the package coal, without capsules and without derivatives.

Along a motion the least distance is found without asking for every distance at every time. Between two times no point of a link
moves farther than the way that bounds it: a distance that was found, or that of a box around the link, less this way is a lower
bound at another time, and what is farther apart than the least known distance is left out. Blocks of times come in the order of
their bounds, so that the least distance is known early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers.robot_cover import body_poses
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.true_shapes import geometry_of, hull_around, pose, require_coal

RATE = 1000.0
"""Checks in a second of motion [1/s]."""
BLOCK = 20
"""Times that share a bound."""
CLOSE = 0.1
"""[m] What is nearer by balls is told apart by boxes."""
ROUNDING = 1e-5
"""[m] Distances of convex hulls are known to a part of this."""


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
    """A shape of a link: its name, the body of the model that carries it, its pose there, coal's geometry, and the hull of that
    where it is a mesh that is not convex; center (in the frame of that body) and radius of a ball that holds it, and half the
    edges (3,) of a box about the same center, along its own axes."""

    link: str
    body: int
    R: Array
    p: Array
    geometry: Any
    hull: Any
    center: Array
    radius: float
    half: Array


class _Ball(NamedTuple):
    """Center (3,), in the frame of a body of the model, and radius [m] of a ball that holds all that it carries."""

    body: int
    center: Array
    radius: float


def _ball(parts: Sequence[_Part]) -> _Ball:
    center = np.mean([part.center for part in parts], axis=0)
    return _Ball(parts[0].body, center, max(float(_lengths(part.center - center)) + part.radius for part in parts))


class _Places(NamedTuple):
    """Along a motion: poses of the model's bodies, places (B, M, 3) of bodies of the scene. way (B + C, M): how far any point of a
    body, and of what a body of the model carries, has moved at most since the start. placed, carried: what coal was told so far
    about where parts are, by part and time, and where bodies of the model are."""

    poses: Mapping[int, tuple[Array, Array]]
    bodies: Array
    way: Array
    placed: dict[tuple[int, int], Any]
    carried: dict[tuple[int, int], Any]


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
        self._balls = [_ball([part for part in self.parts if part.body == body]) for body in carriers]
        self._way_of = np.concatenate([np.arange(count), count + row.ravel()]).astype(int)
        self._radii = np.array([part.radius for part in self.parts])
        self._halves = np.array([part.half for part in self.parts]).reshape(-1, 3)
        self._fixed = [pose(part.R, part.p) for part in self.parts]
        self._turned = np.array([body.R for body in scene.bodies]).reshape(-1, 3, 3)
        boxes = [_box(geometry) for geometry in self.bodies]
        self._corners = tuple(np.array([box[side] for box in boxes]).reshape(-1, 3) for side in (0, 1))
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [pose(body.R, body.p) for body in scene.bodies]

    def _part(self, placed: PlacedShape) -> _Part:
        frame = self.model.frames[self.model.frame_id(placed.link)]
        R, p = frame.R @ placed.R, frame.R @ placed.p + frame.p
        geometry = geometry_of(placed.shape)
        geometry.computeLocalAABB()
        center = R @ np.asarray(geometry.aabb_center) + p
        low, high = _box(geometry)
        hull, radius = hull_around(placed.shape), float(geometry.aabb_radius)
        return _Part(placed.link, frame.body, R, p, geometry, hull, center, radius, 0.5 * (high - low))

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
        bounds, moved = self._bounds(at)
        search = _Search(self, at, times, asked)
        for block, n in search.nearer_than_known(bounds):
            bounds[block, n] = search.middle(block, n) - moved[block, n]
        for block, n in search.nearer_than_known(bounds):
            search.walk(block, n)
        return search.best, search.near

    def _places(self, qs: Array, times: Array) -> _Places:
        poses, count, M = body_poses(self.model, qs), len(self.bodies), len(qs)
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(count, M, 3)
        moving = [i for i, body in enumerate(self.scene.bodies) if body.way is not None]
        steps = np.zeros((count + len(self._balls), M))
        steps[moving, 1:] = _lengths(np.diff(bodies[moving], axis=1))
        for n, ball in enumerate(self._balls, count):
            R, p = poses[ball.body]
            steps[n, 1:] = _lengths(np.diff(R @ ball.center + p, axis=0)) + ball.radius * _turns(R)
        return _Places(poses, bodies, np.cumsum(steps, axis=1), {}, {})

    def _bounds(self, at: _Places) -> tuple[Array, Array]:
        """Lower bounds (blocks, pairs) of the distances in blocks by balls around parts, and by boxes around those that are near,
        and how far the two may have moved at most since the middle of the block, or until then."""
        M, count = at.way.shape[1], len(self.bodies)
        first = np.arange(0, M, BLOCK)
        last = np.minimum(first + BLOCK, M) - 1
        middle = (first + last) // 2
        moved = np.maximum(at.way[:, middle] - at.way[:, first], at.way[:, last] - at.way[:, middle]).T
        i, o = self.pairs.T
        moved = moved[:, self._way_of[count + i]] + moved[:, self._way_of[o]]
        gaps, centers = np.empty((len(first), len(self.pairs))), np.empty((len(first), len(self.parts), 3))
        R = np.empty((len(first), len(self.parts), 3, 3))
        for j, one in enumerate(self.parts):
            turn, place = (values[middle] for values in at.poses[one.body])
            centers[:, j], R[:, j] = turn @ one.center + place, turn @ one.R
        scene, own = np.flatnonzero(o < count), np.flatnonzero(o >= count)
        places = np.moveaxis(centers[:, i[scene]] - at.bodies[o[scene]][:, middle].transpose(1, 0, 2), 0, 1)
        local = places @ self._turned[o[scene]]  # (pairs, blocks, 3)
        low, high = (corners[o[scene], None] for corners in self._corners)
        gaps[:, scene] = _outside(np.maximum(low - local, local - high)).T - self._radii[i[scene]]
        others = o[own] - count
        away = centers[:, i[own]] - centers[:, others]
        gaps[:, own] = _lengths(away) - self._radii[i[own]] - self._radii[others]
        k, n = np.nonzero(gaps[:, scene] < CLOSE)
        pair = scene[n]
        part, body = i[pair], o[pair]
        turned = self._turned[body].transpose(0, 2, 1) @ R[k, part]
        corners = (side[body] for side in self._corners)
        gaps[k, pair] = _apart(local[n, k], turned, self._halves[part], *corners)
        k, n = np.nonzero(gaps[:, own] < CLOSE)
        part, other = i[own[n]], others[n]
        back = R[k, other].transpose(0, 2, 1)
        half = self._halves[other]
        gaps[k, own[n]] = _apart(
            (back @ away[k, n][..., None])[..., 0], back @ R[k, part], self._halves[part], -half, half
        )
        return gaps - moved, moved

    def name(self, o: int) -> str:
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: _Places, known: float = np.inf) -> float:
        """Between a part and a body, or another part, at a time; where that is more than ``known``, the distance of convex hulls
        may be told in its place, which is between the two."""
        part, a, count = self.parts[i], self._placed(i, k, at), len(self.bodies)
        if o >= count:
            other, hull, b = self.parts[o - count].geometry, self.parts[o - count].hull, self._placed(o - count, k, at)
        else:
            body, other, hull = self.scene.bodies[o], self.bodies[o], self.hulls[o]
            b = self._rest[o] if body.way is None else pose(body.R, at.bodies[o, k])
        if part.hull is not None or hull is not None:
            apart = self._apart(
                part.geometry if part.hull is None else part.hull, a, other if hull is None else hull, b
            )
            if apart > known + ROUNDING:
                return apart
        return self._apart(part.geometry, a, other, b)

    def _apart(self, one: Any, a: Any, other: Any, b: Any) -> float:
        self._result.clear()
        return float(self.coal.distance(one, a, other, b, self._request, self._result))

    def _placed(self, i: int, k: int, at: _Places) -> Any:
        """Where a part is at a time."""
        if (i, k) not in at.placed:
            body = self.parts[i].body
            if (body, k) not in at.carried:
                R, p = at.poses[body]
                at.carried[body, k] = pose(R[k], p[k])
            at.placed[i, k] = at.carried[body, k] * self._fixed[i]
        return at.placed[i, k]


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
        """The distance of a pair in the middle of a block."""
        first, last = self._ends(block)
        return self._distance(n, (first + last) // 2)

    def walk(self, block: int, n: int) -> None:
        """Look at the times of a block, without those at which the pair is too far apart."""
        first, last = self._ends(block)
        i, o = self.check.pairs[n]
        rows = self.check._way_of[[o, len(self.check.bodies) + i]]
        way = self.at.way[rows, first : last + 1].sum(axis=0)
        k = 0
        while k < len(way):
            spare = self._distance(n, first + k) - max(self.best.distance, self.asked)
            k = max(k + 1, int(way.searchsorted(way[k] + spare, side="right")))

    def _ends(self, block: int) -> tuple[int, int]:
        return block * BLOCK, min((block + 1) * BLOCK, len(self.times)) - 1

    def _distance(self, n: int, k: int) -> float:
        i, o = self.check.pairs[n].tolist()
        found = self.check.distance(i, o, k, self.at, max(self.best.distance, self.asked))
        if found < self.asked:
            self.near[k] = min(self.near[k], found)
        if found < self.best.distance:
            self.best = LeastDistance(found, self.check.parts[i].link, self.check.name(o), float(self.times[k]))
        return found


def _lengths(v: Array) -> Array:
    """The lengths (...) of vectors (..., 3)."""
    return np.asarray(np.sqrt(np.einsum("...i,...i", v, v)))


def _turns(R: Array) -> Array:
    """How far (M - 1,) points at a distance of 1 from the center move at most between rotations (M, 3, 3)."""
    step = np.diff(R, axis=0)
    return np.asarray(np.sqrt(0.5 * np.einsum("mij,mij->m", step, step)))


def _apart(center: Array, R: Array, half: Array, low: Array, high: Array) -> Array:
    """Lower bounds (n,) of the distances of boxes at centers (n, 3), turned by R (n, 3, 3), with half edges (n, 3), from boxes with
    corners low and high (n, 3), each held in a box along the axes of the other."""
    sizes = np.abs(R)
    reach = (sizes @ half[..., None])[..., 0]
    found = _outside(np.maximum(low - center - reach, center - reach - high))
    ends = np.isfinite(high - low).all(axis=1)
    low, high = (np.where(ends[:, None], corner, 0.0) for corner in (low, high))
    size, middle = 0.5 * (high - low), 0.5 * (high + low)
    turned = np.abs(((center - middle)[:, None] @ R)[:, 0]) - half - (size[:, None] @ sizes)[:, 0]
    return np.where(ends, np.maximum(found, _outside(turned)), found)


def _outside(gaps: Array) -> Array:
    """The distance of boxes along the same axes by their gaps (..., 3); of those that overlap the least overlap, less than zero."""
    most = gaps.max(axis=-1)
    return np.where(most > 0.0, _lengths(np.maximum(gaps, 0.0)), most)


def _box(geometry: Any) -> tuple[Array, Array]:
    """The corners (3,) of a box in its frame that holds a geometry, infinite where that is."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high


HUGE = 1e300
"""Coal's corners of boxes without an end lie beyond."""
