"""Capsules and spheres that cover a link: several, if a single one would be much larger than the link.

The algorithm repeatedly cuts the surface of a shape in two, at the piece whose capsule protrudes most. The plane of the cut is
normal to a principal axis; the chosen axis gives the rough capsules of both halves the smallest volume. The last pieces get fitted
capsules. Triangles that cross a plane are cut too, so that the capsules also cover the surface between the vertices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers.capsule_fit import FittedCapsule, fit_capsule, rough_capsule
from dynamics_backends.rigid_body.geometry.shapes import Capsule, PlacedShape, Sphere, Triangles

SAMPLES = 64
"""Number of points on the surface of a capsule that measure its protrusion."""


class Piece(NamedTuple):
    """A part of a link: corners of triangles (m, 3, 3) [m] in the link's frame, the capsule that covers them, and its largest
    protrusion from their convex hull [m].
    """

    link: str
    triangles: Array
    capsule: FittedCapsule
    excess: float


def covers(shapes: Iterable[PlacedShape], tolerance: float = 0.01, max_pieces: int = 8) -> tuple[Piece, ...]:
    """Cut shapes into pieces until each capsule protrudes by at most ``tolerance`` [m], or until there are ``max_pieces`` pieces.

    Raises ValueError for a tolerance that is not positive, and for ``max_pieces`` below 1.
    """
    if not tolerance > 0 or max_pieces < 1:
        raise ValueError(
            f"tolerance = {tolerance}, max_pieces = {max_pieces}; expected a positive length [m], and at least 1"
        )
    return tuple(piece for shape in shapes for piece in _cover(shape, tolerance, max_pieces))


def _cover(placed: PlacedShape, tolerance: float, max_pieces: int) -> list[Piece]:
    shape = placed.shape
    if isinstance(shape, (Sphere, Capsule)):
        half = 0.5 * shape.length if isinstance(shape, Capsule) else 0.0
        ends = [placed.p + sign * half * placed.R[:, 2] for sign in (-1.0, 1.0)]
        triangles = _corners(placed.triangles())
        return [Piece(placed.link, triangles, FittedCapsule(ends[0], ends[1], shape.radius), 0.0)]
    pieces = [_piece(placed.link, _corners(placed.triangles()))]
    while len(pieces) < max_pieces:
        worst = max(range(len(pieces)), key=lambda i: pieces[i].excess)
        if pieces[worst].excess <= tolerance:
            break
        halves = _best_halves(pieces[worst])
        if halves is None:
            break
        pieces[worst : worst + 1] = halves
    return [_fitted(piece) for piece in pieces]


def _fitted(piece: Piece) -> Piece:
    points = np.unique(piece.triangles.reshape(-1, 3), axis=0)
    capsule = fit_capsule(points)
    return piece._replace(capsule=capsule, excess=_excess(points, capsule))


def _corners(surface: Triangles) -> Array:
    """Corners (m, 3, 3) of triangles."""
    return np.asarray(surface.vertices, float)[surface.faces]


def _piece(link: str, triangles: Array) -> Piece:
    points = np.unique(triangles.reshape(-1, 3), axis=0)
    capsule = rough_capsule(points)
    return Piece(link, triangles, capsule, _excess(points, capsule))


def _best_halves(piece: Piece) -> list[Piece] | None:
    """The halves of smallest total volume; None if the piece cannot be cut."""
    points = piece.triangles.reshape(-1, 3)
    low, high = points.min(axis=0), points.max(axis=0)
    axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2]
    best: list[Piece] | None = None
    for axis in axes:
        along = points @ axis
        level = 0.5 * (along.min() + along.max())
        if along.max() - along.min() < 1e-6 * float(np.linalg.norm(high - low)) or along.max() == along.min():
            continue
        sides = [_clipped(piece.triangles, sign * axis, sign * level) for sign in (1.0, -1.0)]
        if any(not len(side) for side in sides):
            continue
        halves = [_piece(piece.link, side) for side in sides]
        if best is None or _volume(halves) < _volume(best):
            best = halves
    return best


def _volume(pieces: Sequence[Piece]) -> float:
    return sum(piece.capsule.volume for piece in pieces)


def _clipped(triangles: Array, axis: Array, level: float) -> Array:
    """The parts of triangles (m, 3, 3) with axis . x >= level, as triangles."""
    height = triangles @ axis - level
    inside = height >= 0.0
    count = inside.sum(axis=1)
    found = [triangles[count == 3]]
    for corners, h in zip(triangles[(count > 0) & (count < 3)], height[(count > 0) & (count < 3)], strict=True):
        polygon = []
        for i in range(3):
            a, b, ha, hb = corners[i], corners[(i + 1) % 3], h[i], h[(i + 1) % 3]
            if ha >= 0.0:
                polygon.append(a)
            if (ha >= 0.0) != (hb >= 0.0):
                polygon.append(a + ha / (ha - hb) * (b - a))
        found.append(np.array([[polygon[0], polygon[i], polygon[i + 1]] for i in range(1, len(polygon) - 1)]))
    return np.concatenate([part.reshape(-1, 3, 3) for part in found])


def _excess(points: Array, capsule: FittedCapsule) -> float:
    """Largest distance of the capsule's surface from the convex hull of points (n, 3); for flat sets, the radius."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        faces = ConvexHull(points).equations
    except (QhullError, ValueError):
        return capsule.radius
    k = np.arange(SAMPLES) + 0.5
    polar, around = np.arccos(1.0 - 2.0 * k / SAMPLES), np.pi * (1.0 + 5.0**0.5) * k
    ball = np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], axis=1)
    surface = np.concatenate([capsule.a + s * (capsule.b - capsule.a) + capsule.radius * ball for s in (0.0, 0.5, 1.0)])
    return float((surface @ faces[:, :3].T + faces[:, 3]).max(axis=1).max())
