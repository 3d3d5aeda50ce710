"""Impacts: the velocity jump when constraints close, with restitution.

    M (v+ - v) = J' I,     J v+ = -e J v          I: impulses [N s, N m s], e: coefficient of restitution

The equations hold for both signs of J v, and up to the damping and the activations of
:mod:`~dynamics_backends.systems.constraints.constraint_set`.  The map's output is the tangent vector (0, v+ - v) of the state's
jump: x+ = x (+) (0, v+ - v).  It has no control.

Derivatives are those of constrained motion at rest and without gravity, with d = v+ - v in place of the accelerations and K of
:mod:`~dynamics_backends.rigid_body.contact.contact_dynamics`: K (d; -I) = (0; -(1 + e) J v), so that with z = d + (1 + e) v

    K (dd; -dI) = -( dq[M d - J'I]; dq[J z] + (1 + e) J dv ) at fixed d, I, z,

where J z changes with q like the constraint's acceleration at rest with accelerations z.  d is linear in v: the block (v, v) of
its second derivatives is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Matrix, Partials
from dynamics_backends.rigid_body.algorithms.forward_dynamics import equations_of_motion
from dynamics_backends.rigid_body.contact import contact_dynamics
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_dynamics import (
    CONSTRAINED_FINISH,
    CONSTRAINED_SECOND,
    RATES_AT,
    ConstrainedFactor,
    finished,
    started,
)
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import WholeMap
from dynamics_backends.systems.constraints.constrained_derivatives import ConstrainedDerivatives, DerivativeEquations
from dynamics_backends.systems.constraints.constraint_kinds import Constraint
from dynamics_backends.systems.constraints.constraint_set import (
    DAMPING,
    ConstraintSet,
    ConstraintState,
    summed_columns,
    switch_columns,
)
from dynamics_backends.systems.contact.contact_law import parameter

_MOVED = ("acc", "psidd")
"""Fields that the second derivatives of J z take from a motion at rest with the accelerations z, instead of d."""


class _Jump(NamedTuple):
    """Solution at one state: fields at zero velocity without gravity, constraints, factors, velocity jump d = v+ - v, impulses by
    rows, and z = d + (1 + e) v.
    """

    fields: dict[str, Any]
    constraint_states: list[ConstraintState]
    factor: ConstrainedFactor
    d: Rows
    impulses: list[Scalar]
    z: Rows


class Impact(WholeMap, ConstrainedDerivatives):
    """Map (0, v+ - v) of a robot's state (q, v): the jump of its velocities when constraints close, as a foot that lands.

    M (v+ - v) = J' I and J v+ = -e J v, with the impulses I. It has no controls; :class:`~trajopt.ImpactStage` makes it the stage
    of a phase. constraints: as in :class:`Holonomic`; their gains and references are not used. restitution: e, 0 sticks, 1 bounces.
    damping_ratio: as in :class:`Holonomic`. Run-time parameters: restitution (1,), whose range is not checked, and "active[name]"
    (1,), 1 or 0. Raises ValueError for a restitution outside [0, 1], a model with mimic joints, no constraint, two of one name or
    a negative damping_ratio, and UnknownName for a frame or joint that the model does not have.
    """

    second_order = False

    def __init__(
        self,
        model: Model,
        constraints: Sequence[Constraint],
        *,
        restitution: float = 0.0,
        damping_ratio: float = DAMPING,
    ) -> None:
        super().__init__(model, ())
        if not 0.0 <= restitution <= 1.0:
            raise ValueError(f"restitution = {restitution}; it must lie between 0 (sticks) and 1 (bounces)")
        self.output_names = tuple(f"jump of {name}" for name in self.manifold.tangent_names)
        self.restitution = restitution
        self.constraints = ConstraintSet(model, constraints, damping_ratio)
        self._weightless = model.with_gravity((0.0, 0.0, 0.0))

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Jump (0, v+ - v) of the state, rows (2 nv, N)."""
        q, v = self.split(x)
        return sm.concatenate([0.0 * v, self._solved(q, v, p, equations_of_motion).d])

    def outputs(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> dict[str, Rows]:
        """Impulses by constraint name, in world axes; zero for inactive constraints.

        Points (3, N) [N s], frames [impulse; angular impulse] (6, N) at their origin (of a loop: on its first frame), relations
        (1, N), the impulse in the joint.
        """
        q, v = self.split(x)
        s = self._solved(q, v, p, equations_of_motion)
        return self.constraints.by_name(s.fields, s.constraint_states, s.impulses, 0.0 * v[0])

    def _bounce(self, p: Mapping[str, Rows]) -> Scalar:
        """Factor 1 + e with the coefficient of restitution e, from p or the default."""
        return 1.0 + parameter(p, "restitution", self.restitution)

    def _solved(
        self, q: Rows, v: Rows, p: Mapping[str, Rows], equations: Callable[..., dict[str, Any]] = started
    ) -> _Jump:
        """Solve for the velocity jump and the impulses at x = (q, v). equations: recursion that computes the fields at v = 0."""
        rest = 0.0 * v
        fields = equations(self._weightless, q, rest, self.driver)
        constraint_states = self.constraints.constraint_states(fields, q, rest, p, with_errors=False)
        factor = self.constraints.factor(fields, constraint_states)
        bounce = self._bounce(p)
        rates = [_sum([J * v[j] for j, J in row.items()]) for row in self.constraints.columns(constraint_states)]
        top = [rest[i] for i in range(self.model.nv)]
        d, impulses = contact_dynamics.solve(factor, top, [-(bounce * rate) for rate in rates])
        jump = sm.stack(d)
        return _Jump(fields, constraint_states, factor, jump, impulses, jump + bounce * v)

    # -- derivatives ----------------------------------------------------------------------------------------------------
    def derivative_equations(
        self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows | None = None
    ) -> DerivativeEquations:
        """Linear equations of the derivatives in (q, v) of the velocity jump d and the impulses.

        With lam (nv, N), also the second derivatives of g from which those of lam' d follow; without lam, ``g`` is None.
        """
        q, v = self.split(x)
        s = self._solved(q, v, p)
        moved = finished(RATES_AT, self._weightless, s.fields, self.driver, a=s.z)
        if lam is None:
            fields, g = finished(CONSTRAINED_FINISH, self._weightless, s.fields, self.driver, a=s.d), None
        else:
            fields, g = self._curved(s, moved, p, lam)
        return DerivativeEquations(s.d, s.factor, *self._right_hand_sides(s, fields, moved, p), g, s.impulses)

    def in_output(self, x: Rows, u: Rows, value: Rows, dx: Matrix) -> Partials:
        """Value and derivatives of the state's jump (0, d), from value d = v+ - v and its derivatives dx over (q, v) by rows.

        The derivatives of the zeros are zero; those in u are empty, as there is no control.
        """
        n, nothing = self.model.nv, 0.0 * dx[0]
        return Partials(sm.concatenate([0.0 * value, value]), [*[nothing] * n, *dx], [u] * (2 * n))

    def _right_hand_sides(
        self, s: _Jump, fields: Mapping[str, Any], moved: Mapping[str, Any], p: Mapping[str, Rows]
    ) -> tuple[list[Rows], list[Rows]]:
        """Right-hand sides for the derivatives of d and of the impulses in (q, v), by rows."""
        n, zero, bounce = self.model.nv, 0.0 * s.d[0], self._bounce(p)
        dq = [[-fields["dtau_dq"][i][j] for j in range(n)] for i in range(n)]
        bottom = []
        for h in s.constraint_states:
            for side in h.sides:
                side.add_force_slopes(dq, h.select(s.impulses))
            in_q = summed_columns([side.slopes(moved, 0.0, 0.0).q for side in h.sides])
            J = summed_columns([side.J for side in h.sides])
            for r in range(len(h.bound.labels)):
                entries = [zero] * (2 * n)
                for j in J:
                    entries[j] = zero - h.switched(in_q[j][r])
                    entries[n + j] = zero - h.switched(bounce * J[j][r])
                bottom.append(sm.stack(entries))
        return [sm.stack([e + zero for e in (*row, *[zero] * n)]) for row in dq], bottom

    def _curved(
        self, s: _Jump, rates: Mapping[str, Any], p: Mapping[str, Rows], lam: Rows
    ) -> tuple[dict[str, Any], Second]:
        """Solve for the adjoints of lam; return the fields of CONSTRAINED_SECOND and the second derivatives of g.

        g is the product of the adjoints and the equations at fixed d and impulses; its derivatives in (v, v) are zero. rates:
        fields of RATES_AT with the accelerations z.
        """
        n, zero, rows = self.model.nv, 0.0 * s.d[0], self.constraints.rows
        weights, minus_nu = contact_dynamics.solve(s.factor, [-lam[i] for i in range(n)], [zero] * rows)
        fields = finished(CONSTRAINED_SECOND, self._weightless, s.fields, self.driver, a=s.d, mu=sm.stack(weights))
        moved = {**fields, **{k: f for k, f in rates.items() if k in _MOVED}}
        g = Second.from_fields(fields, n, rows, zero)
        before = [list(row) for row in g.qa]
        for h in s.constraint_states:
            for side in h.sides:
                side.add_second(
                    g, moved, h.select(s.impulses), h.select([-x for x in minus_nu]), (0.0, 0.0), h.first_row
                )
        switch_columns(g, s.constraint_states)
        bounce = self._bounce(p)
        in_v = [[bounce * (g.qa[i][j] - before[i][j]) for j in range(n)] for i in range(n)]
        return fields, g._replace(qv=in_v, vv=[[zero] * n for _ in range(n)])


def _sum(terms: Sequence[Scalar]) -> Scalar:
    """Sum of at least one term."""
    return sum(terms[1:], terms[0])
