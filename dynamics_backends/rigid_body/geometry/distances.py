"""Distances of a segment (the core of a capsule) from a box, a cylinder or a triangle, with derivatives; generic in the scalar.

For the segment P(t) = p + t d, 0 <= t <= 1, and the vector e(P) to P from the nearest point of a convex body at rest,

    D^2 = min_t |e(P(t))|^2 - w |d|^2 t (1 - t),      g(t) = e . d + w |d|^2 (t - 1/2),      g(t*) = 0 where t* is free

Without the term in w (:data:`ROUND`) the nearest point jumps when a segment is parallel to a face. With the term, t* is a
Lipschitz function of p and d. D is at most the distance; its gradient is continuous, even where the nearest feature changes. The
derivative of D^2 / 2 in t vanishes at t*, or t* is at an end. With C = P(t*), W = de/dP and the motions dC, dd at fixed t,

    dD    = n . dC,     n = e / D
    d^2 D = ( dC' W dC + e . d^2 C - s^2 / g_t - dD^2 ) / D,     s = (W d) . dC + e . dd,     g_t = d' W d + w |d|^2

For a box, e is piecewise linear in t. A linear equation gives t* between two of the points where a coordinate reaches a face. For
a cylinder, Newton's method finds t* in a bracket of such points.

A triangle, a face of a convex hull, has the corners (-h, 0, 0), (h, 0, 0), (x, y, 0) with y > 0, and its normal z points out of the
hull. In its plane the nearest point to a given point is the point itself, or lies on an edge or at a corner; the lines along the
edges, and the lines normal to them at the corners, separate these cases. e(P) is linear between the lines, so that t* is between
two of the crossings with the segment. W is n n' over the triangle, n n' + m m' beside an edge with the normal m in the plane, and
the identity beyond a corner.

For a segment that enters a box or a cylinder, D < 0 is its smallest overlap along the directions of the faces, without curvature;
for one that pierces a triangle, the shortest separating translation, over the face or over an edge. A body with rounded edges is a
smaller body plus a radius: spheres and capsules are boxes with three or two zero edges, and a half-space is a large box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.chained_map import dot
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Scalar

ROUND = 0.01
"""The factor w: D is less than the distance by at most w |d|^2 / (8 D)."""
CONTACT = 1e-3
"""A segment with a smaller D [m] counts as inside."""
TINY = 1e-24
"""[m^2], added to squares that are divisors; a smaller square counts as zero, a smaller divisor is replaced by 1."""
NEWTON = 5
"""Number of Newton steps within a bracket."""


Curvature = list[tuple[Scalar, Vec]]
"""Symmetric matrix W, as a sum of weights times outer products of vectors with themselves."""


class Nearest(NamedTuple):
    """A distance and its derivatives in the frame of the body; the module defines the symbols.

    distance: D [m]. fraction: t*. normal: n. pull: e. compliance: 1 / g_t where t* is free, zero at the ends. curvature: terms of
    W. For a segment inside the body, distance, fraction and normal are those of
    :class:`Inside`, and compliance and weights are zero.
    """

    distance: Scalar
    fraction: Scalar
    normal: Vec
    pull: Vec
    compliance: Scalar
    curvature: Curvature


class Inside(NamedTuple):
    """Depth (negative inside) of a segment in a body, the fraction of the segment where it is, and the direction out."""

    depth: Scalar
    fraction: Scalar
    normal: Vec


def segment_box(p: Vec, d: Vec, size: Vec) -> Nearest:
    """Distance of the segment from p to p + d from a box about the origin, with derivatives; negative overlap if it enters the box.

    size: half edges along the box's axes [m].
    """
    own, along, half = parts(p), parts(d), parts(size)
    zero = 0.0 * d.x
    axes = [Vec(*(float(i == j) + zero for j in range(3))) for i in range(3)]

    def excess(t: Scalar) -> list[Scalar]:
        """Vector e to the segment's point at t from the nearest point of the box."""
        return [_beyond(a + t * b, h) for a, b, h in zip(own, along, half, strict=True)]

    def curvature(t: Scalar) -> Curvature:
        """Terms of W at t: the axes along which the point is beyond a face."""
        return [(sm.select(x * x - TINY, 1.0 + 0.0 * x, 0.0 * x), v) for x, v in zip(excess(t), axes, strict=True)]

    faces = [face / nonzero(b) for a, b, h in zip(own, along, half, strict=True) for face in (-h - a, h - a)]
    return _nearest(d, faces, excess, curvature, _in_box(own, along, half, axes))


def segment_cylinder(p: Vec, d: Vec, size: Vec) -> Nearest:
    """Distance of the segment from p to p + d from a cylinder about the z axis, with derivatives; negative overlap if it enters.

    size: radius and half length [m], and an unused number; the cylinder's center is the origin.
    """
    radius, half = size.x, size.y

    def radial(t: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Distance from the axis at t, and the unit direction (x, y) away from it."""
        x, y = p.x + t * d.x, p.y + t * d.y
        rho = sm.sqrt(x * x + y * y + TINY)
        return rho, x / rho, y / rho

    def excess(t: Scalar) -> list[Scalar]:
        """Vector e to the segment's point at t from the nearest point of the cylinder."""
        rho, x, y = radial(t)
        out = _ramp(rho - radius)
        return [out * x, out * y, _beyond(p.z + t * d.z, half)]

    def curvature(t: Scalar) -> Curvature:
        """Terms of W at t: radial, circumferential and axial."""
        rho, x, y = radial(t)
        z = p.z + t * d.z
        one, zero = 1.0 + 0.0 * rho, 0.0 * rho
        side = sm.select(rho - radius, one, zero)
        cap = sm.select(z * z - half * half, one, zero)
        curvature = sm.select(rho - radius, 1.0 - radius / rho, zero)
        return [(side, Vec(x, y, zero)), (curvature, Vec(-y, x, zero)), (cap, Vec(zero, zero, one))]

    inside = _in_cylinder(p, d, radius, half, radial)
    return _nearest(d, _crossings(p, d, radius, half), excess, curvature, inside, NEWTON)


def _crossings(p: Vec, d: Vec, radius: Scalar, half: Scalar) -> list[Scalar]:
    """Fractions of a segment where it crosses a cylinder's side and the planes of its caps, and is nearest to its axis."""
    flat = d.x * d.x + d.y * d.y + TINY
    foot = -(p.x * d.x + p.y * d.y) / flat
    x, y = p.x + foot * d.x, p.y + foot * d.y
    reach = sm.sqrt(_ramp(radius * radius - x * x - y * y) / flat + TINY)
    rise = nonzero(d.z)
    return [(-half - p.z) / rise, (half - p.z) / rise, foot, foot - reach, foot + reach]


def _nearest(
    d: Vec,
    places: Sequence[Scalar],
    excess: Callable[[Scalar], list[Scalar]],
    curvature: Callable[[Scalar], Curvature],
    inside: Inside,
    steps: int = 0,
) -> Nearest:
    """Distance of a segment along d, with derivatives; ``inside``, without curvature, for a segment closer than CONTACT.

    excess: the vector e at t. places: values of t between which e is smooth. curvature: terms of W at t. steps: number of Newton
    steps for t*; 0 if e is linear between the places.
    """
    along, square = parts(d), ROUND * d.dot(d)

    def slope(t: Scalar) -> Scalar:
        """The function g."""
        return dot(excess(t), along) + square * (t - 0.5)

    def rate(terms: Curvature) -> Scalar:
        """Derivative of g where W has these terms."""
        return sum((w * a.dot(d) * a.dot(d) for w, a in terms), square)

    low, high = bracket(slope, places)
    at_low, at_high = slope(low), slope(high)
    t = 0.5 * (low + high) if steps else low - at_low * (high - low) / positive(at_high - at_low)
    for _ in range(steps):
        t = sm.smaller(sm.larger(t - slope(t) / positive(rate(curvature(t))), low), high)
    t = ends(at_low, at_high, low, high, t)
    e, W = excess(t), curvature(t)
    squared = dot(e, e) - square * t * (1.0 - t)
    out = squared - CONTACT * CONTACT
    D = sm.sqrt(sm.select(out, squared, 1.0 + 0.0 * t))
    flag = sm.select(out, 1.0 + 0.0 * t, 0.0 * t)
    normal = [sm.select(out, x / D, n) for x, n in zip(e, parts(inside.normal), strict=True)]
    free = sm.select(t * (1.0 - t), flag / positive(rate(W)), 0.0 * t)
    return Nearest(
        sm.select(out, D, inside.depth),
        sm.select(out, t, inside.fraction),
        Vec(*normal),
        Vec(*e),
        free,
        [(w * flag, a) for w, a in W],
    )


def _in_box(p: Sequence[Scalar], d: Sequence[Scalar], half: Sequence[Scalar], axes: Sequence[Vec]) -> Inside:
    """Overlap of a segment with a box and its exit, along that of the three axes with the least overlap."""
    return reduce(deepest, (_through(a, b, h, axis) for a, b, h, axis in zip(p, d, half, axes, strict=True)))


def _in_cylinder(p: Vec, d: Vec, radius: Scalar, half: Scalar, radial: Callable[[Scalar], tuple]) -> Inside:
    """Overlap of a segment with a cylinder and its exit, the shorter one of those through the side and through a cap."""
    t = sm.smaller(sm.larger(-(p.x * d.x + p.y * d.y) / (d.x * d.x + d.y * d.y + TINY), 0.0 * p.x), 1.0 + 0.0 * p.x)
    rho, x, y = radial(t)
    zero = 0.0 * rho
    side = Inside(rho - radius, t, Vec(x, y, zero))
    return deepest(side, _through(p.z, d.z, half, Vec(zero, zero, 1.0 + zero)))


def _through(p: Scalar, d: Scalar, half: Scalar, axis: Vec) -> Inside:
    """The exit of the whole segment from the slab |x| <= half along an axis, on the side of the segment's middle."""
    one = 1.0 + 0.0 * p
    sign = sm.select(p + 0.5 * d, one, -one)
    fraction = sm.select(sign * d, 0.0 * p, one)
    return Inside(sign * (p + fraction * d) - half, fraction, axis * sign)


def deepest(a: Inside, b: Inside) -> Inside:
    """The result of larger depth (less negative), hence the shorter separating translation."""
    decider = a.depth - b.depth
    normal = Vec(*(sm.select(decider, x, y) for x, y in zip(parts(a.normal), parts(b.normal), strict=True)))
    return Inside(sm.select(decider, a.depth, b.depth), sm.select(decider, a.fraction, b.fraction), normal)


def bracket(slope: Callable[[Scalar], Scalar], places: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """Bracket (low, high) in [0, 1] of the root of an increasing function, from its signs at ``places``, clipped to [0, 1].

    low: the largest place where the function is negative, else 0. high: the smallest one where it is positive, else 1.
    """
    zero = 0.0 * places[0]
    low, high = zero, 1.0 + zero
    for place in places:
        t = sm.smaller(sm.larger(place, zero), 1.0 + zero)
        value = slope(t)
        low = sm.larger(low, sm.select(-value, t, zero))
        high = sm.smaller(high, 1.0 - sm.select(value, 1.0 - t, zero))
    return low, high


def ends(at_low: Scalar, at_high: Scalar, low: Scalar, high: Scalar, between: Scalar) -> Scalar:
    """Root of an increasing function: ``between``, or the end of the bracket that is nearest to it if the values have one sign."""
    return sm.select(at_low, low, sm.select(at_high, between, high))


def parts(v: Vec) -> list[Scalar]:
    """Components of a vector as a list."""
    return [v.x, v.y, v.z]


def _ramp(x: Scalar) -> Scalar:
    """Compute max(0, x)."""
    return sm.larger(x, 0.0 * x)


def _beyond(x: Scalar, half: Scalar) -> Scalar:
    """Signed excess of x beyond the interval -half .. half."""
    return x - sm.larger(sm.smaller(x, half), -half)


def positive(x: Scalar) -> Scalar:
    """x, or 1 if x is at most TINY: a safe divisor."""
    return sm.select(x - TINY, x, 1.0 + 0.0 * x)


def nonzero(x: Scalar) -> Scalar:
    """x, or 1e-12 if its absolute value is smaller: a safe divisor."""
    small = 1e-12
    return sm.select(x * x - small * small, x, small + 0.0 * x)


class _Edge(NamedTuple):
    """The edge from the corner (x, y) along (tx, ty), with its length; its normal out of the triangle is (ty, -tx)."""

    x: Scalar
    y: Scalar
    tx: Scalar
    ty: Scalar
    length: Scalar


class _Foot(NamedTuple):
    """The nearest point of an edge: offset (x, y) from it to the given point, the square of the offset, direction of the edge.

    corner: 1 if the nearest point is a corner, else 0.
    """

    x: Scalar
    y: Scalar
    square: Scalar
    tx: Scalar
    ty: Scalar
    corner: Scalar


def segment_triangle(p: Vec, d: Vec, size: Vec) -> Nearest:
    """Distance of the segment from p to p + d from the triangle (-h, 0), (h, 0), (x, y) in the plane z = 0, with derivatives.

    size: (h, x, y) [m]. The distance is negative, the shortest separating translation, if the segment pierces the triangle.
    """
    edges = _edges(size)

    def excess(t: Scalar) -> list[Scalar]:
        """Vector e to the segment's point at t from the nearest point of the triangle."""
        foot, outside = _nearest_edge(edges, p.x + t * d.x, p.y + t * d.y)
        return [outside * foot.x, outside * foot.y, p.z + t * d.z]

    def curvature(t: Scalar) -> Curvature:
        """Terms of W at t: along the triangle's normal, and in its plane across and along the nearest edge."""
        foot, outside = _nearest_edge(edges, p.x + t * d.x, p.y + t * d.y)
        zero = 0.0 * t
        across, beside = Vec(foot.ty, -foot.tx, zero), Vec(foot.tx, foot.ty, zero)
        return [(1.0 + zero, Vec(zero, zero, 1.0 + zero)), (outside, across), (outside * foot.corner, beside)]

    return _nearest(d, _edge_crossings(edges, p, d), excess, curvature, _pierced(edges, p, d))


NEAREST: dict[str, Callable[[Vec, Vec, Vec], Nearest]] = {
    "box": segment_box,
    "cylinder": segment_cylinder,
    "triangle": segment_triangle,
}
"""Distance function of each kind of body, of p, d and the size of the body."""


def distance(kind: str, p: Sequence[Scalar], d: Sequence[Scalar], size: Sequence[Scalar]) -> Scalar:
    """Distance D of a segment from a body of one kind, for vectors given by their components."""
    return NEAREST[kind](Vec(*p), Vec(*d), Vec(*size)).distance


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


def _nearest_edge(edges: Sequence[_Edge], x: Scalar, y: Scalar) -> tuple[_Foot, Scalar]:
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


def _edge_crossings(edges: Sequence[_Edge], p: Vec, d: Vec) -> list[Scalar]:
    """The fractions of a segment where it crosses the lines along the edges, and the lines normal to them at their ends."""
    found = []
    for edge in edges:
        dx, dy = p.x - edge.x, p.y - edge.y
        across, along = d.x * edge.ty - d.y * edge.tx, d.x * edge.tx + d.y * edge.ty
        rise, s = nonzero(along), dx * edge.tx + dy * edge.ty
        found += [-(dx * edge.ty - dy * edge.tx) / nonzero(across), -s / rise, (edge.length - s) / rise]
    return found


def _pierced(edges: Sequence[_Edge], p: Vec, d: Vec) -> Inside:
    """Shortest translation that separates the whole segment from p to p + d from the body behind a triangular face.

    In coordinates with the face in the plane z = 0, its outward normal along z: out over the face, or sideways over an edge.
    """
    zero, one = 0.0 * p.z, 1.0 + 0.0 * p.z
    best = Inside(p.z + sm.smaller(d.z, zero), sm.select(-d.z, one, zero), Vec(zero, zero, one))
    for edge in edges:
        rise = d.x * edge.ty - d.y * edge.tx
        depth = (p.x - edge.x) * edge.ty - (p.y - edge.y) * edge.tx + sm.smaller(rise, zero)
        normal = Vec(edge.ty + zero, -edge.tx + zero, zero)
        best = deepest(best, Inside(depth, sm.select(-rise, one, zero), normal))
    return best
