"""True if a QP is convex: on all of its space, or where its equalities allow motion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.lq.lapack import cholesky
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.kkt.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.qp import QP

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
    """True if a symmetric sparse matrix is positive definite, by more than rounding."""
    if M.shape[0] <= DENSE:
        return _dense_positive_definite(M.toarray())
    shift = MARGIN * float(np.abs(M.diagonal()).max(initial=0.0))
    return _negative_pivots(M - shift * sp.identity(M.shape[0], format="csc")) == 0


def convex_on_equalities(qp: QP, lq_solver: LQSolver | None = None) -> bool:
    """True if H is positive definite on the null space of the equality rows and of the fixed variables.

    By its stages, with somebody to sweep them: by a Riccati recursion. Small: by a basis of the null space (Nocedal & Wright,
    eq. 16.18). Large: by the inertia of [[H, E'], [E, -eps]], which has as many negative eigenvalues as rows then and only then
    (theorem 16.3).
    """
    if lq_solver is not None and by_stages(qp):
        return RiccatiKKT(qp, lq_solver).factorize(np.where(np.equal(*qp.bounds), np.inf, 0.0))
    fixed = sp.identity(len(qp.g), format="csr")[qp.lb == qp.ub]
    E = sp.vstack([qp.sparse_A.tocsr()[qp.l == qp.u], fixed], format="csr")
    H = qp.sparse_H
    if len(qp.g) <= DENSE:
        return _dense_positive_definite(_reduced(H.toarray(), E.toarray()), float(np.abs(H.data).max(initial=0.0)))
    return _inertia_is_right(H, E)


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
    """Number of negative eigenvalues, by the pivots of a factorization that keeps them on the diagonal; None if it fails."""

    try:
        factor = sparse_linalg.splu(
            M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    return int((factor.U.diagonal() < 0.0).sum()) if (factor.perm_r == factor.perm_c).all() else None
