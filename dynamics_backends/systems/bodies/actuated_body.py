"""Robots with joint forces tau = B u - D (v + e) - friction tanh(v / v_s) - K (q - q_s).

u (nu, N) are the forces of the actuated joints [N, N m]; by default all but a floating base.  Viscous damping D, Coulomb friction
and springs of stiffness K are the model's; friction is smoothed over the velocity ``friction_velocity`` and ignored if that is
None. Subclasses compute the accelerations from tau, free or in contact.

e is zero except in a time step with implicit damping (:class:`~dynamics_backends.protocol.DampsImplicitly`).  With rotor inertias
larger by h D the same algorithms and derivatives solve (M + h D) a = tau - bias, which is M a = tau - bias with damping at the
velocity v + e + h a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.chained_map import dot
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import IMPLICIT_STEP, Array, Contraction, Matrix, Partials
from dynamics_backends.rigid_body.derivatives.fd_derivatives import ForwardDynamicsDerivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import ForwardDynamicsSecondOrder
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, WithArmature, run
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import MechanicalSystem, WholeMap, columns, dof_names


def _driven(model: Model, names: Sequence[str] | None) -> tuple[int, ...]:
    """Indices of the DoFs with a control: the named ones, default all but a floating base's.

    Raises UnknownName, and ValueError for a name that appears twice.
    """
    if names is None:
        return tuple(np.flatnonzero(model.actuated).tolist())
    if len(set(names)) != len(names):
        raise ValueError(f"actuated = {list(names)} names a degree of freedom twice")
    for name in names:
        if name not in model.dof_names:
            raise unknown_name("degree of freedom", name, model.dof_names)
    return tuple(model.dof_names.index(name) for name in names)


class ActuatedBody(MechanicalSystem):
    """Base class of systems of a robot with actuated joints.

    ``actuated``: names of the degrees of freedom with a control, in the order of u; default: all but a floating base's. damping:
    False ignores the model's viscous damping. friction_velocity: v_s [rad/s or m/s] of dry friction, None to ignore it. Raises
    UnknownName for a name the model does not have, ValueError for a name given twice, and for a friction_velocity <= 0 if the model
    has dry friction.
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
        self._damping = damping
        self.viscous = np.asarray(model.damping)[:, None] if damping and np.any(model.damping) else None
        self.pull = np.asarray(model.stiffness)[:, None] if np.any(model.stiffness) else None
        self.coulomb = None
        if friction_velocity is not None and np.any(model.friction):
            if not friction_velocity > 0:
                raise ValueError(
                    f"friction_velocity = {friction_velocity}; it must be positive, or None for no friction"
                )
            self.coulomb = np.asarray(model.friction)[:, None]
        self.friction_velocity = friction_velocity
        self.offsets: int | None = None

    def fully_driven(self, model: Model, friction_velocity: float | None = None) -> Self:
        """Copy for a model that differs in masses and friction only, with a control for every degree of freedom.

        friction_velocity replaces the system's value; None (the default) disables dry friction. Damping is explicit in the copy.
        """
        result = copy(self)
        ActuatedBody.__init__(
            result, model, actuated=model.dof_names, damping=self._damping, friction_velocity=friction_velocity
        )
        return result

    # -- implicit damping -----------------------------------------------------------------------------------------------
    @property
    def damps(self) -> bool:
        """True if any joint besides a floating base is damped."""
        return self.viscous is not None and bool(np.any(self.damping_of_joints))

    @property
    def damping_of_joints(self) -> Array:
        """Damping coefficients D (nv,), zero for a floating base."""
        return (
            np.zeros(self.model.nv) if self.viscous is None else np.where(self.model.actuated, self.viscous[:, 0], 0.0)
        )

    def implicit(self, *, offset: bool) -> Self:
        """System with implicit damping, (M + h D) a = ... - D (v + e); a floating base's damping stays explicit.

        offset: the last controls are the velocity offsets e; otherwise e = 0.
        """
        result = copy(self)
        result.offsets = self.model.nv if offset else 0
        result.nu = self.nu + result.offsets
        if offset:
            result.control_names = (*self.control_names, *dof_names("damped v -", self.model))
        return result

    def driver_at(self, p: Mapping[str, Rows]) -> Driver:
        """Driver of the recursions for parameters p; with implicit damping, its rotor inertias include h D, h from p."""
        own = self.driver if isinstance(self, WholeMap) else run
        return own if self.offsets is None else WithArmature(own, self.rotors(p[IMPLICIT_STEP][0]))

    def rotors(self, h: Any) -> Rows:
        """Rotor inertias armature + h D (nv, N) for a step h (N,)."""
        rows = zip(self.model.armature.tolist(), self.damping_of_joints.tolist(), strict=True)
        return sm.stack([rotor + h * damping for rotor, damping in rows])

    @property
    def input_gains(self) -> list[tuple[int, float]]:
        """Pairs (degree of freedom, joint force per unit) by entry of u: force 1 for controls, -D for damping offsets e."""
        own = [(d, 1.0) for d in self.actuated]
        return own + [(d, -float(self.damping_of_joints[d])) for d in range(self.offsets or 0)]

    # -- forces ---------------------------------------------------------------------------------------------------------
    def joint_forces(self, q: Rows, v: Rows, u: Rows) -> Rows:
        """tau (nv, N) = B u minus damping, friction and springs.

        With implicit damping the last rows of u are the offsets e of the velocities, which add -D e.
        """
        zero = 0.0 * v[0]
        tau = [zero] * self.model.nv
        for i, (d, share) in enumerate(self.input_gains):
            tau[d] = tau[d] + (u[i] if share == 1.0 else share * u[i])
        for d in range(self.model.nv):
            if self.viscous is not None:
                tau[d] = tau[d] - float(self.viscous[d, 0]) * v[d]
            if self.coulomb is not None:
                tau[d] = tau[d] - float(self.coulomb[d, 0]) * sm.tanh(v[d] / self.friction_velocity)
            if self.model.stiffness[d]:
                place = q[int(self.model.q_index[self.model.dof_body[d]])]
                tau[d] = tau[d] - float(self.model.stiffness[d]) * (place - float(self.model.spring_reference[d]))
        return sm.stack(tau)

    def by_control(self, M: Matrix) -> list[Rows]:
        """Rows of M d tau / d u, from the rows of M (nv, N)."""
        if all(share == 1.0 for _, share in self.input_gains):
            return columns(M, self.actuated)
        return [sm.stack([row[d] * share for d, share in self.input_gains]) for row in M]

    def right_hand_sides(self, v: Rows, dq: list[list[Scalar]], dv: list[list[Scalar]]) -> list[Rows]:
        """Minus the derivatives in (q, v, u) of ID(q, v, a) - J'f - tau at fixed a and f: nv rows (2 nv + nu, N).

        dq, dv: entries (nv, nv) without the derivatives of damping, friction and springs, which are added to them in place.
        """
        slope, zero, top = self._resistance(v)[0], 0.0 * v[0], []
        for i in range(self.model.nv):
            if slope is not None:
                dv[i][i] = dv[i][i] + slope[i]
            if self.model.stiffness[i]:
                dq[i][i] = dq[i][i] - float(self.model.stiffness[i])
            driven = [share if d == i else 0.0 for d, share in self.input_gains]
            top.append(sm.stack([e + zero for e in (*dq[i], *dv[i], *driven)]))
        return top

    def subtract_friction(self, vv: list[list[Scalar]], v: Rows, mu: Rows) -> None:
        """Subtract the second derivatives in v of mu' tau from vv (nv, nv), in place; only friction has some."""
        second = self._resistance(v)[1]
        if second is not None:
            for i in range(self.model.nv):
                vv[i][i] = vv[i][i] - mu[i] * second[i]

    def _partials(self, v: Rows, u: Rows, d: ForwardDynamicsDerivatives) -> Partials:
        """Value and derivatives of xdot from those of a in q, v and tau, with those of damping, friction and springs."""
        slope, _ = self._resistance(v)
        dq, dv = d.dq, d.dv
        if slope is not None:
            dv = [row + to_force * slope for row, to_force in zip(dv, d.dtau, strict=True)]
        if self.pull is not None:
            dq = [row - to_force * self.pull for row, to_force in zip(dq, d.dtau, strict=True)]
        return self.first(v, u, d.a, dq, dv, self.by_control(d.dtau))

    def _contraction(self, v: Rows, u: Rows, lam: Rows, d: ForwardDynamicsSecondOrder) -> Contraction:
        """Second derivatives of lam' xdot from those of lam' a in q, v and tau, lam (nv, N).

        tau depends on v through damping and friction: their slopes multiply qtau, and the second derivative of friction adds to
        vv, weighted with the derivative of lam' a in tau. It depends on q through springs of constant slope.
        """
        slope, second = self._resistance(v)
        qv = d.qv if slope is None else [a + b * slope for a, b in zip(d.qv, d.qtau, strict=True)]
        vv = d.vv if second is None else with_diagonal(d.vv, dot(lam, d.dtau) * second)
        qq = d.qq if self.pull is None else [a - 2.0 * b * self.pull for a, b in zip(d.qq, d.qtau, strict=True)]
        return self.second(u, qq, qv, vv, self.by_control(d.qtau))

    def _resistance(self, v: Rows) -> tuple[Rows | None, Rows | None]:
        """Derivatives d tau_j / d v_j and d^2 tau_j / d v_j^2 (nv, N) of damping and friction; each None if it is zero."""
        if self.coulomb is None or self.friction_velocity is None:
            return (None if self.viscous is None else -self.viscous + 0.0 * v), None
        t = sm.tanh(v / self.friction_velocity)
        slope = -self.coulomb * (1.0 - t * t) / self.friction_velocity
        second = 2.0 * self.coulomb * t * (1.0 - t * t) / self.friction_velocity**2
        return (slope if self.viscous is None else slope - self.viscous), second


def with_diagonal(M: Matrix, diagonal: Any) -> list[Rows]:
    """Rows of M + diag(diagonal), M and the diagonal by rows."""
    n = len(M)
    return [sm.stack([M[i][j] + (diagonal[i] if i == j else 0.0) for j in range(n)]) for i in range(n)]
