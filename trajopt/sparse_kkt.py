"""The Newton systems of an interior-point or active-set method on a sparse QP, by SuperLU.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C           (:mod:`trajopt.qp_interior_point`)

The pattern of the matrix is that of all QPs of a program: it is analysed once. The first factorisation finds an order of the
columns of small fill whatever the pivots (COLAMD: T. Davis et al., ACM Trans. Math. Softw. 30, 2004), in which the later ones
follow.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dynamics_backends.protocol import Array
from trajopt.qp import QP
from trajopt.sparse_assembly import Assembly

REGULARISATION = 1e-9
"""On the diagonal, so that redundant rows do no harm; refinement removes its effect."""
SMALLEST_WEIGHT = 1e-16
REFINEMENTS = 3


class KKTPattern:
    """Where the entries of H, A, of the bounds' rows and of the diagonal stand in the matrix, and the order of elimination.

    Serves all QPs of the same pattern, one after the other.
    """

    def __init__(self) -> None:
        self._key: tuple[Array, ...] = ()

    def take(self, qp: QP) -> Array:
        """Analyse the pattern of a QP, unless it is that of the last one; returns which of (A w, w) have rows (m + n,)."""
        m = qp.A.shape[0]
        kept = np.concatenate([np.ones(m, dtype=bool), np.isfinite(qp.lb) | np.isfinite(qp.ub)])
        key = (qp.H.indptr, qp.H.indices, qp.A.indptr, qp.A.indices, kept)
        if not (self._key and all(map(np.array_equal, key, self._key))):
            self._key = key
            self._places(qp, kept)
            self.order: Array | None = None
            self.assembly = Assembly((self.size, self.size), [self._rows], [self._columns])
        return kept

    def _places(self, qp: QP, kept: Array) -> None:
        """Row and column of each entry, as ``values`` lists them."""
        m, n = qp.A.shape
        bounded = np.flatnonzero(kept[m:])
        own = n + m + np.arange(len(bounded))
        diagonal = np.arange(n + m + len(bounded))
        H, A = ((M.indices, np.repeat(np.arange(n), np.diff(M.indptr))) for M in (qp.H, qp.A))
        rows = [H[0], n + A[0], A[1], own, bounded, diagonal]
        columns = [H[1], A[1], n + A[0], bounded, own, diagonal]
        self._rows, self._columns, self.size = np.concatenate(rows), np.concatenate(columns), len(diagonal)
        self.ones = np.ones(2 * len(bounded))

    def matrix(self, qp: QP, diagonal: Array) -> sp.csc_matrix:
        """The matrix in the order found so far, with ``diagonal`` (size,) added."""
        return self.assembly([qp.H.data, qp.A.data, qp.A.data, self.ones, diagonal])

    def reorder(self, order: Array) -> None:
        """From now on eliminate the unknown i at the place order[i]."""
        self.order = order
        self.assembly = Assembly((self.size, self.size), [self._rows], [order[self._columns]])


class SparseKKT:
    """A :class:`~trajopt.qp_interior_point.KKTSystem`; pattern: of earlier QPs of the same program."""

    def __init__(self, qp: QP, pattern: KKTPattern | None = None) -> None:
        self.qp, self.pattern = qp, pattern or KKTPattern()
        self.rows = self.pattern.take(qp)
        m, n = qp.A.shape
        self.n, self.m, self.bounded = n, m, np.flatnonzero(self.rows[m:])
        scale = max(1.0, float(np.abs(qp.H.data).max(initial=0.0)))
        self.shift = REGULARISATION * np.concatenate([np.full(n, scale), np.full(self.pattern.size - n, -1.0)])

    def factorise(self, weights: Array) -> bool:
        """See :class:`~trajopt.qp_interior_point.KKTSystem`."""
        inverse = 1.0 / np.maximum(weights[self.rows], SMALLEST_WEIGHT)
        self.diagonal = np.concatenate([np.zeros(self.n), -inverse])
        first = self.pattern.order is None
        matrix = self.pattern.matrix(self.qp, self.diagonal + self.shift)
        try:
            self.factor = splu(matrix, permc_spec="COLAMD" if first else "NATURAL")
        except RuntimeError:  # exactly singular
            return False
        self.order = None if first else self.pattern.order
        if first:
            self.pattern.reorder(self.factor.perm_c.astype(np.int64))
        return True

    def _product(self, found: Array) -> Array:
        """The matrix without the shift times a vector."""
        n, m, qp = self.n, self.m, self.qp
        w, y, z = found[:n], found[n : n + m], found[n + m :]
        top = qp.H @ w + qp.A.T @ y
        top[self.bounded] += z
        return np.concatenate([top, qp.A @ w, w[self.bounded]]) + self.diagonal * found

    def _solved(self, goal: Array) -> Array:
        found = self.factor.solve(goal)
        return found if self.order is None else found[self.order]

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """See :class:`~trajopt.qp_interior_point.KKTSystem`."""
        goal = np.concatenate([a, b[self.rows]])
        found = self._refined(goal)
        dC = np.zeros(len(b))
        dC[self.rows] = found[self.n :]
        return found[: self.n], dC

    def _refined(self, goal: Array) -> Array:
        """The solution after refinement."""
        found = self._solved(goal)
        rest = goal - self._product(found)
        error = _largest(rest)
        for _ in range(REFINEMENTS):
            better = found + self._solved(rest)
            rest = goal - self._product(better)
            smaller = _largest(rest)
            if not smaller < error:
                break
            enough, found, error = smaller > 0.5 * error, better, smaller
            if enough:
                break
        return found


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
