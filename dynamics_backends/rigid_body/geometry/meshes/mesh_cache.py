"""Simplified surfaces, kept on disk: reading a robot's meshes takes seconds, what is drawn of them milliseconds.

Entries are named by the file's path, time and size, by the number of triangles and by how they are simplified, so that a changed
file is read anew; they appear complete or not at all, and a folder that cannot be written only costs the time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends import environment
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.meshes.meshes import Part, load_mesh, simplified, welded
from dynamics_backends.trusted_files import content_of, replace, trusted_folder, user_folder

VERSION = 4
"""The version of how meshes are simplified: entries of another are not read."""
FEWEST = 200
"""No part is cut to fewer triangles."""
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
"""Errors of reading a damaged entry of the cache; the entry is then made again."""
ENOUGH = 1.5
"""A mesh with up to so many times the triangles asked for is left as it is: to cut takes longer than to draw."""


def simplified_mesh(path: Path, triangles: int) -> tuple[Part, ...]:
    """The parts of a mesh file in about ``triangles`` triangles, corners joined. Raises MeshMissing, ModuleNotFoundError."""
    entry = _entry(path, triangles)
    with contextlib.suppress(*UNREADABLE):
        return _read(entry)
    parts = tuple(Part(*welded(part.vertices, part.faces), part.color) for part in load_mesh(path))
    sizes = [len(part.faces) for part in parts]
    most = max(sizes) if sum(sizes) <= ENOUGH * triangles else _level(sizes, triangles)
    fewer = tuple(Part(*simplified(part.vertices, part.faces, most), part.color) for part in parts)
    write_entry(entry, **_arrays(fewer))
    return fewer


def _level(sizes: list[int], total: int) -> int:
    """The largest number that cuts sizes to it so that their sum is at most ``total``: large parts lose, small ones stay."""
    left, count = total, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return max(left // count, FEWEST)
        left, count = left - size, count - 1
    return max(sizes)


def _entry(path: Path, triangles: int) -> Path:
    state = path.stat()
    return cache_entry("meshes", f"{VERSION}\0{path}\0{state.st_mtime_ns}\0{state.st_size}\0{triangles}".encode())


def cache_entry(room: str, *parts: bytes) -> Path:
    """Where arrays are kept that belong to all of the parts; room: the folder in the cache."""
    told = hashlib.sha256()
    for part in parts:
        told.update(part)
        told.update(b"\0" if len(parts) > 1 else b"")
    folder = environment.folder(environment.CACHE_FOLDER) or user_folder()
    return folder / room / f"{told.hexdigest()[:32]}.npz"


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
    """Keep arrays, where that can be done."""
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
