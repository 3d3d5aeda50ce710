"""Mesh files: search for the file of a name in a URDF, reading, simplification, and a disk cache of surfaces.

A name is a path relative to the URDF, `file://` and a path, or `package://PACKAGE/...`. The search for a package covers the given
``package_dirs``, the folder of the URDF and those above, and the folders in ROS_PACKAGE_PATH and AMENT_PREFIX_PATH (environment
variables) with their subfolders "share". Each of these may be the package, or contain it. For a partial copy of a package, the
search takes the folders above the URDF that occur in the path after PACKAGE, and looks for the rest of the path below them. The
search also finds example-robot-data if it is installed.

Importing trimesh and reading a robot's meshes takes a second, reading an entry of the cache milliseconds. The name of an entry
depends on the file's path, time and size, on the number of triangles, and on the version of this module, so that a changed file
gets a new entry. Entries are written atomically. A read-only folder costs only time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from dynamics_backends import environment
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.robots import ERD_PACKAGE, example_robots_folder
from dynamics_backends.trusted_files import checked_content, trusted_folder, user_folder, write_checked

GRAY = "0.5 0.5 0.5 1"
PACKAGE, FILE = "package://", "file://"
WELD = 1e-6
"""Spacing of a grid, as a fraction of a mesh's extent; vertices are merged if they are nearest to the same grid point."""


class MeshMissing(LookupError):
    """Raised for a mesh file that does not exist, cannot be read or has no valid triangles; the message contains its name."""


def find_mesh(name: str, folder: Path | None, package_dirs: Sequence[str] = ()) -> Path:
    """Return the existing file of a name in a URDF in ``folder`` (None: a URDF without a file).

    package_dirs: searched first for packages, then the folders of the URDF and of ROS. Raises MeshMissing if there is none, with
    a remedy for names of packages.
    """
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
    """Paths where the file of a name may be, in the order of the search."""
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
    """Folders that may contain packages or be one, in the order of the search."""
    if folder is not None:
        yield from (folder, *folder.parents)
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        for entry in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            yield from (Path(entry), Path(entry) / "share")


class Part(NamedTuple):
    """A piece of a mesh in one color: vertices (n, 3) in the file's units, faces (m, 3).

    color: red, green, blue, opacity in [0, 1]; None if the file defines none.
    """

    vertices: Array
    faces: Array
    color: tuple[float, float, float, float] | None


def load_mesh(path: Path) -> tuple[Part, ...]:
    """The pieces of a mesh file that have triangles.

    Raises MeshMissing if the file cannot be read or has no triangles or numbers that are not finite, ModuleNotFoundError without
    trimesh.
    """
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
    """Content of a COLLADA file with gray instead of textures, and without parameters (newparam)."""
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
    """Main color (red, green, blue, opacity) of a piece, in [0, 1]; None if it defines none."""
    if not piece.visual.defined:
        return None
    colored = piece.visual if hasattr(piece.visual, "main_color") else piece.visual.material
    r, g, b, a = (np.asarray(colored.main_color, float) / 255.0).tolist()
    return r, g, b, a


def simplified(vertices: Array, faces: Array, triangles: int) -> tuple[Array, Array]:
    """Reduce a surface to about ``triangles`` triangles (quadric error metrics of M. Garland, P. Heckbert, SIGGRAPH 1997).

    A surface with at most as many is returned unchanged. Else coincident corners are merged first (:func:`welded`): many files
    have separate corners for each triangle, and the surface would break apart.
    Raises ModuleNotFoundError for a larger surface if fast-simplification is not installed.
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
    """The surface with vertices merged that round to the same point of a grid (WELD), without triangles that lose a corner.

    Unchanged if all vertices coincide.
    """
    size = float(np.ptp(vertices, axis=0).max())
    if size == 0.0:
        return vertices, faces
    x, y, z = np.round((vertices - vertices.min(axis=0)) / (WELD * size)).astype(np.int64).T
    _, first, inverse = np.unique((x << 42) | (y << 21) | z, return_index=True, return_inverse=True)
    corners = inverse.reshape(-1)[faces]
    a, b, c = corners.T
    return vertices[first], corners[(a != b) & (b != c) & (c != a)]


VERSION = 4
"""Version of this module; entries of other versions are ignored."""
MIN_TRIANGLES = 200
"""Minimum number of triangles of a simplified part."""
SIMPLIFY_ABOVE = 1.5
"""A mesh with at most this multiple of the requested triangles is not simplified: simplifying would take longer than drawing."""


def cached_mesh(path: Path) -> tuple[Part, ...]:
    """:func:`~dynamics_backends.rigid_body.geometry.meshes.load_mesh` with a disk cache; raises the same errors."""
    try:
        entry = _entry(path, "all")
    except OSError:  # load_mesh names the file
        return load_mesh(path)
    return _cached_mesh(entry, path)


@lru_cache(maxsize=512)
def _cached_mesh(entry: Path, path: Path) -> tuple[Part, ...]:
    """Parts of a mesh file, stored in a cache entry, and cached in memory."""
    return _parts(stored(entry, lambda: _arrays(load_mesh(path))))


def simplified_mesh(path: Path, triangles: int) -> tuple[Part, ...]:
    """Parts of a mesh file with coincident vertices merged, reduced to about ``triangles`` triangles in all; with a disk cache.

    Not reduced up to SIMPLIFY_ABOVE times as many; a part is not reduced below MIN_TRIANGLES. Raises OSError if the file does not
    exist, MeshMissing if it cannot be read, ModuleNotFoundError without trimesh or fast-simplification.
    """

    def fewer() -> dict[str, Any]:
        """Arrays of the simplified parts."""
        parts = [Part(*welded(part.vertices, part.faces), part.color) for part in cached_mesh(path)]
        sizes = [len(part.faces) for part in parts]
        most = max(sizes) if sum(sizes) <= SIMPLIFY_ABOVE * triangles else _level(sizes, triangles)
        return _arrays([Part(*simplified(part.vertices, part.faces, most), part.color) for part in parts])

    return _parts(stored(_entry(path, triangles), fewer))


def _level(sizes: list[int], total: int) -> int:
    """Limit on the sizes that reduces their sum to at most about ``total``: large parts shrink, small ones do not.

    It is at least MIN_TRIANGLES, and the largest size if no limit is needed.
    """
    left, count = total, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return max(left // count, MIN_TRIANGLES)
        left, count = left - size, count - 1
    return max(sizes)


def _entry(path: Path, triangles: int | str) -> Path:
    """Cache file of a mesh file in its present state, simplified to ``triangles`` ("all": not simplified)."""
    state = path.stat()
    return cache_entry("meshes", f"{VERSION}\0{path}\0{state.st_mtime_ns}\0{state.st_size}\0{triangles}".encode())


def cache_entry(kind: str, *parts: bytes) -> Path:
    """Return the path of the cache file for a key made of all parts. kind: subfolder of the cache."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
        digest.update(b"\0" if len(parts) > 1 else b"")
    folder = environment.folder(environment.CACHE_FOLDER) or user_folder()
    return folder / kind / f"{digest.hexdigest()[:32]}.npz"


def stored(entry: Path, compute: Callable[[], dict[str, Any]]) -> Mapping[str, Array]:
    """Return the arrays of a cache entry; if it is missing or damaged, those of ``compute``, which are written to it.

    They are not written if the folder is not writable or not trusted.
    """
    content = checked_content(entry)
    if content is not None:
        with np.load(io.BytesIO(content)) as data:
            return dict(data)
    arrays, file = compute(), io.BytesIO()
    np.savez(file, **arrays)
    with contextlib.suppress(OSError):
        trusted_folder(entry.parent)
        write_checked(entry, file.getvalue())
    return arrays


def _parts(data: Mapping[str, Array]) -> tuple[Part, ...]:
    """Parts of the arrays of a cache entry."""
    count = int(data["count"])
    return tuple(Part(data[f"v{i}"], data[f"f{i}"], tuple(data[f"c{i}"].tolist()) or None) for i in range(count))


def _arrays(parts: Sequence[Part]) -> dict[str, Array]:
    """Arrays of a cache entry: the number of parts, and vertices, faces and color of each."""
    arrays: dict[str, Any] = {"count": np.array(len(parts))}
    for i, part in enumerate(parts):
        arrays |= {f"v{i}": part.vertices, f"f{i}": part.faces, f"c{i}": np.array(part.color or ())}
    return arrays
