"""Joints that follow others (URDF `mimic`): an affine map from the independent coordinates to all coordinates.

A follower's coordinate is q_d = multiplier * q_source + offset, hence v = G v_red with a constant matrix G of shape (nv, nv_red).
Only joints with one degree of freedom follow or are followed; all others are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dynamics_backends.rigid_body.model.arrays import frozen


@dataclass(frozen=True, eq=False)
class Coupling:
    """Map of followers to independent DoFs. Arrays run over the DoFs of the full tree; chains of followers are resolved.

    source: (nv,) int, the independent DoF that each DoF follows; an independent DoF follows itself.
    multiplier: (nv,), 1 at an independent DoF.
    offset: (nv,) [rad or m], 0 at an independent DoF.
    coordinate: (nv,) int, the entry of q that belongs to the DoF; -1 in joints of several DoFs.
    nq: the number of coordinates of the full tree.

    Raises ValueError for arrays of different sizes, indices out of range, numbers that are not finite, unresolved chains, and
    followers in joints of several DoFs.
    """

    source: np.ndarray
    multiplier: np.ndarray
    offset: np.ndarray
    coordinate: np.ndarray
    nq: int

    def __post_init__(self):
        for field in ("source", "coordinate", "multiplier", "offset"):
            kind = np.int64 if field in ("source", "coordinate") else np.float64
            object.__setattr__(self, field, frozen(np.array(getattr(self, field), dtype=kind)))
        n = self.source.size
        if any(getattr(self, key).shape != (n,) for key in ("source", "multiplier", "offset", "coordinate")):
            raise ValueError("the arrays of a Coupling need one entry for each degree of freedom")
        if np.any((self.source < 0) | (self.source >= n)) or np.any(self.coordinate >= self.nq):
            raise ValueError("a Coupling names a degree of freedom, or a coordinate, that does not exist")
        if not (np.isfinite(self.multiplier).all() and np.isfinite(self.offset).all()):
            raise ValueError("a Coupling needs finite multipliers and offsets")
        if not np.array_equal(self.source[self.source], self.source):
            raise ValueError("Coupling.source must name independent DoFs: resolve chains of followers first")
        if np.any(self.coordinate[self.followers] < 0) or np.any(self.coordinate[self.source[self.followers]] < 0):
            raise ValueError("only joints with one degree of freedom can follow another joint, which has one too")

    def __reduce__(self):
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def independent(self) -> np.ndarray:
        """(nv_red,) int: the independent DoFs, increasing."""
        return np.flatnonzero(self.source == np.arange(self.source.size))

    @cached_property
    def followers(self) -> np.ndarray:
        """(nv - nv_red,) int: the DoFs that follow another one, increasing."""
        return np.flatnonzero(self.source != np.arange(self.source.size))

    @cached_property
    def independent_q(self) -> np.ndarray:
        """(nq_red,) int: the entries of q that are independent, increasing."""
        return np.setdiff1d(np.arange(self.nq), self.coordinate[self.followers])

    @cached_property
    def matrix(self) -> np.ndarray:
        """(nv, nv_red): v = matrix v_red."""
        matrix = np.zeros((self.source.size, self.independent.size))
        matrix[np.arange(self.source.size), np.searchsorted(self.independent, self.source)] = self.multiplier
        return matrix

    def expand_q(self, q_red: np.ndarray) -> np.ndarray:
        """Return the full configuration (..., nq) of the independent coordinates q_red (..., nq_red)."""
        q_red = np.asarray(q_red)
        q = np.zeros((*q_red.shape[:-1], self.nq), dtype=q_red.dtype)
        q[..., self.independent_q] = q_red
        follow, lead = self.coordinate[self.followers], self.coordinate[self.source[self.followers]]
        q[..., follow] = self.multiplier[self.followers] * q[..., lead] + self.offset[self.followers]
        return q
