"""The shapes of links in a robot file: elements <visual> or <collision> of a URDF, visible or collision geoms of an MJCF.

A geom with a nonzero `contype` or `conaffinity` takes part in collisions. A geom is visible if MuJoCo's viewer shows it by default:
in the groups 0 to 2, and not transparent. Trees without a joint form the scene around the robot; all other bodies are the robot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.geometry.meshes import (
    MeshMissing,
    cached_mesh,
    find_mesh,
    simplified,
    simplified_mesh,
)
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
from dynamics_backends.rigid_body.mjcf.contact_points import body_poses, collides
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, is_mjcf, moves, rotation
from dynamics_backends.rigid_body.urdf.xml_source import Element, is_text, read_xml

Purpose = Literal["visual", "collision"]
Color = tuple[float, float, float, float]
MIN_TRIANGLES = 200
"""Minimum number of triangles of a simplified mesh."""
NAMED = 3
"""Maximum number of messages about missing meshes; one more message counts the others."""


class LinkShapes(NamedTuple):
    """placed: the shapes of the selected links, in the order of the file.

    missing: messages about meshes that were not found or not readable, and about geoms of unknown shape.
    """

    placed: tuple[PlacedShape, ...]
    missing: tuple[str, ...]


def urdf_shapes(
    source: str | os.PathLike[str],
    purpose: Purpose = "visual",
    triangles: int | None = None,
    links: Collection[str] | None = None,
    package_dirs: Sequence[str] = (),
) -> LinkShapes:
    """Read the shapes in a URDF file or text; meshes need the package trimesh.

    triangles: approximate total number of triangles after simplification, shared by file size; None: meshes remain unchanged.
    links: the selected links, default all. package_dirs: folders that contain packages of meshes.

    A missing mesh file is named once, together with the links that use it; beyond NAMED files, only their number is reported.
    Raises URDFError for wrong elements, ModuleNotFoundError if trimesh (or fast-simplification for ``triangles``) is required and
    not installed.
    """
    root = read_xml(source)
    folder = None if is_text(source) else Path(source).resolve().parent
    materials = {m.string("name"): _color_of(m) for m in root.all("material")}
    selected = [link for link in root.all("link") if links is None or link.string("name") in links]
    elements = [(link.string("name"), element) for link in selected for element in link.all(purpose)]
    triangle_limits = (
        None
        if triangles is None
        else _triangle_limits([element for _, element in elements], folder, triangles, package_dirs)
    )
    placed: list[PlacedShape] = []
    missing: dict[str, list[str]] = {}
    for name, element in elements:
        geometry, color = element.required("geometry"), _color(element, materials)
        try:
            shapes = _shapes(geometry, folder, triangle_limits, package_dirs)
        except MeshMissing as reason:
            missing.setdefault(str(reason), []).append(name)
            continue
        p, R = element.origin()
        placed += [PlacedShape(name, shape, R, p, own or color) for shape, own in shapes]
    sentences = [f"{reason}: {', '.join(dict.fromkeys(links))} lacks it" for reason, links in missing.items()]
    if len(sentences) > NAMED:
        sentences[NAMED:] = [f"{len(sentences) - NAMED} more meshes were not found"]
    return LinkShapes(tuple(placed), tuple(sentences))


def _triangle_limits(
    elements: Sequence[Element], folder: Path | None, triangles: int, package_dirs: Sequence[str]
) -> dict[Path, int]:
    """The number of triangles for each mesh file of the elements, at least MIN_TRIANGLES, for this approximate total.

    The mesh files of a robot usually have the same format, so that their sizes indicate the number of triangles in each.
    """
    sizes: list[tuple[Path, int]] = []
    for element in elements:
        mesh = element.required("geometry").first("mesh")
        with contextlib.suppress(MeshMissing, OSError):
            if mesh is not None:
                path = find_mesh(mesh.string("filename"), folder, package_dirs)
                sizes.append((path, path.stat().st_size))
    total = max(sum(size for _, size in sizes), 1)
    return {path: max(triangles * size // total, MIN_TRIANGLES) for path, size in sizes}


def _shapes(
    geometry: Element, folder: Path | None, triangle_limits: Mapping[Path, int] | None, package_dirs: Sequence[str]
) -> list[tuple[Shape, Color | None]]:
    """The shapes of one element, each with its color in the mesh file, None for others. triangle_limits: triangles per mesh file;
    None: no limit. Raises URDFError for an unknown shape, MeshMissing for a mesh that is not found or not readable.
    """
    for tag, read in _READERS.items():
        element = geometry.first(tag)
        if element is not None:
            return [(read(element), None)]
    mesh = geometry.first("mesh")
    if mesh is None:
        known = ", ".join(f"<{tag}>" for tag in (*_READERS, "mesh"))
        raise geometry.error(f"it contains no known shape: {known}")
    path, scale = find_mesh(mesh.string("filename"), folder, package_dirs), mesh.vector("scale", (1, 1, 1))
    parts = (
        cached_mesh(path)
        if triangle_limits is None
        else simplified_mesh(path, triangle_limits.get(path, MIN_TRIANGLES))
    )
    turn = -1 if np.prod(scale) < 0.0 else 1  # a mirrored mesh is inside out
    return [(Mesh(part.vertices * scale, part.faces[:, ::turn], str(path)), part.color) for part in parts]


_READERS: dict[str, Callable[[Element], Shape]] = {
    "box": lambda e: Box(tuple(e.vector("size", (0, 0, 0)).tolist())),
    "cylinder": lambda e: Cylinder(e.number("radius"), e.number("length")),
    "sphere": lambda e: Sphere(e.number("radius")),
    "capsule": lambda e: Capsule(e.number("radius"), e.number("length")),
}


def _color(element: Element, materials: dict[str, Color | None]) -> Color | None:
    """Color of an element's material, or of the robot's material of that name; None if neither defines one."""
    material = element.first("material")
    if material is None:
        return None
    return _color_of(material) or materials.get(material.attributes.get("name", ""))


def _color_of(material: Element) -> Color | None:
    """Color (red, green, blue, opacity) of a material, clipped to [0, 1], gray without numbers; None if it has no <color>."""
    color = material.first("color")
    if color is None:
        return None
    r, g, b, a = np.clip(color.vector("rgba", (0.7, 0.7, 0.7, 1.0)), 0.0, 1.0).tolist()
    return r, g, b, a


SHOWN_GROUPS = (0, 1, 2)
"""The groups of geoms that MuJoCo's viewer shows by default."""
UNKNOWN = "has the shape {kind}, for which there is no distance function"


def mjcf_shapes(
    source: str | os.PathLike[str],
    purpose: Purpose = "visual",
    triangles: int | None = None,
    links: Collection[str] | None = None,
) -> LinkShapes:
    """Read the shapes of the robot's bodies in an MJCF file or text; arguments as for :func:`urdf_shapes`.

    triangles: divided equally among the geoms, at least MIN_TRIANGLES for a mesh. A geom of unknown shape is left out, with a
    message. Raises MJCFError for a wrong file.
    """
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
            placed.append(
                PlacedShape(link, shape, rotation(m.geom_quat[g]), np.array(m.geom_pos[g]), _geom_color(m, g))
            )
    return LinkShapes(tuple(placed), tuple(missing))


def mjcf_scene(source: str | os.PathLike[str]) -> Scene:
    """The scene of an MJCF file or text: a body at rest for each collision geom of the world and of trees without joints.

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


def _read(source: str | os.PathLike[str]) -> tuple[Any, Names]:
    """MuJoCo's model of an MJCF file or text, and the names of its elements. Raises MJCFError for a wrong file."""
    simulated = compiled(source).simulated
    return simulated, Names(simulated, source)


def _is_robot_body(m: Any, body: int) -> bool:
    """True if a body belongs to a tree with joints; False for the world."""
    root = int(m.body_rootid[body])
    return body > 0 and any(int(m.body_rootid[b]) == root for b in _jointed(m))


def _jointed(m: Any) -> Iterator[int]:
    """Numbers of the bodies with joints, and of bodies rigidly joined to them."""
    return (b for b in range(m.nbody) if moves(m, b))


def _serves(m: Any, geom: int, purpose: Purpose) -> bool:
    """True if a geom collides (purpose "collision"), or is shown by MuJoCo's viewer and not transparent ("visual")."""
    if purpose == "collision":
        return collides(m, geom)
    return int(m.geom_group[geom]) in SHOWN_GROUPS and _geom_color(m, geom)[3] > 0.0


def _geom_color(m: Any, geom: int) -> Color:
    """Color of a geom's material if it has one, else its own, clipped to [0, 1]."""
    material = int(m.geom_matid[geom])
    r, g, b, a = np.clip(m.mat_rgba[material] if material >= 0 else m.geom_rgba[geom], 0.0, 1.0).tolist()
    return r, g, b, a


def _kind(m: Any, geom: int) -> str:
    """MuJoCo's name of a geom's shape in lower case, such as "box"."""
    import mujoco

    return mujoco.mjtGeom(int(m.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def _shape(m: Any, geom: int, triangles: int | None) -> Shape | None:
    """Shape in the geom's frame; None for height fields and signed distance functions.

    An ellipsoid becomes a mesh; a mesh is reduced to about ``triangles`` triangles unless that is None.
    """
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
    """Mesh of MuJoCo's model, reduced to about ``triangles`` triangles if it has more; None: unchanged."""
    first, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
    face, faces = int(m.mesh_faceadr[mesh]), int(m.mesh_facenum[mesh])
    surface = Triangles(
        np.array(m.mesh_vert[first : first + count], dtype=float), np.array(m.mesh_face[face : face + faces], dtype=int)
    )
    if triangles is not None and faces > triangles:
        surface = Triangles(*simplified(*surface, triangles))
    return Mesh(*surface)


def link_shapes(
    source: str | os.PathLike[str],
    purpose: Purpose = "visual",
    triangles: int | None = None,
    links: Collection[str] | None = None,
    package_dirs: Sequence[str] = (),
) -> LinkShapes:
    """Read the shapes of a URDF or MJCF file or text; arguments as for :func:`urdf_shapes`. An MJCF does not need package_dirs.

    Raises URDFError or MJCFError for wrong elements, ModuleNotFoundError if trimesh, mujoco or fast-simplification is required
    and not installed.
    """
    if is_mjcf(source):
        return mjcf_shapes(source, purpose, triangles, links)
    return urdf_shapes(source, purpose, triangles, links, package_dirs)
