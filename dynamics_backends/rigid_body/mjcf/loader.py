"""Loader of robots and reference postures from MJCF files, the format of MuJoCo.

Every body, joint and named site becomes a frame, as do the tips of bodies without moving children and both frames of each weld;
bodies without joints are merged into their parents.  q is MuJoCo's qpos in the model's conventions: joints have the zero of the
file (`ref`), quaternions are x y z w, and velocities of a free joint are in the body's axes
(:mod:`~dynamics_backends.rigid_body.mjcf.mujoco_states`).

A body with several joints becomes a chain: a body without mass, "BODY:JOINT", for each joint but the last, then the body itself
with the last joint.  A joint about an anchor a, along an axis n, with the reference r, has in MuJoCo the pose

    hinge   T(a) Rot(n, q - r) T(-a)        slide   T(n (q - r))        ball   T(a) Rot(q) T(-a)

in the body as moved by the preceding joints; the constant rotation or shift by -r is part of the joint's placement.

Ignored elements, and differences of the equations of motion from MuJoCo's, are listed in the model's `notes`.  Named keyframes
are the reference postures, and excluded body pairs the disabled collisions, in the form of an SRDF (:func:`mjcf_postures`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.mjcf.contact_points import leaf_bodies, tip
from dynamics_backends.rigid_body.mjcf.elements import (
    Actuator,
    Place,
    actuators,
    effort_limit,
    effort_limits,
    followers,
    locked_instead,
    weld_frames,
)
from dynamics_backends.rigid_body.mjcf.notes import differences, left_out
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
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model, root_joint
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder, lock_joints
from dynamics_backends.rigid_body.spatial.rotations import unit_axis
from dynamics_backends.rigid_body.urdf.mimic import couple
from dynamics_backends.rigid_body.urdf.srdf import SRDF
from dynamics_backends.rigid_body.urdf.xml_source import FARTHEST, LARGEST


class Reader:
    """Reader of an MjModel that builds models body by body."""

    def __init__(self, simulated: Any, names: Names) -> None:
        self.m, self.names = simulated, names
        self.joints = joint_bodies(simulated)
        self.actuators = actuators(simulated, names)
        self.efforts = effort_limits(simulated, names, self.actuators)
        self.bodies: set[int] = set()

    def trees(self, which: str) -> frozenset[int]:
        """Root bodies of the file's trees.

        which: "all", or "driven": trees with an actuator (if there are none, the tree with the most degrees of freedom), and all
        trees without joints.
        """
        m = self.m
        everything = frozenset(m.body_rootid[1:].tolist())
        if which == "all":
            return everything
        jointed = set(m.body_rootid[m.jnt_bodyid].tolist())
        driven = {int(m.body_rootid[b]) for actuator in self.actuators for b in actuator.bodies} & jointed
        return everything - jointed | (driven or {self._root(jointed)})

    def ignored_trees_note(self, selected: frozenset[int]) -> list[str]:
        """List with one note, the root bodies of the trees that are not selected; empty if all are selected."""
        names = [self.names.bodies[root] for root in sorted(self.trees("all") - selected)]
        return [f"ignored, because no actuator drives them: {', '.join(names)}"] if names else []

    def fixed_base_note(self, selected: frozenset[int]) -> list[str]:
        """List with one note, on the free joint that base = "fixed" makes rigid; empty if the root body has none."""
        free = [j for j in self.joints.get(self._root(selected), []) if joint_kind(self.m, j) == "floating"]
        return [f"the free joint {self.names.joints[j]!r} is rigid, at its pose in the file" for j in free]

    def model(self, base: str | None, selected: frozenset[int]) -> Model:
        """Build the model of the selected trees.

        base: None keeps the joints of the file. "fixed" and "floating" change the root body of the selected tree with the most
        degrees of freedom: "fixed" makes its free joint, if it has one, rigid; "floating" gives it a free joint if it has none.
        Raises MJCFError if "floating" finds other joints there.
        """
        m, builder = self.m, ModelBuilder(self.names.robot)
        root = self._root(selected) if base is not None else -1
        self.bodies = {0, *(b for b in range(1, m.nbody) if int(m.body_rootid[b]) in selected)}
        for body in sorted(self.bodies - {0}):
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

    def _root(self, roots: Iterable[int]) -> int:
        """Root body of the tree with the most degrees of freedom among ``roots``; of equal ones, the first in the file."""
        m = self.m
        counts = np.bincount(m.body_rootid[m.dof_bodyid], minlength=m.nbody)
        return max(sorted(roots), key=lambda root: counts[root])

    def _float(self, builder: ModelBuilder, body: int, joints: list[int]) -> None:
        """Add the root body with a free joint, its pose in the world. Raises MJCFError if the file gives it other joints."""
        if joints:
            moved = ", ".join(self.names.joints[j] for j in joints)
            raise MJCFError(
                f"the root body {self.names.bodies[body]!r} of {self.names.robot!r} moves by the joints {moved}, not freely: "
                "give it a <freejoint/> in their place, or load the robot with its own base"
            )
        self._add(builder, body, JointSpec("floating", name=root_joint(self.names.joints)), np.zeros(3), np.eye(3))

    def _add(
        self, builder: ModelBuilder, body: int, joint: JointSpec, p, R, parent: str | None = None, anchor=(0, 0, 0)
    ):
        """Add a body with its inertia at a pose (p, R) in its parent, default that of the file.

        anchor: position [m] of the joint in the body's frame.
        """
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
        """Add a body and its joints: each joint but the last moves an added body without mass, the last one the body.

        A free joint is the only joint of its body, whose coordinates are then its pose in the world.
        """
        m, names = self.m, self.names
        above = int(m.body_parentid[body])
        parent = names.bodies[above] if above else None
        p, R = np.array(m.body_pos[body]), rotation(m.body_quat[body])
        for j in joints:
            spec, anchor = self._joint_spec(j), np.array(m.jnt_pos[j])
            if spec.kind == "floating":  # the coordinates are the pose in the world
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
        """Constant shift (3,) [m] and rotation (3, 3) of a body by minus a joint's reference, in the body's frame.

        They are zero and identity for ball and free joints.
        """
        m, kind = self.m, joint_kind(self.m, j)
        r, axis, a = float(m.qpos0[m.jnt_qposadr[j]]), m.jnt_axis[j], np.array(m.jnt_pos[j])
        if kind == "prismatic":
            return -r * unit_axis(axis), np.eye(3)
        if kind != "revolute" or r == 0.0:
            return np.zeros(3), np.eye(3)
        turn = rotation(np.array([np.cos(0.5 * r), *(-np.sin(0.5 * r) * unit_axis(axis))]))
        return a - turn @ a, turn

    def _joint_spec(self, j: int) -> JointSpec:
        """Joint number j with its limits, damping, friction, rotor inertia and spring; parts that the file disables are left out.

        Damping and rotor inertia of its actuators are added to those of the joint; the effort limit is that of
        :func:`effort_limits`. Limits and springs of ball and free joints are ignored.
        """
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
            armature=float(m.dof_armature[d]) + sum(a.armature for a in added),
            stiffness=float(m.jnt_stiffness[j]) if single and enabled(m, "PASSIVE", "SPRING") else 0.0,
            spring_reference=float(m.qpos_spring[m.jnt_qposadr[j]]) if single else 0.0,
        )

    def _damping(self, d: int, added: list[Actuator]) -> float:
        """Damping of DoF d plus that of the actuators ``added``; 0 if the file disables passive forces or dampers."""
        if not enabled(self.m, "PASSIVE", "DAMPER"):
            return 0.0
        return float(self.m.dof_damping[d]) + sum(a.damping for a in added)

    def _add_frames(self, builder: ModelBuilder) -> None:
        """Add frames at named sites, at the tips of bodies without moving children, and the two frames of each supported weld.

        A site with the name of a body becomes NAME_site.
        """
        m, names = self.m, self.names
        for i, name in enumerate(names.sites):
            body = int(m.site_bodyid[i])
            if name:
                name = f"{name}_site" if name in names.bodies else name
                self._add_frame(builder, Place(name, body, rotation(m.site_quat[i]), m.site_pos[i]))
        tips = (tip(m, names, body) for body in leaf_bodies(m) if body in self.bodies)
        for place in filter(None, tips):
            self._add_frame(builder, place, "contact")
        for place in weld_frames(m, names):
            self._add_frame(builder, place)

    def _add_frame(self, builder: ModelBuilder, place: Place, kind: str = "user") -> None:
        """Add a frame on a body (0: the world) if the body belongs to the model."""
        if place.body in self.bodies:
            parent = self.names.bodies[place.body] if place.body else None
            builder.add_frame(place.name, parent, xyz=place.p, R=place.R, kind=kind)


def _symmetric(inertia: np.ndarray) -> np.ndarray:
    return 0.5 * (inertia + inertia.T)


__all__ = ["MJCFError", "MJCFWarning", "load_mjcf"]

BASES, TREES, MIMICS = ("fixed", "floating"), ("all", "driven"), ("free", "lock", "follow")


def load_mjcf(
    source: str | os.PathLike,
    *,
    base: str | None = None,
    trees: str | None = None,
    mimic: str = "free",
    gravity=None,
    armature: float | Mapping[str, float] | None = None,
    locked: Iterable[str] | Mapping[str, float] = (),
    strict: bool = False,
) -> Model:
    """Return the model of an MJCF file, or of MJCF text that starts with "<"; the package mujoco reads it (extra "sim").

    base: None uses the base of the file. "fixed" and "floating" concern the root body of the selected tree with the most degrees
    of freedom: its free joint, if it has one, is rigid ("fixed"), or it gets a free joint if it has no joint ("floating").
    trees: "all" trees of the file, the default if base is None; or "driven", the default with another base: trees with an
    actuator (if there are none, the tree with the most degrees of freedom) and trees without joints. So objects without an
    actuator are not part of the robot. Ignored trees are listed in the notes.
    mimic: joints that an <equality> makes affine functions of another joint are independent ("free"; `mjcf_constraints` returns
    the equalities), rigid at the value for which the other joint is zero ("lock"), or follow by the model's `coupling`
    ("follow").
    gravity: (3,) [m/s^2], by default the file's.
    armature: rotor inertia at the joint [kg m^2, or kg], one value for all joints of one degree of freedom, or values by the
    names of such joints; by default the file's, including that of the actuators.
    locked: joints made rigid, at these values [rad, m] or 0 for names only, by names or patterns ("*finger*").
    strict: raise MJCFError instead of an MJCFWarning, for elements that make the robot move differently in MuJoCo.

    The model's effort limits are those of actuators and joints. Its `notes` list ignored elements, differences from MuJoCo's
    equations of motion, and warnings of MuJoCo's compiler.

    Raises MJCFError, with MuJoCo's message on file, element and line, for a file that is not a valid robot, and for a "floating"
    base whose root body has other joints; ModuleNotFoundError without the package mujoco; UnknownName for an unknown joint in
    `armature` or `locked`; ValueError for a wrong option, and for `locked` if joints follow others.
    """
    for option, value, known in (
        ("base", base, (None, *BASES)),
        ("trees", trees, (None, *TREES)),
        ("mimic", mimic, MIMICS),
    ):
        if value not in known:
            raise ValueError(f"{option} is {value!r}; choose one of {', '.join(name for name in known if name)}")
    simulated, said = compiled(source)
    names, where = Names(simulated, source), source_path(source) or "MJCF text"
    if not simulated.njnt:
        raise MJCFError(f"{where}: no body of {names.robot!r} has a joint, so that nothing can move: give it a <joint>")
    _check_numbers(where, simulated, names)
    read = Reader(simulated, names)
    try:
        model = read.model(None, read.trees("all"))
    except MJCFError:
        raise
    except ValueError as error:
        raise MJCFError(f"{where}: {error}") from error
    different = differences(model, simulated, names)
    selected = read.trees(trees or ("all" if base is None else "driven"))
    if base is not None or selected != read.trees("all"):
        model = read.model(base, selected)
    model = _with_armature(model, armature)
    following, ties = followers(simulated, names)
    tied = {j: f for j, f in following.items() if mimic != "free" and {j, f.source} <= set(model.joint_names)}
    model = _with_mimic_joints(model, tied, mimic)
    if locked:
        model = lock_joints(model, locked)
    satisfied = [ties[joint] for joint in tied]
    moving, other_notes = left_out(simulated, names, read.actuators, model.joint_names, satisfied)
    moving, other_notes = [*moving, *different], [*other_notes, *read.ignored_trees_note(selected)]
    other_notes += read.fixed_base_note(selected) if base == "fixed" else []
    if mimic == "lock":
        other_notes += [locked_instead(ties[joint], joint) for joint in tied]
    if gravity is not None:
        model = model.with_gravity(gravity)
    if moving:
        _warn(where, names.robot, moving, strict)
    return replace(
        model, source=source_path(source), notes=(*moving, *other_notes, *(f"MuJoCo says: {s}" for s in said))
    )


def _check_numbers(where: str, simulated: Any, names: Names) -> None:
    """Raise MJCFError for numbers that are not finite or too large, as in a URDF.

    These are positions and joint axes beyond FARTHEST, and masses and principal inertias beyond LARGEST.
    """
    m = simulated
    checks = (
        ("body", m.body_pos, FARTHEST, "lies at", "m"),
        ("body", m.body_ipos, FARTHEST, "has its center of mass at", "m"),
        ("body", m.body_mass[:, None], LARGEST, "has the mass", "kg"),
        ("body", m.body_inertia, LARGEST, "has the principal inertias", "kg m^2"),
        ("joint", m.jnt_pos, FARTHEST, "lies at", "m"),
        ("joint", m.jnt_axis, FARTHEST, "has the axis", ""),
        ("geom", m.geom_pos, FARTHEST, "lies at", "m"),
    )
    by_kind = {"body": names.bodies, "joint": names.joints, "geom": names.geoms}
    for kind, values, largest, what, unit in checks:
        wrong = np.flatnonzero(~(np.abs(values) <= largest).all(axis=1))
        if len(wrong):
            found = f"{values[wrong[0]].tolist()} {unit}".rstrip()
            raise MJCFError(
                f"{where}: {kind} {by_kind[kind][wrong[0]]!r} {what} {found}: give finite numbers of at most {largest:.0e}"
            )


def _warn(where: str, robot: str, sentences: list[str], strict: bool) -> None:
    """Warn of elements that make the robot move differently in MuJoCo; raises MJCFError instead if ``strict``."""
    message = f"{where}, robot {robot!r}, moves otherwise here than in MuJoCo:" + "".join(f"\n  {s}" for s in sentences)
    if strict:
        raise MJCFError(f"{message}\nCorrect the file, or load it without strict=True")
    warnings.warn(message, MJCFWarning, stacklevel=3)


def _with_armature(model: Model, armature: float | Mapping[str, float] | None) -> Model:
    """Model with other rotor inertias, for all joints of one degree of freedom or by the names of such joints; None: unchanged.

    Raises UnknownName for another joint, ValueError for a negative or infinite value.
    """
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


def _with_mimic_joints(model: Model, tied: Mapping[str, Any], mimic: str) -> Model:
    """Model whose coupled joints ``tied`` are locked at their offsets (mimic = "lock"), else follow by its coupling ("follow").

    Unchanged without coupled joints.
    """
    if not tied:
        return model
    if mimic == "lock":
        return lock_joints(model, {name: follower.offset for name, follower in tied.items()})
    return model.replace(coupling=couple(model, dict(tied)))


GROUP = "keyframe"


def mjcf_postures(source: str | os.PathLike) -> SRDF:
    """Named keyframes as postures (group "keyframe"), and excluded body pairs as disabled collisions, of an MJCF file or text.

    Raises MJCFError for an invalid MJCF, ModuleNotFoundError without the package mujoco.
    """
    m = compiled(source).simulated
    names = Names(m, source)
    postures = {(GROUP, m.key(k).name): _posture(m, names, k) for k in range(m.nkey) if m.key(k).name}
    pairs = [divmod(int(signature), 1 << 16) for signature in m.exclude_signature]
    disabled = [(names.bodies[a], names.bodies[b], "exclude") for a, b in pairs]
    return SRDF(str(source), names.robot, postures, tuple(disabled))


def _posture(m: Any, names: Names, key: int) -> dict[str, tuple[float, ...]]:
    """Coordinates of each joint in keyframe number ``key`` by the joint's name, with quaternions as x y z w."""
    posture = {}
    for j, name in enumerate(names.joints):
        nq, nv = JOINT_TYPES[joint_kind(m, j)]
        values = m.key_qpos[key][m.jnt_qposadr[j] :][:nq].tolist()
        posture[name] = (*values[:-4], *values[-3:], values[-4]) if nq > nv else tuple(values)
    return posture
