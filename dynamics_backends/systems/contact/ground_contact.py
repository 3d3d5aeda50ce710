"""Ground surface, and contact points on it: gaps, forces that depend on position and velocity, and their derivatives.

The surface has the gap g(p) [m] and the unit normal n(p) at a point p,

    Plane     g = n . (p - height e_z), n constant
    Terrain   g = p_z - height - h(x, y), n = (-h_x, -h_y, 1) / |.|     for a smooth function h

The gap of a plane is the distance from it, that of a terrain is the vertical height above it.  ``height`` [m] may be given at run
time as the parameter ground_height (1).  The parameter ground_slope (2), the rise of a plane for each meter along x and y,
replaces the normal of a Plane; a Terrain ignores it.  The derivatives of h, up to the third, are CasADi's.

F(p, w) is the force on a contact point (:class:`Touch`) of a tree that moves with the velocity V; p and w = J V are the position
and the velocity of the point, and s = J mu is its velocity under other rates mu.  J_j are the columns of J, S_j.w the rotation
axes of the DoFs, dw_j and ds_j the derivatives of w and s in q_j, psidot_k the change of S_k in the motion V.  With pi = F_p' s,
rho = F_w' s, the second derivatives H of s . F in (p, w) at fixed s, and e_k = ds_k - S_k.w x s, for k at or above j

    C_qq[k,j] = S_k.w . (J_j x pi + dw_j x rho + ds_j x F) + psidot_k.w . (J_j x rho) + e_k . (F x S_j.w)
                + (J_k, dw_k, ds_k)' [[H, (F_p F_w)'], [(F_p F_w), 0]] (J_j, dw_j, ds_j)
    C_qV[k,j] = (J_k, dw_k, ds_k)' (H_pw, H_ww, F_w) J_j + S_k.w . (J_j x rho)      below j: S_j.w . (J_k x rho)
    C_VV[k,j] = J_k' H_ww J_j

without the terms that a force fixed to its body has as well, which are those of
:mod:`~dynamics_backends.rigid_body.derivatives.rnea_second_order`: together with these, -C are the second derivatives of
-mu' J'F.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import IMPLICIT_STEP, Array, Parameters
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_points import Columns, Point, PointMotion, rows_of_dofs, slopes_in_q
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.entries import Entry, unboxed
from dynamics_backends.scalars.evaluate import evaluated
from dynamics_backends.symbols import ca, numpy_by_methods, tracing
from dynamics_backends.systems.contact.contact_law import (
    ContactLaw,
    Derivatives,
    SecondDerivatives,
    StepLaw,
    parameter,
    scaled,
)
from dynamics_backends.trace import Trace, trace_expressions


class Curvature(NamedTuple):
    """Curvature of the ground: ``normal`` dn/dp, ``gap2`` d^2 g / dp^2, ``normal2`` d^2 n_i / dp^2 for i = x, y, z."""

    normal: Mat
    gap2: Mat
    normal2: tuple[Mat, Mat, Mat]


class Surface(NamedTuple):
    """Ground under one point: gap [m], gradient of the gap in p, unit normal, and curvature (None for a plane)."""

    gap: Scalar
    gradient: Vec
    normal: Vec
    curvature: Curvature | None


class Ground(Protocol):
    """Surface that contact points touch."""

    def surface(self, p: Vec, parameters: Mapping[str, Rows]) -> Surface:
        """Gap, its gradient, normal and curvature of the ground at the world position p [m]; parameters: run-time parameters."""


def _finite_height(height: Any) -> float:
    """Height as a float. Raises ValueError if it is not one finite number."""
    if np.shape(height) != () or not np.isfinite(height):
        raise ValueError(f"height = {height}; expected one finite number of meters")
    return float(height)


class Plane:
    """Plane through (0, 0, height) with this upward normal (3,), of any length.

    Raises ValueError for a height that is not finite, and a normal that is not three finite numbers with a positive third one.
    """

    def __init__(self, height: float = 0.0, normal: Any = (0.0, 0.0, 1.0)) -> None:
        n = np.asarray(normal, float)
        if n.shape != (3,) or not (np.isfinite(n).all() and n[2] > 0):
            raise ValueError(f"normal = {normal}; give three numbers, the third positive: the ground is below")
        self.height = _finite_height(height)
        x, y, z = (n / np.linalg.norm(n)).tolist()
        self.normal = Vec(x, y, z)

    def surface(self, p: Vec, parameters: Mapping[str, Rows]) -> Surface:
        """Gap, its gradient and normal (which are equal) at the world position p [m]; the curvature is None.

        The parameters ground_height and ground_slope replace the plane's height and normal.
        """
        n = self.normal
        if "ground_slope" in parameters:
            rise = parameters["ground_slope"]
            size = 1.0 / sm.sqrt(rise[0] * rise[0] + rise[1] * rise[1] + 1.0)
            n = Vec(-rise[0] * size, -rise[1] * size, size)
        gap = n.x * p.x + n.y * p.y + n.z * (p.z - parameter(parameters, "ground_height", self.height))
        return Surface(gap, n, n, None)


class Terrain:
    """Uneven ground z = height + h(x, y) [m] with a smooth function ``h`` made of arithmetic and functions of NumPy.

    Example: ``Terrain(lambda x, y: 0.05 * np.sin(3.0 * x) * np.cos(2.0 * y))``. Raises ValueError for a height that is not finite.
    """

    def __init__(self, h: Callable[[Any, Any], Any], height: float = 0.0) -> None:
        self.h = h
        self.height = _finite_height(height)

    def surface(self, p: Vec, parameters: Mapping[str, Rows]) -> Surface:
        """Vertical gap, its gradient, unit normal and curvature at the world position p [m].

        The parameter ground_height replaces the terrain's height.
        """
        (found,) = evaluated(height_derivatives(self.h), [[p.x, p.y]])
        h, hx, hy, hxx, hxy, hyy, hxxx, hxxy, hxyy, hyyy = found
        v, v_x, v_y = Vec(-hx, -hy, 1.0), Vec(-hxx, -hxy, 0.0), Vec(-hxy, -hyy, 0.0)
        v_xx, v_xy, v_yy = Vec(-hxxx, -hxxy, 0.0), Vec(-hxxy, -hxyy, 0.0), Vec(-hxyy, -hyyy, 0.0)
        s = 1.0 / sm.sqrt(v.dot(v))  # n = s v
        cube = s * s * s
        r_x, r_y = v.dot(v_x), v.dot(v_y)
        s_x, s_y = -(cube * r_x), -(cube * r_y)

        def second(v_i: Vec, v_j: Vec, v_ij: Vec, s_i: Scalar, s_j: Scalar, r_j: Scalar) -> Vec:
            """Second derivative of n = s v in two coordinates i and j, from first derivatives, and v_ij."""
            s_ij = -(cube * (v_i.dot(v_j) + v.dot(v_ij))) - 3.0 * s * s * s_i * r_j
            return v_ij * s + v_i * s_j + v_j * s_i + v * s_ij

        n_xx, n_xy = second(v_x, v_x, v_xx, s_x, s_x, r_x), second(v_x, v_y, v_xy, s_x, s_y, r_y)
        n_yy = second(v_y, v_y, v_yy, s_y, s_y, r_y)
        normal2 = [_horizontal(getattr(n_xx, i), getattr(n_xy, i), getattr(n_yy, i)) for i in ("x", "y", "z")]
        normal = Mat(v_x * s + v * s_x, v_y * s + v * s_y, Vec(0.0, 0.0, 0.0))
        curvature = Curvature(normal, _horizontal(-hxx, -hxy, -hyy), (normal2[0], normal2[1], normal2[2]))
        gap = p.z - parameter(parameters, "ground_height", self.height) - h
        return Surface(gap, v, v * s, curvature)


@lru_cache(maxsize=64)
def height_derivatives(h: Callable[[Any, Any], Any]) -> Trace:
    """Trace of a height h(x, y) and its derivatives up to the third: h, x, y, xx, xy, yy, xxx, xxy, xyy, yyy."""
    with tracing, numpy_by_methods():
        at = ca.SX.sym("p", 2)
        height = ca.SX(unboxed(h(Entry(at[0]), Entry(at[1]))))
        first = ca.gradient(height, at)
        H = ca.jacobian(first, at)
        second = ca.vertcat(H[0, 0], H[0, 1], H[1, 1])
        T = ca.jacobian(second, at)
        return trace_expressions([at], [ca.vertcat(height, first, second, T[:, 0], T[2, 1])])


def _horizontal(xx: Scalar, xy: Scalar, yy: Scalar) -> Mat:
    """Second derivatives in x, y, z, of which those in z are zero."""
    return Mat(Vec(xx, xy, 0.0), Vec(xy, yy, 0.0), Vec(0.0, 0.0, 0.0))


def in_position(d: Derivatives, s: Surface) -> Mat:
    """Derivative d force / dp in the point's position p, at fixed velocity, from the law's derivatives d in gap and normal."""
    M = d.g.outer(s.gradient)
    return M if s.curvature is None else M + d.n @ s.curvature.normal


def second_derivatives_in_position(d: Derivatives, b: SecondDerivatives, s: Surface) -> tuple[Mat, Mat]:
    """Second derivatives of one number in (p, p) and (p, w), with rows p, from its derivatives in (g, n, w).

    p, w: position and velocity of the point; d, b: first and second derivatives in (g, n, w); s: the ground under the point.
    """
    pp, pw = s.gradient.outer(s.gradient * b.gg), s.gradient.outer(b.gw)
    if s.curvature is None:
        return pp, pw
    turn = s.curvature.normal
    cross = turn.transpose_times(b.gn).outer(s.gradient)
    pp = pp + cross + cross.transpose() + turn.transpose() @ (b.nn @ turn) + scaled(s.curvature.gap2, d.g)
    for weight, hessian in zip((d.n.x, d.n.y, d.n.z), s.curvature.normal2, strict=True):
        pp = pp + scaled(hessian, weight)
    return pp, pw + turn.transpose() @ b.nw


MAX_DEPTH, MAX_HEIGHT = 0.02, 0.05
"""Depth below the ground and height above it [m] of the lowest point beyond which an initial state causes a warning."""
MAX_LOAD = 2.0
"""Force of the ground at rest, relative to the weight, up to which points may be deeper than MAX_DEPTH."""


class OnGround:
    """Mixin of systems of a robot whose points touch a ground."""

    stiff = "contacts"
    model: Model
    points: tuple[Point, ...]
    ground: Ground
    law: ContactLaw | StepLaw

    def gaps(self, x: Array, p: Parameters | None = None) -> dict[str, float]:
        """Gaps [m] between the points and the ground at a state x (nx,), by name, negative below; p: name -> (n,)."""
        q = np.asarray(x, dtype=float)[: self.model.nq, None]
        places = point_positions(self.model, q, [(point.body, point.at) for point in self.points])
        rows = {name: np.atleast_1d(value)[:, None] for name, value in (p or {}).items()}
        return {
            point.name: float(np.squeeze(self.ground.surface(Vec(*place), rows).gap))
            for point, place in zip(self.points, places, strict=True)
        }

    def state_warnings(self, x: Array, p: Parameters) -> Iterator[str]:
        """Yield a warning if the lowest contact point at x (nx,) is more than 2 cm below a ground that then carries more than twice
        the weight, or more than 5 cm above it."""
        gaps = self.gaps(x, p)
        lowest = min(gaps, key=lambda name: gaps[name])
        weight = self.model.total_mass * float(np.linalg.norm(self.model.gravity))
        forces = (force_at_rest(self.law, gap, p) for gap in gaps.values())
        if gaps[lowest] < -MAX_DEPTH and sum(forces) > MAX_LOAD * weight:
            yield (
                f"x0 has {lowest} {100 * -gaps[lowest]:.2g} cm below the ground: the contact force will throw the robot up; "
                "raise its base by this amount"
            )
        if gaps[lowest] > MAX_HEIGHT:
            yield (
                f"all contact points of x0 are above the ground, the lowest is {lowest} at {100 * gaps[lowest]:.2g} cm: the motion "
                "starts with a fall; lower the base if the robot should stand"
            )


def force_at_rest(law: ContactLaw | StepLaw, gap: float, p: Parameters) -> float:
    """Force [N] of level ground on a point at rest at a gap [m], negative below the ground; p: name -> (n,)."""
    rows = {IMPLICIT_STEP: np.zeros((1, 1))} | {n: np.atleast_1d(value)[:, None] for n, value in p.items()}
    up, still = Vec(0.0, 0.0, 1.0), Vec(*np.zeros((3, 1)))  # without motion, the length of the step has no effect
    with np.errstate(over="ignore"):  # far below the ground
        return float(law.force(np.array([gap]), up, still, rows).z[0])


class Touch(NamedTuple):
    """Contact point with its motion, the ground under it and the force [N] on it in world axes."""

    motion: PointMotion
    surface: Surface
    force: Vec


class Slopes(NamedTuple):
    """Derivatives of a contact: of the point's velocity in q, of the force in the point's position (in_p) and velocity (in_w),
    and of the force in q and in the joint velocities V.

    Those in q and V are columns by DoF. The force is in world axes.
    """

    velocity: Columns
    in_p: Mat
    in_w: Mat
    force_q: Columns
    force_v: Columns

    @classmethod
    def from_law(cls, c: Touch, d: Derivatives, psid: Any) -> Slopes:
        """Compute the derivatives of a contact from those of the law, d; psid: field psidot of the velocity V (see the module)."""
        m = c.motion
        velocity = slopes_in_q(m, m.velocity, m.axes, rows_of_dofs(psid, list(m.J)))
        in_p = in_position(d, c.surface)
        return cls(
            velocity,
            in_p,
            d.w,
            {j: in_p @ J + d.w @ velocity[j] for j, J in m.J.items()},
            {j: d.w @ J for j, J in m.J.items()},
        )


def contact_slopes(
    n: int, fields: Mapping[str, Any], touches: Sequence[Touch], slopes: Sequence[Slopes]
) -> tuple[list[list[Scalar]], list[list[Scalar]]]:
    """Minus the derivatives in q and v (n, n) of ID(q, v, a) - J'F at fixed a, for the forces F of the contacts.

    fields: those of CONTACT_FINISH, with the derivatives of ID for forces that are fixed to their bodies.
    """
    dq, dv = ([[-M[i][j] for j in range(n)] for i in range(n)] for M in (fields["dtau_dq"], fields["dtau_dv"]))
    for c, slope in zip(touches, slopes, strict=True):
        for j in c.motion.J:
            change = slope.force_q[j] + c.force.cross(c.motion.axes[j])
            for i, J in c.motion.J.items():
                dq[i][j] = dq[i][j] + J.dot(change)
                dv[i][j] = dv[i][j] + J.dot(slope.force_v[j])
    return dq, dv


def weight_of(c: Touch, fields: Mapping[str, Any]) -> Vec:
    """Adjoint velocity s = J mu of the contact point, from fields["w"], the bodies' motions under the joint rates mu."""
    field = row(fields["w"], c.motion.point.body)
    return field.l + field.w.cross(c.motion.p)


def subtract_second(
    g: Second,
    c: Touch,
    slopes: Slopes,
    second: tuple[Derivatives, SecondDerivatives],
    fields: Mapping[str, Any],
    body_of: Sequence[int],
) -> Mat:
    """Subtract C_qq and C_qV (see the module) of a contact from g.qq and g.qv in place; return H_ww, of s . F in w.


    C holds the second derivatives of mu' J'F without the terms of a force fixed to its body. The block (V, V) is not changed: the
    caller subtracts J' H_ww J. slopes: derivatives of the contact; second: first and second derivatives of s . F by the law, for
    s of :func:`weight_of`; fields: psid of V, w and chi of mu; body_of: the bodies of the DoFs.
    """
    m, F, path = c.motion, c.force, list(c.motion.J)
    psid, chi = rows_of_dofs(fields["psid"], path), rows_of_dofs(fields["chi"], path)
    s, (d, b) = weight_of(c, fields), second
    dw, ds = slopes.velocity, slopes_in_q(m, s, m.axes, chi)
    pp, pw = second_derivatives_in_position(d, b, c.surface)
    pi, rho = slopes.in_p.transpose_times(s), slopes.in_w.transpose_times(s)
    for j in path:
        J, axis = m.J[j], m.axes[j]
        turn = J.cross(pi) + dw[j].cross(rho) + ds[j].cross(F)
        J_rho, lag = J.cross(rho), F.cross(axis)
        to_p = pp @ J + pw @ dw[j] + slopes.in_p.transpose_times(ds[j])
        to_w = pw.transpose_times(J) + b.ww @ dw[j] + slopes.in_w.transpose_times(ds[j])
        v_to_p, v_to_w = pw @ J, b.ww @ J
        for k in path:
            below, within = body_of[k] > body_of[j], body_of[k] == body_of[j]
            turned = axis.dot(m.J[k].cross(rho)) if below else m.axes[k].dot(J_rho)
            mixed = turned + m.J[k].dot(v_to_p) + dw[k].dot(v_to_w) + ds[k].dot(slopes.force_v[j])
            g.qv[k][j] = g.qv[k][j] - mixed
            if below:
                continue
            e = ds[k] - m.axes[k].cross(s)
            entry = m.axes[k].dot(turn) + psid[k].w.dot(J_rho) + e.dot(lag)
            entry = entry + m.J[k].dot(to_p) + dw[k].dot(to_w) + ds[k].dot(slopes.force_q[j])
            g.qq[k][j] = g.qq[k][j] - entry
            if not within:
                g.qq[j][k] = g.qq[j][k] - entry
    return b.ww
