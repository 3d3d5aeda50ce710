"""The matrices of a QP whose rows give way, in the variables (d, p, n) with p, n (m,).

    H = [[H_d, 0, 0], [0, 0, 0], [0, 0, 0]],   A = [A_d, I, -I]

Both are products by parts: H_d and A_d stay as they are, by their stages or sparse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian, Transposed

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")


@dataclass(frozen=True, eq=False)
class ElasticHessian:
    """H of the elastic QP; inner: H_d (n, n). rows: m."""

    inner: sp.csc_matrix | StageHessian
    rows: int

    @property
    def data(self) -> Array:
        """All entries that can differ from zero."""
        return self.inner.data

    @property
    def assembled(self) -> sp.csc_matrix:
        """The matrix (n + 2 m, n + 2 m)."""
        H = self.inner.assembled if isinstance(self.inner, StageHessian) else self.inner
        return sp.block_diag([H, sp.csc_matrix((2 * self.rows, 2 * self.rows))], format="csc")

    def __matmul__(self, w: Array) -> Array:
        n = len(w) - 2 * self.rows
        return np.concatenate([self.inner @ w[:n], np.zeros(2 * self.rows)])

    def __rmul__(self, factor: float) -> ElasticHessian:
        return replace(self, inner=factor * self.inner)

    def __add__(self, other: ElasticHessian) -> ElasticHessian:
        return replace(self, inner=self.inner + other.inner)

    def __truediv__(self, divisor: float) -> ElasticHessian:
        return replace(self, inner=self.inner / divisor)


@dataclass(frozen=True, eq=False)
class ElasticJacobian:
    """A of the elastic QP; inner: A_d (m, n)."""

    inner: sp.csc_matrix | StageJacobian

    @property
    def data(self) -> Array:
        """All entries but the constant ones."""
        return self.inner.data

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        m, n = self.inner.shape
        return m, n + 2 * m

    @property
    def assembled(self) -> sp.csc_matrix:
        """The matrix (m, n + 2 m)."""
        A = self.inner.assembled if isinstance(self.inner, StageJacobian) else self.inner
        identity = sp.identity(A.shape[0], format="csc")
        return sp.hstack([A, identity, -identity], format="csc")

    def __matmul__(self, w: Array) -> Array:
        m, n = self.inner.shape
        return self.inner @ w[:n] + w[n : n + m] - w[n + m :]

    @property
    def T(self) -> Transposed:
        """A', which multiplies rows."""
        return Transposed(self)

    def transposed_product(self, y: Array) -> Array:
        """A'y (n + 2 m,) of y (m,)."""
        return np.concatenate([self.inner.T @ y, y, -y])
