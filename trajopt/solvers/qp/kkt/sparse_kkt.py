"""The Newton systems of an interior-point or active-set method on a sparse QP, by SuperLU.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C           (:mod:`trajopt.solvers.qp.kkt.kkt_system`)

QPs of one program share the pattern of the matrix. It is analyzed once, also for later solves: where the entries stand, and an
order of the columns of small fill whatever the pivots (COLAMD: T. Davis et al., ACM Trans. Math. Softw. 30, 2004).

Small numbers added to the diagonal keep redundant rows from doing harm, and refinement against the system without them removes
their effect: its error shrinks by about the shift over the least curvature in every pass. So the shift of a variable goes by its
own entry H_ii, not by the largest one: weights of states may exceed those of controls by ten orders of magnitude.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.sparse_assembly import Assembly
from trajopt.solvers.qp.qp import QP, largest

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
sparse_linalg = deferred("scipy.sparse.linalg")
REGULARIZATION = 1e-9
"""Added to the diagonal of the KKT matrix: for rows as it is, for variables relative to H_ii."""
FLAT = 1e-7
"""An H_ii below this share of the largest entry of H counts as that share."""
SMALLEST_WEIGHT = 1e-16
REFINEMENTS = 3


class KKTPattern:
    """Positions of the entries of H, A, the bounds' rows and the diagonal in the KKT matrix, and the order of elimination.

    H, A: indices and column of each entry. kept (m + n,): which of (A w, w) have rows. The unknown i is eliminated at the place
    order[i].
    """

    def __init__(self, H: tuple[Array, Array], A: tuple[Array, Array], kept: Array, n: int) -> None:
        self.kept, m = kept, len(kept) - n
        self.bounded = np.flatnonzero(kept[m:])
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
        """The matrix, its columns in the order of elimination, with ``diagonal`` (size,) added."""
        return self.assembly([qp.sparse_H.data, qp.sparse_A.data, qp.sparse_A.data, self.ones, diagonal])


def pattern_of(qp: QP) -> KKTPattern:
    """The pattern of a QP, analyzed unless it is one of the last."""
    kept = np.concatenate([np.ones(len(qp.l), dtype=bool), np.isfinite(qp.lb) | np.isfinite(qp.ub)])
    H, A = qp.sparse_H, qp.sparse_A
    places = (H.indptr, H.indices, A.indptr, A.indices)
    return _analyzed(*(p.astype(np.int32, copy=False).tobytes() for p in places), kept.tobytes())


@lru_cache(maxsize=16)
def _analyzed(*key: bytes) -> KKTPattern:
    H_starts, H_rows, A_starts, A_rows = (np.frombuffer(part, dtype=np.int32) for part in key[:4])
    n = len(H_starts) - 1
    H, A = ((i, np.repeat(np.arange(n), np.diff(starts))) for i, starts in ((H_rows, H_starts), (A_rows, A_starts)))
    return KKTPattern(H, A, np.frombuffer(key[4], dtype=bool), n)


class SparseKKT:
    """A :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem`."""

    def __init__(self, qp: QP) -> None:
        self.qp = qp = qp.sparse
        self.pattern = pattern_of(qp)
        self.n, self.rows = len(qp.g), self.pattern.kept
        H = qp.sparse_H
        largest = max(1.0, float(np.abs(H.data).max(initial=0.0)))
        own = np.maximum(np.abs(H.diagonal()), FLAT * largest)
        self.shift = REGULARIZATION * np.concatenate([own, np.full(self.pattern.size - self.n, -1.0)])

    def factorize(self, weights: Array) -> bool:
        """See :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem`."""
        inverse = 1.0 / np.maximum(weights[self.rows], SMALLEST_WEIGHT)
        self.matrix = self.pattern.matrix(self.qp, self.shift - np.concatenate([np.zeros(self.n), inverse]))
        try:
            self.factor = sparse_linalg.splu(self.matrix, permc_spec="NATURAL")
        except RuntimeError:  # exactly singular
            return False
        return True

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """See :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem`."""
        found = self._refined(np.concatenate([a, b[self.rows]]))[self.pattern.order]
        dC = np.zeros(len(b))
        dC[self.rows] = found[self.n :]
        return found[: self.n], dC

    def _rest(self, goal: Array, found: Array) -> Array:
        """Residual of the system without the shift; found (size,) in the order of elimination."""
        return goal - self.matrix @ found + self.shift * found[self.pattern.order]

    def _refined(self, goal: Array) -> Array:
        """The solution after refinement, in the order of elimination."""
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
