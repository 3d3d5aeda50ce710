"""The equality constraints of an MJCF as holonomic constraints.

connect becomes a point contact or loop, weld a frame contact or loop, joint a relation of joints.  MuJoCo's give way; these hold,
with the stabilization that MuJoCo's `solref` asks for as Baumgarte gains (:mod:`~dynamics_backends.rigid_body.mjcf.equalities`).
"""

from __future__ import annotations

import os

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.contact_points import body_poses
from dynamics_backends.rigid_body.mjcf.equalities import Equality, Place, equalities
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, moves
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.mujoco_states import quaternion_of
from dynamics_backends.systems.constraints.constraint_kinds import (
    Constraint,
    FrameContact,
    FrameLoop,
    JointRelation,
    PointContact,
    PointLoop,
)


def mjcf_constraints(source: str | os.PathLike[str], model: Model | None = None) -> tuple[Constraint, ...]:
    """The active equalities of an MJCF file or text, for the model that `load_mjcf` makes of it.

    model: where parts of the robot are locked or left out, so that only those are told that still tie something. Those that
    no constraint stands for are among the model's `notes`. Raises MJCFError, ModuleNotFoundError without the package mujoco.

    >>> import trajopt as to
    >>> pair = '''<mujoco><worldbody>
    ...   <body name="a"><joint name="lead"/><geom size="0.1" pos="0.2 0 0"/></body>
    ...   <body name="b"><joint name="other"/><geom size="0.1" pos="0.2 0 0"/></body>
    ... </worldbody><equality><joint joint1="other" joint2="lead" polycoef="0 -2 0 0 0"/></equality></mujoco>'''
    >>> relation = to.mjcf_constraints(pair)[0]
    >>> relation.joint, relation.source, relation.multiplier
    ('other', 'lead', -2.0)
    """
    m = compiled(source).simulated
    names = Names(m, source)
    R, p = body_poses(m)

    def bound(equality: Equality) -> Constraint | None:
        if equality.kind == "joint":
            return _relation(equality, names)
        first, second = equality.sides
        if not moves(m, first.body):
            first, second = second, first
        fixed = None if moves(m, second.body) else _placed(second, R, p)
        both = names.bodies[first.body], names.bodies[second.body]
        if equality.kind == "connect":
            at, other = tuple(first.p.tolist()), tuple(second.p.tolist())
            if fixed is None:
                return PointLoop(*both, at, other, equality.gains, equality.name)
            return PointContact(both[0], at, fixed[:3], equality.gains, equality.name)
        frames = [f"{equality.name}:{i}" for i in ((1, 2) if first is equality.sides[0] else (2, 1))]
        if fixed is None:
            return FrameLoop(frames[0], frames[1], equality.gains, equality.name)
        return FrameContact(frames[0], fixed, equality.gains, equality.name)

    found = (bound(equality) for equality in equalities(m, names)[0])
    return tuple(one for one in found if one is not None and (model is None or _fits(one, model)))


def _fits(constraint: Constraint, model: Model) -> bool:
    """Whether a model has the joints, and moves the frames, of a constraint."""
    if isinstance(constraint, JointRelation):
        return {constraint.joint, constraint.source} <= set(model.joint_names)
    moving = {frame.name for frame in model.frames if frame.body >= 0}
    own = [getattr(constraint, key, None) for key in ("frame", "frame_a", "frame_b")]
    return {name for name in own if name} <= moving


def _relation(equality: Equality, names: Names) -> JointRelation | None:
    joint, source = equality.joints
    follower = equality.follower
    if follower is not None:
        return JointRelation(joint, source, follower.multiplier, follower.offset, equality.gains, equality.name)
    others = [name for name in names.joints if name != joint]
    if not others:
        return None
    at = equality.references[0] + equality.polynomial[0]
    return JointRelation(joint, others[0], 0.0, at, equality.gains, equality.name)


def _placed(place: Place, R: Array, p: Array) -> tuple[float, ...]:
    """The pose (7,) in the world of a place on a body at rest."""
    at = R[place.body] @ place.p + p[place.body]
    return (*at.tolist(), *quaternion_of(R[place.body] @ np.asarray(place.R)).tolist())
