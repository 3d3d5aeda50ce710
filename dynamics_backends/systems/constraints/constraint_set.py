"""All constraints of a robot: their rows, common factorization, and forces by name.

The run-time parameter "active[name]" (1) activates a constraint, 1 or 0 for each knot, so that one system and one compiled kernel
serve all phases of a gait.  With that number s its rows become s (J a + gamma) + (R + 1 - s) f = 0 and its force s f; for s = 0
that is f = 0. Without the parameter the constraint is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.contact import contact_dynamics
from dynamics_backends.rigid_body.contact.constraints import Second, Side
from dynamics_backends.rigid_body.contact.contact_dynamics import ConstrainedFactor, started
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.constraints.constraint_kinds import BoundConstraint, Constraint, Error

DAMPING = 1e-14
"""Default damping of each row relative to its entry in the diagonal of J M^-1 J' in the neutral configuration.

It keeps the pivots of redundant rows from vanishing.  Contradictory constraints need more, such as 1e-9. Damping perturbs the
other constraints (relative error of the accelerations about damping times the condition number).
"""


class ConstraintState(NamedTuple):
    """Constraint at the states of a batch: its sides, position error, activation, and the index of its first row.

    error: None if kp is zero or errors are not needed. active: the number "active[name]"; None without this parameter.
    """

    bound: BoundConstraint
    sides: list[Side]
    error: Error | None
    first_row: int
    active: Scalar | None

    @property
    def rows(self) -> range:
        """Indices of the constraint's rows among those of all constraints."""
        return range(self.first_row, self.first_row + len(self.bound.labels))

    def select(self, rows: Sequence[Any]) -> list[Any]:
        """List of this constraint's entries of ``rows`` (those of all constraints), times its activation, if it has one."""
        return [self.switched(rows[r]) for r in self.rows]

    def switched(self, x: Any) -> Any:
        """x times the activation (zero if the constraint is inactive); x itself if there is no activation parameter."""
        return x if self.active is None else x * self.active


class ConstraintSet:
    """Constraints bound to a model; ``rows``: number of scalar equations, ``regularization``: damping R by rows.

    damping_ratio: R relative to the diagonal of J M^-1 J' in the neutral configuration (see :data:`DAMPING`). Raises ValueError
    for no constraint, two of one name or a damping_ratio that is negative or NaN, and the errors of the constraints' bind().
    """

    def __init__(self, model: Model, constraints: Sequence[Constraint], damping_ratio: float = DAMPING) -> None:
        if not constraints:
            raise ValueError("constraints is empty; name at least one, or use FreeBody")
        self.model, self.damping_ratio = model, damping_ratio
        self.bound = tuple(c.bind(model) for c in constraints)
        names = [c.name for c in self.bound]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two constraints are named {name!r}; give one of them another name")
        if not damping_ratio >= 0:
            raise ValueError(f"damping_ratio = {damping_ratio}; it must be positive, or zero")
        self.rows = sum(len(c.labels) for c in self.bound)
        self.regularization = [0.0] * self.rows
        if damping_ratio > 0:
            self.regularization = [damping_ratio * d for d in self._own_inertias()]

    def _own_inertias(self) -> list[float]:
        """Diagonal of J M^-1 J' by rows in the neutral configuration, but at least 1e-3 of its mean, as rows may be zero there.

        All 1e-3 if all rows of J are zero there.
        """
        q, v = self.model.neutral()[:, None], np.zeros((self.model.nv, 1))
        fields = started(self.model, q, v)
        f = contact_dynamics.factor(
            fields["factor"],
            self.columns(self.constraint_states(fields, q, v, {}, with_errors=False)),
            [1.0] * self.rows,
        )
        own = [float(sum(np.ravel(z[k] * w[k])[0] for k in z)) for z, w in zip(f.Z, f.W, strict=True)]
        mean = float(np.mean(own)) or 1.0
        return [max(d, 1e-3 * mean) for d in own]

    def constraint_states(
        self, fields: Mapping[str, Any], q: Rows, v: Rows, p: Mapping[str, Rows], *, with_errors: bool = True
    ) -> list[ConstraintState]:
        """State of each constraint (sides, error, activation) at q, v and run-time parameters p.

        fields: poses X, joint axes S and velocities vel at (q, v), as of :func:`~.contact_dynamics.started`. Errors are computed
        only for constraints whose kp is not zero, and not at all if with_errors is False. Raises ValueError for a contact with kp
        but no reference, if errors are computed.
        """
        constraint_states, first = [], 0
        for c in self.bound:
            error = c.error(fields, q, p) if with_errors and c.gains[0] else None
            switch = p.get(f"active[{c.name}]")
            constraint_states.append(
                ConstraintState(c, c.sides(fields, v), error, first, None if switch is None else switch[0])
            )
            first += len(c.labels)
        return constraint_states

    def columns(self, constraint_states: Sequence[ConstraintState]) -> list[dict[int, Scalar]]:
        """Rows of the constraint Jacobian J times the activations, each as DoF -> entry; DoFs that are missing have entry 0."""
        rows = []
        for h in constraint_states:
            columns = summed_columns([s.J for s in h.sides])
            rows += [{j: h.switched(J[r]) for j, J in columns.items()} for r in range(len(h.rows))]
        return rows

    def factor(self, fields: Mapping[str, Any], constraint_states: Sequence[ConstraintState]) -> ConstrainedFactor:
        """Factor of the equations of constrained motion, with the activations s: rows s J, and damping R + 1 - s.

        An inactive constraint thus has zero rows of J, and 1 added to its damping. fields: with the factor of the mass matrix.
        """
        damping: list[Scalar] = list(self.regularization)
        for h in constraint_states:
            if h.active is not None:
                for r in h.rows:
                    damping[r] = damping[r] + (1.0 - h.active)
        return contact_dynamics.factor(fields["factor"], self.columns(constraint_states), damping)

    def bias(self, fields: Mapping[str, Any], constraint_states: Sequence[ConstraintState]) -> list[Scalar]:
        """Rows of gamma = Jdot v + kd J v + kp e in J a + gamma = 0, each times its constraint's activation.

        fields: with ``acc``, accelerations of the bodies at zero joint accelerations, in which the base accelerates by -gravity;
        this is removed. The term kp e is left out for a constraint state without an error.
        """
        gravity = Vec(*np.asarray(self.model.gravity).tolist())
        rows: list[Scalar] = []
        for h in constraint_states:
            kp, kd = h.bound.gains
            total = [s.residual(fields["acc"], gravity, kd) for s in h.sides]
            if h.error is not None:
                total.append([kp * e for e in h.error.value])
            rows += [h.switched(sum(parts[1:], parts[0])) for parts in zip(*total, strict=True)]
        return rows

    def by_name(
        self,
        fields: Mapping[str, Any],
        constraint_states: Sequence[ConstraintState],
        forces: Sequence[Scalar],
        zero: Scalar,
    ) -> dict[str, Rows]:
        """Constraint forces (rows, N) by name, in the form that is reported to the user; zero for inactive constraints.

        forces: solved forces of all rows, which are multiplied by the activations here. zero: a zero (N,) of the scalars' kind.
        """
        reported = {h.bound.name: h.bound.reported(fields, h.select(forces)) for h in constraint_states}
        return {name: sm.stack([f + zero for f in force]) for name, force in reported.items()}


def summed_columns(parts: Sequence[Mapping[int, list[Scalar]]]) -> dict[int, list[Scalar]]:
    """Sum of matrices given by columns, DoF -> column; missing columns are zero, in the result those that all matrices lack."""
    total: dict[int, list[Scalar]] = {}
    for part in parts:
        for j, column in part.items():
            total[j] = [a + b for a, b in zip(total[j], column, strict=True)] if j in total else list(column)
    return total


def switch_columns(g: Second, constraint_states: Sequence[ConstraintState]) -> None:
    """Multiply g.q_force, the derivatives of J mu in q, by the activations of the constraints, in place.

    Its columns are the rows of all constraints. Constraints without an activation parameter are left unchanged.
    """
    for h in constraint_states:
        for row in g.q_force if h.active is not None else ():
            for r in h.rows:
                row[r] = h.switched(row[r])
