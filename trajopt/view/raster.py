"""Software renderer for triangles: a z-buffer in NumPy with shading of the visible pixels.

Triangles are split into pixel rows and rows into pixels, in vectorized form; the nearest triangle wins each pixel. Normals are
interpolated for visible pixels, so simplified surfaces look smooth but keep their edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

CHUNK = 8_000
"""Number of triangles processed at a time, so that their rows and pixels fit in the processor's cache."""
CREASE = np.cos(np.deg2rad(40.0))
"""Cosine of the angle between the normals of two triangles above which the edge between them stays sharp."""
LAMP = np.array([-0.35, 0.55, 0.75]) / np.linalg.norm([-0.35, 0.55, 0.75])
"""Direction to the lamp in camera axes: left of and above the camera."""
AMBIENT, DIFFUSE, GLOSS = 0.42, 0.58, 0.12
"""Coefficients of ambient, diffuse and specular light."""
SHINE = 24
"""Exponent of specular light (B. T. Phong, Communications of the ACM 18, 1975)."""
DEPTHS, INDEX = 2**30, 2**32 - 1
"""Number of depth levels, and mask of the bits that store the triangle index."""


class Solid(NamedTuple):
    """Triangles: vertices (v, 3) [m] in the world, faces (n, 3), corner normals (n, 3, 3), colors (n, 3) in 0 .. 1.

    turn (3, 3): rotation of the normals to world axes.
    """

    vertices: Array
    faces: Array
    normals: Array
    colors: Array
    turn: Array = np.eye(3)


class Camera(NamedTuple):
    """An orthographic camera. axes (3, 3): rows right, up, and to the camera. center (2) [m]: right and up coordinates of the
    image center. scale [pixels/m]. width, height [pixels].
    """

    axes: Array
    center: Array
    scale: float
    width: int
    height: int

    def projected(self, points: Array) -> Array:
        """Project points (..., 3) [m] to column, row and nearness (coordinate toward the camera), all in pixels."""
        at = points @ self.axes.T
        x = (at[..., 0] - self.center[0]) * self.scale + 0.5 * self.width
        y = 0.5 * self.height - (at[..., 1] - self.center[1]) * self.scale
        return np.stack([x, y, at[..., 2] * self.scale], axis=-1)


class Layer(NamedTuple):
    """A rendered image: color (height, width, 3) in 0 .. 1, nearness (height, width) [pixels]; empty pixels are white, at -inf."""

    color: Array
    nearness: Array


def corner_normals(vertices: Array, faces: Array) -> Array:
    """Return corner normals (n, 3, 3) of faces (n, 3), unit vectors along area-weighted sums of face normals.

    The sum includes the faces at the vertex whose normals are within the crease angle of the corner's own face, so that edges stay
    sharp.
    """
    p, at = vertices[faces], faces.ravel()
    area = np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])
    unit = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    owner = np.argsort(at, kind="stable") // 3  # faces sorted by vertex
    count = np.bincount(at)
    corner, other = _index_ranges(count[at], (np.cumsum(count) - count)[at])
    other = owner[other]
    smooth = np.einsum("ij,ij->i", unit[corner // 3], unit[other]) >= CREASE
    corner, other = corner[smooth], other[smooth]
    total = np.stack([np.bincount(corner, area[other, i], minlength=len(at)) for i in range(3)], axis=1)
    return (total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300)).reshape(-1, 3, 3)


def render(solids: Sequence[Solid], camera: Camera) -> Layer:
    """Render solids to a layer; if two are equally near, the last one is visible."""
    if not solids:
        return Layer(np.ones((camera.height, camera.width, 3)), np.full((camera.height, camera.width), -np.inf))
    best = np.full(camera.width * camera.height, -1, dtype=np.int64)
    projected = [camera.projected(solid.vertices).T.copy() for solid in solids]
    faces = [solid.faces.T.copy() for solid in solids]
    depths = np.concatenate([places[2] for places in projected])
    low, high = float(depths.min(initial=np.inf)), float(depths.max(initial=-np.inf))
    first = np.cumsum([0, *(len(solid.faces) for solid in solids)])
    for places, corners, first_index in zip(projected, faces, first, strict=False):
        _draw_nearest(best, int(first_index), places, corners, (low, high), camera.width)
    at = np.flatnonzero(best >= 0)
    hit = best[at] & INDEX
    used = np.zeros(first[-1], dtype=bool)
    used[hit] = True
    of_each = [np.flatnonzero(used[a:b]) for a, b in pairwise(first)]
    lit = [solid.normals[k] @ (solid.turn.T @ camera.axes.T) for solid, k in zip(solids, of_each, strict=True)]
    corners = np.concatenate([p[:, f[:, k]] for p, f, k in zip(projected, faces, of_each, strict=True)], axis=2)
    own_color = np.concatenate([solid.colors[k] for solid, k in zip(solids, of_each, strict=True)])
    which = (np.cumsum(used) - 1)[hit]  # index among the visible triangles
    return _shaded(camera, at, which, corners, np.concatenate(lit), own_color)


def _shaded(camera: Camera, at: Array, which: Array, corners: Array, normals: Array, colors: Array) -> Layer:
    """Shade the visible triangles (m,) at pixels (m,).

    Of the triangles: projected corners (3, 3, n), normals (n, 3, 3) in camera axes, colors (n, 3).
    """
    weights = _barycentric_weights(corners[:2, :, which], at % camera.width + 0.5, at // camera.width + 0.5)

    def interpolated(values: Array) -> Array:
        """Values (m,) at the pixels from those at the corners (3, n)."""
        return np.asarray((values[:, which] * weights).sum(axis=0))

    light, gloss = (interpolated(values.T)[:, None] for values in brightness(normals))
    color, nearness = np.ones((camera.height, camera.width, 3)), np.full((camera.height, camera.width), -np.inf)
    color.reshape(-1, 3)[at] = np.minimum(colors[which] * light + gloss, 1.0)
    nearness.ravel()[at] = interpolated(corners[2])
    return Layer(color, nearness)


def brightness(normals: Array) -> tuple[Array, Array]:
    """Return brightness (...) by normals (..., 3) in camera axes: ambient and diffuse, and specular.

    Normals away from the camera are reversed.
    """
    normals = normals * np.where(normals[..., 2:] < 0.0, -1.0, 1.0)  # files do not agree about which side is outside
    half = LAMP + np.array([0.0, 0.0, 1.0])
    mirrored = np.maximum(normals @ (half / np.linalg.norm(half)), 0.0) ** SHINE
    return AMBIENT + DIFFUSE * np.maximum(normals @ LAMP, 0.0), GLOSS * mirrored


def _barycentric_weights(corners: Array, x: Array, y: Array) -> Array:
    """Return the barycentric weights (3, m) of the corners (2, 3, m) of triangles at points x, y (m,) [pixels], none negative."""
    (x0, x1, x2), (y0, y1, y2) = corners
    double = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    second = np.clip(((x - x0) * (y2 - y0) - (y - y0) * (x2 - x0)) / double, 0.0, 1.0)
    third = np.clip(((y - y0) * (x1 - x0) - (x - x0) * (y1 - y0)) / double, 0.0, 1.0 - second)
    return np.stack([1.0 - second - third, second, third])


def blend(below: Layer, above: Layer, opacity: float) -> Layer:
    """Blend a layer of an opacity in 0 .. 1 over another one where it is nearer; the result has the nearness of ``below``."""
    nearer = above.nearness > below.nearness
    share = (opacity * nearer)[..., None]
    return Layer((1.0 - share) * below.color + share * above.color, below.nearness)


def _draw_nearest(
    best: Array,
    first_index: int,
    projected: Array,
    faces: Array,
    depths: tuple[float, float],
    width: int,
) -> None:
    """Draw triangles into a z-buffer, which is changed in place.

    best (height * width,): nearness level of each pixel times 2^32, plus the triangle index; -1 if empty.
    first_index: of the first triangle. projected: vertices (3, v). faces (3, n). depths: nearness range of all.
    """
    low, step = depths[0], (DEPTHS - 1) / max(depths[1] - depths[0], 1e-6)
    for first in range(0, faces.shape[1], CHUNK):
        part = slice(first, first + CHUNK)
        x, y, z = (c[faces[:, part]] for c in projected)
        double = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])
        visible = np.flatnonzero(np.abs(double) > 1e-9)
        which, pixel, depth = _pixels(x[:, visible], y[:, visible], z[:, visible], width, len(best) // width)
        steps = np.clip((depth - low) * step, 0, DEPTHS - 1).astype(np.int64)
        np.maximum.at(best, pixel, (steps << 32) + (visible[which] + (first_index + first)))


def _pixels(x: Array, y: Array, z: Array, width: int, height: int) -> tuple[Array, Array, Array]:
    """Return triangle, pixel index and nearness of all pixels with centers in triangles with corners x, y, z (3, n)."""
    (x0, y0, z0), (x1, y1, z1), (x2, y2, z2) = _sorted_downward(*np.stack([x, y, z], axis=1))
    double = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    with np.errstate(divide="ignore", invalid="ignore"):
        zx = ((z1 - z0) * (y2 - y0) - (z2 - z0) * (y1 - y0)) / double
        zy = ((x1 - x0) * (z2 - z0) - (x2 - x0) * (z1 - z0)) / double
        whole, upper, lower = (x2 - x0) / (y2 - y0), (x1 - x0) / (y1 - y0), (x2 - x1) / (y2 - y1)
    top = np.clip(np.ceil(y0 - 0.5), 0, height).astype(np.int64)
    rows = np.clip(np.ceil(y2 - 0.5), 0, height).astype(np.int64) - top
    triangle, row = _index_ranges(rows, top)
    at = row + 0.5
    edge = x0[triangle] + (at - y0[triangle]) * whole[triangle]
    above = x0[triangle] + (at - y0[triangle]) * upper[triangle]
    below = x1[triangle] + (at - y1[triangle]) * lower[triangle]
    other = np.where(at < y1[triangle], above, below)
    left = np.clip(np.ceil(np.minimum(edge, other) - 0.5), 0, width).astype(np.int64)
    length = np.clip(np.ceil(np.maximum(edge, other) - 0.5), 0, width).astype(np.int64) - left
    span, column = _index_ranges(length, left)
    start = (z0 + (0.5 - x0) * zx + (0.5 - y0) * zy)[triangle] + row * zy[triangle]  # nearness in column 0
    depth = start[span] + column * zx[triangle][span]
    return triangle[span], (row * width)[span] + column, depth


def _sorted_downward(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Sort the corners a, b, c (3, n) of triangles by their second coordinate, the row: from top to bottom."""
    for _ in range(2):  # bubble sort
        swap = b[1] < a[1]
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        swap = c[1] < b[1]
        b, c = np.where(swap, c, b), np.where(swap, b, c)
    return a, b, c


def _index_ranges(counts: Array, first: Array) -> tuple[Array, Array]:
    """Return (i, first[i] + j) for all i and all j < counts[i]."""
    index = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return index, np.arange(len(index)) + (first - before)[index]
