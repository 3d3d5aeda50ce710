"""Loads a robot from an MJCF file, the format of MuJoCo.

Every body, joint and named site becomes a frame; bodies without joints are merged into their parents.  q is MuJoCo's qpos in the
model's conventions: joints keep their zero (`ref`), quaternions are x y z w, and velocities of a free joint are those in the body's
axes (:mod:`~dynamics_backends.rigid_body.model.mujoco_states`).

A body with several joints becomes a chain of bodies without mass, "BODY:JOINT" for all joints but the last.  A joint about an
anchor a, along an axis n, with the reference r, has in MuJoCo the pose

    hinge   T(a) Rot(n, q - r) T(-a)        slide   T(n (q - r))        ball   T(a) Rot(q) T(-a)

in the body that the joints before it have moved; the constant turn or shift by -r belongs to the joint's place.

What a model does not hold stands in its `notes`.  Mass matrix, bias and passive forces are compared with MuJoCo's, so that what
nobody thought of is told too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.mjcf.actuators import Actuator, actuators, effort_limit, effort_limits
from dynamics_backends.rigid_body.mjcf.comparison import differences
from dynamics_backends.rigid_body.mjcf.contact_points import ends, tip
from dynamics_backends.rigid_body.mjcf.equalities import followers, weld_frames
from dynamics_backends.rigid_body.mjcf.left_out import left_out
from dynamics_backends.rigid_body.mjcf.source import (
    MJCFError,
    MJCFWarning,
    Names,
    compiled,
    enabled,
    joint_bodies,
    joint_kind,
    rotation,
    source_path,
)
from dynamics_backends.rigid_body.model.joint_spec import JointSpec
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder, lock_joints
from dynamics_backends.rigid_body.spatial.rotations import unit_axis
from dynamics_backends.rigid_body.urdf.mimic import couple

__all__ = ["MJCFError", "MJCFWarning", "load_mjcf"]

ROOT_JOINT = "root_joint"
"""The joint that `base="floating"` adds, named as that of a URDF."""
BASES, MIMICS = ("fixed", "floating"), ("free", "lock", "follow")


def load_mjcf(
    source: str | os.PathLike,
    *,
    base: str | None = None,
    mimic: str = "free",
    gravity=None,
    armature: float | Mapping[str, float] | None = None,
    locked: Iterable[str] | Mapping[str, float] = (),
    strict: bool = False,
) -> Model:
    """Return the model of an MJCF file, or of MJCF text that starts with "<"; the package mujoco reads it (extra "sim").

    base: None as the file has it; "fixed": the free joint of the root body of the largest tree, where it has one, is rigid;
    "floating": that body gets one where it has no joint.
    mimic: joints that an <equality> of joints ties to others are independent ("free"; `mjcf_constraints` has the equalities), rigid
    where the equality holds with the other joint at zero ("lock"), or follow by the model's `coupling` ("follow").
    gravity: (3,) [m/s^2], by default the file's.
    armature: rotor inertia at the joint [kg m^2, or kg], for all joints of one degree of freedom or by joint name; by default the
    file's, that of the actuators included.
    locked: joints made rigid, at these values [rad, m] or by name alone at 0.
    strict: raise for what is otherwise an MJCFWarning: what makes the robot move otherwise than in MuJoCo.

    The model's effort limits are those of actuators and joints, its `notes` tell what it does not hold.

    Raises MJCFError, with MuJoCo's words on file, element and line, for what cannot be a robot; ModuleNotFoundError without the
    package mujoco; UnknownName for an unknown joint in `armature` or `locked`; ValueError for a wrong option.
    """
    if base not in (None, *BASES) or mimic not in MIMICS:
        wrong, known = ("mimic", MIMICS) if base in (None, *BASES) else ("base", BASES)
        raise ValueError(f"{wrong} is {base if wrong == 'base' else mimic!r}; choose one of {', '.join(known)}")
    simulated, said = compiled(source)
    names, where = Names(simulated, source), source_path(source) or "MJCF text"
    if not simulated.njnt:
        raise MJCFError(f"{where}: no body of {names.robot!r} has a joint, so that nothing can move: give it a <joint>")
    read = _Reader(simulated, names)
    model = read.model(None)
    moving, told = left_out(simulated, names, read.actuators)
    moving = [*moving, *differences(model, simulated, names)]
    if base is not None:
        model = read.model(base)
    model = _with_armature(model, armature)
    model = _tied(model, followers(simulated, names)[0], mimic)
    if locked:
        model = lock_joints(model, locked)
    if gravity is not None:
        model = model.with_gravity(gravity)
    if moving:
        _warn(where, names.robot, moving, strict)
    return replace(model, source=source_path(source), notes=(*moving, *told, *(f"MuJoCo says: {s}" for s in said)))


def _warn(where: str, robot: str, sentences: list[str], strict: bool) -> None:
    message = f"{where}, robot {robot!r}, moves otherwise here than in MuJoCo:" + "".join(f"\n  {s}" for s in sentences)
    if strict:
        raise MJCFError(f"{message}\nCorrect the file, or load it without strict=True")
    warnings.warn(message, MJCFWarning, stacklevel=3)


def _with_armature(model: Model, armature: float | Mapping[str, float] | None) -> Model:
    if armature is None:
        return model
    single = [name for b, name in enumerate(model.joint_names) if len(model.dofs(b)) == 1]
    values = armature if isinstance(armature, Mapping) else dict.fromkeys(single, armature)
    changed = np.array(model.armature)
    for name, value in values.items():
        if name not in single:
            raise unknown_name("joint of one degree of freedom", name, single)
        if not 0 <= value < np.inf:
            raise ValueError(f"the armature of joint {name!r} is {value}: give a finite number, not negative")
        changed[model.dofs(model.joint_id(name))] = value
    return model.replace(armature=changed)


def _tied(model: Model, tied: Mapping[str, Any], mimic: str) -> Model:
    if mimic == "free" or not tied:
        return model
    if mimic == "lock":
        return lock_joints(model, {name: follower.offset for name, follower in tied.items()})
    return model.replace(coupling=couple(model, dict(tied)))


class _Reader:
    """An MjModel as a model, body by body."""

    def __init__(self, simulated: Any, names: Names) -> None:
        self.m, self.names = simulated, names
        self.joints = joint_bodies(simulated)
        self.actuators = actuators(simulated, names)
        self.efforts = effort_limits(simulated, names, self.actuators)

    def model(self, base: str | None) -> Model:
        """The model with its base as the file has it, "fixed" or "floating"."""
        m, builder = self.m, ModelBuilder(self.names.robot)
        root = self._root() if base is not None else -1
        for body in range(1, m.nbody):
            joints = self.joints.get(body, [])
            free = len(joints) == 1 and joint_kind(m, joints[0]) == "floating"
            if body == root and base == "floating" and not free:
                self._float(builder, body, joints)
            elif not joints or (body == root and base == "fixed" and free):
                self._add(builder, body, JointSpec("fixed"), m.body_pos[body], rotation(m.body_quat[body]))
            else:
                self._add_jointed(builder, body, joints)
        self._add_frames(builder)
        gravity = m.opt.gravity if enabled(m, "GRAVITY") else np.zeros(3)
        return builder.build(gravity)

    def _root(self) -> int:
        """The body below the world whose tree has the most degrees of freedom, the first of several."""
        m = self.m
        counts = np.bincount(m.body_rootid[m.dof_bodyid], minlength=m.nbody)
        return int(np.argmax(counts))

    def _float(self, builder: ModelBuilder, body: int, joints: list[int]) -> None:
        if joints:
            moved = ", ".join(self.names.joints[j] for j in joints)
            raise MJCFError(
                f"the root body {self.names.bodies[body]!r} of {self.names.robot!r} moves by the joints {moved}, not freely: "
                "give it a <freejoint/> in their place, or load the robot with its own base"
            )
        self._add(builder, body, JointSpec("floating", name=ROOT_JOINT), np.zeros(3), np.eye(3))

    def _add(
        self, builder: ModelBuilder, body: int, joint: JointSpec, p, R, parent: str | None = None, anchor=(0, 0, 0)
    ):
        m, names = self.m, self.names
        above = int(m.body_parentid[body])
        turn = rotation(m.body_iquat[body])
        builder.add_body(
            names.bodies[body],
            parent or (names.bodies[above] if above else None),
            joint,
            xyz=p,
            R=R,
            anchor=anchor,
            mass=float(m.body_mass[body]),
            com=m.body_ipos[body],
            inertia=_symmetric(turn @ np.diag(m.body_inertia[body]) @ turn.T),
        )

    def _add_jointed(self, builder: ModelBuilder, body: int, joints: list[int]) -> None:
        """A body behind its joints, all but the last of which move a body without mass."""
        m, names = self.m, self.names
        above = int(m.body_parentid[body])
        parent = names.bodies[above] if above else None
        p, R = np.array(m.body_pos[body]), rotation(m.body_quat[body])
        for j in joints:
            spec, anchor = self._spec(j), np.array(m.jnt_pos[j])
            if spec.kind == "floating":  # its coordinates are the pose in the world
                self._add(builder, body, spec, np.zeros(3), np.eye(3))
                return
            shift, turn = self._reference(j)
            p, R = p + R @ shift, R @ turn
            if j == joints[-1]:
                self._add(builder, body, spec, p, R, parent, anchor)
                return
            between = f"{names.bodies[body]}:{names.joints[j]}"
            builder.add_body(between, parent, spec, xyz=p, R=R, anchor=anchor)
            parent, p, R = between, np.zeros(3), np.eye(3)

    def _reference(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The constant shift (3,) and turn (3, 3) of a body by a joint's reference, in its own frame."""
        m, kind = self.m, joint_kind(self.m, j)
        r, axis, a = float(m.qpos0[m.jnt_qposadr[j]]), m.jnt_axis[j], np.array(m.jnt_pos[j])
        if kind == "prismatic":
            return -r * unit_axis(axis), np.eye(3)
        if kind != "revolute" or r == 0.0:
            return np.zeros(3), np.eye(3)
        turn = rotation(np.array([np.cos(0.5 * r), *(-np.sin(0.5 * r) * unit_axis(axis))]))
        return a - turn @ a, turn

    def _spec(self, j: int) -> JointSpec:
        m, name, kind = self.m, self.names.joints[j], joint_kind(self.m, j)
        d = int(m.jnt_dofadr[j])
        single = kind in ("revolute", "prismatic")
        limited = single and bool(m.jnt_limited[j]) and enabled(m, "LIMIT")
        lower, upper = m.jnt_range[j].tolist() if limited else (-np.inf, np.inf)
        added = [a for a in self.actuators if a.joint == name]
        return JointSpec(
            kind,
            name=name,
            axis=m.jnt_axis[j] if single else (0.0, 0.0, 1.0),
            q_lower=lower,
            q_upper=upper,
            effort_limit=effort_limit(self.efforts[name]) if name in self.efforts and single else np.inf,
            damping=self._damping(d, added),
            friction=float(m.dof_frictionloss[d]) if enabled(m, "FRICTIONLOSS") else 0.0,
            armature=float(m.dof_armature[d]) + sum(a.armature for a in added) if kind != "floating" else 0.0,
            stiffness=float(m.jnt_stiffness[j]) if single and enabled(m, "PASSIVE", "SPRING") else 0.0,
            spring_reference=float(m.qpos_spring[m.jnt_qposadr[j]]) if single else 0.0,
        )

    def _damping(self, d: int, added: list[Actuator]) -> float:
        if not enabled(self.m, "PASSIVE", "DAMPER"):
            return 0.0
        return float(self.m.dof_damping[d]) + sum(a.damping for a in added)

    def _add_frames(self, builder: ModelBuilder) -> None:
        """Named sites, the tips of bodies without children, and the two places that each weld brings together."""
        m, names = self.m, self.names
        for i, name in enumerate(names.sites):
            body = int(m.site_bodyid[i])
            if name:
                name = f"{name}_site" if name in names.bodies else name
                self._frame(builder, name, body, m.site_pos[i], rotation(m.site_quat[i]))
        for body in ends(m):
            found = tip(m, names, body)
            if found is not None:
                self._frame(builder, found.name, found.body, found.p, np.eye(3), "contact")
        for place in weld_frames(m, names):
            self._frame(builder, place.name, place.body, place.p, place.R)

    def _frame(self, builder: ModelBuilder, name: str, body: int, p, R, kind: str = "user") -> None:
        parent = self.names.bodies[body] if body else None
        builder.add_frame(name, parent, xyz=p, R=R, kind=kind)


def _symmetric(inertia: np.ndarray) -> np.ndarray:
    return 0.5 * (inertia + inertia.T)
