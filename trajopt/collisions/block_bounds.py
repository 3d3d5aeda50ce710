"""Lower bounds on the distances of many pairs in blocks of times: from bounding balls, and from boxes for close pairs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface import address
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Scene
from trajopt.collisions.library import LONG, BoundsData, collision_kernels
from trajopt.collisions.mesh_motion import Ball, Part, Places, box_around, lengths

CLOSE = 0.1
"""Pairs whose balls are closer than this get a bound from boxes [m]."""


class BlockBounds:
    """Distance bounds for pairs. parts: shapes of the robot. bodies: coal geometries of the scene's bodies. pairs (P, 2): index
    of a part, and index of a body or, plus the number of bodies, of another part."""

    def __init__(self, parts: Sequence[Part], scene: Scene, bodies: Sequence[Any], pairs: Array) -> None:
        self.parts, self.scene, self.count = parts, scene, len(bodies)
        carriers, row = np.unique([part.body for part in parts], return_inverse=True)
        self._balls = [Ball.around([part for part in parts if part.body == body]) for body in carriers]
        rows = np.concatenate([np.arange(self.count), self.count + row.ravel()]).astype(LONG)
        self.first, self.second = (np.ascontiguousarray(column, LONG) for column in pairs.T)
        self._rows = rows[self.count + self.first], rows[self.second]
        self._radii = np.array([part.radius for part in parts], dtype=float)
        self._halves = np.array([part.half for part in parts], dtype=float).reshape(-1, 3)
        self._turned = np.array([body.R for body in scene.bodies], dtype=float).reshape(-1, 3, 3)
        boxes = [box_around(geometry) for geometry in bodies]
        self._low, self._high = (np.array([box[side] for box in boxes], dtype=float).reshape(-1, 3) for side in (0, 1))

    def bounds(self, at: Places, block: int) -> Array:
        """Return lower bounds (blocks, P) [m] on the distances in blocks of ``block`` times."""
        M = len(at.poses[-1][0])
        first = np.arange(0, M, block)
        middle = (first + np.minimum(first + block, M) - 1) // 2
        centers, R = np.empty((len(first), len(self.parts), 3)), np.empty((len(first), len(self.parts), 3, 3))
        for j, one in enumerate(self.parts):
            turn, place = (values[middle] for values in at.poses[one.body])
            centers[:, j], R[:, j] = turn @ one.center + place, turn @ one.R
        given = {
            "firsts": self.first,
            "seconds": self.second,
            "rows_first": self._rows[0],
            "rows_second": self._rows[1],
            "centers": centers,
            "turns": R,
            "radii": self._radii,
            "halves": self._halves,
            "places": np.ascontiguousarray(at.bodies[:, middle]),
            "turned": self._turned,
            "low": self._low,
            "high": self._high,
            "moved": self._motion_bounds(at, block, middle),
            "bounds": np.empty((len(first), len(self.first))),
        }
        data = BoundsData(
            blocks=len(first), pairs=len(self.first), parts=len(self.parts), count=self.count, close=CLOSE
        )
        for name, array in given.items():
            setattr(data, name, address(array))
        collision_kernels().block_bounds(ctypes.addressof(data))
        return given["bounds"]

    def _motion_bounds(self, at: Places, block: int, middle: Array) -> Array:
        """Return bounds (B + C, blocks) [m] on the motion of any point, relative to the middle of a block: of each body of the
        scene, and of the shapes that each body of the model carries."""
        moved = np.zeros((self.count + len(self._balls), len(middle)))
        if self.scene.moves:
            blocks = np.minimum(np.arange(len(middle) * block), len(at.poses[-1][0]) - 1).reshape(-1, block)
            for n, body in enumerate(self.scene.bodies):
                if body.path is not None:
                    moved[n] = lengths(at.bodies[n][blocks] - at.bodies[n, middle][:, None]).max(axis=1)
        for n, ball in enumerate(self._balls, self.count):
            moved[n] = at.moved(ball, block, middle)
        return moved
