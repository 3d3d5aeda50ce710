"""Loads of a robot: bodies with mass that are added to the body of a frame, and the mass properties of solids.

Mass properties of a solid of uniform density follow from the triangles of its surface. With the tetrahedra from the origin to the
triangles (a, b, c), of signed volumes V = det(a, b, c) / 6 and s = a + b + c,

    V_all = sum V,     c = sum V s / (4 V_all),     int x x' = sum V (a a' + b b' + c c' + s s') / 20
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.shapes import Shape
from dynamics_backends.rigid_body.model.mass_properties import MassProperties, composite
from dynamics_backends.rigid_body.model.model import Frame, Model


def with_load(model: Model, name: str, frame: str, R: Array, p: Array, load: MassProperties) -> Model:
    """Return a model with a load whose frame ``name`` is placed at R (3, 3), p (3) [m] in a frame of the model.

    load: mass properties in the load's frame. Raises UnknownName for an unknown frame, ValueError for a frame fixed to the ground,
    or an existing name.
    """
    at = model.frames[model.frame_id(frame)]
    if at.body < 0:
        raise ValueError(
            f"{frame!r} is fixed to the ground and cannot carry {name!r}: name a frame of a link that moves"
        )
    if name in {known.name for known in model.frames}:
        raise ValueError(f"{model.name} has a frame named {name!r} already: choose another name for the load")
    placed_R, placed_p = at.R @ R, at.R @ p + at.p
    mass, com, inertia = (np.array(values) for values in (model.mass, model.com, model.inertia))
    b = at.body
    whole = composite([MassProperties(float(mass[b]), com[b], inertia[b]), load.moved(placed_R, placed_p)])
    mass[b], com[b], inertia[b] = whole
    frames = (*model.frames, Frame(name, b, placed_R, placed_p))
    return replace(model, mass=mass, com=com, inertia=inertia, frames=frames)


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
