"""The shapes of links in a URDF: elements <visual> and <collision>."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.geometry.meshes.mesh_cache import cached_mesh, simplified_mesh
from dynamics_backends.rigid_body.geometry.meshes.meshes import MeshMissing, find_mesh
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, Mesh, PlacedShape, Shape, Sphere
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from dynamics_backends.rigid_body.urdf.xml_source import Element, is_text, read_xml

Purpose = Literal["visual", "collision"]
Color = tuple[float, float, float, float]
MIN_TRIANGLES = 200
"""Minimum number of triangles of a simplified mesh."""
NAMED = 3
"""Maximum number of missing meshes in a message; it counts the others."""


class LinkShapes(NamedTuple):
    """placed: the shapes of all links, in the order of the file. missing: messages about meshes not found or not readable."""

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

    A missing mesh file is named once, together with the links that use it; beyond a few files, only their number is reported.
    Raises URDFError for wrong elements, ModuleNotFoundError if trimesh is required and not installed.
    """
    root = read_xml(source)
    folder = None if is_text(source) else Path(source).resolve().parent
    materials = {m.string("name"): _color_of(m) for m in root.all("material")}
    selected = [link for link in root.all("link") if links is None or link.string("name") in links]
    elements = [(link.string("name"), element) for link in selected for element in link.all(purpose)]
    shares = (
        None if triangles is None else _shares([element for _, element in elements], folder, triangles, package_dirs)
    )
    placed: list[PlacedShape] = []
    missing: dict[str, list[str]] = {}
    for name, element in elements:
        geometry, color = element.required("geometry"), _color(element, materials)
        try:
            shapes = _shapes(geometry, folder, shares, package_dirs)
        except MeshMissing as reason:
            missing.setdefault(str(reason), []).append(name)
            continue
        p, rpy = element.origin()
        placed += [PlacedShape(name, shape, rpy_matrix(rpy), p, own or color) for shape, own in shapes]
    sentences = [f"{reason}: {', '.join(dict.fromkeys(links))} lacks it" for reason, links in missing.items()]
    if len(sentences) > NAMED:
        sentences[NAMED:] = [f"{len(sentences) - NAMED} more meshes were not found"]
    return LinkShapes(tuple(placed), tuple(sentences))


def _shares(
    elements: Sequence[Element], folder: Path | None, triangles: int, package_dirs: Sequence[str]
) -> dict[Path, int]:
    """The number of triangles for each mesh file of the elements, for this total.

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
    geometry: Element, folder: Path | None, shares: Mapping[Path, int] | None, package_dirs: Sequence[str]
) -> list[tuple[Shape, Color | None]]:
    """The shapes of one element, each with its color in the mesh file. shares: triangles per mesh file; None: no limit."""
    for tag, read in _READERS.items():
        element = geometry.first(tag)
        if element is not None:
            return [(read(element), None)]
    mesh = geometry.first("mesh")
    if mesh is None:
        known = ", ".join(f"<{tag}>" for tag in (*_READERS, "mesh"))
        raise geometry.error(f"it contains no known shape: {known}")
    path, scale = find_mesh(mesh.string("filename"), folder, package_dirs), mesh.vector("scale", (1, 1, 1))
    parts = cached_mesh(path) if shares is None else simplified_mesh(path, shares.get(path, MIN_TRIANGLES))
    turn = -1 if np.prod(scale) < 0.0 else 1  # a mirrored mesh is inside out
    return [(Mesh(part.vertices * scale, part.faces[:, ::turn], str(path)), part.color) for part in parts]


_READERS: dict[str, Callable[[Element], Shape]] = {
    "box": lambda e: Box(tuple(e.vector("size", (0, 0, 0)).tolist())),
    "cylinder": lambda e: Cylinder(e.number("radius"), e.number("length")),
    "sphere": lambda e: Sphere(e.number("radius")),
    "capsule": lambda e: Capsule(e.number("radius"), e.number("length")),
}


def _color(element: Element, materials: dict[str, Color | None]) -> Color | None:
    material = element.first("material")
    if material is None:
        return None
    return _color_of(material) or materials.get(material.attributes.get("name", ""))


def _color_of(material: Element) -> Color | None:
    color = material.first("color")
    if color is None:
        return None
    r, g, b, a = np.clip(color.vector("rgba", (0.7, 0.7, 0.7, 1.0)), 0.0, 1.0).tolist()
    return r, g, b, a
