"""Surfaces of a robot for drawing, from its file or, without shapes, from its kinematic tree.

With the geometry "visual", links are drawn with their visual shapes, or else with their collision shapes; the other geometries
prefer collision shapes. A body with neither is drawn as rods from its joint to the joints of its children and to its farthest
frame, with radius ROD times their length.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import FittedCapsule, fit_capsule
from dynamics_backends.rigid_body.geometry.link_shapes import Purpose, link_shapes
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model

Geometry = Literal["visual", "collision", "capsules"]
Color = tuple[float, float, float, float]
GRAY: Color = (0.72, 0.74, 0.78, 1.0)
ROD = 0.08
"""Radius of a rod, relative to its length."""
SHORT = 1e-3
"""Minimum length of a rod that is drawn [m]."""
TRIANGLES = 100_000
"""Approximate number of triangles of a drawn robot."""


class Surface(NamedTuple):
    """Triangles of a body (-1: the world): vertices (n, 3) [m] in its internal frame, faces (m, 3), and a color with opacity."""

    body: int
    vertices: Array
    faces: Array
    color: Color


class Appearance(NamedTuple):
    """Surfaces of a robot, and sentences about missing meshes."""

    surfaces: tuple[Surface, ...]
    missing: tuple[str, ...]


def appearance(model: Model, geometry: Geometry = "visual", triangles: int = TRIANGLES) -> Appearance:
    """Return the surfaces of a robot: visual shapes, collision shapes, or capsules fitted to the collision shapes.

    Links without these shapes get the other kind, or with capsules those fitted to it; bodies without any shape get rods.
    triangles: approximate number of triangles of the robot. Raises ValueError for an unknown geometry, URDFError or MJCFError for a
    file with invalid shapes, ModuleNotFoundError if a package that reads them is not installed.
    """
    if geometry not in ("visual", "collision", "capsules"):
        raise ValueError(f"geometry = {geometry!r}; known: 'visual', 'collision', 'capsules'")
    placed, missing = _from_file(model, geometry, triangles)
    surfaces = [_on_body(model, shape) for shape in placed]
    for body, rod in rods(model, {s.body for s in surfaces}):
        surfaces.append(Surface(body, *rod.placed("").triangles(), GRAY))
    return Appearance(tuple(surfaces), missing)


def _from_file(model: Model, geometry: Geometry, triangles: int) -> tuple[list[PlacedShape], tuple[str, ...]]:
    """Read the link shapes of the model's file, and sentences about missing meshes; none without a file.

    Links without the requested kind (visual or collision) get the other one. Capsules are fitted to collision shapes.
    """
    if not model.source:
        return [], ()
    names = {frame.name for frame in model.frames if frame.kind == "link"}
    order: tuple[Purpose, Purpose] = ("visual", "collision") if geometry == "visual" else ("collision", "visual")
    found, missing = link_shapes(model.source, order[0], triangles, package_dirs=model.package_dirs)
    bare = names - {shape.link for shape in found}
    if bare:
        found = (*found, *link_shapes(model.source, order[1], triangles, bare, model.package_dirs).placed)
    shapes = [shape for shape in found if shape.link in names]
    if geometry == "capsules":
        shapes = [fit_capsule(shape.triangles().vertices).placed(shape.link) for shape in shapes]
    return shapes, missing


def _on_body(model: Model, shape: PlacedShape) -> Surface:
    """Surface of a link's shape in the frame of its moving body."""
    frame = next(frame for frame in model.frames if frame.kind == "link" and frame.name == shape.link)
    vertices, faces = shape.triangles()
    return Surface(frame.body, vertices @ frame.R.T + frame.p, faces, shape.color or GRAY)


def rods(model: Model, drawn: set[int]) -> list[tuple[int, FittedCapsule]]:
    """Return rods that stand for the bodies not in ``drawn``: (body, capsule in its internal frame).

    They lead from the joint of a body to the joints of its children, and to its farthest frame if that is farther than these, or,
    without both, to its center of mass. Rods not longer than SHORT are omitted.
    """
    found = []
    for body in range(model.nb):
        if body in drawn:
            continue
        ends = [model.placement_p[child] for child in range(model.nb) if model.parent[child] == body]
        tips = [frame.p for frame in model.frames if frame.body == body] or [model.com[body]]
        tip = max(tips, key=np.linalg.norm)
        if np.linalg.norm(tip) > max(map(np.linalg.norm, ends), default=0.0) + SHORT:
            ends.append(tip)
        for end in ends:
            length = float(np.linalg.norm(end))
            if length > SHORT:
                found.append((body, FittedCapsule(np.zeros(3), np.asarray(end, float), ROD * length)))
    return found
