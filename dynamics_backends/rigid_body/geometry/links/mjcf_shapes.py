"""The shapes of bodies in an MJCF: collision geoms and visible geoms.

A geom with a nonzero `contype` or `conaffinity` takes part in collisions. A geom is visible if MuJoCo's viewer shows it by default:
in the groups 0 to 2, and not transparent. Trees without a joint form the scene around the robot; all other bodies are the robot.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.geometry.links.urdf_shapes import MIN_TRIANGLES, Color, LinkShapes, Purpose
from dynamics_backends.rigid_body.geometry.meshes.meshes import simplified
from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import (
    Box,
    Capsule,
    Cylinder,
    HalfSpace,
    Mesh,
    PlacedShape,
    Shape,
    Sphere,
    Triangles,
)
from dynamics_backends.rigid_body.mjcf.contact_points import ContactPoint, body_poses, collides, contact_points
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, moves, rotation

SHOWN_GROUPS = (0, 1, 2)
"""The groups of geoms that MuJoCo's viewer shows."""
UNKNOWN = "has the shape {kind}, for which there is no distance function"


def mjcf_shapes(
    source: str | os.PathLike[str],
    purpose: Purpose = "visual",
    triangles: int | None = None,
    links: Collection[str] | None = None,
) -> LinkShapes:
    """Read the shapes of the robot's bodies in an MJCF file or text; as :func:`~.urdf_shapes.urdf_shapes`. Raises MJCFError."""
    m, names = _read(source)
    of_robot = [g for g in range(m.ngeom) if _is_robot_body(m, int(m.geom_bodyid[g])) and _serves(m, g, purpose)]
    chosen = [g for g in of_robot if links is None or names.bodies[m.geom_bodyid[g]] in links]
    share = None if triangles is None else max(triangles // max(len(chosen), 1), MIN_TRIANGLES)
    placed, missing = [], []
    for g in chosen:
        shape, link = _shape(m, g, share), names.bodies[m.geom_bodyid[g]]
        if shape is None:
            missing.append(f"geom {names.geoms[g]!r} {UNKNOWN.format(kind=_kind(m, g))}: {link} lacks it")
        else:
            placed.append(PlacedShape(link, shape, rotation(m.geom_quat[g]), np.array(m.geom_pos[g]), _color(m, g)))
    return LinkShapes(tuple(placed), tuple(missing))


def mjcf_scene(source: str | os.PathLike[str]) -> Scene:
    """The collision geoms of the bodies that no joint moves, without those of a robot.

    Raises MJCFError, and ValueError for a shape without a distance function.
    """
    m, names = _read(source)
    R, p = body_poses(m)
    bodies = []
    for g in range(m.ngeom):
        b = int(m.geom_bodyid[g])
        if _is_robot_body(m, b) or not collides(m, g):
            continue
        shape = _shape(m, g, None)
        if shape is None:
            raise ValueError(f"{names.robot}: geom {names.geoms[g]!r} {UNKNOWN.format(kind=_kind(m, g))}: remove it")
        bodies.append(Body(names.geoms[g], shape, R[b] @ rotation(m.geom_quat[g]), R[b] @ m.geom_pos[g] + p[b]))
    return Scene(tuple(bodies), names.robot)


def mjcf_contact_points(source: str | os.PathLike[str]) -> tuple[ContactPoint, ...]:
    """The contact points of an MJCF's moving collision geoms. Raises MJCFError."""
    return contact_points(*_read(source))


def _read(source: str | os.PathLike[str]) -> tuple[Any, Names]:
    simulated = compiled(source).simulated
    return simulated, Names(simulated, source)


def _is_robot_body(m: Any, body: int) -> bool:
    """True if a body belongs to a tree with joints."""
    root = int(m.body_rootid[body])
    return body > 0 and any(int(m.body_rootid[b]) == root for b in _jointed(m))


def _jointed(m: Any) -> Iterator[int]:
    return (b for b in range(m.nbody) if moves(m, b))


def _serves(m: Any, geom: int, purpose: Purpose) -> bool:
    if purpose == "collision":
        return collides(m, geom)
    return int(m.geom_group[geom]) in SHOWN_GROUPS and _color(m, geom)[3] > 0.0


def _color(m: Any, geom: int) -> Color:
    material = int(m.geom_matid[geom])
    r, g, b, a = np.clip(m.mat_rgba[material] if material >= 0 else m.geom_rgba[geom], 0.0, 1.0).tolist()
    return r, g, b, a


def _kind(m: Any, geom: int) -> str:
    import mujoco

    return mujoco.mjtGeom(int(m.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def _shape(m: Any, geom: int, triangles: int | None) -> Shape | None:
    """The shape in the geom's frame; None for height fields and signed distance functions."""
    a, b, c = m.geom_size[geom].tolist()
    match _kind(m, geom):
        case "plane":
            return HalfSpace()
        case "sphere":
            return Sphere(a)
        case "capsule":
            return Capsule(a, 2.0 * b)
        case "cylinder":
            return Cylinder(a, 2.0 * b)
        case "box":
            return Box((2.0 * a, 2.0 * b, 2.0 * c))
        case "ellipsoid":
            vertices, faces = Sphere(1.0).triangles()
            return Mesh(vertices * [a, b, c], faces)
        case "mesh":
            return _mesh(m, int(m.geom_dataid[geom]), triangles)
    return None


def _mesh(m: Any, mesh: int, triangles: int | None) -> Mesh:
    first, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
    face, faces = int(m.mesh_faceadr[mesh]), int(m.mesh_facenum[mesh])
    surface = Triangles(
        np.array(m.mesh_vert[first : first + count], dtype=float), np.array(m.mesh_face[face : face + faces], dtype=int)
    )
    if triangles is not None and faces > triangles:
        surface = Triangles(*simplified(*surface, triangles))
    return Mesh(*surface)
