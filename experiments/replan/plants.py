"""Plant of a replanning run from its settings: the planner's dynamics or MuJoCo's, with heavier bodies, friction and pushes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.robots import is_path, robot_path
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.along_path import AlongPath, DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt import OCP, SampledSystem
from trajopt.config.scenario import PlantSettings, Settings
from trajopt.config.task import BackendFactory, Task
from trajopt.replanning.loop import Plant
from trajopt.replanning.sampled_plant import Push, SampledPlant
from trajopt.validation.stability import stable_substeps

PlantFactory = Callable[[], Plant]
"""Creates plants in their initial state, all with the same dynamics, so that code is compiled once."""


ELSEWHERE = 1.5
"""Bound on the stiffness of joint friction in other configurations, relative to the initial one."""


class BesidePath:
    """Plant extended by a path parameter s of the controller: states (x, s, sdot), controls (u, w), sddot = w.

    start: initial (s, sdot). inputs: function from the state x of the plant and the controls u to its inputs (nu,); default u.
    """

    def __init__(self, plant: Plant, start: Array, inputs: Callable[[Array, Array], Array] = lambda x, u: u) -> None:
        self._plant, self._inputs = plant, inputs
        self._s, self._speed = map(float, start)

    def state(self) -> Array:
        """State of the plant with the path parameter and its rate, (x, s, sdot)."""
        return np.append(self._plant.state(), [self._s, self._speed])

    def step(self, u: Array, dt: float) -> None:
        """Advance the plant and the path parameter by dt [s] under the constant controls u = (controls of the plant, sddot).

        Raises ValueError for a control that is not finite.
        """
        if not np.isfinite(u[-1]):
            raise ValueError(f"a control is not finite: {u}")
        self._plant.step(self._inputs(self._plant.state(), u[:-1]), dt)
        self._s += dt * (self._speed + 0.5 * dt * float(u[-1]))
        self._speed += dt * float(u[-1])


def plants_of(task: Task, settings: Settings, backend: BackendFactory, robot: str) -> PlantFactory:
    """Return a function that creates plants for a task of a robot with actuated joints, with or without ground contact and path.

    If the controls are accelerations along a path, the plant computes the torques by inverse dynamics at its true state.
    robot: source of the robot, as in :func:`problems.robots.loading.load_fixed_base`; MuJoCo loads it again.
    Raises ValueError for other dynamics, and for constraints and joint friction in MuJoCo; UnknownName for an unknown joint;
    ModuleNotFoundError without mujoco.
    """
    model, system = task.ocp.model, task.ocp.phases[0].system
    if isinstance(system, AlongPath) and model is not None:
        return _beside_path(model, system.map, task.ocp, settings, backend, robot)
    if model is None or not isinstance(system, ActuatedBody) or len(task.ocp.phases) > 1:
        raise ValueError("replanning needs a problem of one phase whose dynamics are those of a robot")
    return _robot(model, system, task.ocp.x0, _limit(task.ocp), settings, backend, robot)


def _beside_path(
    model: Model, system: Any, ocp: OCP, settings: Settings, backend: BackendFactory, robot: str
) -> PlantFactory:
    q_and_v = 2 * model.nv
    x0, start = ocp.x0[:q_and_v], ocp.x0[q_and_v:]
    if isinstance(system, DoubleIntegrator):
        limit = np.asarray(model.effort_limit)
        driven = _robot(model, FreeBody(model), x0, limit, settings, backend, robot)
        return lambda: BesidePath(driven(), start, partial(_driving_torques, model))
    limit = np.broadcast_to(_limit(ocp), ocp.nu)[:-1]
    driven = _robot(model, system, x0, limit, settings, backend, robot)
    return lambda: BesidePath(driven(), start)


def _driving_torques(model: Model, x: Array, acceleration: Array) -> Array:
    """Return the torques of the motors by inverse dynamics of the planner's model, without the forces of springs."""
    q = x[: model.nq]
    return np.asarray(inverse_dynamics(model, q, x[model.nq :], acceleration)) - model.spring_forces(q)


def _robot(
    model: Model,
    system: ActuatedBody,
    x0: Array,
    limit: Array | float,
    settings: Settings,
    backend: BackendFactory,
    robot: str,
) -> PlantFactory:
    s, nu = settings.plant, len(system.actuated)
    forces = np.zeros((model.nv, nu))
    forces[list(system.actuated), np.arange(nu)] = 1.0
    common: dict[str, Any] = {"forces": forces, "pushes": _pushes(model, s), "limit": limit}
    if s.kind == "mujoco":
        if not isinstance(system, (FreeBody, SoftContact, SteppedContact)):
            raise ValueError(
                "the plant 'mujoco' supports free bodies and points that touch the ground; use replan.plant.kind = 'own'"
            )
        from trajopt.replanning.mujoco_plant import MujocoGround, MujocoPlant

        path = Path(robot).expanduser() if is_path(robot) else robot_path(robot)
        ground = None
        if not isinstance(system, FreeBody):
            feet = tuple(point.name for point in system.points)
            ground = MujocoGround(feet=feet, friction=s.contact_friction, slope=s.slope, boxes=s.boxes)
            effort = np.asarray(model.effort_limit)[list(system.actuated)]
            common["limit"] = np.minimum(limit, np.where(effort > 0, effort, np.inf))  # effort limits of the motors
        return partial(MujocoPlant, path, model, x0, s.step, mass_factor=s.mass_factor, ground=ground, **common)
    wrong = model.replace(
        mass=s.mass_factor * model.mass, inertia=s.mass_factor * model.inertia, friction=model.friction + s.friction
    )
    velocity = s.friction_velocity if s.friction else None
    body = system.fully_driven(wrong, velocity)
    scheme = body.scheme if isinstance(body, SteppedContact) else "rk4"
    substeps = 1
    if s.friction and isinstance(body, FreeBody):
        at_rest = np.r_[x0[: model.nq], np.zeros(model.nv)]  # friction is stiffest at rest
        substeps = stable_substeps(body, scheme, at_rest, ELSEWHERE * s.step)
    return partial(SampledPlant, SampledSystem(backend(body), scheme, substeps), x0, s.step, **common)


def _limit(ocp: OCP) -> Array | float:
    bounds = ocp.control_bounds
    return np.inf if bounds is None else np.maximum(np.abs(bounds[0][0]), np.abs(bounds[1][0]))


def _pushes(model: Model, s: PlantSettings) -> list[Push]:
    pushes, at = [], [_dof(model, name) for name in s.push_joints]
    for start, duration, *values in s.pushes:
        force = np.zeros(model.nv)
        force[at] = values
        pushes.append(Push(start, duration, force))
    return pushes


def _dof(model: Model, name: str) -> int:
    if name not in model.dof_names:
        raise unknown_name("degree of freedom", name, model.dof_names)
    return model.dof_names.index(name)
