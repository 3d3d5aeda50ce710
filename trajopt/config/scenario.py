"""Settings of the table [replan]: plant, sensor, moving objects and faults of a replanning run of any task.

The solver is configured in [solver].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from trajopt.config.task import Checked, Checks, Task, not_negative, position_of, positive
from trajopt.problem.ocp import OCP
from trajopt.replanning.measurements import MovingObject, Sensor, Wandering
from trajopt.replanning.plan import Horizon, RecedingHorizon, ResampledHorizon, ShrinkingHorizon
from trajopt.replanning.workers import SAME_TIME, Timing
from trajopt.step.sensitivities import MAX_SUBSTEPS

Window = tuple[float, float]
CONTACT_FRICTION = 0.7
"""Default friction coefficient of the ground in MuJoCo."""
QUICKEST = 1e4
"""Maximum speed of a wandering point, in largest half sizes of its box per second."""
MAX_TICKS = 10_000_000
"""Maximum number of ticks of a run; longer logs exceed the memory of most machines."""


def _windows(value: tuple[Window, ...]) -> tuple[bool, str]:
    """Check for time windows: (True if each begins before it ends, description of acceptable values)."""
    return all(start < end for start, end in value), "pairs [from, to] of increasing times [s]"


@dataclass(frozen=True, kw_only=True)
class PlantSettings(Checked):
    """The plant. kind: "own" dynamics, or "mujoco". step: time step of its integrator [s]. mass_factor: factor on all masses
    and inertias.

    friction: Coulomb friction added to each joint; the friction of the robot file is included only with it; "own" only [N, N
    m]. friction_velocity: smoothing velocity of the friction [rad/s, m/s]. contact_friction: friction coefficient of the
    ground; "mujoco" only. slope: inclination of the ground along x; "mujoco" only [rad]. boxes: boxes on the ground, rows
    (x, y, half size along x, half size along y, height); "mujoco" only [m]. push_joints: names of the joints that are
    pushed, in the order of the forces in ``pushes``. pushes: rows (start, duration, force on each of push_joints) [s, N, N
    m].
    """

    kind: Literal["own", "mujoco"] = "own"
    step: float = 0.001
    mass_factor: float = 1.0
    friction: float = 0.0
    friction_velocity: float = 0.05
    contact_friction: float = CONTACT_FRICTION
    slope: float = 0.0
    boxes: tuple[tuple[float, float, float, float, float], ...] = ()
    push_joints: tuple[str, ...] = ()
    pushes: tuple[tuple[float, ...], ...] = ()

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): positive sizes and steps, and keys that ``kind`` supports.

        slope, boxes and contact_friction need "mujoco", friction needs "own"; pushes have a force for each of push_joints.
        """
        width, mujoco = 2 + len(self.push_joints), self.kind == "mujoco"
        return {
            "slope": (
                abs(self.slope) < 0.5 * np.pi and (mujoco or not self.slope),
                "an angle below a right one, and 0 with kind = 'own', which models no ground",
            ),
            "boxes": (
                all(min(b[2:]) > 0 for b in self.boxes) and (mujoco or not self.boxes),
                "rows with three positive sizes at the end, and none with kind = 'own'",
            ),
            "step": positive(self.step),
            "mass_factor": positive(self.mass_factor),
            "friction": (
                0 <= self.friction < np.inf and not (mujoco and self.friction),
                "a finite number of at least 0, and 0 with kind = 'mujoco', which has its own joint friction",
            ),
            "friction_velocity": positive(self.friction_velocity),
            "contact_friction": (
                0 <= self.contact_friction < np.inf and (mujoco or self.contact_friction == CONTACT_FRICTION),
                "a finite number of at least 0; remove it with kind = 'own', which uses the ground of the plan",
            ),
            "pushes": (
                all(len(p) == width and p[1] > 0 for p in self.pushes),
                "rows (start, duration above 0, a force for each of push_joints)",
            ),
        }


@dataclass(frozen=True, kw_only=True)
class SensorSettings(Checked):
    """The sensor of the state.

    period: time between measurements; 0 measures at each tick [s]. delay: delay of a measurement [s]. position_noise:
    standard deviation of measured positions [rad, m]. velocity_noise: standard deviation of measured velocities [rad/s,
    m/s]. dropped: windows (from, to) without measurements [s]. corrupted: windows (from, to) with NaN measurements [s].
    """

    period: float = 0.0
    delay: float = 0.0
    position_noise: float = 0.0
    velocity_noise: float = 0.0
    dropped: tuple[Window, ...] = ()
    corrupted: tuple[Window, ...] = ()

    def unbounded(self) -> tuple[str, ...]:
        """Return the keys whose numbers may be infinite: the time windows."""
        return ("dropped", "corrupted")

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): times and noise at least 0, windows of increasing times."""
        numbers = ("period", "delay", "position_noise", "velocity_noise")
        return {key: not_negative(getattr(self, key)) for key in numbers} | {
            key: _windows(getattr(self, key)) for key in ("dropped", "corrupted")
        }


@dataclass(frozen=True, kw_only=True)
class MotionSettings(Checked):
    """A moving point: center + amplitude sin(2 pi frequency t + phase) in each coordinate, plus jumps, plus random wandering.

    term: name of the cost terms and constraints that read the point; "" for none. parameter: their parameter for the point.
    center: center of the motion, n numbers [m]. amplitude: amplitude of each coordinate [m]. frequency: frequency of each
    coordinate [Hz]. phase: phase of each coordinate [rad]. jumps: rows (time, change of each coordinate). wander: half sizes
    (n) of the box around the center in which the point wanders, see :mod:`~trajopt.replanning.measurements`; () for none [m].
    wander_speed: maximum speed of wandering [m/s]. period: time between measurements [s]. delay: delay of a measurement [s].
    noise: standard deviation of a measurement [m]. max_speed: a faster motion counts as a jump [m/s]. smoothing: time
    constant of the velocity estimate [s]. predict: extrapolate the point with the estimated velocity. memory: mean time
    after which the velocity changes, see :class:`~trajopt.replanning.measurements.Track` [s].
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

    def unbounded(self) -> tuple[str, ...]:
        """Return the keys whose numbers may be infinite: maximum speed and memory."""
        return ("max_speed", "memory")

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): vectors of the length of center, times and noise at least 0.

        Speeds and memory are positive, and wander_speed is at most QUICKEST times the largest half size of the box per second.
        """
        n = len(self.center)
        vectors = ("amplitude", "frequency", "phase")
        return {
            **{key: (len(getattr(self, key)) == n, "as many numbers as center") for key in vectors},
            "jumps": (
                all(len(jump) == n + 1 for jump in self.jumps),
                "rows (time, change of each coordinate of center)",
            ),
            **{key: not_negative(getattr(self, key)) for key in ("period", "delay", "noise", "smoothing")},
            "wander": (
                len(self.wander) in (0, n) and all(size > 0 for size in self.wander),
                "as many positive numbers as center, or none",
            ),
            "wander_speed": (
                0 < self.wander_speed <= QUICKEST * max(self.wander, default=np.inf),
                f"a positive number of at most {QUICKEST:g} times the size of wander in a second",
            ),
            "max_speed": positive(self.max_speed),
            "memory": positive(self.memory),
        }

    def motion(self, seed: int) -> Callable[[float], Array]:
        """Return a function from t [s] to the true position (n,), with wandering if set. The seed determines random positions."""
        if not self.wander:
            return self.at
        wandering, center = (
            Wandering(np.array(self.center), np.array(self.wander), self.wander_speed, seed),
            self.center,
        )
        return lambda t: self.at(t) + wandering(t) - center

    def at(self, t: float) -> Array:
        """Return the position (n,) at t [s]: center, oscillation and all jumps up to t, without wandering."""
        angle = 2.0 * np.pi * np.array(self.frequency) * t + np.array(self.phase)
        jumped = sum((np.array(jump[1:]) for jump in self.jumps if jump[0] <= t), np.zeros(len(self.center)))
        return np.array(self.center) + np.array(self.amplitude) * np.sin(angle) + jumped


def _moves(motion: MotionSettings) -> tuple[bool, str]:
    """Check for a motion: (True if it is the default or names the term that it moves, description of acceptable values)."""
    return bool(
        motion.term
    ) or motion == MotionSettings(), "its term, the name of the cost terms or constraints that it moves"


@dataclass(frozen=True, kw_only=True)
class Faults(Checked):
    """Faults of the planner. fail_every: every n-th solve fails; 0 for none. slow_factor: factor on the duration of every
    solve."""

    fail_every: int = 0
    slow_factor: float = 1.0

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, description of acceptable values): fail_every >= 0, slow_factor >= 1."""
        return {
            "fail_every": (self.fail_every >= 0, "a number of at least 0"),
            "slow_factor": (self.slow_factor >= 1.0, "a number of at least 1"),
        }


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """A replanning run; all times in seconds.

    duration: duration of the run. tick: control period. period: time between the starts of solves. lead: time from the start of a
    solve until its plan takes effect. deadline: time limit of a solve; default: the lead, or the period. drop_late: discard plans
    that miss the deadline. mode: "real_time", one iteration per solve with SQP if CONFIG selects it, else SLQ, prepared before the
    measurement; "converge", full solves with the solver of CONFIG. follow: with "converge", start each solve from the motion under
    the feedback of the last plan. bounds: enforce control bounds in the plans; the plant always limits |u| to the larger of both
    bounds. regularization: minimum regularization of the real-time iteration of SLQ. search: line search in the real-time iteration
    of SLQ. horizon: "receding" (its end moves on with time: give a goal a running weight), "shrinking" (the remaining motion), or
    "regridded" (the remaining motion with a constant number of knots). min_remaining: remaining time below which replanning stops,
    unless the horizon is receding. charge: seconds charged per response in simulated time; default: the measured time, so that a
    busy computer makes plans late. seed: seed of all noise. plant: the plant. sensor: measurement of the state. goal: moving point
    to reach. obstacle: moving point to avoid. faults: faults of the planner.
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
    min_remaining: float = 0.0
    charge: float | None = None
    seed: int = 0
    plant: PlantSettings = field(default_factory=PlantSettings)
    sensor: SensorSettings = field(default_factory=SensorSettings)
    goal: MotionSettings = field(default_factory=MotionSettings)
    obstacle: MotionSettings = field(default_factory=MotionSettings)
    faults: Faults = field(default_factory=Faults)

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): consistent times, and motions with the term that they move.

        duration: at least a tick, at most MAX_TICKS ticks. tick: at most MAX_SUBSTEPS steps of the plant. period: at least the
        tick. Lead, remaining time, regularization, charge and seed are at least 0, the deadline is positive.
        """
        return {
            "duration": (
                self.tick <= self.duration and (self.tick <= 0 or self.duration / self.tick <= MAX_TICKS),
                f"at least one tick and at most {MAX_TICKS} ticks",
            ),
            "tick": (
                self.tick > 0 and (self.plant.step <= 0 or self.tick / self.plant.step <= MAX_SUBSTEPS),
                f"a positive number of seconds, of at most {MAX_SUBSTEPS} steps of the plant (plant.step)",
            ),
            "period": (self.period >= self.tick, "at least the tick"),
            "seed": (self.seed >= 0, "a number of at least 0"),
            **{key: _moves(getattr(self, key)) for key in ("goal", "obstacle")},
            "lead": not_negative(self.lead),
            "min_remaining": not_negative(self.min_remaining),
            "deadline": (self.deadline is None or self.deadline > 0.0, "a positive number of seconds"),
            "regularization": not_negative(self.regularization),
            "charge": (self.charge is None or self.charge >= 0.0, "a number of seconds of at least 0"),
        }

    @property
    def timing(self) -> Timing:
        """Timing of the control loop from these settings; in real-time mode, solves are prepared before their measurement."""
        return Timing(
            tick=self.tick,
            period=self.period,
            lead=self.lead,
            deadline=self.deadline,
            drop_late=self.drop_late,
            prepare_early=self.mode == "real_time",
        )


def rounding(settings: Settings) -> list[str]:
    """Return sentences about the times of a run (duration, period, lead) that are no whole number of ticks, and so are rounded."""
    tick, found = settings.tick, []
    ticks = settings.duration / tick
    if abs(ticks - round(ticks)) * tick > SAME_TIME:
        found.append(
            f"replan.duration = {settings.duration:g} s is rounded to {round(ticks)} ticks: {round(ticks) * tick:g} s"
        )
    for key, what in (("period", "solves begin"), ("lead", "plans are followed")):
        ticks = getattr(settings, key) / tick
        if abs(ticks - round(ticks)) * tick > SAME_TIME:
            found.append(
                f"replan.{key} = {getattr(settings, key):g} s is not a multiple of the tick, {tick:g} s: {what} at the next tick"
            )
    return found


def planned(task: Task, settings: Settings) -> OCP:
    """Return the problem used for planning, without control bounds if the settings disable them."""
    return task.ocp if settings.bounds else replace(task.ocp, u_lower=None, u_upper=None)


def horizon_of(task: Task, settings: Settings) -> Horizon:
    """Return the horizon of a replanning run (receding, shrinking or resampled): a function from time to the problem to solve.

    A receding horizon is ``task.following``, which adapts to measurements, if the task has it; else ``task.moved`` shifts
    references.
    """
    ocp = planned(task, settings)
    if settings.horizon == "regridded":
        return ResampledHorizon(ocp, settings.min_remaining)
    if settings.horizon == "shrinking":
        return ShrinkingHorizon(ocp, min_time=settings.min_remaining)
    return RecedingHorizon(ocp, task.moved) if task.following is None else task.following(ocp)


def objects_of(settings: Settings) -> list[MovingObject]:
    """Return the moving objects of a run: those of goal and obstacle that name a term, with seeds that follow that of the run."""
    moving = [motion for motion in (settings.goal, settings.obstacle) if motion.term]
    return [_object(motion, settings.seed + 1 + i) for i, motion in enumerate(moving)]


def _object(m: MotionSettings, seed: int) -> MovingObject:
    """Return the moving object of a motion, with its sensor."""
    sensor = Sensor(Manifold.vector(len(m.center)), m.period, noise=m.noise, delay=m.delay, seed=seed)
    return MovingObject(m.term, m.parameter, m.motion(seed), sensor, m.max_speed, m.smoothing, m.predict, m.memory)


def sensor_of(ocp: OCP, settings: Settings) -> Sensor:
    """Return the sensor of the state, with noise of positions and velocities; path parameters behind (q, v) have none."""
    s, ndx = settings.sensor, ocp.manifold.ndx
    n = ndx // 2 if ocp.model is None else ocp.model.nv
    noise = np.repeat(
        [s.position_noise, s.velocity_noise, 0.0], [n, n, ndx - 2 * n]
    )  # path parameters are known exactly
    return Sensor(
        ocp.manifold,
        s.period,
        noise=noise.tolist(),
        delay=s.delay,
        dropped=s.dropped,
        corrupted=s.corrupted,
        seed=settings.seed,
    )


def path_of(task: Task, xs: Array) -> Array | None:
    """Return the positions (M, 3) [m] of the task's frame at states xs (M, nx), or None if the task has no frame or no robot."""
    model = task.ocp.model
    return None if model is None or task.frame is None else position_of(model, task.frame, model.configuration_of(xs))


def contour_error(task: Task, xs: Array) -> Array | None:
    """Return the distance (M,) [m] of the task's frame from its contour at states (M, nx); None without contour, frame or robot."""
    path = path_of(task, xs)
    return None if path is None or task.contour is None else np.linalg.norm(path - task.contour.at(xs), axis=1)


def clearances_of(task: Task, xs: Array, objects: Mapping[str, Array]) -> dict[str, Array]:
    """Return the distance (M,) [m] of the robot from each object with positions (M, 3), by the object's name.

    It is ``task.clearance``, or else the distance of the nearest of ``task.points`` from the surface of the object, a sphere of
    ``task.radii`` or a point; empty if the task has neither. Objects that are not points in space are omitted.
    """
    model = task.ocp.model
    if task.clearance is not None:
        return {name: task.clearance(xs, p) for name, p in objects.items() if p.shape[1] == 3}
    if model is None or not task.points:
        return {}
    at = np.array(
        point_positions(model, model.configuration_of(xs).T, [(point.body, point.offset) for point in task.points])
    )
    where = {name: p.T for name, p in objects.items() if p.shape[1] == 3}
    return {name: np.linalg.norm(at - p, axis=1).min(axis=0) - task.radii.get(name, 0.0) for name, p in where.items()}
