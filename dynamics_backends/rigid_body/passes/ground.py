"""Passes in the ground frame, shared by CRBA, kinematics and the derivative recursions (Singh, Russell, Wensing 2022, sec. II).

All quantities are expressed at one inertial origin.  Dynamics does not depend on the position of a floating base, so the origin is
moved there (:func:`at_base`): an inertia about a point a kilometer away would lose half of its digits.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import body, dof, down
from dynamics_backends.rigid_body.spatial.spatial import coriolis
from dynamics_backends.scalar import Rows, copied, rows_of


def at_base(model: Model, q: Rows) -> Rows:
    """Copy of q with zero position of a floating base, a list for symbols and lists; q itself without a floating base."""
    if not model.floating_base:
        return q
    if isinstance(q, list) or hasattr(q, "is_symbolic"):
        return [0.0, 0.0, 0.0, *rows_of(q)[3:]]
    moved = copied(q)
    moved[:3] = 0.0
    return moved


def free_dofs(model: Model) -> int:
    """6 for a floating base without rotor inertia, whose motion moves the whole robot rigidly; else 0."""
    return 6 if model.floating_base and not np.any(model.armature[:6]) else 0


@down("X", "S")
def PLACE(joint, fixed, pitch, q, X_p):
    """Pose of each body, and the columns S of the motion subspace of its joint."""
    X = X_p @ joint.place(fixed, q, pitch)
    return X, joint.columns(X, pitch)


@body("I", "I_own")
def INERTIA(X, mass, com, central):
    """Inertia of each body about the origin: I, later summed over subtrees, and the same as I_own."""
    inertia = X.inertia_to_parent(mass, com, central)
    return inertia, inertia


@down("vel")
def VELOCITY(vel_p, S, v):
    """Velocity v_i = v_p + S_i qdot_i."""
    for column, rate in zip(S, v, strict=True):
        vel_p = vel_p + column * rate
    return vel_p


@dof("psid")
def PSI_DOT(vel_p, S):
    """psidot_i = v_p x S_i: the rate of change of S_i due to its parent's motion."""
    return vel_p.cross(S)


@down("acc")
def BIAS_ACCELERATION(acc_p, psid, v):
    """Acceleration a_i at zero joint acceleration: a_p + psidot_i qdot_i (v_p x S qdot; within one joint S qdot x S qdot = 0)."""
    for column, rate in zip(psid, v, strict=True):
        acc_p = acc_p + column * rate
    return acc_p


@down("acc")
def ACCELERATION(acc_p, S, psid, v, a):
    """Acceleration a_i = a_p + psidot_i qdot_i + S_i qddot_i."""
    for column, rate in zip(psid, v, strict=True):
        acc_p = acc_p + column * rate
    for column, rate in zip(S, a, strict=True):
        acc_p = acc_p + column * rate
    return acc_p


@body("f", "B", "B_own")
def FORCE(I_own, vel, acc):
    """Force f_i = I a + v x* I v, and twice the body Coriolis matrix: B, later summed over subtrees, and the same as B_own."""
    momentum = I_own * vel
    B = coriolis(I_own, vel, momentum.f)
    return I_own * acc + vel.cross_force(momentum), B, B


@body("f")
def SUBTRACT_EXTERNAL(f, X, f_ext):
    """Subtract external forces, given in body frames, which rotate with the bodies."""
    return f - X.force_to_parent(f_ext)


@dof("psidd", "rate")
def RATES(S, psid, vel_p, acc_p, vel_b):
    """psiddot_i = a_p x S_i + v_p x psidot_i, and psidot_i + Sdot_i with Sdot_i = v_i x S_i."""
    return acc_p.cross(S) + vel_p.cross(psid), psid + vel_b.cross(S)
