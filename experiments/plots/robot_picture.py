"""A picture of the robot itself: five poses along a motion in one image.

The triangles of all poses are projected along one direction, shaded by the angle of their normals to a lamp at the camera, and
painted from the farthest to the nearest (the painter's algorithm).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from experiments.plots.canvas import GRAY, GREEN, ORANGE, figure
from experiments.view.shown import Shown
from trajopt.view.motion import Motion, body_poses, paths
from trajopt.view.surfaces import Geometry, appearance

POSES = 5
TRIANGLES = 5_000
"""Of a robot in one pose: more are not seen in a picture of this size."""
VIEW = np.array([1.0, -1.5, 0.7])
"""From what is looked at to the camera."""
AMBIENT = 0.45
"""The brightness of a triangle that the lamp does not reach."""
FAINT = 0.35
"""The opacity of the first pose; that of the last is 1."""
WIDTH = 7.0  # [in]


class _Painted(NamedTuple):
    """Triangles on the picture's plane (n, 3, 2) [m], their depths (n,), colors (n, 4)."""

    corners: Array
    depth: Array
    colors: Array


def draw_poses(path: Path, shown: Shown, geometry: Geometry = "visual") -> tuple[str, ...]:
    """Write the picture of the first motion; returns sentences about meshes that were not found."""
    from matplotlib.collections import PolyCollection

    motion = shown.motions[0]
    look = appearance(motion.model, geometry, TRIANGLES)
    axes3 = camera(motion.model.gravity)
    times = np.linspace(motion.times[0], motion.times[-1], POSES)
    poses = body_poses(motion.model, motion.at(times).q)
    parts = []
    for i in range(POSES):
        strength = FAINT + (1.0 - FAINT) * i / (POSES - 1)
        for s in look.surfaces:
            if s.body < 0 and i:  # what does not move is drawn once
                continue
            R, p = (np.eye(3), np.zeros(3)) if s.body < 0 else (poses.R[i, s.body], poses.p[i, s.body])
            parts.append(_painted((s.vertices @ R.T + p)[s.faces], s.color, 1.0 if s.body < 0 else strength, axes3))
    painted = _Painted(*(np.concatenate(a) for a in zip(*parts, strict=True)))
    order = np.argsort(painted.depth)
    flat = painted.corners.reshape(-1, 2)
    low, high = flat.min(axis=0), flat.max(axis=0)
    width, height = np.maximum(high - low, 0.05)
    title = f"{motion.model.name}: poses at {', '.join(f'{t:.2g}' for t in times)} s"
    with figure(path, 1, 1, WIDTH, float(np.clip(WIDTH * height / width, 2.5, 7.0)) + 0.5, title) as axes:
        axis = axes[0, 0]
        colors = painted.colors[order]
        corners: Any = painted.corners[
            order
        ]  # one array, which matplotlib takes as it is; a list takes three times as long
        axis.add_collection(PolyCollection(corners, facecolors=colors, edgecolors=colors, linewidths=0.2))
        _draw_paths(axis, motion, axes3)
        _draw_marks(axis, shown, axes3)
        axis.set_aspect("equal")
        axis.autoscale_view()
        axis.set_axis_off()
    return look.missing


def camera(gravity: Array) -> Array:
    """Rows (3, 3): the picture's right, its up, and the direction to the camera; up is against gravity."""
    length = float(np.linalg.norm(gravity))
    up = np.array([0.0, 0.0, 1.0]) if length == 0.0 or abs(gravity[2]) > 0.5 * length else -gravity / length
    to_camera = VIEW / np.linalg.norm(VIEW)
    if abs(up[2]) < 0.5:  # a planar robot that hangs along another axis
        to_camera = np.array([0.3, 0.2, 1.0]) / np.linalg.norm([0.3, 0.2, 1.0])
    right = np.cross(up, to_camera)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(to_camera, right), to_camera])


def _painted(corners: Array, color: tuple[float, float, float, float], strength: float, axes3: Array) -> _Painted:
    """corners (n, 3, 3) [m] in the world."""
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    size = np.maximum(np.linalg.norm(normals, axis=1), 1e-300)
    light = np.abs(normals @ axes3[2]) / size  # files do not agree about which side is outside
    shade = AMBIENT + (1.0 - AMBIENT) * light
    lit = np.clip(shade[:, None] * (0.25 + 0.75 * np.asarray(color[:3])), 0.0, 1.0)
    faded = 1.0 - strength * (1.0 - lit)  # toward white: opaque triangles hide what lies behind them
    seen = corners @ axes3.T
    return _Painted(seen[:, :, :2], seen[:, :, 2].mean(axis=1), np.column_stack([faded, np.ones(len(faded))]))


def _draw_paths(axis: Any, motion: Motion, axes3: Array) -> None:
    for path in paths(motion).values():
        seen = path @ axes3.T
        axis.plot(seen[:, 0], seen[:, 1], color=GRAY, linewidth=1.0)


def _draw_marks(axis: Any, shown: Shown, axes3: Array) -> None:
    from matplotlib.patches import Circle

    for goal in shown.marks.goals:
        x, y, _ = axes3 @ goal
        axis.plot([x], [y], "o", color=GREEN, markersize=6)
    for center, radius in shown.marks.spheres:
        x, y, _ = axes3 @ center
        axis.add_patch(Circle((x, y), radius, facecolor=ORANGE, alpha=0.45, edgecolor=ORANGE))
