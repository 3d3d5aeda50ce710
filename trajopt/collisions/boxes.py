"""Bounding boxes of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array

HUGE = 1e300
"""Bound above which coal's box corners count as infinite."""


def lengths(v: Array) -> Array:
    """Return the lengths (...) of vectors (..., 3)."""
    return np.asarray(np.sqrt(np.einsum("...i,...i", v, v)))


def box_around(geometry: Any) -> tuple[Array, Array]:
    """Return the corners (3,) of the axis-aligned box of a coal geometry in its frame; infinite for unbounded shapes."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high
