"""What a mesh file holds."""

from __future__ import annotations

from typing import NamedTuple

from dynamics_backends.protocol import Array

Color = tuple[float, float, float, float]
"""Red, green, blue, opacity in 0 .. 1."""


class Part(NamedTuple):
    """A piece of a mesh in one color: vertices (n, 3) in the file's units, faces (m, 3)."""

    vertices: Array
    faces: Array
    color: Color | None


class NotRead(ValueError):
    """A file that holds what a reader does not know; a more general one may."""
