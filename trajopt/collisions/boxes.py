"""Bounding boxes of shapes, and lower bounds on distances from boxes."""

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


def boxes_apart(center: Array, R: Array, half: Array, low: Array, high: Array) -> Array:
    """Return lower bounds (n,) on the distances between oriented boxes (centers (n, 3), rotations (n, 3, 3), half edges (n, 3)) and
    axis-aligned boxes (corners low, high (n, 3)), from separating axes of both."""
    sizes = np.abs(R)
    reach = (sizes @ half[..., None])[..., 0]
    found = outside(np.maximum(low - center - reach, center - reach - high))
    ends = np.isfinite(high - low).all(axis=1)
    low, high = (np.where(ends[:, None], corner, 0.0) for corner in (low, high))
    size, middle = 0.5 * (high - low), 0.5 * (high + low)
    turned = np.abs(((center - middle)[:, None] @ R)[:, 0]) - half - (size[:, None] @ sizes)[:, 0]
    return np.where(ends, np.maximum(found, outside(turned)), found)


def outside(gaps: Array) -> Array:
    """Return the distance of aligned boxes from their gaps (..., 3); if they overlap, the smallest overlap, negative."""
    most = gaps.max(axis=-1)
    return np.where(most > 0.0, lengths(np.maximum(gaps, 0.0)), most)
