"""Collisions by another hand: true shapes of links and bodies in the package coal, without capsules and without derivatives.

Along a motion the least distance is
found without asking for every distance at every time: within a step no point of a link moves farther than a bound, so that a pair
whose last distance exceeds the least known one by more than it can have lost since is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.robot_cover import body_poses
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.true_shapes import geometry_of, require_coal

RATE = 1000.0
"""Checks in a second of motion [1/s]."""


class LeastDistance(NamedTuple):
    """distance [m], negative: depth; link and body (or other link) that come so close, and when [s]."""

    distance: float
    link: str
    body: str
    time: float

    def __str__(self) -> str:
        what = f"{1e3 * self.distance:.1f} mm between" if self.distance >= 0 else f"{-1e3 * self.distance:.1f} mm deep:"
        return f"{what} {self.link} and {self.body} at {self.time:.3f} s"


class _Part(NamedTuple):
    """A shape of a link: its name, the body of the model that carries it, its pose there, coal's geometry, and the radius of a
    ball about the body's origin that holds it."""

    link: str
    body: int
    R: Array
    p: Array
    geometry: Any
    radius: float


class MeshCheck:
    """shapes: of the robot's links. own: pairs of bodies of the robot that may touch each other (-1: the ground).

    Raises ModuleNotFoundError without coal.
    """

    def __init__(
        self, model: Model, shapes: Iterable[PlacedShape], scene: Scene, own: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.coal = require_coal()
        self.model, self.scene = model, scene
        self.parts = [self._part(placed) for placed in shapes]
        self.bodies = [geometry_of(body.shape) for body in scene.bodies]
        movable = [i for i, part in enumerate(self.parts) if part.body >= 0]
        self.pairs = [(i, o) for i in movable for o in range(len(self.bodies))]
        self.own = [
            (i, j)
            for near, far in own
            for i, a in enumerate(self.parts)
            for j, b in enumerate(self.parts)
            if a.body == far and b.body == near
        ]
        self._request, self._result = self.coal.DistanceRequest(), self.coal.DistanceResult()
        self._rest = [self._pose(body.R, body.p) for body in scene.bodies]

    def _part(self, placed: PlacedShape) -> _Part:
        frame = self.model.frames[self.model.frame_id(placed.link)]
        R, p = frame.R @ placed.R, frame.R @ placed.p + frame.p
        corners = placed.shape.triangles().vertices @ R.T + p
        size = float(np.linalg.norm(corners, axis=1).max())
        return _Part(placed.link, frame.body, R, p, geometry_of(placed.shape), size)

    def _pose(self, R: Array, p: Array) -> Any:
        return self.coal.Transform3s(np.ascontiguousarray(R), np.ascontiguousarray(p))

    # -- one configuration ----------------------------------------------------------------------------------------------
    def nearest(self, q: Array, time: float = 0.0) -> LeastDistance:
        """The least distance at a configuration (nq,)."""
        return self.along(np.asarray(q, float)[None], np.array([time]))

    # -- a motion -------------------------------------------------------------------------------------------------------
    def along(self, qs: Array, times: Array) -> LeastDistance:
        """The least distance along configurations (M, nq) at times (M,) [s]; nothing to check: infinite."""
        poses = body_poses(self.model, qs)
        R, p = (np.stack([poses[part.body][i] for part in self.parts], axis=1) for i in (0, 1))
        moved = self._moved(R, p)
        own_R, own_p = np.array([part.R for part in self.parts]), np.array([part.p for part in self.parts])
        p = (R @ own_p[:, :, None])[..., 0] + p
        R = R @ own_R
        pairs = [*self.pairs, *((i, -1 - j) for i, j in self.own)]
        best = LeastDistance(np.inf, "", "", 0.0)
        if not pairs:
            return best
        floor = np.full(len(pairs), -np.inf)
        places = [body.places(times) for body in self.scene.bodies]
        travel = self._travel(pairs, moved, places)
        for k in range(len(qs)):
            if k:
                floor -= travel[k - 1]
            for n in np.flatnonzero(floor < best.distance):
                i, o = pairs[n]
                a = self._pose(R[k, i], p[k, i])
                if o >= 0:
                    b, other = self._body_pose(o, places[o][k]), self.bodies[o]
                else:
                    b, other = self._pose(R[k, -1 - o], p[k, -1 - o]), self.parts[-1 - o].geometry
                floor[n] = self._distance(self.parts[i].geometry, a, other, b)
                if floor[n] < best.distance:
                    name = self.scene.bodies[o].name if o >= 0 else self.parts[-1 - o].link
                    best = LeastDistance(float(floor[n]), self.parts[i].link, name, float(times[k]))
        return best

    def _moved(self, R: Array, p: Array) -> Array:
        """How far (M - 1, parts) any point of a part can move in a step: by the way of its body's origin and its turn."""
        sizes = np.array([part.radius for part in self.parts])
        turn = np.sqrt(((R[1:] - R[:-1]) ** 2).sum(axis=(-1, -2)))
        return np.linalg.norm(p[1:] - p[:-1], axis=-1) + turn * sizes

    def _travel(self, pairs: Sequence[tuple[int, int]], moved: Array, places: Sequence[Array]) -> Array:
        steps = [np.linalg.norm(np.diff(place, axis=0), axis=1) for place in places]
        return np.stack([moved[:, i] + (steps[o] if o >= 0 else moved[:, -1 - o]) for i, o in pairs], axis=1)

    def _body_pose(self, o: int, place: Array) -> Any:
        body = self.scene.bodies[o]
        return self._rest[o] if body.way is None else self._pose(body.R, place)

    def _distance(self, a: Any, a_pose: Any, b: Any, b_pose: Any) -> float:
        self._result.clear()
        return float(self.coal.distance(a, a_pose, b, b_pose, self._request, self._result))
