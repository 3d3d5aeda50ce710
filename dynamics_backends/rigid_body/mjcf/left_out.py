"""Notes on elements of an MJCF that a model ignores: those that change the motion, and others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.mjcf.actuators import Actuator, effort_limits, one_sided, undriven
from dynamics_backends.rigid_body.mjcf.equalities import equalities
from dynamics_backends.rigid_body.mjcf.source import Names, enabled, joint_kind

NAMED = 6
"""Maximum number of names listed."""


def left_out(
    m: Any, names: Names, found: tuple[Actuator, ...], followed: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return notes on ignored elements that change the motion relative to MuJoCo, and notes on others.

    followed: equalities that the model's coupling includes.
    """
    moving = [
        *_joints(m, names),
        *_tendons(m),
        *_bodies(m, names),
        *_equalities(m, names, followed),
        *_unsupported_options(m),
    ]
    moving += _one_sided(m, names, found)
    other_notes = [*_dry_friction(m, names), *_actuators(m, names, found), *_things(m)]
    return moving, other_notes


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f", ... ({len(names)} in all)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _sentence(what: str, names: Iterable[str]) -> list[str]:
    """List of one sentence with the names; empty without names."""
    names = list(names)
    return [f"{what}: {_listed(names)}"] if names else []


def _joints(m: Any, names: Names) -> list[str]:
    several = [j for j in range(m.njnt) if joint_kind(m, j) in ("spherical", "floating")]
    poly = _nonzero_rows(m, "dof_dampingpoly")
    stiff = _nonzero_rows(m, "jnt_stiffnesspoly")
    spring = enabled(m, "PASSIVE", "SPRING")
    named = names.joints.__getitem__
    return [
        *_sentence(
            "springs of ball and free joints are ignored",
            map(named, [j for j in several if m.jnt_stiffness[j] and spring]),
        ),
        *_sentence("limits of ball joints are ignored", map(named, [j for j in several if m.jnt_limited[j]])),
        *_sentence("damping is linear in the velocity here", sorted({named(int(m.dof_jntid[d])) for d in poly})),
        *_sentence("springs are linear here", map(named, stiff)),
    ]


def _dry_friction(m: Any, names: Names) -> list[str]:
    rubbing: list[int] = np.flatnonzero(m.dof_frictionloss).tolist() if enabled(m, "FRICTIONLOSS") else []
    joints = dict.fromkeys(names.joints[m.dof_jntid[d]] for d in rubbing)
    return _sentence("dry friction counts only with friction_velocity", joints)


def _nonzero_rows(m: Any, field: str) -> list[int]:
    """Rows with a nonzero entry; none in versions of MuJoCo without the field."""
    values = getattr(m, field, None)
    return (
        []
        if values is None or not np.size(values)
        else np.flatnonzero(np.any(np.atleast_2d(values) != 0, axis=1)).tolist()
    )


def _tendons(m: Any) -> list[str]:
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
    carried = [names.bodies[b] for b in np.flatnonzero(m.body_gravcomp)]
    return _sentence("gravity compensation is ignored; joint forces carry the weight", carried)


def _unsupported_options(m: Any) -> list[str]:
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


def _equalities(m: Any, names: Names, followed: Collection[str]) -> list[str]:
    found, left = equalities(m, names)
    free = [f"{one.name} ({one.kind})" for one in found if one.name not in followed]
    return [
        *left,
        *_sentence(
            "equalities are not part of the free dynamics; mjcf_constraints makes constraints of Holonomic from them",
            free,
        ),
    ]


def _actuators(m: Any, names: Names, found: tuple[Actuator, ...]) -> list[str]:
    notes = _sentence(
        "controls are joint forces here; actuators that drive no single joint are ignored",
        [f"{a.name} ({a.target})" for a in found if not a.joint],
    )
    kinds: dict[str, list[str]] = {}
    for a in found:
        if a.joint:
            kinds.setdefault(_described(a), []).append(a.joint)
    notes += [
        f"controls are joint forces here; in the file joints are driven by {k}: {_listed(v)}" for k, v in kinds.items()
    ]
    notes += _sentence("no actuator drives a joint, yet it has a control here", undriven(m, names, found))
    limits = effort_limits(m, names, found).items()
    uneven = [name for name, limit in limits if abs(limit[0]) != abs(limit[1]) and not one_sided(limit)]
    return [*notes, *_sentence("effort limits differ by direction; the smaller one applies here", uneven)]


def _one_sided(m: Any, names: Names, found: tuple[Actuator, ...]) -> list[str]:
    pulled = [name for name, limit in effort_limits(m, names, found).items() if one_sided(limit) and any(limit)]
    return _sentence("forces have one direction only in the file; here the larger limit applies in both", pulled)


def _described(a: Actuator) -> str:
    gains = {"position": f" of kp {a.kp:g} and kv {a.kv:g}", "velocity": f" of kv {a.kv:g}"}.get(a.kind, "")
    state = " with an activation state" if a.activation else ""
    return f"{a.kind} actuators{gains} behind a gear of {a.gear:g}{state}"


def _things(m: Any) -> list[str]:
    counts = {"sensors": m.nsensor, "cameras": m.ncam, "lights": m.nlight, "skins": m.nskin, "mocap bodies": m.nmocap}
    there = [f"{count} {what}" for what, count in counts.items() if count]
    return _sentence("not used", there)
