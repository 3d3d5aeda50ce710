"""Convexity tests of a QP: on the whole space, or on the null space of its equalities."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lapack import cholesky
from trajopt.solvers.qp.qp import QP
from trajopt.solvers.qp.riccati_kkt import RiccatiKKT, by_stages
from trajopt.solvers.qp.scipy_sparse import sp, sparse_linalg

DENSE = 150
"""Up to this size dense factorizations are used: they are as fast as sparse ones, and reliable for small eigenvalues."""
MARGIN = 1e-10
"""Lower bound of the smallest eigenvalue, as a fraction of the largest diagonal entry."""
ROUNDING = 1e-14
COMPLIANCE = 1e-9
SPARSE_MARGIN = 1e-6
"""Sparse inertia test: COMPLIANCE is eps times the size of H; SPARSE_MARGIN covers rounding errors amplified by 1 / eps."""
RANK = 1e-10


def positive_definite(M: sp.csc_matrix) -> bool:
    """True if the smallest eigenvalue of a symmetric sparse matrix is positive beyond rounding errors.

    It must exceed MARGIN times the largest diagonal entry. Up to size DENSE a dense factorization tests this; above, a sparse
    one, and also a factorization that fails gives False.
    """
    if M.shape[0] <= DENSE:
        return _dense_positive_definite(M.toarray())
    shift = MARGIN * float(np.abs(M.diagonal()).max(initial=0.0))
    return _negative_pivots(M - shift * sp.identity(M.shape[0], format="csc")) == 0


def convex_on_equalities(qp: QP) -> bool:
    """True if H is positive definite on the null space of the equality rows and of the fixed variables.

    A QP in stages is tested by a Riccati recursion; a small one by a basis of the null space
    (Nocedal & Wright, eq. 16.18); a large one by the inertia of [[H, E'], [E, -eps]]: the number of negative eigenvalues
    equals the number of rows of E if and only if H is positive definite there (theorem 16.3).
    """
    if by_stages(qp):
        return RiccatiKKT(qp).factorize(np.equal(*qp.bounds))
    fixed = sp.identity(len(qp.g), format="csr")[qp.lb == qp.ub]
    E = sp.vstack([qp.sparse_A.tocsr()[qp.l == qp.u], fixed], format="csr")
    H = qp.sparse_H
    if len(qp.g) <= DENSE:
        return _dense_positive_definite(_reduced(H.toarray(), E.toarray()), float(np.abs(H.data).max(initial=0.0)))
    return _inertia_is_right(H, E)


def _dense_positive_definite(M: Array, whole: float = 0.0) -> bool:
    """True if a dense matrix is positive definite beyond rounding errors; whole: largest entry before a reduction."""
    shift = max(MARGIN * float(np.abs(M.diagonal()).max(initial=0.0)), ROUNDING * whole)
    return len(M) == 0 or bool(shift > 0.0 and cholesky(M - shift * np.eye(len(M)))[1] == 0)


def _reduced(H: Array, E: Array) -> Array:
    """Return Z'HZ with an orthonormal basis Z of the null space of E, or H if E has no rows."""
    if not len(E):
        return H
    from scipy.linalg import qr

    Q, R, _ = qr(E.T, pivoting=True)
    sizes = np.abs(np.diag(R))
    Z = Q[:, int((sizes > RANK * sizes.max(initial=0.0)).sum()) :]
    return Z.T @ H @ Z


def _inertia_is_right(H: sp.csc_matrix, E: sp.csr_matrix) -> bool:
    """True if H is positive definite on the null space of E, by the inertia of [[H, E'], [E, -eps]]; False if H = 0.

    The matrix must have as many negative eigenvalues as E has rows. Rows of E are normalized, and H is lowered by a margin for
    rounding errors. A factorization that fails also gives False.
    """
    size = float(np.abs(H.data).max(initial=0.0))
    if size == 0.0:
        return False
    lengths = np.sqrt(np.asarray(E.multiply(E).sum(axis=1)).ravel())
    E = sp.diags(1.0 / np.where(lengths > 0.0, lengths, 1.0)) @ E
    H = H - SPARSE_MARGIN * size * sp.identity(H.shape[0], format="csc")
    corner = -COMPLIANCE / size * sp.identity(E.shape[0])
    return _negative_pivots(sp.bmat([[H, E.T], [E, corner]], format="csc")) == E.shape[0]


def _negative_pivots(M: sp.csc_matrix) -> int | None:
    """Return the number of negative eigenvalues of a symmetric matrix, from an LU factorization with diagonal pivots.

    None if the matrix is singular or the factorization had to pivot off the diagonal.
    """

    try:
        factor = sparse_linalg.splu(
            M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    return int((factor.U.diagonal() < 0.0).sum()) if (factor.perm_r == factor.perm_c).all() else None
