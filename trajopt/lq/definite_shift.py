"""The least change of a symmetric matrix's eigenvalues that makes it positive definite.

    H = X diag(s) X',    shift = X diag(max(|s|, FLOOR max|s|) - s) X'

Eigenvalues are reflected rather than clamped: a direction of negative curvature keeps the size of its curvature.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array

FLOOR = 1e-6
"""Smallest modified eigenvalue, relative to the largest absolute one."""
MARGIN = 1e-4
"""Share of the floor that an eigenvalue may lie above zero and still be raised."""


def definite_shift(H: Array) -> Array | None:
    """What makes a symmetric H (m, m) positive definite, (m, m); None if it is."""
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    floor = FLOOR * np.abs(values).max(initial=0.0)
    if values.min(initial=np.inf) > MARGIN * floor:
        return None
    wanted = np.maximum(np.abs(values), floor) if floor > 0.0 else np.ones_like(values)
    return (vectors * (wanted - values)) @ vectors.T
