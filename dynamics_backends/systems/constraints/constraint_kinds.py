"""Holonomic constraints, defined by names of frames and joints, and their terms for a model.

    PointContact    a point of a body is fixed in the world                      3 rows
    FrameContact    the pose of a frame is fixed in the world                    6
    PointLoop       points of two bodies coincide                                3
    FrameLoop       frames of two bodies coincide                                6
    JointRelation   q_a = m q_b + o                                              1

``gains`` (kp [1/s^2], kd [1/s]) is the Baumgarte pair: the constraint's acceleration is -kd times its velocity -kp times its
error. With kp = kd = 0, the default, only the acceleration is zero, so that errors can drift. Errors are differences of world
positions, of a relation q_a - m q_b - o, and of poses log6(B^-1 A) in world axes (Pinocchio's and Crocoddyl's up to sign and
axes), B the reference or second frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.pose_error import (
    LogDifferential,
    Mover,
    add_pose_error_second,
    pose_error,
    pose_error_slopes,
)
from dynamics_backends.rigid_body.contact.constraints import (
    FrameContactSide,
    FrameSide,
    PointSide,
    RelationSide,
    Side,
    add_turned,
    force_about_origin,
    motion_of,
    rows_at,
)
from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, point_of_frame
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Force, Transform, Vec, leaves, rotation_of_quaternion
from dynamics_backends.scalar import Rows, Scalar

Gains = tuple[float, float]
"""Baumgarte gains kp [1/s^2] and kd [1/s]."""


_XYZ = ("x", "y", "z")
_SIX = ("rx", "ry", "rz", "x", "y", "z")
_AT_ORIGIN = (*_SIX[3:], *_SIX[:3])
"""Row names (_XYZ, _SIX, _AT_ORIGIN) of points, of a loop of frames, and of a frame contact."""


class Error(NamedTuple):
    """Position error of a constraint by rows, without the factor kp.

    slopes: its derivatives in q by DoF (rows each), or empty if the slopes of the constraint's sides contain them.
    """

    value: list[Scalar]
    slopes: dict[int, list[Scalar]]


@dataclass(frozen=True)
class BoundConstraint:
    """Base class of constraints bound to a model, with the terms that the dynamics need.  ``labels``: a name for each row."""

    model: Model
    name: str
    labels: tuple[str, ...]
    gains: Gains

    def __post_init__(self) -> None:
        found = np.asarray(self.gains, dtype=float)
        if found.shape != (2,) or not (np.isfinite(found) & (found >= 0.0)).all():
            raise ValueError(f"constraint {self.name!r} has gains {self.gains}; expected (kp, kd), both at least 0")

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contributions to the constraint's rows, with their derivatives: one of each constrained body, or one of a relation.

        fields: X (poses), S (joint axes) and vel (velocities) of the recursions; v (nv, N). The base class raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Position error by rows, with its derivatives in q unless the slopes of the sides contain these.

        It is fed back by kp, and :func:`~.consistency.closed_state` removes it. p may contain the reference. The base class
        raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def has_error(self, p: Mapping[str, Any]) -> bool:
        """True if :meth:`error` is defined for these parameters: not for a contact without a reference."""
        return True

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e, e the position error, to qq (nv, nv) in place. weights: one per row.

        Does nothing by default: the :meth:`sides` of points contain them, and relations are linear.
        """

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Constraint force by rows in the form that is reported to the user; by default ``force``, as solved, unchanged."""
        return force

    def reference(self, default: tuple[float, ...] | None, p: Mapping[str, Rows]) -> Any:
        """Run-time parameter "reference[name]", name that of the constraint, or else the default.

        Raises ValueError if both are missing.
        """
        given = p.get(f"reference[{self.name}]", default)
        if given is None:
            raise ValueError(
                f"constraint {self.name!r} has no reference, and its position error needs one; give it one, or the run-time "
                f"parameter 'reference[{self.name}]'"
            )
        return given


@dataclass(frozen=True)
class BoundPoint(BoundConstraint):
    """One point fixed in the world, or two points that coincide.

    fixed: default reference (3,) [m] of one point in the world, if any; not used with two points.
    """

    points: tuple[Point, ...]
    fixed: tuple[float, ...] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed is not None:
            _require_numbers(self.name, self.fixed, 3)

    def has_error(self, p: Mapping[str, Any]) -> bool:
        """True for two points, and with a reference."""
        return len(self.points) == 2 or self.fixed is not None or f"reference[{self.name}]" in p

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of each point to the rows; that of a second point is subtracted."""
        return [
            PointSide(self.model, fields, point, sign) for point, sign in zip(self.points, (1.0, -1.0), strict=False)
        ]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """World position [m] of the first point minus that of the second, or minus the reference of a single point; no slopes.

        Raises ValueError for a single point without a reference.
        """
        places = []
        for point in self.points:
            at = row(fields["X"], point.body).components().point(Vec(*point.at))
            places.append(at + kinematics.base_origin(self.model, q, point.body))
        if len(places) == 1:
            target = self.reference(self.fixed, p)
            places.append(Vec(target[0], target[1], target[2]))
        e = places[0] - places[1]
        return Error([e.x, e.y, e.z], {})


ROUNDED = 1e-3
"""Deviation of a quaternion's norm from 1 that counts as rounding."""


def _require_numbers(name: str, values: tuple[float, ...], count: int) -> None:
    """Raise ValueError unless the reference of a constraint has this many finite numbers."""
    if np.shape(values) != (count,) or not np.isfinite(values).all():
        raise ValueError(f"the reference of constraint {name!r} is {values}; expected {count} finite numbers")


def _require_two_bodies(frames: tuple[str, str], bodies: tuple[int, int]) -> None:
    """Raise ValueError if the two frames of a loop are on one body."""
    if bodies[0] == bodies[1]:
        raise ValueError(f"frames {frames[0]!r} and {frames[1]!r} are on one body; a loop needs frames of two bodies")


class Place(NamedTuple):
    """Frame on a moving body: the body's number, and the frame's pose in the body."""

    body: int
    pose: Transform


@dataclass(frozen=True)
class BoundFrame(BoundConstraint):
    """Frame a and its target: a frame b that coincides with it, or without b a pose in the world.

    fixed: default reference pose (7,), position [m] and quaternion x y z w, if any; not used with b.
    """

    a: Place
    b: Place | None
    fixed: tuple[float, ...] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed is not None:
            _require_numbers(self.name, self.fixed, 7)
            if abs(np.linalg.norm(self.fixed[3:]) - 1.0) > ROUNDED:
                raise ValueError(
                    f"the quaternion {np.asarray(self.fixed[3:]).tolist()} of constraint {self.name!r} is not a unit quaternion"
                )

    def has_error(self, p: Mapping[str, Any]) -> bool:
        """True for two frames, and with a reference."""
        return self.b is not None or self.fixed is not None or f"reference[{self.name}]" in p

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of each frame's body to the rows (angular; linear); that of a second one is subtracted.

        Each is about the working origin of its body, which is the floating base's position for bodies that it carries, else zero.
        """
        places = [self.a] if self.b is None else [self.a, self.b]
        return [
            FrameSide(self.model, fields, Point(self.name, place.body, (0.0, 0.0, 0.0)), sign)
            for place, sign in zip(places, (1.0, -1.0), strict=False)
        ]

    def poses(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> tuple[Transform, Transform]:
        """Poses of the frame and of its target, about the working origin of a's body [m].

        Target: the second frame, else the reference by the run-time parameter "reference[name]", or else the default one; its
        quaternion is normalized.

        Raises ValueError if there is neither a second frame nor a reference.
        """
        origin = kinematics.base_origin(self.model, q, self.a.body)
        first = row(fields["X"], self.a.body).components() @ self.a.pose
        if self.b is not None:
            second = row(fields["X"], self.b.body).components() @ self.b.pose
            apart = kinematics.base_origin(self.model, q, self.b.body) - origin
            return first, Transform(second.R, second.p + apart)
        target = self.reference(self.fixed, p)
        norm = sm.sqrt(sum(target[i] * target[i] for i in range(3, 7)))
        R = rotation_of_quaternion(*(target[i] / norm for i in range(3, 7)))
        return first, Transform(R, Vec(target[0], target[1], target[2]) - origin)

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Pose error X_A log6(B^-1 A) of the frame A relative to its target B, and its derivatives in q by DoF.

        Rows (angular; linear) in world axes about the working origin of a's body, which the derivatives leave fixed; X_A moves a
        motion from A's axes there. Raises ValueError if there is neither a second frame nor a reference.
        """
        e = pose_error(*self.poses(fields, q, p))
        slopes = pose_error_slopes(LogDifferential.at(e), self._movers(fields))
        return Error(leaves(e), {j: leaves(x) for j, x in slopes.items()})

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e, e the pose error (:meth:`error`), to qq (nv, nv) in place."""
        N = Force(Vec(*weights[:3]), Vec(*weights[3:])) * self.gains[0]
        d = LogDifferential.at(pose_error(*self.poses(fields, q, p)))
        add_pose_error_second(qq, d, self._movers(fields), N, self.model.dof_body.tolist())

    def _movers(self, fields: Mapping[str, Any]) -> list[Mover]:
        """DoFs that move at least one of the frames a and b, with their axes and which of the two they move; in order of DoF."""
        on_a = self.model.ancestors(self.a.body)
        on_b = [] if self.b is None else self.model.ancestors(self.b.body)
        return [Mover(j, row(fields["S"], j), j in on_a, j in on_b) for j in sorted({*on_a, *on_b})]

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Wrench [force; moment] on frame a at its origin, in world axes, from ``force``.

        force: solved (moment; force) about the working origin of a's body.
        """
        p = (row(fields["X"], self.a.body).components() @ self.a.pose).p
        f, n = Vec(*force[3:]), Vec(*force[:3])
        moment = n - p.cross(f)
        return [f.x, f.y, f.z, moment.x, moment.y, moment.z]


@dataclass(frozen=True)
class BoundFrameContact(BoundFrame):
    """Frame with a fixed pose in the world and rows (linear; angular) at its origin.

    They are those of :class:`~dynamics_backends.rigid_body.contact.constraints.FrameContactSide`.
    """

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of the frame's body, with rows (linear; angular) at the frame's origin."""
        point = Point(self.name, self.a.body, (0.0, 0.0, 0.0))
        return [FrameContactSide(self.model, fields, point, self._origin(fields))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Pose error as rows (linear; angular) at the frame's origin, and its derivatives in q by DoF with that point held fixed.

        The terms of the moving origin cancel in the derivatives of the constraint's rows, because these are zero. Raises
        ValueError for a missing reference.
        """
        value, slopes = super().error(fields, q, p)
        moved = [rows_at(self._origin(fields), motion_of(x)) for x in (value, *slopes.values())]
        return Error(moved[0], dict(zip(slopes, moved[1:], strict=True)))

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e to qq in place; e: the pose error by rows at the frame's origin.

        The products of e with second derivatives of the origin are left out: they cancel, because the constraint's rows are zero.
        """
        origin = self._origin(fields)
        super().add_error_second(qq, fields, q, p, force_about_origin(origin, weights))
        slopes = super().error(fields, q, p).slopes
        levers = {j: field_at(row(fields["S"], j), origin) for j in slopes}
        turns = {j: Vec(*x[:3]) * self.gains[0] for j, x in slopes.items()}
        add_turned(qq, levers, turns, Vec(*weights[:3]), symmetric=True)

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Wrench [force; moment] on the frame at its origin in world axes: ``force``, as solved, unchanged."""
        return force

    def _origin(self, fields: Mapping[str, Any]) -> Vec:
        """Origin of the frame relative to the working origin [m], in world axes."""
        return (row(fields["X"], self.a.body).components() @ self.a.pose).p


def is_shifted(constraint: BoundConstraint) -> bool:
    """True for loops of frames, whose force is reported at another point than the one it is computed at."""
    return isinstance(constraint, BoundFrame) and not isinstance(constraint, BoundFrameContact)


@dataclass(frozen=True)
class BoundRelation(BoundConstraint):
    """Linear relation q_a - m q_b = o between two coordinates.

    columns: pairs (DoF, coefficient) in v; coordinates: pairs (index, coefficient) in q; the coefficients are 1, -m. offset: o.
    """

    columns: tuple[tuple[int, float], ...]
    coordinates: tuple[tuple[int, float], ...]
    offset: float

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """One side, with the constant coefficients 1 and -m of the two velocities; fields are not used."""
        return [RelationSide(v, dict(self.columns))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Error q_a - m q_b - o of the relation [rad or m]; no slopes, since the side has them."""
        return Error([sum((q[i] * weight for i, weight in self.coordinates), -self.offset + 0.0 * q[0])], {})


# -- public constraints --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointContact:
    """Fixed point: the point at ``offset`` (3,) [m], in a frame's axes, does not accelerate but for the Baumgarte terms.

    gains: kp [1/s^2] and kd [1/s] of Baumgarte's terms, acceleration = -kd velocity - kp error; with (0, 0), the default, errors
    drift. name: default that of the frame.

    With kp, it is driven to ``reference`` (3,) [m] in the world; with kp = 0, the dynamics do not use the reference, but
    :func:`~.consistency.closed_state` does. The run-time parameter "reference[name]" replaces it.
    """

    frame: str
    offset: tuple[float, ...] = (0.0, 0.0, 0.0)
    reference: tuple[float, ...] | None = None
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is the frame's. Raises UnknownName for an unknown frame, ValueError for one of the
        world.
        """
        point = point_of_frame(model, self.frame, self.offset)
        return BoundPoint(model, self.name or self.frame, _XYZ, self.gains, (point,), self.reference)


@dataclass(frozen=True)
class FrameContact:
    """Fixed frame: its spatial acceleration (Featherstone) is zero but for the Baumgarte terms.

    At a frame at rest, as in a contact that holds, this is the classical acceleration. gains (kp [1/s^2], kd [1/s]): see
    :class:`PointContact`.

    With kp, it is driven to the pose ``reference`` (7,) in the world, position [m] and quaternion x y z w, which is normalized;
    with kp = 0, the dynamics do not use the reference, but :func:`~.consistency.closed_state` does. The run-time parameter
    "reference[name]" replaces it.
    """

    frame: str
    reference: tuple[float, ...] | None = None
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is the frame's. Raises UnknownName for an unknown frame, ValueError for one of the
        world.
        """
        place = _place(model, self.frame)
        return BoundFrameContact(model, self.name or self.frame, _AT_ORIGIN, self.gains, place, None, self.reference)


@dataclass(frozen=True)
class PointLoop:
    """Loop closure of points: two points of moving bodies coincide.

    offset_a, offset_b: the points (3,) [m] in the axes of frame_a and frame_b. The dynamics make their accelerations equal, but
    for the Baumgarte terms. gains (kp [1/s^2], kd [1/s]): see :class:`PointContact`. name: default "frame_a-frame_b".
    """

    frame_a: str
    frame_b: str
    offset_a: tuple[float, ...] = (0.0, 0.0, 0.0)
    offset_b: tuple[float, ...] = (0.0, 0.0, 0.0)
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "frame_a-frame_b". Raises UnknownName for an unknown frame, ValueError for a frame
        of the world, and for two frames of one body.
        """
        pairs = ((self.frame_a, self.offset_a), (self.frame_b, self.offset_b))
        points = tuple(point_of_frame(model, f, at) for f, at in pairs)
        _require_two_bodies((self.frame_a, self.frame_b), (points[0].body, points[1].body))
        return BoundPoint(model, self.name or f"{self.frame_a}-{self.frame_b}", _XYZ, self.gains, points, None)


@dataclass(frozen=True)
class FrameLoop:
    """Loop closure of frames: the poses of two frames of moving bodies coincide.

    The dynamics make the accelerations of the two bodies equal, but for the Baumgarte terms. gains (kp [1/s^2], kd [1/s]): see
    :class:`PointContact`. name: default "frame_a-frame_b".
    """

    frame_a: str
    frame_b: str
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "frame_a-frame_b". Raises UnknownName for an unknown frame, ValueError for a frame
        of the world, for two frames of one body, and if only one of the two bodies is carried by the floating base.
        """
        a, b = (_place(model, f) for f in (self.frame_a, self.frame_b))
        _require_two_bodies((self.frame_a, self.frame_b), (a.body, b.body))
        if model.floating_base and (0 in model.ancestors(a.body)) != (0 in model.ancestors(b.body)):
            raise ValueError(
                f"a loop of frames {self.frame_a!r} and {self.frame_b!r}: one moves with the floating base, the other does not; "
                f"make {model.body_names[0]!r} the last body of the world in the file, so that it is no base, or use PointLoop"
            )
        return BoundFrame(model, self.name or f"{self.frame_a}-{self.frame_b}", _SIX, self.gains, a, b, None)


@dataclass(frozen=True)
class JointRelation:
    """Joint coupling: the coordinate of ``joint`` is ``multiplier`` times that of ``source`` plus ``offset`` [rad or m].

    Both are joints of one degree of freedom. The dynamics enforce it on the accelerations, with the Baumgarte terms. gains
    (kp [1/s^2], kd [1/s]): see :class:`PointContact`. name: default "joint~source".
    """

    joint: str
    source: str
    multiplier: float = 1.0
    offset: float = 0.0
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "joint~source". Raises UnknownName for an unknown joint, ValueError for a joint
        that has not exactly one degree of freedom, for a relation of a joint with itself, and for numbers that are not
        finite.
        """
        if not np.isfinite([self.multiplier, self.offset]).all():
            raise ValueError(
                f"relation of {self.joint!r}: multiplier {self.multiplier} and offset {self.offset} must be finite"
            )
        if self.joint == self.source:
            raise ValueError(f"a relation of joint {self.joint!r} with itself; name two joints")
        ids = [model.joint_id(j) for j in (self.joint, self.source)]
        for j, b in zip((self.joint, self.source), ids, strict=True):
            if len(model.dofs(b)) != 1:
                raise ValueError(
                    f"joint {j!r} has {len(model.dofs(b))} degrees of freedom; a relation needs single ones"
                )
        weights = (1.0, -self.multiplier)
        dofs = tuple((model.dofs(b)[0], w) for b, w in zip(ids, weights, strict=True))
        coordinates = tuple((int(model.q_index[b]), w) for b, w in zip(ids, weights, strict=True))
        name = self.name or f"{self.joint}~{self.source}"
        return BoundRelation(model, name, ("q",), self.gains, dofs, coordinates, self.offset)


Constraint = PointContact | FrameContact | PointLoop | FrameLoop | JointRelation


def _place(model: Model, frame: str) -> Place:
    """Body and pose of a frame. Raises UnknownName for an unknown frame, ValueError for a frame of the world."""
    point_of_frame(model, frame)  # raises for frames of the world
    f = model.frames[model.frame_id(frame)]
    return Place(f.body, kinematics.constant_pose(f))
