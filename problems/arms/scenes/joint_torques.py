"""Inverse-dynamics torques as a residual of positions, velocities and accelerations, with analytic derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array
from dynamics_backends.registry import library_driver
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import rnea_contracted_hessian
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.along_step import First, Second


class Torques:
    """Inverse-dynamics torques divided by ``scale`` (nv,)."""

    def __init__(self, model: Model, scale: Sequence[float]) -> None:
        self.model, self.scale, self.n_out = model, tuple(float(s) for s in scale), model.nv
        self.output_names = model.dof_names

    def value(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Return tau / scale."""
        tau = rnea(self.model, q, v, a)
        return sm.stack([tau[i] / s for i, s in enumerate(self.scale)])

    def first(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows]) -> First:
        """Return analytic first derivatives, see :mod:`~dynamics_backends.rigid_body.derivatives.rnea_derivatives`."""
        d = rnea_derivatives(self.model, q, v, a)
        blocks = (
            [[M[i][j] / s for j in range(self.n_out)] for i, s in enumerate(self.scale)] for M in (d.dq, d.dv, d.M)
        )
        return First(sm.stack([d.tau[i] / s for i, s in enumerate(self.scale)]), *blocks)

    def second(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[First, Second]:
        """Return analytic second derivatives, see :mod:`~dynamics_backends.rigid_body.derivatives.rnea_second_order`."""
        mu = sm.stack([lam[i] / s for i, s in enumerate(self.scale)])
        d = rnea_contracted_hessian(self.model, q, v, a, mu)
        return self.first(q, v, a, t, p), Second(d.qq, d.qv, d.vv, d.qa)


def torques_of(model: Model, q: Array, v: Array, a: Array) -> Array:
    """Return the inverse-dynamics torques (M, nv) [N m, N] at q (M, nq), v and a (M, nv)."""
    return np.asarray(rnea(model, q.T, v.T, a.T, driver=library_driver())).T
