"""The nearest state that constraints allow, in plain numbers: where a simulation or an optimization begins.

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

CLOSED = 1e-13
"""Largest error [m, rad] that is left."""


def errors_at(constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None) -> Array:
    """The position errors (rows,) at a state x (nx,).  Raises ValueError for a contact without a reference."""
    q, v = np.split(np.asarray(x, float)[:, None], [constraints.model.nq])
    fields = started(constraints.model, q, v)
    given = {k: np.asarray(value, float)[:, None] for k, value in (p or {}).items()}
    return np.array([np.ravel(e)[0] for c in constraints.bound for e in c.error(fields, q, given).value])


def closed_state(
    constraints: ConstraintSet, x: Array, p: Mapping[str, Array] | None = None, iterations: int = 50
) -> Array:
    """The state (nx,) near x (nx,) without error and velocity of the constraints.

    Raises ValueError where the steps do not converge: constraints that contradict each other, or too far apart.
    """
    model, x = constraints.model, np.array(x, dtype=float)
    manifold = configuration_manifold(model)
    for _ in range(iterations):
        e = errors_at(constraints, x, p)
        if np.abs(e).max() < CLOSED:
            break
        J, _ = rows_at(constraints, x, p)
        step = -np.linalg.pinv(J, rcond=1e-10) @ e
        x[: model.nq] = manifold.integrate(x[: model.nq, None], step[:, None])[:, 0]
    else:
        raise ValueError(
            f"constraints do not close: an error of {np.abs(e).max():.3g} is left after {iterations} steps; start nearer, or "
            "look for contradictions with constraint_diagnosis.redundant_constraints"
        )
    J, _ = rows_at(constraints, x, p)
    x[model.nq :] -= np.linalg.pinv(J, rcond=1e-10) @ (J @ x[model.nq :])
    return x
