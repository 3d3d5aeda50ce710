"""Collision test of configurations: capsules first, then hulls of the links and true bodies for close pairs.

Capsules cover the pieces of the links, and cores cover the bodies. So a capsule and a core at least the margin apart need no
further test. For a closer pair, the package coal computes the distance of the convex hull of the piece from the true body, or from
the hull of the second link's piece; without coal, the capsules decide.
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
    """Collision test of configurations of a robot: with the bodies of a scene, and for pairs of the robot's links.

    pairs: robot, scene, and the pairs of links to test. margin: minimum distance [m]. exact: test close pairs of capsules again by
    :class:`TruePieces`, which needs coal; default: True if coal is installed.
    """

    def __init__(self, pairs: CollisionPairs, margin: float = 0.0, exact: bool | None = None) -> None:
        self.pairs, self.margin = pairs, margin
        self.exact = find_spec("coal") is not None if exact is None else exact

    def touches(self, qs: Array, times: Array | None = None) -> bool:
        """True if a pair of bodies is closer than the margin at any of the configurations (M, nq), or at one configuration (nq,).

        By the distances of :class:`TruePieces` if ``exact``, else by those of capsules from cores. times (M,) [s]: for the moving
        bodies of the scene; default: zeros.
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
        """True if :meth:`touches` is true at a sample of the line from configuration a (nq,) to b (nq,), a excluded.

        Samples are equally spaced, with steps of at most ``step`` in each coordinate, and include b. The scene is at time 0. b and
        a few samples spread over the line are tested first.
        """
        count = max(int(np.ceil(np.abs(b - a).max() / step)), 1)
        fractions = np.arange(count, 0, -1) / count
        first = np.zeros(count, dtype=bool)
        first[:: max(count // 4, 1)] = True
        return any(len(s) and self.touches(a + s[:, None] * (b - a)) for s in (fractions[first], fractions[~first]))


class TruePieces:
    """Distances by coal for pairs of capsules and cores, at configurations (M, nq) and times (M,) [s].

    The convex hull of the points that a capsule covers replaces the capsule; a body's true shape replaces its cores in the scene.
    Raises ModuleNotFoundError without coal.
    """

    def __init__(self, pairs: CollisionPairs, qs: Array, times: Array) -> None:
        self._coal, self.pairs = require_coal(), pairs
        self._poses, self._times = body_poses(pairs.robot.model, qs), times
        self._hulls, self._carriers = hulls_of(pairs.robot), pairs.robot.bodies.tolist()
        self._placed: dict[tuple[int, int], Any] = {}
        self._request, self._result = self._coal.DistanceRequest(), self._coal.DistanceResult()

    def distance(self, knot: int, piece: int, core: int) -> float:
        """Return the distance [m] of the hull of a piece from the body of the scene, or the other piece's hull, behind a core.

        knot: index of the configuration and time. piece: index of the capsule. core: index of a core of the scene, or their number
        plus an index into ``pairs.self_pieces``. Negative: depth. If coal has both shapes as surfaces of triangles
        (:func:`~trajopt.collisions.true_shapes.mesh_geometry`), the distance is 0 for overlap, never negative.
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
        """Return :meth:`distance` minus ``gap`` [m], the gap of capsule and core, limited to the range from 0 to the excess.

        The excess is the protrusion of the capsule from the hull of its points, plus that of the second capsule if the core is one.
        """
        robot, count = self.pairs.robot, len(self.pairs.cores)
        most = float(robot.excess[piece])
        if core >= count:
            most += float(robot.excess[self.pairs.self_pieces[core - count]])
        return min(max(self.distance(knot, piece, core) - gap, 0.0), most)

    def _body_pose(self, body: int, knot: int) -> Any:
        """Return the coal pose in the world of a body of the robot at a knot; cached."""
        if (body, knot) not in self._placed:
            R, p = self._poses[body]
            self._placed[body, knot] = pose(R[knot], p[knot])
        return self._placed[body, knot]

    def _body(self, number: int, knot: int) -> Any:
        """Return the coal pose in the world of body ``number`` of the scene at the time of a knot."""
        body = self.pairs.scene.bodies[number]
        return pose(body.R, body.places(self._times[knot]))
