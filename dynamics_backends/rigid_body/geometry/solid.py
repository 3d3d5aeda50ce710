"""Mass properties of a solid of uniform density, from the triangles of its surface.

With the tetrahedra from the origin to the triangles (a, b, c), of signed volumes V = det(a, b, c) / 6 and s = a + b + c,

    V_all = sum V,     c = sum V s / (4 V_all),     int x x' = sum V (a a' + b b' + c c' + s s') / 20
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.rigid_body.geometry.shapes import Shape
from dynamics_backends.rigid_body.model.mass_properties import MassProperties


def solid(shape: Shape, mass: float) -> MassProperties:
    """The mass properties of a shape filled with ``mass`` [kg], in its frame; round shapes are approximated by polyhedra.

    Raises ValueError for a surface that encloses no volume.
    """
    vertices, faces = shape.triangles()
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    volumes = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6.0
    total = float(volumes.sum())
    if mass == 0.0:
        return MassProperties(0.0, np.zeros(3), np.zeros((3, 3)))
    if not total > 0.0:
        raise ValueError(f"a {type(shape).__name__} encloses no volume, so that it cannot have a mass of {mass} kg")
    s = a + b + c
    com = volumes @ s / (4.0 * total)
    second = sum(np.einsum("n,ni,nj->ij", volumes, x, x) for x in (a, b, c, s)) / (20.0 * total)
    second = second - np.outer(com, com)
    return MassProperties(mass, com, mass * (np.trace(second) * np.eye(3) - second))
