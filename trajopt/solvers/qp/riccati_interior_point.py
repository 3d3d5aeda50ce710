"""Convex QPs of optimal control by the interior-point method on Riccati recursions (:mod:`trajopt.solvers.qp.riccati_kkt`).

The cost of an iteration grows linearly with the horizon, and H need be positive definite only where the dynamics allow motion
(Quu > 0 at every knot).
"""

from __future__ import annotations

from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.solvers.qp.convexity import convex_along_dynamics
from trajopt.solvers.qp.interior_point import MAX_ITERATIONS, TOLERANCE, solve_interior_point
from trajopt.solvers.qp.qp import QP, QPSolution
from trajopt.solvers.qp.riccati_kkt import NO_STAGES, RiccatiKKT, UnstructuredQP


class RiccatiInteriorPoint:
    """A :class:`~trajopt.solvers.qp.qp.QPSolver` for QPs with a layout. lq_solver: who sweeps, default NumPy.

    Raises UnstructuredQP where there is no layout, where a row couples stages and is not one of the dynamics, or is an
    equality, and where a state other than x_0 is fixed.
    """

    def __init__(
        self, lq_solver: LQSolver | None = None, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS
    ) -> None:
        self.lq_solver = lq_solver or NumpyLQ()
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def is_convex(self, qp: QP) -> bool:
        """Whether Quu is positive definite at every knot."""
        if qp.layout is None:
            raise UnstructuredQP(NO_STAGES)
        return convex_along_dynamics(qp, self.lq_solver)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """See :class:`~trajopt.solvers.qp.qp.QPSolver`; interior points have no use for a start."""
        return solve_interior_point(
            qp, lambda scaled: RiccatiKKT(scaled, self.lq_solver), self.tolerance, self.max_iterations
        )
