"""Distances of a segment from a triangle, a face of a convex hull; generic in the scalar. The method is that for boxes in
:mod:`~dynamics_backends.rigid_body.geometry.distances`.

In the plane of the triangle, the nearest point to a given point is the point itself, or lies on an edge or at a corner. The lines
along the edges, and the lines normal to them at the corners, separate these cases. e(P) is linear between the lines, so that t* is
between two of the crossings with the segment. W is n n' over the triangle, n n' + m m' beside an edge with the normal m in the
plane, and the identity beyond a corner.

The triangle has the corners (-h, 0, 0), (h, 0, 0), (x, y, 0) with y > 0, and its normal z points out of the hull. The depth of a
segment that pierces the triangle is that of the shortest separating translation, over the face or over an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.geometry.distances import (
    ROUND,
    TINY,
    Inside,
    Nearest,
    bracket,
    deepest,
    dot,
    ends,
    nearest_result,
    nonzero,
    parts,
    positive,
)
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Scalar


class _Edge(NamedTuple):
    """The edge from the corner (x, y) along (tx, ty), with its length; its normal out of the triangle is (ty, -tx)."""

    x: Scalar
    y: Scalar
    tx: Scalar
    ty: Scalar
    length: Scalar


class _Foot(NamedTuple):
    """The nearest point of an edge: offset (x, y) to it, its square, direction of the edge, and 1 for a corner, else 0."""

    x: Scalar
    y: Scalar
    square: Scalar
    tx: Scalar
    ty: Scalar
    corner: Scalar


def segment_triangle(p: Vec, d: Vec, size: Vec) -> Nearest:
    """The distance of the segment from p to p + d from the triangle with the size (h, x, y) [m]."""
    edges, square = _edges(size), ROUND * d.dot(d)

    def excess(t: Scalar) -> list[Scalar]:
        x, y = p.x + t * d.x, p.y + t * d.y
        foot, outside = _nearest(edges, x, y)
        return [outside * foot.x, outside * foot.y, p.z + t * d.z]

    along = parts(d)

    def slope(t: Scalar) -> Scalar:
        return dot(excess(t), along) + square * (t - 0.5)

    low, high = bracket(slope, _crossings(edges, p, d))
    at_low, at_high = slope(low), slope(high)
    t = ends(at_low, at_high, low, high, low - at_low * (high - low) / positive(at_high - at_low))
    foot, outside = _nearest(edges, p.x + t * d.x, p.y + t * d.y)
    zero = 0.0 * t
    curvature = (
        (1.0 + zero, Vec(zero, zero, 1.0 + zero)),
        (outside, Vec(foot.ty, -foot.tx, zero)),
        (outside * foot.corner, Vec(foot.tx, foot.ty, zero)),
    )
    rate = sum((w * v.dot(d) * v.dot(d) for w, v in curvature), square)
    return nearest_result(d, excess(t), t, slope, rate, curvature, square, _pierced(edges, p, d))


def triangle_distance(p: Sequence[Scalar], d: Sequence[Scalar], size: Sequence[Scalar]) -> Scalar:
    """The D of :func:`segment_triangle`, for vectors given by their components."""
    return segment_triangle(Vec(*p), Vec(*d), Vec(*size)).distance


def _edges(size: Vec) -> list[_Edge]:
    """The edges, counterclockwise about the normal."""
    h, x, y = size.x, size.y, size.z
    zero = 0.0 * h
    corners = [(-h, zero), (h, zero), (x, y)]
    found = []
    for (ax, ay), (bx, by) in zip(corners, [*corners[1:], corners[0]], strict=True):
        length = sm.sqrt((bx - ax) * (bx - ax) + (by - ay) * (by - ay) + TINY)
        found.append(_Edge(ax, ay, (bx - ax) / length, (by - ay) / length, length))
    return found


def _nearest(edges: Sequence[_Edge], x: Scalar, y: Scalar) -> tuple[_Foot, Scalar]:
    """The nearest point of the edges to (x, y), and a flag: 1 if (x, y) is outside the triangle, otherwise 0."""
    one, zero = 1.0 + 0.0 * x, 0.0 * x
    best, beyond = None, -one
    for edge in edges:
        dx, dy = x - edge.x, y - edge.y
        s = dx * edge.tx + dy * edge.ty
        at = sm.smaller(sm.larger(s, zero), edge.length + zero)
        ox, oy = dx - at * edge.tx, dy - at * edge.ty
        over = s - at
        foot = _Foot(ox, oy, ox * ox + oy * oy, edge.tx + zero, edge.ty + zero, sm.select(over * over, one, zero))
        beyond = sm.larger(beyond, dx * edge.ty - dy * edge.tx)
        if best is None:
            best = foot
        else:
            decider = best.square - foot.square
            best = _Foot(*(sm.select(decider, new, old) for new, old in zip(foot, best, strict=True)))
    assert best is not None
    return best, sm.select(beyond, one, zero)


def _crossings(edges: Sequence[_Edge], p: Vec, d: Vec) -> list[Scalar]:
    """The positions where a segment crosses the lines along the edges, and the lines normal to them at their ends."""
    found = []
    for edge in edges:
        dx, dy = p.x - edge.x, p.y - edge.y
        across, along = d.x * edge.ty - d.y * edge.tx, d.x * edge.tx + d.y * edge.ty
        rise, s = nonzero(along), dx * edge.tx + dy * edge.ty
        found += [-(dx * edge.ty - dy * edge.tx) / nonzero(across), -s / rise, (edge.length - s) / rise]
    return found


def _pierced(edges: Sequence[_Edge], p: Vec, d: Vec) -> Inside:
    """Shortest translation that separates the whole segment, over the face or over an edge."""
    zero, one = 0.0 * p.z, 1.0 + 0.0 * p.z
    best = Inside(p.z + sm.smaller(d.z, zero), sm.select(-d.z, one, zero), Vec(zero, zero, one))
    for edge in edges:
        rise = d.x * edge.ty - d.y * edge.tx
        depth = (p.x - edge.x) * edge.ty - (p.y - edge.y) * edge.tx + sm.smaller(rise, zero)
        normal = Vec(edge.ty + zero, -edge.tx + zero, zero)
        best = deepest(best, Inside(depth, sm.select(-rise, one, zero), normal))
    return best
