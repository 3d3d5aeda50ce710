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
    """A shape of a link: its name, the body of the model that carries it, its pose there, coal's geometry; center (in the frame of
    that body) and radius of a ball that holds it, and half the edges (3,) of a box about the same center, along its own axes."""

    link: str
    body: int
    R: Array
    p: Array
    geometry: Any
    center: Array
    radius: float
    half: Array


class _Places(NamedTuple):
    """Along a motion: poses of the model's bodies, centers (M, P, 3) of parts, places (B, M, 3) of bodies of the scene. way
    (B + P, M): how far any point of a body or part has moved at most since the start. placed: what coal was told so far about
    where parts are, by part and time."""

    poses: Mapping[int, tuple[Array, Array]]
    centers: Array
    bodies: Array
    way: Array
    placed: dict[tuple[int, int], Any]


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
        low, high = _box(geometry)
        return _Part(placed.link, frame.body, R, p, geometry, center, float(geometry.aabb_radius), 0.5 * (high - low))

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
        bounds, moved = self._bounds(at)
        search = _Search(self, at, times, asked)
        for block, n in search.nearer_than_known(bounds):
            bounds[block, n] = search.middle(block, n) - moved[block, n]
        for block, n in search.nearer_than_known(bounds):
            search.walk(block, n)
        return search.best, search.near

    def _places(self, qs: Array, times: Array) -> _Places:
        poses = body_poses(self.model, qs)
        carriers = sorted({part.body for part in self.parts})
        turns = {b: _turns(poses[b][0]) for b in carriers}
        centers = np.empty((len(qs), len(self.parts), 3))
        for i, part in enumerate(self.parts):
            R, p = poses[part.body]
            centers[:, i] = R @ part.center + p
        sizes = np.array([part.radius for part in self.parts])
        bodies = np.array([body.places(times) for body in self.scene.bodies]).reshape(len(self.bodies), len(qs), 3)
        moving = [i for i, body in enumerate(self.scene.bodies) if body.way is not None]
        way, count = np.zeros((len(bodies) + len(sizes), len(qs))), len(bodies)
        steps = _lengths(np.diff(centers, axis=0)).T
        steps += sizes[:, None] * np.array([turns[part.body] for part in self.parts])
        np.cumsum(steps, axis=1, out=way[count:, 1:])
        np.cumsum(
            _lengths(np.diff(bodies[moving], axis=1)), axis=1, out=(moved := np.empty((len(moving), len(qs) - 1)))
        )
        way[moving, 1:] = moved
        return _Places(poses, centers, bodies, way, {})

    def _bounds(self, at: _Places) -> tuple[Array, Array]:
        """Lower bounds (blocks, pairs) of the distances in blocks by boxes around parts and bodies, and how far the two may have
        moved at most since the middle of the block, or until then."""
        M, count = at.way.shape[1], len(self.bodies)
        first = np.arange(0, M, BLOCK)
        last = np.minimum(first + BLOCK, M) - 1
        middle = (first + last) // 2
        moved = np.maximum(at.way[:, middle] - at.way[:, first], at.way[:, last] - at.way[:, middle]).T
        i, o = self.pairs.T
        moved = moved[:, count + i] + moved[:, o]
        R = np.stack([at.poses[part.body][0][middle] @ part.R for part in self.parts], axis=1)
        rows, half = np.ascontiguousarray(R.transpose(2, 0, 1, 3)), np.array([part.half for part in self.parts])
        gaps = np.empty((len(first), len(self.pairs)))
        for b, body in enumerate(self.scene.bodies):
            own = np.flatnonzero(o == b)
            parts = i[own]
            centers = (at.centers[middle][:, parts] - at.bodies[b][middle, None]) @ body.R
            turned = (body.R.T @ rows[:, :, parts].reshape(3, -1)).reshape(3, len(first), len(parts), 3)
            gaps[:, own] = _apart(centers, turned.transpose(1, 2, 0, 3), half[parts], *_box(self.bodies[b]))
        own = np.flatnonzero(o >= count)
        parts, others = i[own], o[own] - count
        back = R[:, others].transpose(0, 1, 3, 2)
        centers = (back @ (at.centers[middle][:, parts] - at.centers[middle][:, others])[..., None])[..., 0]
        gaps[:, own] = _apart(centers, back @ R[:, parts], half[parts], -half[others], half[others])
        return gaps - moved, moved

    def name(self, o: int) -> str:
        count = len(self.bodies)
        return self.scene.bodies[o].name if o < count else self.parts[o - count].link

    def distance(self, i: int, o: int, k: int, at: _Places) -> float:
        """Between a part and a body, or another part, at a time."""
        count = len(self.bodies)
        if o >= count:
            other, b = self.parts[o - count].geometry, self._placed(o - count, k, at)
        else:
            body, other = self.scene.bodies[o], self.bodies[o]
            b = self._rest[o] if body.way is None else self._pose(body.R, at.bodies[o, k])
        self._result.clear()
        a = self._placed(i, k, at)
        return float(self.coal.distance(self.parts[i].geometry, a, other, b, self._request, self._result))

    def _placed(self, i: int, k: int, at: _Places) -> Any:
        """Where a part is at a time."""
        if (i, k) not in at.placed:
            part, (R, p) = self.parts[i], at.poses[self.parts[i].body]
            at.placed[i, k] = self.coal.Transform3s(R[k] @ part.R, R[k] @ part.p + p[k])
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
        way = self.at.way[o, first : last + 1] + self.at.way[len(self.check.bodies) + i, first : last + 1]
        k = 0
        while k < len(way):
            spare = self._distance(n, first + k) - max(self.best.distance, self.asked)
            k = max(k + 1, int(way.searchsorted(way[k] + spare, side="right")))

    def _ends(self, block: int) -> tuple[int, int]:
        return block * BLOCK, min((block + 1) * BLOCK, len(self.times)) - 1

    def _distance(self, n: int, k: int) -> float:
        i, o = self.check.pairs[n].tolist()
        found = self.check.distance(i, o, k, self.at)
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
    """Lower bounds (K, n) of the distances of boxes at centers (K, n, 3), turned by R (K, n, 3, 3), from boxes with corners low and
    high, (3,) or (n, 3), each held in a box along the axes of the other."""
    size = 0.5 * (high - low)
    reach = np.einsum("knij,nj->kni", np.abs(R), half)
    found = _outside(np.maximum(low - center - reach, center - reach - high))
    if not np.isfinite(size).all():
        return found
    size, middle = np.broadcast_to(size, half.shape), 0.5 * (low + high)
    turned = np.abs(np.einsum("knij,kni->knj", R, center - middle))
    return np.maximum(found, _outside(turned - half - np.einsum("knij,ni->knj", np.abs(R), size)))


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
