"""Replanning runs of any task: how often to plan, which plant, what is measured, what moves, what goes wrong.

These are the settings of the table [replan] of a config, and what follows from them for a task: its plant, its sensor, its moving
objects, its horizon.  Solvers are none of its business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array, unwrapped
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.along_path import AlongPath, DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from problems.replanning.wandering import Wandering
from problems.robots import is_path, robot_path
from problems.task import BackendFactory, Checked, Checks, Task, not_negative, position_of, positive
from trajopt import OCP, SampledSystem
from trajopt.replanning.loop import Plant, Timing
from trajopt.replanning.measurements import MovingObject, Sensor
from trajopt.replanning.plan import Horizon, Receding, Regridded, Shrinking
from trajopt.replanning.plants import BesidePath, Push, SampledPlant

Window = tuple[float, float]


def _windows(value: tuple[Window, ...]) -> tuple[bool, str]:
    return all(start < end for start, end in value), "pairs [from, to] of rising times [s]"


@dataclass(frozen=True, kw_only=True)
class PlantSettings(Checked):
    """The plant. kind: "own" dynamics, or "mujoco". step [s]: of its integrator. mass_factor: of all masses and inertias.

    friction: Coulomb, of each joint [N, N m]; "own" only. friction_velocity [rad/s, m/s]: over which it is smoothed.
    contact_friction, slope: coefficient, and inclination [rad] along x, of the ground of robots that touch it; "mujoco" only.
    push_joints: which joints are pushed, in the order of the forces in ``pushes``. pushes: rows (from, duration, force on each
    of them) [s, N, N m].
    """

    kind: Literal["own", "mujoco"] = "own"
    step: float = 0.001
    mass_factor: float = 1.0
    friction: float = 0.0
    friction_velocity: float = 0.05
    contact_friction: float = 0.7
    slope: float = 0.0
    push_joints: tuple[str, ...] = ()
    pushes: tuple[tuple[float, ...], ...] = ()

    def checks(self) -> Checks:
        width = 2 + len(self.push_joints)
        return {
            "step": positive(self.step),
            "mass_factor": positive(self.mass_factor),
            "friction": not_negative(self.friction),
            "friction_velocity": positive(self.friction_velocity),
            "contact_friction": not_negative(self.contact_friction),
            "slope": (abs(self.slope) < 0.5 * np.pi, "an angle below a right one"),
            "pushes": (
                all(len(p) == width for p in self.pushes),
                "rows (from, duration, a force for each of push_joints)",
            ),
        }


@dataclass(frozen=True, kw_only=True)
class SensorSettings(Checked):
    """What is known of the state. period, delay [s]. position_noise, velocity_noise: standard deviations.

    dropped, corrupted: windows [from, to] without measurements, and with NaN in their place.
    """

    period: float = 0.0
    delay: float = 0.0
    position_noise: float = 0.0
    velocity_noise: float = 0.0
    dropped: tuple[Window, ...] = ()
    corrupted: tuple[Window, ...] = ()

    def checks(self) -> Checks:
        numbers = ("period", "delay", "position_noise", "velocity_noise")
        return {key: not_negative(getattr(self, key)) for key in numbers} | {
            key: _windows(getattr(self, key)) for key in ("dropped", "corrupted")
        }


@dataclass(frozen=True, kw_only=True)
class MotionSettings(Checked):
    """A point that moves: center + amplitude sin(2 pi frequency t + phase) in each coordinate, and jumps; or it wanders.

    term: name of the cost terms and constraints that read it, "" for none; parameter: by which. center (n), amplitude (n) [m],
    frequency (n) [Hz], phase (n) [rad]. jumps: rows (time, change of each coordinate). wander: half sizes (n) [m] of the box about
    the center through which it wanders, see :mod:`~problems.replanning.wandering`, () for none. wander_speed [m/s]: how fast at
    most. period, delay, noise: of its measurement.
    max_speed [m/s]: what is faster is a jump. smoothing [s]: of the measured velocity. predict: plan with that velocity.
    memory [s]: after which it has changed in the mean, see :class:`~trajopt.replanning.measurements.Track`.
    """

    term: str = ""
    parameter: str = "goal"
    center: tuple[float, ...] = (0.0, 0.0, 0.0)
    amplitude: tuple[float, ...] = (0.0, 0.0, 0.0)
    frequency: tuple[float, ...] = (0.0, 0.0, 0.0)
    phase: tuple[float, ...] = (0.0, 0.0, 0.0)
    jumps: tuple[tuple[float, ...], ...] = ()
    wander: tuple[float, ...] = ()
    wander_speed: float = 0.3
    period: float = 0.01
    delay: float = 0.0
    noise: float = 0.0
    max_speed: float = 5.0
    smoothing: float = 0.0
    predict: bool = True
    memory: float = float("inf")

    def checks(self) -> Checks:
        n = len(self.center)
        vectors = ("amplitude", "frequency", "phase")
        return {
            **{key: (len(getattr(self, key)) == n, "as many numbers as center has") for key in vectors},
            "jumps": (
                all(len(jump) == n + 1 for jump in self.jumps),
                "rows (time, change of each coordinate of center)",
            ),
            **{key: not_negative(getattr(self, key)) for key in ("period", "delay", "noise", "smoothing")},
            "wander": (
                len(self.wander) in (0, n) and all(size > 0 for size in self.wander),
                "as many positive numbers as center has, or none",
            ),
            "wander_speed": positive(self.wander_speed),
            "max_speed": positive(self.max_speed),
            "memory": positive(self.memory),
        }

    def motion(self, seed: int) -> Callable[[float], Array]:
        """The position (n,) as a function of t [s]; random places are those of the seed."""
        if not self.wander:
            return self.at
        wandering, center = (
            Wandering(np.array(self.center), np.array(self.wander), self.wander_speed, seed),
            self.center,
        )
        return lambda t: self.at(t) + wandering(t) - center

    def at(self, t: float) -> Array:
        """The position (n,) at t [s], without wandering."""
        angle = 2.0 * np.pi * np.array(self.frequency) * t + np.array(self.phase)
        jumped = sum((np.array(jump[1:]) for jump in self.jumps if jump[0] <= t), np.zeros(len(self.center)))
        return np.array(self.center) + np.array(self.amplitude) * np.sin(angle) + jumped


@dataclass(frozen=True, kw_only=True)
class Faults(Checked):
    """Faults of the planner. fail_every: of so many solves one fails, 0 for none. slow_factor: every solve takes so many times
    as long."""

    fail_every: int = 0
    slow_factor: float = 1.0

    def checks(self) -> Checks:
        return {
            "fail_every": (self.fail_every >= 0, "a number of at least 0"),
            "slow_factor": (self.slow_factor >= 1.0, "a number of at least 1"),
        }


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """A replanning run; all times in seconds.

    duration: of the run. tick: period of the control. period: between the starts of solves. lead: from a start until its plan
    holds.
    deadline: of a solve; default the lead, or the period. drop_late: plans that miss it are not followed.
    mode: "real_time", one iteration a solve, of SQP where that is the solver of the config, else of SLQ, prepared before the
    measurement; "converge", by the solver of the config.
    follow: start solves from the motion under the last plan's feedback. bounds: whether plans keep the bounds on controls; the
    plant has them in any case. regularization: the least of the real-time iteration; search: whether it chooses the length of its
    step. horizon: "receding", "shrinking", or "regridded": what is left, on as many knots as ever; least: of the time left, below
    which it is not planned any more.
    charge: seconds charged for each response in simulated time; default those measured. seed: of all noise.
    plant: what is controlled. sensor: what is known of its state. goal, obstacle: what moves. faults: of the planner.
    """

    duration: float = 5.0
    tick: float = 0.002
    period: float = 0.01
    lead: float = 0.0
    deadline: float | None = None
    drop_late: bool = False
    mode: Literal["real_time", "converge"] = "real_time"
    follow: bool = False
    bounds: bool = True
    regularization: float = 0.0
    search: bool = True
    horizon: Literal["receding", "shrinking", "regridded"] = "receding"
    least: float = 0.0
    charge: float | None = None
    seed: int = 0
    plant: PlantSettings = field(default_factory=PlantSettings)
    sensor: SensorSettings = field(default_factory=SensorSettings)
    goal: MotionSettings = field(default_factory=MotionSettings)
    obstacle: MotionSettings = field(default_factory=MotionSettings)
    faults: Faults = field(default_factory=Faults)

    def checks(self) -> Checks:
        return {
            "duration": (self.duration >= self.tick, "at least one tick"),
            "tick": positive(self.tick),
            "period": (self.period >= self.tick, "at least the tick"),
            "lead": not_negative(self.lead),
            "least": not_negative(self.least),
            "deadline": (self.deadline is None or self.deadline > 0.0, "a positive number of seconds"),
            "regularization": not_negative(self.regularization),
            "charge": (self.charge is None or self.charge >= 0.0, "a number of seconds of at least 0"),
        }

    @property
    def timing(self) -> Timing:
        """The times of the loop."""
        return Timing(
            tick=self.tick,
            period=self.period,
            lead=self.lead,
            deadline=self.deadline,
            drop_late=self.drop_late,
            prepare_ahead=self.mode == "real_time",
        )


def planned(task: Task, settings: Settings) -> OCP:
    """The problem that plans are made with."""
    return task.ocp if settings.bounds else replace(task.ocp, u_lower=None, u_upper=None)


def horizon_of(task: Task, settings: Settings) -> Horizon:
    """Which problem to solve at what time."""
    ocp = planned(task, settings)
    if settings.horizon == "regridded":
        return Regridded(ocp, settings.least)
    if settings.horizon == "shrinking":
        return Shrinking(ocp, least_time=settings.least)
    return Receding(ocp, task.moved)


def objects_of(settings: Settings) -> list[MovingObject]:
    """What moves."""
    moving = [motion for motion in (settings.goal, settings.obstacle) if motion.term]
    return [_object(motion, settings.seed + 1 + i) for i, motion in enumerate(moving)]


def _object(m: MotionSettings, seed: int) -> MovingObject:
    sensor = Sensor(Manifold.vector(len(m.center)), m.period, noise=m.noise, delay=m.delay, seed=seed)
    return MovingObject(m.term, m.parameter, m.motion(seed), sensor, m.max_speed, m.smoothing, m.predict, m.memory)


def sensor_of(ocp: OCP, settings: Settings) -> Sensor:
    """How the state is measured."""
    s, ndx = settings.sensor, ocp.manifold.ndx
    n = ndx // 2 if ocp.model is None else ocp.model.nv
    noise = np.repeat([s.position_noise, s.velocity_noise, 0.0], [n, n, ndx - 2 * n])  # a path parameter is known
    return Sensor(
        ocp.manifold,
        s.period,
        noise=noise.tolist(),
        delay=s.delay,
        dropped=s.dropped,
        corrupted=s.corrupted,
        seed=settings.seed,
    )


PlantFactory = Callable[[], Plant]
"""Makes plants in their initial state, of one and the same dynamics: what is compiled for the first serves all."""


def plants_of(task: Task, settings: Settings, backend: BackendFactory, robot: str) -> PlantFactory:
    """What makes plants for a task with the dynamics of a robot with driven joints, on the ground or not, beside a path or not.

    Beside a path with accelerations for controls, the robot is driven with the torques of inverse dynamics at its true state.
    robot: what the robot was loaded from, as in :func:`problems.task.load_fixed_base`; MuJoCo loads it again. Raises ValueError for
    other dynamics, for constraints and joint friction in MuJoCo; UnknownName for a joint; ModuleNotFoundError without mujoco.
    """
    model, system = task.ocp.model, _system(task.ocp)
    if isinstance(system, AlongPath) and model is not None:
        return _beside_path(model, system.system, task.ocp, settings, backend, robot)
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
    """Inverse dynamics of the robot as the planner knows it."""
    return np.asarray(inverse_dynamics(model, x[: model.nq], x[model.nq :], acceleration))


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
        if s.friction:
            raise ValueError("replan.plant.friction is of the plant 'own'; leave it out for 'mujoco'")
        if not isinstance(system, (FreeBody, SoftContact, SteppedContact)):
            raise ValueError(
                "the plant 'mujoco' knows free bodies and points that touch the ground; take replan.plant.kind = 'own'"
            )
        from trajopt.replanning.mujoco_ground import MujocoGround
        from trajopt.replanning.mujoco_plant import MujocoPlant

        path = Path(robot).expanduser() if is_path(robot) else robot_path(robot)
        ground = None
        if not isinstance(system, FreeBody):
            feet = tuple(point.name for point in system.points)
            ground = MujocoGround(feet=feet, friction=s.contact_friction, slope=s.slope)
            effort = np.asarray(model.effort_limit)[list(system.actuated)]
            common["limit"] = np.minimum(limit, np.where(effort > 0, effort, np.inf))  # of the motors
        return partial(MujocoPlant, path, model, x0, s.step, mass_factor=s.mass_factor, ground=ground, **common)
    wrong = model.replace(
        mass=s.mass_factor * model.mass, inertia=s.mass_factor * model.inertia, friction=model.friction + s.friction
    )
    velocity = s.friction_velocity if s.friction else None
    body = system.fully_driven(wrong, velocity)
    scheme = body.scheme if isinstance(body, SteppedContact) else "rk4"
    return partial(SampledPlant, SampledSystem(backend(body), scheme), x0, s.step, **common)


def _system(ocp: OCP) -> Any:
    """The continuous dynamics, None where there are none."""
    sampling = ocp.phases[0].dynamics.sampling
    return None if sampling is None else unwrapped(sampling.backend.map)


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


def path_of(task: Task, xs: Array) -> Array | None:
    """The path (M, 3) [m] of the task's frame; None where it has none."""
    model = task.ocp.model
    return None if model is None or task.frame is None else position_of(model, task.frame, xs[:, : model.nq])


def contour_error(task: Task, xs: Array) -> Array | None:
    """The distance (M,) [m] of the task's frame from the point of its contour at states (M, nx); None where it has none."""
    path = path_of(task, xs)
    return None if path is None or task.contour is None else np.linalg.norm(path - task.contour.at(xs), axis=1)


def clearances_of(task: Task, xs: Array, objects: Mapping[str, Array]) -> dict[str, Array]:
    """By name: the distance (M,) [m] of the nearest of the task's points from each object (M, 3) at states (M, nx)."""
    model = task.ocp.model
    if model is None or not task.points:
        return {}
    at = np.array(point_positions(model, xs[:, : model.nq].T, [(point.body, point.offset) for point in task.points]))
    where = {name: p.T for name, p in objects.items() if p.shape[1] == 3}
    return {name: np.linalg.norm(at - p, axis=1).min(axis=0) for name, p in where.items()}
