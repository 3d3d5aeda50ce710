"""Images of motions, drawn without a window: several poses of a robot, or single moments of a motion.

Opaque solids hide what is behind them (:mod:`~trajopt.view.raster`); obstacles and ghosts are transparent; paths are drawn on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.shapes import Shape, Sphere
from trajopt.problem.annotations import Annotations
from trajopt.view.motion import ROUND, AnyMotion, Poses, with_annotations
from trajopt.view.raster import Camera, Layer, Solid, blend, corner_normals, render
from trajopt.view.surfaces import Geometry, Surface

VIEW = np.array([1.0, -1.5, 0.7])
"""Direction from the scene to the camera, unless gravity is mostly horizontal (:func:`camera_axes`)."""
FINER = 1.5
"""Supersampling factor against jagged edges."""
MARGIN = 0.05
"""Empty margin as a fraction of the image."""
FLATTEST, STEEPEST = 0.4, 1.0
"""Minimum and maximum height of an image, in widths."""
BRIGHTER = 0.2
"""Blend of robot colors toward white, since many robots are black."""
SEEN_THROUGH = 0.45
"""Opacity of obstacles."""
LATER = 0.004
"""Offset toward the camera [m] per pose, so that later poses cover coinciding earlier ones."""
SAMPLES = 6
"""Number of moments of a motion that determine the camera's field of view."""
BELOW = 0.05
"""Depth of the robots below the ground, as a fraction of the scene size, beyond which no ground is drawn.

With a floor among the annotations, the depth counts as 0.
"""
DOT = 6
"""Radius of a goal's dot [pixels]."""
CELLS = 8.0
"""Minimum number of grid cells of the ground per diagonal of the scene."""
GRID, PATH = (222, 226, 231), (138, 143, 152)
GOAL, FORCE, OBSTACLE = (42, 138, 74), (192, 58, 43), (0.85, 0.54, 0.12)


class Moment(NamedTuple):
    """A motion at one time, by their indices. strength: color strength, from 0 (white) to 1 (full color)."""

    motion: int
    time: int
    strength: float = 1.0


class _Part(NamedTuple):
    """A surface of a robot with its corner normals (n, 3, 3)."""

    surface: Surface
    normals: Array


class Studio:
    """Renders motions with a fixed camera that shows all of them, as they are at SAMPLES moments each.

    width [pixels]: width of the images; the height follows from the scene. missing: sentences about missing meshes. Raises
    ValueError without motions, and if none of them has drawable geometry.
    """

    def __init__(
        self,
        motions: Sequence[AnyMotion],
        annotations: Annotations | None = None,
        geometry: Geometry = "visual",
        width: int = 1050,
    ) -> None:
        if not motions:
            raise ValueError("no motion to show")
        self.motions, self.annotations = list(motions), annotations or Annotations()
        looks = {m.shape_key: m.appearance(geometry) for m in motions}
        self.missing = tuple(dict.fromkeys(sentence for look in looks.values() for sentence in look.missing))
        parts = {
            key: [_Part(s, corner_normals(s.vertices, s.faces)) for s in look.surfaces] for key, look in looks.items()
        }
        self._parts = [parts[m.shape_key] for m in motions]
        if not any(self._parts):
            raise ValueError(
                f"{motions[0].title} has no shapes, and all of its joints are in one place: nothing to draw"
            )
        self._poses = [m.poses() for m in motions]
        axes = camera_axes(motions[0].gravity)
        both = np.vstack([axes, np.eye(3)])
        robots = self._bounds(both)
        margin = ROUND * float(np.linalg.norm(robots[1][3:] - robots[0][3:]))
        low, high = with_annotations(*robots, self.annotations, margin, both)
        self.camera = _fitted_camera(axes, low[:3], high[:3], round(FINER * width))
        self._floor = np.zeros((0, 2, 3))
        if axes[1, 2] > 0.1:
            ground = self.annotations.floor
            level = 0.0 if ground is None else float(ground.p[2])
            lowest = (
                level if ground is not None else min(robots[0][5], 0.0)
            )  # objects below the ground do not remove it
            self._floor = _floor(np.array([*low[3:5], lowest]), high[3:], level)

    def picture(self, moments: Sequence[Moment], forces: bool = False) -> Any:
        """Render moments, all in one picture, to a Pillow image. forces: draw the forces at the moments as lines.

        Moving bodies of the annotations are drawn at the latest moment. Motions with an opacity below 1 are transparent.
        """
        ghosts = [k for k, motion in enumerate(self.motions) if motion.opacity < 1.0]
        layer = render(list(self._robot_solids([m for m in moments if m.motion not in ghosts])), self.camera)
        for k in ghosts:
            ghost = render(list(self._robot_solids([m for m in moments if m.motion == k])), self.camera)
            layer = blend(layer, ghost, self.motions[k].opacity)
        times = [float(self.motions[m.motion].times[m.time]) for m in moments]
        around = list(self._obstacles(max(times, default=0.0)))
        if around:
            layer = blend(layer, render(around, self.camera), SEEN_THROUGH)
        return self._finished(layer, moments, forces, max(times, default=0.0))

    def _robot_solids(self, moments: Sequence[Moment]) -> Iterator[Solid]:
        """Yield the surfaces of the robots at moments; fixed parts of a motion once, and later moments nearer to the camera."""
        rest: set[int] = set()
        for order, (k, i, strength) in enumerate(moments):
            poses, toward = self._poses[k], LATER * order * self.camera.axes[2]
            for part in self._parts[k]:
                body = part.surface.body
                if body < 0 and k in rest:  # draw fixed parts once
                    continue
                R, p = _pose(poses, i, body)
                color = 1.0 - (1.0 if body < 0 else strength) * (1.0 - BRIGHTER) * (
                    1.0 - np.array(part.surface.color[:3])
                )
                vertices = part.surface.vertices @ R.T + (p + toward)
                yield _colored(vertices, part.surface.faces, part.normals, color, R)
            rest.add(k)

    def _obstacles(self, t: float) -> Iterator[Solid]:
        """Yield the spheres and solid bodies of the annotations at t [s]; floors are no solids."""
        for center, radius in self.annotations.spheres:
            yield _placed(Sphere(radius), OBSTACLE, np.eye(3), center)
        for body in self.annotations.solids:
            yield _placed(body.shape, OBSTACLE, body.R, body.places(np.array(t)))

    def _bounds(self, axes: Array) -> tuple[Array, Array]:
        """Return the minimum and maximum coordinates (n) [m] of the robots along axes (n, 3), at SAMPLES moments of each motion."""
        found = []
        for motion, parts, poses in zip(self.motions, self._parts, self._poses, strict=True):
            for i in np.unique(np.linspace(0, len(motion.times) - 1, SAMPLES).round().astype(int)):
                for part in parts:
                    R, p = _pose(poses, i, part.surface.body)
                    at = (axes @ R) @ part.surface.vertices.T + (axes @ p)[:, None]
                    found += [at.min(axis=1), at.max(axis=1)]
        return np.min(found, axis=0), np.max(found, axis=0)

    def _finished(self, layer: Layer, moments: Sequence[Moment], forces: bool, t: float) -> Any:
        """Compose a layer at a time [s] with the ground behind it and lines and goals over it, and scale it to the final size.

        Lines are the paths of all motions, curves of the annotations, and with ``forces`` the forces at the moments.
        """
        from PIL import Image, ImageDraw

        empty = np.isneginf(layer.nearness) & (layer.color.min(axis=2) >= 1.0)
        image = Image.fromarray((255.0 * layer.color + 0.5).astype(np.uint8))
        if len(self._floor):
            ground = Image.new("RGB", image.size, (255, 255, 255))
            self._lines(ImageDraw.Draw(ground), self._floor, GRID, 1)
            image.paste(ground, mask=Image.fromarray(255 * empty.astype(np.uint8)))
        draw = ImageDraw.Draw(image)
        for motion in self.motions:
            for path in motion.paths().values():
                self._lines(draw, np.stack([path[:-1], path[1:]], axis=1), PATH, 2)
        for curve in self.annotations.curves.values():
            self._lines(draw, np.stack([curve[:-1], curve[1:]], axis=1), GOAL, 2)
        for k, i, _ in moments if forces else ():
            arrows = [(at[i], at[i] + along[i]) for at, along in self.motions[k].force_arrows().values()]
            self._lines(draw, np.array(arrows).reshape(-1, 2, 3), FORCE, 4)
        goals = [*self.annotations.goals, *(body.places(np.asarray(t)) for body in self.annotations.targets)]
        for x, y, _ in self.camera.projected(np.reshape(goals, (-1, 3))):
            r = FINER * DOT
            draw.ellipse([x - r, y - r, x + r, y + r], fill=GOAL, outline=(255, 255, 255), width=2)
        size = (round(image.width / FINER), round(image.height / FINER))
        return image.resize(size, Image.Resampling.LANCZOS)

    def _lines(self, draw: Any, segments: Array, color: tuple[int, int, int], width: int) -> None:
        """Draw segments (n, 2, 3) [m]; width [pixels] in the final image."""
        for start, end in self.camera.projected(segments)[..., :2]:
            draw.line([tuple(start), tuple(end)], fill=color, width=round(FINER * width))


def camera_axes(gravity: Array) -> Array:
    """Return the camera's right, up and backward axes as rows (3, 3).

    The vertical of the image is +z, or opposite to gravity if the magnitude of its z component is at most half of its length.
    """
    length = float(np.linalg.norm(gravity))
    up = np.array([0.0, 0.0, 1.0]) if length == 0.0 or abs(gravity[2]) > 0.5 * length else -gravity / length
    to_camera = VIEW / np.linalg.norm(VIEW)
    if abs(up[2]) < 0.5:  # a planar robot with gravity along another axis
        to_camera = np.array([0.3, 0.2, 1.0]) / np.linalg.norm([0.3, 0.2, 1.0])
    right = np.cross(up, to_camera)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(to_camera, right), to_camera])


def _fitted_camera(axes: Array, low: Array, high: Array, width: int) -> Camera:
    """Return the camera for a box with corners low, high (3) [m] along the camera axes. width [pixels]."""
    span = np.maximum(high - low, 0.05)
    aspect = float(np.clip(span[1] / span[0], FLATTEST, STEEPEST))
    height = round(aspect * width / FINER) * FINER
    available = (1.0 - 2.0 * MARGIN) * np.array([width, height])
    return Camera(axes, 0.5 * (low + high)[:2], float((available / span[:2]).min()), width, round(height))


def _floor(low: Array, high: Array, level: float) -> Array:
    """Return segments (n, 2, 3) [m] of a ground grid at the height ``level`` below a box with corners low, high (3) [m].

    None (n = 0) if the box reaches below the ground by more than BELOW times its size.
    """
    size = float(np.linalg.norm(high - low))
    if low[2] < level - BELOW * size:
        return np.zeros((0, 2, 3))
    cell = round_length(size / CELLS)
    first = np.floor((low[:2] - 0.5 * cell) / cell).astype(int)
    last = np.ceil((high[:2] + 0.5 * cell) / cell).astype(int)
    (x0, y0), (x1, y1) = cell * first, cell * last
    along_y = [[(x, y0, level), (x, y1, level)] for x in cell * np.arange(first[0], last[0] + 1)]
    along_x = [[(x0, y, level), (x1, y, level)] for y in cell * np.arange(first[1], last[1] + 1)]
    return np.array(along_y + along_x)


def round_length(length: float) -> float:
    """Return the largest of ..., 0.1, 0.2, 0.5, 1, 2, 5, 10, ... that does not exceed a length."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(max(k * power for k in (1, 2, 5) if k * power <= length * (1.0 + 1e-12)))


def _pose(poses: Poses, i: int, body: int) -> tuple[Array, Array]:
    """Rotation and position of a body at time index i; the identity for the world."""
    return (np.eye(3), np.zeros(3)) if body < 0 else (poses.R[i, body], poses.p[i, body])


def _placed(shape: Shape, color: Sequence[float], R: Array, p: Array) -> Solid:
    """Solid of a shape with rotation R and position p in one color (3,), drawn from both sides."""
    vertices, faces = shape.triangles()
    return _colored(vertices @ R.T + p, faces, corner_normals(vertices, faces), np.asarray(color), R)


def _colored(vertices: Array, faces: Array, normals: Array, color: Array, turn: Array) -> Solid:
    """Solid of triangles in one color (3,); turn: rotation of the normals to world axes."""
    return Solid(vertices, faces, normals, np.broadcast_to(color, (len(faces), 3)), turn)
