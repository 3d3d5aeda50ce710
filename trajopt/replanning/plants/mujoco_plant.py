"""MuJoCo as a plant: an independent simulator, loaded from the URDF or MJCF of the same robot.

The file provides only the kinematic tree, its inertias (:mod:`~trajopt.replanning.plants.mujoco_urdf`) and its joints; shapes are
omitted. Damping, rotor inertia and springs are those of the model; joint limits, equalities, actuators and mimic joints are not
enforced. Joints are matched by name; for conventions see :mod:`~dynamics_backends.rigid_body.mjcf.mujoco_states`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.mujoco_states import MujocoStates
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, is_mjcf, source_path
from dynamics_backends.rigid_body.model.model import Model
from trajopt.replanning.plants.mujoco_ground import MujocoGround
from trajopt.replanning.plants.mujoco_urdf import urdf_spec
from trajopt.replanning.plants.sampled_plant import Push, pushed
from trajopt.replanning.timing import steps_of

MISSING = "the plant 'mujoco' needs the package mujoco: pip install 'urdf-trajopt[sim]'"


def load_mujoco(
    source: str | os.PathLike[str], model: Model, ground: MujocoGround | None = None
) -> tuple[Any, MujocoStates]:
    """Load a URDF or MJCF, file or text, as a MuJoCo model with the free dynamics of ``model``; returns it with its state
    conversion.

    ground: ground under the robot, None for none. Raises ModuleNotFoundError without mujoco, ValueError for a robot that MuJoCo
    rejects or that has other joints.
    """
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING, name="mujoco") from error
    if is_mjcf(source):
        simulated = copy(compiled(source).simulated) if ground is None else _grounded(_mjcf_spec(source), model, ground)
        states = MujocoStates(model, simulated, Names(simulated).joints)
    else:
        path = source_path(source)
        text = Path(path).read_text(encoding="utf-8") if path else str(source)
        simulated = _grounded(urdf_spec(text, model), model, ground)
        states = MujocoStates(model, simulated)
    off = mujoco.mjtDisableBit
    simulated.opt.disableflags |= off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS | off.mjDSBL_EQUALITY | off.mjDSBL_CONTACT
    simulated.opt.disableflags |= off.mjDSBL_ACTUATION
    simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    simulated.opt.gravity[:] = model.gravity
    states.set_joints(simulated, model)
    if ground is not None:
        ground.configure(simulated)
    return simulated, states


def _mjcf_spec(source: str | os.PathLike[str]) -> Any:
    """MuJoCo specification of an MJCF, a file or a text that starts with "<"."""
    import mujoco

    return mujoco.MjSpec.from_string(source) if not source_path(source) else mujoco.MjSpec.from_file(str(source))


def _grounded(spec: Any, model: Model, ground: MujocoGround | None) -> Any:
    """Compiled MuJoCo model of a robot, with ground if given."""
    if ground is not None:
        ground.add_to(spec, model)
    return spec.compile()


class MujocoPlant:
    """Robot in MuJoCo with time steps of at most ``step`` [s], integrated by RK4 without ground.

    source: path or text of its URDF or MJCF. forces: (nv, nu) maps the controls u (nu,) of the plan to joint forces (nv,); pushes
    are added to these. limit: of the controls. mass_factor: multiplies all masses and inertias. ground: ground under the robot, or
    None.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        model: Model,
        x0: Array,
        step: float,
        *,
        forces: Array | None = None,
        pushes: Sequence[Push] = (),
        limit: Array | float = np.inf,
        mass_factor: float = 1.0,
        ground: MujocoGround | None = None,
    ) -> None:
        simulated, states = load_mujoco(source, model, ground)
        import mujoco

        self._mujoco, self._model, self._states = mujoco, simulated, states
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
        count = steps_of(dt, self._step)
        self._model.opt.timestep = dt / count
        force = self._forces @ np.clip(u, -np.asarray(self._limit), self._limit)
        for _ in range(count):
            total = force + pushed(self._pushes, self._data.time, len(force))
            self._data.qfrc_applied[:] = self._states.force_to_mujoco(self.state()[: self._states.nq], total)
            self._mujoco.mj_step(self._model, self._data)

    def acceleration(self, x: Array, tau: Array) -> Array:
        """Acceleration (nv,) in the state x (nq + nv,) under joint forces tau (nv,), without changing the state of the plant."""
        data = self._mujoco.MjData(self._model)
        data.qpos[:], data.qvel[:] = self._states.to_mujoco(x)
        data.qfrc_applied[:] = self._states.force_to_mujoco(x[: self._states.nq], tau)
        self._mujoco.mj_forward(self._model, data)
        return self._states.acceleration_from_mujoco(x, np.array(data.qacc))
