"""Conversion of shapes to geometries of the package coal: convex meshes as convex hulls, other meshes as triangles."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import RobotCover
from dynamics_backends.rigid_body.geometry.hull import convex_hull
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, HalfSpace, Shape, Sphere


@lru_cache(maxsize=1024)
def _cached_geometry(shape: Any) -> Any:
    """Return the coal geometry of a hashable shape, one object for equal shapes."""
    return _create_geometry(shape)


def geometry_of(shape: Shape) -> Any:
    """Return the coal geometry of a shape; cached."""
    key: Any = shape
    return _cached_geometry(key)


def _create_geometry(shape: Shape) -> Any:
    """Create the coal geometry of a shape: primitives as such, other shapes by :func:`mesh_geometry`."""
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
    """Create the coal geometry of a mesh: its convex hull if the mesh is convex and coal accepts it, else its triangles."""
    coal = require_coal()
    mesh = coal.BVHModelOBBRSS()
    mesh.beginModel(len(faces), len(vertices))
    mesh.addVertices(np.ascontiguousarray(vertices))
    for face in faces.tolist():
        mesh.addTriangle(*vertices[face])
    mesh.endModel()
    if convex_hull(vertices, faces) is None:
        return mesh
    return _hull(mesh) or mesh


def hull_around(shape: Shape) -> Any:
    """Return the convex hull of a non-convex mesh, for fast distance bounds.

    None for other shapes, for flat meshes, and if coal cannot build it.
    """
    mesh = geometry_of(shape)
    if not isinstance(mesh, require_coal().BVHModelOBBRSS):
        return None
    return _hull(mesh) if _is_solid(mesh.vertices()) else None


def _hull(mesh: Any) -> Any:
    """Build the convex hull of a mesh with a volume; None if coal rejects it (at most 255 neighbors per vertex)."""
    if mesh.convex is None:
        try:
            mesh.buildConvexHull(True, "Qt")
        except RuntimeError:
            return None
    return mesh.convex


def is_convex(geometry: Any) -> bool:
    """True if a coal geometry is known to be convex: every shape except a triangle mesh."""
    return not isinstance(geometry, require_coal().BVHModelOBBRSS)


def _is_solid(points: Array) -> bool:
    """True if the hull of points (n, 3) has a volume, as coal requires."""
    away = points - points.mean(axis=0)
    return bool(np.linalg.matrix_rank(away, tol=1e-6 * float(np.abs(away).max(initial=0.0)) * len(away) ** 0.5) == 3)


def pose(R: Array, p: Array) -> Any:
    """Return the coal transformation of a rotation (3, 3) and a translation (3,)."""
    return require_coal().Transform3s(np.ascontiguousarray(R), np.ascontiguousarray(p))


def hull_geometry(points: Array) -> Any:
    """Create the coal geometry of the convex hull of points (n, 3)."""
    from scipy.spatial import ConvexHull

    return mesh_geometry(points, ConvexHull(points).simplices)


@lru_cache(maxsize=64)
def hulls_of(robot: RobotCover) -> tuple[Any, ...]:
    """Return the coal geometry of the convex hull of each piece of a robot cover, in the order of its capsules; cached."""
    return tuple(hull_geometry(points) for points in robot.corners)


def require_coal() -> Any:
    """Import coal. Raises ModuleNotFoundError with the command that installs it."""
    try:
        import coal
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the check with true meshes needs the package coal: pip install 'urdf-trajopt[scene]'", name="coal"
        ) from error
    return coal
