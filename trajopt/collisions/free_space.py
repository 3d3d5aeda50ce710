"""Collision test of configurations: capsules first, then true shapes for overlapping capsules.

A capsule covers its link, so a pair of capsule and core without overlap is collision-free. For an overlapping pair, the package
coal compares the convex hull of the piece with the true body; without coal, the capsules decide.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import hulls_of, pose, require_coal


class FreeSpace:
    """Collision test of configurations, with a scene and between links.

    pairs: robot and scene. margin: minimum distance [m]. exact: use true shapes; default: if coal is installed.
    """

    def __init__(self, pairs: CollisionPairs, margin: float = 0.0, exact: bool | None = None) -> None:
        self.pairs, self.margin = pairs, margin
        self.exact = find_spec("coal") is not None if exact is None else exact

    def touches(self, qs: Array, times: Array | None = None) -> bool:
        """True if a pair is closer than the margin at any of the configurations (M, nq).

        By true shapes if ``exact``, else by capsules. times: (M,) [s], of the moving bodies of the scene; default 0.
        """
        qs = np.atleast_2d(qs)
        times = np.zeros(len(qs)) if times is None else times
        gaps = self.pairs.gaps(qs, times, self.margin)
        close = np.argwhere(gaps < self.margin)
        if not len(close):
            return False
        if not self.exact:
            return True
        true = TruePieces(self.pairs, qs, times)
        deepest = np.argsort(gaps[tuple(close.T)], kind="stable")
        return any(true.distance(*(int(n) for n in close[c])) < self.margin for c in deepest)

    def line_touches(self, a: Array, b: Array, step: float) -> bool:
        """True if the straight line from a (excluded) to b collides, sampled with steps of at most ``step`` per coordinate.

        The end and a few samples along the line are tested first.
        """
        count = max(int(np.ceil(np.abs(b - a).max() / step)), 1)
        fractions = np.arange(count, 0, -1) / count
        first = np.zeros(count, dtype=bool)
        first[:: max(count // 4, 1)] = True
        return any(len(s) and self.touches(a + s[:, None] * (b - a)) for s in (fractions[first], fractions[~first]))


class TruePieces:
    """Distances of the true shapes behind capsules and cores, at configurations (M, nq) and times (M,) [s]."""

    def __init__(self, pairs: CollisionPairs, qs: Array, times: Array) -> None:
        self._coal, self.pairs = require_coal(), pairs
        self._poses, self._times = body_poses(pairs.robot.model, qs), times
        self._hulls, self._carriers = hulls_of(pairs.robot), pairs.robot.bodies.tolist()
        self._placed: dict[tuple[int, int], Any] = {}
        self._request, self._result = self._coal.DistanceRequest(), self._coal.DistanceResult()

    def distance(self, knot: int, piece: int, core: int) -> float:
        """Return the distance [m] between the hull of a piece (by its capsule) and the true shape behind a core; negative: depth.

        knot: index of the configuration. core: index of a core of the scene or, beyond these, of a capsule of self-collision pairs.
        """
        pairs, a = self.pairs, self._body_pose(self._carriers[piece], knot)
        count = len(pairs.cores)
        if core < count:
            number = pairs.cores[core][0]
            other, pose = pairs.true_bodies[number], pairs.resting[number] or self._body(number, knot)
        else:
            second = pairs.self_pieces[core - count]
            other, pose = self._hulls[second], self._body_pose(self._carriers[second], knot)
        self._result.clear()
        return float(self._coal.distance(self._hulls[piece], a, other, pose, self._request, self._result))

    def relief(self, knot: int, piece: int, core: int, gap: float) -> float:
        """Return the distance of the true shapes minus ``gap`` [m] of capsule and core, between 0 and the capsules' excess."""
        robot, count = self.pairs.robot, len(self.pairs.cores)
        most = float(robot.excess[piece])
        if core >= count:
            most += float(robot.excess[self.pairs.self_pieces[core - count]])
        return min(max(self.distance(knot, piece, core) - gap, 0.0), most)

    def _body_pose(self, body: int, knot: int) -> Any:
        """Return the coal pose of a body of the robot; cached."""
        if (body, knot) not in self._placed:
            R, p = self._poses[body]
            self._placed[body, knot] = pose(R[knot], p[knot])
        return self._placed[body, knot]

    def _body(self, number: int, knot: int) -> Any:
        """Return the coal pose of a body of the scene at the time of a knot."""
        body = self.pairs.scene.bodies[number]
        return pose(body.R, body.places(self._times[knot]))
