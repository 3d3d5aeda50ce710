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
POINTS = 30_000
"""Number of pixels shaded at a time."""
CREASE = np.cos(np.deg2rad(40.0))
"""Cosine of the angle between the normals of two triangles above which the edge between them stays sharp."""
HALF_CREASE = np.cos(np.deg2rad(20.0))
"""If all faces of a vertex are within this angle of their mean normal (cosine), they meet at less than the crease angle."""
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

    closed (n,): the triangle belongs to a closed surface, and is counterclockwise from outside.
    turn (3, 3): rotation of the normals to world axes.
    """

    vertices: Array
    faces: Array
    normals: Array
    colors: Array
    closed: Array
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

    The sum is over the faces at the same vertex that meet the corner's face at less than the crease angle.
    """
    p = vertices[faces]
    area = np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])
    unit = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    corner_vertex = faces.ravel()
    whole = np.stack([np.bincount(corner_vertex, np.repeat(a, 3), minlength=len(vertices)) for a in area.T], axis=1)
    normals = (whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-300))[corner_vertex]
    least = np.ones(len(vertices))
    np.minimum.at(least, corner_vertex, np.einsum("ij,ij->i", normals, np.repeat(unit, 3, axis=0)))
    edged = np.flatnonzero(least[corner_vertex] < HALF_CREASE)
    normals[edged] = _by_sides(corner_vertex, area, unit, edged)
    return normals.reshape(-1, 3, 3)


def _by_sides(corner_vertex: Array, area: Array, unit: Array, corners: Array) -> Array:
    """Return unit normals (m, 3) at corners (m,) of vertices with sharp edges, from a test of each pair of faces at a vertex.

    corner_vertex (3 n,): vertex of each corner of all faces. area, unit (n, 3): normals of the faces, with twice the area as
    length, and unit normals.
    """
    at = corner_vertex[corners]
    order = np.argsort(at, kind="stable")
    owner = corners[order] // 3  # faces sorted by vertex
    count = np.bincount(at)
    start = np.cumsum(count) - count
    around = count[at]  # number of faces around the vertex of each corner
    one = np.repeat(np.arange(len(at)), around)
    within = np.arange(len(one)) - np.repeat(np.cumsum(around) - around, around)
    other = owner[start[at[one]] + within]
    smooth = np.einsum("ij,ij->i", unit[corners[one] // 3], unit[other]) >= CREASE
    one, other = one[smooth], other[smooth]
    total = np.stack([np.bincount(one, area[other, i], minlength=len(at)) for i in range(3)], axis=1)
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300)


def is_closed(faces: Array) -> bool:
    """True if each edge of faces (n, 3) belongs to exactly two triangles, which traverse it in opposite directions."""
    start, end = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    count = int(faces.max(initial=0)) + 1
    there, back = np.sort(start * count + end), np.sort(end * count + start)
    return bool(np.array_equal(there, back) and (np.diff(there) > 0).all())


def volume(vertices: Array, faces: Array) -> float:
    """Return the volume of a closed surface [m^3]; negative if its triangles are clockwise from outside."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c))) / 6.0


def render(solids: Sequence[Solid], camera: Camera) -> Layer:
    """Render solids to a layer; if two are equally near, the last one is visible."""
    best = np.full(camera.width * camera.height, -1, dtype=np.int64)
    projected = [camera.projected(solid.vertices).T.copy() for solid in solids]
    faces = [solid.faces.T.copy() for solid in solids]
    depths = np.concatenate([places[2] for places in projected])
    low, high = float(depths.min(initial=np.inf)), float(depths.max(initial=-np.inf))
    first = np.cumsum([0, *(len(solid.faces) for solid in solids)])
    for solid, places, corners, first_index in zip(solids, projected, faces, first, strict=False):
        _draw_nearest(best, int(first_index), places, corners, solid.closed, (low, high), camera.width)
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

    corners (3, 3, n): corners in image coordinates; normals (n, 3, 3): corner normals in camera axes; colors (n, 3).
    """
    color = np.ones((camera.height * camera.width, 3), dtype=np.float32)
    nearness = np.full(camera.height * camera.width, -np.inf, dtype=np.float32)
    planes, depth, base = _planes(corners), _with_differences(corners[2]), colors.astype(np.float32)
    light, gloss = (_with_differences(v.T) for v in brightness(normals))
    for first in range(0, len(at), POINTS):
        place, triangle = at[first : first + POINTS], which[first : first + POINTS]
        weights = _barycentric_weights(planes[triangle].T, place % camera.width + 0.5, place // camera.width + 0.5)
        lit = (
            base[triangle] * _interpolated(light[triangle].T, weights)[:, None]
            + _interpolated(gloss[triangle].T, weights)[:, None]
        )
        color[place] = np.minimum(lit, 1.0)
        nearness[place] = _interpolated(depth[triangle].T, weights)
    shape = (camera.height, camera.width)
    return Layer(color.reshape(*shape, 3), nearness.reshape(shape))


def brightness(normals: Array) -> tuple[Array, Array]:
    """Return brightness (...) by normals (..., 3) in camera axes: ambient and diffuse, and specular.

    Normals away from the camera are reversed.
    """
    normals = normals * np.where(normals[..., 2:] < 0.0, -1.0, 1.0)  # files do not agree about which side is outside
    half = LAMP + np.array([0.0, 0.0, 1.0])
    mirrored = np.maximum(normals @ (half / np.linalg.norm(half)), 0.0) ** SHINE
    return AMBIENT + DIFFUSE * np.maximum(normals @ LAMP, 0.0), GLOSS * mirrored


def _planes(corners: Array) -> Array:
    """Return data (n, 6) for :func:`_barycentric_weights` of triangles (3, 3, n).

    They are the first corner and the two sides at it, divided by the doubled area.
    """
    (x0, x1, x2), (y0, y1, y2) = corners[:2]
    double = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    sides = ((x1 - x0) / double, (y1 - y0) / double, (x2 - x0) / double, (y2 - y0) / double)
    return np.stack([x0, y0, *sides], axis=1)


def _barycentric_weights(planes: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the barycentric weights of the second and third corner of triangles at points x, y (m,) [pixels].

    planes (6, m): data of the triangles by :func:`_planes`. Weights outside of a triangle are clipped to it.
    """
    left, up, bx, by, cx, cy = planes
    second = np.clip((x - left) * cy - (y - up) * cx, 0.0, 1.0).astype(np.float32)
    third = np.clip((y - up) * bx - (x - left) * by, 0.0, 1.0).astype(np.float32)
    return second, np.minimum(third, 1.0 - second)


def _with_differences(values: Array) -> Array:
    """Return corner values (3, n) of triangles as first value and differences to it (n, 3)."""
    a, b, c = values.astype(np.float32)
    return np.stack([a, b - a, c - a], axis=1)


def _interpolated(spread: Array, weights: tuple[Array, Array]) -> Array:
    """Interpolate corner values, given as by :func:`_with_differences` (3, m), with barycentric weights."""
    return spread[0] + weights[0] * spread[1] + weights[1] * spread[2]


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
    closed: Array,
    depths: tuple[float, float],
    width: int,
) -> None:
    """Draw triangles into a z-buffer, which is changed in place; back faces of closed surfaces are skipped.

    best (height * width,): nearness level of each pixel times 2^32, plus the triangle index; -1 if empty.
    first_index: of the first triangle. projected: vertices (3, v). faces (3, n), closed (n,). depths: nearness range of all.
    """
    low, step = depths[0], (DEPTHS - 1) / max(depths[1] - depths[0], 1e-6)
    for first in range(0, faces.shape[1], CHUNK):
        part = slice(first, first + CHUNK)
        x, y, z = (c[faces[:, part]] for c in projected)
        double = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])
        crossing = (
            _covers_centers(x, y) & (np.abs(double) > 1e-9) & (~closed[part] | (double < 0.0))
        )  # rows count downward
        visible = np.flatnonzero(crossing)
        which, pixel, depth = _pixels(x[:, visible], y[:, visible], z[:, visible], width, len(best) // width)
        steps = np.clip((depth - low) * step, 0, DEPTHS - 1).astype(np.int64)
        np.maximum.at(best, pixel, (steps << 32) + (visible[which] + (first_index + first)))


def _covers_centers(x: Array, y: Array) -> Array:
    """Return a mask of the triangles with corners x, y (3, n) whose extent covers the center of some row and of some column."""
    sides = [
        np.ceil(np.maximum(np.maximum(c[0], c[1]), c[2]) - 0.5)
        > np.ceil(np.minimum(np.minimum(c[0], c[1]), c[2]) - 0.5)
        for c in (x, y)
    ]
    return sides[0] & sides[1]


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
