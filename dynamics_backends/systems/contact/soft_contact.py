"""Rigid bodies in soft contact with the ground: xdot = (v, a) with M a + h = tau + sum_c J_c' F_c(p_c, w_c).

F_c is the force of a contact law (:mod:`~dynamics_backends.systems.contact.contact_law`) on the contact point c at world position
p_c with velocity w_c and Jacobian J_c, h the bias force; tau are the joint forces of
:mod:`~dynamics_backends.systems.bodies.actuated_body`.

First derivatives.  IDSVA with the contact forces as external forces rotates them with their bodies; the true forces
do not rotate, so that in column j, with F_p, F_w the law's derivatives and S_j.w the axis of DoF j,

    d(ID - J'F)/dq_j = IDSVA_j - J' (F_p J_j + F_w dw/dq_j + F x S_j.w),     d(ID - J'F)/dv_j = IDSVA_j - J' F_w J_j.

Second derivatives of lam' a follow from those of mu' (ID - J'F) at fixed mu = -M^-1 lam: the part of body-fixed forces is
:mod:`~dynamics_backends.rigid_body.derivatives.rnea_second_order`, the rest
:mod:`~dynamics_backends.systems.contact.ground_contact`. They cost O(depth^2) for each contact, in entries that the mass matrix
has as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.forward_dynamics import equations_of_motion
from dynamics_backends.rigid_body.algorithms.kinematics import MOTION, base_origin
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_dynamics import (
    CONTACT_FINISH,
    CONTACT_MOTION,
    CONTACT_SECOND,
    finished,
    started,
)
from dynamics_backends.rigid_body.contact.contact_points import (
    Columns,
    PointMotion,
    add_joint_forces,
    force_at,
    ground_forces,
    point_motion,
    points_of_frames,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.spatial.spatial import Force, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.rigid_body_map import WholeMap
from dynamics_backends.systems.constraints.constrained_derivatives import ConstrainedDerivatives, DerivativeEquations
from dynamics_backends.systems.contact.contact_law import ContactLaw, require_law
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_contact import (
    Ground,
    OnGround,
    Plane,
    Slopes,
    Touch,
    contact_slopes,
    subtract_second,
    weight_of,
)


class _Solved(NamedTuple):
    """Solution at one state: fields of :func:`started`, the contacts, the accelerations a (nv, N), and the contact forces as a
    field of forces on the bodies, about the working origin.
    """

    fields: dict[str, Any]
    touches: list[Touch]
    a: Rows
    f_ground: Any


class SoftContact(OnGround, WholeMap, ConstrainedDerivatives, ActuatedBody):
    """System of a robot whose points touch soft ground.

    ``points``: names of frames, or (frame, offset (3,) [m] in its axes); they are named by their frames, several of one frame
    "frame 1", "frame 2". ``ground`` (default: Plane()) and ``law`` (default: SoftContactLaw()): see their modules; further
    arguments are those of ActuatedBody. Run-time parameters, all optional: those of the ground (ground_height, and ground_slope of
    a Plane) and of the law, such as contact_stiffness. Raises UnknownName for an unknown frame, ValueError for no point or one of a
    frame that is fixed to the world, TypeError for a law of another kind or whose force fails, and the errors of ActuatedBody.
    """

    def __init__(
        self,
        model: Model,
        points: Sequence[str | tuple[str, Sequence[float]]],
        *,
        ground: Ground | None = None,
        law: ContactLaw | None = None,
        actuated: Sequence[str] | None = None,
        damping: bool = True,
        friction_velocity: float | None = None,
    ) -> None:
        super().__init__(model, actuated=actuated, damping=damping, friction_velocity=friction_velocity)
        self.points = points_of_frames(model, points)
        self.ground = ground or Plane()
        self.law: ContactLaw = SoftContactLaw() if law is None else law
        require_law(self.law, stepped=False)

    # -- values -------------------------------------------------------------------------------------------------------
    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot = (v, a) with the contact forces at this state."""
        q, v = self.split(x)
        fields = equations_of_motion(self.model, q, v, self.driver_at(p))
        return sm.concatenate([v, self._acceleration(fields, self._touches(fields, q, p), self.joint_forces(q, v, u))])

    def outputs(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> dict[str, Rows]:
        """Contact forces (3, N) [N] in world axes, by the names of their points."""
        q, v = self.split(x)
        fields = self.driver(MOTION, self.model, {"q": at_base(self.model, q), "v": v})
        zero = 0.0 * v[0]
        touches = self._touches(fields, q, p)
        return {c.motion.point.name: sm.stack([f + zero for f in (c.force.x, c.force.y, c.force.z)]) for c in touches}

    def _touches(self, fields: Mapping[str, Any], q: Rows, p: Mapping[str, Rows]) -> list[Touch]:
        """Contacts of all points: motion, ground and force, from the poses, velocities and joint axes in ``fields``."""
        return [self._touch(point_motion(self.model, fields, point), q, p) for point in self.points]

    def _touch(self, m: PointMotion, q: Rows, p: Mapping[str, Rows]) -> Touch:
        """Contact at one point: its motion, the ground under it and the force on it."""
        s = self.ground.surface(m.p + base_origin(self.model, q, m.point.body), p)
        return Touch(m, s, self.law.force(s.gap, s.normal, m.velocity, p))

    # -- derivatives ---------------------------------------------------------------------------------------------------
    def derivative_equations(
        self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows | None = None
    ) -> DerivativeEquations:
        """Linear equations M da = top of the derivatives of a in (q, v, u), with those of the contact law.

        With weights lam (nv, N), also the second derivatives of g = mu' (ID - J'F - tau), mu = -M^-1 lam.
        """
        q, v = self.split(x)
        s = self._solved(q, v, u, p)
        factor, given = s.fields["factor"], {"a": s.a, "f_ground": s.f_ground}
        slopes = [self._slopes(c, s.fields, p) for c in s.touches]
        if lam is None:
            fields, g = finished(CONTACT_FINISH, self.model, s.fields, self.driver, **given), None
        else:
            mu = sm.stack(ltl.solve(factor, [-lam[i] for i in range(self.model.nv)]))
            fields = finished(CONTACT_SECOND, self.model, s.fields, self.driver, **given, mu=mu)
            g = Second.from_fields(fields, self.model.nv, 0, 0.0 * v[0])
            for c, slope in zip(s.touches, slopes, strict=True):
                self._add_second(g, c, slope, {**s.fields, "w": fields["w"], "chi": fields["chi"]}, p)
            self.subtract_friction(g.vv, v, mu)
        dq, dv = contact_slopes(self.model.nv, fields, s.touches, slopes)
        return DerivativeEquations.without_constraints(s.a, factor, self.right_hand_sides(v, dq, dv), g)

    def _solved(self, q: Rows, v: Rows, u: Rows, p: Mapping[str, Rows]) -> _Solved:
        """Fields, contacts, accelerations and contact forces at one state."""
        fields = started(self.model, q, v, self.driver_at(p))
        touches = self._touches(fields, q, p)
        a = self._acceleration(fields, touches, self.joint_forces(q, v, u))
        return _Solved(fields, touches, a, ground_forces(self.model, _on_bodies(touches), 0.0 * v[0]))

    def _acceleration(self, fields: Mapping[str, Any], touches: Sequence[Touch], tau: Rows) -> Rows:
        """Accelerations M^-1 (tau - h + sum_c J_c' F_c) (nv, N), with the bias force h."""
        net = [tau[i] - fields["tau_bias"][i] for i in range(self.model.nv)]
        add_joint_forces(net, self.model, fields["S"], _on_bodies(touches))
        return sm.stack(ltl.solve(fields["factor"], net))

    def _slopes(self, c: Touch, fields: Mapping[str, Any], p: Mapping[str, Rows]) -> Slopes:
        """Derivatives of one contact, from those of the law and fields["psid"], of the joint velocities v."""
        d = self.law.slopes(c.surface.gap, c.surface.normal, c.motion.velocity, p)
        return Slopes.from_law(c, d, fields["psid"])

    def force_slopes(self, x: Rows, p: Mapping[str, Rows]) -> list[tuple[Vec, Columns, Columns]]:
        """Force [N] on each contact point in world axes, and its derivatives in q and in v, as columns by DoF; in the order of
        points.
        """
        q, v = self.split(x)
        fields = self.driver(CONTACT_MOTION, self.model, {"q": at_base(self.model, q), "v": v})
        touches = self._touches(fields, q, p)
        slopes = [self._slopes(c, fields, p) for c in touches]
        return [(c.force, s.force_q, s.force_v) for c, s in zip(touches, slopes, strict=True)]

    def _add_second(
        self, g: Second, c: Touch, slopes: Slopes, fields: Mapping[str, Any], p: Mapping[str, Rows]
    ) -> None:
        """Add one contact's second derivatives of -mu' J'F in (q, q), (q, v) and (v, v) to g in place, without the terms of a
        force fixed to its body.

        fields: those of :func:`started`, with w and chi of mu.
        """
        m = c.motion
        second = self.law.second_derivatives(c.surface.gap, c.surface.normal, m.velocity, weight_of(c, fields), p)
        hessian = subtract_second(g, c, slopes, second, fields, self.model.dof_body.tolist())
        for j, column in m.J.items():
            curved = hessian @ column
            for k, J in m.J.items():
                g.vv[k][j] = g.vv[k][j] - J.dot(curved)


def _on_bodies(touches: Sequence[Touch]) -> list[tuple[int, Force]]:
    """Pairs (body, contact force about the working origin) of the contacts."""
    return [(c.motion.point.body, force_at(c.motion.p, c.force)) for c in touches]
