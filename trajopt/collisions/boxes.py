"""Boxes around shapes, and bounds of distances by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array

HUGE = 1e300
"""Coal's corners of boxes without an end lie beyond."""


def lengths(v: Array) -> Array:
    """The lengths (...) of vectors (..., 3)."""
    return np.asarray(np.sqrt(np.einsum("...i,...i", v, v)))


def box_around(geometry: Any) -> tuple[Array, Array]:
    """The corners (3,) of a box in its frame that holds a geometry of coal, infinite where that is."""
    geometry.computeLocalAABB()
    corners = np.asarray(geometry.aabb_local.min_), np.asarray(geometry.aabb_local.max_)
    low, high = (np.where(np.abs(corner) < HUGE, corner, np.copysign(np.inf, corner)) for corner in corners)
    return low, high


def boxes_apart(center: Array, R: Array, half: Array, low: Array, high: Array) -> Array:
    """Lower bounds (n,) of the distances of boxes at centers (n, 3), turned by R (n, 3, 3), with half edges (n, 3), from boxes with
    corners low and high (n, 3), each held in a box along the axes of the other."""
    sizes = np.abs(R)
    reach = (sizes @ half[..., None])[..., 0]
    found = outside(np.maximum(low - center - reach, center - reach - high))
    ends = np.isfinite(high - low).all(axis=1)
    low, high = (np.where(ends[:, None], corner, 0.0) for corner in (low, high))
    size, middle = 0.5 * (high - low), 0.5 * (high + low)
    turned = np.abs(((center - middle)[:, None] @ R)[:, 0]) - half - (size[:, None] @ sizes)[:, 0]
    return np.where(ends, np.maximum(found, outside(turned)), found)


def outside(gaps: Array) -> Array:
    """The distance of boxes along the same axes by their gaps (..., 3); of those that overlap the least overlap, less than zero."""
    most = gaps.max(axis=-1)
    return np.where(most > 0.0, lengths(np.maximum(gaps, 0.0)), most)
