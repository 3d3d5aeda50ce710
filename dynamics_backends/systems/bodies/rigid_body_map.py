"""Maps of a robot: base classes with the state (q, v) and its names, and quantities; every derivative method applies to each.

InverseDynamics       tau = ID(q, v, u)                  u: joint accelerations
ForwardDynamics       a = FD(q, v, u)                    u: forces of all joints
NonlinearEffects      C(q, v) v + g(q)
MassMatrix            M(q), by rows
FrameMotion           world position of a frame and its velocity (Neunert et al. 2016, eq. 16)
ActuatedInverseDynamics   forces of the actuated joints for their accelerations, the base free (eq. 12-15 of that paper)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.algorithms import kinematics, ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.rnea import nonlinear_effects, rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import state_manifold
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import PLACE, PSI_DOT, VELOCITY, at_base
from dynamics_backends.rigid_body.passes.passes import Program, row
from dynamics_backends.rigid_body.spatial.spatial import Motion, Vec
from dynamics_backends.scalar import Rows, Scalar


class WholeMap:
    """Mixin for maps that are traced as a whole; a driver may evaluate their recursions, or make them calls of kernels."""

    driver: Driver = staticmethod(run)

    def with_recursions(self, driver: Driver) -> Self:
        """Copy of this map whose recursions are evaluated by another driver, in a trace of the whole map."""
        other = copy(self)
        other.driver = driver
        return other


class RigidBodyMap:
    """Base class of maps of a model's state x = (q, v) and a control u. Raises ValueError for a model with a
    coupling, or without joints that move.
    """

    def __init__(self, model: Model, control_names: tuple[str, ...], output_names: tuple[str, ...]) -> None:
        if model.coupling is not None:
            raise ValueError(
                f"{model.name} has mimic joints that follow others; use to.CoupledBody(model), "
                "or load it with mimic = 'free' or 'lock'"
            )
        if not model.nv:
            raise ValueError(f"{model.name} has no degree of freedom: nothing can move")
        self.model = model
        self.manifold = state_manifold(model)
        self.control_names = control_names
        self.output_names = output_names
        self.nu = len(control_names)
        self.n_out = len(output_names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model.name!r})"

    def split(self, x: Rows) -> tuple[Rows, Rows]:
        """Configuration q (nq, N) and velocity v (nv, N) of a state x (nq + nv, N)."""
        return x[: self.model.nq], x[self.model.nq :]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the map's value; the base class raises TypeError."""
        raise TypeError(f"{type(self).__name__} is not a complete map")


class MechanicalSystem(RigidBodyMap):
    """System xdot = (v, a(q, v, u)) of a robot; subclasses compute a and the blocks of its derivatives."""

    second_order = True

    def __init__(self, model: Model, control_names: tuple[str, ...]) -> None:
        super().__init__(model, control_names, dof_names("v", model) + dof_names("vdot", model))

    def first(self, v: Rows, u: Rows, a: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
        """Value and derivatives of xdot = (v, a) from a (nv, N) and its derivatives in q, v and u, each a list of nv rows."""
        n = self.model.nv
        below = in_state(a, dq, dv, du)
        return Partials(
            sm.concatenate([v, a]), [*sm.identity_rows(2 * n, v)[n:], *below.fx], [*[0.0 * u] * n, *below.fu]
        )

    def second(self, u: Rows, qq: Matrix, qv: Matrix, vv: Matrix, qu: Matrix) -> Contraction:
        """Second derivatives of lam' xdot from the blocks of those of lam' a, each a list of nv rows.

        qq may hold Lie derivatives, whose symmetric part is used. a is affine in u, with an input matrix of q alone: the blocks
        in (v, u) and (u, u) are zero.
        """
        return second_in_state(u, qq, qv, vv, qu)


def transposed(M: Matrix) -> list[Rows]:
    """Rows of M'."""
    return [sm.stack([row[j] for row in M]) for j in range(len(M[0]) if isinstance(M[0], list) else M[0].shape[0])]


def dof_names(kind: str, model: Model) -> tuple[str, ...]:
    """Names such as 'tau[elbow]' for all degrees of freedom."""
    return tuple(f"{kind}[{n}]" for n in model.dof_names)


def second_in_state(u: Rows, qq: Matrix, qv: Matrix, vv: Matrix, qu: Matrix) -> Contraction:
    """Second derivatives in x = (q, v) and u from their blocks, each a list of rows by q or v; see MechanicalSystem.second."""
    n = len(qv)
    symmetric = [sm.stack([0.5 * (qq[i][j] + qq[j][i]) for j in range(n)]) for i in range(n)]
    above = [sm.concatenate([a, b]) for a, b in zip(symmetric, qv, strict=True)]
    below = [sm.concatenate([a, b]) for a, b in zip(transposed(qv), vv, strict=True)]
    ux = [sm.concatenate([row, 0.0 * row]) for row in transposed(qu)]
    return Contraction([*above, *below], ux, [0.0 * u] * len(ux))


def in_state(value: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
    """Partial derivatives in x = (q, v) and u, from rows of those in q, v and u."""
    return Partials(value, [sm.concatenate([a, b]) for a, b in zip(dq, dv, strict=True)], du)


def columns(M: Matrix, selected: Sequence[int]) -> list[Rows]:
    """Rows of a matrix, with the selected columns only."""
    return [row[list(selected)] for row in M]


_FRAME_RATES = Program("frame_rates", [PLACE, VELOCITY, PSI_DOT], ["X", "S", "vel", "psid"])


class InverseDynamics(WholeMap, RigidBodyMap):
    """Map of the joint forces tau (nv) [N, N m] of a robot with state (q, v) and joint accelerations u (nv) [m/s^2, rad/s^2].

    With :func:`trajopt.make_backend` it has values and derivatives by any method. Springs, damping and friction are not included.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model, dof_names("a", model), dof_names("tau", model))

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Joint forces tau = ID(q, v, u), rows (nv, N)."""
        return rnea(self.model, *self.split(x), u, driver=self.driver)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives in closed form (IDSVA)."""
        d = rnea_derivatives(self.model, *self.split(x), u, driver=self.driver)
        return in_state(d.tau, d.dq, d.dv, d.M)


class ForwardDynamics(WholeMap, RigidBodyMap):
    """Map of the joint accelerations a (nv) [m/s^2, rad/s^2] of a robot with state (q, v) and joint forces u (nv) [N, N m].

    With :func:`trajopt.make_backend` it has values and derivatives by any method. Springs, damping and friction are not included.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model, dof_names("tau", model), dof_names("a", model))

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Joint accelerations a = FD(q, v, u) by ABA, rows (nv, N)."""
        return aba(self.model, *self.split(x), u, driver=self.driver)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives in closed form (FDSVA): those of inverse dynamics times -M^-1, and M^-1 in u."""
        return in_state(*fd_derivatives(self.model, *self.split(x), u, driver=self.driver))


class NonlinearEffects(WholeMap, RigidBodyMap):
    """Map of the Coriolis, centrifugal and gravity forces (nv) [N, N m] of a robot with state (q, v); it has no controls."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, (), dof_names("h", model))

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Forces C(q, v) v + g(q), rows (nv, N)."""
        return nonlinear_effects(self.model, *self.split(x), driver=self.driver)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives in closed form: those of inverse dynamics (IDSVA) at zero acceleration."""
        q, v = self.split(x)
        d = rnea_derivatives(self.model, q, v, 0.0 * v, driver=self.driver)
        return in_state(d.tau, d.dq, d.dv, [u] * self.n_out)


class MassMatrix(WholeMap, RigidBodyMap):
    """Map of the mass matrix M(q) of a robot with state (q, v), row after row (nv * nv); it has no controls."""

    def __init__(self, model: Model) -> None:
        names = tuple(f"M[{a}, {b}]" for a in model.dof_names for b in model.dof_names)
        super().__init__(model, (), names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Mass matrix M(q) by CRBA, row after row (nv * nv, N)."""
        M = crba(self.model, self.split(x)[0], driver=self.driver)
        n = self.model.nv
        zero = 0.0 * x[0]
        return sm.stack([M[i][j] + zero for i in range(n) for j in range(n)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and derivatives in closed form, by columns M e_k (IDFOZA of Singh et al. 2023).

        M e_k is inverse dynamics at rest without gravity, with the acceleration e_k.
        """
        q, v = self.split(x)
        still = 0.0 * v
        weightless = self.model.with_gravity((0.0, 0.0, 0.0))
        by_column = [
            rnea_derivatives(weightless, q, still, unit + still, driver=self.driver)
            for unit in sm.identity_rows(self.model.nv, v)
        ]
        entries = [(d.tau[i], sm.concatenate([d.dq[i], still])) for i in range(self.model.nv) for d in by_column]
        return Partials(sm.stack([value for value, _ in entries]), [slope for _, slope in entries], [u] * self.n_out)


class FrameMotion(RigidBodyMap):
    """World position (3) [m] and velocity (3) [m/s] of a frame's origin; without control."""

    def __init__(self, model: Model, frame: str) -> None:
        names = tuple(f"{frame}.{c}" for c in ("x", "y", "z", "vx", "vy", "vz"))
        super().__init__(model, (), names)
        self.frame = model.frame_id(frame)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """World position and velocity of the frame's origin, rows (6, N)."""
        q, v = self.split(x)
        velocity = kinematics.frame_velocity(self.model, q, v, self.frame)
        return sm.concatenate([kinematics.frame_position(self.model, q, self.frame), velocity[:3]])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives in closed form, with the Jacobian columns of the frame and their rates."""
        m = self.model
        q, v = self.split(x)
        fx = [[0.0 * v[0] for _ in range(2 * m.nv)] for _ in range(6)]
        body = m.frames[self.frame].body
        fields = run(_FRAME_RATES, m, {"q": at_base(m, q), "v": v})
        if body >= 0:
            velocity = row(fields["vel"], body)
            at = row(fields["X"], body).point(Vec(*m.frames[self.frame].p.tolist()))
            for j in m.ancestors(body):
                S = row(fields["S"], j)
                J = S.l + S.w.cross(at)
                twist: Motion = row(fields["psid"], j) - velocity.cross(S)
                rate = twist.l + twist.w.cross(at) + velocity.w.cross(J)
                for i, (column, change) in enumerate(zip((J.x, J.y, J.z), (rate.x, rate.y, rate.z), strict=True)):
                    fx[i][j] = fx[i + 3][m.nv + j] = column
                    fx[i + 3][j] = change
        return Partials(self(x, u, t, p), [sm.stack(entries) for entries in fx], [u] * 6)


class ActuatedInverseDynamics(WholeMap, RigidBodyMap):
    """Map of the forces (nu) [N, N m] of the actuated joints from (q, v) and their accelerations u (nu) [m/s^2, rad/s^2].

    The other joints, such as a floating base, are free. With h the nonlinear effects and S the rows of the actuated joints,
    tau = (S M^-1 S')^-1 u + Sbar' h with the inertia-weighted pseudo-inverse Sbar = M^-1 S' (S M^-1 S')^-1.  Block elimination of
    the unactuated part b avoids the inverse of M: M_bb a_b = -(h_b + M_ba u), tau = ID_a(q, v, (a_b, u)).
    """

    def __init__(self, model: Model) -> None:
        self.driven = [int(d) for d in np.flatnonzero(model.actuated)]
        self.passive = [int(d) for d in np.flatnonzero(~np.asarray(model.actuated))]
        names = [model.dof_names[d] for d in self.driven]
        super().__init__(model, tuple(f"a[{n}]" for n in names), tuple(f"tau[{n}]" for n in names))

    def accelerations(self, x: Rows, u: Rows) -> Rows:
        """Accelerations (nv, N) of all joints: u of the actuated ones, and those that the others have without joint force."""
        q, v = self.split(x)
        zero = 0.0 * x[0]
        a: list[Scalar] = [zero] * self.model.nv
        for i, d in enumerate(self.driven):
            a[d] = u[i] + zero
        if self.passive:
            M = crba(self.model, q, driver=self.driver)
            bias = rnea(self.model, q, v, sm.stack(a), driver=self.driver)
            block = [[M[i][j] for j in self.passive] for i in self.passive]
            for d, value in zip(self.passive, ltl.solve_dense(block, [-bias[d] for d in self.passive]), strict=True):
                a[d] = value
        return sm.stack(a)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Forces of the actuated joints, rows (nu, N), for their accelerations u, the other joints being free."""
        tau = rnea(self.model, *self.split(x), self.accelerations(x, u), driver=self.driver)
        return sm.stack([tau[d] for d in self.driven])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and derivatives in closed form: those w of inverse dynamics, projected as w_a - M_ab M_bb^-1 w_b.

        a: actuated joints, b: other joints.
        """
        d = rnea_derivatives(self.model, *self.split(x), self.accelerations(x, u), driver=self.driver)
        whole = [sm.concatenate([d.dq[i], d.dv[i], M_a]) for i, M_a in enumerate(columns(d.M, self.driven))]
        projected = [whole[i] for i in self.driven]
        if self.passive:
            block = [[d.M[i][j] for j in self.passive] for i in self.passive]
            reaction = ltl.solve_dense(block, [whole[i] for i in self.passive])
            projected = [
                row - sum((d.M[i][j] * r for j, r in zip(self.passive, reaction, strict=True)), 0.0 * row)
                for i, row in zip(self.driven, projected, strict=True)
            ]
        n = 2 * self.model.nv
        tau = sm.stack([d.tau[i] for i in self.driven])
        return Partials(tau, [row[:n] for row in projected], [row[n:] for row in projected])
