"""Free rigid bodies: xdot = (v, FD(q, v, tau)) with the joint forces of :mod:`~dynamics_backends.systems.bodies.actuated_body`.

:class:`InertialBody` has inertial parameters as run-time parameters: for payloads, uncertain robots, or batches of robots.  Each
body has ten parameters in its own frame about its origin, (m, m c, J_xx, J_xy, J_xz, J_yy, J_yz, J_zz).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.names import UnknownName
from dynamics_backends.protocol import Array, Contraction, Partials
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.forward_dynamics import forward_dynamics
from dynamics_backends.rigid_body.derivatives.fd_derivatives import ForwardDynamicsDerivatives, fd_derivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import fd_second_order
from dynamics_backends.rigid_body.model.mass_properties import inertias_about_origin
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, WithInertias
from dynamics_backends.rigid_body.passes.passes import FIELDS, field_of
from dynamics_backends.rigid_body.spatial.spatial import build, leaves, point_inertia
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.rigid_body_map import WholeMap


class ContactFreeBody(ActuatedBody):
    """Base class of contact-free systems: dynamics and derivatives by the recursions of the driver."""

    forward_dynamics = staticmethod(aba)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot = (v, a), with the accelerations a by ABA, or in joint space (:meth:`FreeBody.with_recursions`)."""
        q, v = self.split(x)
        tau, driver = self.joint_forces(q, v, u), self.driver_at(p)
        return sm.concatenate([v, self.forward_dynamics(self.model, q, v, tau, driver=driver)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives of xdot; those of a in closed form (FDSVA): of inverse dynamics, times -M^-1."""
        q, v = self.split(x)
        tau, driver = self.joint_forces(q, v, u), self.driver_at(p)
        return self._partials(v, u, fd_derivatives(self.model, q, v, tau, driver=driver))

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives of xdot, and the second derivatives of lam' xdot, in closed form."""
        q, v = self.split(x)
        weight = lam[self.model.nv :]
        d = fd_second_order(self.model, q, v, self.joint_forces(q, v, u), weight, driver=self.driver_at(p))
        first = self._partials(v, u, ForwardDynamicsDerivatives(d.a, d.dq, d.dv, d.dtau))
        return first, self._contraction(v, u, weight, d)


FEW_JOINTS = 2
"""Degrees of freedom up to which the recursions of a FreeBody are unrolled in a trace: most such robots are planar, and the few
operations that remain take a third of the time of the kernels.
"""


class FreeBody(WholeMap, ContactFreeBody):
    """System of a robot without contacts: state (q, v) [rad, m, rad/s, m/s], controls u (nu) [N m, N], the forces of the joints.

    Springs, damping and dry friction of the model's joints are included. actuated: names of the degrees of freedom with a control,
    in the order of u; default: all but those of a floating base. damping: False ignores the viscous damping. friction_velocity:
    velocity [rad/s or m/s] over which dry friction is smoothed, None to ignore dry friction. Raises UnknownName for a name that the
    model does not have, ValueError for a name given twice, and for a friction_velocity <= 0 if the model has dry friction.
    """

    def with_recursions(self, driver: Driver) -> Self:
        """Copy whose recursions are evaluated by another driver; this system itself for a robot with at most FEW_JOINTS DoFs.

        The copy computes accelerations in joint space, since that kernel takes less time than ABA's for all but long chains.
        """
        if self.model.nv <= FEW_JOINTS:
            return self
        other = super().with_recursions(driver)
        other.forward_dynamics = forward_dynamics
        return other


PARAMETERS = 10
"""Number of inertial parameters of a body."""
INERTIA = "inertia"
"""Name of the parameter vector."""


class InertialBody(ContactFreeBody):
    """:class:`~dynamics_backends.systems.bodies.free_body.FreeBody` with the parameter "inertia" (10 nb,) [kg, kg m, kg m^2].

    The model's values are :func:`inertial_parameters`.
    """

    def driver_at(self, p: Mapping[str, Rows]) -> Driver:
        """Driver that takes the bodies' inertias from the parameter "inertia" instead of the model.

        Raises UnknownName without this parameter.
        """
        if INERTIA not in p:
            what = f"InertialBody reads the parameter {INERTIA!r}, which is not given"
            raise UnknownName(
                f"{what}: parameters={{{INERTIA!r}: to.inertial_parameters(model)}} has those of the model"
            )
        return WithInertias(super().driver_at(p), tables(p[INERTIA], self.model.nb))


def inertial_parameters(model: Model) -> Array:
    """Inertial parameters (10 nb,) of a model, the parameter "inertia" of :class:`InertialBody`, in the order of its bodies.

    For each body: mass m [kg], m c (3) [kg m] with its center of mass c, and the inertia tensor (xx, xy, xz, yy, yz, zz) [kg m^2],
    about the origin and in the axes of the body's joint frame.

    >>> import trajopt as to
    >>> to.inertial_parameters(to.load_robot("double_pendulum")).reshape(-1, 10)[0].round(3)
    array([ 1.   , -0.5  ,  0.   ,  0.   ,  0.001,  0.   ,  0.   ,  0.334,
            0.   ,  0.334])
    """
    c, m = np.asarray(model.com), np.asarray(model.mass)
    upper = inertias_about_origin(model.mass, model.com, model.inertia)[:, *np.triu_indices(3)]
    return np.concatenate([m[:, None], m[:, None] * c, upper], axis=1).ravel()


def tables(parameters: Rows, nb: int) -> dict[str, Any]:
    """Fields of all bodies, by name, from inertial parameters (10 nb, N): mass, com, central and I_link.

    central: inertia tensor about the com; I_link: spatial inertia (m, m c, J) about the body's origin. Masses must not be zero.
    """
    rows: dict[str, list[Any]] = {name: [] for name in ("mass", "com", "central", "I_link")}
    for b in range(nb):
        own = [parameters[PARAMETERS * b + i] for i in range(PARAMETERS)]
        inertia: Any = build(FIELDS["I_link"].kind, iter(own))
        com: Any = build(FIELDS["com"].kind, iter([h / own[0] for h in own[1:4]]))
        about_com = zip(own[4:], leaves(point_inertia(com, inertia.h)), strict=True)
        central: Any = build(FIELDS["central"].kind, iter([J - moved for J, moved in about_com]))
        for name, value in zip(rows, (own[0], com, central, inertia), strict=True):
            rows[name].append(value)
    return {name: field_of(values) for name, values in rows.items()}
