"""Spatial algebra on small objects whose components are scalars (see :mod:`dynamics_backends.scalar`).

Order is (angular; linear), as in Featherstone, Rigid Body Dynamics Algorithms (RBDA).  A component may be a number, a symbol or an
array (rows, N); all operations are elementwise, so that one expression serves one body or all bodies.

    Motion  (w; l)              velocity, acceleration, joint axis
    Force   (n; f)              moment about the origin, force
    Inertia (m, h, J)           mass, first moment, rotational inertia about the origin
    Coriolis (P2, T)            twice the body Coriolis matrix, [[T, 0], [-P2 x, 0]]
    ArticulatedInertia (J,H,M)  [[J, H], [H', M]]
    Transform (R, p)            pose of a child frame in its parent: x_parent = R x_child + p
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dynamics_backends.scalar import Scalar


class Struct:
    """Fixed tuple of parts; PARTS contains the type of each slot, None for a scalar.

    Operations on all slots are generated as source code for each class: the NumPy engine spends most of its time in them.
    """

    __slots__: tuple[str, ...] = ()
    PARTS: tuple[type[Struct] | None, ...] = ()

    if TYPE_CHECKING:  # the slots are set by position
        leaves: Callable[[Struct], tuple[Scalar, ...]]
        build: Callable[..., Any]
        SIZE: int

        def __init__(self, *parts: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

        def __add__(self, other: Any) -> Any: ...

        def __sub__(self, other: Any) -> Any: ...

        def __neg__(self) -> Any: ...

    def __init_subclass__(cls) -> None:
        """Generate the constructor, +, -, negation, ``leaves``, ``build`` and SIZE of a new struct type from its slots."""
        paths = _paths(cls)
        cls.SIZE = len(paths)
        cls.leaves = staticmethod(attrgetter(*paths))
        names = {f"kind{i}": kind for i, kind in enumerate(_kinds(cls))}
        exec(_written(cls, {kind: name for name, kind in names.items()}), names)
        for method in ("__init__", "__add__", "__sub__", "__neg__"):
            setattr(cls, method, names[method])
        cls.build = staticmethod(names["built"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, s)) for s in self.__slots__)})"


def _paths(kind: type[Struct]) -> list[str]:
    """Attribute paths of the scalars of a struct: "R.a.x", ..."""
    parts = zip(kind.__slots__, kind.PARTS, strict=True)
    return [path for s, part in parts for path in ([s] if part is None else [f"{s}.{p}" for p in _paths(part)])]


def _kinds(kind: type[Struct]) -> list[type[Struct]]:
    """Types of a struct and of its parts."""
    return list(dict.fromkeys([kind, *(k for part in kind.PARTS if part is not None for k in _kinds(part))]))


def _written(kind: type[Struct], names: dict[type[Struct], str]) -> str:
    """Python source of a struct's constructor, build function, addition, subtraction and negation.

    names: name in the source of each struct type.
    """
    numbers = count()

    def built(part: type[Struct] | None) -> str:
        """Expression that builds a struct of this type from the next arguments a0, a1, ..."""
        return (
            f"a{next(numbers)}" if part is None else f"{names[part]}({', '.join(built(inner) for inner in part.PARTS)})"
        )

    own, slots = names[kind], kind.__slots__
    arguments = ", ".join(f"a{i}" for i in range(len(_paths(kind))))
    stored = "; ".join(f"self.{s} = {s}" for s in slots)
    each = {
        "__add__(self, other)": [f"self.{s} + other.{s}" for s in slots],
        "__sub__(self, other)": [f"self.{s} - other.{s}" for s in slots],
        "__neg__(self)": [f"-self.{s}" for s in slots],
    }
    lines = [f"def __init__(self, {', '.join(slots)}): {stored}", f"def built({arguments}): return {built(kind)}"]
    return "\n".join([*lines, *(f"def {head}: return {own}({', '.join(parts)})" for head, parts in each.items())])


def leaves(x: Any) -> list[Scalar]:
    """Scalars of a struct in slot order; a scalar as a list of one."""
    return list(x.leaves(x)) if isinstance(x, Struct) else [x]


def build(kind: type[Struct] | None, values: Iterator[Scalar]) -> Any:
    """Struct of this type, or a scalar for None, from the next values: the inverse of :func:`leaves`."""
    return next(values) if kind is None else kind.build(*islice(values, kind.SIZE))


def size(kind: type[Struct] | None) -> int:
    """Number of scalars in a struct of this type."""
    return 1 if kind is None else kind.SIZE


class Vec(Struct):
    """Vector of three components."""

    __slots__ = ("x", "y", "z")
    PARTS = (None, None, None)

    def __mul__(self, s: Scalar) -> Vec:
        return Vec(self.x * s, self.y * s, self.z * s)

    def dot(self, b: Vec) -> Scalar:
        return self.x * b.x + self.y * b.y + self.z * b.z

    def cross(self, b: Vec) -> Vec:
        return Vec(self.y * b.z - self.z * b.y, self.z * b.x - self.x * b.z, self.x * b.y - self.y * b.x)

    def outer(self, b: Vec) -> Mat:
        """Outer product self b'."""
        return Mat(self * b.x, self * b.y, self * b.z)


def vec_of(column: Any) -> Vec:
    """Vec of three components: a list, an array or a symbolic column."""
    return Vec(column[0], column[1], column[2])


class Mat(Struct):
    """3 x 3 matrix as its columns a, b, c."""

    __slots__ = ("a", "b", "c")
    PARTS = (Vec, Vec, Vec)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Mat):
            return Mat(self @ other.a, self @ other.b, self @ other.c)
        return self.a * other.x + self.b * other.y + self.c * other.z

    def transpose_times(self, v: Vec) -> Vec:
        """Product self' v."""
        return Vec(self.a.dot(v), self.b.dot(v), self.c.dot(v))

    def transpose(self) -> Mat:
        a, b, c = self.a, self.b, self.c
        return Mat(Vec(a.x, b.x, c.x), Vec(a.y, b.y, c.y), Vec(a.z, b.z, c.z))

    def symmetric(self) -> Sym:
        """Upper triangle as a symmetric matrix."""
        return Sym(self.a.x, self.b.x, self.c.x, self.b.y, self.c.y, self.c.z)


class Sym(Struct):
    """Symmetric 3 x 3 matrix by its upper triangle."""

    __slots__ = ("xx", "xy", "xz", "yy", "yz", "zz")
    PARTS = (None,) * 6

    def __matmul__(self, v: Vec) -> Vec:
        return Vec(
            self.xx * v.x + self.xy * v.y + self.xz * v.z,
            self.xy * v.x + self.yy * v.y + self.yz * v.z,
            self.xz * v.x + self.yz * v.y + self.zz * v.z,
        )

    def full(self) -> Mat:
        """Full 3 x 3 matrix."""
        return Mat(Vec(self.xx, self.xy, self.xz), Vec(self.xy, self.yy, self.yz), Vec(self.xz, self.yz, self.zz))

    def turned(self, R: Mat) -> Sym:
        """Rotated matrix R self R'."""
        P, rows = R @ self.full(), R.transpose()
        left = P.transpose()  # rows of R self
        return Sym(
            left.a.dot(rows.a),
            left.a.dot(rows.b),
            left.a.dot(rows.c),
            left.b.dot(rows.b),
            left.b.dot(rows.c),
            left.c.dot(rows.c),
        )


def point_inertia(c: Vec, h: Vec) -> Sym:
    """Rotational inertia m (c.c E - c c'), h = m c, of a point mass at c about the origin."""
    x, y, z = h.x * c.x, h.y * c.y, h.z * c.z
    return Sym(y + z, -(h.x * c.y), -(h.x * c.z), x + z, -(h.y * c.z), x + y)


class Motion(Struct):
    """Motion vector (angular w; linear l)."""

    __slots__ = ("w", "l")
    PARTS = (Vec, Vec)

    def __mul__(self, s: Scalar) -> Motion:
        return Motion(self.w * s, self.l * s)

    def cross(self, m: Motion) -> Motion:
        """Cross product self x m (RBDA 2.31)."""
        return Motion(self.w.cross(m.w), self.w.cross(m.l) + self.l.cross(m.w))

    def cross_force(self, f: Force) -> Force:
        """Cross product self x* f (RBDA 2.32)."""
        return Force(self.w.cross(f.n) + self.l.cross(f.f), self.w.cross(f.f))

    def dot(self, f: Force) -> Scalar:
        """Power of a force along the motion."""
        return self.w.dot(f.n) + self.l.dot(f.f)


class Force(Struct):
    """Force vector (moment n; force f)."""

    __slots__ = ("n", "f")
    PARTS = (Vec, Vec)

    def __mul__(self, s: Scalar) -> Force:
        return Force(self.n * s, self.f * s)


class Inertia(Struct):
    """Rigid-body inertia: mass m, first moment h = m c, rotational inertia J about the origin."""

    __slots__ = ("m", "h", "J")
    PARTS = (None, Vec, Sym)

    def __mul__(self, v: Motion) -> Force:
        """Product I v."""
        return Force(self.J @ v.w + self.h.cross(v.l), v.l * self.m - self.h.cross(v.w))


class Coriolis(Struct):
    """Twice the body Coriolis matrix, B = [[T, 0], [-P2 x, 0]]: its right half vanishes."""

    __slots__ = ("P2", "T")
    PARTS = (Vec, Mat)

    def __mul__(self, m: Motion) -> Force:
        """Product B m; the linear part of m has no effect."""
        return Force(self.T @ m.w, m.w.cross(self.P2))

    def transpose_times(self, m: Motion) -> Vec:
        """Angular part of B' m; the linear part is zero."""
        return self.T.transpose_times(m.w) + self.P2.cross(m.l)

    def moved_by(self, s: Motion) -> Coriolis:
        """Rate of change s x* B - B s x when the body moves with s."""
        w, P2, power = s.w, self.P2, s.l.dot(self.P2)
        T = cross_columns(w, self.T) + cross_columns(w, self.T.transpose()).transpose() - P2.outer(s.l)
        a, b, c = T.a, T.b, T.c
        T = Mat(Vec(a.x + power, a.y, a.z), Vec(b.x, b.y + power, b.z), Vec(c.x, c.y, c.z + power))
        return Coriolis(w.cross(P2), T)


def coriolis(inertia: Inertia, v: Motion, momentum: Vec) -> Coriolis:
    """Twice the body Coriolis matrix, 2 B(I, v) = v x* I - I v x + (I v) xbar*; momentum: the linear one, m l - h x w.

    T = 2 ((l.h) E - l h' - w x S), S the second moment of mass, S = tr(J)/2 E - J (Echeandia & Wensing 2021).
    """
    w, l2, h, J = v.w, v.l * 2.0, inertia.h, inertia.J
    w2, s = w * 2.0, l2.dot(h)
    half = (J.xx + J.yy + J.zz) * 0.5
    xx, yy, zz = half - J.xx, half - J.yy, half - J.zz
    a = -(l2 * h.x) - w2.cross(Vec(xx, -J.xy, -J.xz))
    b = -(l2 * h.y) - w2.cross(Vec(-J.xy, yy, -J.yz))
    c = -(l2 * h.z) - w2.cross(Vec(-J.xz, -J.yz, zz))
    return Coriolis(momentum * 2.0, Mat(Vec(a.x + s, a.y, a.z), Vec(b.x, b.y + s, b.z), Vec(c.x, c.y, c.z + s)))


class ArticulatedInertia(Struct):
    """Symmetric 6 x 6 matrix [[J, H], [H', M]] from motions to forces."""

    __slots__ = ("J", "H", "M")
    PARTS = (Sym, Mat, Sym)

    def __mul__(self, v: Motion) -> Force:
        return Force(self.J @ v.w + self.H @ v.l, self.H.transpose_times(v.w) + self.M @ v.l)

    def column(self, axis: int) -> Force:
        """Column 0-2 (angular x y z) or 3-5 (linear x y z)."""
        full, H = (self.J, self.H) if axis < 3 else (self.M, self.H)
        side = full.full()
        own = (side.a, side.b, side.c)[axis % 3]
        if axis < 3:
            rows = H.transpose()
            return Force(own, (rows.a, rows.b, rows.c)[axis])
        return Force((H.a, H.b, H.c)[axis - 3], own)

    def minus_outer(self, a: Force, b: Force) -> ArticulatedInertia:
        """Difference self - a b', using the upper triangles of J and M; the sum of a b' over a joint's DoFs is symmetric."""
        return ArticulatedInertia(
            self.J - a.n.outer(b.n).symmetric(), self.H - a.n.outer(b.f), self.M - a.f.outer(b.f).symmetric()
        )


def articulated(inertia: Inertia) -> ArticulatedInertia:
    """Rigid-body inertia as a general 6 x 6 matrix."""
    m, h = inertia.m, inertia.h
    zero = 0.0 * m
    skew = Mat(Vec(zero, h.z, -h.y), Vec(-h.z, zero, h.x), Vec(h.y, -h.x, zero))
    return ArticulatedInertia(inertia.J, skew, Sym(m, zero, zero, m, zero, m))


class Transform(Struct):
    """Pose (R, p) of a child frame in its parent."""

    __slots__ = ("R", "p")
    PARTS = (Mat, Vec)

    def __matmul__(self, child: Transform) -> Transform:
        """Pose of the child's child."""
        if not isinstance(child, Transform):
            return NotImplemented
        return Transform(self.R @ child.R, self.R @ child.p + self.p)

    def components(self) -> Transform:
        """The pose itself; perturbed poses (:mod:`.perturbed_transform`) return their components with tangents."""
        return self

    def point(self, p: Vec) -> Vec:
        """Coordinates in the parent of a point with coordinates p in the child."""
        return self.R @ p + self.p

    def to_parent(self, m: Motion) -> Motion:
        """Motion in the parent's coordinates."""
        w = self.R @ m.w
        return Motion(w, self.R @ m.l + self.p.cross(w))

    def to_child(self, m: Motion) -> Motion:
        """Motion in the child's coordinates."""
        return Motion(self.R.transpose_times(m.w), self.R.transpose_times(m.l - self.p.cross(m.w)))

    def force_to_parent(self, f: Force) -> Force:
        """Force in the parent's coordinates."""
        force = self.R @ f.f
        return Force(self.R @ f.n + self.p.cross(force), force)

    def force_to_child(self, f: Force) -> Force:
        """Force in the child's coordinates."""
        return Force(self.R.transpose_times(f.n - self.p.cross(f.f)), self.R.transpose_times(f.f))

    def inertia_to_parent(self, mass: Scalar, com: Vec, central: Sym) -> Inertia:
        """Inertia in the parent, from mass, center of mass and inertia about it in the child."""
        c = self.point(com)
        h = c * mass
        return Inertia(mass, h, central.turned(self.R) + point_inertia(c, h))

    def articulated_to_parent(self, inertia: ArticulatedInertia) -> ArticulatedInertia:
        """Transformed inertia X* I X^-1 of a general inertia (RBDA table 2.5)."""
        R, p = self.R, self.p
        M = inertia.M.turned(R)
        H = R @ (R @ inertia.H.transpose()).transpose()  # R H R', with (R H')' = H R'
        J = inertia.J.turned(R)
        # Moving the origin by p: H <- H + p x M;  J <- J + p x H' - H p x - p x M p x.
        columns = M.full()
        moved = H + Mat(p.cross(columns.a), p.cross(columns.b), p.cross(columns.c))
        left = cross_columns(p, H.transpose())
        right = cross_columns(p, moved.transpose()).transpose()  # -(moved) p x
        return ArticulatedInertia(J + (left + right).symmetric(), moved, M)


def cross_columns(p: Vec, A: Mat) -> Mat:
    """Product p x A, column by column."""
    return Mat(p.cross(A.a), p.cross(A.b), p.cross(A.c))


def rotation_of_quaternion(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Mat:
    """Rotation matrix of a unit quaternion."""
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz, xy, xz, yz = x * x2, y * y2, z * z2, x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return Mat(
        Vec(1.0 - (yy + zz), xy + wz, xz - wy),
        Vec(xy - wz, 1.0 - (xx + zz), yz + wx),
        Vec(xz + wy, yz - wx, 1.0 - (xx + yy)),
    )
