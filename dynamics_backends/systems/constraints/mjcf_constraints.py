"""Equality constraints of an MJCF as holonomic constraints.

connect becomes a point contact or loop, weld a frame contact or loop, joint a relation of joints.  MuJoCo's equalities are soft;
these are rigid, with Baumgarte gains from MuJoCo's `solref` and `solimp` (:mod:`~dynamics_backends.rigid_body.mjcf.elements`).
"""

from __future__ import annotations

import os

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.contact_points import body_poses
from dynamics_backends.rigid_body.mjcf.elements import Equality, Place, equalities, locked_instead
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, joint_kind, moves
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.constraints.constraint_kinds import (
    Constraint,
    FrameContact,
    FrameLoop,
    JointRelation,
    PointContact,
    PointLoop,
)


def mjcf_constraints(source: str | os.PathLike[str], model: Model | None = None) -> tuple[Constraint, ...]:
    """Supported active equalities of an MJCF file or text as constraints, for the model that `load_mjcf` makes of it.

    model: a model of this MJCF with locked, omitted or mimic joints; None for one with all joints free. Equalities that do not
    constrain it, name a part that it omits, or are implied by its mimic joints are left out; its bodies at rest count as world.
    Unsupported equalities are listed in the model's `notes`.

    Raises MJCFError if the MJCF cannot be compiled; ValueError for an equality that couples a moving joint of ``model`` to a
    locked one (unless mimic = "lock" locked it), or that fixes the only joint of one degree of freedom; ModuleNotFoundError
    without the package mujoco.

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
    single = [names.joints[j] for j in range(m.njnt) if joint_kind(m, j) in ("revolute", "prismatic")]
    single = [name for name in single if model is None or name in model.joint_names]

    def bound(equality: Equality) -> Constraint | None:
        """Constraint of an equality; None if it constrains nothing in ``model``, or only as the model's coupling does."""
        if equality.kind == "joint":
            return _relation(equality, single, model)
        first, second = (m.body_weldid[side.body] for side in equality.sides)
        if first == second:  # two frames of one body cannot move apart
            return None
        return _for_model(placed(equality), model)

    def placed(equality: Equality) -> Constraint:
        """Loop of points (connect) or frames (weld), or a contact of the moving body if the other one is fixed in the MJCF."""
        first, second = equality.sides
        if not moves(m, first.body):
            first, second = second, first
        fixed = None if moves(m, second.body) else _world_pose(second, R, p)
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
    return tuple(one for one in found if one is not None)


def _for_model(constraint: Constraint, model: Model | None) -> Constraint | None:
    """Constraint of the whole robot's points or frames as one of ``model``; unchanged without a model.

    A loop with one side on a body at rest becomes a contact of the other side. None if a frame is not in the model (of an omitted
    tree), or if the constraint is within one body or on bodies at rest only.
    """
    if model is None:
        return constraint
    frames = {frame.name: frame for frame in model.frames}
    if isinstance(constraint, PointContact | FrameContact):
        tied = [constraint.frame]
    else:
        tied = [constraint.frame_a, constraint.frame_b] if isinstance(constraint, PointLoop | FrameLoop) else []
    if not set(tied) <= set(frames):
        return None  # its tree is not part of the model
    bodies = [frames[name].body for name in tied]
    if set(bodies) == {-1} or (len(bodies) == 2 and bodies[0] == bodies[1]):
        return None
    if -1 not in bodies:
        return constraint
    still = bodies.index(-1)
    frame, other = frames[tied[still]], tied[1 - still]
    if isinstance(constraint, PointLoop):
        offsets = constraint.offset_a, constraint.offset_b
        at = frame.p + frame.R @ np.array(offsets[still])
        return PointContact(other, offsets[1 - still], tuple(at.tolist()), constraint.gains, constraint.name)
    return FrameContact(other, pose_numbers(frame.R, frame.p), constraint.gains, constraint.name)


def _relation(equality: Equality, single: list[str], model: Model | None) -> JointRelation | None:
    """Joint relation of an equality of one or two joints; None if one of them is not in ``single``, or if ``model`` implies it.

    single: names of the model's joints of one degree of freedom. An equality of one joint fixes it (:func:`_fixed`). Raises
    ValueError for an equality that couples a moving joint of ``model`` to a locked one, unless mimic = "lock" locked it, and for
    one that fixes the only joint of one degree of freedom.
    """
    joint, source = equality.joints
    follower = equality.follower
    if follower is None:
        return _fixed(equality, single) if joint in single else None
    if joint not in single or source not in single:
        _refuse_locked(equality, single, model)
        return None
    relation = JointRelation(joint, source, follower.multiplier, follower.offset, equality.gains, equality.name)
    return None if model is not None and _is_implied(relation, model) else relation


def _fixed(equality: Equality, single: list[str]) -> JointRelation:
    """Relation that holds the equality's first joint at a constant: zero times another joint of ``single``, plus the constant.

    single: names of the joints of one degree of freedom. Raises ValueError if it has no other joint.
    """
    joint, at = equality.joints[0], equality.references[0] + equality.polynomial[0]
    others = [name for name in single if name != joint]
    if not others:
        raise ValueError(
            f"the equality {equality.name!r} holds the joint {joint!r}, the only single one, at {at:g}: lock it, "
            f"load_mjcf(..., locked={{{joint!r}: {at:g}}})"
        )
    return JointRelation(joint, others[0], 0.0, at, equality.gains, equality.name)


def _refuse_locked(equality: Equality, single: list[str], model: Model | None) -> None:
    """Raise ValueError if one of the equality's two joints is locked in ``model`` and the other moves.

    single: names of the joints of one degree of freedom that move. Does nothing without a model, or if the model's notes say that
    `mimic="lock"` locked the first joint because of this equality.
    """
    if model is None or locked_instead(equality.name, equality.joints[0]) in model.notes:
        return
    there = {frame.name for frame in model.frames}  # includes the frames of locked joints, not those of omitted trees
    for locked, other in (equality.joints, equality.joints[::-1]):
        if other in single and locked not in single and locked in there:
            raise ValueError(
                f"the equality {equality.name!r} ties the joint {other!r} to {locked!r}, which is locked: lock {other!r} too, "
                f"where the equality holds, or leave {locked!r} free"
            )


def _is_implied(relation: JointRelation, model: Model) -> bool:
    """True if a model's coupling (its mimic joints) implies a relation of joints, up to 1e-12; False without a coupling."""
    coupling = model.coupling
    if coupling is None:
        return False
    a, b = (model.dofs(model.joint_id(name))[0] for name in (relation.joint, relation.source))
    implied = relation.multiplier * np.array([coupling.multiplier[b], coupling.offset[b]]) + [0.0, relation.offset]
    own = [coupling.multiplier[a], coupling.offset[a]]
    return bool(coupling.source[a] == coupling.source[b] and np.allclose(own, implied, rtol=1e-12, atol=1e-12))


def _world_pose(place: Place, R: Array, p: Array) -> tuple[float, ...]:
    """Pose (7,) in the world, position [m] and quaternion x y z w, of a frame on a body at rest.

    R (nbody, 3, 3), p (nbody, 3) [m]: poses of all bodies in the world.
    """
    return pose_numbers(R[place.body] @ np.asarray(place.R), R[place.body] @ place.p + p[place.body])


def pose_numbers(R: Array, p: Array) -> tuple[float, ...]:
    """Pose (7,), position p (3,) [m] and unit quaternion x y z w, w not negative, of a rotation R (3, 3)."""
    from scipy.spatial.transform import Rotation

    return (*p.tolist(), *Rotation.from_matrix(R).as_quat(canonical=True).tolist())
