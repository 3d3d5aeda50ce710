"""Convex quadratic programs: their data, what a solver answers, and how good the answer is.

    minimize 1/2 w'Hw + g'w   subject to   l <= A w <= u,   lb <= w <= ub

with H symmetric and positive definite, at least on the null space of the equality rows (l = u).  Multipliers y of the
rows and z of the bounds make  Hw + g + A'y + z = 0;  they are positive at upper bounds and negative at lower ones.

| solver | method | for |
|---|---|---|
| interior_point | primal-dual, sparse factorization | any; the default |
| osqp | operator splitting (ADMM) with polishing | large sparse ones where a coarse answer or a warm start helps |
| daqp, qrqp | active set | small ones: exact active sets |
| riccati | primal-dual, Riccati recursion | optimal control with constraints within the stages |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from trajopt.solvers.qp.stage_hessian import StageHessian

if TYPE_CHECKING:
    import scipy.sparse as sp

Hessian: TypeAlias = "sp.csc_matrix | StageHessian"
"""H of a QP: sparse, or the blocks of its stages."""


class QPStatus(StrEnum):
    """How the solution of a QP ended."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    """The constraints contradict each other: there is a certificate of it."""
    UNBOUNDED = "unbounded"
    MAX_ITERATIONS = "max_iterations"
    FAILED = "failed"
    """The factorization broke down, or H is not convex."""


class StageLayout(NamedTuple):
    """Where the stages of an optimal-control problem lie in a QP: indices into w and into the rows of A.

    states (N + 1, n), controls (N, m): variables. dynamics (N, n): rows s (x_(k+1) - A_k x_k - B_k u_k) = s d_k, with
    a sign s = +1 or -1 for each row. initial (n,): rows +-x_0 = const; empty where equal bounds fix x_0.
    """

    states: Array
    controls: Array
    dynamics: Array
    initial: Array


@dataclass(frozen=True, eq=False)
class QP:
    """The data above: H (n, n) as csc or by its stages, A (m, n) as csc, g, lb, ub (n,), l, u (m,).

    Bounds that do not exist are infinite. layout: of an optimal-control problem, for solvers that exploit it.
    """

    H: Hessian
    g: Array
    A: sp.csc_matrix
    l: Array
    u: Array
    lb: Array
    ub: Array
    layout: StageLayout | None = None

    @property
    def sparse_H(self) -> sp.csc_matrix:
        """H as csc; assembled at the first call where it comes by its stages."""
        return self.H.assembled if isinstance(self.H, StageHessian) else self.H

    def value(self, w: Array) -> float:
        """The objective."""
        return float(w @ (0.5 * (self.H @ w) + self.g))


class QPSolution(NamedTuple):
    """w (n,), multipliers y (m,) and z (n,), how it ended, and after how many iterations."""

    w: Array
    y: Array
    z: Array
    status: QPStatus
    iterations: int = 0


class QPSolver(Protocol):
    """Solves QPs of one pattern of H and A, one after the other."""

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """The solution; start: a guess with multipliers, which a solver is free to ignore."""
        ...

    def is_convex(self, qp: QP) -> bool:
        """Whether H is convex enough for this solver."""
        ...


class QPResidual(NamedTuple):
    """Largest entries of the violations of stationarity, of the constraints, and of complementarity with its signs."""

    stationarity: float
    feasibility: float
    complementarity: float


def kkt_residual(qp: QP, solution: QPSolution) -> QPResidual:
    """How far a point is from satisfying the optimality conditions (Nocedal & Wright, eq. 16.37)."""
    w, y, z = solution[:3]
    stationarity = qp.H @ w + qp.g + qp.A.T @ y + z
    rows = violation(qp.A @ w, qp.l, qp.u), violation(w, qp.lb, qp.ub)
    complementary = complementarity(qp.A @ w, qp.l, qp.u, y), complementarity(w, qp.lb, qp.ub, z)
    return QPResidual(_largest(stationarity), max(map(_largest, rows)), max(map(_largest, complementary)))


def violation(values: Array, lower: Array, upper: Array) -> Array:
    """By how much each value is outside its bounds."""
    return np.maximum(np.maximum(lower - values, values - upper), 0.0)


def complementarity(values: Array, lower: Array, upper: Array, multipliers: Array) -> Array:
    """|multiplier| times the distance to the bound it belongs to, a distance above 1 counting as 1."""
    room = np.where(multipliers > 0.0, upper - values, values - lower)
    return np.abs(multipliers) * np.minimum(np.abs(room), 1.0)


_SOLVERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "interior_point": ("trajopt.solvers.qp.interior_point", "InteriorPoint", {}),
    "osqp": ("trajopt.solvers.qp.osqp_solver", "OSQP", {}),
    "daqp": ("trajopt.solvers.qp.active_set", "ActiveSet", {"method": "daqp"}),
    "qrqp": ("trajopt.solvers.qp.active_set", "ActiveSet", {"method": "qrqp"}),
    "riccati": ("trajopt.solvers.qp.riccati_interior_point", "RiccatiInteriorPoint", {}),
}
QP_SOLVERS = tuple(_SOLVERS)


def make_qp_solver(name: str, **settings: Any) -> QPSolver:
    """A solver by its name in the table above. Raises UnknownName."""
    if name not in _SOLVERS:
        raise unknown_name("QP solver", name, QP_SOLVERS)
    module, kind, preset = _SOLVERS[name]
    return getattr(import_module(module), kind)(**preset, **settings)


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
