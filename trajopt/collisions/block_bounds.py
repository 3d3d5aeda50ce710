"""Lower bounds on the distances of many pairs in blocks of times: from bounding balls, and from boxes for close pairs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Scene
from trajopt.collisions.boxes import box_around, boxes_apart, lengths, outside
from trajopt.collisions.mesh_motion import Ball, Part, Places
from trajopt.collisions.motion_kernels import MotionKernels, bounds_struct, motion_kernels

CLOSE = 0.1
"""Pairs whose balls are closer than this get a bound from boxes [m]."""


class BlockBounds:
    """Distance bounds for pairs. parts: shapes of the robot. bodies: coal geometries of the scene's bodies. pairs (P, 2): index
    of a part, and index of a body or, plus the number of bodies, of another part."""

    def __init__(self, parts: Sequence[Part], scene: Scene, bodies: Sequence[Any], pairs: Array) -> None:
        self.parts, self.scene, self.count = parts, scene, len(bodies)
        carriers, row = np.unique([part.body for part in parts], return_inverse=True)
        self._balls = [Ball.around([part for part in parts if part.body == body]) for body in carriers]
        rows = np.concatenate([np.arange(self.count), self.count + row.ravel()]).astype(int)
        self.first, self.second = (np.ascontiguousarray(column, dtype=np.int_) for column in pairs.T)
        self._rows = np.ascontiguousarray(rows[self.count + self.first]), np.ascontiguousarray(rows[self.second])
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
        places, moved = np.ascontiguousarray(at.bodies[:, middle]), self._moved(at, block, middle)
        kernels = motion_kernels()
        if kernels is None:
            return self._in_numpy(centers, R, places, moved)
        return self._compiled(kernels, centers, R, places, moved)

    def _moved(self, at: Places, block: int, middle: Array) -> Array:
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

    def _compiled(self, kernels: MotionKernels, centers: Array, R: Array, places: Array, moved: Array) -> Array:
        found = np.empty((len(centers), len(self.first)))
        sizes = len(centers), len(self.first), len(self.parts), self.count
        pairs = self.first, self.second, *self._rows
        arrays = centers, R, self._radii, self._halves, places, self._turned, self._low, self._high, moved, found
        kernels.block_bounds(ctypes.byref(bounds_struct(*sizes, CLOSE, *(address(a) for a in (*pairs, *arrays)))))
        return found

    def _in_numpy(self, centers: Array, R: Array, bodies: Array, moved: Array) -> Array:
        i, o, count = self.first, self.second, self.count
        gaps = np.empty((len(centers), len(i)))
        scene, own = np.flatnonzero(o < count), np.flatnonzero(o >= count)
        places = np.moveaxis(centers[:, i[scene]] - bodies[o[scene]].transpose(1, 0, 2), 0, 1)
        local = places @ self._turned[o[scene]]  # (pairs, blocks, 3)
        low, high = (corners[o[scene], None] for corners in (self._low, self._high))
        gaps[:, scene] = outside(np.maximum(low - local, local - high)).T - self._radii[i[scene]]
        others = o[own] - count
        away = centers[:, i[own]] - centers[:, others]
        gaps[:, own] = lengths(away) - self._radii[i[own]] - self._radii[others]
        k, n = np.nonzero(gaps[:, scene] < CLOSE)
        pair = scene[n]
        part, body = i[pair], o[pair]
        turned = self._turned[body].transpose(0, 2, 1) @ R[k, part]
        gaps[k, pair] = boxes_apart(local[n, k], turned, self._halves[part], self._low[body], self._high[body])
        k, n = np.nonzero(gaps[:, own] < CLOSE)
        part, other = i[own[n]], others[n]
        back = R[k, other].transpose(0, 2, 1)
        half = self._halves[other]
        gaps[k, own[n]] = boxes_apart(
            (back @ away[k, n][..., None])[..., 0], back @ R[k, part], self._halves[part], -half, half
        )
        return np.asarray(gaps - moved[self._rows[0]].T - moved[self._rows[1]].T)
