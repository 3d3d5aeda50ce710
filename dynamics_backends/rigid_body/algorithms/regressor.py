"""Derivatives in inertial parameters: tau = Y(q, v, a) pi + rotors, linear in pi (Atkeson, An, Hollerbach, IJRR 1986).

Each body has ten parameters in its own frame about its origin, pi_b = (m, h_x, h_y, h_z, J_xx, J_xy, J_xz, J_yy, J_yz, J_zz), h = m
c. Column (b, i) of Y is the joint force of body b alone with unit parameter i: f = I_i a + v x* I_i v, projected on the joints that
carry b. Forward dynamics follows from the implicit function theorem, d a / d pi = -M^-1 Y(q, v, a).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.model.mass_properties import inertias_about_origin
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import ACCELERATION, PLACE, PSI_DOT, VELOCITY, at_base
from dynamics_backends.rigid_body.passes.passes import Program, row
from dynamics_backends.rigid_body.spatial.spatial import Inertia, build
from dynamics_backends.scalar import Rows, Scalar

PARAMETERS = 10
PARAMETER_NAMES = ("m", "hx", "hy", "hz", "Jxx", "Jxy", "Jxz", "Jyy", "Jyz", "Jzz")
MOTION = Program("body_motion", [PLACE, VELOCITY, PSI_DOT, ACCELERATION], ["X", "S", "vel", "acc"])


def inertial_parameters(model: Model) -> Array:
    """Inertial parameters pi (10 nb,) of a model [kg, kg m, kg m^2]."""
    c, m = np.asarray(model.com), np.asarray(model.mass)
    upper = inertias_about_origin(model.mass, model.com, model.inertia)[:, *np.triu_indices(3)]
    return np.concatenate([m[:, None], m[:, None] * c, upper], axis=1).ravel()


def parameter_names(model: Model) -> tuple[str, ...]:
    """Names 'BODY.m', 'BODY.hx', ... in the order of the columns of Y."""
    return tuple(f"{body}.{p}" for body in model.body_names for p in PARAMETER_NAMES)


def inverse_dynamics_regressor(model: Model, q: Array, v: Array, a: Array, *, driver: Driver = run) -> Array:
    """Regressor Y (nv, 10 nb, N) = d tau / d pi on rows q (nq, N), v and a (nv, N)."""
    Y = regressor_rows(model, q, v, a, driver=driver)
    return np.stack([np.stack(np.broadcast_arrays(*row, q[0])[:-1]) for row in Y])


def regressor_rows(model: Model, q: Rows, v: Rows, a: Rows, *, driver: Driver = run) -> list[list[Scalar]]:
    """Regressor Y by rows, nv lists of 10 nb scalars of any kind; 0.0 if a joint does not carry a body."""
    fields = driver(MOTION, model, {"q": at_base(model, q), "v": v, "a": a})
    units = [build(Inertia, iter(values)) for values in np.eye(PARAMETERS).tolist()]
    Y: list[list[Scalar]] = [[0.0] * (model.nb * PARAMETERS) for _ in range(model.nv)]
    for b in range(model.nb):
        X = row(fields["X"], b)
        velocity, acceleration = X.to_child(row(fields["vel"], b)), X.to_child(row(fields["acc"], b))
        for i, unit in enumerate(units):
            force = X.force_to_parent(unit * acceleration + velocity.cross_force(unit * velocity))
            for k in model.ancestors(b):
                Y[k][b * PARAMETERS + i] = row(fields["S"], k).dot(force)
    return Y


class ForwardDynamicsParameters(NamedTuple):
    """Accelerations a (nv, N) and d a / d pi (nv, 10 nb, N)."""

    a: Array
    d_parameters: Array


def forward_dynamics_parameters(
    model: Model, q: Array, v: Array, tau: Array, *, driver: Driver = run
) -> ForwardDynamicsParameters:
    """Forward dynamics and its derivative in the inertial parameters on rows q (nq, N), v and tau (nv, N)."""
    a, rows = forward_parameters_rows(model, q, v, tau, driver=driver)
    return ForwardDynamicsParameters(a, np.stack(rows))


def forward_parameters_rows(
    model: Model, q: Rows, v: Rows, tau: Rows, *, driver: Driver = run
) -> tuple[Rows, list[Rows]]:
    """Accelerations a (nv, N) [rad/s^2, m/s^2] and d a / d pi, a list of nv rows (10 nb, N), for every scalar."""
    a = aba(model, q, v, tau, driver=driver)
    zero = 0.0 * v[0]
    Y = [sm.stack([e + zero for e in row]) for row in regressor_rows(model, q, v, a, driver=driver)]
    factor = ltl.factor(crba(model, q, driver=driver), model.dof_parent.tolist())
    return a, [-row for row in ltl.solve(factor, Y)]
