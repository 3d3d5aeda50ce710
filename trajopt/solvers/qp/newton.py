"""Primal-dual active-set method for a QP with a good guess of its active set.

With a guess of the active inequalities, the QP is a linear system. Violated inequalities enter the active set, and inequalities
with a multiplier of the wrong sign leave it, until the set stays the same
(M. Hintermüller, K. Ito, K. Kunisch, The primal-dual active set strategy as a semismooth Newton method, SIAM J. Optim. 13,
2002). From the active set of the previous QP of an SQP method this takes one or two linear systems; an interior-point method
takes ten or twenty.

The method need not converge; the caller then uses another solver. H need not be convex: the result satisfies the first-order
conditions.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.active_equations import are_met, solved_equations
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual, largest

CHANGES = 6
"""Maximum number of changes of the active set."""
MAX_CONTRADICTIONS = 1
"""Maximum number of active sets whose equations contradict each other; after more of them the QP is most likely infeasible."""
TOLERANCE = 1e-10
"""Tolerance on violations, multipliers and residuals, relative to the size of their terms."""


def active_set_newton(qp: QP, y: Array, z: Array) -> QPSolution | None:
    """Return the solution of a QP from a first active set, given by the signs of y (m,), z (n,).

    None if the active set does not converge; also for crossed bounds, more active constraints than variables, more than
    MAX_CONTRADICTIONS sets that contradict themselves, a singular system, or residuals above TOLERANCE. H need not be convex: the
    solution satisfies the first-order conditions.
    """
    lower, upper = qp.bounds
    if (lower > upper).any():
        return None
    equal, m, contradictions = lower == upper, len(qp.l), 0
    side = _sides(np.concatenate([y, z]), lower, upper)
    with np.errstate(all="ignore"):
        for count in range(1, CHANGES + 2):
            active = equal | (side != 0)
            goal = np.where(active, np.where(side > 0, upper, lower), 0.0)
            solved = solved_equations(qp, active, goal) if active.sum() <= len(qp.g) else None
            if solved is None:
                return None
            w, both = solved
            found = QPSolution(w, both[:m], both[m:], QPStatus.SOLVED, count)
            values = qp.bounded(w)
            contradictions += not are_met(values, active, goal)
            if contradictions > MAX_CONTRADICTIONS:
                return None
            slack = TOLERANCE * (1.0 + largest(values))
            wrong = (side * both < -TOLERANCE * (1.0 + largest(both))) & ~equal
            over, under = (values > upper + slack) & ~active, (values < lower - slack) & ~active
            if not (wrong.any() or over.any() or under.any()):
                return found if _precise(qp, found) else None
            side = np.where(wrong, 0, side) + over - under
    return None


def _sides(multipliers: Array, lower: Array, upper: Array) -> Array:
    """Return 1 for finite upper bounds with a positive multiplier, -1 for finite lower ones with a negative one, else 0."""
    size = TOLERANCE * (1.0 + largest(multipliers))
    at_upper, at_lower = (multipliers > size) & np.isfinite(upper), (multipliers < -size) & np.isfinite(lower)
    return at_upper.astype(int) - at_lower


def _precise(qp: QP, found: QPSolution) -> bool:
    """True if the KKT residuals of a solution are at most TOLERANCE times 1 plus the largest entry of g and the solution."""
    size = 1.0 + max(largest(qp.g), largest(found.y), largest(found.z), largest(found.w))
    return max(kkt_residual(qp, found)) <= TOLERANCE * size
