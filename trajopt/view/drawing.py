"""Robots and annotations as nodes of a viser scene. A body is a frame with its surfaces as children, so triangles are sent once and
a pose moves the body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Body
from trajopt.problem.annotations import Annotations
from trajopt.view.motion import AnyMotion, Poses
from trajopt.view.surfaces import Geometry, Surface

PATH_COLORS = ((31, 95, 168), (217, 138, 31), (42, 138, 74), (192, 58, 43), (122, 79, 163), (58, 154, 168))
SEEN_THROUGH = 0.55
FORCE_COLOR, GOAL_COLOR, SPHERE_COLOR = (192, 58, 43), (42, 138, 74), (217, 138, 31)


class DrawnRobot:
    """A motion in a viser scene. ``show`` sets the poses of a time index, ``place`` displaces the whole robot.

    missing: sentences about missing meshes.
    """

    def __init__(self, scene: Any, motion: AnyMotion, geometry: Geometry = "visual") -> None:
        self.motion, self._scene = motion, scene
        look = motion.appearance(geometry)
        self.missing = look.missing
        self._root = scene.add_frame(f"/{motion.name}", show_axes=False)
        self._bodies = {
            body: scene.add_frame(f"/{motion.name}/{_node(motion, body)}", show_axes=False)
            for body in sorted({s.body for s in look.surfaces})
        }
        for i, surface in enumerate(look.surfaces):
            self._add(surface, f"/{motion.name}/{_node(motion, surface.body)}/{i}")
        self.set_motion(motion)

    def _add(self, surface: Surface, name: str) -> None:
        """Add a surface to the scene, below the frame of its body."""
        opacity = surface.color[3] * self.motion.opacity
        self._scene.add_mesh_simple(
            name,
            vertices=surface.vertices.astype(np.float32),
            faces=surface.faces.astype(np.uint32),
            color=_bytes(surface.color),
            opacity=None if opacity >= 1.0 else opacity,
            flat_shading=False,
            side="double",
        )

    def set_motion(self, motion: AnyMotion) -> None:
        """Replace the motion by another one of the same robot and name, such as an iterate or a plan, and draw its paths.

        The poses shown do not change before the next :meth:`show`.
        """
        self.motion = motion
        self._poses: Poses = motion.poses()
        self._arrows = motion.force_arrows()
        for i, (name, path) in enumerate(motion.paths().items()):
            draw_path(self._scene, f"/{motion.name}/path of {name}", path, PATH_COLORS[i % len(PATH_COLORS)])

    def set_visible(self, visible: bool) -> None:
        """Show or hide the robot with its paths and forces."""
        self._root.visible = visible

    def place(self, offset: Array) -> None:
        """Displace the robot by an offset (3,) [m]."""
        self._root.position = tuple(map(float, offset))

    def show(self, i: int) -> None:
        """Show poses and forces of the i-th time."""
        quaternions = _quaternions(self._poses.R[i])
        for body, node in self._bodies.items():
            if body >= 0:
                node.wxyz, node.position = quaternions[body], self._poses.p[i, body]
        for name, (at, along) in self._arrows.items():
            self._arrow(f"/{self.motion.name}/force at {name}", at[i], along[i])

    def _arrow(self, name: str, start: Array, along: Array) -> None:
        """Draw a force as a line from ``start`` (3,) to ``start + along`` [m], as a node ``name``."""
        points = np.array([[start, start + along]], dtype=np.float32)
        self._scene.add_line_segments(name, points=points, colors=FORCE_COLOR, thickness=4.0, thickness_units="screen")


def draw_path(scene: Any, name: str, path: Array, color: tuple[int, int, int]) -> None:
    """Draw a line through points (M, 3) [m] as a node ``name`` of a viser scene; nothing for fewer than two points."""
    if len(path) > 1:
        segments = np.stack([path[:-1], path[1:]], axis=1).astype(np.float32)
        scene.add_line_segments(name, points=segments, colors=color, thickness=2.0, thickness_units="screen")


class DrawnAnnotations:
    """Annotations in a viser scene: goals as balls with radius ``size`` [m], spheres, bodies except level floors, targets, curves.

    ``show`` moves bodies and targets, ``place`` displaces all. name: unique name in the scene.
    """

    def __init__(self, scene: Any, annotations: Annotations, size: float, name: str = "around") -> None:
        self._root = scene.add_frame(f"/{name}", show_axes=False)
        for i, goal in enumerate(annotations.goals):
            scene.add_icosphere(f"/{name}/goal {i}", radius=size, color=GOAL_COLOR, position=tuple(map(float, goal)))
        for i, (center, radius) in enumerate(annotations.spheres):
            place = tuple(map(float, center))
            scene.add_icosphere(
                f"/{name}/obstacle {i}", radius=radius, color=SPHERE_COLOR, opacity=SEEN_THROUGH, position=place
            )
        nodes = [
            (body, _add_body(scene, f"{name}/bodies", body, SPHERE_COLOR, SEEN_THROUGH)) for body in annotations.solids
        ]
        nodes += [(body, _add_body(scene, f"{name}/targets", body, GOAL_COLOR, None)) for body in annotations.targets]
        self._moving = [(body, node) for body, node in nodes if body.path is not None]
        for title, curve in annotations.curves.items():
            draw_path(scene, f"/{name}/curves/{title}", curve, GOAL_COLOR)

    def set_visible(self, visible: bool) -> None:
        """Show or hide all annotations."""
        self._root.visible = visible

    def place(self, offset: Array) -> None:
        """Displace all annotations by an offset (3,) [m]."""
        self._root.position = tuple(map(float, offset))

    def show(self, t: float) -> None:
        """Show moving bodies at a time [s]."""
        for body, node in self._moving:
            node.position = tuple(body.places(np.array(t)).tolist())


def draw_ground(scene: Any, annotations: Annotations) -> None:
    """Draw the ground as a grid, at the height of the annotations' floor, or at z = 0 without one."""
    height = 0.0 if annotations.floor is None else float(annotations.floor.p[2])
    scene.add_grid("/ground", width=8.0, height=8.0, cell_size=0.25, section_size=1.0, position=(0.0, 0.0, height))


def _add_body(scene: Any, name: str, body: Body, color: tuple[int, int, int], opacity: float | None) -> Any:
    """Add a body to the scene, at its position at time 0, and return its node; opacity None: opaque."""
    vertices, faces = body.shape.triangles()
    return scene.add_mesh_simple(
        f"/{name}/{body.name}",
        vertices=vertices.astype(np.float32),
        faces=faces.astype(np.uint32),
        color=color,
        opacity=opacity,
        side="double",
        wxyz=tuple(_quaternions(body.R[None])[0].tolist()),
        position=tuple(body.places(np.array(0.0)).tolist()),
    )


def _node(motion: AnyMotion, body: int) -> str:
    """Node name of a body, with "_" in place of "/"; "base" for the world."""
    return "base" if body < 0 else motion.body_names[body].replace("/", "_")


def _bytes(color: Iterable[float]) -> tuple[int, int, int]:
    """Color from fractions 0 .. 1 to bytes; an opacity is dropped."""
    r, g, b, *_ = (round(255 * c) for c in color)
    return r, g, b


def _quaternions(R: Array) -> Array:
    """Convert rotations (n, 3, 3) to quaternions (n, 4), w first."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(R).as_quat())[:, [3, 0, 1, 2]]
