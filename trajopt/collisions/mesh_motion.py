"""Poses of link shapes and scene bodies along a motion, and bounds on the change of their distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape, Shape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.true_shapes import geometry_of, hull_around, pose

GROUND = -1
"""Index of the fixed body of a model."""


@dataclass(frozen=True, eq=False)
class Part:
    """Shape of a link. link: its name. body: index of the carrying body of the model, -1 for the ground. R, p: pose of the shape in
    the internal frame of that body. The geometries of coal, which take long for detailed meshes, are made when they are needed."""

    link: str
    body: int
    R: Array
    p: Array
    shape: Shape

    @classmethod
    def from_shape(cls, model: Model, placed: PlacedShape) -> Part:
        """Convert a shape of a link to a part of the body that carries the link.

        Raises UnknownName for a link that the model does not have.
        """
        frame = model.frames[model.frame_id(placed.link)]
        return cls(placed.link, frame.body, frame.R @ placed.R, frame.R @ placed.p + frame.p, placed.shape)

    @cached_property
    def geometry(self) -> Any:
        """Geometry of coal, with its bounding box."""
        found = geometry_of(self.shape)
        found.computeLocalAABB()
        return found

    @cached_property
    def hull(self) -> Any:
        """Geometry of coal of the convex hull of a non-convex mesh, else None."""
        return hull_around(self.shape)

    @cached_property
    def half(self) -> Array:
        """Half edges (3,) [m] of the bounding box along the axes of the shape; infinite for a half-space."""
        low, high = box_around(self.geometry)
        return 0.5 * (high - low)

    @cached_property
    def ball(self) -> tuple[Array, float]:
        """Center (3,) [m] in the frame of the body, and radius [m] of the bounding ball; infinite for a half-space."""
        return self.R @ np.asarray(self.geometry.aabb_center) + self.p, float(self.geometry.aabb_radius)


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
        moved = boxes[around] - boxes[k]
        if other is not None:
            moved[:, 0] -= other[around] - other[k]
        if normal is None:
            nearer = np.sqrt(np.einsum("mci,mci->mc", moved, moved)).sum(axis=1)
        else:
            if base != GROUND:  # the plane turns with that body from time k
                normal = normal @ self.poses[base][0][k]
            along = moved @ normal
            nearer = along[:, 0] + np.abs(along[:, 1:]).sum(axis=1)
        np.maximum(lower[around], apart - nearer, out=lower[around])

    def _boxes(self, part: Part, number: int, base: int) -> Array:
        """Return center and half-edge vectors (M, 4, 3) [m] of the box of part ``number`` in the frame of body ``base``; cached."""
        if (number, base) not in self._box_cache:
            self._box_cache[number, base] = self._box_motion(part, base)
        return self._box_cache[number, base]

    def _box_motion(self, part: Part, base: int) -> Array:
        """Compute the box of :meth:`_boxes`: center, then the three half-edge vectors, at each of the M times."""
        (R, p), (R_base, p_base) = self.poses[part.body], self.poses[base]
        edges = np.swapaxes(R @ (part.R * part.half), 1, 2)
        boxes = np.concatenate([(R @ part.ball[0] + p)[:, None], edges], axis=1)
        if base != GROUND:
            boxes[:, 0] -= p_base
            boxes = boxes @ R_base
        return boxes


HUGE = 1e300
"""Absolute value [m] from which on a coordinate of coal's box corners counts as infinite."""


def box_around(geometry: Any) -> tuple[Array, Array]:
    """Return lowest and highest corner (3,) [m] of a coal geometry's axis-aligned box in its frame; infinite where unbounded."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high
