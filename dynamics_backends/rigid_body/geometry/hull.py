"""Convex meshes as a few faces of their convex hulls, with a radius that compensates for the omitted parts.

The algorithm adds the corner of the mesh that is farthest outside the hull of the corners so far. It ends when no corner is
outside by more than :data:`CLOSE`, or when there are :data:`CORNERS` corners. The largest distance of the omitted corners from the
hull is the radius. A test of a single face cannot detect a segment inside the hull. An inscribed ball represents the interior in
such tests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.distances import distance

CONVEX = 1e-4
"""A mesh is convex if its corners and the centers of its triangles are within this fraction of its size from its hull."""
CLOSE, CORNERS = 5e-4, 34
"""Largest distance [m] of a corner that may be omitted, and the maximum number of corners of a hull: it then has 64 faces."""


ROUNDING = 1e-9
"""[m] Corners closer to a face than this lie on it."""
BLOCK = 256
"""Number of points per convexity test; the first block already rejects most nonconvex meshes."""


class Face(NamedTuple):
    """R (3, 3), p (3) [m]: its frame, at the middle of its longest edge, with z out of the hull. size: half of that edge, and the
    opposite corner [m].
    """

    R: Array
    p: Array
    size: tuple[float, float, float]


class Hull(NamedTuple):
    """The faces, the radius that covers the omitted parts [m], and center (3) and radius ``inside`` [m] of an inscribed ball."""

    faces: tuple[Face, ...]
    radius: float
    center: Array
    inside: float


def distinct(points: Array) -> tuple[Array, Array]:
    """Distinct points (k, 3) of points (n, 3), sorted by x, y, z, and the index (n,) of each point among them.

    As np.unique with axis=0, in a third of its time.
    """
    order = np.lexsort(points.T[::-1])
    ordered, index = points[order], np.empty(len(points), dtype=int)
    new = np.ones(len(points), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    index[order] = np.cumsum(new) - 1
    return ordered[new], index


def hull_of_points(points: Array) -> Any:
    """SciPy's convex hull of points (n, 3); None if they are in a plane."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return ConvexHull(points)
    except (QhullError, ValueError):
        return None


def convex_hull(vertices: Array, faces: Array) -> Any:
    """SciPy's hull of a mesh, vertices (n, 3) and faces (m, 3); None if the mesh is flat or not convex.

    Convex: all corners and centers of triangles are within the fraction CONVEX of the size from the hull. The size is the largest
    extent along x, y or z.
    """
    vertices = np.asarray(vertices, dtype=float)
    points, index = distinct(vertices)
    whole = hull_of_points(points)
    if whole is None:
        return None
    inner = np.setdiff1d(np.arange(len(points)), whole.vertices)
    surface = np.concatenate([points[inner], _new_centers(index[faces], whole.simplices, points)])
    deepest = -CONVEX * float(np.ptp(points, axis=0).max())
    normals, offsets = whole.equations[:, :3].T, whole.equations[:, 3]
    blocks = (surface[i : i + BLOCK] for i in range(0, len(surface), BLOCK))
    return whole if all((block @ normals + offsets).max(axis=1).min() > deepest for block in blocks) else None


def _new_centers(triangles: Array, known: Array, points: Array) -> Array:
    """The centers (k, 3) of triangles that are not in ``known``; both (m, 3): indices of corners in points (n, 3)."""
    n = len(points)
    one, other = (np.sort(t, axis=1).astype(np.int64) @ [n * n, n, 1] for t in (triangles, known))
    return points[triangles[~np.isin(one, other)]].mean(axis=1)


def hull_of(vertices: Array, faces: Array, tolerance: float) -> Hull | None:
    """Hull of few corners of a convex mesh, vertices (n, 3) and faces (m, 3), with the radius that covers the omitted corners.

    Corners farthest outside are added until all are within CLOSE, or there are CORNERS corners.
    None for a mesh that is flat or not convex, or if omitted corners are farther than ``tolerance`` [m] from the hull.
    """
    whole = convex_hull(vertices, faces)
    if whole is None:
        return None
    corners = whole.points[whole.vertices]
    chosen = sorted({int(f(corners[:, i])) for i in range(3) for f in (np.argmin, np.argmax)})
    while not _faces(corners[chosen]):  # the extreme corners are in a plane
        chosen = [*chosen, next(i for i in range(len(corners)) if i not in chosen)]
    while True:
        found = _faces(corners[chosen])
        normals, places = np.array([face.R[:, 2] for face in found]), np.array([face.p for face in found])
        beyond = (corners @ normals.T - (normals * places).sum(axis=1)).max(axis=1)
        worst = int(np.argmax(beyond))
        if beyond[worst] <= CLOSE or len(chosen) >= CORNERS:
            break
        chosen.append(worst)
    out = float(_distances(corners[beyond > ROUNDING], found).max(initial=0.0))
    if out > tolerance:
        return None
    center = corners[chosen].mean(axis=0)
    inside = float((normals * (places - center)).sum(axis=1).min())
    return Hull(found, out, center, max(inside, 0.0))


def _faces(corners: Array) -> tuple[Face, ...]:
    """The faces of the hull of corners (n, 3); empty if the corners are in a plane."""
    found = hull_of_points(corners)
    if found is None:
        return ()
    return tuple(_face_of_triangle(corners[s], n[:3]) for s, n in zip(found.simplices, found.equations, strict=True))


def _face_of_triangle(corners: Array, normal: Array) -> Face:
    """Face of a triangle: its frame is at the middle of the longest edge, with z along the normal out of the hull."""
    lengths = np.linalg.norm(corners - np.roll(corners, -1, axis=0), axis=1)
    a, b, c = np.roll(corners, -int(np.argmax(lengths)), axis=0)
    if np.cross(b - a, c - a) @ normal < 0.0:
        a, b = b, a
    x = (b - a) / np.linalg.norm(b - a)
    R = np.stack([x, np.cross(normal, x), normal], axis=1)
    middle = 0.5 * (a + b)
    _, y, _ = opposite = R.T @ (c - middle)
    return Face(R, middle, (0.5 * float(np.linalg.norm(b - a)), float(opposite[0]), float(y)))


def _distances(points: Array, faces: tuple[Face, ...]) -> Array:
    """The distances (n,) [m] of points (n, 3) outside a hull from its nearest face."""
    still, found = [np.zeros(len(points))] * 3, np.full(len(points), np.inf)
    for face in faces:
        local = (points - face.p) @ face.R
        size = [np.full(len(points), s) for s in face.size]
        found = np.minimum(found, np.abs(distance("triangle", list(local.T), still, size)))
    return found
