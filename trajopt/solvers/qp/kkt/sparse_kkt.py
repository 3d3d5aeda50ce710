"""Newton systems of a sparse QP, solved by SuperLU.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C           (:mod:`trajopt.solvers.qp.kkt.choice`)

QPs of one program share the sparsity pattern of the matrix. The pattern is analyzed once, also for later solves: the positions of
the entries, and a fill-reducing column order that suits any pivots (COLAMD: T. Davis et al., ACM Trans. Math. Softw. 30, 2004).

A small shift of the diagonal keeps the matrix regular if rows are redundant. Iterative refinement against the system without the
shift removes its effect: each pass reduces the error by about the shift over the smallest curvature. The shift of a variable is
therefore relative to its entry H_ii, not to the largest one: weights of states may exceed those of controls by ten orders of
magnitude.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.sparse_assembly import Assembly
from trajopt.solvers.qp.qp import QP, largest
from trajopt.solvers.qp.scipy_sparse import sp, sparse_linalg

REGULARIZATION = 1e-9
"""Shift of the diagonal of the KKT matrix: relative to H_ii for variables, minus this value for rows."""
FLAT = 1e-7
"""Lower bound of H_ii in the shift, as a fraction of the largest entry of H."""
SMALLEST_WEIGHT = 1e-16
REFINEMENTS = 3


class KKTPattern:
    """Sparsity pattern of the KKT matrix of H, A, bound rows and diagonal, and the elimination order.

    H, A: row and column of each entry. has_row (m + n,): True for the entries of (A w, w) that have rows. The unknown i is at the
    position order[i] of the elimination.
    """

    def __init__(self, H: tuple[Array, Array], A: tuple[Array, Array], has_row: Array, n: int) -> None:
        self.has_row, m = has_row, len(has_row) - n
        self.bounded = np.flatnonzero(has_row[m:])
        own, self.size = n + m + np.arange(len(self.bounded)), n + m + len(self.bounded)
        self.ones, diagonal = np.ones(2 * len(self.bounded)), np.arange(self.size)
        rows = [H[0], n + A[0], A[1], own, self.bounded, diagonal]
        columns = np.concatenate([H[1], A[1], n + A[0], self.bounded, own, diagonal])
        shape = (self.size, self.size)
        unordered = Assembly(shape, rows, [columns])
        zeros = np.zeros(len(columns) - self.size)  # the order depends on the pattern alone
        any_values = unordered([zeros, np.ones(self.size)])
        self.order = sparse_linalg.splu(any_values, permc_spec="COLAMD").perm_c.astype(np.int64)
        self.assembly = Assembly(shape, rows, [self.order[columns]])

    def matrix(self, qp: QP, diagonal: Array) -> sp.csc_matrix:
        """Return the KKT matrix of a QP with columns in the elimination order, and with ``diagonal`` (size,) added."""
        return self.assembly([qp.sparse_H.data, qp.sparse_A.data, qp.sparse_A.data, self.ones, diagonal])


def pattern_of(qp: QP) -> KKTPattern:
    """Return the analyzed sparsity pattern of a QP's KKT matrix, from a cache if it was analyzed before.

    A variable with a finite bound has a row of its own.
    """
    has_row = np.concatenate([np.ones(len(qp.l), dtype=bool), np.isfinite(qp.lb) | np.isfinite(qp.ub)])
    H, A = qp.sparse_H, qp.sparse_A
    places = (H.indptr, H.indices, A.indptr, A.indices)
    return _analyzed(*(p.astype(np.int32, copy=False).tobytes() for p in places), has_row.tobytes())


@lru_cache(maxsize=16)
def _analyzed(*key: bytes) -> KKTPattern:
    """Return the pattern for the index arrays of H and A (csc) and the mask of rows, all as bytes; cached."""
    H_starts, H_rows, A_starts, A_rows = (np.frombuffer(part, dtype=np.int32) for part in key[:4])
    n = len(H_starts) - 1
    H, A = ((i, np.repeat(np.arange(n), np.diff(starts))) for i, starts in ((H_rows, H_starts), (A_rows, A_starts)))
    return KKTPattern(H, A, np.frombuffer(key[4], dtype=bool), n)


class SparseKKT:
    """Newton system (:mod:`trajopt.solvers.qp.kkt.choice`) by a sparse LU factorization."""

    def __init__(self, qp: QP) -> None:
        self.qp = qp = qp.sparse
        self.pattern = pattern_of(qp)
        self.n, self.rows = len(qp.g), self.pattern.has_row
        H = qp.sparse_H
        largest = max(1.0, float(np.abs(H.data).max(initial=0.0)))
        own = np.maximum(np.abs(H.diagonal()), FLAT * largest)
        self.shift = REGULARIZATION * np.concatenate([own, np.full(self.pattern.size - self.n, -1.0)])

    def factorize(self, weights: Array) -> bool:
        """Factorize the KKT matrix with weights D (m + n,) of rows and bounds: -1 / D and a small shift on its diagonal.

        Infinite weights mark equations, zero (raised to SMALLEST_WEIGHT) those without bound. Returns False if the matrix is
        exactly singular.
        """
        inverse = 1.0 / np.maximum(weights[self.rows], SMALLEST_WEIGHT)
        self.matrix = self.pattern.matrix(self.qp, self.shift - np.concatenate([np.zeros(self.n), inverse]))
        try:
            self.factor = sparse_linalg.splu(self.matrix, permc_spec="NATURAL")
        except RuntimeError:  # exactly singular
            return False
        return True

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return dw (n,), and dE and dC stacked (m + n,), by the last factorization, from a (n,) and b (m + n,).

        With the Hessian H, equations E and inequalities C they solve H dw + E'dE + C'dC = a, E dw = b_E, C dw - dC / D = b_C, with
        iterative refinement. For variables without bounds, dC is zero and b is ignored.
        """
        found = self._refined(np.concatenate([a, b[self.rows]]))[self.pattern.order]
        dC = np.zeros(len(b))
        dC[self.rows] = found[self.n :]
        return found[: self.n], dC

    def _rest(self, goal: Array, found: Array) -> Array:
        """Return the residual of the system without the shift, for the right-hand side ``goal``.

        found (size,): a solution in the elimination order.
        """
        return goal - self.matrix @ found + self.shift * found[self.pattern.order]

    def _refined(self, goal: Array) -> Array:
        """Return the solution for the right-hand side ``goal`` after iterative refinement, in the elimination order.

        At most REFINEMENTS passes follow, while each halves the residual of the system without the shift.
        """
        found = self.factor.solve(goal)
        rest = self._rest(goal, found)
        error = largest(rest)
        for _ in range(REFINEMENTS):
            better = found + self.factor.solve(rest)
            rest = self._rest(goal, better)
            smaller = largest(rest)
            if not smaller < error:
                break
            enough, found, error = smaller > 0.5 * error, better, smaller
            if enough:
                break
        return found
