"""Shift that makes a symmetric matrix positive definite by reflecting its negative eigenvalues.

    H = X diag(s) X',    shift = X diag(max(|s|, FLOOR max|s|) - s) X'

Reflection, unlike clamping, keeps the magnitude of the curvature in a direction of negative curvature.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array

FLOOR = 1e-6
"""Smallest modified eigenvalue, relative to the largest absolute one."""
MARGIN = 1e-4
"""Eigenvalues below MARGIN times the floor count as not positive."""


def definite_shift(H: Array) -> Array | None:
    """Shift (m, m) such that H + shift is positive definite, for symmetric H (m, m); None if H already is."""
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    floor = FLOOR * np.abs(values).max(initial=0.0)
    if values.min(initial=np.inf) > MARGIN * floor:
        return None
    wanted = np.maximum(np.abs(values), floor) if floor > 0.0 else np.ones_like(values)
    return (vectors * (wanted - values)) @ vectors.T
