"""Jacobian of the rows of an optimal-control QP as blocks of stages.

    dynamics       A_k x_k + B_k u_k - x_(k+1)       k = 0 .. N - 1
    within stages  G_k z_k,   z_k = (x_k, u_k)       k = 0 .. N,   z_N = x_N

With carried controls (:mod:`trajopt.solvers.qp.blocks.stage_hessian`) only the first r numbers of x_(k+1) have dynamics; the
others are u_k.  Products with vectors, and sum_i rho_i a_i a_i' of rows within
stages, are products of blocks.  Solvers of sparse QPs use the assembled csc matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.sparse_assembly import Assembly
from trajopt.solvers.qp.blocks.stage_hessian import StagePlaces
from trajopt.solvers.qp.scipy_sparse import sp


class RowPlaces:
    """Row numbers in the Jacobian: dynamics (N, r), and rows within stages (N + 1, c), -1 for unused entries.

    mask: returns the entries of G that may differ from zero, an array of its shape; None: all of them.
    """

    def __init__(
        self, stages: StagePlaces, dynamics: Array, within: Array, mask: Callable[[], Array] | None = None
    ) -> None:
        self.stages, self.dynamics, self._mask = stages, dynamics, mask
        self.count = dynamics.size + int((within >= 0).sum())
        self.within = np.where(within < 0, self.count, within)

    @cached_property
    def assembly(self) -> Assembly:
        """Assembly of minus the identity (N, r, r), A, B and G into a csc matrix."""
        r, rows, stages = self.dynamics.shape[1], self.dynamics, self.stages
        used = (self.within < self.count)[:, :, None] & stages.present[:, None, :]
        return Assembly(
            (self.count, stages.size),
            (rows, stages.states[1:, :r], np.eye(r, dtype=bool)),
            (rows, stages.states[:-1], True),
            (rows, stages.controls, True),
            (self.within, stages.index, used if self._mask is None else used & self._mask()),
        )


@dataclass(frozen=True, eq=False)
class StageJacobian:
    """Jacobian of dynamics A x + B u - x_next and of rows G (x, u) within stages, as blocks of stages.

    A (N, r, n), B (N, r, m), G (N + 1, c, n + m), zero for unused rows and missing controls.
    """

    A: Array
    B: Array
    G: Array
    places: RowPlaces

    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.places.count, self.places.stages.size

    @property
    def data(self) -> Array:
        """All entries of A, B and G, like ``data`` of a sparse matrix; without the constant -1 of the dynamics."""
        return np.concatenate([self.A.ravel(), self.B.ravel(), self.G.ravel()])

    @property
    def _blocks(self) -> list[Array]:
        """Blocks of the assembly."""
        N, r = self.A.shape[:2]
        return [np.broadcast_to(-np.eye(r), (N, r, r)), self.A, self.B, self.G]

    @property
    def entries(self) -> Array:
        """Values of the entries of :attr:`assembled`, column by column."""
        return self.places.assembly.values(self._blocks)

    @cached_property
    def assembled(self) -> sp.csc_matrix:
        """Sparse matrix (m, n_w); assembled once and cached."""
        return self.places.assembly(self._blocks)

    def __matmul__(self, w: Array) -> Array:
        """Return the product with a vector w (n_w,), (m,)."""
        places, (r, n) = self.places, self.A.shape[1:]
        z = places.stages.gathered(w)[:, :, None]
        rows = np.empty(places.count + 1)
        rows[places.within] = (self.G @ z)[:, :, 0]
        rows[places.dynamics] = (self.A @ z[:-1, :n] + self.B @ z[:-1, n:] - z[1:, :r])[:, :, 0]
        return rows[:-1]

    def __rmatmul__(self, y: Array) -> Array:
        """Return y'J (n_w,) for y (m,)."""
        return self._into_stages(self.A, self.B, self.G, -1.0, y)

    def absolute_transposed_product(self, y: Array) -> Array:
        """Return |J|'y (n_w,), with the absolute values of J."""
        return self._into_stages(np.abs(self.A), np.abs(self.B), np.abs(self.G), 1.0, y)

    def _into_stages(self, A: Array, B: Array, G: Array, sign: float, y: Array) -> Array:
        """Return the product (n_w,) of y (m,) with the transpose of the rows A, B, G, with ``sign`` I at the next states."""
        places, (r, n) = self.places, A.shape[1:]
        y = np.append(y, 0.0)
        lam = y[places.dynamics]
        z = (y[places.within][:, None, :] @ G)[:, 0]
        z[:-1, :n] += (lam[:, None, :] @ A)[:, 0]
        z[:-1, n:] += (lam[:, None, :] @ B)[:, 0]
        z[1:, :r] += sign * lam
        return places.stages.scattered(z)

    def squares(self, weights: Array) -> Array:
        """Return sum_i rho_i a_i a_i' of the rows a_i within stages, as blocks (N + 1, n + m, n + m).

        n, m: numbers of states and controls. weights: rho, one for each row; those of the dynamics have no effect.
        """
        rho = np.append(weights, 0.0)[self.places.within]
        return self.G.transpose(0, 2, 1) @ (rho[:, :, None] * self.G)

    def square_lengths(self) -> Array:
        """Return the squared lengths |a_i|^2 of all rows, dynamics included, (m,)."""
        rows = np.empty(self.places.count + 1)
        rows[self.places.within] = (self.G * self.G).sum(axis=2)
        rows[self.places.dynamics] = 1.0 + (self.A * self.A).sum(axis=2) + (self.B * self.B).sum(axis=2)
        return rows[:-1]
