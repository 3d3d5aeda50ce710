"""Convex QPs of optimal control by the interior-point method on Riccati recursions (:mod:`trajopt.solvers.qp.kkt.riccati_kkt`).

The cost of an iteration grows linearly with the horizon. H need be positive definite only where the dynamics and the equalities
allow motion.
"""

from __future__ import annotations

from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.solvers.qp.interior_point import MAX_ITERATIONS, TOLERANCE, InteriorPoint
from trajopt.solvers.qp.kkt.riccati_kkt import require_stages
from trajopt.solvers.qp.qp import QP, QPSolution


class RiccatiInteriorPoint(InteriorPoint):
    """A :class:`~trajopt.solvers.qp.qp.QPSolver` for QPs by their stages; raises UnstructuredQP for others.

    lq_solver: who sweeps, default NumPy.
    """

    def __init__(
        self, lq_solver: LQSolver | None = None, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS
    ) -> None:
        super().__init__(tolerance, max_iterations, lq_solver or NumpyLQ())

    def is_convex(self, qp: QP) -> bool:
        """Whether H is positive definite on the null space of the equalities."""
        require_stages(qp)
        return super().is_convex(qp)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """See :class:`~trajopt.solvers.qp.qp.QPSolver`; interior points have no use for a start."""
        require_stages(qp)
        return super().solve(qp, start)
