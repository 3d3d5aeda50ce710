"""Redundant and contradictory constraints: the rank of J, row by row, in plain numbers.

Rows are taken in order.  A row that is a combination of those before it is redundant; it is contradictory as well where
the same combination of the gammas differs from its own, for then J a + gamma = 0 has no solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.contact.contact_dynamics import started
from dynamics_backends.systems.constraints.constraint_set import ConstraintSet

TOLERANCE = 1e-8
"""Relative size below which the rest of a row, or of gamma, counts as zero."""


class Dependence(NamedTuple):
    """A row (constraint name, label) that follows from rows of other constraints, or contradicts them."""

    constraint: str
    row: str
    depends_on: tuple[str, ...]
    contradictory: bool

    @property
    def message(self) -> str:
        """A sentence with the remedy."""
        if not self.depends_on:
            return f"row {self.row} of constraint {self.constraint!r} is moved by no joint here; remove it"
        others = " and ".join(repr(name) for name in self.depends_on)
        verb = "contradicts" if self.contradictory else "is implied by"
        return f"row {self.row} of constraint {self.constraint!r} {verb} {others}; remove one of them"


def redundant_constraints(
    constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None, tolerance: float = TOLERANCE
) -> list[Dependence]:
    """The dependent rows at a state x (nx,), in order; empty where J has full rank.  p: run-time parameters, each (n,)."""
    J, gamma = rows_at(constraints, x, p)
    names = [(c.name, label) for c in constraints.bound for label in c.labels]
    kept: list[int] = []
    found = []
    for r, row in enumerate(J):
        size = np.linalg.norm(row)
        weights = np.linalg.lstsq(J[kept].T, row, rcond=None)[0] if kept else np.zeros(0)
        if size > 0 and np.linalg.norm(row - weights @ J[kept]) > tolerance * size:
            kept.append(r)
            continue
        used = [k for k, w in zip(kept, weights, strict=True) if abs(w) * np.linalg.norm(J[k]) > tolerance * size]
        scale = np.abs(gamma).max() + 1.0
        contradictory = abs(gamma[r] - weights @ gamma[kept]) > tolerance * scale
        others = tuple(dict.fromkeys(names[k][0] for k in used))
        found.append(Dependence(*names[r], others if size > 0 else (), bool(contradictory)))
    return found


def rows_at(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> tuple[Array, Array]:
    """J (rows, nv) and gamma (rows,) at a state x (nx,)."""
    model = constraints.model
    q, v = np.split(np.asarray(x, float)[:, None], [model.nq])
    fields = started(model, q, v)
    held = constraints.held(fields, q, v, {k: np.asarray(value, float)[:, None] for k, value in (p or {}).items()})
    J = np.zeros((constraints.rows, model.nv))
    for r, row in enumerate(constraints.columns(held)):
        for j, entry in row.items():
            J[r, j] = np.ravel(entry)[0]
    return J, np.array([np.ravel(g)[0] for g in constraints.bias(fields, held)])
