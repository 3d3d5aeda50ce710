"""Poses of the bodies of a robot at many configurations."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.registry import library_driver
from dynamics_backends.rigid_body.algorithms.kinematics import PLACEMENT
from dynamics_backends.rigid_body.geometry.covers import Poses
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows


def body_poses(model: Model, qs: Array) -> Poses:
    """Return rotation (M, 3, 3) and position (M, 3) [m] of each body at configurations (M, nq), by body index; -1 is the world.

    Raises ValueError for configurations of a wrong size.
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
    """Fill vectors (nb, M, 3) with their components, each (nb, M) or broadcastable."""
    for i, values in enumerate(components):
        vectors[..., i] = values
