"""Shapes of bodies, each in its frame: spheres, boxes, cylinders, capsules, half-spaces, meshes.

A shape gives its surface as triangles: vertices (n, 3) [m] and faces (m, 3) of indices. An inscribed polyhedron approximates a
round shape. Mass properties of a solid of uniform density follow from the triangles. With the tetrahedra from the origin to the
triangles (a, b, c), of signed volumes V = det(a, b, c) / 6 and s = a + b + c,

    V_all = sum V,     c = sum V s / (4 V_all),     int x x' = sum V (a a' + b b' + c c' + s s') / 20
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.mass_properties import MassProperties

SEGMENTS = 24
"""Number of edges of the polygon that approximates a circle."""
PICTURE_SIZE = 4.0
"""Edge of the square [m] that represents a half-space in pictures."""


class Triangles(NamedTuple):
    """vertices (n, 3) [m]; faces (m, 3) of vertex indices, counterclockwise when seen from outside."""

    vertices: Array
    faces: Array


class Shape(Protocol):
    """The surface of a body."""

    def triangles(self) -> Triangles:
        """The surface, or an approximation or a part of it, in the shape's frame."""


@dataclass(frozen=True)
class Sphere:
    """A ball around the origin. radius [m]."""

    radius: float

    def triangles(self) -> Triangles:
        """Inscribed polyhedron in the shape's frame."""
        return Capsule(self.radius, 0.0).triangles()


@dataclass(frozen=True)
class Box:
    """A cuboid centered at the origin. size (3): edges along x, y, z [m]."""

    size: tuple[float, float, float]

    def triangles(self) -> Triangles:
        """Surface in the shape's frame, two triangles for each side."""
        corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
        quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
        faces = [corner for a, b, c, d in quads for corner in ((a, b, c), (a, c, d))]
        return Triangles(corners * np.asarray(self.size), np.array(faces))


@dataclass(frozen=True)
class Cylinder:
    """A cylinder centered at the origin, with its axis along z. radius, length [m]."""

    radius: float
    length: float

    def triangles(self) -> Triangles:
        """Inscribed polyhedron, in the shape's frame."""
        h = 0.5 * self.length
        return _revolved([(0.0, -h), (self.radius, -h), (self.radius, h), (0.0, h)])


@dataclass(frozen=True)
class Capsule:
    """All points within ``radius`` of a segment of ``length`` along z, centered at the origin [m]."""

    radius: float
    length: float

    def triangles(self) -> Triangles:
        """Inscribed polyhedron, in the shape's frame."""
        angles = np.linspace(-0.5 * np.pi, 0.0, SEGMENTS // 4 + 1)
        low = [(self.radius * np.cos(a), self.radius * np.sin(a) - 0.5 * self.length) for a in angles]
        return _revolved([*low, *((r, -z) for r, z in reversed(low))])

    @property
    def volume(self) -> float:
        """The volume [m^3]."""
        return np.pi * self.radius**2 * (self.length + 4.0 / 3.0 * self.radius)


@dataclass(frozen=True)
class HalfSpace:
    """All points with z <= 0: a floor, or a wall if it is rotated."""

    def triangles(self) -> Triangles:
        """Square part of the surface, with edges of PICTURE_SIZE [m]."""
        h = 0.5 * PICTURE_SIZE
        corners = np.array([[-h, -h, 0.0], [h, -h, 0.0], [h, h, 0.0], [-h, h, 0.0]])
        return Triangles(corners, np.array([[0, 1, 2], [0, 2, 3]]))


@dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles. vertices (n, 3) [m], faces (m, 3). file: its source, "" if there is none."""

    vertices: Array
    faces: Array
    file: str = ""

    def triangles(self) -> Triangles:
        """Vertices and faces of the mesh."""
        return Triangles(self.vertices, self.faces)


class PlacedShape(NamedTuple):
    """A shape of a link. R (3, 3), p (3) [m]: its frame in the link's. color: red, green, blue, opacity in 0 .. 1, or None."""

    link: str
    shape: Shape
    R: Array
    p: Array
    color: tuple[float, float, float, float] | None = None

    def triangles(self) -> Triangles:
        """The surface in the link's frame."""
        vertices, faces = self.shape.triangles()
        return Triangles(vertices @ self.R.T + self.p, faces)


def _revolved(profile: list[tuple[float, float]]) -> Triangles:
    """The surface of revolution about z of a profile of (radius, z), from bottom to top."""
    angles = 2.0 * np.pi * np.arange(SEGMENTS) / SEGMENTS
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    vertices = [np.column_stack([r * ring, np.full(SEGMENTS, z)]) for r, z in profile]
    here = np.arange(SEGMENTS)
    after = np.roll(here, -1)
    faces = []
    for i in range(len(profile) - 1):
        a, b = i * SEGMENTS, (i + 1) * SEGMENTS
        faces += [np.stack([a + here, a + after, b + after], axis=1), np.stack([a + here, b + after, b + here], axis=1)]
    return _without_degenerate_triangles(Triangles(np.concatenate(vertices), np.concatenate(faces)))


def _without_degenerate_triangles(surface: Triangles) -> Triangles:
    """Remove the triangles of zero area, such as those at the poles."""
    a, b, c = (surface.vertices[surface.faces[:, i]] for i in range(3))
    size = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    return Triangles(surface.vertices, surface.faces[size > 1e-12 * max(size.max(), 1e-300)])


def solid(shape: Shape, mass: float) -> MassProperties:
    """Mass properties of a shape filled with ``mass`` [kg], in its frame; round shapes are approximated by polyhedra.

    All zero for zero mass. Raises ValueError for a surface that encloses no volume.
    """
    vertices, faces = shape.triangles()
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    volumes = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6.0
    total = float(volumes.sum())
    if mass == 0.0:
        return MassProperties(0.0, np.zeros(3), np.zeros((3, 3)))
    if not total > 0.0:
        raise ValueError(f"a {type(shape).__name__} encloses no volume, so that it cannot have a mass of {mass} kg")
    s = a + b + c
    com = volumes @ s / (4.0 * total)
    second = sum(np.einsum("n,ni,nj->ij", volumes, x, x) for x in (a, b, c, s)) / (20.0 * total)
    second = second - np.outer(com, com)
    return MassProperties(mass, com, mass * (np.trace(second) * np.eye(3) - second))
