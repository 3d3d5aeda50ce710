"""Scenes in settings: body tables in a config, a TOML file with such tables, or a URDF or MJCF file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.link_shapes import mjcf_scene, urdf_shapes
from dynamics_backends.rigid_body.geometry.meshes import MeshMissing, cached_mesh
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath, Scene
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, HalfSpace, Mesh, Shape, Sphere
from dynamics_backends.rigid_body.mjcf.source import is_mjcf
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from dynamics_backends.user_input import InputError, parse_toml, read_bounded
from trajopt.collisions.poses import body_poses
from trajopt.config.schema import read_table
from trajopt.config.task import Checked, Checks

Point = tuple[float, float, float]
NEEDED = {
    "sphere": ("radius",),
    "box": ("size",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "half_space": (),
    "mesh": ("file",),
}
"""Required keys of each type of body."""


@dataclass(frozen=True, kw_only=True)
class SceneBody(Checked):
    """A body of a scene.

    name: name in reports. type: shape; a half-space fills z < 0 of its frame. size: edge lengths of a box along x, y, z [m].
    radius: radius of a sphere, cylinder or capsule [m]. length: length of a cylinder or capsule along z [m]. file: file of a
    convex mesh. scale: scale of the mesh. position: origin of the body frame in world coordinates [m]. rotation: orientation
    of the body frame as roll, pitch, yaw [rad]. quaternion: orientation as x, y, z, w, instead of rotation. times: times of
    the offsets; the body is at rest before and after [s]. offsets: displacements at these times, linear in between [m].
    """

    name: str
    type: Literal["sphere", "box", "cylinder", "capsule", "half_space", "mesh"]
    size: Point | None = None
    radius: float | None = None
    length: float | None = None
    file: str | None = None
    scale: float = 1.0
    position: Point = (0.0, 0.0, 0.0)
    rotation: Point | None = None
    quaternion: tuple[float, float, float, float] | None = None
    times: tuple[float, ...] | None = None
    offsets: tuple[Point, ...] | None = None

    def checks(self) -> Checks:
        needed = {
            key: (getattr(self, key) is not None, f"a value, required by the type {self.type}")
            for key in NEEDED[self.type]
        }
        positive = {
            key: (value is None or bool(np.all(np.asarray(value) > 0)), "a positive length [m]")
            for key, value in (("size", self.size), ("radius", self.radius), ("scale", self.scale))
        }
        return {
            **positive,
            "length": (self.length is None or self.length >= 0, "a length [m]"),
            "quaternion": (self.quaternion is None or self.rotation is None, "no rotation: set only one of both"),
            "offsets": ((self.times is None) == (self.offsets is None), "as many times as offsets"),
            **{key: check for key, check in needed.items() if not check[0]},
        }

    def body(self, folder: Path) -> Body:
        """Return the body. folder: folder of mesh files. Raises ValueError with the body's name, also for a missing mesh."""
        path = None if self.times is None or self.offsets is None else BodyPath(self.times, self.offsets)
        return Body(self.name, self._shape(folder), self._rotation(), np.array(self.position), path)

    def _rotation(self) -> Array:
        if self.quaternion is not None:
            return quaternion_matrix(self.quaternion)
        return rpy_matrix((0.0, 0.0, 0.0) if self.rotation is None else self.rotation)

    def _shape(self, folder: Path) -> Shape:
        radius, length = self.radius or 0.0, self.length or 0.0
        match self.type:
            case "sphere":
                return Sphere(radius)
            case "box":
                assert self.size is not None  # see checks
                return Box(self.size)
            case "cylinder":
                return Cylinder(radius, length)
            case "capsule":
                return Capsule(radius, length)
            case "half_space":
                return HalfSpace()
        try:
            return read_mesh(folder / Path(self.file or "").expanduser(), self.scale)
        except MeshMissing as error:
            raise ValueError(f"body {self.name!r}: {error}") from error


def read_mesh(path: Path, scale: float = 1.0) -> Mesh:
    """Read a mesh file as one mesh. Raises MeshMissing."""
    parts = cached_mesh(path)
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    faces = np.concatenate([part.faces + start for part, start in zip(parts, starts, strict=False)])
    return Mesh(scale * np.concatenate([part.vertices for part in parts]), faces, str(path))


def quaternion_matrix(q: Sequence[float]) -> Array:
    """Return the rotation (3, 3) of a quaternion x, y, z, w. Raises ValueError if its norm is not 1."""
    v = np.asarray(q, float)
    norm = float(np.linalg.norm(v))
    if abs(norm - 1.0) > 1e-3:
        raise ValueError(f"the quaternion {tuple(v.tolist())} has norm {norm:.4g}: normalize it")
    x, y, z, w = v / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def load_scene(path: str | Path) -> Scene:
    """Load a scene file: TOML with tables [[body]] of :class:`SceneBody`; a URDF, with its links at neutral joint positions; or
    an MJCF file, from which all fixed bodies that belong to no robot are used.

    Raises FileNotFoundError, ValueError, URDFError, MJCFError, MeshMissing.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"scene file {str(path)!r} does not exist")
    if path.suffix != ".toml":
        return mjcf_scene(path) if is_mjcf(path) else urdf_scene(path)
    try:
        tables = parse_toml(read_bounded(path).decode("utf-8")).get("body", [])
    except ValueError as error:
        raise ValueError(f"the scene {path} is not valid TOML: {error}") from error
    issues: list[str] = []
    settings: list[SceneBody] = []
    if not isinstance(tables, list):
        issues = ["body: write [[body]] above the keys of each body"]
    else:
        settings = [read_table(SceneBody, table, f"body[{i}]", issues) for i, table in enumerate(tables)]
    if issues:
        raise InputError(f"the scene {path}: {'; '.join(issues)}")
    return Scene(tuple(body.body(path.parent) for body in settings), path.stem)


def urdf_scene(path: str | Path) -> Scene:
    """Return the collision shapes of a URDF's links at neutral joint positions. Raises URDFError, ValueError for missing
    meshes."""
    found = urdf_shapes(path, "collision")
    if found.missing:
        raise ValueError(f"{path}: {'; '.join(found.missing)}")
    model = load_urdf(path, base="fixed")
    poses, bodies = body_poses(model, model.neutral()[None]), []
    for i, placed in enumerate(found.placed):
        frame = model.frames[model.frame_id(placed.link)]
        at_R, at_p = (values[0] for values in poses[frame.body])
        R, p = at_R @ frame.R, at_R @ frame.p + at_p
        bodies.append(Body(f"{placed.link} {i}", placed.shape, R @ placed.R, R @ placed.p + p))
    return Scene(tuple(bodies), Path(path).stem)
