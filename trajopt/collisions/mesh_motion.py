"""Poses of link shapes and scene bodies along a motion, bounds on their displacement, and on the distances of pairs.

The lower bounds on distances in blocks of times come from bounding balls, and from boxes for close pairs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.interface import address
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.library import LONG, BoundsData, collision_kernels
from trajopt.collisions.true_shapes import geometry_of, hull_around, pose

GROUND = -1
"""Index of the fixed body of a model."""


class Part(NamedTuple):
    """Shape of a link. link: its name. body: index of the carrying body of the model, -1 for the ground. R, p: pose of the shape in
    the internal frame of that body. geometry: coal geometry. hull: coal geometry of the convex hull of a non-convex mesh, else
    None. center, radius [m]: bounding ball, in the frame of the body. half (3,) [m]: half edges of a bounding box with the same
    center, along the axes of the shape. radius and half are infinite for a half-space."""

    link: str
    body: int
    R: Array
    p: Array
    geometry: Any
    hull: Any
    center: Array
    radius: float
    half: Array

    @classmethod
    def from_shape(cls, model: Model, placed: PlacedShape) -> Part:
        """Convert a shape of a link to a part of the body that carries the link, with its coal geometry, ball and box.

        Raises UnknownName for a link that the model does not have.
        """
        frame = model.frames[model.frame_id(placed.link)]
        R, p = frame.R @ placed.R, frame.R @ placed.p + frame.p
        geometry = geometry_of(placed.shape)
        low, high = box_around(geometry)
        center = R @ np.asarray(geometry.aabb_center) + p
        hull, radius = hull_around(placed.shape), float(geometry.aabb_radius)
        return cls(placed.link, frame.body, R, p, geometry, hull, center, radius, 0.5 * (high - low))


CACHE_SIZE = 4
"""Maximum number of cached part lists per model, the last used ones; a shape that is read again is a new object."""
_parts: WeakKeyDictionary[Model, dict[tuple[int, ...], tuple[tuple[PlacedShape, ...], list[Part]]]] = (
    WeakKeyDictionary()
)


def parts_of(model: Model, shapes: Iterable[PlacedShape]) -> list[Part]:
    """Return the parts of placed shapes of a model, in order; cached by the identity of model and shapes."""
    shapes = tuple(shapes)
    known, key = _parts.setdefault(model, {}), tuple(map(id, shapes))
    found = known.pop(key, None) or (shapes, [Part.from_shape(model, placed) for placed in shapes])
    known[key] = found
    for oldest in list(known)[:-CACHE_SIZE]:
        known.pop(oldest, None)  # another thread may have removed it
    return found[1]


class Ball(NamedTuple):
    """Bounding ball of all shapes of a body: body index, center (3,) in its frame, and radius [m]."""

    body: int
    center: Array
    radius: float

    @classmethod
    def around(cls, parts: Sequence[Part]) -> Ball:
        """Return a ball around all parts, which one body carries; its center is the mean of the centers of their balls."""
        center = np.mean([part.center for part in parts], axis=0)
        return cls(parts[0].body, center, max(float(lengths(part.center - center)) + part.radius for part in parts))


@dataclass(eq=False)
class Places:
    """Poses of the model's bodies at M times, by index, and positions (B, M, 3) [m] of the B bodies of the scene in the world.

    Valid for one list of parts: caches use the index of a part in it.
    """

    poses: Mapping[int, tuple[Array, Array]]
    bodies: Array
    _placed: dict[tuple[int, int], Any] = field(default_factory=dict)
    _box_cache: dict[tuple[int, int], Array] = field(default_factory=dict)

    def placed(self, part: Part, number: int, k: int) -> Any:
        """Return the coal pose of a part, with index ``number``, in the world at time index k; cached."""
        if (number, k) not in self._placed:
            R, p = self.poses[part.body]
            self._placed[number, k] = pose(R[k] @ part.R, R[k] @ part.p + p[k])
        return self._placed[number, k]

    def raise_bounds(
        self,
        lower: Array,
        apart: float,
        k: int,
        around: slice,
        part: tuple[Part, int],
        normal: Array | None,
        base: int = GROUND,
        other: Array | None = None,
    ) -> None:
        """Raise lower bounds (M,) [m] on the distance of a part from a second shape, in place, in the slice ``around`` of times.

        apart [m]: lower bound on the distance at time index k. part: the part and its index. normal (3,): unit normal in the world
        at k, from the part to the second shape, of two parallel planes that touch them and separate them by ``apart`` or more; if
        it is None, motion in any direction counts against the bound. base: body of the model that carries the second shape, or the
        ground. other: positions (M, 3) [m] of the second shape if it is a moving body of the scene.
        """
        boxes = self._boxes(*part, base)
        if normal is not None and base != GROUND:  # the plane turns with that body from time k
            normal = normal @ self.poses[base][0][k]
        plane, places = (None if given is None else address(given) for given in (normal, other))
        at = address(boxes), places, k, around.start, around.stop, plane, apart, address(lower)
        collision_kernels().raise_bounds(*at)

    def _boxes(self, part: Part, number: int, base: int) -> Array:
        """Return center and half-edge vectors (M, 4, 3) [m] of the box of part ``number`` in the frame of body ``base``; cached."""
        if (number, base) not in self._box_cache:
            self._box_cache[number, base] = self._box_motion(part, base)
        return self._box_cache[number, base]

    def _box_motion(self, part: Part, base: int) -> Array:
        """Compute the box of :meth:`_boxes`: center, then the three half-edge vectors, at each of the M times."""
        (R, p), (R_base, p_base) = self.poses[part.body], self.poses[base]
        columns = np.column_stack([part.center, part.R * part.half])
        given = [R, p, *((None, None) if base == GROUND else (R_base, p_base)), columns.T]
        arrays = [None if a is None else np.ascontiguousarray(a, float) for a in given]
        boxes = np.empty((len(R), 4, 3))
        collision_kernels().box_motion(len(R), *(None if a is None else address(a) for a in arrays), address(boxes))
        return boxes

    def displacement_bounds(self, ball: Ball, block: int, middle: Array) -> Array:
        """Return upper bounds (blocks,) [m] on the displacement of any point of a ball within each block of times.

        The ball moves with its body, and the displacement is relative to its place at time index middle[b] for block b. block:
        number of times in a block.
        """
        R, p = self.poses[ball.body]
        arrays = [np.ascontiguousarray(a, float) for a in (R, p, ball.center)]
        times, moved = np.ascontiguousarray(middle, LONG), np.empty(len(middle))
        motion = (address(a) for a in arrays)
        collision_kernels().ball_motion(len(R), block, *motion, HALF_TURN * ball.radius, address(times), address(moved))
        return moved


HALF_TURN = np.sqrt(0.5)
"""Bound on the displacement of a point on the unit ball, per Frobenius norm of the change of a rotation."""


HUGE = 1e300
"""Absolute value [m] from which on a coordinate of coal's box corners counts as infinite."""


def lengths(v: Array) -> Array:
    """Return the lengths (...) of vectors (..., 3)."""
    return np.asarray(np.sqrt(np.einsum("...i,...i", v, v)))


def box_around(geometry: Any) -> tuple[Array, Array]:
    """Return lowest and highest corner (3,) [m] of a coal geometry's axis-aligned box in its frame; infinite where unbounded."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high


CLOSE = 0.1
"""Pairs whose bound from balls is below this get a bound from boxes [m].

The bound from balls is the gap of the balls of two parts, or of a part's ball from the box of a body of the scene.
"""


class BlockBounds:
    """Lower bounds on distances of pairs. parts: shapes of the robot. bodies: coal geometries of the scene's bodies. pairs (P, 2):
    index of a part, and index of a body of the scene or, plus the number of these bodies, of another part."""

    def __init__(self, parts: Sequence[Part], scene: Scene, bodies: Sequence[Any], pairs: Array) -> None:
        self.parts, self.scene, self.count = parts, scene, len(bodies)
        carriers, row = np.unique([part.body for part in parts], return_inverse=True)
        self._balls = [Ball.around([part for part in parts if part.body == body]) for body in carriers]
        rows = np.concatenate([np.arange(self.count), self.count + row.ravel()]).astype(LONG)
        self.first, self.second = (np.ascontiguousarray(column, LONG) for column in pairs.T)
        self._rows = rows[self.count + self.first], rows[self.second]
        self._radii = np.array([part.radius for part in parts], dtype=float)
        self._halves = np.array([part.half for part in parts], dtype=float).reshape(-1, 3)
        self._turned = np.array([body.R for body in scene.bodies], dtype=float).reshape(-1, 3, 3)
        boxes = [box_around(geometry) for geometry in bodies]
        self._low, self._high = (np.array([box[side] for box in boxes], dtype=float).reshape(-1, 3) for side in (0, 1))

    def bounds(self, at: Places, block: int) -> Array:
        """Return lower bounds (blocks, P) [m] on the distances of P pairs within each block of ``block`` times; negative: depth."""
        M = len(at.poses[-1][0])
        first = np.arange(0, M, block)
        middle = (first + np.minimum(first + block, M) - 1) // 2
        centers, R = np.empty((len(first), len(self.parts), 3)), np.empty((len(first), len(self.parts), 3, 3))
        for j, one in enumerate(self.parts):
            turn, place = (values[middle] for values in at.poses[one.body])
            centers[:, j], R[:, j] = turn @ one.center + place, turn @ one.R
        given = {
            "firsts": self.first,
            "seconds": self.second,
            "rows_first": self._rows[0],
            "rows_second": self._rows[1],
            "centers": centers,
            "turns": R,
            "radii": self._radii,
            "halves": self._halves,
            "places": np.ascontiguousarray(at.bodies[:, middle]),
            "turned": self._turned,
            "low": self._low,
            "high": self._high,
            "moved": self._motion_bounds(at, block, middle),
            "bounds": np.empty((len(first), len(self.first))),
        }
        data = BoundsData(
            blocks=len(first), pairs=len(self.first), parts=len(self.parts), count=self.count, close=CLOSE
        )
        for name, array in given.items():
            setattr(data, name, address(array))
        collision_kernels().block_bounds(ctypes.addressof(data))
        return given["bounds"]

    def _motion_bounds(self, at: Places, block: int, middle: Array) -> Array:
        """Return upper bounds (bodies, blocks) [m] on the displacement of any point of a body within a block, from its middle time.

        Rows are the bodies of the scene, then the bodies of the model that carry shapes, each by index. middle (blocks,): indices
        of the middle times.
        """
        moved = np.zeros((self.count + len(self._balls), len(middle)))
        if self.scene.moves:
            blocks = np.minimum(np.arange(len(middle) * block), len(at.poses[-1][0]) - 1).reshape(-1, block)
            for n, body in enumerate(self.scene.bodies):
                if body.path is not None:
                    moved[n] = lengths(at.bodies[n][blocks] - at.bodies[n, middle][:, None]).max(axis=1)
        for n, ball in enumerate(self._balls, self.count):
            moved[n] = at.displacement_bounds(ball, block, middle)
        return moved
