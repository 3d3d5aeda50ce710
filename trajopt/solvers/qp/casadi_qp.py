"""Convex QPs by solvers of CasADi, with a test of their results.

piqp   interior point, sparse, proximal (R. Schwan, Y. Jiang, D. Kuhn, C. Jones, PIQP: a proximal interior-point quadratic
       programming solver, CDC 2023)
daqp   active set, dual, dense Cholesky (D. Arnström, A. Bemporad, D. Axehill, A dual active-set solver for embedded quadratic
       programming, IEEE Trans. Automatic Control 67, 2022)
qrqp   active set, primal-dual, sparse QR (J. Andersson, J. Rawlings, Sensitivity analysis for nonlinear programming in CasADi,
       NMPC 2018)

Active-set methods find exact active sets, without a tolerance to choose; each change of the set costs one update of a
factorization. From a cold start qrqp may cycle; the residuals of its result then show that it is not a solution.

If the constraints are infeasible, the multipliers diverge along a Farkas certificate: a direction with
A'y + z = 0 and a negative maximum of  y'Aw + z'w  over the bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.convexity import convex_on_equalities, positive_definite
from trajopt.solvers.qp.polishing import polished
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual, largest
from trajopt.solvers.qp.scipy_sparse import sp

ACCEPTABLE, NEARLY = 1e-9, 1e-5
"""Maximum residual of a solution, and of a result without success that is polished; see :func:`_relative_residual`."""
PRECISE = 1e-14
"""Above this residual, the equations of the active set are solved again: dense updates lose digits if H is nearly singular, and
interior points end at a tolerance."""
FARKAS_RADIUS, LAST_RADIUS = 1e4, 10.0
"""A certificate must exclude every w up to FARKAS_RADIUS times the size of the current w; LAST_RADIUS if the solver agrees."""
MAX_ITERATIONS = 60
"""Maximum number of iterations of the interior point; 1,557 QPs of this toolkit's benchmarks took at most 50."""
SETTINGS: dict[str, dict[str, Any]] = {
    "piqp": {"piqp": {"eps_abs": 1e-10, "eps_rel": 1e-12, "max_iter": MAX_ITERATIONS, "verbose": False}},
    "qrqp": {"print_header": False, "print_info": False, "print_iter": False},
    "daqp": {"daqp": {"primal_tol": 1e-11, "dual_tol": 1e-11}},
}
_CODES = {
    "SOLVER_RET_INFEASIBLE": QPStatus.INFEASIBLE,
    "SOLVER_RET_LIMITED": QPStatus.MAX_ITERATIONS,
    "dual infeasible": QPStatus.UNBOUNDED,
}
"""Statuses for the codes of CasADi, and of PIQP where CasADi has none."""


class CasadiQP:
    """A :class:`~trajopt.solvers.qp.qp.QPSolver` of CasADi. method: the name of its plugin."""

    def __init__(self, method: str) -> None:
        self.method = method
        self._solver: Any = None
        self._sparsity: tuple[Any, ...] = ()
        self._pattern: tuple[Array, ...] | None = None

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite on the whole space."""
        return positive_definite(qp.sparse_H)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """Solve a convex QP, from ``start`` if given and of use; the status is SOLVED only with small KKT residuals.

        Crossed bounds give zeros with the status INFEASIBLE. Iterations are zero if the solver does not report them.
        """
        import casadi

        if np.greater(*qp.bounds).any():
            return qp.without_solution(QPStatus.INFEASIBLE)
        free = np.isinf(qp.l) & np.isinf(qp.u)
        if free.any():  # PIQP prints warnings of such rows
            found = self.solve(replace(qp.sparse, A=qp.sparse_A[~free], l=qp.l[~free], u=qp.u[~free]))
            y = np.zeros(len(free))
            y[~free] = found.y
            return found._replace(y=y)
        H, A = qp.sparse_H, qp.sparse_A
        self._load(H, A)
        h, a = (casadi.DM(s, M.data) for s, M in zip(self._sparsity, (H, A), strict=True))
        guess = {} if start is None else {"x0": start.w, "lam_a0": start.y, "lam_x0": start.z}
        found = self._solver(h=_symmetric(h), a=a, g=qp.g, lba=qp.l, uba=qp.u, lbx=qp.lb, ubx=qp.ub, **guess)
        w, y, z = (np.array(found[key], dtype=float).ravel() for key in ("x", "lam_a", "lam_x"))
        stats = self._solver.stats()
        solution = QPSolution(w, y, z, QPStatus.FAILED, max(0, int(stats.get("iter_count", 0))))
        return _judged(qp, solution, stats)

    def _load(self, H: sp.csc_matrix, A: sp.csc_matrix) -> None:
        """Set up the CasADi solver for the sparsity patterns of H and A; it is reused while the patterns stay the same."""
        import casadi

        H.sort_indices()
        A.sort_indices()
        pattern = H.indptr, H.indices, A.indptr, A.indices
        if self._pattern is not None and all(map(np.array_equal, pattern, self._pattern)):
            return
        h, a = self._sparsity = _sparsity(H), _sparsity(A)
        options = {"error_on_fail": False, **SETTINGS[self.method]}
        self._solver = casadi.conic("qp", self.method, {"h": _symmetric(h), "a": a}, options)
        self._pattern = tuple(map(np.copy, pattern))


class ActiveSet(CasadiQP):
    """Active-set method, "daqp" or "qrqp"; it starts from the active set of ``start``."""


class InteriorPoint(CasadiQP):
    """Interior-point method, "piqp"; ``start`` is ignored."""

    def __init__(self) -> None:
        super().__init__("piqp")

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite on the null space of the equality rows and fixed variables."""
        return convex_on_equalities(qp)


def _sparsity(M: sp.csc_matrix) -> Any:
    """Return the sparsity pattern of a matrix as CasADi's type."""
    import casadi

    rows, columns = M.shape
    return casadi.Sparsity(rows, columns, M.indptr.tolist(), M.indices.tolist())


def _symmetric(h: Any) -> Any:
    """Return a symmetric matrix, or sparsity pattern, of CasADi with a symmetric pattern: sums of sparse matrices omit zeros."""
    import casadi

    if isinstance(h, casadi.Sparsity):
        return h if h.is_symmetric() else h + h.T
    return h if h.sparsity().is_symmetric() else 0.5 * (h + h.T)


def _judged(qp: QP, solution: QPSolution, stats: dict[str, Any]) -> QPSolution:
    """Return the solution with its status: SOLVED by its residuals, INFEASIBLE by a certificate, else the solver's code.

    stats: CasADi's statistics of the solve. If the residuals exceed PRECISE, the equations of the active set are solved
    again; then at most ACCEPTABLE counts as SOLVED, whatever the code. Without a success of the solver, residuals above NEARLY are
    not polished.
    """
    residual = _relative_residual(qp, solution)
    if residual > PRECISE and (stats["success"] or residual <= NEARLY):
        solution = polished(qp, solution)
        residual = _relative_residual(qp, solution)
    if residual <= ACCEPTABLE:
        return solution._replace(status=QPStatus.SOLVED)
    if stats["success"]:
        return solution
    codes = (_CODES.get(str(stats.get(key))) for key in ("unified_return_status", "return_status"))
    radius = LAST_RADIUS if stats.get("return_status") == "primal infeasible" else FARKAS_RADIUS
    code = QPStatus.INFEASIBLE if _is_infeasible(qp, solution, radius) else next(filter(None, codes), QPStatus.FAILED)
    return solution._replace(status=code)


def _relative_residual(qp: QP, solution: QPSolution) -> float:
    """Return the largest KKT residual: violations relative to 1 + |w|, the others to 1 + the largest gradient or multiplier."""
    w, y, z = solution[:3]
    found = kkt_residual(qp, solution)
    dual = max(found.stationarity, found.complementarity) / (1.0 + max(map(largest, (qp.g, y, z))))
    worst = max(dual, found.feasibility / (1.0 + largest(w)))
    return worst if np.isfinite(worst) else np.inf


def _is_infeasible(qp: QP, solution: QPSolution, radius: float) -> bool:
    """True if the multipliers certify that no w up to ``radius`` times the size of the current one, plus 1, is feasible."""
    m, both = len(solution.y), np.concatenate([solution.y, solution.z])
    if not np.isfinite(both).all():
        return False
    bound = np.where(both > 0.0, *reversed(qp.bounds))
    both, bound = np.where(np.isfinite(bound), both, 0.0), np.where(np.isfinite(bound), bound, 0.0)
    rest = float(np.abs(both[:m] @ qp.A + both[m:]).sum())
    return float(both @ bound) < -rest * radius * (1.0 + largest(solution.w))
