"""Capsules that cover the links of a robot: the smallest one for points, cuts of a link, a disk cache, their places in the world.

For an axis through c along a, let s_i be the coordinates of the points along it and d_i their distances from it. A radius
r >= max d_i then requires a segment [t0, t1] that reaches all points,

    t0 = min_i s_i + sqrt(r^2 - d_i^2),     t1 = max_i s_i - sqrt(r^2 - d_i^2)     (t0 > t1: a sphere is enough)

so that the volume pi r^2 (t1 - t0 + 4 r / 3) depends on the axis and the radius only. Simplex searches from the principal axes
minimize it. The last step sets the radius to the largest distance from the segment.

The cover of a link repeatedly cuts the surface of a shape in two, at the piece whose capsule protrudes most. The plane of the cut
is normal to a principal axis, halfway along it; the chosen axis gives the rough capsules of both halves the smallest volume. The
last pieces get fitted capsules. Triangles that cross a plane are cut too, so that the capsules also cover the surface between the
vertices.

The search takes seconds for a robot, reading its result milliseconds. The name of an entry of the cache depends on every point of
the shapes, on the tolerance, and on the version of the search, so that a changed shape gets a new entry. Entries are written
atomically. A read-only folder costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.hull import distinct, hull_of_points
from dynamics_backends.rigid_body.geometry.meshes import cache_entry, stored
from dynamics_backends.rigid_body.geometry.shapes import SEGMENTS, Capsule, Cylinder, Mesh, PlacedShape, Sphere
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.rotations import segment_frame

ROUND = 0.05
"""A capsule with a segment shorter than this fraction of its radius becomes a sphere."""
SEARCH = {"maxiter": 200, "xatol": 1e-4, "fatol": 1e-5}
"""Options of SciPy's Nelder-Mead search, for points of extent 1: maximum iterations, tolerances of variables and volume."""


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
        """The capsule as a shape of a link, in whose frame its ends are.

        A sphere around it if the segment is shorter than the fraction ROUND of the radius.
        """
        R, middle, length = segment_frame(self.a, self.b)
        if length < ROUND * self.radius:
            return PlacedShape(link, Sphere(self.radius + 0.5 * length), np.eye(3), middle)
        return PlacedShape(link, Capsule(self.radius, length), R, middle)


def fit_capsule(points: Array) -> FittedCapsule:
    """Fit a capsule of approximately locally minimum volume around points (n, 3) [m].

    Raises ValueError without points, or if some are not finite.
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points) or not np.isfinite(points).all():
        raise ValueError(f"points has shape {points.shape}; expected (n, 3) finite coordinates, n at least 1")
    hull, center = hull_of_points(points), points.mean(axis=0)
    corners = points if hull is None else points[hull.vertices]
    extent = float(np.abs(corners - center).max())
    if extent == 0.0:
        return FittedCapsule(center, center, 0.0)
    scaled = (corners - center) / extent
    axes = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)[2]
    best = min((_searched(scaled, axis) for axis in axes), key=lambda capsule: capsule.volume)
    a, b = (center + extent * end for end in (best.a, best.b))
    return FittedCapsule(a, b, float(distances_to_segment(points, a, b).max()))


def rough_capsule(points: Array) -> FittedCapsule:
    """Capsule that covers points (n, 3) [m], along the principal axis that gives the smallest volume; no search."""
    center, found = points.mean(axis=0), []
    for axis in np.linalg.svd(points - center, full_matrices=False)[2]:
        side = np.linalg.svd(axis[None])[2][1:]
        across = (points - center) @ side.T
        middle = 0.5 * (across.min(axis=0) + across.max(axis=0))
        found.append(_capsule(points - center, axis, side, np.concatenate([middle, np.zeros(3)])))
    best = min(found, key=lambda capsule: capsule.volume)
    return FittedCapsule(center + best.a, center + best.b, best.radius)


def distances_to_segment(points: Array, a: Array, b: Array) -> Array:
    """Distances (n,) of points (n, 3) from the segment between a and b (3)."""
    along = b - a
    square = float(along @ along)
    fraction = np.zeros(len(points)) if square == 0.0 else np.clip((points - a) @ along / square, 0.0, 1.0)
    return np.linalg.norm(points - a - fraction[:, None] * along, axis=1)


def _searched(points: Array, axis: Array) -> FittedCapsule:
    """Result of the search for the capsule of smallest volume that starts with ``axis`` (3), for points of extent 1."""
    from scipy.optimize import minimize

    side = np.linalg.svd(axis[None])[2][1:]
    start = [*(side @ points.mean(axis=0)), 0.0, 0.0, 0.0]

    def volume(z: Array) -> float:
        return _capsule(points, axis, side, z).volume

    found = minimize(volume, start, method="Nelder-Mead", options=SEARCH)
    return _capsule(points, axis, side, found.x)


def _capsule(points: Array, axis: Array, side: Array, z: Array) -> FittedCapsule:
    """The capsule around points with the shortest segment for the search variables z.

    z: offset (2) and tilt (2) of ``axis`` along ``side``, and the square root of the excess of the radius over the minimum.
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


SAMPLES = 64
"""Number of directions in which a capsule's protrusion is measured, from the ends and the middle of its segment."""


class Piece(NamedTuple):
    """A part of a link: corners of triangles (m, 3, 3) [m] in the link's frame, and the capsule that covers them.

    excess: largest protrusion of the capsule from the convex hull of the corners [m], measured at sampled points.
    """

    link: str
    triangles: Array
    capsule: FittedCapsule
    excess: float


def covers(shapes: Iterable[PlacedShape], tolerance: float = 0.01, max_pieces: int = 8) -> tuple[Piece, ...]:
    """Cut shapes into pieces with fitted capsules; each shape gets at most ``max_pieces`` pieces.

    Cutting a shape ends when each rough capsule protrudes by at most ``tolerance`` [m], or the worst piece cannot be cut.
    Raises ValueError for a tolerance that is not positive, and for ``max_pieces`` below 1.
    """
    if not tolerance > 0 or max_pieces < 1:
        raise ValueError(
            f"tolerance = {tolerance}, max_pieces = {max_pieces}; expected a positive length [m], and at least 1"
        )
    return tuple(piece for shape in shapes for piece in _cover(shape, tolerance, max_pieces))


def rough_covers(shapes: Iterable[PlacedShape]) -> tuple[Piece, ...]:
    """Return one capsule per shape, without the search for the smallest one: for spheres and capsules themselves, for others
    :func:`rough_capsule`."""
    return tuple(_whole(shape) for shape in shapes)


def _cover(placed: PlacedShape, tolerance: float, max_pieces: int) -> list[Piece]:
    """Pieces of one shape, cut where the capsule protrudes most, with fitted capsules; a sphere or capsule is its own cover.

    Ends if all rough capsules protrude by at most the tolerance [m], at ``max_pieces``, or if the worst piece cannot be cut.
    """
    if isinstance(placed.shape, (Sphere, Capsule)):
        return [_whole(placed)]
    if max_pieces == 1:
        return [_piece(placed.link, _corners(placed), fit_capsule)]
    pieces = [_whole(placed)]
    while len(pieces) < max_pieces:
        worst = max(range(len(pieces)), key=lambda i: pieces[i].excess)
        if pieces[worst].excess <= tolerance:
            break
        halves = _best_halves(pieces[worst])
        if halves is None:
            break
        pieces[worst : worst + 1] = halves
    return [_piece(piece.link, piece.triangles, fit_capsule) for piece in pieces]


def _whole(placed: PlacedShape) -> Piece:
    """A shape as one piece; a sphere or capsule is its own cover, other shapes get rough capsules."""
    shape, triangles = placed.shape, _corners(placed)
    if not isinstance(shape, (Sphere, Capsule)):
        return _piece(placed.link, triangles)
    half = 0.5 * shape.length if isinstance(shape, Capsule) else 0.0
    ends = [placed.p + sign * half * placed.R[:, 2] for sign in (-1.0, 1.0)]
    return Piece(placed.link, triangles, FittedCapsule(ends[0], ends[1], shape.radius), 0.0)


def _corners(placed: PlacedShape) -> Array:
    """Corners (m, 3, 3) of the triangles of a shape, in its link's frame; those of a cylinder enclose it."""
    if isinstance(placed.shape, Cylinder):
        placed = placed._replace(shape=replace(placed.shape, radius=placed.shape.radius / np.cos(np.pi / SEGMENTS)))
    vertices, faces = placed.triangles()
    return np.asarray(vertices, float)[faces]


def _piece(link: str, triangles: Array, covering: Callable[[Array], FittedCapsule] = rough_capsule) -> Piece:
    """Part of a link with a rough capsule, or that of another function ``covering`` of points (n, 3)."""
    points = distinct(triangles.reshape(-1, 3))[0]
    capsule = covering(points)
    return Piece(link, triangles, capsule, _excess(points, capsule))


def _best_halves(piece: Piece) -> list[Piece] | None:
    """Halves of a piece, cut in the middle, normal to the principal axis that gives the smallest total volume of rough capsules.

    None if the piece cannot be cut.
    """
    points = piece.triangles.reshape(-1, 3)
    low, high = points.min(axis=0), points.max(axis=0)
    found = []
    for axis in np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2]:
        along = points @ axis
        level = 0.5 * (along.min() + along.max())
        if along.max() - along.min() < 1e-6 * float(np.linalg.norm(high - low)) or along.max() == along.min():
            continue
        sides = [_clipped(piece.triangles, sign * axis, sign * level) for sign in (1.0, -1.0)]
        if all(len(side) for side in sides):
            found.append([_piece(piece.link, side) for side in sides])
    return min(found, key=_volume, default=None)


def _volume(pieces: Sequence[Piece]) -> float:
    """Sum of the volumes of the pieces' capsules [m^3]."""
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
    """Largest distance of sampled points of the capsule beyond a face of the hull of points (n, 3); for flat sets, the radius."""
    hull = hull_of_points(points)
    if hull is None:
        return capsule.radius
    k = np.arange(SAMPLES) + 0.5
    polar, around = np.arccos(1.0 - 2.0 * k / SAMPLES), np.pi * (1.0 + 5.0**0.5) * k
    ball = np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], axis=1)
    surface = np.concatenate([capsule.a + s * (capsule.b - capsule.a) + capsule.radius * ball for s in (0.0, 0.5, 1.0)])
    return float((surface @ hull.equations[:, :3].T + hull.equations[:, 3]).max())


VERSION = 2
"""Version of the search; entries of other versions are ignored."""


def cached_covers(shapes: Iterable[PlacedShape], tolerance: float, max_pieces: int) -> tuple[Piece, ...]:
    """:func:`~dynamics_backends.rigid_body.geometry.covers.covers` with a disk cache; raises the same ValueError."""
    placed = tuple(shapes)
    key = [part for shape in placed for part in _key_parts(shape)]
    entry = cache_entry("covers", f"{VERSION} {tolerance!r} {max_pieces}".encode(), *key)

    def computed() -> dict[str, Array]:
        """Arrays of the pieces."""
        pieces = covers(placed, tolerance, max_pieces)
        return {
            "capsules": _rows(piece.capsule for piece in pieces),
            "excess": np.array([piece.excess for piece in pieces]),
            "triangles": np.concatenate([np.zeros((0, 3, 3)), *(piece.triangles for piece in pieces)]),
            "sizes": np.array([len(piece.triangles) for piece in pieces], dtype=int),
            "links": np.array([piece.link for piece in pieces], dtype=str),
        }

    data = stored(entry, computed)
    triangles = np.split(data["triangles"], np.cumsum(data["sizes"]))[:-1]
    parts = zip(data["links"].tolist(), triangles, data["capsules"], data["excess"].tolist(), strict=True)
    return tuple(Piece(link, corners, _capsule_of_row(row), excess) for link, corners, row, excess in parts)


def cached_capsules(points: Sequence[Array]) -> list[FittedCapsule]:
    """:func:`~dynamics_backends.rigid_body.geometry.covers.fit_capsule` of sets of points (n, 3), with a disk cache."""
    entry = cache_entry("covers", f"{VERSION} capsules".encode(), *(_bytes(own) for own in points))
    data = stored(entry, lambda: {"capsules": _rows(fit_capsule(own) for own in points)})
    return [_capsule_of_row(row) for row in data["capsules"]]


def _key_parts(placed: PlacedShape) -> list[bytes]:
    """A shape, its link and its placement as bytes, at full precision, for the key of a cache entry."""
    shape = placed.shape
    own = [_bytes(a) for a in (shape.vertices, shape.faces)] if isinstance(shape, Mesh) else [repr(shape).encode()]
    return [placed.link.encode(), _bytes(placed.R), _bytes(placed.p), *own]


def _bytes(values: Array) -> bytes:
    """Shape and numbers of an array as bytes, for the key of a cache entry."""
    return f"{np.shape(values)}".encode() + np.ascontiguousarray(values, float).tobytes()


def _rows(capsules: Iterable[FittedCapsule]) -> Array:
    """Capsules as rows (n, 7)."""
    return np.array([[*c.a, *c.b, c.radius] for c in capsules]).reshape(-1, 7)


def _capsule_of_row(row: Array) -> FittedCapsule:
    """Capsule of a row (7): a, b and the radius."""
    return FittedCapsule(row[:3], row[3:6], float(row[6]))


@dataclass(frozen=True, eq=False)
class RobotCover:
    """P capsules that cover the links of a robot.

    links: names of their links (``coarse``: of their bodies). bodies (P,): body numbers, -1 for the ground. a, b (P, 3) [m]: the
    ends of their segments, in the internal frames of the bodies. radii (P,) [m]. excess (P,) [m]: the protrusion of each capsule
    from the hull of its points. corners: the covered points of each capsule in the same frames, (n, 3) each.
    """

    model: Model
    links: tuple[str, ...]
    bodies: Array
    a: Array
    b: Array
    radii: Array
    excess: Array
    corners: tuple[Array, ...]

    @classmethod
    def from_pieces(cls, model: Model, pieces: Sequence[Piece]) -> RobotCover:
        """The cover made of pieces. Raises UnknownName for a link that the model does not have."""
        frames = [model.frames[model.frame_id(piece.link)] for piece in pieces]
        a, b = (
            np.array([f.R @ end + f.p for f, end in zip(frames, ends, strict=True)]).reshape(-1, 3)
            for ends in ([piece.capsule.a for piece in pieces], [piece.capsule.b for piece in pieces])
        )
        corners = tuple(
            distinct(piece.triangles.reshape(-1, 3))[0] @ f.R.T + f.p for f, piece in zip(frames, pieces, strict=True)
        )
        links = tuple(piece.link for piece in pieces)
        bodies = np.array([f.body for f in frames], dtype=int)
        radii, excess = (
            np.array(values) for values in zip(*((p.capsule.radius, p.excess) for p in pieces), strict=True)
        )
        return cls(model, links, bodies, a, b, radii, excess, corners)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """Sorted numbers of the bodies that carry a capsule, -1 for the ground."""
        return tuple(sorted({int(b) for b in self.bodies}))

    @cached_property
    def coarse(self) -> RobotCover:
        """Cover with one fitted capsule for each moving body that has capsules, none for the ground; excess is set to zero."""
        moving = [b for b in self.carried if b >= 0]
        corners = tuple(np.concatenate([self.corners[i] for i in np.flatnonzero(self.bodies == b)]) for b in moving)
        fitted = cached_capsules(corners)
        a, b = (np.array([getattr(capsule, end) for capsule in fitted]).reshape(-1, 3) for end in ("a", "b"))
        names, radii = tuple(self.model.body_names[body] for body in moving), np.array([c.radius for c in fitted])
        return RobotCover(self.model, names, np.array(moving, dtype=int), a, b, radii, np.zeros(len(moving)), corners)

    def ends(self, poses: Poses) -> tuple[Array, Array]:
        """The ends (M, P, 3) [m] of the segments in the world."""
        R, p = placed_bodies(poses, self.bodies)
        return (R @ self.a[:, :, None])[..., 0] + p, (R @ self.b[:, :, None])[..., 0] + p


Poses = Mapping[int, tuple[Array, Array]]
"""Rotation (M, 3, 3) and position (M, 3) [m] of each body of a model in the world; key -1: the ground."""


def placed_bodies(poses: Poses, bodies: Array) -> tuple[Array, Array]:
    """Rotations (M, P, 3, 3) and positions (M, P, 3) [m] of the bodies (P,) of a model."""
    known, number = np.unique(bodies, return_inverse=True)
    R, p = (np.stack([poses[b][i] for b in known.tolist()], axis=1) for i in (0, 1))
    return R[:, number], p[:, number]
