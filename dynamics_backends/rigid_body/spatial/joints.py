"""Joint types: pose of the child body and motion subspace.

Every function here is a pure step on components, for all scalars.  The child frame moves relative to the joint frame, whose
constant placement in the parent is ``fixed``; the axis of a joint with one DoF is z.  The subspace S is constant in the child
frame for every type.  Public order of a floating or planar joint's velocity is [linear, angular]; the columns of S convert it to
(angular; linear).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.spatial.perturbed_transform import PerturbedTransform, SpatialDual
from dynamics_backends.rigid_body.spatial.spatial import (
    ArticulatedInertia,
    Force,
    Mat,
    Motion,
    Transform,
    Vec,
    rotation_of_quaternion,
)
from dynamics_backends.scalar import Scalar

Components = Sequence[Scalar]


def _turned(R: Mat, angle: Scalar) -> Mat:
    """Product of R and a rotation about z."""
    c, s = sm.cos(angle), sm.sin(angle)
    return Mat(R.a * c + R.b * s, R.b * c - R.a * s, R.c)


def _place_revolute(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a revolute joint in the parent: ``fixed`` rotated by q about z."""
    return Transform(_turned(fixed.R, q[0]), fixed.p)


def _place_prismatic(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a prismatic joint in the parent: ``fixed`` displaced by q along z."""
    return Transform(fixed.R, fixed.p + fixed.R.c * q[0])


def _place_helical(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a helical joint in the parent: ``fixed`` rotated by q about z and displaced by pitch q along z.

    pitch [m/rad].
    """
    return Transform(_turned(fixed.R, q[0]), fixed.p + fixed.R.c * (q[0] * pitch))


def _place_spherical(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a spherical joint in the parent: ``fixed`` rotated by the unit quaternion q (x y z w)."""
    return Transform(fixed.R @ rotation_of_quaternion(*q), fixed.p)


def _place_planar(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a planar joint in the parent: ``fixed`` displaced by q[:2] along x and y, rotated by q[2] about z."""
    return Transform(_turned(fixed.R, q[2]), fixed.p + fixed.R.a * q[0] + fixed.R.b * q[1])


def _place_floating(fixed: Transform, q: Components, pitch: Scalar) -> Transform:
    """Pose of the child of a floating joint in the parent: ``fixed`` times the pose q, position and unit quaternion (x y z w)."""
    return Transform(fixed.R @ rotation_of_quaternion(*q[3:]), fixed.point(Vec(*q[:3])))


def _rates_of_vector(q: Components, dq: Components) -> Components:
    """Velocity of a change dq of the coordinates of a joint with one DoF: dq itself."""
    return dq


def _rates_of_quaternion(q: Components, dq: Components) -> Components:
    """Angular velocity 2 vec(conj(q) dq) in the child frame."""
    x, y, z, w = q
    a, b, c, d = dq
    return [
        2.0 * (w * a - x * d - y * c + z * b),
        2.0 * (w * b - y * d - z * a + x * c),
        2.0 * (w * c - z * d - x * b + y * a),
    ]


def _rates_of_planar(q: Components, dq: Components) -> Components:
    """Velocity (vx, vy, omega) in the child frame of a change dq of (x, y, angle)."""
    c, s = sm.cos(q[2]), sm.sin(q[2])
    return [c * dq[0] + s * dq[1], c * dq[1] - s * dq[0], dq[2]]


def _rates_of_pose(q: Components, dq: Components) -> Components:
    """Velocity (linear, angular) in the child frame of a change dq of position and quaternion."""
    linear = rotation_of_quaternion(*q[3:]).transpose_times(Vec(*dq[:3]))
    return [linear.x, linear.y, linear.z, *_rates_of_quaternion(q[3:], dq[3:])]


@dataclass(frozen=True)
class Joint:
    """Joint type with motion subspace S, constant in the child's frame.

    nq, nv: sizes of its q and v; ``axes``: unit direction of each DoF, 0-2 angular x y z, 3-5 linear x y z; ``helical``: True if
    the one DoF also moves linearly, by the pitch [m/rad], which other types ignore; ``pose(fixed, q, pitch)``: pose of the child
    in the parent; ``rates(q, dq)``: velocity v of a change dq of the coordinates.
    """

    name: str
    nq: int
    nv: int
    pose: Callable[[Transform, Components, Scalar], Transform]
    rates: Callable[[Components, Components], Components]
    axes: tuple[int, ...]
    helical: bool = False

    def place(self, fixed: Transform, q: Components, pitch: Scalar) -> Transform | PerturbedTransform:
        """Pose of the child in the parent.

        For :class:`SpatialDual` coordinates it is perturbed; the twist is S times the rates of the tangents.
        """
        if not isinstance(q[0], SpatialDual):
            return self.pose(fixed, q, pitch)
        values = [c.val for c in q]
        rates = self.rates([v[..., None] for v in values], [c.tan for c in q])
        wide = pitch[..., None] if hasattr(pitch, "shape") else pitch
        zero = 0.0 * q[0].tan
        twist = self.motion(rates, wide)
        spread = Motion(*(Vec(v.x + zero, v.y + zero, v.z + zero) for v in (twist.w, twist.l)))
        X = self.pose(fixed, values, pitch)
        return PerturbedTransform(X.R, X.p, spread)

    @property
    def turns_axes(self) -> bool:
        """True for joints with translations along axes that rotations of the same joint turn."""
        return self.nv > 1 and max(self.axes) > 2 and min(self.axes) < 3

    def units(self, pitch: Scalar) -> list[Motion]:
        """Columns of S in the child frame."""
        return [self.motion(unit, pitch) for unit in np.eye(self.nv).tolist()]

    def motion(self, rates: Components, pitch: Scalar) -> Motion:
        """Product S v in the child frame."""
        parts: list[Scalar] = [0.0] * 6
        for axis, rate in zip(self.axes, rates, strict=True):
            parts[axis] = rate
        if self.helical:
            parts[5] = rates[0] * pitch
        return Motion(Vec(*parts[:3]), Vec(*parts[3:]))

    def project(self, f: Force, pitch: Scalar) -> list[Scalar]:
        """Product S' f for a force in the child frame."""
        parts = (f.n.x, f.n.y, f.n.z, f.f.x, f.f.y, f.f.z)
        if self.helical:
            return [f.n.z + f.f.z * pitch]
        return [parts[axis] for axis in self.axes]

    def inertia_columns(self, inertia: ArticulatedInertia, pitch: Scalar) -> list[Force]:
        """Columns of I S for a general inertia in the child frame."""
        if self.helical:
            return [inertia.column(2) + inertia.column(5) * pitch]
        return [inertia.column(axis) for axis in self.axes]

    def columns(self, X: Transform | PerturbedTransform, pitch: Scalar) -> list[Motion]:
        """Columns of S in the frame in which X is the pose of the child, about its origin; with tangents for a perturbed pose."""
        if isinstance(X, PerturbedTransform):
            return [X.to_parent(unit) for unit in self.units(pitch)]
        if self.helical:
            return [Motion(X.R.c, X.p.cross(X.R.c) + X.R.c * pitch)]
        axes = (X.R.a, X.R.b, X.R.c)
        zero = 0.0 * X.p.x
        return [
            Motion(axes[i], X.p.cross(axes[i])) if i < 3 else Motion(Vec(zero, zero, zero), axes[i - 3])
            for i in self.axes
        ]


JOINTS = {
    j.name: j
    for j in (
        Joint("revolute", 1, 1, _place_revolute, _rates_of_vector, (2,)),
        Joint("prismatic", 1, 1, _place_prismatic, _rates_of_vector, (5,)),
        Joint("helical", 1, 1, _place_helical, _rates_of_vector, (2,), helical=True),
        Joint("spherical", 4, 3, _place_spherical, _rates_of_quaternion, (0, 1, 2)),
        Joint("planar", 3, 3, _place_planar, _rates_of_planar, (3, 4, 2)),
        Joint("floating", 7, 6, _place_floating, _rates_of_pose, (3, 4, 5, 0, 1, 2)),
    )
}
