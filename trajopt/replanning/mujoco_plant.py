"""MuJoCo as a plant: an independent simulator, loaded from the URDF of the same robot.

Only the tree, its inertias and its joints are taken from the file; shapes are left out.  Damping and rotor inertia are those of the
model; joint limits and mimic joints are not enforced.  The conventions differ at a floating base:

| | here | MuJoCo |
|---|---|---|
| configuration | p (3), quaternion x y z w | p (3), quaternion w x y z |
| velocity | linear LOCAL, angular LOCAL | linear WORLD, angular LOCAL |
| force | force LOCAL, moment LOCAL | force WORLD, moment LOCAL |
| acceleration | d/dt of the velocity here | d/dt of MuJoCo's: R (a + omega x v) |

Joints are matched by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.replanning.plants import Push, pushed

SHAPES = ("visual", "collision")
EXTRAS = ("gazebo", "transmission", "material", "mujoco")
CONVERTIBLE = ("revolute", "prismatic", "floating")
WORLD, ROOT_JOINT = "world_of_the_plant", "root_joint"
MISSING = "the plant 'mujoco' needs the package mujoco: pip install 'urdf-trajopt[sim]'"
_ROUNDING = 1e-9


def mujoco_urdf(text: str, floating: bool) -> str:
    """The URDF text with what MuJoCo needs for free dynamics: no shapes, a floating joint below the root where wanted."""
    from xml.etree.ElementTree import SubElement, tostring

    from defusedxml.ElementTree import fromstring

    root = fromstring(text)
    for tag in EXTRAS:
        for element in root.findall(tag):
            root.remove(element)
    for link in root.findall("link"):
        for element in [e for e in link if e.tag in SHAPES]:
            link.remove(element)
    if floating:
        children = {joint.find("child").get("link") for joint in root.findall("joint")}
        base = next(link.get("name") for link in root.findall("link") if link.get("name") not in children)
        SubElement(root, "link", name=WORLD)
        joint = SubElement(root, "joint", name=ROOT_JOINT, type="floating")
        SubElement(joint, "parent", link=WORLD)
        SubElement(joint, "child", link=base)
    return tostring(root, encoding="unicode")


class MujocoStates:
    """States of a model in MuJoCo's conventions, and back. Raises ValueError where the robots differ in their joints."""

    def __init__(self, model: Model, simulated: Any) -> None:
        self.nq, self.nv = model.nq, model.nv
        self.floating = model.floating_base
        addresses = {simulated.joint(i).name: i for i in range(simulated.njnt)}
        strange = [
            name for name, kind in zip(model.joint_names, model.joint_types, strict=True) if kind not in CONVERTIBLE
        ]
        if strange or set(addresses) != set(model.joint_names):
            different = strange or sorted(set(addresses) ^ set(model.joint_names))
            raise ValueError(
                f"joints {different} cannot be matched with MuJoCo's; load the same URDF, with the same base"
            )
        q, v = [], []
        for b, name in enumerate(model.joint_names):
            i, width = addresses[name], len(model.dofs(b))
            first = int(simulated.jnt_qposadr[i])
            q += list(range(first, first + (7 if width == 6 else 1)))
            v += list(range(int(simulated.jnt_dofadr[i]), int(simulated.jnt_dofadr[i]) + width))
        self._q, self._v = np.array(q), np.array(v)
        if self.floating:
            self._q[3:7] = self._q[[4, 5, 6, 3]]  # x y z w from w x y z

    def to_mujoco(self, x: Array) -> tuple[Array, Array]:
        """qpos (nq,) and qvel (nv,) of a state x (nq + nv,)."""
        qpos, qvel = np.empty(self.nq), np.empty(self.nv)
        qpos[self._q] = x[: self.nq]
        qvel[self._v] = self._world(x[: self.nq], x[self.nq :])
        return qpos, qvel

    def from_mujoco(self, qpos: Array, qvel: Array) -> Array:
        """The state (nq + nv,) of qpos (nq,) and qvel (nv,)."""
        q, v = qpos[self._q], qvel[self._v]
        if self.floating:
            v[:3] = _rotation(q[3:7]).T @ v[:3]
        return np.concatenate([q, v])

    def force_to_mujoco(self, q: Array, tau: Array) -> Array:
        """Generalized forces (nv,) in MuJoCo's order and axes."""
        force = np.empty(self.nv)
        force[self._v] = self._world(q, tau)
        return force

    def acceleration_from_mujoco(self, x: Array, qacc: Array) -> Array:
        """The time derivative (nv,) of v from that of qvel."""
        a, v = qacc[self._v], x[self.nq :]
        if self.floating:
            a[:3] = _rotation(x[3:7]).T @ a[:3] - np.cross(v[3:6], v[:3])
        return a

    def _world(self, q: Array, v: Array) -> Array:
        v = np.array(v, dtype=float)
        if self.floating:
            v[:3] = _rotation(q[3:7]) @ v[:3]
        return v


def _rotation(quaternion: Array) -> Array:
    """The rotation matrix of a unit quaternion x y z w."""
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def load_mujoco(urdf: str, model: Model) -> Any:
    """MuJoCo's model of the robot of a URDF text, with free dynamics as those of ``model``.

    Raises ModuleNotFoundError without the package, ValueError for a robot that MuJoCo does not take.
    """
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING, name="mujoco") from error
    simulated = mujoco.MjModel.from_xml_string(mujoco_urdf(urdf, model.floating_base))
    states = MujocoStates(model, simulated)
    off = mujoco.mjtDisableBit
    simulated.opt.disableflags |= off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS | off.mjDSBL_EQUALITY | off.mjDSBL_CONTACT
    simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    simulated.opt.gravity[:] = model.gravity
    simulated.dof_damping[states._v], simulated.dof_armature[states._v] = model.damping, model.armature
    return simulated


class MujocoPlant:
    """A robot in MuJoCo, stepped at most ``step`` [s] at a time by RK4.

    forces: (nv, nu) maps the controls u (nu,) of the plan to joint forces (nv,); pushes are added to these. limit: of the controls.
    mass_factor: multiplies all masses and inertias.
    """

    def __init__(
        self,
        urdf: str,
        model: Model,
        x0: Array,
        step: float,
        *,
        forces: Array | None = None,
        pushes: Sequence[Push] = (),
        limit: Array | float = np.inf,
        mass_factor: float = 1.0,
    ) -> None:
        simulated = load_mujoco(urdf, model)
        import mujoco

        self._mujoco, self._model, self._states = mujoco, simulated, MujocoStates(model, simulated)
        self._data = mujoco.MjData(simulated)
        simulated.body_mass *= mass_factor
        simulated.body_inertia *= mass_factor
        mujoco.mj_setConst(simulated, self._data)
        self._forces = np.eye(model.nv) if forces is None else np.asarray(forces, dtype=float)
        self._step, self._pushes, self._limit = step, tuple(pushes), limit
        self._data.qpos[:], self._data.qvel[:] = self._states.to_mujoco(np.asarray(x0, dtype=float))

    def state(self) -> Array:
        """See :class:`~trajopt.replanning.loop.Plant`."""
        return self._states.from_mujoco(self._data.qpos, self._data.qvel)

    def step(self, u: Array, dt: float) -> None:
        """See :class:`~trajopt.replanning.loop.Plant`. Raises ValueError for a control that is not finite."""
        if not np.isfinite(u).all():
            raise ValueError(f"a control is not finite: {u}")
        count = max(1, math.ceil(dt / self._step - _ROUNDING))
        self._model.opt.timestep = dt / count
        force = self._forces @ np.clip(u, -np.asarray(self._limit), self._limit)
        for _ in range(count):
            total = force + pushed(self._pushes, self._data.time, len(force))
            self._data.qfrc_applied[:] = self._states.force_to_mujoco(self.state()[: self._states.nq], total)
            self._mujoco.mj_step(self._model, self._data)

    def acceleration(self, x: Array, tau: Array) -> Array:
        """The acceleration (nv,) in the state x (nq + nv,) under joint forces tau (nv,); the plant's own state is kept."""
        data = self._mujoco.MjData(self._model)
        data.qpos[:], data.qvel[:] = self._states.to_mujoco(x)
        data.qfrc_applied[:] = self._states.force_to_mujoco(x[: self._states.nq], tau)
        self._mujoco.mj_forward(self._model, data)
        return self._states.acceleration_from_mujoco(x, np.array(data.qacc))
