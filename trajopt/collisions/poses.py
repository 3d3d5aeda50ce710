"""Poses of the bodies of a robot in the world at many configurations."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.registry import library_driver
from dynamics_backends.rigid_body.algorithms.kinematics import PLACEMENT
from dynamics_backends.rigid_body.geometry.covers import Poses
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows


def body_poses(model: Model, qs: Array) -> Poses:
    """Return rotations (M, 3, 3) and positions (M, 3) [m] of each body's internal frame in the world, by body index; -1: the world.

    qs: M configurations (M, nq), or one (nq,), for which M is 1. Raises ValueError for configurations of a wrong size.
    """
    qs = np.atleast_2d(qs)
    M, nb = len(qs), model.nb
    if qs.shape != (M, model.nq):  # compiled loops would read out of bounds
        raise ValueError(f"configurations of {model.name} are (M, {model.nq}), not {qs.shape}")
    still = np.broadcast_to(np.eye(3), (M, 3, 3)), np.zeros((M, 3))
    if not nb:
        return {-1: still}
    X = library_driver()(PLACEMENT, model, {"q": np.ascontiguousarray(qs.T)})["X"]
    R, p = np.empty((nb, M, 3, 3)), np.empty((nb, M, 3))
    for j, column in enumerate((X.R.a, X.R.b, X.R.c)):
        _fill(R[..., j], (column.x, column.y, column.z))
    _fill(p, (X.p.x, X.p.y, X.p.z))
    return {-1: still} | {b: (R[b], p[b]) for b in range(nb)}


def _fill(vectors: Array, components: tuple[Rows, Rows, Rows]) -> None:
    """Set vectors (nb, M, 3) to the given x, y and z components in place; each component is (nb, M) or broadcastable."""
    for i, values in enumerate(components):
        vectors[..., i] = values
