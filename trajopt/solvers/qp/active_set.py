"""Small convex QPs by the active-set methods of CasADi: exact active sets, without a tolerance to choose.

daqp: dual, dense Cholesky (D. Arnström, A. Bemporad, D. Axehill, A dual active-set solver for embedded quadratic
programming, IEEE Trans. Automatic Control 67, 2022).  qrqp: primal-dual, sparse QR (J. Andersson, J. Rawlings, Sensitivity
analysis for nonlinear programming in CasADi, NMPC 2018).

Each change of the active set costs one update of a factorization.  From a cold start qrqp may cycle; the residuals of
its result then show that it is not a solution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.convexity import positive_definite
from trajopt.solvers.qp.interior_point import polished
from trajopt.solvers.qp.kkt.sparse_kkt import SparseKKT
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual
from trajopt.solvers.qp.scipy_sparse import sp

ACCEPTABLE = 1e-9
"""Maximum residual of a solution, relative to 1 plus the largest entry of g and of the solution."""
PRECISE = 1e-14
"""Above this relative residual, the equations of the active set are solved again: dense updates lose digits if H is nearly
singular."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "qrqp": {"print_header": False, "print_info": False, "print_iter": False},
    "daqp": {"daqp": {"primal_tol": 1e-11, "dual_tol": 1e-11}},
}
_CODES = {"SOLVER_RET_INFEASIBLE": QPStatus.INFEASIBLE, "SOLVER_RET_LIMITED": QPStatus.MAX_ITERATIONS}


class ActiveSet:
    """Active-set :class:`~trajopt.solvers.qp.qp.QPSolver`. method: the name of a CasADi plugin, "daqp" or "qrqp"."""

    def __init__(self, method: str) -> None:
        self.method = method
        self._solver: Any = None
        self._sparsity: tuple[Any, ...] = ()
        self._pattern: tuple[Array, ...] | None = None

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite on the whole space."""
        return positive_definite(qp.sparse_H)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """Solve a convex QP, from the active set of ``start`` if given; the status is SOLVED only with small KKT residuals.

        Crossed bounds give zeros with the status INFEASIBLE.
        """
        import casadi

        qp = qp.sparse
        if np.greater(*qp.bounds).any():
            return qp.without_solution(QPStatus.INFEASIBLE)
        H, A = qp.sparse_H, qp.sparse_A
        solver = self._solver_of(H, A)
        h, a = (casadi.DM(s, M.data) for s, M in zip(self._sparsity, (H, A), strict=True))
        guess = {} if start is None else {"x0": start.w, "lam_a0": start.y, "lam_x0": start.z}
        found = solver(h=h, a=a, g=qp.g, lba=qp.l, uba=qp.u, lbx=qp.lb, ubx=qp.ub, **guess)
        w, y, z = (np.array(found[key], dtype=float).ravel() for key in ("x", "lam_a", "lam_x"))
        stats = solver.stats()
        return _judged(qp, QPSolution(w, y, z, QPStatus.FAILED, max(0, int(stats.get("iter_count", 0)))), stats)

    def _solver_of(self, H: sp.csc_matrix, A: sp.csc_matrix) -> Any:
        """Return the CasADi solver for the sparsity patterns of H and A; it is reused while the patterns stay the same."""
        import casadi

        H.sort_indices()
        A.sort_indices()
        pattern = H.indptr, H.indices, A.indptr, A.indices
        if self._pattern is None or not all(map(np.array_equal, pattern, self._pattern)):
            h, a = (_sparsity(M) for M in (H, A))
            self._sparsity, self._pattern = (h, a), tuple(map(np.copy, pattern))
            self._solver = casadi.conic(
                "qp", self.method, {"h": h, "a": a}, {"error_on_fail": False, **_SETTINGS[self.method]}
            )
        return self._solver


def _sparsity(M: sp.csc_matrix) -> Any:
    """Return the sparsity pattern of a matrix as CasADi's type."""
    import casadi

    rows, columns = M.shape
    return casadi.Sparsity(rows, columns, M.indptr.tolist(), M.indices.tolist())


def _judged(qp: QP, solution: QPSolution, stats: dict[str, Any]) -> QPSolution:
    """Return the solution with its status: a code for the solver's failure, else SOLVED or FAILED by its KKT residuals.

    stats: CasADi's statistics of the solve. Residuals are relative to 1 plus the largest entry of g and the solution. If they
    exceed PRECISE, the equations of the active set are solved again; then at most ACCEPTABLE counts as SOLVED.
    """
    if not stats["success"]:
        return solution._replace(status=_CODES.get(str(stats.get("unified_return_status")), QPStatus.FAILED))
    size = 1.0 + max(float(np.abs(part).max(initial=0.0)) for part in (qp.g, *solution[:3]))
    if max(kkt_residual(qp, solution)) > PRECISE * size:
        solution = polished(qp, SparseKKT(qp), solution)
    good = max(kkt_residual(qp, solution)) <= ACCEPTABLE * size
    return solution._replace(status=QPStatus.SOLVED if good else QPStatus.FAILED)
