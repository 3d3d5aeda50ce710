"""Derivatives with respect to inertial parameters: tau = Y(q, v, a) pi + rotors, linear in pi (Atkeson, An,
Hollerbach, IJRR 1986).

Each body has ten parameters in its own frame about its origin, pi_b = (m, h_x, h_y, h_z, J_xx, J_xy, J_xz, J_yy,
J_yz, J_zz), h = m c. Column (b, i) of Y is the joint force of body b alone with unit parameter i: f = I_i a + v x*
I_i v, projected on the joints that carry b. Forward dynamics follows from the implicit function theorem, d a / d pi =
-M^-1 Y(q, v, a).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body import ltl
from dynamics_backends.rigid_body.aba import aba
from dynamics_backends.rigid_body.crba import crba
from dynamics_backends.rigid_body.drivers import Driver, run
from dynamics_backends.rigid_body.field_access import row
from dynamics_backends.rigid_body.ground import ACCELERATION, PLACE, PSI_DOT, VELOCITY, at_base
from dynamics_backends.rigid_body.mass_properties import inertias_about_origin
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.passes import Program
from dynamics_backends.rigid_body.spatial import Inertia, build

PARAMETERS = 10
PARAMETER_NAMES = ("m", "hx", "hy", "hz", "Jxx", "Jxy", "Jxz", "Jyy", "Jyz", "Jzz")
MOTION = Program("body_motion", [PLACE, VELOCITY, PSI_DOT, ACCELERATION], ["X", "S", "vel", "acc"])


def inertial_parameters(model: Model) -> Array:
    """pi (10 nb,) of a model."""
    c, m = np.asarray(model.com), np.asarray(model.mass)
    upper = inertias_about_origin(model.mass, model.com, model.inertia)[:, *np.triu_indices(3)]
    return np.concatenate([m[:, None], m[:, None] * c, upper], axis=1).ravel()


def parameter_names(model: Model) -> tuple[str, ...]:
    """'BODY.m', 'BODY.hx', ... in the order of the columns of Y."""
    return tuple(f"{body}.{p}" for body in model.body_names for p in PARAMETER_NAMES)


def inverse_dynamics_regressor(model: Model, q: Array, v: Array, a: Array, *, driver: Driver = run) -> Array:
    """Y (nv, 10 nb, N) = d tau / d pi on rows q (nq, N), v and a (nv, N)."""
    fields = driver(MOTION, model, {"q": at_base(model, q), "v": v, "a": a})
    X = fields["X"]
    velocity, acceleration = X.to_child(fields["vel"]), X.to_child(fields["acc"])
    Y = np.zeros((model.nv, model.nb, PARAMETERS, q.shape[1]), dtype=np.result_type(q, v, a))
    for i, values in enumerate(np.eye(PARAMETERS).tolist()):
        unit = build(Inertia, iter(values))
        force = X.force_to_parent(unit * acceleration + velocity.cross_force(unit * velocity))
        for b in range(model.nb):
            carried = row(force, b)
            for k in model.ancestors(b):
                Y[k, b, i] = row(fields["S"], k).dot(carried)
    return Y.reshape(model.nv, -1, q.shape[1])


class ForwardDynamicsParameters(NamedTuple):
    """a (nv, N) and d a / d pi (nv, 10 nb, N)."""

    a: Array
    d_parameters: Array


def forward_dynamics_parameters(model: Model, q: Array, v: Array, tau: Array) -> ForwardDynamicsParameters:
    """Forward dynamics and its derivative in the inertial parameters on rows q (nq, N), v and tau (nv, N)."""
    a = aba(model, q, v, tau)
    Y = inverse_dynamics_regressor(model, q, v, a)
    factor = ltl.factor(crba(model, q), model.dof_parent.tolist())
    return ForwardDynamicsParameters(a, -np.stack(ltl.solve(factor, list(Y))))
