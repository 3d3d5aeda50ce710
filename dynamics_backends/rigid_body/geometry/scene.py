"""A scene: bodies in the world, at rest or moving, the cores for computing distances from them, and their values for files.

A core is a box, a cylinder or a triangle plus a radius. A sphere is a box with three zero edges, a capsule one with two, and a
half-space a box of the size :data:`HALF_SPACE_SIZE`. The cores of a convex mesh are the faces of its hull and an inscribed ball
(:mod:`~dynamics_backends.rigid_body.geometry.hull`). Capsules cover any other mesh
(:mod:`~dynamics_backends.rigid_body.geometry.covers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import covers
from dynamics_backends.rigid_body.geometry.hull import hull_of
from dynamics_backends.rigid_body.geometry.shapes import (
    Box,
    Capsule,
    Cylinder,
    HalfSpace,
    Mesh,
    PlacedShape,
    Shape,
    Sphere,
)

HALF_SPACE_SIZE = 100.0
"""Half the edge [m] of the box that represents a half-space."""
MESH_TOLERANCE, MESH_PIECES = 0.01, 16
"""Tolerance [m] of the capsules that cover a mesh of a scene, and their maximum number."""


class Core(NamedTuple):
    """Shape for computing distances from a body.

    R (3, 3), p (3) [m]: its frame in the body's frame. size (3) [m]: half edges of a box; radius, half length and 0 of a
    cylinder; half the longest edge and the opposite corner (x, y) of a triangle in its frame, with z normal to the face and out
    of the hull. radius [m]: added around it.
    """

    kind: Literal["box", "cylinder", "triangle"]
    R: Array
    p: Array
    size: tuple[float, float, float]
    radius: float


class BodyPath(NamedTuple):
    """Motion of a body: displacements ``offsets`` (K, 3) [m] at increasing ``times`` (K,) [s], with straight lines between.

    The body is at rest before and after.
    """

    times: tuple[float, ...]
    offsets: tuple[tuple[float, float, float], ...]

    def at(self, t: Array) -> Array:
        """Displacement (..., 3) [m] at times (...) [s], linear between the path's times and constant before and after."""
        offsets = np.asarray(self.offsets)
        return np.stack([np.interp(t, self.times, offsets[:, i]) for i in range(3)], axis=-1)


@dataclass(frozen=True, eq=False)
class Body:
    """A body in the world. R (3, 3), p (3) [m]: its frame in the world, without the displacement along its path.

    path: None for a body at rest. Raises ValueError for an R that is no rotation, a position that is not three finite numbers,
    and a path without two or more increasing times and an offset at each.
    """

    name: str
    shape: Shape
    R: Array = field(default_factory=lambda: np.eye(3))
    p: Array = field(default_factory=lambda: np.zeros(3))
    path: BodyPath | None = None

    def __post_init__(self) -> None:
        R, p = np.array(self.R, float), np.array(self.p, float)
        if R.shape != (3, 3) or not np.allclose(R @ R.T, np.eye(3), atol=1e-6) or np.linalg.det(R) < 0:
            raise ValueError(f"body {self.name!r}: R is not a rotation matrix (3, 3)")
        if p.shape != (3,) or not np.isfinite(p).all():
            raise ValueError(f"body {self.name!r}: the position has shape {p.shape}; expected three finite numbers [m]")
        path = self.path
        if path is not None and (
            len(path.times) != len(path.offsets) or len(path.times) < 2 or not (np.diff(path.times) > 0).all()
        ):
            raise ValueError(
                f"body {self.name!r}: a path needs two or more increasing times, and an offset (3) at each"
            )
        object.__setattr__(self, "R", R)
        object.__setattr__(self, "p", p)

    def places(self, t: Array) -> Array:
        """Origin of the body (..., 3) [m] in the world at times (...) [s]."""
        t = np.asarray(t, float)
        return np.broadcast_to(self.p, (*t.shape, 3)) if self.path is None else self.p + self.path.at(t)

    def cores(self) -> tuple[Core, ...]:
        """The cores for computing distances from the body."""
        return cores_of(self.shape)


@dataclass(frozen=True, eq=False)
class Scene:
    """Bodies with unique names. Raises ValueError for duplicate names."""

    bodies: tuple[Body, ...] = ()
    name: str = "scene"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", tuple(self.bodies))
        names = [body.name for body in self.bodies]
        double = [name for name in names if names.count(name) > 1]
        if double:
            raise ValueError(f"two bodies of the scene are called {double[0]!r}: give each a different name")

    @property
    def moves(self) -> bool:
        """True if any body moves."""
        return any(body.path is not None for body in self.bodies)

    def at(self, time: float) -> Scene:
        """Return the scene with all bodies at rest where they are at a time [s]."""
        return replace(
            self, bodies=tuple(replace(body, p=body.places(np.array(time)), path=None) for body in self.bodies)
        )


def cores_of(shape: Shape) -> tuple[Core, ...]:
    """Cores (boxes, cylinders or triangles plus a radius) of a shape in its frame, for computing distances.

    A convex mesh, if a simplified hull is within MESH_TOLERANCE, gives the hull's faces and an inscribed ball; another mesh gives
    the capsules that cover it, other shapes one core.
    Raises TypeError for an unknown shape.
    """
    one, origin = np.eye(3), np.zeros(3)
    match shape:
        case Sphere():
            return (Core("box", one, origin, (0.0, 0.0, 0.0), shape.radius),)
        case Capsule():
            return (Core("box", one, origin, (0.0, 0.0, 0.5 * shape.length), shape.radius),)
        case Box():
            x, y, z = shape.size
            return (Core("box", one, origin, (0.5 * x, 0.5 * y, 0.5 * z), 0.0),)
        case Cylinder():
            return (Core("cylinder", one, origin, (shape.radius, 0.5 * shape.length, 0.0), 0.0),)
        case HalfSpace():
            half = HALF_SPACE_SIZE
            return (Core("box", one, np.array([0.0, 0.0, -half]), (half, half, half), 0.0),)
        case Mesh():
            hull = hull_of(shape.vertices, shape.faces, MESH_TOLERANCE)
            if hull is not None:
                faces = (Core("triangle", face.R, face.p, face.size, hull.radius) for face in hull.faces)
                return (*faces, Core("box", one, hull.center, (0.0, 0.0, 0.0), hull.inside))
            pieces = covers([PlacedShape("", shape, one, origin)], MESH_TOLERANCE, MESH_PIECES)
            return tuple(_capsule_core(piece.capsule.placed("")) for piece in pieces)
    raise TypeError(f"{type(shape).__name__} is not a supported shape of a scene")


def _capsule_core(placed: PlacedShape) -> Core:
    """Core, in the frame of the link, of a placed sphere or capsule, whose own core is at its frame."""
    (core,) = cores_of(placed.shape)
    return core._replace(R=placed.R, p=placed.p)


_PRIMITIVES: dict[str, Any] = {
    "sphere": Sphere,
    "box": Box,
    "cylinder": Cylinder,
    "capsule": Capsule,
    "half_space": HalfSpace,
}


def shape_to_data(shape: Shape) -> dict[str, Any]:
    """The type and the numbers of a shape as plain values for JSON; a shape of a user's class becomes a mesh of its triangles."""
    for name, kind in _PRIMITIVES.items():
        if type(shape) is kind:
            values = {key: np.asarray(value, float).tolist() for key, value in vars(shape).items()}
            return {"type": name, **values}
    vertices, faces = shape.triangles()
    return {"type": "mesh", "vertices": np.asarray(vertices, float).tolist(), "faces": np.asarray(faces).tolist()}


def shape_from_data(data: Mapping[str, Any]) -> Shape:
    """The inverse of :func:`shape_to_data`. Raises ValueError, KeyError or TypeError for other values."""
    values = dict(data)
    name = values.pop("type")
    if name == "mesh":
        vertices, faces = np.array(values["vertices"], float), np.array(values["faces"], int)
        if vertices.shape[1:] != (3,) or faces.shape[1:] != (3,) or not np.isfinite(vertices).all():
            raise ValueError("a mesh needs finite vertices (n, 3) and faces (m, 3)")
        if faces.size and not 0 <= faces.min() <= faces.max() < len(vertices):
            raise ValueError("a face of a mesh refers to a vertex that does not exist")
        return Mesh(vertices, faces)
    if name not in _PRIMITIVES:
        raise ValueError(f"{name!r} is not a shape; known shapes: {', '.join(_PRIMITIVES)}, mesh")
    return _PRIMITIVES[name](**{key: tuple(v) if isinstance(v, list) else float(v) for key, v in values.items()})


def body_to_data(body: Body) -> dict[str, Any]:
    """Fields of a body as plain values for JSON; its path is stored under "way", None for a body at rest."""
    path = (
        None if body.path is None else {"times": list(body.path.times), "offsets": [list(o) for o in body.path.offsets]}
    )
    shape = shape_to_data(body.shape)
    return {"name": body.name, "shape": shape, "R": body.R.tolist(), "p": body.p.tolist(), "way": path}


def body_from_data(data: Mapping[str, Any]) -> Body:
    """The inverse of :func:`body_to_data`. Raises ValueError, KeyError or TypeError for other values."""
    path = data["way"]
    if path is not None:
        x, y, z = np.array(path["offsets"], float).T.tolist()
        path = BodyPath(tuple(map(float, path["times"])), tuple(zip(x, y, z, strict=True)))
    return Body(str(data["name"]), shape_from_data(data["shape"]), np.array(data["R"]), np.array(data["p"]), path)
