"""Expected contact points of an MJCF: the tip of each body without moving children.

The hull of balls stands for a geom.  It is exact for a sphere (one ball), a capsule (two), a box (eight corners) and the convex
hull of a mesh (vertices), and inscribed in a cylinder (points on both rims) and an ellipsoid (six poles); all but the balls of
spheres and capsules have radius zero.  Planes and height fields have no balls.

The *tip* of a body without moving children is its expected contact point.  It is the middle of the lowest balls at the file's
configuration, within FLAT of the body's extent, if they form a sole.  Otherwise it is the middle of the lowest balls among those
at least NEAR of the largest distance from the joint: the foot of a hanging leg, or the outer end of a stretched or upward one.
The middle is that of the box around the balls' centers, along the axes of the body.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.rigid_body.mjcf.elements import Place
from dynamics_backends.rigid_body.mjcf.source import Names, moves, rotation

FLAT = 0.05
"""Height of a sole relative to the body's extent, the largest distance of a center from the joint plus the largest radius."""
NEAR = 0.5
"""Fraction of the largest distance from the joint below which balls are no tip, unless they form a sole."""
WIDE = 0.1
"""Minimum ratio of width to length of a sole, by the singular values of its points."""
RIM = 8
"""Number of points on each rim of a cylinder."""


def collides(m: Any, geom: int) -> bool:
    """True if a geom can touch others: its contype or conaffinity is not zero."""
    return bool(m.geom_contype[geom] or m.geom_conaffinity[geom])


def balls(m: Any, geom: int) -> tuple[np.ndarray, np.ndarray]:
    """Centers (n, 3) [m], in the frame of its body, and radii (n,) [m] of balls whose hull stands for a geom.

    Exact for a sphere (one ball), a capsule (two), a box (corners) and the convex hull of a mesh (vertices); inscribed for a
    cylinder (RIM points on each rim) and an ellipsoid (its six poles). Radius 0 for all but spheres and capsules; no balls for
    planes and height fields.
    """
    import mujoco

    kind, size = mujoco.mjtGeom(int(m.geom_type[geom])).name.removeprefix("mjGEOM_"), m.geom_size[geom]
    R, p = rotation(m.geom_quat[geom]), m.geom_pos[geom]
    points, radius = _points_and_radius(m, geom, kind, size)
    return points @ R.T + p, np.full(len(points), radius)


def _points_and_radius(m: Any, geom: int, kind: str, size: np.ndarray) -> tuple[np.ndarray, float]:
    """Centers (n, 3) [m] in the geom's frame and the radius [m] of its balls; none for planes and height fields."""
    if kind == "SPHERE":
        return np.zeros((1, 3)), float(size[0])
    if kind == "CAPSULE":
        return np.array([[0.0, 0.0, -size[1]], [0.0, 0.0, size[1]]]), float(size[0])
    if kind == "BOX":
        return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * size, 0.0
    if kind == "CYLINDER":
        angles = 2.0 * np.pi * np.arange(RIM) / RIM
        rim = size[0] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.concatenate([np.column_stack([rim, np.full(RIM, z)]) for z in (-size[1], size[1])]), 0.0
    if kind == "ELLIPSOID":
        return np.concatenate([np.diag(size), -np.diag(size)]), 0.0
    if kind in ("MESH", "SDF"):
        mesh = int(m.geom_dataid[geom])
        first, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
        return np.array(m.mesh_vert[first : first + count], dtype=float), 0.0
    return np.zeros((0, 3)), 0.0


def leaf_bodies(m: Any) -> list[int]:
    """Numbers of the bodies with joints that have no descendant bodies with joints, increasing."""
    moving = {int(m.body_weldid[b]) for b in range(m.nbody) if moves(m, b)}
    carry = {int(m.body_weldid[m.body_parentid[b]]) for b in moving if m.body_parentid[b]}
    return sorted(moving - carry)


def tip(m: Any, names: Names, body: int) -> Place | None:
    """Frame, in the body's axes, at the expected contact point of a body of :func:`leaf_bodies`; None if no geom with balls can
    collide.

    It is the middle of the balls that are lowest at the file's configuration if they form a sole, else of the lowest of those far
    from the joint. Geoms of bodies that are rigidly attached count.
    """
    pose, points = body_poses(m), []
    joint = np.array(m.jnt_pos[m.body_jntadr[body]]) if m.body_jntnum[body] else np.zeros(3)
    for geom in range(m.ngeom):
        on = int(m.geom_bodyid[geom])
        if m.body_weldid[on] == body and collides(m, geom):
            R, p = _between(pose, body, on)
            points += [(R @ center + p, radius, geom) for center, radius in zip(*balls(m, geom), strict=True)]
    if not points:
        return None
    centers, radii = np.array([center for center, _, _ in points]), np.array([radius for _, radius, _ in points])
    low = centers @ pose[0][body][2] - radii
    away = np.linalg.norm(centers - joint, axis=1)
    flat = FLAT * (away.max() + radii.max())
    chosen = np.flatnonzero(low <= low.min() + flat)
    if not _wide(centers[chosen]):
        far = away >= NEAR * away.max()
        chosen = np.flatnonzero(far & (low <= low[far].min() + flat))
    geoms = {points[i][2] for i in chosen}
    corners = centers[chosen]
    middle = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    return Place(_name(m, names, body, geoms), body, np.eye(3), middle)


def _wide(points: np.ndarray) -> bool:
    """True if at least three points (n, 3) spread over a surface rather than along a line or about a point."""
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return len(points) > 2 and bool(spread[1] > WIDE * spread[0])


def _name(m: Any, names: Names, body: int, geoms: set[int]) -> str:
    """Name of the only geom if no body, joint or site has that name, else BODY_tip."""
    own = m.geom(min(geoms)).name if len(geoms) == 1 else ""
    taken = {*names.bodies, *names.joints, *names.sites}
    return own if own and own not in taken else f"{names.bodies[body]}_tip"


def body_poses(m: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (nbody, 3, 3) and positions (nbody, 3) [m] of all bodies in the world, at the file's configuration."""
    R, p = np.tile(np.eye(3), (m.nbody, 1, 1)), np.zeros((m.nbody, 3))
    for b in range(1, m.nbody):
        above = int(m.body_parentid[b])
        R[b], p[b] = R[above] @ rotation(m.body_quat[b]), R[above] @ m.body_pos[b] + p[above]
    return R, p


def _between(pose: tuple[np.ndarray, np.ndarray], body: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and position of the body ``other`` in the frame of ``body``; pose: those of all bodies in the world."""
    R, p = pose
    return R[body].T @ R[other], R[body].T @ (p[other] - p[body])
