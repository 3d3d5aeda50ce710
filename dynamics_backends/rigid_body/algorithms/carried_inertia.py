"""Rotor inertia of translations whose axes rotate with the body, in floating and planar joints.

MuJoCo adds the armature r of a free joint to the diagonal of its mass matrix, in the linear velocity of the body in world axes.
In the body's axes, the rotors of the joint's translations have the momentum h = (0; r V), where (omega; V) = S v is the
velocity of the joint in the child's frame, and their force is S' (dh/dt + S v x* h).  The first part is that of every rotor, on the
diagonal of the mass matrix; the passes here add the second.  With e_d the column of S and l_d = (0; r_d V_d) the momentum of DoF d

    tau_i                           =  e_i . (S v x* h)                         power v . tau is zero
    d tau_i / d v_d                 =  e_i . (e_d x* h + S v x* l_d)
    d2 mu' tau / d v_d d v_k        =  (m x e_d) . l_k + (m x e_k) . l_d        m = S mu

and zero for joints with translations only or rotations only.
"""

from __future__ import annotations

from dynamics_backends.rigid_body.passes.passes import body
from dynamics_backends.rigid_body.spatial.spatial import Force, Motion, Vec

_ZERO = Vec(0.0, 0.0, 0.0)


@body("tau_turn")
def TURN_FORCE(joint, pitch, v, carried):
    """Joint force of the rotors due to the rotation of their axes; zero unless the joint has translations and rotations."""
    if not joint.turns_axes:
        return [0.0] * joint.nv
    rate = joint.motion(v, pitch)
    return joint.project(rate.cross_force(_momentum(joint, pitch, v, carried)), pitch)


@body("unit", "lever", "tau_turn", "turn_v")
def TURN(joint, pitch, v, carried):
    """Columns e_d of S, linear parts of the momenta l_d, joint force of the rotors (TURN_FORCE), and a force for each DoF d.

    The product of that force and e_i is the derivative of the joint force tau_i in v_d. All but the columns are zero unless the
    joint has translations and rotations.
    """
    units = joint.units(pitch)
    if not joint.turns_axes:
        return units, [_ZERO] * joint.nv, [0.0] * joint.nv, [Force(_ZERO, _ZERO)] * joint.nv
    rate, momentum = joint.motion(v, pitch), _momentum(joint, pitch, v, carried)
    levers = [unit.l * r for r, unit in zip(carried, units, strict=True)]
    slopes = [
        unit.cross_force(momentum) + rate.cross_force(Force(_ZERO, lever))
        for unit, lever in zip(units, levers, strict=True)
    ]
    return units, levers, joint.project(rate.cross_force(momentum), pitch), slopes


@body("pull")
def WEIGH_TURN(joint, pitch, unit, mu):
    """Linear part of m x e_d for each column e_d of S, with m = S mu; zero unless the joint has translations and rotations."""
    if not joint.turns_axes:
        return [_ZERO] * joint.nv
    weight = joint.motion(mu, pitch)
    return [weight.cross(column).l for column in unit]


def _momentum(joint, pitch, v, carried):
    """Momentum h = (0; r V) of the rotors of a joint's translations, from its rates v and the rotor inertias ``carried``."""
    return Force(_ZERO, joint.motion([r * rate for r, rate in zip(carried, v, strict=True)], pitch).l)


def turned_twice(e_i: Motion, e_j: Motion, l_j: Vec, e_k: Motion, l_k: Vec):
    """Second derivative d2 tau_i / d v_j d v_k of the rotors' joint force, from columns e of S and linear parts l of momenta."""
    return e_i.dot(e_j.cross_force(Force(_ZERO, l_k)) + e_k.cross_force(Force(_ZERO, l_j)))
