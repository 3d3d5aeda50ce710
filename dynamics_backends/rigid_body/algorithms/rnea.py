"""Inverse dynamics by the recursive Newton-Euler algorithm, in link frames (Featherstone, RBDA 5.3, table 5.1)."""

from __future__ import annotations

from typing import Any

from dynamics_backends.rigid_body.algorithms.carried_inertia import TURN_FORCE
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run, run_with_forces
from dynamics_backends.rigid_body.passes.passes import Program, as_rows, body, dof, down, up
from dynamics_backends.scalar import Rows
from dynamics_backends.scalars.entries import takes_entries


@body("X_link")
def PLACE(joint, fixed, pitch, q):
    """Pose of each body in its parent."""
    return joint.place(fixed, q, pitch)


@down("vel_link", "acc_link")
def MOTION(joint, pitch, X_link, vel_link_p, acc_link_p, v, a):
    """Velocity and acceleration of each body in its frame; gravity g enters as an acceleration -g of the ground."""
    rate = joint.motion(v, pitch)
    velocity = X_link.to_child(vel_link_p) + rate
    return velocity, X_link.to_child(acc_link_p) + velocity.cross(rate) + joint.motion(a, pitch)


@body("f_link")
def FORCE(I_link, vel_link, acc_link):
    """Force f = I a + v x* I v that a body needs for its motion (Newton-Euler equation)."""
    return I_link * acc_link + vel_link.cross_force(I_link * vel_link)


@body("f_link")
def SUBTRACT_EXTERNAL(f_link, f_ext):
    """Subtract external forces, which the joints need not transmit."""
    return f_link - f_ext


@up(own=["tau"], to_parent=["f_link"])
def PROJECT(joint, pitch, X_link, f_link):
    """Projection of the force transmitted by each joint on its motion subspace, and this force in the parent's frame."""
    return joint.project(f_link, pitch), X_link.force_to_parent(f_link)


@dof("tau")
def ADD_ROTOR(tau, tau_turn, armature, a):
    """Add the force of the rotors: rotor inertia times the joint's own acceleration, and tau_turn for axes that rotate."""
    return tau + (tau_turn + armature * a)


RNEA = Program("rnea", [PLACE, MOTION, FORCE, PROJECT, TURN_FORCE, ADD_ROTOR], ["tau"])
RNEA_EXTERNAL = RNEA.inserted(SUBTRACT_EXTERNAL, after=FORCE, name="rnea_external")


@takes_entries
def rnea(model: Model, q: Rows, v: Rows, a: Rows, f_ext: Any = None, *, driver: Driver = run) -> Rows:
    """Joint forces tau (nv, N) [N, N m] for configuration q (nq, N), velocity v and acceleration a (nv, N).

    ``f_ext``: external forces on the bodies in their own frames, from :func:`~.external_forces.body_forces`.
    """
    arguments = {"q": q, "v": v, "a": a}
    return as_rows(run_with_forces(driver, RNEA, RNEA_EXTERNAL, model, arguments, f_ext)["tau"])


@takes_entries
def nonlinear_effects(model: Model, q: Rows, v: Rows, f_ext: Any = None, *, driver: Driver = run) -> Rows:
    """Coriolis, centrifugal and gravity forces C(q, v) v + g(q): joint forces (nv, N) at zero acceleration.

    f_ext: external forces on the bodies in their own frames; the joint forces that balance them are subtracted.
    """
    return rnea(model, q, v, 0.0 * v if not isinstance(v, list) else [0.0 * x for x in v], f_ext, driver=driver)
