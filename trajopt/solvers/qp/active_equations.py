"""Equality-constrained QP of a set of active constraints: by a Riccati recursion for QPs in stages, else by sparse LU."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.qp import QP, largest
from trajopt.solvers.qp.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.scipy_sparse import sp, sparse_linalg

REGULARIZATION, FLAT = 1e-9, 1e-7
"""Shift of the diagonal of the KKT matrix, which keeps it regular if rows are redundant: relative to H_ii, at least FLAT times the
largest entry of H, for variables, minus this value for rows. Weights of states may exceed those of controls by ten orders of
magnitude."""
REFINEMENTS = 3


def solved_equations(qp: QP, active: Array, goal: Array) -> tuple[Array, Array] | None:
    """Return w (n,) and the multipliers (m + n,) with the active rows and bounds at ``goal`` (m + n,); None if singular."""
    if by_stages(qp):
        system = RiccatiKKT(qp)
        return system.solve(-qp.g, goal) if system.factorize(active) else None
    H, n = qp.sparse_H, len(qp.g)
    E = sp.vstack([qp.sparse_A, sp.identity(n, format="csc")], format="csr")[active]
    size = max(1.0, float(np.abs(H.data).max(initial=0.0)))
    shift = REGULARIZATION * np.concatenate([np.maximum(np.abs(H.diagonal()), FLAT * size), np.full(E.shape[0], -1.0)])
    matrix = sp.bmat([[H, E.T], [E, None]], format="csc") if E.shape[0] else sp.csc_matrix(H)
    try:
        factor = sparse_linalg.splu(matrix + sp.diags(shift, format="csc"))
    except RuntimeError:  # exactly singular
        return None
    right = np.concatenate([-qp.g, goal[active]])
    found = factor.solve(right)
    for _ in range(REFINEMENTS):  # against the system without the shift
        better = found + factor.solve(right - matrix @ found)
        if not largest(right - matrix @ better) < largest(right - matrix @ found):
            break
        found = better
    both = np.zeros(len(active))
    both[active] = found[n:]
    return found[:n], both
