"""Equality-constrained QP of a set of active constraints: by a Riccati recursion for QPs in stages, else by sparse LU."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.qp import QP, largest
from trajopt.solvers.qp.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.scipy_sparse import sp, sparse_linalg

REGULARIZATION, TINY, FLAT = 1e-9, 1e-25, 1e-7
"""Shift of the diagonal of the KKT matrix, which keeps it regular if rows are redundant: relative to H_ii, at least FLAT times the
largest entry of H, for variables, minus this value for rows. Weights of states may exceed those of controls by ten orders of
magnitude. TINY: the shift after a Riccati recursion; without any, SuperLU calls the BLAS with wrong sizes if rows are redundant."""
REFINEMENTS = 3
OPEN = 1e-9
"""Violation of active rows and bounds, relative to 1 plus the largest goal, above which they count as violated."""


def solved_equations(qp: QP, active: Array, goal: Array) -> tuple[Array, Array] | None:
    """Return w (n,) and the multipliers (m + n,) with the active rows and bounds at ``goal`` (m + n,); None if singular.

    None also for a QP in stages that is not convex on these equations. If the recursion leaves its equations violated, as those
    that need large controls at little gain, a sparse factorization with a tiny shift follows.
    """
    if not by_stages(qp):
        return _by_factors(qp, active, goal, REGULARIZATION)
    system = RiccatiKKT(qp)
    if not system.factorize(active):
        return None
    w, both = system.solve(-qp.g, goal)
    if are_met(qp.bounded(w), active, goal):
        return w, both
    return _by_factors(qp, active, goal, TINY)


def are_met(values: Array, active: Array, goal: Array) -> bool:
    """True if the values (m + n,) of the active rows and bounds are ``goal`` (m + n,), to OPEN."""
    return largest((values - goal)[active]) <= OPEN * (1.0 + largest(goal))


def _by_factors(qp: QP, active: Array, goal: Array, regularization: float) -> tuple[Array, Array] | None:
    """Return the solution of :func:`solved_equations` by a sparse LU factorization with a shift; None if that matrix is singular.

    At most REFINEMENTS passes against the matrix without the shift follow, while each reduces the residual.
    """
    H, n = qp.sparse_H, len(qp.g)
    E = sp.vstack([qp.sparse_A, sp.identity(n, format="csc")], format="csr")[active]
    matrix = sp.bmat([[H, E.T], [E, None]], format="csc") if E.shape[0] else sp.csc_matrix(H)
    size = max(1.0, float(np.abs(H.data).max(initial=0.0)))
    variables = np.maximum(np.abs(H.diagonal()), FLAT * size)
    shift = regularization * np.concatenate([variables, np.full(E.shape[0], -1.0)])
    try:
        factor = sparse_linalg.splu(matrix + sp.diags(shift, format="csc"))
    except RuntimeError:  # exactly singular
        return None
    right = np.concatenate([-qp.g, goal[active]])
    found = factor.solve(right)
    for _ in range(REFINEMENTS):
        better = found + factor.solve(right - matrix @ found)
        if not largest(right - matrix @ better) < largest(right - matrix @ found):
            break
        found = better
    both = np.zeros(len(active))
    both[active] = found[n:]
    return found[:n], both
