"""Rigid bodies under holonomic constraints: xdot = (v, a) with

    M a + h = tau + J' f,     J a + gamma + R f = 0,     gamma = Jdot v + kd J v + kp e(q)

for the constraints of :mod:`~dynamics_backends.systems.constraints.constraint_kinds` and the joint forces of
:mod:`~dynamics_backends.systems.bodies.actuated_body`; R is a small damping that keeps redundant constraints solvable.

First derivatives (Kudruss et al., Prop. 3, simplified: no dM, no dJ): with K of
:mod:`~dynamics_backends.rigid_body.contact.contact_dynamics`

    K (da; -df) = -( d[ID(q, v, a) - J'f - tau]; d[J a + gamma] ) at fixed a, f,

one IDSVA at the solution, with the factors of the values.  Second derivatives: with (mu; nu) from K (mu; nu) = -(lam; 0),
held fixed, and g = mu' (ID - J'f - tau) + nu' (J a + gamma), y = (a; -f) enters linearly, so that

    lam' a_xx = g_xx + g_xy y_x + (g_xy y_x)'.

The second derivatives of phi' f, of the forces, are the same with K (mu; nu) = (0; phi).

These equations are for active constraints; for the others see :mod:`~dynamics_backends.systems.constraints.constraint_set`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array, Matrix, Parameters
from dynamics_backends.rigid_body.algorithms.forward_dynamics import equations_of_motion
from dynamics_backends.rigid_body.contact import contact_dynamics
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_dynamics import (
    CONSTRAINED_FINISH,
    CONSTRAINED_SECOND,
    ConstrainedFactor,
    finished,
    started,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.rigid_body_map import WholeMap
from dynamics_backends.systems.constraints.consistency import known_errors, redundant_constraints, row_speeds, rows_at
from dynamics_backends.systems.constraints.constrained_derivatives import (
    ConstrainedDerivatives,
    DerivativeEquations,
    directions,
)
from dynamics_backends.systems.constraints.constraint_kinds import Constraint
from dynamics_backends.systems.constraints.constraint_set import (
    DAMPING,
    ConstraintSet,
    ConstraintState,
    summed_columns,
    switch_columns,
)

LITTLE_DAMPING = 1e-6
"""Damping ratio up to which rows that are nearly redundant cause huge forces."""


class ConstrainedMotion(NamedTuple):
    """Solution at the states of a batch: fields of the recursion, constraints, factor, accelerations a and constraint forces.

    a (nv, N). forces: f by rows of all constraints, before the multiplication by activations.
    """

    fields: dict[str, Any]
    constraint_states: list[ConstraintState]
    factor: ConstrainedFactor
    a: Rows
    forces: list[Scalar]


class Holonomic(WholeMap, ConstrainedDerivatives, ActuatedBody):
    """System of a robot under holonomic constraints, such as feet that stand or closed loops: state (q, v), joint forces u (nu).

    The accelerations a and the constraint forces f solve M a + h = tau + J' f and J a + gamma + R f = 0, with
    gamma = Jdot v + kd J v + kp error. constraints: :class:`PointContact`, :class:`FrameContact`, :class:`PointLoop`,
    :class:`FrameLoop` and :class:`JointRelation`. damping_ratio: R relative to the diagonal of J M^-1 J'; it keeps redundant
    constraints solvable, and may be zero if there are none. actuated, damping, friction_velocity: as in
    :class:`~trajopt.FreeBody`. Run-time parameters: "reference[name]", the position (3,) [m] or pose (7,) of a contact with kp;
    "active[name]" (1,), 1 or 0: an inactive constraint has no force. Raises ValueError for no constraint, two of one name or a
    negative damping_ratio, UnknownName for a frame or joint that the model does not have, and the errors of FreeBody.
    """

    def __init__(
        self,
        model: Model,
        constraints: Sequence[Constraint],
        *,
        damping_ratio: float = DAMPING,
        actuated: Sequence[str] | None = None,
        damping: bool = True,
        friction_velocity: float | None = None,
    ) -> None:
        super().__init__(model, actuated=actuated, damping=damping, friction_velocity=friction_velocity)
        self.constraints = ConstraintSet(model, constraints, damping_ratio)

    # -- values -------------------------------------------------------------------------------------------------------
    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot = (v, a) with the accelerations a under the constraints."""
        return sm.concatenate([self.split(x)[1], self.motion(x, u, p, equations_of_motion).a])

    def position_errors(self, xs: Array, p: Parameters) -> dict[str, Array]:
        """Largest position errors (K,) of loops, relations and contacts with a reference, see :class:`HasConstraints`."""
        return known_errors(self.constraints, xs, p)

    def speeds(self, x: Array, p: Parameters) -> dict[str, float]:
        """Largest velocities of the rows of each constraint, see :class:`HasConstraints`."""
        return row_speeds(self.constraints, x, p)

    def jacobian(self, x: Array, p: Parameters) -> Array:
        """Matrix (rows, nv) of the constraints on the velocities, see :class:`HasConstraints`."""
        return rows_at(self.constraints, x, p)[0]

    def redundant_rows(self, x: Array, p: Parameters) -> list[str]:
        """Names of redundant rows if damping_ratio is at most LITTLE_DAMPING, see :class:`HasConstraints`."""
        if self.constraints.damping_ratio > LITTLE_DAMPING:
            return []
        return [f"{d.constraint}.{d.row}" for d in redundant_constraints(self.constraints, x, p)]

    def outputs(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> dict[str, Rows]:
        """Constraint forces on the robot by name, in world axes (of a loop: on its first frame); zero for inactive constraints.

        Points (3, N) [N], frames [force; moment] (6, N) [N, N m] at the (first) frame's origin, relations (1, N): the force on
        ``joint`` along its axis [N or N m].
        """
        s = self.motion(x, u, p, equations_of_motion)
        return self.constraints.by_name(s.fields, s.constraint_states, s.forces, 0.0 * x[0])

    def motion(
        self, x: Rows, u: Rows, p: Mapping[str, Rows], equations: Callable[..., dict[str, Any]] = started
    ) -> ConstrainedMotion:
        """Accelerations and forces from one solution of the equations of motion, with the fields and the factor used.

        equations: function (model, q, v, driver) of the recursion, which returns its fields by name; the default computes all
        that derivatives need. Raises ValueError for a contact with kp but no reference.
        """
        q, v = self.split(x)
        fields = equations(self.model, q, v, self.driver_at(p))
        constraint_states = self.constraints.constraint_states(fields, q, v, p)
        factor = self.constraints.factor(fields, constraint_states)
        tau = self.joint_forces(q, v, u)
        top = [tau[i] - fields["tau_bias"][i] for i in range(self.model.nv)]
        a, forces = contact_dynamics.solve(factor, top, [-x for x in self.constraints.bias(fields, constraint_states)])
        return ConstrainedMotion(fields, constraint_states, factor, sm.stack(a), forces)

    # -- derivatives ----------------------------------------------------------------------------------------------------
    def derivative_equations(
        self,
        x: Rows,
        u: Rows,
        t: Scalar,
        p: Mapping[str, Rows],
        lam: Rows | None = None,
        in_forces: Sequence[Scalar] | None = None,
    ) -> DerivativeEquations:
        """Linear equations of the derivatives of a and f in (q, v, u), with the solution.

        With weights lam (nv, N), also the second derivatives of g (module header) from which those of lam' a follow; without lam,
        ``g`` is None. in_forces: weights phi of f by rows, for the second derivatives of lam' a + phi' f; not used without lam.
        """
        q, v = self.split(x)
        s = self.motion(x, u, p)
        if lam is None:
            return self._first_order(v, s)
        fields, g = self._curved(q, v, p, s, lam, in_forces)
        return DerivativeEquations(s.a, s.factor, *self._both_sides(v, s, fields), g, s.forces)

    def _first_order(self, v: Rows, s: ConstrainedMotion) -> DerivativeEquations:
        """Linear equations of the first derivatives of a and f in (q, v, u) at the solution s; ``g`` is None."""
        fields = finished(CONSTRAINED_FINISH, self.model, s.fields, self.driver, a=s.a)
        return DerivativeEquations(s.a, s.factor, *self._both_sides(v, s, fields), None, s.forces)

    def sensitivities(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> tuple[ConstrainedMotion, Matrix, Matrix]:
        """Solution, and the derivatives of a and of the constraint forces f in (q, v, u), by rows (2 nv + nu, N)."""
        s = self.motion(x, u, p)
        found = directions(self._first_order(self.split(x)[1], s), self.driver)
        return s, found.dx, found.df

    def _both_sides(self, v: Rows, s: ConstrainedMotion, fields: Mapping[str, Any]) -> tuple[list[Rows], list[Rows]]:
        """Right-hand sides (top, bottom) for the derivatives of a and of the constraint forces in (q, v, u).

        top: :meth:`right_hand_sides`; bottom: the rows of :meth:`_row_slopes` of all constraints, each (2 nv + nu, N).
        fields: those of CONSTRAINED_FINISH or CONSTRAINED_SECOND.
        """
        n, zero = self.model.nv, 0.0 * s.a[0]
        dq, dv = ([[-M[i][j] for j in range(n)] for i in range(n)] for M in (fields["dtau_dq"], fields["dtau_dv"]))
        bottom = []
        for h in s.constraint_states:
            for side in h.sides:
                side.add_force_slopes(dq, h.select(s.forces))
            bottom += self._row_slopes(h, fields, zero)
        return self.right_hand_sides(v, dq, dv), bottom

    def _row_slopes(self, h: ConstraintState, fields: Mapping[str, Any], zero: Scalar) -> list[Rows]:
        """Negative derivatives in (q, v, u) of the constraint's rows J a + gamma at fixed a, times its activation."""
        n, (kp, kd) = self.model.nv, h.bound.gains
        slopes = [side.slopes(fields, kd, kp) for side in h.sides]
        in_q, in_v = summed_columns([s.q for s in slopes]), summed_columns([s.v for s in slopes])
        if h.error is not None and h.error.slopes:
            in_q = summed_columns([in_q, {j: [kp * e for e in column] for j, column in h.error.slopes.items()}])
        rows = []
        for r in range(len(h.bound.labels)):
            entries = [zero] * (2 * n + self.nu)
            for first, columns in ((0, in_q), (n, in_v)):
                for j, column in columns.items():
                    entries[first + j] = zero - h.switched(column[r])
            rows.append(sm.stack(entries))
        return rows

    def _curved(
        self,
        q: Rows,
        v: Rows,
        p: Mapping[str, Rows],
        s: ConstrainedMotion,
        lam: Rows,
        in_forces: Sequence[Scalar] | None,
    ) -> tuple[dict[str, Any], Second]:
        """Solve for the adjoints, K (mu; nu) = (-lam; in_forces); return the fields and the second derivatives of g.

        g = mu' (ID - J'f - tau) + nu' (J a + gamma) at fixed mu and nu. Fields: those of the solution s, updated by those of
        CONSTRAINED_SECOND. in_forces: weights of f by rows; None for zeros.
        """
        n, zero, rows = self.model.nv, 0.0 * v[0], self.constraints.rows
        below = [zero] * rows if in_forces is None else list(in_forces)
        weights, minus_nu = contact_dynamics.solve(s.factor, [-lam[i] for i in range(n)], below)
        mu, nu = sm.stack(weights), [-x for x in minus_nu]
        fields = finished(CONSTRAINED_SECOND, self.model, s.fields, self.driver, a=s.a, mu=mu)
        g = Second.from_fields(fields, n, rows, zero)
        for h in s.constraint_states:
            for side in h.sides:
                side.add_second(g, fields, h.select(s.forces), h.select(nu), h.bound.gains, h.first_row)
            if h.error is not None:
                h.bound.add_error_second(g.qq, s.fields, q, p, h.select(nu))
        switch_columns(g, s.constraint_states)
        self.subtract_friction(g.vv, v, mu)
        return fields, g
