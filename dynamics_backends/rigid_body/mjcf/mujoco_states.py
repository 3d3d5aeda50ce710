"""Conversion of states between a model's conventions and MuJoCo's.

| | here | MuJoCo |
|---|---|---|
| floating joint, configuration | p (3), quaternion x y z w | p (3), quaternion w x y z |
| its velocity | linear LOCAL, angular LOCAL | linear WORLD, angular LOCAL |
| its force | force LOCAL, moment LOCAL | force WORLD, moment LOCAL |
| its acceleration | d/dt of the velocity here | d/dt of MuJoCo's: R (a + omega x v) |
| spherical joint, configuration | quaternion x y z w | quaternion w x y z |

Joints are matched by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model
from dynamics_backends.rigid_body.spatial.rotations import unit_quaternion_matrix

CONVERTIBLE = ("revolute", "prismatic", "spherical", "floating")


class MujocoStates:
    """Converter between the states of a model and of an MjModel with the same joints.

    names: of MuJoCo's joints, if the file does not name all of them. Raises ValueError if the names of the joints differ, a
    joint of the model has a type other than those in CONVERTIBLE, or a floating joint has a placement that is not the identity.
    """

    def __init__(self, model: Model, simulated: Any, names: Sequence[str] | None = None) -> None:
        self.nq, self.nv = model.nq, model.nv
        names = [simulated.joint(i).name for i in range(simulated.njnt)] if names is None else names
        addresses = {name: i for i, name in enumerate(names)}
        kinds = dict(zip(model.joint_names, model.joint_types, strict=True))
        strange = [name for name, kind in kinds.items() if kind not in CONVERTIBLE]
        if not strange and set(addresses) > set(model.joint_names):
            missing = sorted(set(addresses) - set(model.joint_names))
            raise ValueError(
                f"joints {missing} cannot be matched with MuJoCo's: the robot lacks them. Load it with the same base, without "
                "joints that follow others, and without locked joints beside free ones on one body, which MuJoCo keeps free"
            )
        if strange or set(addresses) != set(model.joint_names):
            different = strange or sorted(set(addresses) ^ set(model.joint_names))
            raise ValueError(
                f"joints {different} cannot be matched with MuJoCo's; load the same URDF or MJCF, with the same base"
            )
        q, v, sprung = [], [], []
        self.free: list[tuple[int, int]] = []
        for b, (name, kind) in enumerate(kinds.items()):
            i, (nq, nv) = addresses[name], JOINT_TYPES[kind]
            first = int(simulated.jnt_qposadr[i])
            order = list(range(first, first + nq))
            if nq > nv:
                order[-4:] = [order[-3], order[-2], order[-1], order[-4]]  # x y z w from w x y z
            if kind == "floating":
                if model.placement_p[b].any() or not np.array_equal(model.placement_R[b], np.eye(3)):
                    raise ValueError(
                        f"the floating joint {name!r} has an origin in the file, which MuJoCo does not use: put it at zero, and "
                        "its pose into x0"
                    )
                self.free.append((int(model.q_index[b]), int(model.v_index[b])))
            q += order
            v += list(range(int(simulated.jnt_dofadr[i]), int(simulated.jnt_dofadr[i]) + nv))
            sprung += [(int(model.v_index[b]), i, first)] if nv == 1 else []
        self._q, self._v = np.array(q), np.array(v)
        self._sprung = np.array(sprung, dtype=int).reshape(-1, 3).T
        """Indices in v, joint numbers and indices in MuJoCo's qpos of joints of one DoF; only these may have springs."""

    def set_joints(self, simulated: Any, model: Model) -> None:
        """Set damping, rotor inertia and springs of MuJoCo's joints to those of a model, which include those of actuators."""
        simulated.dof_damping[self._v], simulated.dof_armature[self._v] = model.damping, model.armature
        own, joints, qpos = self._sprung
        simulated.jnt_stiffness[joints], simulated.qpos_spring[qpos] = model.stiffness[own], model.spring_reference[own]
        for field in ("actuator_damping", "actuator_armature"):  # older versions of MuJoCo do not have them
            if hasattr(simulated, field):
                getattr(simulated, field)[:] = 0.0

    def to_mujoco(self, x: Array) -> tuple[Array, Array]:
        """Convert a state x (nq + nv,) to qpos (nq,) and qvel (nv,)."""
        qpos = np.empty(self.nq)
        qpos[self._q] = x[: self.nq]
        return qpos, self.velocity_to_mujoco(x, x[self.nq :])

    def from_mujoco(self, qpos: Array, qvel: Array) -> Array:
        """Convert qpos (nq,) and qvel (nv,) to a state (nq + nv,)."""
        q = qpos[self._q]
        return np.concatenate([q, self._local(q, qvel[self._v])])

    def velocity_to_mujoco(self, x: Array, v: Array) -> Array:
        """Convert a velocity, or a force, (nv,) at the configuration of x to MuJoCo's order and axes."""
        moved = np.empty(self.nv)
        moved[self._v] = self._world(x, v)
        return moved

    def force_to_mujoco(self, q: Array, tau: Array) -> Array:
        """Convert generalized forces (nv,) to MuJoCo's order and axes, at the configuration q (nq,)."""
        return self.velocity_to_mujoco(q, tau)

    def force_from_mujoco(self, q: Array, force: Array) -> Array:
        """Convert generalized forces (nv,) to the model's order and axes, at the configuration q (nq,)."""
        return self._local(q, force[self._v])

    def acceleration_to_mujoco(self, x: Array, a: Array) -> Array:
        """Time derivative (nv,) of qvel from that of v."""
        return self.velocity_to_mujoco(x, a + self._turning(x))

    def acceleration_from_mujoco(self, x: Array, qacc: Array) -> Array:
        """Time derivative (nv,) of v from that of qvel."""
        return self._local(x, qacc[self._v]) - self._turning(x)

    def _turning(self, x: Array) -> Array:
        """Array (nv,) with omega x v of the floating joints at their linear velocities, and zeros elsewhere."""
        v, turning = x[self.nq :], np.zeros(self.nv)
        for _, d in self.free:
            turning[d : d + 3] = np.cross(v[d + 3 : d + 6], v[d : d + 3])
        return turning

    def _world(self, q: Array, v: Array) -> Array:
        """Copy of v with the linear velocities of floating joints turned from body to world axes."""
        v = np.array(v, dtype=float)
        for i, d in self.free:
            v[d : d + 3] = unit_quaternion_matrix(q[i + 3 : i + 7]) @ v[d : d + 3]
        return v

    def _local(self, q: Array, v: Array) -> Array:
        """Copy of v with the linear velocities of floating joints turned from world to body axes."""
        v = np.array(v, dtype=float)
        for i, d in self.free:
            v[d : d + 3] = unit_quaternion_matrix(q[i + 3 : i + 7]).T @ v[d : d + 3]
        return v
