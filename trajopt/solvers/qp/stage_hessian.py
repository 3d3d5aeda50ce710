"""The Hessian of an optimal-control QP as one block for each stage, which a Riccati recursion reads as they are.

    w'Hw = sum_k z_k'H_k z_k,   z_k = (x_k, u_k),   z_N = x_N

What an SQP method does to H before a QP is solved keeps this form: multiples, sums, D on the diagonal (a shift, the penalties of
bounds), and sum_i rho_i a_i a_i' of rows a_i that lie within a stage. Solvers of sparse QPs ask for the same as a csc matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.sparse_assembly import Assembly, Entries

if TYPE_CHECKING:
    import scipy.sparse as sp


class StageRows(NamedTuple):
    """Rows within the stages: stage (r,) and gradient (r, n + m) of each; crossing (r,): whether it reads other stages too."""

    stage: Array
    gradients: Array
    crossing: Array


class StagePlaces:
    """Where the variables of the stages stand in w: states (N + 1, n) and controls (N, m) are indices.

    stage, place (n_w,): of each variable, the place in (x, u); stage -1 where it belongs to none.
    """

    def __init__(self, states: Array, controls: Array, size: int) -> None:
        n, m = states.shape[1], controls.shape[1]
        self.size = size
        self.index = np.full((len(states), n + m), -1)
        self.index[:, :n], self.index[: len(controls), n:] = states, controls
        self.present = self.index >= 0
        self.stage, self.place = np.full(size, -1), np.zeros(size, dtype=int)
        knots, places = np.nonzero(self.present)
        self.stage[self.index[self.present]], self.place[self.index[self.present]] = knots, places

    @cached_property
    def assembly(self) -> Assembly:
        """Of blocks (N + 1, n + m, n + m) to a csc matrix."""
        entries = Entries()
        entries.add(self.index, self.index, self.present[:, :, None] & self.present[:, None, :])
        return entries.assembly((self.size, self.size))

    def rows(self, A: sp.csr_matrix) -> StageRows:
        """The rows (r, n_w) by their stages, a row without entries at stage 0."""
        M = A.tocoo()
        stage = np.zeros(A.shape[0], dtype=int)
        np.maximum.at(stage, M.row, self.stage[M.col])
        crossing = np.zeros(A.shape[0], dtype=bool)
        crossing[M.row[self.stage[M.col] != stage[M.row]]] = True
        gradients = np.zeros((A.shape[0], self.index.shape[1]))
        gradients[M.row, self.place[M.col]] = M.data
        return StageRows(stage, gradients, crossing)

    def taken_apart(self, H: sp.csc_matrix) -> StageHessian | None:
        """A sparse matrix (n_w, n_w) by its stages; None where it couples them."""
        M = H.tocoo()
        if (self.stage[M.row] != self.stage[M.col]).any():
            return None
        blocks = np.zeros((*self.index.shape, self.index.shape[1]))
        blocks[self.stage[M.row], self.place[M.row], self.place[M.col]] = M.data
        return StageHessian(blocks, self)


@dataclass(frozen=True, eq=False)
class StageHessian:
    """blocks (N + 1, n + m, n + m) of (x, u), symmetric; zero in the controls of the last stage, which do not exist."""

    blocks: Array
    places: StagePlaces

    __array_ufunc__ = None
    """Products with numbers of NumPy are those below."""

    @property
    def data(self) -> Array:
        """All entries, as those of a sparse matrix."""
        return self.blocks.ravel()

    @cached_property
    def assembled(self) -> sp.csc_matrix:
        """The matrix (n_w, n_w); its pattern is that of full blocks."""
        return self.places.assembly([self.blocks])

    def __matmul__(self, w: Array) -> Array:
        places, out = self.places, np.zeros(self.places.size)
        z = np.where(places.present, w[places.index], 0.0)
        out[places.index[places.present]] = (self.blocks @ z[:, :, None])[:, :, 0][places.present]
        return out

    def __rmul__(self, factor: float) -> StageHessian:
        return replace(self, blocks=factor * self.blocks)

    def __truediv__(self, divisor: float) -> StageHessian:
        return replace(self, blocks=self.blocks / divisor)

    def __add__(self, other: StageHessian) -> StageHessian:
        return replace(self, blocks=self.blocks + other.blocks)

    def plus_diagonal(self, values: Array) -> StageHessian:
        """H + diag(values), values (n_w,)."""
        blocks, places = self.blocks.copy(), self.places
        blocks[places.stage, places.place, places.place] += values
        return replace(self, blocks=blocks)

    def plus_squares(self, rows: StageRows, weights: Array) -> StageHessian:
        """H + sum_i rho_i a_i a_i' of rows that cross no stage, weights rho (r,)."""
        blocks, a = self.blocks.copy(), rows.gradients
        np.add.at(blocks, rows.stage, (weights[:, None] * a)[:, :, None] * a[:, None, :])
        return replace(self, blocks=blocks)
