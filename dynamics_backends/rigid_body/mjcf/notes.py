"""Notes on an MJCF: elements that a model ignores, and differences between the model and MuJoCo's.

Mass matrix, bias and passive forces are compared in a few states, to find differences that the list of ignored elements lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import mass_matrix, nonlinear_effects
from dynamics_backends.rigid_body.mjcf.elements import (
    Actuator,
    effort_limits,
    equalities,
    followers,
    one_sided,
    undriven,
)
from dynamics_backends.rigid_body.mjcf.mujoco_states import MujocoStates
from dynamics_backends.rigid_body.mjcf.source import Names, enabled, joint_kind
from dynamics_backends.rigid_body.model.model import Model

NAMED = 6
"""Maximum number of names listed."""
UNDRIVEN = "no actuator drives a joint, yet it has a control here"
"""Beginning of the note on joints without actuators in a file with actuators."""


def left_out(
    m: Any, names: Names, found: tuple[Actuator, ...], joints: Collection[str], followed: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return notes on ignored elements that change the motion relative to MuJoCo, and notes on others.

    found: actuators of the file. joints: names of the joints of the model; other joints are locked, or of trees that the model
    lacks. followed: names of equalities that the model satisfies, by its coupling or by locked joints.
    """
    moving = [
        *_joints(m, names, joints),
        *_tendons(m),
        *_bodies(m, names),
        *_equalities(m, names, joints, followed),
        *_unsupported_options(m),
    ]
    moving += _one_sided(m, names, found, joints)
    idle = equalities(m, names)[2]
    tied = {joint for joint, equality in followers(m, names)[1].items() if equality in followed}
    other_notes = [
        *_dry_friction(m, names, joints),
        *_actuators(m, names, found, joints),
        *_sentence(UNDRIVEN, [j for j in undriven(m, names, found) if j in joints and j not in tied]),
        *idle,
        *_things(m),
    ]
    return moving, other_notes


def _listed(names: Iterable[str]) -> str:
    """First NAMED names as a text, separated by commas, with the number of all names if there are more."""
    names = list(names)
    more = f", ... ({len(names)} in all)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _sentence(what: str, names: Iterable[str]) -> list[str]:
    """List of one sentence, ``what`` followed by the names; empty without names."""
    names = list(names)
    return [f"{what}: {_listed(names)}"] if names else []


def _joints(m: Any, names: Names, joints: Collection[str]) -> list[str]:
    """Notes on ignored springs of ball and free joints and limits of ball joints, and on nonlinear damping and springs."""
    several = [j for j in range(m.njnt) if joint_kind(m, j) in ("spherical", "floating")]
    poly = _nonzero_rows(m, "dof_dampingpoly")
    stiff = _nonzero_rows(m, "jnt_stiffnesspoly")
    spring = enabled(m, "PASSIVE", "SPRING")

    def named(numbers: Iterable[int]) -> list[str]:
        """Names of the joints of the model among these numbers of joints."""
        return [names.joints[j] for j in numbers if names.joints[j] in joints]

    return [
        *_sentence(
            "springs of ball and free joints are ignored",
            named(j for j in several if m.jnt_stiffness[j] and spring),
        ),
        *_sentence("limits of ball joints are ignored", named(j for j in several if m.jnt_limited[j])),
        *_sentence("damping is linear in the velocity here", sorted(set(named(int(m.dof_jntid[d]) for d in poly)))),
        *_sentence("springs are linear here", named(stiff)),
    ]


def _dry_friction(m: Any, names: Names, known: Collection[str]) -> list[str]:
    """Note on joints with dry friction, which needs the option friction_velocity of a system; empty list without any."""
    rubbing: list[int] = np.flatnonzero(m.dof_frictionloss).tolist() if enabled(m, "FRICTIONLOSS") else []
    joints = dict.fromkeys(names.joints[m.dof_jntid[d]] for d in rubbing)
    return _sentence("dry friction counts only with friction_velocity", [joint for joint in joints if joint in known])


def _nonzero_rows(m: Any, field: str) -> list[int]:
    """Indices of the rows of a field with a nonzero entry; [] in versions of MuJoCo without the field."""
    values = getattr(m, field, None)
    return (
        []
        if values is None or not np.size(values)
        else np.flatnonzero(np.any(np.atleast_2d(values) != 0, axis=1)).tolist()
    )


def _tendons(m: Any) -> list[str]:
    """Note with the names of tendons that have springs, damping, friction, limits or inertia; these are ignored.

    Empty list without any.
    """
    armature = getattr(m, "tendon_armature", np.zeros(m.ntendon))
    acting = [
        m.tendon(i).name or f"tendon{i}"
        for i in range(m.ntendon)
        if m.tendon_stiffness[i]
        or m.tendon_damping[i]
        or m.tendon_frictionloss[i]
        or m.tendon_limited[i]
        or armature[i]
    ]
    return _sentence("springs, damping, friction, limits and inertia of tendons are ignored", acting)


def _bodies(m: Any, names: Names) -> list[str]:
    """Note on bodies with gravity compensation, which is ignored; empty without any."""
    carried = [names.bodies[b] for b in np.flatnonzero(m.body_gravcomp)]
    return _sentence("gravity compensation is ignored; joint forces carry the weight", carried)


def _unsupported_options(m: Any) -> list[str]:
    """Notes on forces of the medium, flexible bodies and plugins, which are ignored."""
    fluid = m.opt.density or m.opt.viscosity
    flexible = getattr(m, "nflex", 0)
    return [
        *(
            [f"forces of the medium (density {m.opt.density:g}, viscosity {m.opt.viscosity:g}) are ignored"]
            if fluid
            else []
        ),
        *([f"{flexible} flexible bodies are ignored"] if flexible else []),
        *([f"{m.nplugin} plugins are ignored"] if m.nplugin else []),
    ]


def _equalities(m: Any, names: Names, joints: Collection[str], followed: Collection[str]) -> list[str]:
    """Notes on equalities that are ignored, and on those that are not among ``followed``, the names that the model satisfies.

    Equalities of joints that are not among ``joints``, those of the model, constrain nothing.
    """
    found, left, _ = equalities(m, names)
    moving = [one for one in found if one.kind != "joint" or {*one.joints} & {*joints}]
    free = [f"{one.name} ({one.kind})" for one in moving if one.name not in followed]
    return [
        *left,
        *_sentence(
            "equalities are not part of the free dynamics; mjcf_constraints makes constraints of Holonomic from them",
            free,
        ),
    ]


def _actuators(m: Any, names: Names, found: tuple[Actuator, ...], joints: Collection[str]) -> list[str]:
    """Notes on actuators and their gains, and on uneven effort limits."""
    notes = _sentence(
        "controls are joint forces here; actuators that drive no single joint are ignored",
        [f"{a.name} ({a.target})" for a in found if not a.joint],
    )
    kinds: dict[str, list[str]] = {}
    for a in found:
        if a.joint in joints:
            kinds.setdefault(_described(a), []).append(a.joint)
    notes += [
        f"controls are joint forces here; in the file joints are driven by {k}: {_listed(v)}" for k, v in kinds.items()
    ]
    limits = [(joint, limit) for joint, limit in effort_limits(m, names, found).items() if joint in joints]
    uneven = [name for name, limit in limits if abs(limit[0]) != abs(limit[1]) and not one_sided(limit)]
    return [*notes, *_sentence("effort limits differ by direction; the smaller one applies here", uneven)]


def _one_sided(m: Any, names: Names, found: tuple[Actuator, ...], joints: Collection[str]) -> list[str]:
    """Note on joints whose force range has one direction only, except (0, 0); empty without any."""
    limits = {name: limit for name, limit in effort_limits(m, names, found).items() if name in joints}
    pulled = [name for name, limit in limits.items() if one_sided(limit) and any(limit)]
    return _sentence("forces have one direction only in the file; here the larger limit applies in both", pulled)


def _described(a: Actuator) -> str:
    """Phrase with an actuator's kind, gains, gear and activation state."""
    gains = {"position": f" of kp {a.kp:g} and kv {a.kv:g}", "velocity": f" of kv {a.kv:g}"}.get(a.kind, "")
    state = " with an activation state" if a.activation else ""
    return f"{a.kind} actuators{gains} behind a gear of {a.gear:g}{state}"


def _things(m: Any) -> list[str]:
    """Note on numbers of elements that the model does not use: sensors, cameras, lights, skins, mocap bodies; empty without any."""
    counts = {"sensors": m.nsensor, "cameras": m.ncam, "lights": m.nlight, "skins": m.nskin, "mocap bodies": m.nmocap}
    there = [f"{count} {what}" for what, count in counts.items() if count]
    return _sentence("not used", there)


TOLERANCE = 1e-8
"""Tolerance of differences, relative to the largest entry of the model's and of MuJoCo's term, or to 1 if that is larger."""
STATES = 2


class Terms(NamedTuple):
    """Mass matrix (nv, nv), bias (nv,) and passive forces (nv,) of one state, in one set of conventions."""

    mass: Array
    bias: Array
    passive: Array


def differences(model: Model, simulated: Any, names: Names) -> list[str]:
    """Sentences about the terms of the equations of motion that differ from MuJoCo's in random states, at most one for each term.

    Terms are the mass matrix, the bias and the passive forces; they differ if an entry does by more than TOLERANCE. The sentence
    is about the first state in which a term differs.
    """
    reported: dict[str, str] = {}
    for own, theirs in _compared(model, simulated, names):
        for what, a, b in zip(("mass matrix", "bias", "passive forces"), own, theirs, strict=True):
            scale = max(np.abs(b).max(), np.abs(a).max(), 1.0)
            apart = np.abs(a - b).reshape(model.nv, -1).max(axis=1)
            if apart.max() > TOLERANCE * scale:
                joints = [model.dof_names[d] for d in np.flatnonzero(apart > TOLERANCE * scale)]
                reported.setdefault(what, _difference_sentence(what, apart.max() / scale, joints))
    return list(reported.values())


def largest_difference(model: Model, simulated: Any, names: Names) -> float:
    """Largest difference of mass matrix and bias from MuJoCo's in random states, relative to MuJoCo's largest entry of each."""
    pairs = [
        pair for own, theirs in _compared(model, simulated, names) for pair in zip(own[:2], theirs[:2], strict=True)
    ]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs)


def _compared(model: Model, simulated: Any, names: Names) -> Iterator[tuple[Terms, Terms]]:
    """Yield the terms of the model and of MuJoCo in STATES random states, the same at every call for a model."""
    rng, states = np.random.default_rng(0), MujocoStates(model, simulated, names.joints)
    for _ in range(STATES):
        x = np.concatenate([model.random_configuration(rng), rng.standard_normal(model.nv)])
        yield model_terms(model, x), simulated_terms(states, simulated, x)


def _difference_sentence(what: str, fraction: float, joints: list[str]) -> str:
    """Sentence about a term's difference from MuJoCo's, a fraction of the largest entry, at these joints; names NAMED of them."""
    more = f" and {len(joints) - NAMED} others" if len(joints) > NAMED else ""
    at = ", ".join(joints[:NAMED]) + more
    return f"{what}: the difference from MuJoCo's is up to {100 * fraction:.2g} % of the largest, at {at}"


def model_terms(model: Model, x: Array) -> Terms:
    """Terms of the model at x (nq + nv,): mass matrix, bias, and passive forces of dampers and springs."""
    q, v = x[: model.nq], x[model.nq :]
    passive = model.spring_forces(q) - model.damping * v
    return Terms(mass_matrix(model, q), nonlinear_effects(model, q, v), passive)


def simulated_terms(states: MujocoStates, simulated: Any, x: Array) -> Terms:
    """Terms of MuJoCo at x (nq + nv,), in the model's conventions."""
    import mujoco

    data = mujoco.MjData(simulated)
    data.qpos[:], data.qvel[:] = states.to_mujoco(x)
    mujoco.mj_fwdPosition(simulated, data)
    mujoco.mj_fwdVelocity(simulated, data)
    theirs, column = np.zeros((states.nv, states.nv)), np.zeros(states.nv)
    for d, unit in enumerate(np.eye(states.nv)):
        mujoco.mj_mulM(simulated, data, column, states.velocity_to_mujoco(x, unit))
        theirs[:, d] = states.force_from_mujoco(x, column)
    bias, passive = np.array(data.qfrc_bias), np.array(data.qfrc_passive)
    # M (R (a + w x v)) + bias is the force: the term of the rotating axes belongs to the bias
    mujoco.mj_mulM(simulated, data, column, states.acceleration_to_mujoco(x, np.zeros(states.nv)))
    return Terms(theirs, states.force_from_mujoco(x, bias + column), states.force_from_mujoco(x, passive))
