"""Capsules that cover the bodies of a robot, placed in the world for batches of configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers.cover import Piece
from dynamics_backends.rigid_body.geometry.covers.cover_cache import cached_capsules
from dynamics_backends.rigid_body.model.model import Model


@dataclass(frozen=True, eq=False)
class RobotCover:
    """P capsules. links: their names. bodies (P,): body numbers, -1 for the ground. a, b (P, 3) [m]: the ends of their segments, in
    the internal frames of the bodies. radii (P,) [m]. excess (P,) [m]: the protrusion of each capsule from the covered shape.
    corners: the covered points of each capsule in the same frames, (n, 3) each.
    """

    model: Model
    links: tuple[str, ...]
    bodies: Array
    a: Array
    b: Array
    radii: Array
    excess: Array
    corners: tuple[Array, ...]

    @classmethod
    def from_pieces(cls, model: Model, pieces: Sequence[Piece]) -> RobotCover:
        """The cover made of pieces. Raises UnknownName for a link that the model does not have."""
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
        """The bodies that carry a capsule."""
        return tuple(sorted({int(b) for b in self.bodies}))

    @cached_property
    def coarse(self) -> RobotCover:
        """Cover of the robot with a single capsule for each moving body."""
        moving = [b for b in self.carried if b >= 0]
        corners = tuple(np.concatenate([self.corners[i] for i in np.flatnonzero(self.bodies == b)]) for b in moving)
        fitted = cached_capsules(corners)
        a, b = (np.array([getattr(capsule, end) for capsule in fitted]).reshape(-1, 3) for end in ("a", "b"))
        names, radii = tuple(self.model.body_names[body] for body in moving), np.array([c.radius for c in fitted])
        return RobotCover(self.model, names, np.array(moving, dtype=int), a, b, radii, np.zeros(len(moving)), corners)

    def ends(self, poses: Poses) -> tuple[Array, Array]:
        """The ends (M, P, 3) [m] of the segments in the world."""
        R, p = placed_bodies(poses, self.bodies)
        return (R @ self.a[:, :, None])[..., 0] + p, (R @ self.b[:, :, None])[..., 0] + p


Poses = Mapping[int, tuple[Array, Array]]
"""Rotation (M, 3, 3) and position (M, 3) [m] of each body of a model in the world; key -1: the ground."""


def placed_bodies(poses: Poses, bodies: Array) -> tuple[Array, Array]:
    """Rotations (M, P, 3, 3) and positions (M, P, 3) [m] of the bodies (P,) of a model."""
    known, number = np.unique(bodies, return_inverse=True)
    R, p = (np.stack([poses[b][i] for b in known.tolist()], axis=1) for i in (0, 1))
    return R[:, number], p[:, number]
