"""Hessian of an optimal-control QP as one block per stage, the form that a Riccati recursion uses.

    w'Hw = sum_k z_k'H_k z_k,   z_k = (x_k, u_k),   z_N = x_N

The operations of an SQP method on H preserve this form: multiples, sums, a diagonal D (a shift, or the penalties of
bounds), and sum_i rho_i a_i a_i' of rows a_i within a stage (:mod:`trajopt.solvers.qp.blocks.stage_jacobian`). Solvers of
sparse QPs use the assembled csc matrix.

Controls that change linearly over a step belong to two stages. They are the controls of one stage and also the
last numbers of the next state (carried controls): z_k = ((x_k, u_k), u_(k+1)) has two entries for one variable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.sparse_assembly import Assembly
from trajopt.solvers.qp.scipy_sparse import sp


class StagePlaces:
    """Map from the variables of the stages to w: states (N + 1, n) and controls (N, m) are indices that cover all of w.

    carried: True if the controls of a stage are the last numbers of the next state. index (N + 1, n + m): indices of (x, u) in w,
    ``size`` for missing controls. stage, place (n_w,): inverse of index; a variable with two entries uses that among the states.
    """

    def __init__(self, states: Array, controls: Array) -> None:
        n, m = states.shape[1], controls.shape[1]
        self.states, self.controls = states, controls
        self.carried = 0 < m <= n and np.array_equal(states[1:, n - m :], controls)
        self.size = states.size + (0 if self.carried else controls.size)
        self.index = np.full((len(states), n + m), self.size)
        self.index[:, :n], self.index[: len(controls), n:] = states, controls
        self.present = self.index < self.size
        self.stage, self.place = np.zeros(self.size, dtype=int), np.zeros(self.size, dtype=int)
        knots, places = np.nonzero(self.present)
        self.stage[self.index[self.present]], self.place[self.index[self.present]] = knots, places

    def gathered(self, w: Array) -> Array:
        """Return the entries (x, u) of the stages, (N + 1, n + m), of a vector w (n_w,); zero for missing controls."""
        return np.append(w, 0.0)[self.index]

    def shared_out(self, w: Array) -> Array:
        """Return a linear form w (n_w,) by stages, (N + 1, n + m): each coefficient at one entry of its variable, zeros elsewhere.

        For a control that is also an entry of the next state, that is the entry of the state.
        """
        z = np.zeros(self.index.shape)
        z[self.stage, self.place] = w
        return z

    def scattered(self, z: Array) -> Array:
        """Return z (N + 1, n + m) as a vector (n_w,), the transpose of :meth:`gathered`: entries of one variable are summed."""
        if self.carried:
            return np.bincount(self.index.ravel(), z.ravel(), minlength=self.size + 1)[:-1]
        w = np.empty(self.size + 1)
        w[self.index] = z
        return w[:-1]

    @cached_property
    def assembly(self) -> Assembly:
        """Assembly of blocks (N + 1, n + m, n + m) into a csc matrix."""
        used = self.present[:, :, None] & self.present[:, None, :]
        return Assembly((self.size, self.size), (self.index, self.index, used))


@dataclass(frozen=True, eq=False)
class StageHessian:
    """Symmetric blocks (N + 1, n + m, n + m) of (x, u); zero for the missing controls of the last stage."""

    blocks: Array
    places: StagePlaces

    __array_ufunc__ = None
    """None: NumPy scalars use __rmul__ of this class."""

    @property
    def data(self) -> Array:
        """All entries of the blocks, like ``data`` of a sparse matrix."""
        return self.blocks.ravel()

    @cached_property
    def assembled(self) -> sp.csc_matrix:
        """Sparse matrix (n_w, n_w) with the pattern of full blocks; assembled once and cached."""
        return self.places.assembly([self.blocks])

    @property
    def entries(self) -> Array:
        """Values of the entries of :attr:`assembled`, column by column."""
        return self.places.assembly.values([self.blocks])

    def __matmul__(self, w: Array) -> Array:
        """Return the product with a vector w (n_w,)."""
        return self.places.scattered((self.blocks @ self.places.gathered(w)[:, :, None])[:, :, 0])

    def __rmul__(self, factor: float) -> StageHessian:
        """Return the Hessian times a number."""
        return replace(self, blocks=factor * self.blocks)

    def __truediv__(self, divisor: float) -> StageHessian:
        """Return the Hessian divided by a number."""
        return replace(self, blocks=self.blocks / divisor)

    def __add__(self, other: StageHessian) -> StageHessian:
        """Return the sum of two Hessians of the same stages."""
        return replace(self, blocks=self.blocks + other.blocks)

    def plus_diagonal(self, values: Array) -> StageHessian:
        """Return H + diag(values), values (n_w,)."""
        blocks, places = self.blocks.copy(), self.places
        blocks[places.stage, places.place, places.place] += values
        return replace(self, blocks=blocks)

    def plus(self, blocks: Array) -> StageHessian:
        """Return H + blocks, (N + 1, n + m, n + m)."""
        return replace(self, blocks=self.blocks + blocks)
