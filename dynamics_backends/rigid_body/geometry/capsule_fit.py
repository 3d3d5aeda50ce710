"""The smallest capsule that covers a set of points.

For an axis through c along a, let s_i be the coordinates of the points along it and d_i their distances from it. A radius
r >= max d_i then requires a segment [t0, t1] that reaches all points,

    t0 = min_i s_i + sqrt(r^2 - d_i^2),     t1 = max_i s_i - sqrt(r^2 - d_i^2)     (t0 > t1: a sphere is enough)

so that the volume pi r^2 (t1 - t0 + 4 r / 3) depends on the axis and the radius only. Simplex searches from the principal axes
minimize it. The last step enlarges the radius by the rounding error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.shapes import Capsule, PlacedShape, Sphere

ROUND = 0.05
"""A capsule with a segment shorter than this fraction of its radius becomes a sphere."""
SEARCH = {"maxiter": 200, "xatol": 1e-4, "fatol": 1e-5}
"""The accuracy of the search, as fractions of the points' extent and of the volume."""


class FittedCapsule(NamedTuple):
    """A capsule with all points within ``radius`` [m] of the segment from ``a`` (3) to ``b`` (3) [m]."""

    a: Array
    b: Array
    radius: float

    @property
    def volume(self) -> float:
        """The volume [m^3]."""
        return Capsule(self.radius, float(np.linalg.norm(self.b - self.a))).volume

    def placed(self, link: str) -> PlacedShape:
        """The capsule, or a sphere if it is nearly one, as a shape of a link; the points are in the frame of that link."""
        along, middle = self.b - self.a, 0.5 * (self.a + self.b)
        length = float(np.linalg.norm(along))
        if length < ROUND * self.radius:
            return PlacedShape(link, Sphere(self.radius + 0.5 * length), np.eye(3), middle)
        return PlacedShape(link, Capsule(self.radius, length), _frame_along(along / length), middle)


def fit_capsule(points: Array) -> FittedCapsule:
    """Fit a capsule of locally minimum volume around points (n, 3) [m].

    Raises ValueError without points, or if some are not finite.
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points) or not np.isfinite(points).all():
        raise ValueError(f"points has shape {points.shape}; expected (n, 3) finite coordinates, n at least 1")
    hull, center = _hull(points), points.mean(axis=0)
    extent = float(np.abs(hull - center).max())
    if extent == 0.0:
        return FittedCapsule(center, center, 0.0)
    scaled = (hull - center) / extent
    axes = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)[2]
    best = min((_searched(scaled, axis) for axis in axes), key=lambda capsule: capsule.volume)
    a, b = (center + extent * end for end in (best.a, best.b))
    return FittedCapsule(a, b, float(distances_to_segment(points, a, b).max()))


def rough_capsule(points: Array) -> FittedCapsule:
    """A covering capsule along a principal axis of points (n, 3) [m]: :func:`fit_capsule` without the search."""
    center = points.mean(axis=0)
    best: FittedCapsule | None = None
    for axis in np.linalg.svd(points - center, full_matrices=False)[2]:
        side = np.linalg.svd(axis[None])[2][1:]
        across = (points - center) @ side.T
        middle = 0.5 * (across.min(axis=0) + across.max(axis=0))
        found = _capsule(points - center, axis, side, np.concatenate([middle, np.zeros(3)]))
        if best is None or found.volume < best.volume:
            best = found
    assert best is not None
    return FittedCapsule(center + best.a, center + best.b, best.radius)


def distances_to_segment(points: Array, a: Array, b: Array) -> Array:
    """Distances (n,) of points (n, 3) from the segment between a and b (3)."""
    along = b - a
    square = float(along @ along)
    fraction = np.zeros(len(points)) if square == 0.0 else np.clip((points - a) @ along / square, 0.0, 1.0)
    return np.linalg.norm(points - a - fraction[:, None] * along, axis=1)


def _hull(points: Array) -> Array:
    """The corners of the convex hull; for flat sets, the points themselves."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return points[ConvexHull(points).vertices]
    except (QhullError, ValueError):
        return points


def _searched(points: Array, axis: Array) -> FittedCapsule:
    """The capsule of locally minimum volume with an axis near ``axis`` (3), for points of extent 1."""
    from scipy.optimize import minimize

    side = np.linalg.svd(axis[None])[2][1:]
    start = [*(side @ points.mean(axis=0)), 0.0, 0.0, 0.0]

    def volume(z: Array) -> float:
        return _capsule(points, axis, side, z).volume

    found = minimize(volume, start, method="Nelder-Mead", options=SEARCH)
    return _capsule(points, axis, side, found.x)


def _capsule(points: Array, axis: Array, side: Array, z: Array) -> FittedCapsule:
    """The capsule of the search variables z: offset (2) and tilt (2) of the axis along ``side``, and the square root of the excess
    radius.
    """
    a = axis + z[2:4] @ side
    a /= np.linalg.norm(a)
    c = z[:2] @ side
    s = (points - c) @ a
    square = np.maximum(((points - c) ** 2).sum(axis=1) - s**2, 0.0)
    r = np.sqrt(square.max()) + z[4] ** 2
    reach = np.sqrt(np.maximum(r**2 - square, 0.0))
    t0, t1 = (s + reach).min(), (s - reach).max()
    if t0 > t1:
        t0 = t1 = 0.5 * (t0 + t1)
    return FittedCapsule(c + t0 * a, c + t1 * a, float(r))


def _frame_along(z: Array) -> Array:
    """A rotation matrix (3, 3) with the unit vector z as its third column."""
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])
