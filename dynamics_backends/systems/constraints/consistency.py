"""Consistency of constraints: redundant and contradictory rows, and projection of a state onto the constraints.

A row of J that is a linear combination of earlier rows, up to a tolerance, is redundant; so is a row of zeros.  It is also
contradictory if the same combination of the gammas differs from its gamma, because J a + gamma = 0 then has no solution for the
accelerations a.

A projected state is the initial state of a simulation or an optimization: q by Gauss-Newton steps -J^+ e(q), then v - J^+ J v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.contact.contact_dynamics import started
from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.systems.constraints.constraint_kinds import BoundConstraint
from dynamics_backends.systems.constraints.constraint_set import ConstraintSet

TOLERANCE = 1e-8
"""Remainder of a row of J relative to the row's norm, or of gamma relative to 1 + max |gamma|, that still counts as zero."""


class Dependence(NamedTuple):
    """Redundant row of the constraints J a + gamma = 0 on accelerations a: a combination of earlier rows of J, or zero.

    constraint, row: names of the constraint and of its row. gamma holds the terms without a (see :class:`~trajopt.Holonomic`).
    depends_on: names of the constraints of these earlier rows, possibly the row's own; empty for a row of zeros. contradictory:
    True if its gamma is not the same combination of their gammas (for a row of zeros: if its gamma is not zero).
    """

    constraint: str
    row: str
    depends_on: tuple[str, ...]
    contradictory: bool

    @property
    def message(self) -> str:
        """Sentence that names the row, the constraints that imply or contradict it, and the remedy.

        For a row of zeros, it says that the row depends on no joint, not if it is contradictory.
        """
        if not self.depends_on:
            return f"row {self.row} of constraint {self.constraint!r} depends on no joint in this state; remove it"
        others = " and ".join(repr(name) for name in self.depends_on)
        verb = "contradicts" if self.contradictory else "is implied by"
        return f"row {self.row} of constraint {self.constraint!r} {verb} {others}; remove one of them"


def redundant_constraints(
    constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None, tolerance: float = TOLERANCE
) -> list[Dependence]:
    """Find redundant rows of the constraints J a + gamma = 0 at a state x (nx,); the list is empty if J has full row rank.

    constraints: those of a system, ``robot.constraints``. J multiplies the accelerations a; gamma holds all other terms. A row
    counts if the remainder of its least-squares fit by earlier independent rows is at most ``tolerance`` times its norm. Rows
    of zeros count, but not those of inactive constraints. A row is contradictory if its gamma differs from the same combination
    of gammas by more than ``tolerance`` times 1 + max |gamma|. p: run-time parameters, each (n,). Raises ValueError for a
    contact with kp (not zero) but no reference.
    """
    _require_set(constraints)
    J, gamma = rows_at(constraints, x, p)
    names = [(c.name, label) for c in constraints.bound for label in c.labels]
    independent: list[int] = []
    dependent = []
    for r in np.flatnonzero(_active_rows(constraints, p)):
        row = J[r]
        size = np.linalg.norm(row)
        weights = np.linalg.lstsq(J[independent].T, row, rcond=None)[0] if independent else np.zeros(0)
        if size > 0 and np.linalg.norm(row - weights @ J[independent]) > tolerance * size:
            independent.append(int(r))
            continue
        used = [
            k for k, w in zip(independent, weights, strict=True) if abs(w) * np.linalg.norm(J[k]) > tolerance * size
        ]
        scale = np.abs(gamma).max() + 1.0
        contradictory = abs(gamma[r] - weights @ gamma[independent]) > tolerance * scale
        others = tuple(dict.fromkeys(names[k][0] for k in used))
        dependent.append(Dependence(*names[r], others if size > 0 else (), bool(contradictory)))
    return dependent


def rows_at(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> tuple[Array, Array]:
    """Jacobian J (rows, nv) and gamma (rows,) of the constraints J a + gamma = 0 on the accelerations, at a state x (nx,).

    gamma includes the Baumgarte terms. Both are multiplied by the activations: rows of inactive constraints are zero. p: run-time
    parameters, each (n,). Raises ValueError for a contact with kp (not zero) but no reference.
    """
    model = constraints.model
    q, v = np.split(np.asarray(x, float)[:, None], [model.nq])
    fields = started(model, q, v)
    constraint_states = constraints.constraint_states(
        fields, q, v, {k: np.asarray(value, float)[:, None] for k, value in (p or {}).items()}
    )
    J = np.zeros((constraints.rows, model.nv))
    for r, row in enumerate(constraints.columns(constraint_states)):
        for j, entry in row.items():
            J[r, j] = np.ravel(entry)[0]
    return J, np.array([np.ravel(g)[0] for g in constraints.bias(fields, constraint_states)])


MAX_ERROR = 1e-13
"""Bound on the absolute position errors [m, rad] of a closed state; they are smaller."""


def errors_at(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> Array:
    """Position errors [m, rad] (rows,) of all constraints at a state x (nx,), with any kp; zero for inactive constraints.

    p: run-time parameters, each (n,). Raises ValueError for a contact without a reference, also if its kp is zero.
    """
    errors = np.concatenate(_errors(constraints, constraints.bound, np.asarray(x)[None], p), axis=1)[0]
    return np.where(_active_rows(constraints, p), errors, 0.0)


def known_errors(constraints: ConstraintSet, xs: Array, p: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Largest position errors (K,) [m or rad] at states xs (K, nx), by name, of active loops, relations and contacts with a
    reference; those of other contacts are unknown.

    p: run-time parameters, each (n,).
    """
    active = [bool(np.any((p or {}).get(f"active[{c.name}]", 1.0))) for c in constraints.bound]
    known = [c for c, counts in zip(constraints.bound, active, strict=True) if counts and c.has_error(p or {})]
    errors = _errors(constraints, known, xs, p) if known else []
    return {c.name: np.abs(e).max(axis=1) for c, e in zip(known, errors, strict=True)}


def row_speeds(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> dict[str, float]:
    """Largest velocities |J v| [m/s or rad/s] of the rows of each constraint at a state x (nx,); zero for inactive ones.

    p: run-time parameters, each (n,).
    """
    speeds = np.abs(rows_at(constraints, x, p)[0] @ np.asarray(x)[constraints.model.nq :])
    names = [c.name for c in constraints.bound for _ in c.labels]
    return {
        c.name: float(max(s for s, name in zip(speeds, names, strict=True) if name == c.name))
        for c in constraints.bound
    }


def _errors(
    constraints: ConstraintSet, some: Sequence[BoundConstraint], xs: Array, p: Mapping[str, Array] | None
) -> list[Array]:
    """Position errors (K, rows) of some of the constraints at states xs (K, nx); p: run-time parameters, each (n,)."""
    q, v = np.split(np.asarray(xs, float).T, [constraints.model.nq])
    fields = started(constraints.model, q, v)
    parameters = {k: np.repeat(np.asarray(value, float)[:, None], len(xs), axis=1) for k, value in (p or {}).items()}
    values = [c.error(fields, q, parameters).value for c in some]
    return [np.stack([np.broadcast_to(e, len(xs)) for e in rows], axis=1) for rows in values]


def _active_rows(constraints: ConstraintSet, p: Mapping[str, Array] | None) -> Array:
    """Boolean array (rows,): True for rows of active constraints, by the run-time parameters p "active[name]", each (n,)."""
    active = [bool(np.any((p or {}).get(f"active[{c.name}]", 1.0))) for c in constraints.bound]
    return np.repeat(active, [len(c.labels) for c in constraints.bound])


def _require_set(constraints: ConstraintSet) -> None:
    """Raise TypeError for another object, such as a system."""
    if not isinstance(constraints, ConstraintSet):
        raise TypeError(
            f"constraints is a {type(constraints).__name__}; give the attribute ``constraints`` of the system"
        )


def closed_state(
    constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None, iterations: int = 50
) -> Array:
    """State (nx,) near x (nx,) that satisfies the constraints: q by full Gauss-Newton steps, at most ``iterations``, until all
    position errors are below MAX_ERROR, then v by its projection v - J^+ J v.

    p: run-time parameters, each (n,). Raises ValueError if the steps do not converge: the constraints contradict each other, or x
    is too far from them. Raises ValueError for a contact without a reference, also if its kp is zero.
    """
    _require_set(constraints)
    model, x = constraints.model, np.array(x, dtype=float)
    manifold = configuration_manifold(model)
    for count in range(iterations + 1):
        e = errors_at(constraints, x, p)
        if np.abs(e).max() < MAX_ERROR or count == iterations:
            break
        J, _ = rows_at(constraints, x, p)
        step = -np.linalg.pinv(J, rcond=1e-10) @ e
        x[: model.nq] = manifold.integrate(x[: model.nq, None], step[:, None])[:, 0]
    if not np.abs(e).max() < MAX_ERROR:
        raise ValueError(
            f"constraints do not close: the error is {np.abs(e).max():.3g} after {iterations} steps; start nearer, or "
            "check for contradictions with redundant_constraints"
        )
    J, _ = rows_at(constraints, x, p)
    x[model.nq :] -= np.linalg.pinv(J, rcond=1e-10) @ (J @ x[model.nq :])
    return x
