"""Convex meshes as the faces of their convex hulls: few of them, with a radius around that makes up for what they leave out.

Corners of the mesh are taken in the order of how far they are beyond faces of the hull of those before, until none is by more than
:data:`CLOSE`, or there are :data:`CORNERS` of them; their distance from it is the radius. The ball inside of all faces stands for
what is far from them where each of them is asked by itself; that a segment is inside of a hull, its faces tell together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.triangle_distance import triangle_distance

CONVEX = 1e-4
"""A mesh is convex where the corners and the middles of its triangles are within this share of its size of its hull."""
CLOSE, CORNERS = 5e-4, 34
"""[m], and how many corners a hull has at most: then it has 64 faces."""


ROUNDING = 1e-9
"""[m] Corners closer to a face are on it."""
BLOCK = 256
"""Points whose distances from all faces of a hull are found at once: meshes that are not convex mostly end in the first."""


class Face(NamedTuple):
    """R (3, 3), p (3) [m]: its frame, in the middle of its longest edge, z out of the hull. size: half that edge, and the opposite
    corner [m]."""

    R: Array
    p: Array
    size: tuple[float, float, float]


class Hull(NamedTuple):
    """Faces, what they leave out [m], and center (3) and radius [m] of a ball inside."""

    faces: tuple[Face, ...]
    radius: float
    center: Array
    inside: float


def convex_hull(vertices: Array, faces: Array) -> Any:
    """SciPy's hull of a mesh, vertices (n, 3) and faces (m, 3), if all of this is on it; None where it is not convex or flat."""
    from scipy.spatial import ConvexHull, QhullError

    vertices = np.asarray(vertices, dtype=float)
    points, index = np.unique(vertices, axis=0, return_inverse=True)
    try:
        whole = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    inner = np.setdiff1d(np.arange(len(points)), whole.vertices)
    surface = np.concatenate([points[inner], _others(index.reshape(-1)[faces], whole.simplices, points)])
    deepest = -CONVEX * float(np.ptp(points, axis=0).max())
    normals, offsets = whole.equations[:, :3].T, whole.equations[:, 3]
    blocks = (surface[i : i + BLOCK] for i in range(0, len(surface), BLOCK))
    return whole if all((block @ normals + offsets).max(axis=1).min() > deepest for block in blocks) else None


def _others(triangles: Array, known: Array, points: Array) -> Array:
    """The middles (k, 3) of triangles, corners (m, 3) among the points, that are not known ones."""
    n = len(points)
    one, other = (np.sort(t, axis=1).astype(np.int64) @ [n * n, n, 1] for t in (triangles, known))
    middles: Array = points[triangles[~np.isin(one, other)]].mean(axis=1)
    return middles


def hull_of(vertices: Array, faces: Array, tolerance: float) -> Hull | None:
    """The hull of a mesh, vertices (n, 3) and faces (m, 3).

    None where the mesh is not convex, is flat, or has so many corners that more than ``tolerance`` [m] would be left out.
    """
    whole = convex_hull(vertices, faces)
    if whole is None:
        return None
    corners = whole.points[whole.vertices]
    chosen = sorted({int(f(corners[:, i])) for i in range(3) for f in (np.argmin, np.argmax)})
    while not _faces(corners[chosen]):  # the extreme ones are in a plane
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
    """The faces of the hull of corners (n, 3); none where these are in a plane."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        found = ConvexHull(corners)
    except (QhullError, ValueError):
        return ()
    return tuple(_face(corners[s], n[:3]) for s, n in zip(found.simplices, found.equations, strict=True))


def _face(corners: Array, normal: Array) -> Face:
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
    """The distances of points (n, 3) outside of a hull from its faces [m]."""
    still, found = [np.zeros(len(points))] * 3, np.full(len(points), np.inf)
    for face in faces:
        local = (points - face.p) @ face.R
        size = [np.full(len(points), s) for s in face.size]
        found = np.minimum(found, np.abs(triangle_distance(list(local.T), still, size)))
    return found
