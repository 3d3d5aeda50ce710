"""Convex quadratic programs: data, solver interface, solutions and their residuals.

    minimize 1/2 w'Hw + g'w   subject to   l <= A w <= u,   lb <= w <= ub

with H symmetric and positive definite, at least on the null space of the equality rows (l = u).  Multipliers y of the
rows and z of the bounds make  Hw + g + A'y + z = 0;  they are positive at upper bounds and negative at lower ones.

| solver | method | for |
|---|---|---|
| interior_point | proximal interior point of PIQP, through CasADi | any QP; the default |
| osqp | operator splitting (ADMM) with polishing | large sparse QPs for which a coarse solution or a warm start helps |
| daqp, qrqp | active set, through CasADi | small QPs: exact active sets |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.scipy_sparse import sp

Hessian: TypeAlias = "sp.csc_matrix | StageHessian"
"""Hessian H of a QP: sparse matrix, or blocks of stages."""
Jacobian: TypeAlias = "sp.csc_matrix | StageJacobian"
"""Constraint matrix A of a QP: sparse matrix, or blocks of stages."""


class QPStatus(StrEnum):
    """Termination status of a QP solver."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    """The constraints are infeasible: bounds cross, or there is a certificate."""
    UNBOUNDED = "unbounded"
    MAX_ITERATIONS = "max_iterations"
    FAILED = "failed"
    """The factorization broke down, residuals stayed too large, or H is not convex."""


@dataclass(frozen=True, eq=False)
class QP:
    """Data of a QP: H (n, n) and A (m, n), both csc or both in stages, g, lb, ub (n,), l, u (m,).

    Missing bounds are infinite.
    """

    H: Hessian
    g: Array
    A: Jacobian
    l: Array
    u: Array
    lb: Array
    ub: Array

    @property
    def sparse_H(self) -> sp.csc_matrix:
        """H as csc; H in stages is assembled at the first call and cached."""
        return self.H.assembled if isinstance(self.H, StageHessian) else self.H

    @property
    def sparse_A(self) -> sp.csc_matrix:
        """A as csc; A in stages is assembled at the first call and cached."""
        return self.A.assembled if isinstance(self.A, StageJacobian) else self.A

    @property
    def sparse(self) -> QP:
        """QP with both matrices as csc."""
        return replace(self, H=self.sparse_H, A=self.sparse_A)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds (m + n,) of the rows and of w."""
        return np.concatenate([self.l, self.lb]), np.concatenate([self.u, self.ub])

    def bounded(self, w: Array) -> Array:
        """Return the bounded values (A w, w), (m + n,)."""
        return np.concatenate([self.A @ w, w])

    def without_solution(self, status: QPStatus) -> QPSolution:
        """Return zeros as the solution and multipliers, with this status of failure."""
        m, n = len(self.l), len(self.g)
        return QPSolution(np.zeros(n), np.zeros(m), np.zeros(n), status)


def entries_of(M: Hessian | Jacobian) -> Array:
    """Return the entries of a matrix, column by column; with M in stages, those of the assembled matrix."""
    return M.entries if isinstance(M, StageHessian | StageJacobian) else M.data


def square_lengths(A: Jacobian) -> Array:
    """Return the squared lengths |a_i|^2 of the rows of A, (m,)."""
    return A.square_lengths() if isinstance(A, StageJacobian) else np.asarray(A.multiply(A).sum(axis=1)).ravel()


class QPSolution(NamedTuple):
    """Solution w (n,), multipliers y (m,) and z (n,), status and number of iterations."""

    w: Array
    y: Array
    z: Array
    status: QPStatus
    iterations: int = 0


class QPSolver(Protocol):
    """Solver of a sequence of QPs with one sparsity pattern of H and A."""

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """Return the solution of a convex QP, with its status; start: a guess with multipliers, which a solver may ignore."""

    def is_convex(self, qp: QP) -> bool:
        """True if H is convex enough for this solver: on the whole space, or on the null space of the equalities."""


class QPResidual(NamedTuple):
    """Largest violations of stationarity, of the constraints, and of complementarity."""

    stationarity: float
    feasibility: float
    complementarity: float


def kkt_residual(qp: QP, solution: QPSolution) -> QPResidual:
    """Return the residuals of the optimality conditions at a point (Nocedal & Wright, eq. 16.37); see :func:`complementarity`."""
    w, y, z = solution[:3]
    stationarity = qp.H @ w + qp.g + y @ qp.A + z
    rows = violation(qp.A @ w, qp.l, qp.u), violation(w, qp.lb, qp.ub)
    complementary = complementarity(qp.A @ w, qp.l, qp.u, y), complementarity(w, qp.lb, qp.ub, z)
    return QPResidual(largest(stationarity), max(map(largest, rows)), max(map(largest, complementary)))


def largest(values: Array) -> float:
    """Return the largest absolute value, 0 for an empty array."""
    return float(np.abs(values).max(initial=0.0))


def violation(values: Array, lower: Array, upper: Array) -> Array:
    """Return the distance of each value outside its bounds, 0 inside."""
    return np.maximum(np.maximum(lower - values, values - upper), 0.0)


def complementarity(values: Array, lower: Array, upper: Array, multipliers: Array) -> Array:
    """Return |multiplier| times the distance of each value to a bound: upper for positive multipliers, else lower.

    Distances are limited to 1.
    """
    distances = np.where(multipliers > 0.0, upper - values, values - lower)
    return np.abs(multipliers) * np.minimum(np.abs(distances), 1.0)


_SOLVERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "interior_point": ("trajopt.solvers.qp.casadi_qp", "InteriorPoint", {}),
    "osqp": ("trajopt.solvers.qp.osqp_solver", "OSQP", {}),
    "daqp": ("trajopt.solvers.qp.casadi_qp", "ActiveSet", {"method": "daqp"}),
    "qrqp": ("trajopt.solvers.qp.casadi_qp", "ActiveSet", {"method": "qrqp"}),
}
QP_SOLVERS = tuple(_SOLVERS)


def make_qp_solver(name: str) -> QPSolver:
    """Return a new solver by its name in QP_SOLVERS. Raises UnknownName."""
    if name not in _SOLVERS:
        raise unknown_name("QP solver", name, QP_SOLVERS)
    module, kind, preset = _SOLVERS[name]
    return getattr(import_module(module), kind)(**preset)
