"""QPs near one that is solved: Newton's method on the active set.

With a guess of the active inequalities, the QP is a linear system. Inequalities that its solution violates enter the set,
those with a multiplier of the wrong sign leave it, and so on until nothing changes: the primal-dual active-set method
(M. Hintermüller, K. Ito, K. Kunisch, The primal-dual active set strategy as a semismooth Newton method, SIAM J. Optim. 13,
2002). From the active set of the last QP of an SQP method this takes one or two linear systems where an interior-point method
takes ten or twenty.

It need not converge; then another solver is asked. Nor does it ask for a convex H: what it finds satisfies the first-order
conditions.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.kkt.choice import system_of
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual, largest

CHANGES = 6
"""Maximum number of changes of the active set."""
TOLERANCE = 1e-10
"""On violations, multipliers and residuals, relative to the size of their terms."""


class ActiveSetNewton:
    """Solves QPs from guesses of their multipliers; lq_solver: see :func:`~trajopt.solvers.qp.kkt.choice.system_of`."""

    def __init__(self, lq_solver: LQSolver | None = None) -> None:
        self.lq_solver = lq_solver

    def solve(self, qp: QP, y: Array, z: Array) -> QPSolution | None:
        """The solution; y (m,), z (n,): multipliers that tell which sides are active. None where the set does not settle."""
        lower, upper = qp.bounds
        if (lower > upper).any():
            return None
        equal, m, system = lower == upper, len(qp.l), system_of(qp, self.lq_solver)
        side = _sides(np.concatenate([y, z]), lower, upper)
        with np.errstate(all="ignore"):
            for count in range(1, CHANGES + 2):
                active = equal | (side != 0)
                goal = np.where(active, np.where(side > 0, upper, lower), 0.0)
                if active.sum() > len(qp.g) or not system.factorize(np.where(active, np.inf, 0.0)):
                    return None
                w, both = system.solve(-qp.g, goal)
                both = np.where(active, both, 0.0)
                found = QPSolution(w, both[:m], both[m:], QPStatus.SOLVED, count)
                values = qp.bounded(w)
                slack = TOLERANCE * (1.0 + largest(values))
                wrong = (side * both < -TOLERANCE * (1.0 + largest(both))) & ~equal
                over, under = (values > upper + slack) & ~active, (values < lower - slack) & ~active
                if not (wrong.any() or over.any() or under.any()):
                    return found if _precise(qp, found) else None
                side = np.where(wrong, 0, side) + over - under
        return None


def _sides(multipliers: Array, lower: Array, upper: Array) -> Array:
    """1 where the upper side counts as active, -1 where the lower one does, else 0."""
    size = TOLERANCE * (1.0 + largest(multipliers))
    at_upper, at_lower = (multipliers > size) & np.isfinite(upper), (multipliers < -size) & np.isfinite(lower)
    return at_upper.astype(int) - at_lower


def _precise(qp: QP, found: QPSolution) -> bool:
    size = 1.0 + max(largest(qp.g), largest(found.y), largest(found.z), largest(found.w))
    return max(kkt_residual(qp, found)) <= TOLERANCE * size
