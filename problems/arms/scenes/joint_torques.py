"""Inverse-dynamics torques as a residual of positions, velocities and accelerations, with analytic derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array, Contraction, Partials
from dynamics_backends.registry import library_driver
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import rnea_contracted_hessian
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import state_manifold
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import with_diagonal
from dynamics_backends.systems.bodies.rigid_body_map import in_state
from ..arm import with_springs


class Torques:
    """Torques of the motors divided by ``scale`` (nv,), of the state (q, v) and the accelerations as controls."""

    def __init__(self, model: Model, scale: Sequence[float]) -> None:
        self.model, self.scale, self.n_out, self.nu = model, tuple(float(s) for s in scale), model.nv, model.nv
        self.manifold, self.output_names = state_manifold(model), model.dof_names
        self.control_names = tuple(f"a[{name}]" for name in model.dof_names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Return tau / scale."""
        q, v = self._split(x)
        tau = with_springs(self.model, q, rnea(self.model, q, v, u))
        return sm.stack([tau[i] / s for i, s in enumerate(self.scale)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Return analytic first derivatives, see :mod:`~dynamics_backends.rigid_body.derivatives.rnea_derivatives`."""
        q, v = self._split(x)
        d = rnea_derivatives(self.model, q, v, u)
        dq, dv, du = (
            [sm.stack([M[i][j] / s for j in range(self.n_out)]) for i, s in enumerate(self.scale)]
            for M in (with_diagonal(d.dq, self.model.stiffness), d.dv, d.M)
        )
        tau = with_springs(self.model, q, d.tau)
        return in_state(sm.stack([tau[i] / s for i, s in enumerate(self.scale)]), dq, dv, du)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Return analytic second derivatives, see :mod:`~dynamics_backends.rigid_body.derivatives.rnea_second_order`."""
        n, mu = range(self.n_out), sm.stack([lam[i] / s for i, s in enumerate(self.scale)])
        d = rnea_contracted_hessian(self.model, *self._split(x), u, mu)
        above = [sm.stack([*(d.qq[i][j] for j in n), *(d.qv[i][j] for j in n)]) for i in n]
        below = [sm.stack([*(d.qv[j][i] for j in n), *(d.vv[i][j] for j in n)]) for i in n]
        ux = [sm.stack([*(d.qa[j][i] for j in n), *[0.0 * x[0]] * self.n_out]) for i in n]
        return self.partials(x, u, t, p), Contraction([*above, *below], ux, [0.0 * u] * self.n_out)

    def _split(self, x: Rows) -> tuple[Rows, Rows]:
        """Return q and v."""
        return x[: self.model.nq], x[self.model.nq :]


def torques_of(model: Model, q: Array, v: Array, a: Array) -> Array:
    """Return the torques (M, nv) [N m, N] of the motors at q (M, nq), v and a (M, nv): inverse dynamics minus forces of springs."""
    return np.asarray(rnea(model, q.T, v.T, a.T, driver=library_driver())).T - model.spring_forces(q)
