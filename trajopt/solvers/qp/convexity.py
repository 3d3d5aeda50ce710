"""Whether a QP is convex: on all of its space, or where its equalities allow motion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.lq.lapack import cholesky
from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.solvers.qp.qp import QP
from trajopt.solvers.qp.riccati_kkt import RiccatiKKT, UnstructuredQP

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
sparse_linalg = deferred("scipy.sparse.linalg")
DENSE = 150
"""Up to this size dense factorizations are used: they are as fast, and leave no doubt about small eigenvalues."""
MARGIN = 1e-10
"""Share of the largest diagonal entry that the smallest eigenvalue must exceed."""
ROUNDING = 1e-14
COMPLIANCE = 1e-9
SPARSE_MARGIN = 1e-6
"""In the sparse test of inertia: eps times the size of H, and the margin, which covers rounding amplified by 1 / eps."""
RANK = 1e-10


def positive_definite(M: sp.csc_matrix) -> bool:
    """Whether a symmetric sparse matrix is positive definite, by more than rounding."""
    if M.shape[0] <= DENSE:
        return _dense_positive_definite(M.toarray())
    shift = MARGIN * float(np.abs(M.diagonal()).max(initial=0.0))
    return _negative_pivots(M - shift * sp.identity(M.shape[0], format="csc")) == 0


def convex_on_equalities(qp: QP, lq_solver: LQSolver | None = None) -> bool:
    """Whether H is positive definite on the null space of the equality rows and of the fixed variables.

    Small: by a basis of the null space (Nocedal & Wright, eq. 16.18). Large: along the dynamics, where there is a layout; and
    by the inertia of [[H, E'], [E, -eps]], which has as many negative eigenvalues as rows then and only then (theorem 16.3).
    """
    if qp.layout is not None and convex_along_dynamics(qp, lq_solver):
        return True
    fixed = sp.identity(len(qp.g), format="csr")[qp.lb == qp.ub]
    E = sp.vstack([qp.A.tocsr()[qp.l == qp.u], fixed], format="csr")
    H = qp.sparse_H
    if len(qp.g) <= DENSE:
        return _dense_positive_definite(_reduced(H.toarray(), E.toarray()), float(np.abs(H.data).max(initial=0.0)))
    return _inertia_is_right(H, E)


def convex_along_dynamics(qp: QP, lq_solver: LQSolver | None = None) -> bool:
    """Whether Quu is positive definite at every knot of the LQ problem without its other constraints; needs a layout."""
    assert qp.layout is not None
    rows, kept = qp.layout.dynamics, np.zeros(len(qp.g), dtype=bool)
    kept[qp.layout.states[0]] = kept[qp.layout.controls] = True
    layout = qp.layout._replace(dynamics=np.arange(rows.size).reshape(rows.shape), initial=np.zeros(0, dtype=int))
    nothing = np.zeros(rows.size)
    lb, ub = np.where(kept, qp.lb, -np.inf), np.where(kept, qp.ub, np.inf)
    free = replace(qp, A=qp.A[rows.ravel()].tocsc(), l=nothing, u=nothing, lb=lb, ub=ub, layout=layout)
    try:
        return RiccatiKKT(free, lq_solver or NumpyLQ()).factorize(np.zeros(sum(free.A.shape)))
    except UnstructuredQP:
        return False


def _dense_positive_definite(M: Array, whole: float = 0.0) -> bool:
    """By more than rounding, also that of a reduction from a matrix with entries as large as ``whole``."""
    shift = max(MARGIN * float(np.abs(M.diagonal()).max(initial=0.0)), ROUNDING * whole)
    return len(M) == 0 or bool(shift > 0.0 and cholesky(M - shift * np.eye(len(M)))[1] == 0)


def _reduced(H: Array, E: Array) -> Array:
    """Z'HZ with an orthonormal basis Z of the null space of E."""
    if not len(E):
        return H
    from scipy.linalg import qr

    Q, R, _ = qr(E.T, pivoting=True)
    sizes = np.abs(np.diag(R))
    Z = Q[:, int((sizes > RANK * sizes.max(initial=0.0)).sum()) :]
    return Z.T @ H @ Z


def _inertia_is_right(H: sp.csc_matrix, E: sp.csr_matrix) -> bool:
    size = float(np.abs(H.data).max(initial=0.0))
    if size == 0.0:
        return False
    lengths = np.sqrt(np.asarray(E.multiply(E).sum(axis=1)).ravel())
    E = sp.diags(1.0 / np.where(lengths > 0.0, lengths, 1.0)) @ E
    H = H - SPARSE_MARGIN * size * sp.identity(H.shape[0], format="csc")
    corner = -COMPLIANCE / size * sp.identity(E.shape[0])
    return _negative_pivots(sp.bmat([[H, E.T], [E, corner]], format="csc")) == E.shape[0]


def _negative_pivots(M: sp.csc_matrix) -> int | None:
    """How many eigenvalues are negative, by the pivots of a factorization that keeps them on the diagonal; None where it fails."""

    try:
        factor = sparse_linalg.splu(
            M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    return int((factor.U.diagonal() < 0.0).sum()) if (factor.perm_r == factor.perm_c).all() else None
