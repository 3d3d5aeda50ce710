"""Gaits of a quadruped on soft ground without a schedule: trot, gallop, jump and stand result from the cost.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref|_Q^2 + |s(x_k) - s_way|_W(t)^2 + w_u |u_k|^2 )  +  1/2 |s(x_N) - s_goal|_P^2

with the state s(x) of :mod:`~problems.legged.robot.base_state`.  Tasks differ in their weights, the reference forward speed, and
a waypoint in time (Neunert et al., Trajectory optimization through contacts and automatic gait discovery for quadrupeds, RA-L
2017; Giftthaler et al. 2018).  The guess is a rollout with a joint PD controller that holds the initial posture; for a jump it
may hold another posture for a moment, which pushes the robot off.  If the robot tips over with this controller, the
linear-quadratic regulator of the problem's cost holds the posture instead. Problems with stepped contacts may be preceded by
problems with more relaxed contacts, each solved from the solution before it: relaxed contacts act over a larger distance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array, DynamicsBackend
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.registry import CONTACT_LAWS, is_step_law, step_laws
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt.config.task import (
    BackendFactory,
    Checked,
    Checks,
    Integrator,
    Sampling,
    Task,
    not_negative,
    one_of_two,
    positions_of,
    positive,
)
from ..contact.contact_limits import contact_limits
from ..contact.soft_ground import SoftGround
from ..robot.base_state import BaseWeights, Triple, base_state_cost, euler_xyz, quaternion, rotation
from ..robot.joint_limits import REMOVED_BY, EnforcedLimits
from ..robot.legs import hips
from ..robot.similarity import (
    DAMPING,
    ENERGY,
    LENGTH,
    SPEED,
    TIME,
    TORQUE,
    Units,
    prefixed,
    running_weight,
    terminal_weight,
)
from ..robot.walker import StandingPose, joint_gains, posture
from .commands import END, START, distance_sentence, speed_sentence
from .falls import TILTED, falls, goal_misses, heights, hip_heights, tilts
from .free_gait import resting_controls
from .gait import PATTERNS
from .reach import order_warnings

STIFFER = 10.0
"""Factor on the gains of the guess if the robot falls with them."""
RELAXED: Mapping[str, float] = {"stiffness": 2e4, "relaxation": 0.05, "creep": 0.2}
"""Default contact parameters of relaxed_cone [SI units]."""
EASIER = (1.0,)
"""Default contact relaxations of easier problems, for relaxed cones [J]."""
BEYOND = 1e6
"""Magnitude of a state entry, in SI units, above which a motion has diverged."""


@dataclass(frozen=True, kw_only=True)
class Interval(Checked):
    """A time interval of the motion. start, end: times [s]."""

    start: float
    end: float

    def checks(self) -> Checks:
        return {"end": (0.0 <= self.start < self.end, "a time after start; both at least 0")}


@dataclass(frozen=True, kw_only=True)
class Waypoint(Interval):
    """Reference during an interval. height: height of the base [m]. weights: weights of the state in this interval."""

    height: float
    weights: BaseWeights = field(default_factory=BaseWeights)


@dataclass(frozen=True, kw_only=True)
class Push(Interval):
    """Posture of the controller that generates the guess during an interval. joints: posture [rad]."""

    joints: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Marching(Checked):
    """Steps in place in the guess; the legs are lifted in turn along half a sine wave. gait: name of the gait in
    :data:`~problems.legged.gaits.gait.PATTERNS` whose legs swing together. period: duration of a gait cycle [s]. joints:
    posture with all legs lifted [rad]."""

    gait: str = "trot"
    period: float
    joints: tuple[float, ...]

    def checks(self) -> Checks:
        return {"gait": (self.gait in PATTERNS, f"one of {', '.join(PATTERNS)}"), "period": positive(self.period)}

    def lifted(self, times: Array, standing: StandingPose) -> Array:
        """Return the offsets (N, nq - 7) [rad] of the joint references from the initial posture at times (N,) [s].

        Raises ValueError for a robot without four legs.
        """
        if len(standing.stance.legs) != 4:
            raise ValueError(
                f"guess_steps: {standing.model.name} has {len(standing.stance.legs)} legs; remove guess_steps"
            )
        stance, groups = standing.stance, PATTERNS[self.gait]
        away = posture(standing.model, self.joints, "guess_steps.joints") - standing.joints
        phase = len(groups) * np.asarray(times) / self.period
        offsets = np.zeros((len(times), len(away)))
        for turn, group in enumerate(groups):
            up = np.sin(np.pi * (phase % 1.0)) * (phase.astype(int) % len(groups) == turn)
            for leg in group:
                at = list(stance.legs[leg].joints)
                offsets[:, at] = up[:, None] * away[at]
        return offsets


@dataclass(frozen=True, kw_only=True)
class RunningWeights(BaseWeights):
    """Running weights of the state, with which HyQ trots."""

    scale: float = 5.0
    attitude: float = 3e6
    position: Triple = (0.0, 100.0, 1e6)
    joints: float = 5e4
    angular_velocity: float = 3e5
    linear_velocity: float = 3e5
    joint_velocities: float = 1e4


@dataclass(frozen=True, kw_only=True)
class FinalWeights(BaseWeights):
    """Terminal weights of the state. That of the position lets a trot end at its goal."""

    scale: float = 100.0
    attitude: float = 1e4
    position: Triple = (1e6, 1e6, 1e5)
    joints: float = 300.0
    angular_velocity: float = 1e4
    linear_velocity: float = 1e4
    joint_velocities: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Settings(SoftGround, Sampling):
    """A gait of any robot with a floating base (:class:`~problems.legged.robot.walker.LeggedRobot`) on soft ground.

    joints: initial and final posture [rad]. running_joints: posture of the running cost; default: ``joints`` [rad]. height:
    initial and reference height of the base; default: standing on the ground [m]. velocity: reference velocity along x;
    default 0 [m/s]. goal: final x, y of the base; default: where it starts [m]. distance: distance that the base travels along x,
    instead of velocity and goal [m]. yaw: initial and reference yaw of the base [rad]. guess_gains: position and
    velocity gain of the joint controller whose motion is the initial guess, unless the robot tips over under it. guess_push:
    temporary posture of that controller. guess_steps: steps in place in the guess, which suggest a gait. control_weight: weight
    of the torques. running: running weights of the state. terminal: terminal weights of the state. waypoint: reference during a
    part of the motion. easier: contact relaxations of problems that are solved first, for contacts with long time steps; default:
    1 J for those of relaxed_cone, none for others [J].
    """

    ALTERNATIVES = ((("distance",), ("velocity", "goal")),)

    horizon: int = 125
    dt: float = 0.02
    integrator: Integrator = "semi_implicit_euler"
    substeps: int = 2
    contact_law: str = "relaxed_cone"
    running_joints: tuple[float, ...] | None = None
    height: float | None = None
    velocity: float | None = None
    goal: tuple[float, float] | None = None
    distance: float | None = None
    yaw: float = 0.0
    guess_gains: tuple[float, float] = (100.0, 1.0)
    guess_push: Push | None = None
    guess_steps: Marching | None = None
    control_weight: float = 100.0
    running: RunningWeights = field(default_factory=RunningWeights)
    terminal: FinalWeights = field(default_factory=FinalWeights)
    waypoint: Waypoint | None = None
    easier: tuple[float, ...] | None = None

    def checks(self) -> Checks:
        relaxed = not self.easier or (
            self.contact_law in CONTACT_LAWS and is_step_law(self.contact_law) and min(self.easier) > 0
        )
        return super().checks() | {
            "distance": one_of_two(self, "distance", "velocity", "goal"),
            "easier": (relaxed, f"positive numbers [J], with contact_law one of {', '.join(step_laws())}"),
            "height": (self.height is None or math.isfinite(self.height), "a finite number of meters"),
            "control_weight": not_negative(self.control_weight),
            "guess_gains": not_negative(self.guess_gains),
        }

    def law_defaults(self) -> Mapping[str, float]:
        """See :meth:`problems.legged.contact.soft_ground.SoftGround.law_defaults`."""
        return RELAXED if self.contact_law == "relaxed_cone" else {}

    def completed(self) -> Self:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.completed`."""
        own = super().completed()
        return (
            own if own.easier is not None else replace(own, easier=EASIER if isinstance(own.law(), RelaxedCone) else ())
        )

    @property
    def speed(self) -> float:
        """Commanded velocity along x [m/s]."""
        if self.distance is not None:
            return self.distance / (self.horizon * self.dt)
        return self.velocity or 0.0

    @property
    def end(self) -> tuple[float, float]:
        """Commanded final x, y of the base [m]."""
        return (self.distance, 0.0) if self.distance is not None else self.goal or (0.0, 0.0)

    def units(self) -> dict[str, Units]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.units`."""
        own: dict[str, Units] = {
            "dt": TIME,
            "velocity": SPEED,
            "goal": LENGTH,
            "control_weight": running_weight(TORQUE),
        }
        own |= {"guess_gains": (TORQUE, DAMPING), "easier": ENERGY, "distance": LENGTH}
        own |= prefixed("running", BaseWeights.units(running_weight))
        own |= prefixed("terminal", BaseWeights.units(terminal_weight))
        if self.waypoint is not None:
            own |= {"waypoint.start": TIME, "waypoint.end": TIME}
            own |= prefixed("waypoint.weights", BaseWeights.units(running_weight))
        if self.guess_push is not None:
            own |= {"guess_push.start": TIME, "guess_push.end": TIME}
        if self.guess_steps is not None:
            own |= {"guess_steps.period": TIME}
        return own | super().units()

    def heights(self) -> tuple[str, ...]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.heights`."""
        own = () if self.height is None else ("height",)
        return own if self.waypoint is None else (*own, "waypoint.height")

    def postures(self) -> tuple[str, ...]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.postures`."""
        tables = {"guess_push.joints": self.guess_push, "guess_steps.joints": self.guess_steps}
        running = () if self.running_joints is None else ("running_joints",)
        return (*running, *(key for key, table in tables.items() if table is not None))


class _Walker(NamedTuple):
    """Robot, settings, contact system, base height [m], and posture (nq - 7,) of the running cost."""

    standing: StandingPose
    settings: Settings
    system: SoftContact | SteppedContact
    height: float
    on_the_way: Array

    @classmethod
    def from_settings(cls, given: Settings) -> _Walker:
        given = given.completed()
        standing = given.stand()
        model, feet = standing.model, standing.stance.feet
        if given.height is None:
            height = float(standing.q[2]) + given.resting_gap(standing.weight_per_foot)
        else:
            height = given.height
        on_the_way = given.running_joints
        reference = standing.joints if on_the_way is None else posture(model, on_the_way, "running_joints")
        return cls(standing, given, given.contact_dynamics(model, feet), height, reference)

    @property
    def model(self) -> Model:
        """The robot."""
        return self.standing.model

    @property
    def joints(self) -> Array:
        """Joints (nq - 7,) of the initial and final posture [rad]."""
        return self.standing.joints

    @property
    def attitude(self) -> Triple:
        """Initial and reference attitude of the base [rad]."""
        return (0.0, 0.0, self.settings.yaw + self.standing.yaw)

    def cost(self, name: str, weights: BaseWeights, joints: Array, **reference: Triple) -> to.CostTerm:
        """Return a cost term of the state."""
        manifold, weight = self.system.manifold, weights.vector(self.standing.stance.joint_units)
        middle = hips(self.model, self.standing.stance.feet)
        return base_state_cost(
            self.model, manifold, weight, joints, name, hips=middle, attitude=self.attitude, **reference
        )


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for an unknown foot, ValueError if feet are not found or a posture, also of the guess, does not match the
    robot.
    """
    w = _Walker.from_settings(settings)
    s = w.settings
    x0 = np.concatenate([[0.0, 0.0, w.height], quaternion(w.attitude), w.joints, np.zeros(w.model.nv)])
    dynamics, running = s.sampled(backend(w.system)), _running(w)
    goal = [w.cost("goal", s.terminal, w.joints, position=(*s.end, w.height))]
    enforced = EnforcedLimits.from_settings(w.model, s)
    limits: dict[str, Any] = {
        "constraints": enforced.constraints,
        **enforced.bounds,
    }

    def relaxed(relaxation: float | None) -> to.OCP:
        parameters = {} if relaxation is None else {"contact_relaxation": [relaxation]}
        named: dict[str, Any] = {"parameters": parameters, "name": "quadruped_gait", "model": w.model}
        return to.OCP.single_phase(dynamics, x0, s.horizon, s.dt, running, goal, **named, **limits)

    law = w.system.law
    ocp = relaxed(law.relaxation if s.easier and isinstance(law, RelaxedCone) else None)
    easier = tuple(relaxed(relaxation) for relaxation in s.easier or ())
    hip_height = float(heights(w.model, w.standing.stance.feet, np.asarray(x0)[None])[0])
    return Task(
        ocp,
        partial(_guess, (*easier, ocp)[0], w, dynamics.backend, _guess_postures(w, ocp.times[:-1])),
        outcome=partial(_outcome, w),
        commands=partial(_commands, s),
        missed=partial(goal_misses, hip_height, s.end, w.height),
        fallen=partial(falls, w.model, w.standing.stance.feet),
        feet=w.standing.stance.feet,
        warnings=(*_unused(s), *_order_warnings(w)),
        notes=w.standing.notes(),
        contact_limits=partial(contact_limits, ocp, None),
        easier=easier,
        removed_by={**REMOVED_BY, "parameters": "problem.easier = []"},
    )


def _running(w: _Walker) -> list[to.CostTerm]:
    s = w.settings
    going = {"position": (0.0, 0.0, w.height), "velocity": (s.speed, 0.0, 0.0)}
    terms = [
        to.control_cost(
            w.system.nu,
            reference=0.0,
            weight=w.standing.control_weights(s.control_weight),
            names=w.system.control_names,
        ),
        w.cost("gait", s.running, w.on_the_way, **going),
    ]
    if s.waypoint is not None:
        waypoint = s.waypoint
        times = s.dt * np.arange(s.horizon)
        during = (times >= waypoint.start) & (times <= waypoint.end)
        term = w.cost("waypoint", waypoint.weights, w.joints, position=(0.0, 0.0, waypoint.height))
        terms.append(term.updated(weight=during[:, None] * term.weight))
    return terms


def _guess(ocp: to.OCP, w: _Walker, backend: DynamicsBackend, offsets: Array) -> to.Guess:
    """Roll out the joint controller; if the robot does not stay upright, with STIFFER gains, then the regulator.

    offsets (N, nq - 7) [rad]: changes of the held posture. Raises ValueError if the guess diverges.
    """
    s = w.settings
    kp, kd = s.guess_gains
    guess = _hold_posture(ocp, joint_gains(w.standing.stance.joint_units, kp, kd), np.zeros(ocp.nu), offsets)
    if _stands(w, guess):
        return guess
    stiffer = _hold_posture(
        ocp, joint_gains(w.standing.stance.joint_units, STIFFER * kp, STIFFER * kd), np.zeros(ocp.nu), offsets
    )
    if _stands(w, stiffer):
        return stiffer
    resting = resting_controls(backend, ocp.x0)
    with suppress(ValueError):  # steps too long for the ground may have no regulator
        held = _hold_posture(ocp, to.regulator(ocp, resting), resting, offsets)
        if not len(_diverged(held)):
            return held
    for falling in (guess, stiffer):
        if not len(_diverged(falling)):
            return falling
    at = ocp.times[_diverged(guess)[0]]
    raise ValueError(
        f"the initial guess (motion under a controller that holds the posture) diverges at t = {at:.3g} s: "
        f"reduce problem.dt = {s.dt:g} s, increase problem.substeps = {s.substeps}, or reduce problem.guess_gains"
    )


def _stands(w: _Walker, guess: to.Guess) -> bool:
    """Return True if the robot neither diverges, tilts by more than TILTED, nor has its hips below the ground."""
    if len(_diverged(guess)):
        return False
    above = hip_heights(w.model, w.standing.stance.feet, guess.xs) >= 0.0
    return bool((tilts(guess.xs) <= TILTED).all() and above.all())


def _hold_posture(ocp: to.OCP, K: Array, u: Array, offsets: Array) -> to.Guess:
    """Roll out gains K (nu, ndx) about x0 with controls u (nu,) and posture offsets (N, nq - 7) [rad]."""
    with np.errstate(all="ignore"):
        return to.feedback_guess(ocp, K, u - offsets @ K[:, 6 : 6 + offsets.shape[1]].T)


def _diverged(guess: to.Guess) -> Array:
    """Return the knots with a non-finite state, or with an entry above BEYOND."""
    return np.flatnonzero(~(np.abs(guess.xs) <= BEYOND).all(axis=1))


def _guess_postures(w: _Walker, times: Array) -> Array:
    """Return the posture offsets (N, nq - 7) [rad] of the guess at times (N,) [s]."""
    s, push = w.settings, w.settings.guess_push
    offsets = np.zeros((len(times), len(w.joints)))
    if push is not None:
        during = (times >= push.start) & (times < push.end)
        offsets[during] = posture(w.model, push.joints, "guess_push.joints") - w.joints
    if s.guess_steps is not None:
        offsets += s.guess_steps.lifted(times, w.standing)
    return offsets


def _unused(s: Settings) -> tuple[str, ...]:
    """Return warnings about time intervals outside the motion."""
    times, lasts, found = s.dt * np.arange(s.horizon), s.horizon * s.dt, []
    for key, part in (("waypoint", s.waypoint), ("guess_push", s.guess_push)):
        if part is not None and not ((times >= part.start) & (times <= part.end)).any():
            found.append(
                f"problem.{key} has no effect: no time step is between {part.start:g} and {part.end:g} s, and the motion lasts "
                f"{lasts:g} s"
            )
    return tuple(found)


def _order_warnings(w: _Walker) -> tuple[str, ...]:
    """Return a warning about the order of the feet if the guess steps."""
    feet = w.standing.stance.feet
    if w.settings.guess_steps is None:
        return ()
    return order_warnings(feet, positions_of(w.model, feet, w.standing.q))


def _commands(s: Settings, xs: Array, times: Array) -> list[str]:
    weighed = s.running.scale * s.running.linear_velocity > 0
    speed = [speed_sentence(s.speed, xs, times, START, END)] if s.speed and weighed else []
    return [*speed, *([distance_sentence(s.end[0], xs, times)] if s.end[0] else [])]


def _outcome(w: _Walker, x: Array) -> list[str]:
    s = w.settings
    angles, yaw = np.degrees([float(a) for a in euler_xyz(rotation(x))]), np.degrees(w.attitude[2])
    return [
        f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m; target {s.end[0]:g}, {s.end[1]:g}, {w.height:g}",
        f"its roll, pitch and yaw end at {angles[0]:.1f}, {angles[1]:.1f}, {angles[2]:.1f} deg; target 0, 0, {yaw:.3g}",
    ]
