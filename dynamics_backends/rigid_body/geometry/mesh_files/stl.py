"""STL files, binary or text: triangles, each with corners of its own.

A binary file is 80 bytes of anything, the number n of triangles, and for each a normal, three corners, and two bytes (some writers
put a color there, which is not read); so it has 84 + 50 n bytes. Text is lines `vertex x y z`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.mesh_files.parts import NotRead, Part

HEAD = 84
TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("color", "<u2")])
VERTEX = re.compile(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)")


def read_stl(path: Path) -> tuple[Part, ...]:
    """The one part of a file. Raises NotRead, OSError."""
    data = path.read_bytes()
    corners = _binary(data) if _is_binary(data) else _text(data)
    if not len(corners):
        raise NotRead(f"{path} holds no triangles")
    return (Part(corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3), None),)


def _is_binary(data: bytes) -> bool:
    return len(data) >= HEAD and len(data) == HEAD + TRIANGLE.itemsize * int.from_bytes(data[80:HEAD], "little")


def _binary(data: bytes) -> Array:
    """Corners (n, 3, 3)."""
    return np.frombuffer(data, TRIANGLE, offset=HEAD)["corners"].astype(float)


def _text(data: bytes) -> Array:
    """Corners (n, 3, 3)."""
    if not data.lstrip().startswith(b"solid"):
        raise NotRead("neither a binary nor a text STL file")
    found = VERTEX.findall(data)
    if len(found) % 3:
        raise NotRead(f"{len(found)} corners are no triangles")
    return np.array(found, dtype=float).reshape(-1, 3, 3)
