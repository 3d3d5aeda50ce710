"""Holonomic constraints, defined by names of frames and joints.

    PointContact    a point of a body is fixed in the world                      3 rows
    FrameContact    the pose of a frame is fixed in the world                    6
    PointLoop       points of two bodies coincide                                3
    FrameLoop       frames of two bodies coincide                                6
    JointRelation   q_a = m q_b + o                                              1

``gains`` (kp [1/s^2], kd [1/s]) is the Baumgarte pair: the constraint's acceleration is -kd times its velocity -kp times its error.
Errors are differences of world positions, and of poses log6(B^-1 A) (Pinocchio's and Crocoddyl's up to sign), B the reference or
second frame.
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
from dynamics_backends.rigid_body.contact.constraints import (
    FrameContactSide,
    FrameSide,
    PointSide,
    RelationSide,
    Side,
    add_turned,
    force_about_origin,
    rows_at,
)
from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, point_of_frame
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Force, Motion, Transform, Vec, leaves, rotation_of_quaternion
from dynamics_backends.scalar import Rows, Scalar

Gains = tuple[float, float]


_XYZ = ("x", "y", "z")
_SIX = ("rx", "ry", "rz", "x", "y", "z")
_AT_ORIGIN = (*_SIX[3:], *_SIX[:3])
"""Row names of a point, of a loop of frames, and of a frame contact."""


class Error(NamedTuple):
    """Error of a constraint by rows, and its derivatives in q by DoF if the constraint's sides do not compute them."""

    value: list[Scalar]
    slopes: dict[int, list[Scalar]]


@dataclass(frozen=True)
class BoundConstraint:
    """Constraint bound to a model, with the terms that the dynamics need.  ``labels``: a name for each row."""

    model: Model
    name: str
    labels: tuple[str, ...]
    gains: Gains

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Sides, the contributions of each constrained body to the constraint's rows and their derivatives.

        fields: X (poses), S (joint axes) and vel (velocities) of the recursions; v (nv, N). The base class raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Position error by rows, with its derivatives in q unless the sides compute these.

        It is fed back by kp, and :func:`closed_state` removes it. p may contain the reference. The base class raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete constraint")

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e, e the position error, to qq in place.

        Does nothing by default: the :meth:`sides` of most constraints contain them.
        """

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Constraint force in the form that is reported to the user; by default as solved."""
        return force

    def reference(self, default: tuple[float, ...] | None, p: Mapping[str, Rows]) -> Any:
        """Run-time parameter reference[name], or the default.  Raises ValueError if both are missing."""
        given = p.get(f"reference[{self.name}]", default)
        if given is None:
            raise ValueError(
                f"constraint {self.name!r} has kp = {self.gains[0]} but no reference; give it one, or the run-time "
                f"parameter 'reference[{self.name}]'"
            )
        return given


@dataclass(frozen=True)
class BoundPoint(BoundConstraint):
    """One point fixed in the world, or two points that coincide."""

    points: tuple[Point, ...]
    fixed: tuple[float, ...] | None

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of each point to the rows; that of a second point is subtracted."""
        return [
            PointSide(self.model, fields, point, sign) for point, sign in zip(self.points, (1.0, -1.0), strict=False)
        ]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """World position [m] of the first point minus that of the second, or of the reference. Raises ValueError without one."""
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
    """Frame on a body (-1: the world), with its pose in the body."""

    body: int
    pose: Transform


@dataclass(frozen=True)
class BoundFrame(BoundConstraint):
    """Frame and its target: a frame of another body, or a pose (7,) in the world."""

    a: Place
    b: Place | None
    fixed: tuple[float, ...] | None

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of each frame's body to the rows, about the working origin; that of a second one is subtracted."""
        places = [self.a] if self.b is None else [self.a, self.b]
        return [
            FrameSide(self.model, fields, Point(self.name, place.body, (0.0, 0.0, 0.0)), sign)
            for place, sign in zip(places, (1.0, -1.0), strict=False)
        ]

    def poses(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> tuple[Transform, Transform]:
        """Poses of the frame and of its target (second frame or reference), about the working origin of the first body [m].

        Raises ValueError for a missing reference.
        """
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
        """Pose error log6 of the frame relative to its target, and its derivatives in q by DoF."""
        e = pose_error(*self.poses(fields, q, p))
        slopes = pose_error_slopes(LogDifferential.at(e), self._movers(fields))
        return Error(leaves(e), {j: leaves(x) for j, x in slopes.items()})

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e, e the pose error, to qq in place."""
        N = Force(Vec(*weights[:3]), Vec(*weights[3:])) * self.gains[0]
        d = LogDifferential.at(pose_error(*self.poses(fields, q, p)))
        add_pose_error_second(qq, d, self._movers(fields), N, self.model.dof_body.tolist())

    def _movers(self, fields: Mapping[str, Any]) -> list[Mover]:
        """DoFs that move at least one of the two frames, with their axes."""
        on_a = self.model.ancestors(self.a.body)
        on_b = [] if self.b is None else self.model.ancestors(self.b.body)
        return [Mover(j, row(fields["S"], j), j in on_a, j in on_b) for j in sorted({*on_a, *on_b})]

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Wrench [force; moment] at the frame's origin in world axes, from the solved (moment; force) about the working origin."""
        p = (row(fields["X"], self.a.body).components() @ self.a.pose).p
        f, n = Vec(*force[3:]), Vec(*force[:3])
        moment = n - p.cross(f)
        return [f.x, f.y, f.z, moment.x, moment.y, moment.z]


@dataclass(frozen=True)
class BoundFrameContact(BoundFrame):
    """Frame with a fixed pose in the world and rows at its origin (dynamics_backends.rigid_body.contact.constraints)."""

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """Contribution of the frame's body, with rows at the frame's origin."""
        point = Point(self.name, self.a.body, (0.0, 0.0, 0.0))
        return [FrameContactSide(self.model, fields, point, self._origin(fields))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Pose error, and its derivatives in q by DoF, as rows at the frame's origin."""
        value, slopes = super().error(fields, q, p)
        moved = [rows_at(self._origin(fields), _motion(x)) for x in (value, *slopes.values())]
        return Error(moved[0], dict(zip(slopes, moved[1:], strict=True)))

    def add_error_second(
        self, qq: list[list[Scalar]], fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows], weights: list[Scalar]
    ) -> None:
        """Add the second derivatives in q of weights . kp e to qq in place; e: the pose error by rows at the frame's origin."""
        origin = self._origin(fields)
        super().add_error_second(qq, fields, q, p, force_about_origin(origin, weights))
        slopes = super().error(fields, q, p).slopes
        levers = {j: field_at(row(fields["S"], j), origin) for j in slopes}
        turns = {j: Vec(*x[:3]) * self.gains[0] for j, x in slopes.items()}
        add_turned(qq, levers, turns, Vec(*weights[:3]), symmetric=True)

    def reported(self, fields: Mapping[str, Any], force: list[Scalar]) -> list[Scalar]:
        """Wrench [force; moment] at the frame's origin in world axes, as solved."""
        return force

    def _origin(self, fields: Mapping[str, Any]) -> Vec:
        """Origin of the frame relative to the working origin."""
        return (row(fields["X"], self.a.body).components() @ self.a.pose).p


def is_shifted(constraint: BoundConstraint) -> bool:
    """True for loops of frames, whose force is reported at another point than the one it is computed at."""
    return isinstance(constraint, BoundFrame) and not isinstance(constraint, BoundFrameContact)


def _motion(rows: list[Scalar]) -> Motion:
    """Motion vector of six rows, angular first."""
    return Motion(Vec(*rows[:3]), Vec(*rows[3:]))


@dataclass(frozen=True)
class BoundRelation(BoundConstraint):
    """Linear relation q_a - m q_b = o between two coordinates."""

    columns: tuple[tuple[int, float], ...]
    coordinates: tuple[tuple[int, float], ...]
    offset: float

    def sides(self, fields: Mapping[str, Any], v: Rows) -> list[Side]:
        """One side: the constant coefficients of both velocities."""
        return [RelationSide(v, dict(self.columns))]

    def error(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> Error:
        """Error q_a - m q_b - o of the relation [rad or m]."""
        return Error([sum((q[i] * weight for i, weight in self.coordinates), -self.offset + 0.0 * q[0])], {})


# -- public constraints --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointContact:
    """Fixed point: the point at ``offset`` (3,) [m] of a frame stays at ``reference`` (3,) [m] in the world.

    The reference is required only if kp is not zero.
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
    """Fixed frame: its pose is ``reference`` (7,), position [m] and quaternion x y z w, required only if kp is not zero."""

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
    """Loop closure of points: the points at offsets (3,) [m] of two frames of bodies coincide."""

    frame_a: str
    frame_b: str
    offset_a: tuple[float, ...] = (0.0, 0.0, 0.0)
    offset_b: tuple[float, ...] = (0.0, 0.0, 0.0)
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "frame_a-frame_b". Raises UnknownName for an unknown frame, ValueError for a frame
        of the world.
        """
        pairs = ((self.frame_a, self.offset_a), (self.frame_b, self.offset_b))
        points = tuple(point_of_frame(model, f, at) for f, at in pairs)
        return BoundPoint(model, self.name or f"{self.frame_a}-{self.frame_b}", _XYZ, self.gains, points, None)


@dataclass(frozen=True)
class FrameLoop:
    """Loop closure of frames: two frames of bodies coincide."""

    frame_a: str
    frame_b: str
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "frame_a-frame_b". Raises UnknownName for an unknown frame, ValueError for a frame
        of the world.
        """
        a, b = (_place(model, f) for f in (self.frame_a, self.frame_b))
        return BoundFrame(model, self.name or f"{self.frame_a}-{self.frame_b}", _SIX, self.gains, a, b, None)


@dataclass(frozen=True)
class JointRelation:
    """Joint coupling: the coordinate of a joint is ``multiplier`` times that of another plus ``offset`` [rad or m]."""

    joint: str
    source: str
    multiplier: float = 1.0
    offset: float = 0.0
    gains: Gains = (0.0, 0.0)
    name: str = ""

    def bind(self, model: Model) -> BoundConstraint:
        """Bind to a model; the default name is "joint~source". Raises UnknownName for an unknown joint, ValueError for a joint with
        several degrees of freedom.
        """
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
    """Body and pose of a frame. Raises ValueError for a frame of the world."""
    point_of_frame(model, frame)  # raises for frames of the world
    f = model.frames[model.frame_id(frame)]
    return Place(f.body, kinematics.constant_pose(f))
