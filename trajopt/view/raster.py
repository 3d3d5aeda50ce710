"""Pictures of triangles without a window: a z-buffer in NumPy, shaded where something is seen.

Triangles are cut into rows of pixels, rows into pixels, all at once; of the pixels that fall on one place the nearest stays.
Normals are interpolated on what stays, so that simplified surfaces look round where they are round and keep their edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

CHUNK = 8_000
"""Triangles that are cut at a time: their rows and pixels stay in the processor's cache."""
CREASE = np.cos(np.deg2rad(40.0))
"""The cosine of the angle between two triangles from which on their edge stays an edge."""
LAMP = np.array([-0.35, 0.55, 0.75]) / np.linalg.norm([-0.35, 0.55, 0.75])
"""Toward the lamp: to the left and above of the camera, in the picture's axes."""
AMBIENT, DIFFUSE, GLOSS = 0.42, 0.58, 0.12
"""Shares of light from all sides, from the lamp, and mirrored."""
SHINE = 24
"""The exponent of the mirrored light (B. T. Phong, Communications of the ACM 18, 1975)."""
DEPTHS, INDEX = 2**30, 2**32 - 1
"""Steps of the depth, and what is left of a number for the index of a triangle."""


class Solid(NamedTuple):
    """Triangles: vertices (v, 3) [m] in the world, faces (n, 3), normals (n, 3, 3) at their corners, colors (n, 3) in 0 .. 1.

    closed (n,): whether they are part of a closed surface, whose inner side nobody sees, and are counterclockwise from outside.
    """

    vertices: Array
    faces: Array
    normals: Array
    colors: Array
    closed: Array


class Camera(NamedTuple):
    """A camera at infinity. axes: rows right, up, and to the camera, (3, 3). center (2) [m]: what the middle of the picture shows,
    in right and up. scale [pixels/m]. width, height [pixels]."""

    axes: Array
    center: Array
    scale: float
    width: int
    height: int

    def seen(self, points: Array) -> Array:
        """Column, row [pixels] and nearness [pixels] of points (..., 3) [m]."""
        at = points @ self.axes.T
        x = (at[..., 0] - self.center[0]) * self.scale + 0.5 * self.width
        y = 0.5 * self.height - (at[..., 1] - self.center[1]) * self.scale
        return np.stack([x, y, at[..., 2] * self.scale], axis=-1)


class Layer(NamedTuple):
    """What is nearest in each pixel: color (height, width, 3) in 0 .. 1, nearness (height, width), -inf where there is nothing."""

    color: Array
    nearness: Array


def corner_normals(vertices: Array, faces: Array) -> Array:
    """Normals (n, 3, 3) at the corners of faces (n, 3): means over the faces around a vertex that meet at less than the crease."""
    p = vertices[faces]
    area = np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])
    unit = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    corner_vertex = faces.ravel()
    order = np.argsort(corner_vertex, kind="stable")
    owner = order // 3  # faces in the order of their vertices
    count = np.bincount(corner_vertex, minlength=len(vertices))
    start = np.cumsum(count) - count
    around = count[corner_vertex]  # for each corner the faces around its vertex
    one = np.repeat(np.arange(len(corner_vertex)), around)
    within = np.arange(len(one)) - np.repeat(np.cumsum(around) - around, around)
    other = owner[start[corner_vertex[one]] + within]
    smooth = np.einsum("ij,ij->i", unit[one // 3], unit[other]) >= CREASE
    one, other = one[smooth], other[smooth]
    total = np.stack([np.bincount(one, area[other, i], minlength=len(corner_vertex)) for i in range(3)], axis=1)
    size = np.linalg.norm(total, axis=1, keepdims=True)
    return (total / np.maximum(size, 1e-300)).reshape(-1, 3, 3)


def is_closed(faces: Array) -> bool:
    """Whether each edge of faces (n, 3) is one of two triangles, that run through it in opposite directions."""
    start, end = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    count = int(faces.max(initial=0)) + 1
    there, back = np.sort(start * count + end), np.sort(end * count + start)
    return bool(np.array_equal(there, back) and (np.diff(there) > 0).all())


def volume(vertices: Array, faces: Array) -> float:
    """What a closed surface holds [m^3]; negative where its triangles are clockwise from outside."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c))) / 6.0


def rendered(solid: Solid, camera: Camera) -> Layer:
    """The picture of a solid."""
    seen = camera.seen(solid.vertices)[solid.faces]
    away = (seen[:, 1, 0] - seen[:, 0, 0]) * (seen[:, 2, 1] - seen[:, 0, 1])
    away -= (seen[:, 2, 0] - seen[:, 0, 0]) * (seen[:, 1, 1] - seen[:, 0, 1])  # rows count downward
    kept = np.flatnonzero(~solid.closed | (away < 0.0))
    seen, solid = seen[kept], Solid(solid.vertices, *(part[kept] for part in solid[1:]))
    best = _nearest(seen, camera.width, camera.height)
    at = np.flatnonzero(best >= 0)
    used = np.zeros(len(seen), dtype=bool)
    hit = best[at] & INDEX
    used[hit] = True
    which = (np.cumsum(used) - 1)[hit]  # among the triangles that are seen somewhere
    x, y = at % camera.width + 0.5, at // camera.width + 0.5
    corners = seen[used]
    lit = brightness(solid.normals[used] @ camera.axes.T)
    light, gloss = (_interpolated(corners, values, which, x, y) for values in (*lit,))
    color = np.ones((camera.height * camera.width, 3), dtype=np.float32)
    color[at] = solid.colors[used].astype(np.float32)[which] * light[:, None] + gloss[:, None]
    nearness = np.full(camera.height * camera.width, -np.inf, dtype=np.float32)
    nearness[at] = _interpolated(corners, corners[:, :, 2], which, x, y)
    shape = (camera.height, camera.width)
    return Layer(np.minimum(color, 1.0).reshape(*shape, 3), nearness.reshape(shape))


def brightness(normals: Array) -> tuple[Array, Array]:
    """What surfaces give back, and what they mirror, by their normals (..., 3) in the picture's axes."""
    normals = normals * np.where(normals[..., 2:] < 0.0, -1.0, 1.0)  # files do not agree about which side is outside
    half = LAMP + np.array([0.0, 0.0, 1.0])
    mirrored = np.maximum(normals @ (half / np.linalg.norm(half)), 0.0) ** SHINE
    return AMBIENT + DIFFUSE * np.maximum(normals @ LAMP, 0.0), GLOSS * mirrored


def _interpolated(corners: Array, values: Array, which: Array, x: Array, y: Array) -> Array:
    """Values (n, 3) at corners of triangles (n, 3, 3), at points x, y (m,) [pixels] of the triangles ``which`` (m,)."""
    (x0, y0), (x1, y1), (x2, y2) = (corners[:, i, :2].T for i in range(3))
    a, b, c = values.T
    double = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    dx = ((b - a) * (y2 - y0) - (c - a) * (y1 - y0)) / double
    dy = ((x1 - x0) * (c - a) - (x2 - x0) * (b - a)) / double
    found = (a - dx * x0 - dy * y0)[which] + dx[which] * x + dy[which] * y
    return np.clip(found, values.min(axis=1)[which], values.max(axis=1)[which]).astype(np.float32)


def over(below: Layer, above: Layer, opacity: float) -> Layer:
    """A layer that is seen through, before or behind another."""
    nearer = above.nearness > below.nearness
    share = (opacity * nearer)[..., None]
    return Layer((1.0 - share) * below.color + share * above.color, below.nearness)


def _nearest(seen: Array, width: int, height: int) -> Array:
    """For each pixel (height * width,) the nearness, in steps, times 2^32, plus the index of the triangle; -1 where nothing is."""
    best = np.full(width * height, -1, dtype=np.int64)
    if not len(seen):
        return best
    low, high = seen[..., 2].min(), seen[..., 2].max()
    step = (DEPTHS - 1) / max(high - low, 1e-6)
    for first in range(0, len(seen), CHUNK):
        part = seen[first : first + CHUNK]
        which, pixel, depth = _pixels(part, width, height)
        steps = np.clip((depth - low) * step, 0, DEPTHS - 1).astype(np.int64)
        np.maximum.at(best, pixel, (steps << 32) + (which + first))
    return best


def _pixels(seen: Array, width: int, height: int) -> tuple[Array, Array, Array]:
    """Triangle, place in the picture and nearness of all pixels whose centers lie in triangles (n, 3, 3)."""
    x, y = seen[:, :, 0].T, seen[:, :, 1].T
    high = [np.ceil(np.maximum(np.maximum(c[0], c[1]), c[2]) - 0.5) for c in (x, y)]
    low = [np.ceil(np.minimum(np.minimum(c[0], c[1]), c[2]) - 0.5) for c in (x, y)]
    kept = np.flatnonzero((high[0] > low[0]) & (high[1] > low[1]))  # the others lie between the centers
    (x0, y0, z0), (x1, y1, z1), (x2, y2, z2) = _downward(*np.ascontiguousarray(seen[kept].transpose(1, 2, 0)))
    double = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    with np.errstate(divide="ignore", invalid="ignore"):
        zx = ((z1 - z0) * (y2 - y0) - (z2 - z0) * (y1 - y0)) / double
        zy = ((x1 - x0) * (z2 - z0) - (x2 - x0) * (z1 - z0)) / double
        whole, upper, lower = (x2 - x0) / (y2 - y0), (x1 - x0) / (y1 - y0), (x2 - x1) / (y2 - y1)
    top = np.clip(np.ceil(y0 - 0.5), 0, height).astype(np.int64)
    rows = np.clip(np.ceil(y2 - 0.5), 0, height).astype(np.int64) - top
    rows[~(np.abs(double) > 1e-9)] = 0
    triangle, row = _counted(rows, top)
    at = row + 0.5
    edge = x0[triangle] + (at - y0[triangle]) * whole[triangle]
    above = x0[triangle] + (at - y0[triangle]) * upper[triangle]
    below = x1[triangle] + (at - y1[triangle]) * lower[triangle]
    other = np.where(at < y1[triangle], above, below)
    left = np.clip(np.ceil(np.minimum(edge, other) - 0.5), 0, width).astype(np.int64)
    length = np.clip(np.ceil(np.maximum(edge, other) - 0.5), 0, width).astype(np.int64) - left
    span, column = _counted(length, left)
    start = (z0 + (0.5 - x0) * zx + (0.5 - y0) * zy)[triangle] + row * zy[triangle]  # of the plane in column 0
    depth = start[span] + column * zx[triangle][span]
    return kept[triangle][span], (row * width)[span] + column, depth


def _downward(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Corners (3, n) of triangles, from the upper to the lower one."""
    for _ in range(2):  # bubbles
        swap = b[1] < a[1]
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        swap = c[1] < b[1]
        b, c = np.where(swap, c, b), np.where(swap, b, c)
    return a, b, c


def _counted(counts: Array, first: Array) -> tuple[Array, Array]:
    """(i, first[i] + j) for all i and all j < counts[i]."""
    index = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return index, np.arange(len(index)) + (first - before)[index]
