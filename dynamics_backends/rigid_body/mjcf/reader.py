"""Conversion of an MjModel to a model: bodies, joints and frames.

A body with several joints becomes a chain of bodies without mass, "BODY:JOINT" for all joints but the last.  A joint about an
anchor a, along an axis n, with the reference r, has in MuJoCo the pose

    hinge   T(a) Rot(n, q - r) T(-a)        slide   T(n (q - r))        ball   T(a) Rot(q) T(-a)

in the body as moved by the preceding joints; the constant rotation or shift by -r is part of the joint's placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.mjcf.actuators import Actuator, actuators, effort_limit, effort_limits
from dynamics_backends.rigid_body.mjcf.contact_points import ends, tip
from dynamics_backends.rigid_body.mjcf.equalities import weld_frames
from dynamics_backends.rigid_body.mjcf.source import MJCFError, Names, enabled, joint_bodies, joint_kind, rotation
from dynamics_backends.rigid_body.model.joint_spec import JointSpec
from dynamics_backends.rigid_body.model.model import Model, root_joint
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder
from dynamics_backends.rigid_body.spatial.rotations import unit_axis


class Reader:
    """Reader of an MjModel that builds models body by body."""

    def __init__(self, simulated: Any, names: Names) -> None:
        self.m, self.names = simulated, names
        self.joints = joint_bodies(simulated)
        self.actuators = actuators(simulated, names)
        self.efforts = effort_limits(simulated, names, self.actuators)
        self.bodies: set[int] = set()

    def trees(self, which: str) -> frozenset[int]:
        """Root bodies of the trees that belong to the model."""
        m = self.m
        everything = frozenset(m.body_rootid[1:].tolist())
        if which == "all":
            return everything
        jointed = set(m.body_rootid[m.jnt_bodyid].tolist())
        driven = {int(m.body_rootid[b]) for actuator in self.actuators for b in actuator.bodies} & jointed
        return everything - jointed | (driven or {self._root(jointed)})

    def without(self, selected: frozenset[int]) -> list[str]:
        """Note on the trees that are not selected."""
        names = [self.names.bodies[root] for root in sorted(self.trees("all") - selected)]
        return [f"ignored, because no actuator drives them: {', '.join(names)}"] if names else []

    def model(self, base: str | None, selected: frozenset[int]) -> Model:
        """Build the model of the selected trees; base: None for that of the file, "fixed" or "floating"."""
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
        """Root body of the tree with the most degrees of freedom, the first of several."""
        m = self.m
        counts = np.bincount(m.body_rootid[m.dof_bodyid], minlength=m.nbody)
        return max(sorted(roots), key=lambda root: counts[root])

    def _float(self, builder: ModelBuilder, body: int, joints: list[int]) -> None:
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
        """Add a body with its inertia at a pose (p, R) in its parent. parent: default: that of the file."""
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
        """Add a body and its joints; all joints but the last move a body without mass."""
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
        """Constant shift (3,) and rotation (3, 3) of a body by a joint's reference, in the body's frame."""
        m, kind = self.m, joint_kind(self.m, j)
        r, axis, a = float(m.qpos0[m.jnt_qposadr[j]]), m.jnt_axis[j], np.array(m.jnt_pos[j])
        if kind == "prismatic":
            return -r * unit_axis(axis), np.eye(3)
        if kind != "revolute" or r == 0.0:
            return np.zeros(3), np.eye(3)
        turn = rotation(np.array([np.cos(0.5 * r), *(-np.sin(0.5 * r) * unit_axis(axis))]))
        return a - turn @ a, turn

    def _joint_spec(self, j: int) -> JointSpec:
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
        if not enabled(self.m, "PASSIVE", "DAMPER"):
            return 0.0
        return float(self.m.dof_damping[d]) + sum(a.damping for a in added)

    def _add_frames(self, builder: ModelBuilder) -> None:
        """Add named sites, the tips of bodies without children, and the two frames of each weld."""
        m, names = self.m, self.names
        for i, name in enumerate(names.sites):
            body = int(m.site_bodyid[i])
            if name:
                name = f"{name}_site" if name in names.bodies else name
                self._add_frame(builder, name, body, m.site_pos[i], rotation(m.site_quat[i]))
        for body in ends(m):
            found = tip(m, names, body) if body in self.bodies else None
            if found is not None:
                self._add_frame(builder, found.name, found.body, found.p, np.eye(3), "contact")
        for place in weld_frames(m, names):
            self._add_frame(builder, place.name, place.body, place.p, place.R)

    def _add_frame(self, builder: ModelBuilder, name: str, body: int, p, R, kind: str = "user") -> None:
        if body not in self.bodies:
            return
        parent = self.names.bodies[body] if body else None
        builder.add_frame(name, parent, xyz=p, R=R, kind=kind)


def _symmetric(inertia: np.ndarray) -> np.ndarray:
    return 0.5 * (inertia + inertia.T)
