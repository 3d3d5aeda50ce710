"""Conversion of shapes and bodies to plain values for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, HalfSpace, Mesh, Shape, Sphere

_PRIMITIVES: dict[str, Any] = {
    "sphere": Sphere,
    "box": Box,
    "cylinder": Cylinder,
    "capsule": Capsule,
    "half_space": HalfSpace,
}


def shape_to_data(shape: Shape) -> dict[str, Any]:
    """The type and the numbers of a shape; a shape of a user's class becomes a mesh of its triangles."""
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
    shape: Shape = _PRIMITIVES[name](
        **{key: tuple(v) if isinstance(v, list) else float(v) for key, v in values.items()}
    )
    return shape


def body_to_data(body: Body) -> dict[str, Any]:
    """The fields of a body as plain values."""
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
