"""Who solves the Newton systems of a QP (:mod:`trajopt.solvers.qp.kkt.kkt_system`).

A QP by its stages is swept by a Riccati recursion (:mod:`trajopt.solvers.qp.kkt.riccati_kkt`) where there is a solver of LQ
problems to sweep; all others are factorized as sparse matrices (:mod:`trajopt.solvers.qp.kkt.sparse_kkt`).
"""

from __future__ import annotations

from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.kkt.kkt_system import KKTSystem
from trajopt.solvers.qp.kkt.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.kkt.sparse_kkt import SparseKKT
from trajopt.solvers.qp.qp import QP


def system_of(qp: QP, lq_solver: LQSolver | None) -> KKTSystem:
    """The systems of a QP."""
    return SparseKKT(qp) if lq_solver is None or not by_stages(qp) else RiccatiKKT(qp, lq_solver)
