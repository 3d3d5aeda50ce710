"""The Newton systems of an interior-point method on a QP whose rows give way, by those of the QP whose rows do not.

    H dd + A'y + z_d = a_d,   y + z_p = a_p,   -y + z_n = a_n                    (:mod:`trajopt.solvers.qp.kkt.kkt_system`)
    A dd + dp - dn - y / D_r = b_r,   dd - z_d / D_d = b_d,   dp - z_p / D_p = b_p,   dn - z_n / D_n = b_n

Each row is held by three springs in line: its own slack, p and n. They carry the same y, and their compliances add up:

    A dd - y / D = b_r - b_p + b_n - (y^0 terms),   1 / D = 1 / D_r + 1 / D_p + 1 / D_n

A spring gives (y - y^0) / D of its own, with y^0 = 0, a_p and -a_n.  The softest may have no stiffness at all, where its bounds
are inactive.  So y is counted from its y^0, whose term drops out, and what it gives follows from the row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.elastic_rows import ElasticHessian, ElasticJacobian
from trajopt.solvers.qp.kkt.kkt_system import KKTSystem
from trajopt.solvers.qp.qp import QP


def rigid(qp: QP) -> QP:
    """The QP in d alone, whose rows do not give way. qp: an elastic one."""
    assert isinstance(qp.H, ElasticHessian) and isinstance(qp.A, ElasticJacobian)
    n = qp.A.inner.shape[1]
    return replace(qp, H=qp.H.inner, A=qp.A.inner, g=qp.g[:n], lb=qp.lb[:n], ub=qp.ub[:n])


class ElasticKKT:
    """A :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem` of an elastic QP; inner: that of the rigid one."""

    def __init__(self, qp: QP, inner: KKTSystem) -> None:
        assert isinstance(qp.A, ElasticJacobian)
        self.inner, self.A = inner, qp.A.inner
        shape: tuple[int, int] = self.A.shape
        self.m, self.n = shape

    def factorize(self, weights: Array) -> bool:
        """See :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem`."""
        m, n = self.m, self.n
        self.counts = weights > 0.0
        springs = np.stack([weights[:m], weights[m + n : 2 * m + n], weights[2 * m + n :]])  # the row's slack, p, n
        with np.errstate(divide="ignore"):
            self.compliance = 1.0 / springs
        self.softest = np.argmin(springs, axis=0)
        with np.errstate(divide="ignore"):
            both = 1.0 / self.compliance.sum(axis=0)
        chosen = self.compliance.copy()
        chosen[self.softest, np.arange(m)] = 0.0
        self.others = np.where(
            np.isfinite(chosen), chosen, 0.0
        )  # a second one without stiffness: no set of active bounds
        return self.inner.factorize(np.concatenate([both, weights[m : m + n]]))

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """See :class:`~trajopt.solvers.qp.kkt.kkt_system.KKTSystem`."""
        m, n = self.m, self.n
        b = np.where(self.counts, b, 0.0)
        a_d, a_p, a_n = a[:n], a[n : n + m], a[n + m :]
        b_r, b_d, b_p, b_n = b[:m], b[m : m + n], b[m + n : 2 * m + n], b[2 * m + n :]
        free = np.stack([np.zeros(m), a_p, -a_n])  # y^0
        y0 = free[self.softest, np.arange(m)]
        gives = self.others * (y0 - free)
        dd, both = self.inner.solve(a_d - self.A.T @ y0, np.concatenate([b_r - b_p + b_n + gives.sum(axis=0), b_d]))
        y1, z_d = both[:m], both[m:]
        z_p, z_n = (a_p - y0) - y1, (a_n + y0) + y1
        row, dp, dn = gives[0] + self.others[0] * y1, b_p + self.others[1] * z_p, b_n + self.others[2] * z_n
        along = self.A @ dd
        dp = np.where(self.softest == 1, b_r - along + dn + row, dp)
        dn = np.where(self.softest == 2, along + dp - row - b_r, dn)
        return np.concatenate([dd, dp, dn]), np.concatenate([y0 + y1, z_d, z_p, z_n])
