"""Who solves the Newton systems of interior-point and active-set methods.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C

A QP by its stages is swept by a Riccati recursion (:mod:`trajopt.solvers.qp.kkt.riccati_kkt`) where there is a solver of LQ
problems to sweep; all others are factorized as sparse matrices (:mod:`trajopt.solvers.qp.kkt.sparse_kkt`)."""

from __future__ import annotations

from typing import Protocol

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.kkt.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.kkt.sparse_kkt import SparseKKT
from trajopt.solvers.qp.qp import QP


class KKTSystem(Protocol):
    """The linear systems of the iterations; rows and bounds are stacked (m + n,), as in (A w, w)."""

    def factorize(self, weights: Array) -> bool:
        """Take D (m + n,): infinite for the rows E, zero where there is no bound; whether it can be solved."""
        ...

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """dw (n,), and dE and dC (m + n,), from a (n,) and b (m + n,), which counts where D > 0."""
        ...


def system_of(qp: QP, lq_solver: LQSolver | None) -> KKTSystem:
    """The systems of a QP."""
    return SparseKKT(qp) if lq_solver is None or not by_stages(qp) else RiccatiKKT(qp, lq_solver)
