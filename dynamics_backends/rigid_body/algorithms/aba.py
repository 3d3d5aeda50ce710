"""Forward dynamics by the articulated-body algorithm, in link frames (Featherstone, RBDA 7.3, table 7.1)."""

from __future__ import annotations

from typing import Any

from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.carried_inertia import TURN_FORCE
from dynamics_backends.rigid_body.algorithms.rnea import PLACE
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run, run_with_forces
from dynamics_backends.rigid_body.passes.passes import Program, as_rows, body, down, up
from dynamics_backends.rigid_body.spatial.spatial import articulated
from dynamics_backends.scalar import Rows
from dynamics_backends.scalars.entries import takes_entries


@down("vel_link", "bias_link")
def VELOCITY(joint, pitch, X_link, vel_link_p, v):
    """Velocity v of each body, and the velocity-product acceleration v x S qdot, both in the link frame."""
    rate = joint.motion(v, pitch)
    velocity = X_link.to_child(vel_link_p) + rate
    return velocity, velocity.cross(rate)


@body("IA", "pA")
def FREE_BODY(I_link, vel_link):
    """Articulated inertia and bias force of a body without its children."""
    return articulated(I_link), vel_link.cross_force(I_link * vel_link)


@body("pA")
def SUBTRACT_EXTERNAL(pA, f_ext):
    """Subtract external forces from the bias forces."""
    return pA - f_ext


@up(own=["UD", "uD"], to_parent=["IA", "pA"])
def ATTACH(joint, pitch, X_link, IA, pA, bias_link, tau, tau_turn, armature):
    """Eliminate the joint: U = IA S, D = S' U plus the rotor inertias on the diagonal, u = tau - S' pA - tau_turn.

    Returns U D^-1, D^-1 u, and the remaining inertia and bias force, which act on the parent, in the parent's frame.
    """
    U = joint.inertia_columns(IA, pitch)
    D = [joint.project(column, pitch) for column in U]
    for i, rotor in enumerate(armature):
        D[i][i] = D[i][i] + rotor
    u = [t - (s + turn) for t, s, turn in zip(tau, joint.project(pA, pitch), tau_turn, strict=True)]
    UD, uD = ltl.solve_dense(D, U), ltl.solve_dense(D, u)
    inertia = IA
    for column, scaled in zip(U, UD, strict=True):
        inertia = inertia.minus_outer(scaled, column)
    force = pA + inertia * bias_link
    for column, x in zip(U, uD, strict=True):
        force = force + column * x
    return UD, uD, X_link.articulated_to_parent(inertia), X_link.force_to_parent(force)


@down("a", "acc_link")
def ACCELERATE(joint, pitch, X_link, bias_link, acc_link_p, UD, uD):
    """Joint accelerations qdd = D^-1 (u - U' a'), a' = X^-1 a_p + bias_link, and accelerations a' + S qdd of the bodies."""
    acceleration = X_link.to_child(acc_link_p) + bias_link
    a = [x - acceleration.dot(column) for x, column in zip(uD, UD, strict=True)]
    return a, acceleration + joint.motion(a, pitch)


ABA = Program("aba", [PLACE, VELOCITY, FREE_BODY, TURN_FORCE, ATTACH, ACCELERATE], ["a"])
ABA_EXTERNAL = ABA.inserted(SUBTRACT_EXTERNAL, after=FREE_BODY, name="aba_external")


@takes_entries
def aba(model: Model, q: Rows, v: Rows, tau: Rows, f_ext: Any = None, *, driver: Driver = run) -> Rows:
    """Joint accelerations (nv, N) for configuration q (nq, N), velocity v and joint forces tau (nv, N).

    ``f_ext``: external forces on the bodies in their own frames, from :func:`~.external_forces.body_forces`.
    """
    arguments = {"q": q, "v": v, "tau": tau}
    return as_rows(run_with_forces(driver, ABA, ABA_EXTERNAL, model, arguments, f_ext)["a"])
