"""A robot as capsules on its bodies, placed in the world for batches of configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import PLACEMENT
from dynamics_backends.rigid_body.geometry.covers.cover import Piece
from dynamics_backends.rigid_body.geometry.covers.cover_cache import kept_capsules
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec


@dataclass(frozen=True, eq=False)
class RobotCover:
    """P capsules. links: their names; bodies (P,), -1 for the ground; ends a, b (P, 3) [m] in the internal frames of the bodies;
    radii (P,), and how far each stands out of what it covers, excess (P,) [m]; corners: of what each covers, in the same frames,
    (n, 3) each."""

    model: Model
    links: tuple[str, ...]
    bodies: Array
    a: Array
    b: Array
    radii: Array
    excess: Array
    corners: tuple[Array, ...]

    @classmethod
    def of(cls, model: Model, pieces: Sequence[Piece]) -> RobotCover:
        """Raises UnknownName for a link that the model does not have."""
        frames = [model.frames[model.frame_id(piece.link)] for piece in pieces]
        a, b = (
            np.array([f.R @ end + f.p for f, end in zip(frames, ends, strict=True)]).reshape(-1, 3)
            for ends in ([piece.capsule.a for piece in pieces], [piece.capsule.b for piece in pieces])
        )
        corners = tuple(
            np.unique(piece.triangles.reshape(-1, 3), axis=0) @ f.R.T + f.p
            for f, piece in zip(frames, pieces, strict=True)
        )
        links = tuple(piece.link for piece in pieces)
        bodies = np.array([f.body for f in frames], dtype=int)
        radii, excess = (
            np.array(values) for values in zip(*((p.capsule.radius, p.excess) for p in pieces), strict=True)
        )
        return cls(model, links, bodies, a, b, radii, excess, corners)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """The bodies that carry something."""
        return tuple(sorted({int(b) for b in self.bodies}))

    @cached_property
    def coarse(self) -> RobotCover:
        """This robot with a single capsule around all that a body carries, for bodies that move."""
        moving = [b for b in self.carried if b >= 0]
        corners = tuple(np.concatenate([self.corners[i] for i in np.flatnonzero(self.bodies == b)]) for b in moving)
        fitted = kept_capsules(corners)
        a, b = (np.array([getattr(capsule, end) for capsule in fitted]).reshape(-1, 3) for end in ("a", "b"))
        names, radii = tuple(self.model.body_names[body] for body in moving), np.array([c.radius for c in fitted])
        return RobotCover(self.model, names, np.array(moving, dtype=int), a, b, radii, np.zeros(len(moving)), corners)

    def ends(self, qs: Array, poses: Poses | None = None) -> tuple[Array, Array]:
        """The ends (M, P, 3) [m] of the segments in the world at configurations (M, nq); poses: of the bodies there, if known."""
        R, p = placed_bodies(body_poses(self.model, qs) if poses is None else poses, self.bodies)
        return (R @ self.a[:, :, None])[..., 0] + p, (R @ self.b[:, :, None])[..., 0] + p


Poses = Mapping[int, tuple[Array, Array]]
"""Rotation (M, 3, 3) and place (M, 3) [m] of each body of a model in the world; of the ground under -1."""


def placed_bodies(poses: Poses, bodies: Array) -> tuple[Array, Array]:
    """Rotations (M, P, 3, 3) and places (M, P, 3) [m] of some bodies (P,) of a model."""
    known, number = np.unique(bodies, return_inverse=True)
    R, p = (np.stack([poses[b][i] for b in known.tolist()], axis=1) for i in (0, 1))
    return R[:, number], p[:, number]


def body_poses(model: Model, qs: Array) -> Poses:
    """Where the bodies of a model are at configurations (M, nq)."""
    qs = np.atleast_2d(qs)
    if not set(model.joint_types) - {"revolute", "continuous", "prismatic"}:
        return _chain(model, qs)
    X = run(PLACEMENT, model, {"q": np.ascontiguousarray(qs.T)})["X"]
    R, p = _matrix(X.R, len(qs)), _vector(X.p, len(qs))
    still = np.broadcast_to(np.eye(3), (len(qs), 3, 3)), np.zeros((len(qs), 3))
    return {-1: still} | {b: (R[b], p[b]) for b in range(model.nb)}


def _chain(model: Model, qs: Array) -> Poses:
    """The poses where all joints have one degree of freedom: plain products, in a fraction of the time."""
    M, cos, sin = len(qs), np.cos(qs)[:, :, None], np.sin(qs)[:, :, None]
    poses = {-1: (np.broadcast_to(np.eye(3), (M, 3, 3)), np.zeros((M, 3)))}
    for b, (kind, parent) in enumerate(zip(model.joint_types, model.parent.tolist(), strict=True)):
        R, p = poses[parent]
        columns = np.column_stack([model.placement_R[b], model.placement_p[b]])
        placed = (R.reshape(-1, 3) @ columns).reshape(M, 3, 4)
        R, p = np.ascontiguousarray(placed[:, :, :3]), placed[:, :, 3] + p
        if kind == "prismatic":
            poses[b] = R, p + qs[:, b, None] * R[:, :, 2]
            continue
        c, s, x, y = cos[:, b], sin[:, b], placed[:, :, 0], placed[:, :, 1]
        R[:, :, 0] = c * x + s * y
        R[:, :, 1] = c * y - s * x
        poses[b] = R, p
    return poses


def _vector(v: Vec, count: int) -> Array:
    """(rows, M, 3)."""
    parts = np.broadcast_arrays(v.x, v.y, v.z)
    return np.stack([np.broadcast_to(part, (len(part), count)) for part in parts], axis=-1)


def _matrix(R: Mat, count: int) -> Array:
    """(rows, M, 3, 3)."""
    return np.stack([_vector(column, count) for column in (R.a, R.b, R.c)], axis=-1)
