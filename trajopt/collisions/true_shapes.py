"""Conversion of shapes to geometries of the package coal.

Spheres, capsules, boxes, cylinders and half-spaces become the geometries of the same kind, convex meshes their convex hulls, if
coal can build them, and other meshes surfaces of triangles. Such a surface has no interior: a body inside it that touches no
triangle is at a positive distance, and two overlapping surfaces are at distance 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import RobotCover
from dynamics_backends.rigid_body.geometry.hull import convex_hull
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, HalfSpace, Shape, Sphere


def geometry_of(shape: Shape) -> Any:
    """Return the coal geometry of a shape, one cached object for equal shapes; a mesh is equal only to itself.

    Raises ModuleNotFoundError without coal, and TypeError for a shape that is not hashable.
    """
    key: Any = shape
    return _cached_geometry(key)


@lru_cache(maxsize=1024)
def _cached_geometry(shape: Any) -> Any:
    """Create the coal geometry of a shape: a primitive as such, any other shape by :func:`mesh_geometry` of its triangles.

    The latest 1024 are cached.
    """
    coal = require_coal()
    match shape:
        case Sphere():
            return coal.Sphere(shape.radius)
        case Capsule():
            return coal.Capsule(shape.radius, shape.length)
        case Box():
            return coal.Box(*shape.size)
        case Cylinder():
            return coal.Cylinder(shape.radius, shape.length)
        case HalfSpace():
            return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)
    vertices, faces = shape.triangles()
    return mesh_geometry(np.asarray(vertices, float), np.asarray(faces))


def mesh_geometry(vertices: Array, faces: Array) -> Any:
    """Create the coal geometry of a mesh, vertices (n, 3) [m] and faces (m, 3) of vertex indices.

    The convex hull if the mesh is convex (vertices well inside its hull make it non-convex), not flat, and coal can build the hull;
    else the surface of triangles.
    """
    coal = require_coal()
    mesh = coal.BVHModelOBBRSS()
    mesh.beginModel(len(faces), len(vertices))
    mesh.addVertices(np.ascontiguousarray(vertices))
    mesh.addTriangles(np.ascontiguousarray(faces, dtype=np.int64))
    mesh.endModel()
    if convex_hull(vertices, faces) is None:
        return mesh
    return _hull(mesh) or mesh


def hull_around(shape: Shape) -> Any:
    """Return the coal geometry of the convex hull of a non-convex mesh, for fast distance bounds.

    None for primitives, convex meshes and flat meshes, and if coal cannot build the hull.
    """
    mesh = geometry_of(shape)
    if not isinstance(mesh, require_coal().BVHModelOBBRSS):
        return None
    return _hull(mesh) if _is_solid(mesh.vertices()) else None


def _hull(mesh: Any) -> Any:
    """Return the convex hull of a coal mesh, built once and stored in the mesh; its points must not be in one plane.

    None if coal cannot build it, as for a vertex with more than 255 neighbors.
    """
    if mesh.convex is None:
        try:
            mesh.buildConvexHull(True, "Qt")
        except RuntimeError:
            return None
    return mesh.convex


def is_convex(geometry: Any) -> bool:
    """True if a coal geometry is known to be convex: any geometry except a surface of triangles."""
    return not isinstance(geometry, require_coal().BVHModelOBBRSS)


def _is_solid(points: Array) -> bool:
    """True if the hull of points (n, 3) has a volume, as coal requires.

    The RMS distance from the best plane must exceed 1e-6 times the largest coordinate relative to the mean of the points.
    """
    away = points - points.mean(axis=0)
    return bool(np.linalg.matrix_rank(away, tol=1e-6 * float(np.abs(away).max(initial=0.0)) * len(away) ** 0.5) == 3)


def pose(R: Array, p: Array) -> Any:
    """Return the coal transformation of a rotation (3, 3) and a translation (3,)."""
    return require_coal().Transform3s(np.ascontiguousarray(R), np.ascontiguousarray(p))


def hull_geometry(points: Array) -> Any:
    """Create the coal geometry of the convex hull of points (n, 3), by :func:`mesh_geometry` of the hull's vertices and triangles.

    Raises SciPy's QhullError for points in one plane.
    """
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    number = np.full(len(points), -1)
    number[hull.vertices] = np.arange(len(hull.vertices))
    return mesh_geometry(points[hull.vertices], number[hull.simplices])


@lru_cache(maxsize=64)
def hulls_of(robot: RobotCover) -> tuple[Any, ...]:
    """Return :func:`hull_geometry` of the points of each piece of a robot cover, in the order of its capsules; cached.

    The points are in the internal frame of the piece's body.
    """
    return tuple(hull_geometry(points) for points in robot.corners)


def require_coal() -> Any:
    """Import coal and return the module. Raises ModuleNotFoundError, with the command that installs it, if it is missing."""
    try:
        import coal
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the check with true meshes needs the package coal: pip install 'urdf-trajopt[scene]'", name="coal"
        ) from error
    return coal
