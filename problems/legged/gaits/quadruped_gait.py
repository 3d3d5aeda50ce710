"""Gaits of a quadruped on soft ground, without a schedule: trot, gallop, jump and stand are found, not prescribed.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref|_Q^2 + |s(x_k) - s_way|_W(t)^2 + w_u |u_k|^2 )  +  1/2 |s(x_N) - s_goal|_P^2

with the state s(x) of :mod:`~problems.legged.robot.base_state`.  What distinguishes the tasks are the weights, the forward speed
asked for, and a waypoint in time (Neunert et al., Trajectory optimization through contacts and automatic gait
discovery for quadrupeds, RA-L 2017; Giftthaler et al. 2018).  The first guess is the motion under a joint PD
controller that holds the first posture; for a jump it may hold another for a moment, and push the robot off.  On contacts of long
steps, problems with more relaxed ones may lead there, each from the solution of the last: they see the ground from further away.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.registry import STEP_LAWS
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from problems.legged.contact.soft_ground import SoftGround
from problems.legged.gaits.falls import ends_away, falls
from problems.legged.gaits.gait import PATTERNS
from problems.legged.robot.base_state import BaseWeights, Triple, base_state_cost, euler_xyz, quaternion, rotation
from problems.legged.robot.joint_limits import KeptLimits
from problems.legged.robot.similarity import (
    DAMPING,
    ENERGY,
    LENGTH,
    SPEED,
    TIME,
    TORQUE,
    Scale,
    running_weight,
    scaled_fields,
    terminal_weight,
)
from problems.legged.robot.walker import LeggedRobot, Standing, joint_gains
from problems.task import BackendFactory, Checked, Checks, Integrator, Sampling, Task, not_negative, positive


@dataclass(frozen=True, kw_only=True)
class Waypoint(Checked):
    """What is asked for during a part of the motion. start, end: its times [s]. height: of the base [m]. weights: of the state
    then."""

    start: float
    end: float
    height: float
    weights: BaseWeights = field(default_factory=BaseWeights)

    def checks(self) -> Checks:
        return {"end": (0.0 <= self.start < self.end, "a time after start, both at least 0")}

    def sized(self, standing: Standing) -> Waypoint:
        """For a robot of another size."""
        timed: Waypoint = scaled_fields(self, standing.scale, dict.fromkeys(("start", "end"), TIME))
        weights = self.weights.sized(standing.scale, running_weight)
        return replace(timed, height=standing.height(self.height), weights=weights)


@dataclass(frozen=True, kw_only=True)
class Push(Checked):
    """Another posture that the controller of the guess holds for a while. start, end: its times [s]. joints: the posture [rad]."""

    start: float
    end: float
    joints: tuple[float, ...]

    def checks(self) -> Checks:
        return {"end": (0.0 <= self.start < self.end, "a time after start, both at least 0")}


@dataclass(frozen=True, kw_only=True)
class Marching(Checked):
    """Steps on the spot, in the guess: legs are drawn up in turn, each by half a wave of a sine. gait: which swing together, by a
    name of :data:`~problems.legged.gaits.gait.PATTERNS`. period: of all in turn [s]. joints: the posture with all drawn up [rad].
    """

    gait: str = "trot"
    period: float
    joints: tuple[float, ...]

    def checks(self) -> Checks:
        return {"gait": (self.gait in PATTERNS, f"one of {', '.join(PATTERNS)}"), "period": positive(self.period)}

    def lifted(self, times: Array, standing: Standing) -> Array:
        """By how much the reference of the joints differs from the first posture (N, nq - 7) [rad] at times (N,) [s].

        Raises ValueError for a robot that has not four legs.
        """
        if len(standing.stance.legs) != 4:
            raise ValueError(f"guess_steps: {standing.model.name} has {len(standing.stance.legs)} legs; leave it out")
        stance, groups = standing.stance, PATTERNS[self.gait]
        away = standing.posture(self.joints, "guess_steps.joints") - standing.joints
        phase = len(groups) * np.asarray(times) / standing.scale.scaled(self.period, TIME)
        offsets = np.zeros((len(times), len(away)))
        for turn, group in enumerate(groups):
            up = np.sin(np.pi * (phase % 1.0)) * (phase.astype(int) % len(groups) == turn)
            for leg in group:
                at = list(stance.legs[leg].joints)
                offsets[:, at] = up[:, None] * away[at]
        return offsets


@dataclass(frozen=True, kw_only=True)
class Settings(LeggedRobot, SoftGround, Sampling):
    """A gait of any robot with a floating base (:class:`~problems.legged.robot.walker.LeggedRobot`), on ground that is soft.

    joints: at the start and at the end. running_joints: those the running cost refers to, default ``joints``.
    height: of the base [m], at the start and asked for; default that of standing on the ground. velocity: speed along x
    asked for on the way [m/s].
    goal: x, y [m] of the base at the end. yaw: of the base [rad], at the start and asked for.
    guess_gains: position and velocity gain of the joint controller whose motion is the first guess. guess_push: another posture
    that it holds for a moment. guess_steps: legs that it draws up in turn, by which a gait is suggested.
    control_weight: of the torques. running, terminal: weights of the state, on the way and at the end.
    waypoint: what is asked for in between, or none. easier: relaxations [J] of contacts of long steps with which it is solved
    before.
    """

    horizon: int = 500
    dt: float = 0.005
    integrator: Integrator = "rk4"
    substeps: int = 5
    running_joints: tuple[float, ...] | None = None
    height: float | None = None
    velocity: float = 0.0
    goal: tuple[float, float] = (0.0, 0.0)
    yaw: float = 0.0
    guess_gains: tuple[float, float] = (600.0, 6.0)
    guess_push: Push | None = None
    guess_steps: Marching | None = None
    control_weight: float = 100.0
    running: BaseWeights = field(default_factory=BaseWeights)
    terminal: BaseWeights = field(default_factory=BaseWeights)
    waypoint: Waypoint | None = None
    easier: tuple[float, ...] = ()

    def checks(self) -> Checks:
        relaxed = not self.easier or (self.contact_law in STEP_LAWS and min(self.easier) > 0)
        return super().checks() | {
            "easier": (relaxed, f"positive numbers of joules, where contact_law is one of {', '.join(STEP_LAWS)}"),
            "height": (self.height is None or self.height > 0, "a positive number of meters"),
            "control_weight": not_negative(self.control_weight),
            "guess_gains": not_negative(self.guess_gains),
        }

    def sized(self, scale: Scale) -> Settings:
        """These settings for a robot of another size, but for heights and postures."""
        units = {"dt": TIME, "velocity": SPEED, "goal": LENGTH, "control_weight": running_weight(TORQUE)}
        sized: Settings = scaled_fields(self, scale, units)
        position, velocity = self.guess_gains
        return replace(
            sized,
            guess_gains=(scale.scaled(position, TORQUE), scale.scaled(velocity, DAMPING)),
            easier=scale.scaled(self.easier, ENERGY),
            running=self.running.sized(scale, running_weight),
            terminal=self.terminal.sized(scale, terminal_weight),
        )


class _Walker(NamedTuple):
    """The robot, its settings, the height of its base [m], and the posture (nq - 7,) that the running cost refers to."""

    standing: Standing
    settings: Settings
    system: SoftContact | SteppedContact
    height: float
    on_the_way: Array

    @classmethod
    def of(cls, given: Settings) -> _Walker:
        standing = given.stand()
        model, feet = standing.model, standing.stance.feet
        if given.height is None:
            height = float(standing.q[2]) + given.resting_gap(standing.share, standing.scale)
        else:
            height = standing.height(given.height)
        on_the_way = given.running_joints
        reference = standing.joints if on_the_way is None else standing.posture(on_the_way, "running_joints")
        system = given.standing_on(model, feet, standing.scale)
        return cls(standing, given.sized(standing.scale), system, height, reference)

    @property
    def model(self) -> Model:
        """The robot."""
        return self.standing.model

    @property
    def joints(self) -> Array:
        """The joints of the posture (nq - 7,) at the start and at the end [rad]."""
        return self.standing.joints

    @property
    def attitude(self) -> Triple:
        """The attitude of the base [rad], at the start and asked for."""
        return (0.0, 0.0, self.settings.yaw + self.standing.yaw)

    def cost(self, name: str, weights: BaseWeights, joints: Array, **reference: Triple) -> to.CostTerm:
        """The cost of the state."""
        manifold, weight = self.system.manifold, weights.vector(len(joints))
        return base_state_cost(self.model, manifold, weight, joints, name, attitude=self.attitude, **reference)


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings.

    Raises UnknownName for a foot that the robot does not have, ValueError for feet that are not found and for a posture that does
    not fit it, of the guess too.
    """
    w = _Walker.of(settings)
    s = w.settings
    x0 = np.concatenate([[0.0, 0.0, w.height], quaternion(w.attitude), w.joints, np.zeros(w.model.nv)])
    dynamics, running = s.sampled(backend(w.system)), _running(w)
    goal = [w.cost("goal", s.terminal, w.joints, position=(*s.goal, w.height))]
    kept = KeptLimits.of(w.model, s)
    limits: dict[str, Any] = {"constraints": kept.constraints, "terminal_constraints": kept.constraints, **kept.bounds}

    def relaxed(relaxation: float | None) -> to.OCP:
        parameters = {} if relaxation is None else {"contact_relaxation": [relaxation]}
        named: dict[str, Any] = {"parameters": parameters, "name": "quadruped_gait", "model": w.model}
        return to.OCP.single_phase(dynamics, x0, s.horizon, s.dt, running, goal, **named, **limits)

    law = w.system.law
    ocp = relaxed(law.relaxation if s.easier and isinstance(law, RelaxedCone) else None)
    easier = tuple(relaxed(relaxation) for relaxation in s.easier)
    return Task(
        ocp,
        partial(_guess, (*easier, ocp)[0], w, _guess_torques(w, ocp.times[:-1])),
        outcome=partial(_outcome, w),
        missed=lambda xs: ends_away(xs, s.goal, w.height),
        fallen=partial(falls, w.model, w.standing.stance.feet),
        feet=w.standing.stance.feet,
        notes=w.standing.notes(),
        carried=w.standing.carried,
        easier=easier,
    )


def _running(w: _Walker) -> list[to.CostTerm]:
    s = w.settings
    going = {"position": (0.0, 0.0, w.height), "velocity": (s.velocity, 0.0, 0.0)}
    terms = [
        to.control_cost(w.system.nu, 0.0, s.control_weight, names=w.system.control_names),
        w.cost("gait", s.running, w.on_the_way, **going),
    ]
    if s.waypoint is not None:
        way = s.waypoint.sized(w.standing)
        times = s.dt * np.arange(s.horizon)
        during = (times >= way.start) & (times <= way.end)
        term = w.cost("waypoint", way.weights, w.joints, position=(0.0, 0.0, way.height))
        terms.append(term.updated(weight=during[:, None] * term.weight))
    return terms


def _guess(ocp: to.OCP, w: _Walker, u: Array) -> to.Guess:
    """The motion under the joint controller, and torques u (N, nu). Raises ValueError where it diverges."""
    s = w.settings
    with np.errstate(all="ignore"):
        guess = to.feedback_guess(ocp, joint_gains(w.model, *s.guess_gains), u)
    bad = np.flatnonzero(~np.isfinite(guess.xs).all(axis=1))
    if len(bad):
        raise ValueError(
            f"the motion under the joint controller, from which the solve begins, diverges by t = {ocp.times[bad[0]]:.3g} s: "
            f"make problem.dt = {s.dt:g} s shorter, problem.substeps = {s.substeps} larger, or problem.guess_gains smaller"
        )
    return guess


def _guess_torques(w: _Walker, times: Array) -> Array:
    """What turns the posture that the joint controller holds into others, at times (N,): torques (N, nu) by its position gain."""
    s, push, scale = w.settings, w.settings.guess_push, w.standing.scale
    offsets = np.zeros((len(times), len(w.joints)))
    if push is not None:
        start, end = scale.scaled((push.start, push.end), TIME)
        during = (times >= start) & (times < end)
        offsets[during] = w.standing.posture(push.joints, "guess_push.joints") - w.joints
    if s.guess_steps is not None:
        offsets += s.guess_steps.lifted(times, w.standing)
    return s.guess_gains[0] * offsets


def _outcome(w: _Walker, x: Array) -> list[str]:
    s = w.settings
    angles = np.degrees([float(a) for a in euler_xyz(rotation(x))])
    return [
        f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m; asked for {s.goal[0]:g}, {s.goal[1]:g}, {w.height:g}",
        f"its roll, pitch and yaw end at {angles[0]:.1f}, {angles[1]:.1f}, {angles[2]:.1f} deg",
    ]
