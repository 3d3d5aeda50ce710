"""State manifolds: integrate, difference and their derivatives.

A state ``x`` (nx numbers) is perturbed by a tangent vector ``dx`` (ndx numbers) on the right, ``x (+) dx = x exp(dx)``, in the body
frame, as in Pinocchio and Crocoddyl.  A :class:`Manifold` is a product of Lie groups: vector spaces, SO(2) (an angle), unit
quaternions (x y z w), SE(2) (x, y, angle) and SE(3) (position, quaternion), each with tangent order [linear, angular].

An angle of SO(2) or SE(2) is one number, which ``integrate`` does not wrap; ``difference`` wraps angles to [-pi, pi].

``integrate`` and ``difference`` are generic in the scalar and work on rows (component first).  The differentials of exp,

    dexp(d)    = sum_k (-ad_d)^k / (k+1)!     right Jacobian: exp(d + e) = exp(d) exp(dexp(d) e + O(e^2))
    dexp^-1(d) = 1 + ad_d/2 + ad_d^2/12 - ...  its inverse, the series of a / (1 - exp(-a)) for a = ad_d

are polynomials of degree four in ad on SE(3) and its subgroups, because ad^5 + 2 theta^2 ad^3 + theta^4 ad = 0 there (coefficients:
Barfoot, State Estimation for Robotics, 7.86; the inverse by the same interpolation of theta/2 cot(theta/2)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Rows, Scalar

Array = np.ndarray
Components = list[Scalar]


def _cross(a: Components, b: Components) -> Components:
    """Cross product a x b of two vectors of three components."""
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _axpy(x: Components, *terms: tuple[Scalar, Components]) -> Components:
    """Sum of x and of factor * y over the terms (factor, y)."""
    for factor, y in terms:
        x = [xi + factor * yi for xi, yi in zip(x, y, strict=True)]
    return x


def _norm2(a: Components) -> Scalar:
    """Squared norm of a vector with three components."""
    return a[0] * a[0] + a[1] * a[1] + a[2] * a[2]


def _rotate(q: Components, v: Components) -> Components:
    """Rotate v by the unit quaternion q = (x, y, z, w): v + 2 w (r x v) + 2 r x (r x v)."""
    t = _cross(q[:3], v)
    return _axpy(v, (2.0 * q[3], t), (2.0, _cross(q[:3], t)))


def _quaternion_product(a: Components, b: Components) -> Components:
    """Hamilton product a b of quaternions (x, y, z, w)."""
    vector = _axpy([a[3] * x for x in b[:3]], (b[3], a[:3]), (1.0, _cross(a[:3], b[:3])))
    return [*vector, a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]]


def _conjugate(q: Components) -> Components:
    """Conjugate of a quaternion (x, y, z, w)."""
    return [-q[0], -q[1], -q[2], q[3]]


def so3_exp(w: Components) -> Components:
    """Unit quaternion (x, y, z, w) of a rotation vector."""
    quarter = 0.25 * _norm2(w)
    half_sinc = 0.5 * sm.sinc(quarter)
    return [half_sinc * w[0], half_sinc * w[1], half_sinc * w[2], sm.cos_root(quarter)]


def so3_log(q: Components) -> Components:
    """Rotation vector, of length at most pi, of a quaternion q = (x, y, z, w) of any nonzero length.

    It is theta/n (x, y, z), negated for w <= 0, with n = |(x, y, z)| and theta/4 = atan(n / (|q| + |w|)), whose argument is at
    most 1.
    """
    sign = sm.select(q[3], 1.0, -1.0)
    n2 = _norm2(q[:3])
    denominator = sm.sqrt(n2 + q[3] * q[3]) + sign * q[3]
    factor = 4.0 * sign * sm.atanc(n2 / (denominator * denominator)) / denominator
    return [factor * x for x in q[:3]]


def _se3_bracket(a: Components, b: Components) -> Components:
    """Lie bracket [a, b] on se(3), order [linear, angular]."""
    linear = _axpy(_cross(a[3:], b[:3]), (1.0, _cross(a[:3], b[3:])))
    return [*linear, *_cross(a[3:], b[3:])]


def _v_times(w: Components, p: Components) -> Components:
    """Product V(w) p, the translation of exp: p + (1-cos)/th^2 w x p + (th - sin)/th^3 w x (w x p)."""
    t2, wp = _norm2(w), _cross(w, p)
    return _axpy(p, (sm.cosc(t2), wp), (sm.sinc3(t2), _cross(w, wp)))


def v_inverse_times(w: Components, p: Components) -> Components:
    """Product V(w)^-1 p, the linear part of the logarithm of the translation p and the rotation exp(w)."""
    wp = _cross(w, p)
    return _axpy(p, (-0.5, wp), (sm.logc(_norm2(w)), _cross(w, wp)))


@dataclass(frozen=True)
class LieGroup:
    """Lie group, defined by functions on lists of components: nq of an element q, nv of a tangent vector d.

    integrate(q, d) -> q exp(d); difference(q0, q1) -> log(q0^-1 q1); to_se3(d) embeds a tangent vector in se(3) (six components),
    from_se3 is the inverse; both are None for vector spaces and SO(2), whose bracket is zero.
    """

    name: str
    nq: int
    nv: int
    integrate: Callable[[Components, Components], Components]
    difference: Callable[[Components, Components], Components]
    identity: tuple[float, ...]
    to_se3: Callable[[Components], Components] | None = None
    from_se3: Callable[[Components], Components] | None = None

    @property
    def is_vector_space(self) -> bool:
        """True for R^n."""
        return self.to_se3 is None and self.name != "SO(2)"

    def __repr__(self) -> str:
        return f"LieGroup({self.name!r}: nq = {self.nq}, nv = {self.nv})"

    def __reduce__(self) -> tuple[Callable[[str, int], LieGroup], tuple[str, int]]:
        """Pickle by name and size, since a group holds local functions."""
        return group_named, (self.name, self.nq)

    def dexp(self, d: Components, e: Components) -> Components:
        """Product dexp(d) e with the right Jacobian of exp at d; e itself for vector spaces and SO(2)."""
        if self.to_se3 is None or self.from_se3 is None:
            return e
        minus_d = [-x for x in self.to_se3(d)]
        t2 = _norm2(minus_d[3:])
        c3, c4 = sm.dexp3(t2), sm.dexp4(t2)
        weights = [sm.cosc(t2) + c3 * t2, sm.sinc3(t2) + c4 * t2, c3, c4]
        return self.from_se3(_ad_polynomial(weights, minus_d, self.to_se3(e)))

    def dexp_inv(self, d: Components, e: Components) -> Components:
        """Product dexp(d)^-1 e with the inverse of the right Jacobian at d; e itself for vector spaces and SO(2)."""
        if self.to_se3 is None or self.from_se3 is None:
            return e
        minus_d = [-x for x in self.to_se3(d)]
        t2 = _norm2(minus_d[3:])
        weights = [-0.5, sm.dlog2(t2), 0.0, sm.dlog4(t2)]
        return self.from_se3(_ad_polynomial(weights, minus_d, self.to_se3(e)))

    def transport(self, d: Components, e: Components) -> Components:
        """Product Ad(exp(d))^-1 e: the derivative of q exp(d) in q along e; e itself for vector spaces and SO(2)."""
        if self.to_se3 is None or self.from_se3 is None:
            return e
        twist, six = self.to_se3(d), self.to_se3(e)
        back = _conjugate(so3_exp(twist[3:]))
        moved = _axpy(six[:3], (-1.0, _cross(_v_times(twist[3:], twist[:3]), six[3:])))
        return self.from_se3([*_rotate(back, moved), *_rotate(back, six[3:])])


def _ad_polynomial(weights: Sequence[Scalar], d: Components, e: Components) -> Components:
    """Polynomial e + sum_k weights[k] ad_d^(k+1) e."""
    total = e
    for w in weights:
        e = _se3_bracket(d, e)
        total = _axpy(total, (w, e))
    return total


def vector_space(n: int) -> LieGroup:
    """Vector space R^n under addition."""
    return LieGroup(
        f"R^{n}",
        n,
        n,
        integrate=lambda q, d: [a + b for a, b in zip(q, d, strict=True)],
        difference=lambda q0, q1: [b - a for a, b in zip(q0, q1, strict=True)],
        identity=(0.0,) * n,
    )


def nearest_turn(angle: Scalar) -> Scalar:
    """Angle wrapped to [-pi, pi]."""
    return sm.atan2(sm.sin(angle), sm.cos(angle))


SO2 = LieGroup(
    "SO(2)",
    1,
    1,
    integrate=lambda q, d: [q[0] + d[0]],
    difference=lambda q0, q1: [nearest_turn(q1[0] - q0[0])],
    identity=(0.0,),
)

SO3 = LieGroup(
    "SO(3)",
    4,
    3,
    integrate=lambda q, d: _quaternion_product(q, so3_exp(d)),
    difference=lambda q0, q1: so3_log(_quaternion_product(_conjugate(q0), q1)),
    identity=(0.0, 0.0, 0.0, 1.0),
    to_se3=lambda d: [0.0 * d[0], 0.0 * d[0], 0.0 * d[0], *d],
    from_se3=lambda d: d[3:],
)


def _se3_integrate(q: Components, d: Components) -> Components:
    """Pose q exp(d) of a pose q (position, quaternion) and a twist d (linear, angular)."""
    return [*_axpy(q[:3], (1.0, _rotate(q[3:], _v_times(d[3:], d[:3])))), *_quaternion_product(q[3:], so3_exp(d[3:]))]


def _se3_difference(q0: Components, q1: Components) -> Components:
    """Twist log(q0^-1 q1) (linear, angular) between poses (position, quaternion)."""
    back = _conjugate(q0[3:])
    w = so3_log(_quaternion_product(back, q1[3:]))
    return [*v_inverse_times(w, _rotate(back, _axpy(q1[:3], (-1.0, q0[:3])))), *w]


SE3 = LieGroup(
    "SE(3)",
    7,
    6,
    integrate=_se3_integrate,
    difference=_se3_difference,
    identity=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    to_se3=lambda d: d,
    from_se3=lambda d: d,
)


def group_named(name: str, size: int) -> LieGroup:
    """SO(2), SO(3), SE(2) or SE(3) by name; a vector space of dimension ``size`` for other names. Used to unpickle groups."""
    return {"SO(2)": SO2, "SO(3)": SO3, "SE(3)": SE3, "SE(2)": SE2}.get(name) or vector_space(size)


def _planar(angle: Scalar, p: Components) -> Components:
    """Rotate the vector p of the plane by an angle."""
    c, s = sm.cos(angle), sm.sin(angle)
    return [c * p[0] - s * p[1], s * p[0] + c * p[1]]


def _se2_integrate(q: Components, d: Components) -> Components:
    """Pose q exp(d) of a pose q (x, y, angle) and a twist d (linear, angular); the angle is not wrapped."""
    zero = 0.0 * d[2]
    step = _planar(q[2], _v_times([zero, zero, d[2]], [d[0], d[1], zero])[:2])
    return [q[0] + step[0], q[1] + step[1], q[2] + d[2]]


def _se2_difference(q0: Components, q1: Components) -> Components:
    """Twist log(q0^-1 q1) (linear, angular) between poses (x, y, angle), with the angle wrapped to [-pi, pi]."""
    angle = nearest_turn(q1[2] - q0[2])
    zero = 0.0 * angle
    p = _planar(-q0[2], [q1[0] - q0[0], q1[1] - q0[1]])
    return [*v_inverse_times([zero, zero, angle], [p[0], p[1], zero])[:2], angle]


SE2 = LieGroup(
    "SE(2)",
    3,
    3,
    integrate=_se2_integrate,
    difference=_se2_difference,
    identity=(0.0, 0.0, 0.0),
    to_se3=lambda d: [d[0], d[1], 0.0 * d[2], 0.0 * d[2], 0.0 * d[2], d[2]],
    from_se3=lambda d: [d[0], d[1], d[5]],
)


class Manifold:
    """Product of Lie groups.

    Attributes: ``nx`` numbers of a state, ``ndx`` of a tangent vector, ``groups`` the factors, ``tangent_names`` one
    name for each tangent component (used in reports), ``is_vector_space``: all factors are vector spaces, and ``is_flat``: all
    factors are vector spaces or SO(2), so that x (+) dx = x + dx.

    >>> attitude_and_rate = Manifold([SO3, vector_space(3)])
    >>> attitude_and_rate.nx, attitude_and_rate.ndx
    (7, 6)
    """

    def __init__(self, groups: Sequence[LieGroup], tangent_names: Sequence[str] | None = None) -> None:
        """Create the product of these groups, without groups of size zero; tangent names default to x[0], x[1], ...

        Raises TypeError for groups other than vector spaces, SO2, SO3, SE2 and SE3, ValueError for another number of tangent names.
        """
        for g in groups:
            if not isinstance(g, LieGroup) or (g.name != f"R^{g.nq}" and g not in (SO2, SO3, SE2, SE3)):
                raise TypeError(f"group {getattr(g, 'name', g)!r}; expected vector_space(n), SO2, SO3, SE2 or SE3")
        self.groups = tuple(g for g in groups if g.nq)
        self.nx = sum(g.nq for g in self.groups)
        self.ndx = sum(g.nv for g in self.groups)
        names = tangent_names or [f"x[{i}]" for i in range(self.ndx)]
        if len(names) != self.ndx:
            raise ValueError(f"{len(names)} tangent names for {self.ndx} tangent components")
        self.tangent_names = tuple(names)
        self.is_vector_space = all(g.is_vector_space for g in self.groups)
        self.is_flat = all(g.to_se3 is None for g in self.groups)

    @classmethod
    def vector(cls, n: int, names: Sequence[str] | None = None) -> Manifold:
        """Vector space R^n as a manifold."""
        return cls([vector_space(n)], names)

    def __repr__(self) -> str:
        return "Manifold(" + " x ".join(g.name for g in self.groups) + ")"

    def identity(self) -> Array:
        """Neutral state (nx,)."""
        return np.array([value for g in self.groups for value in g.identity])

    def _blocks(self) -> list[tuple[LieGroup, slice, slice]]:
        """Groups with their slices of the state and of a tangent vector."""
        blocks, iq, iv = [], 0, 0
        for g in self.groups:
            blocks.append((g, slice(iq, iq + g.nq), slice(iv, iv + g.nv)))
            iq, iv = iq + g.nq, iv + g.nv
        return blocks

    # -- generic in the scalar, rows (component first) ------------------------------------------------------------------
    def integrate(self, x: Rows, dx: Rows) -> Rows:
        """x (+) dx: rows (nx, N) from a state (nx, N) and a tangent vector (ndx, N)."""
        if self.is_flat and not isinstance(x, list):
            return x + dx
        xs, ds = sm.rows_of(x), sm.rows_of(dx)
        return sm.stack([c for g, iq, iv in self._blocks() for c in g.integrate(xs[iq], ds[iv])])

    def difference(self, x0: Rows, x1: Rows) -> Rows:
        """x1 (-) x0: the tangent vector at x0 that leads to x1; rows (ndx, N)."""
        if self.is_vector_space and not isinstance(x0, list):
            return x1 - x0
        a, b = sm.rows_of(x0), sm.rows_of(x1)
        return sm.stack([c for g, iq, _ in self._blocks() for c in g.difference(a[iq], b[iq])])

    def gap(self, x0: Rows, x1: Rows) -> Rows:
        """x1 (-) x0 of neighbors on one trajectory; rows (ndx, N). On a flat manifold x1 - x0, without wrapping angles of SO(2).

        On others :meth:`difference`, which wraps angles.
        """
        return x1 - x0 if self.is_flat else self.difference(x0, x1)

    def without_jumps(self, x0: Array, xs: Array) -> Array:
        """Unwrap the SO(2) angles of successive states xs (..., N + 1, nx): add whole turns to be nearest to the state before.

        x0 (..., nx) is the state before the first one. SE(2) angles are unchanged. Returns a copy, or xs itself without SO(2).
        """
        angles = [iq.start for g, iq, _ in self._blocks() if g.name == SO2.name]
        if not angles:
            return xs
        moved = np.array(xs, dtype=float)
        start = np.broadcast_to(x0[..., None, :], (*moved.shape[:-2], 1, self.nx))
        path = np.concatenate([start, moved], axis=-2)[..., angles]
        moved[..., angles] -= 2.0 * np.pi * np.cumsum(np.round(np.diff(path, axis=-2) / (2.0 * np.pi)), axis=-2)
        return moved

    def dexp(self, dx: Rows, e: Rows) -> Rows:
        """Right Jacobian of exp at dx applied to e: derivative of x (+) dx in dx; rows (ndx, N). e itself on a flat manifold."""
        return self._along("dexp", dx, e)

    def dexp_inv(self, dx: Rows, e: Rows) -> Rows:
        """Inverse of the right Jacobian of exp at dx (:meth:`dexp`) applied to e; rows (ndx, N). e itself on a flat manifold."""
        return self._along("dexp_inv", dx, e)

    def transport(self, dx: Rows, e: Rows) -> Rows:
        """Derivative of x (+) dx in x along the tangent e; rows (ndx, N). e itself on a flat manifold."""
        return self._along("transport", dx, e)

    def _along(self, which: str, dx: Rows, e: Rows) -> Rows:
        """Apply the method ``which`` of every group to its parts of dx and e; e itself on a flat manifold."""
        if self.is_flat:
            return e
        ds, es = sm.rows_of(dx), sm.rows_of(e)
        return sm.stack([c for g, _, iv in self._blocks() for c in getattr(g, which)(ds[iv], es[iv])])

    # -- Jacobians, float64, batch first --------------------------------------------------------------------------------
    def d_integrate(self, dx: Array) -> tuple[Array, Array]:
        """Jacobians of x (+) dx in x and in dx, each (N, ndx, ndx), from dx (N, ndx); neither depends on x."""
        return self._block_matrix("transport", dx), self._block_matrix("dexp", dx)

    def d_difference(self, dx: Array) -> tuple[Array, Array]:
        """Jacobians of dx = x1 (-) x0 in x0 and in x1, each (N, ndx, ndx), from the difference dx (N, ndx)."""
        return -self._block_matrix("dexp_inv", -dx), self._block_matrix("dexp_inv", dx)

    def _block_matrix(self, which: str, dx: Array) -> Array:
        """Block-diagonal matrices (N, ndx, ndx) of the groups' linear maps ``which`` (such as "dexp") at dx (N, ndx)."""
        n = len(dx)
        result = np.zeros((n, self.ndx, self.ndx))
        for g, _, iv in self._blocks():
            if g.to_se3 is None:
                result[:, range(iv.start, iv.stop), range(iv.start, iv.stop)] = 1.0
                continue
            d = list(np.repeat(dx[:, iv].T[:, :, None], g.nv, axis=2))
            basis = [np.broadcast_to(row, (n, g.nv)) for row in np.eye(g.nv)]
            result[:, iv, iv] = np.stack(getattr(g, which)(d, basis), axis=1)
        return result


AnyManifold = Manifold | LieGroup | int
"""Types accepted as a manifold: a product of Lie groups, a single group, or the dimension of a vector space."""


def as_manifold(given: AnyManifold) -> Manifold:
    """Convert a group or a dimension to a manifold; a manifold is unchanged. Raises TypeError for other types.

    >>> as_manifold(vector_space(2)), as_manifold(3).nx
    (Manifold(R^2), 3)
    """
    if isinstance(given, Manifold):
        return given
    if isinstance(given, LieGroup):
        return Manifold([given])
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        return Manifold.vector(int(given))
    raise TypeError(
        f"manifold is a {type(given).__name__}; expected a trajopt.Manifold, a group such as trajopt.SO3, or a dimension"
    )
