"""Choice of the linear solver for the Newton systems of a QP (:mod:`trajopt.solvers.qp.kkt.kkt_system`).

A QP in stages uses a Riccati recursion (:mod:`trajopt.solvers.qp.kkt.riccati_kkt`); all other QPs use a
sparse factorization (:mod:`trajopt.solvers.qp.kkt.sparse_kkt`).
"""

from __future__ import annotations

from trajopt.solvers.qp.kkt.kkt_system import KKTSystem
from trajopt.solvers.qp.kkt.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.kkt.sparse_kkt import SparseKKT
from trajopt.solvers.qp.qp import QP


def system_of(qp: QP) -> KKTSystem:
    """Return the linear solver of a QP's Newton systems: by a Riccati recursion for a QP in stages, else by sparse LU."""
    return RiccatiKKT(qp) if by_stages(qp) else SparseKKT(qp)
