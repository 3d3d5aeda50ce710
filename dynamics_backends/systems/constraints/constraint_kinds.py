"""Holonomic constraints by the names of frames and joints: what a user writes down.

    PointContact    a point of a body stays where it is in the world             3 rows
    FrameContact    a frame keeps its pose in the world                          6
    PointLoop       points of two bodies coincide                                3
    FrameLoop       frames of two bodies coincide                                6
    JointRelation   q_a = m q_b + o                                              1

``gains`` (kp [1/s^2], kd [1/s]) is the Baumgarte pair: the constraint's acceleration is -kd times its velocity -kp times
its error.  Errors are differences of world positions, and of poses log6(B^-1 A) (Pinocchio's and Crocoddyl's up to
sign), B the reference or second frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.pose_error import (
    LogDifferential,
    Mover,
    add_pose_error_second,
    pose_error,
    pose_error_slopes,
)
from dynamics_backends.rigid_body.contact.constraints import FrameSide, PointSide, RelationSide, Side
from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, point_of_frame
from dynamics_backends.rigid_body.contact.frame_contact import (
    FrameContactSide,
    add_turned,
    force_about_origin,
    rows_at,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.field_access import row
from dynamics_backends.rigid_body.spatial.spatial import Force, Motion, Transform, Vec, leaves, rotation_of_quaternion
from dynamics_backends.scalar import Rows, Scalar

Gains = tuple[float, float]


_XYZ = ("x", "y", "z")
_SIX = ("rx", "ry", "rz", "x", "y", "z")
_AT_ORIGIN = (*_SIX[3:], *_SIX[:3])
"""Names of the rows of a point, of a loop of frames, and of a frame in contact."""


class Error(NamedTuple):
    """A constraint's error by rows, and its slopes in q by DoF where the sides do not give them."""

    value: list[Scalar]
    slopes: dict[int, list[Scalar]]


@dataclass(frozen=True)
class BoundConstraint:
    """A constraint on a model: what the dynamics ask for.  ``labels``: a name for each row."""

    model: Model
    name: str
    labels: tuple[str, ...]
    gains: Gains

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """The bodies' shares at fields X, S, vel and velocities v (nv, N)."""
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """The position error, asked for where kp is not zero."""
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """qq += second derivatives of weights . kp e(q), where the sides do not give them."""

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """The constraint force as a user knows it."""
        return force

    def reference(self, default: tuple[float, ...] | None, p: Mapping[str, Rows]) -> Any:
        """The run-time parameter reference[name], or the default.  Raises ValueError where neither is given."""
        given = p.get(f"reference[{self.name}]", default)
        if given is None:
            raise ValueError(
                f"constraint {self.name!r} has kp = {self.gains[0]} but no reference; give it one, or the run-time "
                f"parameter 'reference[{self.name}]'"
            )
        return given


@dataclass(frozen=True)
class BoundPoint(BoundConstraint):
    """One point, or two that coincide."""

    points: tuple[Point, ...]
    fixed: tuple[float, ...] | None

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        return [
            PointSide(self.model, fields, point, sign) for point, sign in zip(self.points, (1.0, -1.0), strict=False)
        ]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        places = []
        for point in self.points:
            at = row(fields["X"], point.body).components().point(Vec(*point.at))
            places.append(at + kinematics.base_origin(self.model, q, point.body))
        if len(places) == 1:
            target = self.reference(self.fixed, p)
            places.append(Vec(target[0], target[1], target[2]))
        e = places[0] - places[1]
        return Error([e.x, e.y, e.z], {})


class Place(NamedTuple):
    """A frame: a body (-1: the world) and the pose in it."""

    body: int
    pose: Transform


@dataclass(frozen=True)
class BoundFrame(BoundConstraint):
    """A frame and its target: a frame of another body, or a pose (7,) in the world."""

    a: Place
    b: Place | None
    fixed: tuple[float, ...] | None

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        places = [self.a] if self.b is None else [self.a, self.b]
        return [
            FrameSide(self.model, fields, Point(self.name, place.body, (0.0, 0.0, 0.0)), sign)
            for place, sign in zip(places, (1.0, -1.0), strict=False)
        ]

    def poses(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> tuple[Transform, Transform]:
        """The poses of both frames, about the working origin of the first [m]."""
        origin = kinematics.base_origin(self.model, q, self.a.body)
        first = row(fields["X"], self.a.body).components() @ self.a.pose
        if self.b is not None:
            second = row(fields["X"], self.b.body).components() @ self.b.pose
            apart = kinematics.base_origin(self.model, q, self.b.body) - origin
            return first, Transform(second.R, second.p + apart)
        target = self.reference(self.fixed, p)
        R = rotation_of_quaternion(target[3], target[4], target[5], target[6])
        return first, Transform(R, Vec(target[0], target[1], target[2]) - origin)

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """See :mod:`~dynamics_backends.rigid_body.algorithms.pose_error`."""
        e = pose_error(*self.poses(fields, q, p))
        slopes = pose_error_slopes(LogDifferential.at(e), self._movers(fields))
        return Error(leaves(e), {j: leaves(x) for j, x in slopes.items()})

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        N = Force(Vec(*weights[:3]), Vec(*weights[3:])) * self.gains[0]
        d = LogDifferential.at(pose_error(*self.poses(fields, q, p)))
        add_pose_error_second(qq, d, self._movers(fields), N, self.model.dof_body.tolist())

    def _movers(self, fields: Mapping[str, Any]) -> list[Mover]:
        on_a = self.model.ancestors(self.a.body)
        on_b = [] if self.b is None else self.model.ancestors(self.b.body)
        return [Mover(j, row(fields["S"], j), j in on_a, j in on_b) for j in sorted({*on_a, *on_b})]

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """The wrench [force; moment] at the frame's origin in world axes."""
        p = (row(fields["X"], self.a.body).components() @ self.a.pose).p
        f, n = Vec(*force[3:]), Vec(*force[:3])
        moment = n - p.cross(f)
        return [f.x, f.y, f.z, moment.x, moment.y, moment.z]


@dataclass(frozen=True)
class BoundFrameContact(BoundFrame):
    """A frame and a pose in the world, with rows at the frame's origin (dynamics_backends.rigid_body.contact.frame_contact)."""

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        point = Point(self.name, self.a.body, (0.0, 0.0, 0.0))
        return [FrameContactSide(self.model, fields, point, self._origin(fields))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        value, slopes = super().error(fields, q, p)
        moved = [rows_at(self._origin(fields), _motion(x)) for x in (value, *slopes.values())]
        return Error(moved[0], dict(zip(slopes, moved[1:], strict=True)))

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        origin = self._origin(fields)
        super().add_error_second(qq, fields, q, p, force_about_origin(origin, weights))
        slopes = super().error(fields, q, p).slopes
        levers = {j: field_at(row(fields["S"], j), origin) for j in slopes}
        turns = {j: Vec(*x[:3]) * self.gains[0] for j, x in slopes.items()}
        add_turned(qq, levers, turns, Vec(*weights[:3]), symmetric=True)

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """The wrench [force; moment] at the frame's origin in world axes: what is solved for."""
        return force

    def _origin(self, fields: Mapping[str, Any]) -> Vec:
        return (row(fields["X"], self.a.body).components() @ self.a.pose).p


def is_shifted(constraint: BoundConstraint) -> bool:
    """True if a force is reported at another place than where it is solved for: of loops of frames."""
    return isinstance(constraint, BoundFrame) and not isinstance(constraint, BoundFrameContact)


def _motion(rows: list[Scalar]) -> Motion:
    return Motion(Vec(*rows[:3]), Vec(*rows[3:]))


@dataclass(frozen=True)
class BoundRelation(BoundConstraint):
    """One coordinate follows another."""

    columns: tuple[tuple[int, float], ...]
    coordinates: tuple[tuple[int, float], ...]
    offset: float

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        return [RelationSide(v, dict(self.columns))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        return Error([sum((q[i] * weight for i, weight in self.coordinates), -self.offset + 0.0 * q[0])], {})


# -- what a user writes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointContact:
    """The point at ``offset`` (3,) [m] of a frame stays at ``reference`` (3,) [m] in the world, which is required with kp only."""

    frame: str
    offset: tuple[float, ...] = (0.0, 0.0, 0.0)
    reference: tuple[float, ...] | None = None
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Raises UnknownName for an unknown frame, ValueError for one of the world."""
        point = point_of_frame(model, self.frame, self.offset)
        return BoundPoint(model, self.name or self.frame, _XYZ, self.gains, (point,), self.reference)


@dataclass(frozen=True)
class FrameContact:
    """A frame has the fixed pose ``reference`` (7,), position [m] and quaternion x y z w, which is required with kp only."""

    frame: str
    reference: tuple[float, ...] | None = None
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Raises UnknownName for an unknown frame, ValueError for one of the world."""
        place = _place(model, self.frame)
        return BoundFrameContact(model, self.name or self.frame, _AT_ORIGIN, self.gains, place, None, self.reference)


@dataclass(frozen=True)
class PointLoop:
    """The points at offsets (3,) [m] of two frames of bodies coincide."""

    frame_a: str
    frame_b: str
    offset_a: tuple[float, ...] = (0.0, 0.0, 0.0)
    offset_b: tuple[float, ...] = (0.0, 0.0, 0.0)
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Raises UnknownName for an unknown frame, ValueError for one of the world."""
        pairs = ((self.frame_a, self.offset_a), (self.frame_b, self.offset_b))
        points = tuple(point_of_frame(model, f, at) for f, at in pairs)
        return BoundPoint(model, self.name or f"{self.frame_a}-{self.frame_b}", _XYZ, self.gains, points, None)


@dataclass(frozen=True)
class FrameLoop:
    """Two frames of bodies coincide."""

    frame_a: str
    frame_b: str
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Raises UnknownName for an unknown frame, ValueError for one of the world."""
        a, b = (_place(model, f) for f in (self.frame_a, self.frame_b))
        return BoundFrame(model, self.name or f"{self.frame_a}-{self.frame_b}", _SIX, self.gains, a, b, None)


@dataclass(frozen=True)
class JointRelation:
    """The coordinate of a joint is ``multiplier`` times that of another plus ``offset`` [rad or m]."""

    joint: str
    source: str
    multiplier: float = 1.0
    offset: float = 0.0
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Raises UnknownName for an unknown joint, ValueError for one of several degrees of freedom."""
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
    point_of_frame(model, frame)  # refuses frames of the world
    f = model.frames[model.frame_id(frame)]
    return Place(f.body, kinematics.constant_pose(f))
