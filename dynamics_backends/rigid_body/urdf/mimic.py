"""Mimic joints of a URDF: resolution of <mimic> chains, and their coupling in a model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.names import nearest_names
from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model
from dynamics_backends.rigid_body.urdf.elements import Joint, Mimic, Robot


class Follower(NamedTuple):
    """Relation of a follower to the independent joint `source`: q = multiplier * q_source + offset [rad or m]."""

    source: str
    multiplier: float
    offset: float


def find_followers(robot: Robot) -> dict[str, Follower]:
    """Return the resolved relation of each joint with <mimic>; the source of a follower of followers is the independent joint.

    Raises URDFError for an unknown source, a cycle, and a joint that is fixed or has several DoFs.
    """
    return {
        joint.name: _resolved_chain(robot, joint, joint.mimic)
        for joint in robot.joints.values()
        if joint.mimic is not None
    }


def without_source(robot: Robot) -> list[str]:
    """Return warnings about joints that mimic themselves or an unknown joint, for loads in which mimic joints are independent."""
    return [
        f"joint {joint.name!r} (line {joint.element.required('mimic').line}) mimics "
        + (
            "itself; "
            if joint.mimic.joint == joint.name
            else f"{joint.mimic.joint!r}, which is no joint of this robot; "
        )
        + _hint(robot, joint.mimic)
        for joint in robot.joints.values()
        if joint.mimic is not None and (joint.mimic.joint == joint.name or joint.mimic.joint not in robot.joints)
    ]


INDEPENDENT = "joints that follow others in the file (<mimic>) are independent here"
"""Beginning of the note on mimic joints of a model that was loaded with mimic = "free"."""
LISTED = 6
"""Maximum number of joints in the note."""


def independent_note(robot: Robot, model: Model) -> list[str]:
    """Return a note on the mimic joints that move independently of the joint that they follow; [] if there are none."""
    names = [
        f"{joint.name} (follows {joint.mimic.joint})"
        for joint in robot.joints.values()
        if joint.mimic is not None
        and joint.name in model.joint_names
        and joint.mimic.joint in {*robot.joints} - {joint.name}
    ]
    more = f", ... ({len(names)} in all)" if len(names) > LISTED else ""
    return [f"{INDEPENDENT}: {', '.join(names[:LISTED])}{more}"] if names else []


def _hint(robot: Robot, mimic: Mimic) -> str:
    """Remedy for a mimic relation to an unknown joint: the nearest names, else to remove it, as for a joint that mimics itself."""
    near = [] if mimic.joint in robot.joints else nearest_names(mimic.joint, list(robot.joints))
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "remove the <mimic>"


def _resolved_chain(robot: Robot, joint: Joint, mimic: Mimic) -> Follower:
    """Relation of a joint to the independent joint at the end of its chain.

    Raises URDFError for a cycle, and as :func:`_source_joint` for each joint of the chain.
    """
    multiplier, offset, seen = mimic.multiplier, mimic.offset, [joint.name]
    source = _source_joint(robot, joint, mimic)
    while source.mimic is not None and source.name not in seen:
        seen.append(source.name)
        offset += multiplier * source.mimic.offset
        multiplier *= source.mimic.multiplier
        source = _source_joint(robot, source, source.mimic)
    if source.mimic is not None:
        names = " -> ".join(map(repr, [*seen, source.name]))
        raise joint.element.error(f"the joints {names} mimic each other in a circle: make one independent")
    return Follower(source.name, multiplier, offset)


def _source_joint(robot: Robot, joint: Joint, mimic: Mimic) -> Joint:
    """Joint that a joint mimics. Raises URDFError if it is unknown, or if either joint does not have one degree of freedom."""
    element = joint.element.required("mimic")
    if mimic.joint not in robot.joints:
        raise element.error(f"there is no joint named {mimic.joint!r}; {_hint(robot, mimic)}")
    for end in (joint, robot.joints[mimic.joint]):
        if JOINT_TYPES.get(end.kind) != (1, 1):
            raise element.error(
                f"joint {end.name!r} is {end.kind}, and only joints with one degree of freedom follow or are"
                " followed: remove the <mimic>, or load with mimic='free'"
            )
    return robot.joints[mimic.joint]


def couple(model: Model, followers: dict[str, Follower]) -> Coupling:
    """Return the coupling of the model's DoFs; followers: joint -> relation to an independent joint; others are independent."""
    source, multiplier, offset = np.arange(model.nv), np.ones(model.nv), np.zeros(model.nv)
    for name, follower in followers.items():
        d = int(model.v_index[model.joint_id(name)])
        source[d] = model.v_index[model.joint_id(follower.source)]
        multiplier[d], offset[d] = follower.multiplier, follower.offset
    coordinate = np.full(model.nv, -1)
    for b, kind in enumerate(model.joint_types):
        if JOINT_TYPES[kind] == (1, 1):
            coordinate[model.v_index[b]] = model.q_index[b]
    return Coupling(source, multiplier, offset, coordinate, model.nq)
