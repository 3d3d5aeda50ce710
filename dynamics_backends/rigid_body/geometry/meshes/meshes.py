"""Mesh files: search for the file of a name in a URDF, reading, and simplification.

A name is a path relative to the URDF, `file://` and a path, or `package://PACKAGE/...`. The search for a package covers the given
``package_dirs``, the folders above the URDF, and the folders in ROS_PACKAGE_PATH and AMENT_PREFIX_PATH (environment variables). It
includes their subfolders of that name. For a partial copy of a package, the search takes the folders above the URDF that occur in
the path after PACKAGE, and looks for the rest of the path below them. The search also finds example-robot-data if it is
installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.urdf.example_robots import ERD_PACKAGE, example_robots_folder

GRAY = "0.5 0.5 0.5 1"
PACKAGE, FILE = "package://", "file://"
WELD = 1e-6
"""Vertices closer than this fraction of a mesh's extent are merged."""


class MeshMissing(LookupError):
    """A mesh file that does not exist or cannot be read; the message contains its name."""


def find_mesh(name: str, folder: Path | None, package_dirs: Sequence[str] = ()) -> Path:
    """The file of a name in a URDF in ``folder``. package_dirs: searched first for packages. Raises MeshMissing."""
    for path in _candidate_paths(name, folder, package_dirs):
        if path.is_file():
            return path
    hint = ""
    if name.startswith(PACKAGE):
        package = name.removeprefix(PACKAGE).partition("/")[0]
        hint = (
            f": give the folder that holds {package!r} as package_dirs, or in the environment variable ROS_PACKAGE_PATH"
        )
    if name.startswith(f"{PACKAGE}{ERD_PACKAGE}/") and example_robots_folder() is None:
        hint = f": pip install {ERD_PACKAGE}"
    raise MeshMissing(f"the mesh {name} was not found{hint}")


def _candidate_paths(name: str, folder: Path | None, package_dirs: Sequence[str]) -> Iterator[Path]:
    if name.startswith(PACKAGE):
        package, _, rest = unquote(name.removeprefix(PACKAGE)).partition("/")
        for place in (*map(Path, package_dirs), *_package_places(folder)):
            yield place / package / rest
            if place.name == package:
                yield place / rest
        parts = Path(rest).parts
        for place in folder.parents if folder is not None else ():
            if place.name in parts[:-1]:
                yield place.joinpath(*parts[parts.index(place.name) + 1 :])
        if package == ERD_PACKAGE and (robots := example_robots_folder()) is not None:
            yield robots.parent / rest
        return
    path = Path(unquote(name.removeprefix(FILE)))
    if path.is_absolute():
        yield path
    elif folder is not None:
        yield folder / path


def _package_places(folder: Path | None) -> Iterator[Path]:
    """Folders that may contain packages or be one."""
    if folder is not None:
        yield from (folder, *folder.parents)
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        for entry in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            yield from (Path(entry), Path(entry) / "share")


class Part(NamedTuple):
    """A piece of a mesh in one color: vertices (n, 3) in the file's units, faces (m, 3), color (red, green, blue, opacity)."""

    vertices: Array
    faces: Array
    color: tuple[float, float, float, float] | None


def load_mesh(path: Path) -> tuple[Part, ...]:
    """The pieces of a mesh file. Raises MeshMissing, and ModuleNotFoundError without trimesh."""
    try:
        import trimesh
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("meshes need the package trimesh: pip install trimesh", name="trimesh") from error
    try:
        pieces: list[Any] = trimesh.load_scene(path, process=False).dump()
        if not pieces and path.suffix.lower() == ".dae":  # trimesh drops triangles with a missing texture file
            pieces = trimesh.load_scene(BytesIO(_plain_collada(path)), file_type="dae", process=False).dump()
        parts = tuple(
            Part(np.asarray(piece.vertices, float), np.asarray(piece.faces, np.int64), _color(piece))
            for piece in pieces
            if len(getattr(piece, "faces", ()))
        )
    except Exception as error:  # the readers of the formats raise various errors
        raise MeshMissing(f"the mesh {path} cannot be read ({type(error).__name__}: {error})") from error
    if not parts or not all(np.isfinite(part.vertices).all() for part in parts):
        raise MeshMissing(f"the mesh {path} holds no triangles, or coordinates that are not finite")
    return parts


def _plain_collada(path: Path) -> bytes:
    """A COLLADA file with gray instead of textures."""
    from xml.etree import ElementTree

    tree = ElementTree.parse(path)
    for parent in list(tree.iter()):
        for child in list(parent):
            kind = child.tag.rpartition("}")[2]
            if kind == "newparam":
                parent.remove(child)
            elif kind == "texture":
                child.tag, child.text = child.tag.replace("texture", "color"), GRAY
                child.attrib.clear()
                del child[:]
    return ElementTree.tostring(tree.getroot())


def _color(piece: Any) -> tuple[float, float, float, float] | None:
    """The main color of a piece, if it defines one."""
    if not piece.visual.defined:
        return None
    r, g, b, a = (
        np.asarray(piece.visual.main_color, float) / 255.0
        if hasattr(piece.visual, "main_color")
        else np.asarray(piece.visual.material.main_color, float) / 255.0
    ).tolist()
    return r, g, b, a


def simplified(vertices: Array, faces: Array, triangles: int) -> tuple[Array, Array]:
    """Reduce a surface to about ``triangles`` triangles (quadric error metrics of M. Garland, P. Heckbert, SIGGRAPH 1997).

    Coincident corners are merged first: many files have separate corners for each triangle, and the surface would break apart.
    Raises ModuleNotFoundError if a reduction is necessary and fast-simplification is not installed.
    """
    if len(faces) <= triangles:
        return vertices, faces
    import fast_simplification

    vertices, faces = welded(vertices, faces)
    if len(faces) <= triangles:
        return vertices, faces
    fewer = 1.0 - triangles / len(faces)
    points, corners = fast_simplification.simplify(
        vertices.astype(np.float32), faces.astype(np.int32), target_reduction=min(fewer, 0.999)
    )
    return points.astype(float), corners.astype(np.int64)


def welded(vertices: Array, faces: Array) -> tuple[Array, Array]:
    """The surface with vertices merged that agree to WELD of its extent, without degenerate triangles."""
    size = float(np.ptp(vertices, axis=0).max())
    if size == 0.0:
        return vertices, faces
    x, y, z = np.round((vertices - vertices.min(axis=0)) / (WELD * size)).astype(np.int64).T
    _, first, inverse = np.unique((x << 42) | (y << 21) | z, return_index=True, return_inverse=True)
    corners = inverse.reshape(-1)[faces]
    a, b, c = corners.T
    return vertices[first], corners[(a != b) & (b != c) & (c != a)]
