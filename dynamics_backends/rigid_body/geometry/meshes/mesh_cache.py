"""A disk cache of surfaces: importing trimesh and reading a robot's meshes takes a second, reading an entry takes milliseconds.

The name of an entry depends on the file's path, time and size, on the number of triangles, and on the version of this module. A
changed file therefore gets a new entry. Entries are written atomically. A read-only folder costs only time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends import environment
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.meshes.meshes import Part, load_mesh, simplified, welded
from dynamics_backends.trusted_files import content_of, replace, trusted_folder, user_folder

VERSION = 4
"""Version of this module; entries of other versions are ignored."""
MIN_TRIANGLES = 200
"""Minimum number of triangles of a simplified part."""
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of reading a damaged entry of the cache, which is then replaced."""
SIMPLIFY_ABOVE = 1.5
"""A mesh with at most this multiple of the requested triangles is not simplified: simplifying would take longer than drawing."""


def cached_mesh(path: Path) -> tuple[Part, ...]:
    """:func:`~dynamics_backends.rigid_body.geometry.meshes.meshes.load_mesh` with a disk cache; raises the same errors."""
    try:
        entry = _entry(path, "all")
    except OSError:  # load_mesh names the file
        return load_mesh(path)
    return _cached_mesh(entry, path)


@lru_cache(maxsize=512)
def _cached_mesh(entry: Path, path: Path) -> tuple[Part, ...]:
    with contextlib.suppress(*UNREADABLE):
        return _read(entry)
    parts = load_mesh(path)
    write_entry(entry, **_arrays(parts))
    return parts


def simplified_mesh(path: Path, triangles: int) -> tuple[Part, ...]:
    """The parts of a mesh file, welded and cut to about ``triangles`` triangles. Raises MeshMissing, ModuleNotFoundError."""
    entry = _entry(path, triangles)
    with contextlib.suppress(*UNREADABLE):
        return _read(entry)
    parts = tuple(Part(*welded(part.vertices, part.faces), part.color) for part in cached_mesh(path))
    sizes = [len(part.faces) for part in parts]
    most = max(sizes) if sum(sizes) <= SIMPLIFY_ABOVE * triangles else _level(sizes, triangles)
    fewer = tuple(Part(*simplified(part.vertices, part.faces, most), part.color) for part in parts)
    write_entry(entry, **_arrays(fewer))
    return fewer


def _level(sizes: list[int], total: int) -> int:
    """The largest limit on the sizes that makes their sum at most ``total``: large parts shrink, small ones do not."""
    left, count = total, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return max(left // count, MIN_TRIANGLES)
        left, count = left - size, count - 1
    return max(sizes)


def _entry(path: Path, triangles: int | str) -> Path:
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


def read_entry(entry: Path) -> Mapping[str, Array]:
    """The arrays of an entry that no other user could have written. Raises one of UNREADABLE."""
    content = content_of(entry)
    if content is None:
        raise FileNotFoundError(entry)
    with np.load(io.BytesIO(content)) as data:
        return dict(data)


def _read(entry: Path) -> tuple[Part, ...]:
    data = read_entry(entry)
    count = int(data["count"])
    return tuple(Part(data[f"v{i}"], data[f"f{i}"], tuple(data[f"c{i}"].tolist()) or None) for i in range(count))


def write_entry(entry: Path, **arrays: Any) -> None:
    """Write arrays to the cache, if its folder is writable."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    with contextlib.suppress(OSError):
        trusted_folder(entry.parent)
        replace(entry, content.getvalue())


def _arrays(parts: tuple[Part, ...]) -> dict[str, Array]:
    arrays: dict[str, Any] = {"count": np.array(len(parts))}
    for i, part in enumerate(parts):
        arrays |= {f"v{i}": part.vertices, f"f{i}": part.faces, f"c{i}": np.array(part.color or ())}
    return arrays
