"""State cost of a legged robot: attitude and position of the base, joints, and their velocities.

    r = ( Euler angles - ref, p - ref, q_joints - ref, omega, v - R' v_ref, qdot_joints )

with p the position of the midpoint of the hips in the world, R the rotation of the base, (v, omega) their velocities in the base
frame, and the Euler angles of R = R_x(a) R_y(b) R_z(c), as in the Control Toolbox, so that its weights apply (Giftthaler et al.
2018). The difference of the last angle is that within half a turn. The reference velocity v_ref is in the world. The
angles are regular for a pitch |b| below a right angle. On most quadrupeds the base frame is at the midpoint of the hips; elsewhere,
as for a base frame on the floor, a cost of its own position would lean the trunk to keep the frame in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from trajopt.config.task import Checked, Checks, not_negative
from .similarity import LENGTH, NONE, RATE, SPEED, Unit

Triple = tuple[float, float, float]

PLACE_DIGITS = 6
"""Digits of the midpoint of the hips [m]; rounding errors do not lengthen the cost."""


@dataclass(frozen=True, kw_only=True)
class BaseWeights(Checked):
    """Weights of the parts of the state; a prismatic joint counts in units of the extension of a leg per radian of its knee.

    scale: common factor. attitude: weight of the base orientation. angular_velocity: weight of the angular base velocity.
    linear_velocity: weight of the linear velocity of the midpoint of the hips. position: weights of the position of the midpoint
    of the hips along x, y, z. joints: weight of the joint positions. joint_velocities: weight of the joint velocities.
    """

    scale: float = 1.0
    attitude: float = 0.0
    position: Triple = (0.0, 0.0, 0.0)
    joints: float = 0.0
    angular_velocity: float = 0.0
    linear_velocity: float = 0.0
    joint_velocities: float = 0.0

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}

    @staticmethod
    def units(unit: Callable[[Unit], Unit]) -> dict[str, Unit]:
        """Return the units of the weights. unit: returns the unit of a weight from that of its residual."""
        residuals = {"attitude": NONE, "position": LENGTH, "joints": NONE}
        residuals |= {"angular_velocity": RATE, "linear_velocity": SPEED, "joint_velocities": RATE}
        return {key: unit(of) for key, of in residuals.items()}

    def vector(self, joint_units: Array) -> Array:
        """Return the weights (12 + 2 joints,) in the order of the residual. joint_units (joints,): those of
        :class:`~problems.legged.robot.stance.Stance`."""
        with np.errstate(over="ignore"):  # non-finite weights are reported by their term
            parts = [
                np.full(3, self.attitude),
                np.array(self.position),
                self.joints / joint_units**2,
                np.full(3, self.angular_velocity),
                np.full(3, self.linear_velocity),
                self.joint_velocities / joint_units**2,
            ]
            return self.scale * np.concatenate(parts)


def base_state_cost(
    model: Model,
    manifold: Manifold,
    weight: Array,
    joints: Array,
    name: str,
    *,
    hips: Array,
    position: Triple = (0.0, 0.0, 0.0),
    attitude: Triple = (0.0, 0.0, 0.0),
    velocity: Triple = (0.0, 0.0, 0.0),
) -> to.CostTerm:
    """Return the cost term; weight (12 + 2 joints,) or (N, ...); attitude [rad], position [m], velocity [m/s], joints [rad].

    hips (3,): midpoint of the hips in the base frame [m], where position and velocity are evaluated. position: of the base frame;
    the reference of the midpoint is its place for this position and attitude.
    Raises ValueError for a robot without a floating base.
    """
    if not model.floating_base:
        raise ValueError(f"{model.name} has a fixed base; load it with base = 'floating'")
    q_names, v_names = model.q_names[7:], model.dof_names[6:]
    midpoint = tuple(np.round(hips, PLACE_DIGITS).tolist())
    outputs = (
        *("euler.x", "euler.y", "euler.z", "base.x", "base.y", "base.z", *q_names),
        *("omega.x", "omega.y", "omega.z", "v.x", "v.y", "v.z", *v_names),
    )
    return to.residual_cost(
        name,
        partial(_residual, model.nq, midpoint),
        manifold,
        len(outputs),
        weight,
        parameters={"attitude": attitude, "position": position, "joints": joints, "velocity": velocity},
        output_names=outputs,
    )


def _residual(nq: int, hips: Triple, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    R, v = rotation(x), x[nq:]
    (roll, pitch, _), (reference, turned) = euler_xyz(R), (p["attitude"], p["attitude"][2])
    c, s = sm.cos(turned), sm.sin(turned)
    wanted = [R[0][i] * p["velocity"][0] + R[1][i] * p["velocity"][1] + R[2][i] * p["velocity"][2] for i in range(3)]
    position, velocity = [x[i] - p["position"][i] for i in range(3)], [v[i] for i in range(3)]
    if any(hips):
        upright = from_euler_xyz(reference)
        position = [position[i] + sum((R[i][j] - upright[i][j]) * hips[j] for j in range(3)) for i in range(3)]
        velocity = [
            velocity[i] + v[3 + (i + 1) % 3] * hips[(i + 2) % 3] - v[3 + (i + 2) % 3] * hips[(i + 1) % 3]
            for i in range(3)
        ]
    return [
        *(roll - reference[0], pitch - reference[1], sm.atan2(-R[0][1] * c - R[0][0] * s, R[0][0] * c - R[0][1] * s)),
        *position,
        *(x[7 + i] - p["joints"][i] for i in range(nq - 7)),
        *(v[3 + i] for i in range(3)),
        *(velocity[i] - wanted[i] for i in range(3)),
        *(v[6 + i] for i in range(nq - 7)),
    ]


def rotation(x: Rows) -> list[list[Scalar]]:
    """Return R[i][j], world from base, from the unit quaternion x[3:7] = (x, y, z, w)."""
    a, b, c, w = (x[i] for i in range(3, 7))
    return [
        [1.0 - 2.0 * (b * b + c * c), 2.0 * (a * b - c * w), 2.0 * (a * c + b * w)],
        [2.0 * (a * b + c * w), 1.0 - 2.0 * (a * a + c * c), 2.0 * (b * c - a * w)],
        [2.0 * (a * c - b * w), 2.0 * (b * c + a * w), 1.0 - 2.0 * (a * a + b * b)],
    ]


def euler_xyz(R: list[list[Scalar]]) -> tuple[Scalar, Scalar, Scalar]:
    """Return the angles (a, b, c) [rad] of R = R_x(a) R_y(b) R_z(c)."""
    flat = sm.sqrt(R[0][0] * R[0][0] + R[0][1] * R[0][1])
    return sm.atan2(-R[1][2], R[2][2]), sm.atan2(R[0][2], flat), sm.atan2(-R[0][1], R[0][0])


def from_euler_xyz(angles: Rows) -> list[list[Scalar]]:
    """Return R[i][j] = R_x(a) R_y(b) R_z(c) of angles (a, b, c) [rad]."""
    (sa, sb, sc), (ca, cb, cc) = ([f(angle) for angle in angles] for f in (sm.sin, sm.cos))
    return [
        [cb * cc, -cb * sc, sb],
        [ca * sc + sa * sb * cc, ca * cc - sa * sb * sc, -sa * cb],
        [sa * sc - ca * sb * cc, sa * cc + ca * sb * sc, ca * cb],
    ]


def quaternion(attitude: Triple) -> Array:
    """Return the unit quaternion (x, y, z, w) of Euler angles [rad]."""
    result = np.array([0.0, 0.0, 0.0, 1.0])
    for axis, angle in enumerate(attitude):
        half = np.zeros(4)
        half[axis], half[3] = np.sin(0.5 * angle), np.cos(0.5 * angle)
        result = _product(result, half)
    return result


def _product(a: Array, b: Array) -> Array:
    vector = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.append(vector, a[3] * b[3] - a[:3] @ b[:3])
