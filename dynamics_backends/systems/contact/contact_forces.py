"""Contact forces as maps of (x, u), so that friction cones and unilateral forces become cost terms and constraints.

    SoftForces          forces of a :class:`~dynamics_backends.systems.contact.soft_contact.SoftContact`, of (q, v)
    ConstraintForces    forces of a :class:`~dynamics_backends.systems.constraints.holonomic.Holonomic`, of (q, v, u)

Rows are those of the system's ``outputs``, contact by contact or constraint by constraint, in world axes; a relation between
joints has one row, the force in its joint.  First derivatives are analytic.  Those of a soft contact are F_p dp + F_w dw, with
the derivatives F_p, F_w of its force F in the position p and the velocity w of its point.  Those of constraint forces are the
second part of the solution of the equations of constrained motion.  Second derivatives exist for constraints only, without loops
of frames.  A wrench (force f, moment m) is reported at the origin p of its frame.  That of a contact is solved at this origin;
that of a loop is solved with the moment n about the working origin and moved, m = n - p x f, so dm = dn - dp x f - p x df.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.contact.contact_points import field_at
from dynamics_backends.rigid_body.passes.drivers import Driver
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import RigidBodyMap
from dynamics_backends.systems.constraints.constrained_derivatives import curvature, directions
from dynamics_backends.systems.constraints.constraint_kinds import BoundFrame, is_shifted
from dynamics_backends.systems.constraints.constraint_set import ConstraintState
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.soft_contact import SoftContact

_XYZ = ("x", "y", "z")
_WRENCH = ("fx", "fy", "fz", "mx", "my", "mz")


class _Forces(RigidBodyMap):
    """Base class of maps from (x, u) to the contact or constraint forces of ``system``."""

    system: Any

    def with_recursions(self, driver: Driver) -> Self:
        """Copy of this map whose system has its recursions evaluated by ``driver``."""
        other = copy(self)
        other.system = self.system.with_recursions(driver)
        return other


class SoftForces(_Forces):
    """Forces (3 for each point) [N] of soft contacts in world axes; the controls are the system's, and the forces do not depend
    on them.
    """

    def __init__(self, system: SoftContact) -> None:
        names = tuple(f"{point.name}.{c}" for point in system.points for c in _XYZ)
        super().__init__(system.model, system.control_names, names)
        self.system = system

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Contact forces of all points [N], x, y, z of each in world axes: rows (3 n_points, N)."""
        return sm.concatenate(list(self.system.outputs(x, u, t, p).values()))

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Forces and their partial derivatives in x and u, by the chain rule through the contact law; those in u are zero."""
        n, zero = self.model.nv, 0.0 * x[0]
        values, fx = [], []
        for force, in_q, in_v in self.system.force_slopes(x, p):
            for c in _XYZ:
                entries = [zero] * (2 * n)
                for j in in_q:
                    entries[j], entries[n + j] = getattr(in_q[j], c) + zero, getattr(in_v[j], c) + zero
                values.append(getattr(force, c) + zero)
                fx.append(sm.stack(entries))
        return Partials(sm.stack(values), fx, [0.0 * u] * len(fx))


class ConstraintForces(_Forces):
    """Map of the constraint forces of a :class:`Holonomic` system with its state and controls, in the order of its constraints.

    In world axes, 3 [N] for a point, 6 [force N; moment N m] at the origin of a frame, 1 [N or N m] for a relation of joints.
    A residual of it, in a cost term or a constraint, penalizes or bounds contact forces.
    """

    def __init__(self, system: Holonomic) -> None:
        names = tuple(f"{c.name}.{label}" for c in system.constraints.bound for label in _labels(c))
        super().__init__(system.model, system.control_names, names)
        self.system = system
        self.has_second_derivatives = not any(is_shifted(c) for c in system.constraints.bound)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Forces of all constraints, rows (n_out, N), in world axes (relations: the joint's force); zero for inactive
        constraints.

        Wrenches are at the origin of their frame (of a loop: the first frame).
        """
        return sm.concatenate(list(self.system.outputs(x, u, t, p).values()))

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Forces and their partial derivatives in x and u, in closed form, with the wrenches of loops moved to the origin of
        their frame.
        """
        s, _, df = self.system.sensitivities(x, u, p)
        zero, n = 0.0 * x[0], self.model.nv
        values = list(self.system.constraints.by_name(s.fields, s.constraint_states, s.forces, zero).values())
        rows: list[Rows] = []
        for h in s.constraint_states:
            own = h.select(df)
            rows += _at_frame(h, s.fields, h.select(s.forces), own, zero) if is_shifted(h.bound) else own
        return Partials(sm.concatenate(values), [r[: 2 * n] for r in rows], [r[2 * n :] for r in rows])

    def second_derivatives(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> Contraction:
        """Second derivatives of lam' forces in closed form, lam (n_out, N); wrong with loops of frames (see
        ``has_second_derivatives``).
        """
        nothing = [0.0 * x[0]] * self.model.nv
        parts = self.system.derivative_equations(x, u, t, p, sm.stack(nothing), [lam[i] for i in range(self.n_out)])
        assert parts.g is not None
        return curvature(self.system, u, parts.g, directions(parts, self.system.driver).through)


def _labels(constraint: Any) -> tuple[str, ...]:
    """Row names of a constraint's reported force: fx, fy, fz, mx, my, mz for frames and loops of frames, else its labels."""
    return _WRENCH if isinstance(constraint, BoundFrame) else constraint.labels


def _at_frame(
    h: ConstraintState, fields: Mapping[str, Any], force: list[Scalar], df: Matrix, zero: Scalar
) -> list[Rows]:
    """Derivatives in (q, v, u) of a wrench [f; n - p x f] at its frame's origin p, from those of (n; f) about the working origin.

    h: state of the frame's constraint; force (6), df (6 rows over (q, v, u)): (n; f), moment first, and its derivatives. fields:
    poses X and joint axes S. zero: a zero scalar with the shape of the batch. Returns six rows, those of the force first.
    """
    bound = h.bound
    assert isinstance(bound, BoundFrame)
    p, f = (row(fields["X"], bound.a.body) @ bound.a.pose).p, Vec(*force[3:])
    dn, d_force = Vec(*df[:3]), Vec(*df[3:])
    moment = dn - p.cross(d_force)
    arms = {j: field_at(row(fields["S"], j), p).cross(f) for j in bound.model.ancestors(bound.a.body)}
    rows = [d_force.x, d_force.y, d_force.z]
    for c in _XYZ:
        moved = getattr(moment, c)
        entries = [zero] * moved.shape[0]
        for j, arm in arms.items():
            entries[j] = getattr(arm, c) + zero
        rows.append(moved - sm.stack(entries))
    return rows
