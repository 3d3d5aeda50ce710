"""Projection of a state onto the constraints, as the initial state of a simulation or an optimization.

q by Gauss-Newton steps -J^+ e(q),     then v - J^+ J v
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.contact.contact_dynamics import started
from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.systems.constraints.constraint_diagnosis import rows_at
from dynamics_backends.systems.constraints.constraint_set import ConstraintSet

MAX_ERROR = 1e-13
"""Largest remaining error [m, rad] of a closed state."""


def errors_at(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> Array:
    """Position errors (rows,) at a state x (nx,).  Raises ValueError for a contact without a reference."""
    q, v = np.split(np.asarray(x, float)[:, None], [constraints.model.nq])
    fields = started(constraints.model, q, v)
    parameters = {k: np.asarray(value, float)[:, None] for k, value in (p or {}).items()}
    return np.array([np.ravel(e)[0] for c in constraints.bound for e in c.error(fields, q, parameters).value])


def closed_state(
    constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None, iterations: int = 50
) -> Array:
    """State (nx,) near x (nx,) that satisfies the constraints in position and velocity.

    Raises ValueError if the steps do not converge: the constraints contradict each other, or x is too far from them.
    """
    model, x = constraints.model, np.array(x, dtype=float)
    manifold = configuration_manifold(model)
    for _ in range(iterations):
        e = errors_at(constraints, x, p)
        if np.abs(e).max() < MAX_ERROR:
            break
        J, _ = rows_at(constraints, x, p)
        step = -np.linalg.pinv(J, rcond=1e-10) @ e
        x[: model.nq] = manifold.integrate(x[: model.nq, None], step[:, None])[:, 0]
    else:
        raise ValueError(
            f"constraints do not close: the error is {np.abs(e).max():.3g} after {iterations} steps; start nearer, or "
            "check for contradictions with constraint_diagnosis.redundant_constraints"
        )
    J, _ = rows_at(constraints, x, p)
    x[model.nq :] -= np.linalg.pinv(J, rcond=1e-10) @ (J @ x[model.nq :])
    return x
