"""Newton systems of interior-point and active-set methods, and the choice of their linear solver.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C

A QP in stages uses a Riccati recursion (:mod:`trajopt.solvers.qp.kkt.riccati_kkt`); all other QPs use a
sparse factorization (:mod:`trajopt.solvers.qp.kkt.sparse_kkt`). Rows and bounds are stacked (m + n,), as in (A w, w).
"""

from __future__ import annotations

from trajopt.solvers.qp.kkt.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.kkt.sparse_kkt import SparseKKT
from trajopt.solvers.qp.qp import QP

KKTSystem = RiccatiKKT | SparseKKT
"""Linear system of a Newton iteration."""


def system_of(qp: QP) -> KKTSystem:
    """Return the linear solver of a QP's Newton systems: by a Riccati recursion for a QP in stages, else by sparse LU."""
    return RiccatiKKT(qp) if by_stages(qp) else SparseKKT(qp)
