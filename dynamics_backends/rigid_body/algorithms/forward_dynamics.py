"""Forward dynamics a = M^-1 (tau - h) in joint space: bias force h and mass matrix M in the ground frame (Featherstone, RBDA 6).

One sweep from the root computes velocities, bias accelerations, and the inertia and force of each body; subtree sums of both give
M and h.  Composite inertias have 10 components and need no transformation in a common frame; those of the articulated-body
algorithm have 21 and change frames at every joint.  This takes two thirds of the time of that algorithm for arms and quadrupeds,
and three quarters for a humanoid, although the factorization of M grows as n d^2 with n degrees of freedom at depth d.
"""

from __future__ import annotations

from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.carried_inertia import TURN_FORCE
from dynamics_backends.rigid_body.algorithms.crba import ADD_ROTORS, MOMENTUM, OWN_ENTRIES
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import PLACE, at_base
from dynamics_backends.rigid_body.passes.passes import Program, as_rows, body, dof, down, pair, up_sum, whole
from dynamics_backends.rigid_body.spatial.spatial import Force, Inertia, point_inertia
from dynamics_backends.scalar import Rows
from dynamics_backends.scalars.entries import takes_entries


@down("vel", "acc")
def MOTION(S, v, vel_p, acc_p):
    """Velocity v_p + S qdot, and acceleration a_p + v_p x S qdot at zero joint acceleration."""
    rate, *others = [column * x for column, x in zip(S, v, strict=True)]
    for other in others:
        rate = rate + other
    return vel_p + rate, acc_p + vel_p.cross(rate)


@body("I", "f")
def BODY(X, mass, com, central, vel, acc):
    """Inertia about the origin, and force needed for the motion vel, acc, also about the origin.

    The force is m c'' at the center of mass c, with the moment J w' + w x J w about it; J: inertia about c in world axes.
    """
    pose = X.components()
    c, J, w = pose.point(com), central.turned(pose.R), vel.w
    force = (acc.l + acc.w.cross(c) + w.cross(vel.l + w.cross(c))) * mass
    moment = J @ acc.w + w.cross(J @ w) + c.cross(force)
    h = c * mass
    return Inertia(mass, h, J + point_inertia(c, h)), Force(moment, force)


@pair("M[d,k]")
def ENTRIES(S_k, IS_d):
    """Lower triangle of the mass matrix between joints."""
    return S_k.dot(IS_d)


@dof("tau_bias")
def BIAS(S, f_b, tau_turn):
    """Joint force at zero joint acceleration: projection S' f of the subtree's force, plus that of rotors whose axes turn."""
    return S.dot(f_b) + tau_turn


@dof("tau_net")
def NET_FORCE(tau, tau_bias):
    """Joint force that accelerates the robot, tau minus the bias force."""
    return tau - tau_bias


@whole("factor", template="ltl_factor")
def FACTORIZE(model, M):
    """Factorization M = L' D L along the branches."""
    return ltl.factor(M, model.dof_parent)


@whole("a", template="ltl_solve_once")
def SOLVE(model, M, tau_net):
    """Acceleration a = M^-1 (tau - h), from the lower triangle of M."""
    factor = ltl.factor(M, model.dof_parent)
    return sm.stack(ltl.solve(factor, [tau_net[i] for i in range(len(factor.ancestors))]))


_EQUATIONS = [PLACE, TURN_FORCE, MOTION, BODY, up_sum("I", "f"), MOMENTUM, ENTRIES, OWN_ENTRIES, ADD_ROTORS, BIAS]
FORWARD_DYNAMICS = Program("forward_dynamics", [*_EQUATIONS, NET_FORCE, SOLVE], ["a"])
EQUATIONS_OF_MOTION = Program(
    "equations_of_motion", [*_EQUATIONS, FACTORIZE], ["X", "S", "vel", "acc", "tau_bias", "factor"]
)
"""Poses, joint axes, velocities and accelerations of the bodies, bias force h, and the factor of M in M a = tau - h.

The accelerations are those at zero joint acceleration, with -g of the ground.
"""


@takes_entries
def forward_dynamics(model: Model, q: Rows, v: Rows, tau: Rows, *, driver: Driver = run) -> Rows:
    """Joint accelerations (nv, N) for configuration q (nq, N), velocity v and joint forces tau (nv, N)."""
    arguments: dict[str, Any] = {"q": at_base(model, q), "v": v, "tau": tau}
    return as_rows(driver(FORWARD_DYNAMICS, model, arguments)["a"])


def equations_of_motion(model: Model, q: Rows, v: Rows, driver: Driver = run) -> dict[str, Any]:
    """Fields X, S, vel, acc, tau_bias (h) and factor of EQUATIONS_OF_MOTION by name, for the equations M a = tau - h.

    q (nq, N), v (nv, N). X and all spatial vectors are about the position of a floating base (:func:`~.ground.at_base`).
    """
    return driver(EQUATIONS_OF_MOTION, model, {"q": at_base(model, q), "v": v})
