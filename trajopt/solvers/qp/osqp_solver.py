"""Convex QPs by OSQP (B. Stellato et al., OSQP: an operator splitting solver for quadratic programs, Math. Prog. Comp. 12, 2020).

The bounds on w are rows of the identity.  The workspace is set up once for each sparsity pattern.  Later problems update its values
and start from the last solution or from ``start``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.convexity import positive_definite
from trajopt.solvers.qp.polishing import polished
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual
from trajopt.solvers.qp.scipy_sparse import sp

SETTINGS: dict[str, Any] = {"verbose": False, "eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 20_000}
"""OSQP settings, accurate enough for polishing to find the active constraints."""
ACCEPTABLE = 1e-6
"""If OSQP reports no success, a polished result counts as solved up to this residual, relative to 1 plus the largest |g_i|."""


class OSQP:
    """OSQP as a :class:`~trajopt.solvers.qp.qp.QPSolver`, followed by a solve of the equations of the active constraints.

    OSQP's built-in polishing is not used because it writes to the terminal.
    """

    def __init__(self) -> None:
        self._solver: Any = None
        self._pattern: tuple[Array, ...] | None = None

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite on the whole space."""
        return positive_definite(qp.sparse_H)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """Solve a convex QP from ``start``, else from the last solution, and polish the result on its active set.

        The last solution is known as long as the sparsity pattern stays the same. Crossed bounds give zeros with the status
        INFEASIBLE.
        """
        qp = qp.sparse
        m, (lower, upper) = len(qp.l), qp.bounds
        if (lower > upper).any():
            return qp.without_solution(QPStatus.INFEASIBLE)
        self._load(qp, lower, upper)
        if start is not None:
            self._solver.warm_start(x=start.w, y=np.concatenate([start.y, start.z]))
        result = self._solver.solve(raise_error=False)
        both = np.asarray(result.y)
        solution = QPSolution(np.asarray(result.x), both[:m], both[m:], QPStatus.FAILED, int(result.info.iter))
        if np.isfinite(solution.w).all() and np.isfinite(both).all():
            solution = polished(qp, solution)
        return solution._replace(status=_qp_status(qp, solution, int(result.info.status_val)))

    def _load(self, qp: QP, lower: Array, upper: Array) -> None:
        """Load a QP into the workspace: update its values if the sparsity pattern is the same, else set it up anew."""
        import osqp

        P = sp.triu(qp.sparse_H, format="csc")
        A = sp.vstack([qp.A, sp.identity(len(qp.g))], format="csc")
        P.sort_indices()
        A.sort_indices()
        pattern = P.indptr, P.indices, A.indptr, A.indices
        same = self._pattern is not None and all(map(np.array_equal, pattern, self._pattern))
        if same and not self._solver.update(q=qp.g, l=lower, u=upper, Px=P.data, Ax=A.data):
            return
        self._solver, self._pattern = osqp.OSQP(), pattern
        self._solver.setup(P=P, q=np.array(qp.g), A=A, l=lower, u=upper, **SETTINGS)


def _qp_status(qp: QP, solution: QPSolution, code: int) -> QPStatus:
    """Return the status for OSQP's code: solved, infeasible and unbounded as OSQP reports; else by the residuals.

    Residuals up to ACCEPTABLE, relative to 1 plus the largest entry of g, count as SOLVED; otherwise MAX_ITERATIONS if that was
    the code, else FAILED. A solution that is not finite is FAILED.
    """
    from osqp import SolverStatus

    if code == SolverStatus.OSQP_SOLVED:
        return QPStatus.SOLVED
    if code in (SolverStatus.OSQP_PRIMAL_INFEASIBLE, SolverStatus.OSQP_PRIMAL_INFEASIBLE_INACCURATE):
        return QPStatus.INFEASIBLE
    if code in (SolverStatus.OSQP_DUAL_INFEASIBLE, SolverStatus.OSQP_DUAL_INFEASIBLE_INACCURATE):
        return QPStatus.UNBOUNDED
    if not np.isfinite(solution.w).all():
        return QPStatus.FAILED
    if max(kkt_residual(qp, solution)) <= ACCEPTABLE * (1.0 + float(np.abs(qp.g).max(initial=0.0))):
        return QPStatus.SOLVED
    return QPStatus.MAX_ITERATIONS if code == SolverStatus.OSQP_MAX_ITER_REACHED else QPStatus.FAILED
