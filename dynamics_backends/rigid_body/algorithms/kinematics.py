"""Frame kinematics, generic in the scalar: placements, velocities, Jacobians and their rates; center of mass and energies.

All functions work on rows: q (nq, N), v (nv, N) as arguments, components first in results; for arrays q (nq,), v (nv,) of one
point most results have no last axis.  ``frame`` is a name, or an index into ``model.frames``. Spatial results are [linear;
angular], in one of three named references (Pinocchio's):

    LOCAL                 axes of the frame, velocity of its origin
    WORLD                 axes of the world, velocity of the body point at the world's origin
    LOCAL_WORLD_ALIGNED   axes of the world, velocity of the frame's origin
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import so3_log
from dynamics_backends.rigid_body.algorithms.seen_poses import pose_of
from dynamics_backends.rigid_body.model.model import Frame, Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import INERTIA, PLACE, VELOCITY, at_base
from dynamics_backends.rigid_body.passes.passes import Program, body, row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Motion, Transform, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.entries import takes_entries

__all__ = [
    "REFERENCES",
    "FrameKinematics",
    "center_of_mass",
    "frame_jacobian",
    "frame_jacobian_rate",
    "frame_kinematics",
    "frame_position",
    "frame_rotation",
    "frame_velocity",
    "kinetic_energy",
    "point_positions",
    "potential_energy",
    "quaternion_of_rotation",
    "rotation_log",
    "spatial_momentum",
]
"""Names for residuals of scripts, as ``trajopt.kinematics``."""

REFERENCES = ("LOCAL", "WORLD", "LOCAL_WORLD_ALIGNED")
PLACEMENT = Program("placement", [PLACE], ["X", "S"])
MOTION = Program("motion", [PLACE, VELOCITY], ["X", "S", "vel"])


class _Posed(NamedTuple):
    """Pose of a frame in the world without the displacement ``origin`` of a floating base, and what it was computed from.

    fields: those of the driver; body: number of the frame's body, -1 for the world; zero: a zero scalar of the batch.
    """

    pose: Transform
    origin: Vec
    fields: dict[str, Any]
    body: int
    zero: Scalar


def _frame_pose(
    program: Program, model: Model, frame: int | str, arguments: dict[str, Any], driver: Driver = run
) -> _Posed:
    """Run a program with a floating base moved to the origin (:func:`~.ground.at_base`); return the frame's pose and the fields.

    arguments: "q", and "v" if the program needs it. A frame of the world (body -1) has its constant pose.
    """
    q = arguments["q"]
    fields = driver(program, model, {**arguments, "q": at_base(model, q)})
    zero = 0.0 * q[0]
    f = model.frames[model.frame_id(frame) if isinstance(frame, str) else frame]
    local = constant_pose(f)
    pose = local
    if f.body >= 0:
        pose = (pose_of(model, q, fields, f.body) if program is PLACEMENT else row(fields["X"], f.body)) @ local
    return _Posed(pose.components(), base_origin(model, q, f.body), fields, f.body, zero)


def base_origin(model: Model, q: Rows, body: int) -> Vec:
    """Vector to add to positions on a body after :func:`~.ground.at_base`: q[:3] of the floating base that carries it.

    It is in world axes, and zero for other bodies and for the world (body -1).
    """
    if not (model.floating_base and body >= 0 and 0 in model.ancestors(body)):
        zero = 0.0 * q[0]
        return Vec(zero, zero, zero)
    return constant_rotation(model.placement_R[0]) @ Vec(q[0], q[1], q[2])


def constant_rotation(R: np.ndarray) -> Mat:
    """Mat of Python floats from a rotation matrix R (3, 3)."""
    return Mat(*(Vec(*column) for column in R.T.tolist()))


def constant_pose(frame: Frame) -> Transform:
    """Placement of a frame in its body."""
    return Transform(constant_rotation(frame.R), Vec(*frame.p.tolist()))


def _rows(vectors: list[Vec], zero: Scalar) -> Rows:
    """Components of vectors as rows; the zero gives constants the shape of the batch."""
    return sm.stack([c + zero for v in vectors for c in (v.x, v.y, v.z)])


@takes_entries
def frame_position(model: Model, q: Rows, frame: int | str) -> Rows:
    """World position (3, N) [m] of the frame's origin."""
    return _position(_frame_pose(PLACEMENT, model, frame, {"q": q}))


@takes_entries
def point_positions(model: Model, q: Rows, points: Sequence[tuple[int, Sequence[float]]]) -> list[Rows]:
    """World positions, a list of (3, N) [m], of points (body, coordinates (3) in its internal frame), from one recursion.

    Points of the world (body -1) stay where they are.
    """
    fields, zero = run(PLACEMENT, model, {"q": at_base(model, q)}), 0.0 * q[0]
    poses = {b: pose_of(model, q, fields, b).components() for b, _ in points if b >= 0}
    found = []
    for b, coordinates in points:
        at = Vec(*map(float, coordinates))
        found.append(_rows([poses[b].point(at) + base_origin(model, q, b) if b >= 0 else at], zero))
    return found


@takes_entries
def frame_rotation(model: Model, q: Rows, frame: int | str) -> list[list[Scalar]]:
    """Rotation R[i][j], each (N,), from the frame to the world."""
    return _rotation(_frame_pose(PLACEMENT, model, frame, {"q": q}))


def frame_placement(model: Model, q: Rows, frame: int | str, driver: Driver = run) -> tuple[list[list[Scalar]], Rows]:
    """Rotation R[i][j], each (N,), from the frame to the world, and world position (3, N) [m]; q: rows (nq, N).

    driver: evaluates the recursion. Raises UnknownName for an unknown frame.
    """
    posed = _frame_pose(PLACEMENT, model, frame, {"q": q}, driver)
    return _rotation(posed), _position(posed)


def _position(posed: _Posed) -> Rows:
    """World position (3, N) of the frame's origin."""
    return _rows([posed.pose.p + posed.origin], posed.zero)


def _rotation(posed: _Posed) -> list[list[Scalar]]:
    """Rotation R[i][j] from the frame to the world, each entry (N,)."""
    R = posed.pose.R.transpose()
    return [[c + posed.zero for c in (r.x, r.y, r.z)] for r in (R.a, R.b, R.c)]


@takes_entries
def frame_velocity(model: Model, q: Rows, v: Rows, frame: int | str, reference: str = "LOCAL_WORLD_ALIGNED") -> Rows:
    """Velocity (6, N) [linear m/s; angular rad/s] of the frame; zero for one of the world. q: rows (nq, N), v: rows (nv, N).

    reference: LOCAL, WORLD or LOCAL_WORLD_ALIGNED. Raises ValueError for another one.
    """
    posed = _frame_pose(MOTION, model, frame, {"q": q, "v": v})
    still = Motion(*(Vec(posed.zero, posed.zero, posed.zero) for _ in range(2)))
    velocity = row(posed.fields["vel"], posed.body) if posed.body >= 0 else still
    at_frame = Motion(velocity.w, velocity.l + velocity.w.cross(posed.pose.p))
    turned = _referred(at_frame, posed, reference)
    return _rows([turned.l, turned.w], posed.zero)


def _referred(m: Motion, posed: _Posed, reference: str) -> Motion:
    """Convert a motion at the frame's origin in world axes to another reference. Raises ValueError for an unknown one."""
    _check_reference(reference)
    if reference == "LOCAL":
        R = posed.pose.R
        return Motion(R.transpose_times(m.w), R.transpose_times(m.l))
    if reference == "WORLD":
        return Motion(m.w, m.l + (posed.pose.p + posed.origin).cross(m.w))
    return m


def _check_reference(reference: str) -> None:
    """Raise ValueError for an unknown reference."""
    if reference not in REFERENCES:
        raise ValueError(f"reference = {reference!r}; known: {', '.join(REFERENCES)}")


@takes_entries
def frame_jacobian(model: Model, q: Rows, frame: int | str, reference: str = "LOCAL_WORLD_ALIGNED") -> Rows:
    """Jacobian (6 * nv, N) of the frame's velocity by rows: entry [r * nv + d] is d velocity[r] / d v[d]. q: rows (nq, N).

    reference: LOCAL, WORLD or LOCAL_WORLD_ALIGNED. Raises ValueError for another one.
    """
    posed = _frame_pose(PLACEMENT, model, frame, {"q": q})
    columns = {d: _referred(_column(posed, d), posed, reference) for d in _path(model, posed)}
    return _matrix_rows(model, columns, posed.zero)


@takes_entries
def frame_jacobian_rate(
    model: Model, q: Rows, v: Rows, frame: int | str, reference: str = "LOCAL_WORLD_ALIGNED"
) -> Rows:
    """Time derivative of :func:`frame_jacobian` at velocity v, (6 * nv, N) by rows. Raises ValueError for an unknown reference."""
    _check_reference(reference)
    posed = _frame_pose(MOTION, model, frame, {"q": q, "v": v})
    if posed.body < 0:
        return _matrix_rows(model, {}, posed.zero)
    velocity = row(posed.fields["vel"], posed.body)
    point_rate = velocity.l + velocity.w.cross(posed.pose.p)
    columns = {}
    for d in _path(model, posed):
        S = row(posed.fields["S"], d)
        rate = row(posed.fields["vel"], int(model.dof_body[d])).cross(S)
        if reference == "WORLD":
            columns[d] = Motion(rate.w, rate.l + posed.origin.cross(rate.w))
            continue
        aligned = Motion(rate.w, rate.l + rate.w.cross(posed.pose.p) + S.w.cross(point_rate))
        if reference == "LOCAL":
            J = _column(posed, d)
            aligned = aligned - Motion(velocity.w.cross(J.w), velocity.w.cross(J.l))
        columns[d] = _referred(aligned, posed, reference)
    return _matrix_rows(model, columns, posed.zero)


class FrameKinematics(NamedTuple):
    """Frame in the world: rotation R[i][j], each (N,), position (3, N) [m], and Jacobian (6 * nv, N) by rows.

    The Jacobian is in the reference LOCAL_WORLD_ALIGNED.
    """

    rotation: list[list[Scalar]]
    position: Rows
    jacobian: Rows


@takes_entries
def frame_kinematics(model: Model, q: Rows, frame: int | str) -> FrameKinematics:
    """World rotation and position of a frame, and its Jacobian in LOCAL_WORLD_ALIGNED reference, from one recursion."""
    posed = _frame_pose(PLACEMENT, model, frame, {"q": q})
    jacobian = _matrix_rows(model, {d: _column(posed, d) for d in _path(model, posed)}, posed.zero)
    return FrameKinematics(_rotation(posed), _position(posed), jacobian)


def _path(model: Model, posed: _Posed) -> list[int]:
    """DoFs that move the frame."""
    return model.ancestors(posed.body) if posed.body >= 0 else []


def _column(posed: _Posed, d: int) -> Motion:
    """Motion of the frame's origin and axes at unit rate of DoF d, in world axes."""
    S = row(posed.fields["S"], d)
    return Motion(S.w, S.l + S.w.cross(posed.pose.p))


def _matrix_rows(model: Model, columns: dict[int, Motion], zero: Scalar) -> Rows:
    """Jacobian (6 * nv, N) by rows [linear; angular] from columns by DoF; other columns are zero."""
    entries = [[zero] * model.nv for _ in range(6)]
    for d, m in columns.items():
        for r, c in enumerate((m.l.x, m.l.y, m.l.z, m.w.x, m.w.y, m.w.z)):
            entries[r][d] = c + zero
    return sm.stack([c for r in entries for c in r])


# -- quantities of the whole robot ------------------------------------------------------------------------------------


@body("mass_moment")
def MASS_MOMENT(X, mass, com):
    """Mass of a body times the position of its center of mass. X: pose of the body; com: in its coordinates."""
    return X.point(com) * mass


@body("f")
def MOMENTUM(I_own, vel):
    """Momentum I v about the ground frame's origin."""
    return I_own * vel


@body("kinetic")
def KINETIC(I_own, vel):
    """Kinetic energy v . I v / 2."""
    return vel.dot(I_own * vel) * 0.5


CENTER = Program("center_of_mass", [PLACE, MASS_MOMENT], ["mass_moment"])
MOMENTA = Program("momentum", [PLACE, VELOCITY, INERTIA, MOMENTUM], ["f"])
ENERGY = Program("kinetic_energy", [PLACE, VELOCITY, INERTIA, KINETIC], ["kinetic"])


@takes_entries
def center_of_mass(model: Model, q: Rows) -> Rows:
    """World position (3, N) [m] of the center of mass of all moving bodies."""
    fields = run(CENTER, model, {"q": at_base(model, q)})
    total = Vec(0.0, 0.0, 0.0)
    for b in range(model.nb):
        total = total + row(fields["mass_moment"], b) + base_origin(model, q, b) * float(model.mass[b])
    return _rows([total * (1.0 / model.total_mass)], 0.0 * q[0])


@takes_entries
def spatial_momentum(model: Model, q: Rows, v: Rows) -> Rows:
    """Linear and angular momentum (6, N) of all moving bodies about the world's origin, in world axes.

    The momentum of rotors (armature) is not included.
    """
    fields = run(MOMENTA, model, {"q": at_base(model, q), "v": v})
    linear, angular = Vec(0.0, 0.0, 0.0), Vec(0.0, 0.0, 0.0)
    for b in range(model.nb):
        momentum = row(fields["f"], b)
        linear = linear + momentum.f
        angular = angular + momentum.n + base_origin(model, q, b).cross(momentum.f)
    return _rows([linear, angular], 0.0 * q[0])


def kinetic_energy(model: Model, q: Rows, v: Rows) -> Scalar:
    """Kinetic energy (N,) [J], rotors included."""
    return _kinetic_energy(model, q, v)[0]


@takes_entries
def _kinetic_energy(model: Model, q: Rows, v: Rows) -> list[Scalar]:
    """List with the kinetic energy (N,) [J], of bodies and rotors, as its only entry."""
    fields = run(ENERGY, model, {"q": at_base(model, q), "v": v})
    total = 0.0 * v[0]
    for b in range(model.nb):
        total = total + row(fields["kinetic"], b)
    for d in np.flatnonzero(model.armature):
        total = total + 0.5 * float(model.armature[d]) * v[d] * v[d]
    return [total]


def potential_energy(model: Model, q: Rows) -> Scalar:
    """Potential energy of gravity (N,) [J], zero for a center of mass at the world's origin."""
    center = center_of_mass(model, q)
    g = (-model.total_mass * model.gravity).tolist()
    return g[0] * center[0] + g[1] * center[1] + g[2] * center[2]


# -- orientation ------------------------------------------------------------------------------------------------------


def rotation_log(R: list[list[Scalar]]) -> list[Scalar]:
    """Rotation vector (3) of a rotation matrix R[i][j], of length at most pi."""
    return so3_log(_parallel_quaternion(R)[0])


def quaternion_of_rotation(R: list[list[Scalar]]) -> list[Scalar]:
    """Unit quaternion x y z w of a rotation matrix R[i][j] (Shepperd 1978), by a well-conditioned one of four formulas.

    The formula divides by w if the trace is positive, else by the entry of the largest diagonal element; this entry is positive.
    """
    quaternion, largest = _parallel_quaternion(R)
    scale = 0.5 / sm.sqrt(largest)
    return [scale * a for a in quaternion]


def _parallel_quaternion(R: list[list[Scalar]]) -> tuple[list[Scalar], Scalar]:
    """Column k of 4 q q' for the quaternion q of a rotation matrix, and its entry k, which is at least 1.

    k is w if the trace is positive, else the axis of the largest diagonal entry. Weights 0 or 1, whose derivatives are zero,
    select the column: fewer operations than branches.
    """
    xx, yy, zz = R[0][0], R[1][1], R[2][2]
    trace = xx + yy + zz
    w = sm.select(trace, 1.0, 0.0)
    x = (1.0 - w) * sm.select(xx - yy, sm.select(xx - zz, 1.0, 0.0), 0.0)
    y = (1.0 - w - x) * sm.select(yy - zz, 1.0, 0.0)
    chosen = [x, y, 1.0 - w - x - y, w]
    xy, xz, yz = R[0][1] + R[1][0], R[0][2] + R[2][0], R[1][2] + R[2][1]
    wx, wy, wz = R[2][1] - R[1][2], R[0][2] - R[2][0], R[1][0] - R[0][1]
    rows = [
        [1.0 + xx - yy - zz, xy, xz, wx],
        [xy, 1.0 - xx + yy - zz, yz, wy],
        [xz, yz, 1.0 - xx - yy + zz, wz],
        [wx, wy, wz, 1.0 + trace],
    ]
    quaternion = [sum(row[k] * chosen[k] for k in range(4)) for row in rows]
    return quaternion, sum(quaternion[k] * chosen[k] for k in range(4))


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
