"""Free rigid bodies: xdot = (v, FD(q, v, tau)) with the joint forces of :mod:`~dynamics_backends.systems.bodies.actuated_body`."""

from __future__ import annotations

from collections.abc import Mapping

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Partials
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.derivatives.fd_derivatives import ForwardDynamicsDerivatives, fd_derivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import fd_second_order
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.rigid_body_map import DriverMixin


class ContactFreeBody(ActuatedBody):
    """Base class of contact-free systems: dynamics and derivatives by the recursions of the driver."""

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        q, v = self.split(x)
        return sm.concatenate([v, aba(self.model, q, v, self.joint_forces(q, v, u), driver=self.driver_at(p))])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Closed form: FDSVA."""
        q, v = self.split(x)
        tau, driver = self.joint_forces(q, v, u), self.driver_at(p)
        return self._partials(v, u, fd_derivatives(self.model, q, v, tau, driver=driver))

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Closed form: :mod:`~dynamics_backends.rigid_body.derivatives.fd_second_order`."""
        q, v = self.split(x)
        weight = lam[self.model.nv :]
        d = fd_second_order(self.model, q, v, self.joint_forces(q, v, u), weight, driver=self.driver_at(p))
        first = self._partials(v, u, ForwardDynamicsDerivatives(d.a, d.dq, d.dv, d.dtau))
        return first, self._contraction(v, u, weight, d)


class FreeBody(DriverMixin, ContactFreeBody):
    """System of a robot without contacts; the arguments are those of ActuatedBody."""
