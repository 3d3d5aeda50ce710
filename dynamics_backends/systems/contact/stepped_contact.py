"""Rigid bodies in contact over a whole time step: xdot = (v, a) with the mean acceleration a of a step of length h,

    M a + b(q, v) = tau(q, v, u) + sum_c J_c' F_c,     F_c = F(g_c(q), n_c(q), w_c),     w_c = J_c (v + h a)

for each contact point c with the Jacobian J_c, gap g_c and ground normal n_c, and the contact law's force F, so that
semi-implicit Euler, v+ = v + h a and q+ = q (+) h v+, is an implicit step at velocity level: forces are evaluated at the
velocities of the points at the end of the step, and M, J and b at its start.  It is stable in steps of 10 to 20 ms, where the
explicit steps of soft contacts need 1 ms.  The equations are those of a minimum
(:mod:`~dynamics_backends.systems.contact.implicit_step`) and have one solution.

First derivatives, by the implicit function theorem: with H = M - h sum J' F_w J, factored at the solution,

    H da = -d[ID(q, v, a) - tau] + sum_c d(J_c' F_c)  at fixed a,

where F depends on (q, v) through the gap, the normal and w at fixed a.  The derivatives of w are those of a point in a tree that
moves with v + h a.  The viscous damping D of the joints is always implicit: M includes h D (not for a floating base).

Second derivatives of lam' a are those of mu' (ID - tau - sum J'F) along da, mu = -H^-1 lam.  With V = v + h a, dV = dv + h da,
the contributions C of the contacts in (q, V) (:mod:`~dynamics_backends.systems.contact.ground_contact`) subtract

    (dq, dV)' [[C_qq, C_qV], [C_qV', C_VV]] (dq, dV),     C_VV = sum_c J_c' H_ww J_c

The factor of da, -h C_qV, is added to the derivative of M mu in q; C_VV makes a nonlinear in u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import IMPLICIT_STEP, Contraction, Matrix, Parameters, Partials
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.kinematics import base_origin
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
    force_at,
    ground_forces,
    point_motion,
    points_of_frames,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, WithArmature
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.rigid_body_map import WholeMap
from dynamics_backends.systems.constraints.constrained_derivatives import (
    ConstrainedDerivatives,
    DerivativeEquations,
    curvature,
    directions,
)
from dynamics_backends.systems.contact.contact_law import StepLaw, require_law, scaled
from dynamics_backends.systems.contact.ground_contact import (
    Ground,
    OnGround,
    Plane,
    Slopes,
    Surface,
    Touch,
    contact_slopes,
    subtract_second,
    weight_of,
)
from dynamics_backends.systems.contact.implicit_step import (
    Arrival,
    ContactProblem,
    newton_factor,
    solved,
    velocities_after,
)
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone

NOMINAL_STEP = 0.01
"""Default step length [s] of accelerations and forces computed outside of a time step."""


class Start(NamedTuple):
    """State at the start of a step: fields of :func:`started`, the points' motion, the ground under them, and the contact
    problem.
    """

    fields: dict[str, Any]
    motions: list[PointMotion]
    surfaces: list[Surface]
    problem: ContactProblem


class SteppedContact(OnGround, WholeMap, ConstrainedDerivatives, ActuatedBody):
    """System of a robot whose points touch the ground in long time steps, for the integrator semi_implicit_euler.

    ``points``: names of frames, or (frame, offset (3,) [m] in its axes); they are named by their frames, several of one frame
    "frame 1", "frame 2". ``ground`` (default: Plane()): see its module; ``law`` (default: RelaxedCone()): a
    :class:`~dynamics_backends.systems.contact.contact_law.StepLaw`; ``step`` [s]: step length of accelerations and forces
    computed outside of a time step. Further arguments are those of ActuatedBody. Run-time parameters, all optional: IMPLICIT_STEP
    (the step length in place of ``step``), and those of the ground (ground_height, and ground_slope of a Plane) and of the law.
    Raises UnknownName for an unknown frame, ValueError for no point, one of a frame that is fixed to the world, or a step that is
    not positive, TypeError for a law of another kind or whose force fails, and the errors of ActuatedBody.
    """

    scheme = "semi_implicit_euler"
    damps = True

    def __init__(
        self,
        model: Model,
        points: Sequence[str | tuple[str, Sequence[float]]],
        *,
        ground: Ground | None = None,
        law: StepLaw | None = None,
        step: float = NOMINAL_STEP,
        actuated: Sequence[str] | None = None,
        damping: bool = True,
        friction_velocity: float | None = None,
    ) -> None:
        super().__init__(model, actuated=actuated, damping=damping, friction_velocity=friction_velocity)
        if not step > 0:
            raise ValueError(f"step = {step}; it must be a positive number of seconds")
        self.points = points_of_frames(model, points)
        self.ground = ground or Plane()
        self.law: StepLaw = RelaxedCone() if law is None else law
        require_law(self.law, stepped=True)
        self.step = step
        self.parents: list[int] = model.dof_parent.tolist()

    def slower(self, time: float, p: Parameters) -> tuple[SteppedContact, Parameters]:
        """Copy of the system, and parameters, whose law has in steps shorter by ``time`` [s] the forces of this law with p.

        They are equal at the same gap, normal and velocity of a point at the end of the step; see
        :meth:`~dynamics_backends.systems.contact.contact_law.StepLaw.slower`. ``step`` and the step length in p stay.
        """
        slow = copy(self)
        slow.law, given = self.law.slower(time, p)
        return slow, given

    # -- values -------------------------------------------------------------------------------------------------------
    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot = (v, a) with the mean acceleration a of the step.

        Raises TypeError for symbols unless the driver has ``solved_step``.
        """
        _, v = self.split(x)
        a, _ = self._solved(x, u, p)
        return sm.concatenate([v, a])

    def outputs(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> dict[str, Rows]:
        """Mean contact forces (3, N) [N] of the step in world axes, by the names of their points.

        Raises TypeError for symbols unless the driver has ``solved_step``.
        """
        a, s = self._solved(x, u, p)
        m, zero = s.problem, 0.0 * a[0]
        w = velocities_after(m, [m.step * a[i] for i in range(self.model.nv)])
        forces = [m.law.force(c.gap, c.normal, at, m.p) for c, at in zip(m.arrivals, w, strict=True)]
        return {
            point.name: sm.stack([f.x + zero, f.y + zero, f.z + zero])
            for point, f in zip(self.points, forces, strict=True)
        }

    def _solved(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> tuple[Rows, Start]:
        """Mean acceleration (nv, N) and the start of the step.

        Raises TypeError for symbols unless the driver has ``solved_step``.
        """
        solve = getattr(self.driver, "solved_step", solved)
        if hasattr(x, "is_symbolic") and solve is solved:
            raise TypeError(
                "SteppedContact solves its step by iterations, which an expression cannot contain: choose backend = 'analytic'"
            )
        s = self.start(x, u, p)
        delta = solve(s.problem, [x[self.model.nq + i] for i in range(self.model.nv)])
        return sm.stack([d / s.problem.step for d in delta]), s

    def start(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> Start:
        """State at the start of the step from x (nx, N) under u (nu, N): fields, points, ground and the contact problem."""
        q, v = self.split(x)
        given = self._with_step(p)
        fields = started(self.model, q, v, self.driver_at(given))
        motions = [point_motion(self.model, fields, point) for point in self.points]
        surfaces = [self.ground.surface(m.p + base_origin(self.model, q, m.point.body), given) for m in motions]
        tau = self.joint_forces(q, v, u)
        drive = [tau[i] - fields["tau_bias"][i] for i in range(self.model.nv)]
        arrivals = [Arrival(m.J, s.gap, s.normal, m.velocity) for m, s in zip(motions, surfaces, strict=True)]
        problem = ContactProblem(fields["M"], drive, arrivals, given[IMPLICIT_STEP][0], self.parents, self.law, given)
        return Start(fields, motions, surfaces, problem)

    def driver_at(self, p: Mapping[str, Rows]) -> Driver:
        """Driver whose rotor inertias include h D, since damping is implicit in every step."""
        return WithArmature(self.driver, self.rotors(self._with_step(p)[IMPLICIT_STEP][0]))

    def _with_step(self, p: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """Parameters p, in a copy with IMPLICIT_STEP = ``step`` if they have no step length."""
        return p if IMPLICIT_STEP in p else {**p, IMPLICIT_STEP: [self.step]}

    # -- derivatives ---------------------------------------------------------------------------------------------------
    def derivative_equations(
        self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows | None = None
    ) -> DerivativeEquations:
        """Linear equations of the derivatives of a in (q, v, u), by the implicit function theorem at the solved step."""
        return self._linearized(x, u, p, lam)[0]

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives of xdot, and the second derivatives of lam' xdot, by the implicit function theorem.

        lam (2 nv, N): weights; the first nv have no effect.
        """
        parts, s, hessians = self._linearized(x, u, p, lam[self.model.nv :])
        assert parts.g is not None
        found = directions(parts, self.driver)
        second = curvature(self, u, parts.g, found.through)
        for c, hessian in zip(s.motions, hessians, strict=True):
            second = _with_hessian(second, _end_velocity_slopes(c.J, found.dx, s.problem.step), hessian)
        return self.in_output(x, u, parts.x, found.dx), second

    def _linearized(
        self, x: Rows, u: Rows, p: Mapping[str, Rows], lam: Rows | None
    ) -> tuple[DerivativeEquations, Start, list[Mat]]:
        """Linear equations of the derivatives in (q, v, u) of the mean acceleration a, the start of the step, and Hessians.

        With lam (nv, N), the equations have the second derivatives of g = mu' (ID - J'F - tau), with those of the contacts in the
        velocity V at the end of the step as by v, and the Hessians are -H_ww of each contact, to be added along dV / d(q, v, u).
        """
        a, s = self._solved(x, u, p)
        q, v = self.split(x)
        m, n, zero = s.problem, self.model.nv, 0.0 * v[0]
        delta = sm.stack([m.step * a[i] for i in range(n)])
        w = velocities_after(m, [delta[i] for i in range(n)])
        found = [m.law.force_and_slopes(c.gap, c.normal, at, m.p) for c, at in zip(m.arrivals, w, strict=True)]
        factor = newton_factor(m, [d.w for _, d in found])
        touches = [
            Touch(at._replace(velocity=arrived), surface, force)
            for at, surface, arrived, (force, _) in zip(s.motions, s.surfaces, w, found, strict=True)
        ]
        f_ground = ground_forces(
            self.model, [(c.motion.point.body, force_at(c.motion.p, c.force)) for c in touches], zero
        )
        given = {"a": a, "f_ground": f_ground}
        if lam is None:
            fields = finished(CONTACT_FINISH, self.model, s.fields, self.driver, **given)
        else:
            mu = sm.stack(ltl.solve(factor, [-lam[i] for i in range(n)]))
            fields = finished(CONTACT_SECOND, self.model, s.fields, self.driver, **given, mu=mu)
        moving = self.driver(CONTACT_MOTION, self.model, {"q": at_base(self.model, q), "v": v + delta})
        slopes = [Slopes.from_law(c, d, moving["psid"]) for c, (_, d) in zip(touches, found, strict=True)]
        dq, dv = contact_slopes(n, fields, touches, slopes)
        top = self.right_hand_sides(v, dq, dv)
        if lam is None:
            return DerivativeEquations.without_constraints(a, factor, top, None), s, []
        g, hessians = self._second_derivatives(mu, v, m, touches, slopes, {**fields, "psid": moving["psid"]})
        return DerivativeEquations.without_constraints(a, factor, top, g), s, hessians

    def _second_derivatives(
        self,
        mu: Rows,
        v: Rows,
        m: ContactProblem,
        touches: Sequence[Touch],
        slopes: Sequence[Slopes],
        fields: Mapping[str, Any],
    ) -> tuple[Second, list[Mat]]:
        """Second derivatives of g and Hessians of :meth:`_linearized`, from the fields of CONTACT_SECOND and psid of V."""
        n, zero = self.model.nv, 0.0 * v[0]
        g, contacts = (Second.from_fields(given, n, 0, zero) for given in (fields, _zero_fields(n)))
        hessians = []
        for c, slope in zip(touches, slopes, strict=True):
            second = m.law.second_derivatives(
                c.surface.gap, c.surface.normal, c.motion.velocity, weight_of(c, fields), m.p
            )
            hessians.append(
                scaled(subtract_second(contacts, c, slope, second, fields, self.model.dof_body.tolist()), -1.0)
            )
        self.subtract_friction(g.vv, v, mu)
        for i in range(n):
            for j in range(n):
                g.qq[i][j] = g.qq[i][j] + contacts.qq[i][j]
                g.qv[i][j] = g.qv[i][j] + contacts.qv[i][j]
                g.qa[i][j] = g.qa[i][j] + m.step * contacts.qv[i][j]
        return g, hessians


def _zero_fields(n: int) -> dict[str, list[list[float]]]:
    """Fields of second derivatives (n, n) by name, all zero."""
    return {name: [[0.0] * n] * n for name in ("G_qq", "G_qv", "G_vv", "G_qa")}


def _end_velocity_slopes(J: Columns, da: Sequence[Rows], step: Scalar) -> Vec:
    """Derivatives in (q, v, u) of a point's velocity J_c V, V = v + h a, at fixed J_c; three components, each a row."""
    n = len(da)
    first, *others = [column * (step * da[j]) for j, column in J.items()]
    moved = sum(others, first)
    rows = [[row[i] for i in range(row.shape[0])] for row in (moved.x, moved.y, moved.z)]
    for j, column in J.items():
        for row, own in zip(rows, (column.x, column.y, column.z), strict=True):
            row[n + j] = row[n + j] + own
    return Vec(*map(sm.stack, rows))


def _with_hessian(second: Contraction, P: Vec, hessian: Mat) -> Contraction:
    """Contraction with P' hessian P added; P (3 rows over (q, v, u)) by components. Its blocks are xx, ux and uu."""
    ndx, end = len(second.xx), P.x.shape[0]
    product = hessian @ P

    def rows(M: Matrix, at: int, columns: slice) -> list[Rows]:
        """Rows of M plus those of P' hessian P, starting at row ``at``, in these columns."""
        B = Vec(product.x[columns], product.y[columns], product.z[columns])
        return [row + B.x * P.x[at + i] + B.y * P.y[at + i] + B.z * P.z[at + i] for i, row in enumerate(M)]

    before, behind = slice(0, ndx), slice(ndx, end)
    return Contraction(rows(second.xx, 0, before), rows(second.ux, ndx, before), rows(second.uu, ndx, behind))
