"""Free rigid bodies: xdot = (v, FD(q, v, B u - damping v - friction tanh(v / v_s))).

u (nu, N) are the forces of the actuated joints [N, N m]; a floating base has none.  Viscous damping and Coulomb
friction are the model's; friction is smoothed over the velocity ``friction_velocity`` and left out where that is
None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.aba import aba
from dynamics_backends.rigid_body.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.fd_second_order import fd_second_order
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.names import unknown_name
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.rigid_body_map import MechanicalSystem, columns


def _driven(model: Model, names: Sequence[str] | None) -> tuple[int, ...]:
    """The DoFs that a control drives: all but a floating base's, or those named."""
    if names is None:
        return tuple(np.flatnonzero(model.actuated).tolist())
    for name in names:
        if name not in model.dof_names:
            raise unknown_name("degree of freedom", name, model.dof_names)
    return tuple(model.dof_names.index(name) for name in names)


class FreeBody(MechanicalSystem):
    """The system of a robot that touches nothing.

    ``actuated``: names of the degrees of freedom that have a control, in the order of u; default: all but a floating
    base's. Raises UnknownName for a name the model does not have.
    """

    def __init__(
        self,
        model: Model,
        *,
        actuated: Sequence[str] | None = None,
        damping: bool = True,
        friction_velocity: float | None = None,
    ) -> None:
        driven = _driven(model, actuated)
        controls = tuple(f"u[{model.dof_names[d]}]" for d in driven)
        super().__init__(model, controls)
        self.actuated = driven
        self.viscous = np.asarray(model.damping)[:, None] if damping and np.any(model.damping) else None
        self.coulomb = None
        if friction_velocity is not None and np.any(model.friction):
            if not friction_velocity > 0:
                raise ValueError(
                    f"friction_velocity = {friction_velocity}; it must be positive, or None for no friction"
                )
            self.coulomb = np.asarray(model.friction)[:, None]
        self.friction_velocity = friction_velocity

    def joint_forces(self, v: Rows, u: Rows) -> Rows:
        """tau (nv, N) = B u less damping and friction."""
        zero = 0.0 * v[0]
        tau = [zero] * self.model.nv
        for i, d in enumerate(self.actuated):
            tau[d] = u[i] + zero
        for d in range(self.model.nv):
            if self.viscous is not None:
                tau[d] = tau[d] - float(self.viscous[d, 0]) * v[d]
            if self.coulomb is not None:
                tau[d] = tau[d] - float(self.coulomb[d, 0]) * sm.tanh(v[d] / self.friction_velocity)
        return sm.stack(tau)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        q, v = self.split(x)
        return sm.concatenate([v, aba(self.model, q, v, self.joint_forces(v, u), driver=self.driver)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Closed form: FDSVA."""
        q, v = self.split(x)
        d = fd_derivatives(self.model, q, v, self.joint_forces(v, u), driver=self.driver)
        return self._partials(v, u, d.a, d.dq, d.dv, d.dtau)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Closed form: :mod:`~dynamics_backends.rigid_body.fd_second_order`.

        tau depends on v through damping and friction: their slopes multiply qtau, and the curvature of friction adds to
        vv, weighted with mu = M^-1 lam.
        """
        q, v = self.split(x)
        weight = lam[self.model.nv :]
        d = fd_second_order(self.model, q, v, self.joint_forces(v, u), weight, driver=self.driver)
        slope, bend = self._resistance(v)
        qv = d.qv if slope is None else [a + b * slope for a, b in zip(d.qv, d.qtau, strict=True)]
        vv = d.vv if bend is None else _with_diagonal(d.vv, _times(d.dtau, weight) * bend)
        second = self.second(u, d.qq, qv, vv, columns(d.qtau, self.actuated))
        return self._partials(v, u, d.a, d.dq, d.dv, d.dtau), second

    def _partials(self, v: Rows, u: Rows, a: Rows, dq: Matrix, dv: Matrix, inverse: Matrix) -> Partials:
        """From the derivatives of a in q, v and tau."""
        slope, _ = self._resistance(v)
        if slope is not None:
            dv = [row + to_force * slope for row, to_force in zip(dv, inverse, strict=True)]
        return self.first(v, u, a, dq, dv, columns(inverse, self.actuated))

    def _resistance(self, v: Rows) -> tuple[Rows | None, Rows | None]:
        """d tau_j / d v_j and d^2 tau_j / d v_j^2, (nv, N), where damping or friction act."""
        if self.coulomb is None or self.friction_velocity is None:
            return (None if self.viscous is None else -self.viscous + 0.0 * v), None
        t = sm.tanh(v / self.friction_velocity)
        slope = -self.coulomb * (1.0 - t * t) / self.friction_velocity
        bend = 2.0 * self.coulomb * t * (1.0 - t * t) / self.friction_velocity**2
        return (slope if self.viscous is None else slope - self.viscous), bend


def _times(M: Matrix, weight: Rows) -> Rows:
    """M weight for a symmetric M."""
    return sum((M[i] * weight[i] for i in range(1, len(M))), M[0] * weight[0])


def _with_diagonal(M: Matrix, diagonal: Rows) -> list[Rows]:
    n = len(M)
    return [sm.stack([M[i][j] + (diagonal[i] if i == j else 0.0) for j in range(n)]) for i in range(n)]
