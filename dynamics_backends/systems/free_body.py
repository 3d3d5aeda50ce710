"""Free rigid bodies: xdot = (v, FD(q, v, B u - damping v - friction tanh(v / v_s))).

u (nu, N) are the forces of the actuated joints [N, N m]; a floating base has none.  Viscous damping and Coulomb
friction are the model's; friction is smoothed over the velocity ``friction_velocity`` and left out where that is
None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array, Jacobians, Parameters
from dynamics_backends.rigid_body.aba import aba
from dynamics_backends.rigid_body.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.names import unknown_name
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.rigid_body_map import RigidBodyMap, blocks, dof_names


def _driven(model: Model, names: Sequence[str] | None) -> tuple[int, ...]:
    """The DoFs that a control drives: all but a floating base's, or those named."""
    if names is None:
        return tuple(np.flatnonzero(model.actuated).tolist())
    for name in names:
        if name not in model.dof_names:
            raise unknown_name("degree of freedom", name, model.dof_names)
    return tuple(model.dof_names.index(name) for name in names)


class FreeBody(RigidBodyMap):
    """The system of a robot that touches nothing.

    ``actuated``: names of the degrees of freedom that have a control, in the order of u; default: all but a floating
    base's. Raises UnknownName for a name the model does not have.
    """

    second_order = True

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
        super().__init__(model, controls, dof_names("v", model) + dof_names("vdot", model))
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

    def jacobians(self, x: Array, u: Array, t: Array, p: Parameters) -> Jacobians:
        """Closed-form partial derivatives (FDSVA)."""
        q, v = self.split(x.T)
        d = fd_derivatives(self.model, q, v, self.joint_forces(v, u.T), driver=self.driver)
        inverse = np.asarray(d.dtau)
        dv = np.asarray(d.dv)
        slope = self._force_slope(v)
        if slope is not None:
            dv = dv + inverse * slope
        whole = self._kinematic(np.asarray(d.dq), dv, inverse[:, list(self.actuated)])
        return blocks(np.concatenate([v, d.a]), *whole)

    def _force_slope(self, v: Rows) -> Array | None:
        """d tau_j / d v_j, (nv, N), where damping or friction act."""
        slope = None
        if self.viscous is not None:
            slope = -self.viscous + 0.0 * v
        if self.coulomb is not None:
            t = np.tanh(v / self.friction_velocity)
            slope = (0.0 if slope is None else slope) - self.coulomb * (1.0 - t * t) / self.friction_velocity
        return slope

    def _kinematic(self, dq: Array, dv: Array, du: Array) -> tuple[Array, Array, Array]:
        """The blocks with the rows of qdot = v on top."""
        n, size = self.model.nv, dq.shape[-1]
        unit = np.broadcast_to(np.eye(n)[:, :, None], (n, n, size))
        return (
            np.concatenate([np.zeros((n, n, size)), dq]),
            np.concatenate([unit, dv]),
            np.concatenate([np.zeros((n, du.shape[1], size)), du]),
        )
