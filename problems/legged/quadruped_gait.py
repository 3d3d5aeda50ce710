"""Gaits of a quadruped on soft ground, without a schedule: trot, gallop, jump and stand are found, not prescribed.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref|_Q^2 + |s(x_k) - s_way|_W(t)^2 + w_u |u_k|^2 )  +  1/2 |s(x_N) - s_goal|_P^2

with the state s(x) of :mod:`~problems.legged.base_state`.  What distinguishes the tasks are the weights, the forward speed
asked for, and a waypoint in time (Neunert et al., Trajectory optimization through contacts and automatic gait
discovery for quadrupeds, RA-L 2017; Giftthaler et al. 2018).  The first guess is the motion under a joint PD
controller that holds the first posture; for a jump it may hold another for a moment, and push the robot off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.soft_contact import SoftContact
from problems.legged.base_state import BaseWeights, Triple, base_state_cost, euler_xyz, quaternion, rotation
from problems.legged.soft_ground import SoftGround
from problems.robots import load_robot
from problems.task import BackendFactory, Checked, Checks, Integrator, Sampling, Task, not_negative


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


@dataclass(frozen=True, kw_only=True)
class Push(Checked):
    """Another posture that the controller of the guess holds for a while. start, end: its times [s]. joints: the posture [rad]."""

    start: float
    end: float
    joints: tuple[float, ...]

    def checks(self) -> Checks:
        return {"end": (0.0 <= self.start < self.end, "a time after start, both at least 0")}


@dataclass(frozen=True, kw_only=True)
class Settings(SoftGround, Sampling):
    """A gait of any robot with a floating base, on ground that is soft.

    robot: a bundled name or "erd:NAME". feet: frames that touch the ground.
    joints: angles [rad] at the start and at the end. running_joints: those the running cost refers to, default ``joints``.
    height: of the base [m], at the start and asked for. velocity: forward speed asked for on the way [m/s].
    goal: x, y [m] of the base at the end. yaw: of the base [rad], at the start and asked for.
    guess_gains: position and velocity gain of the joint controller whose motion is the first guess. guess_push: another posture
    that it holds for a moment. control_weight: of the torques. running, terminal: weights of the state, on the way and at the end.
    waypoint: what is asked for in between, or none.
    """

    horizon: int = 500
    dt: float = 0.005
    integrator: Integrator = "rk4"
    substeps: int = 5
    robot: str = "hyq"
    feet: tuple[str, ...] = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
    joints: tuple[float, ...] = ()
    running_joints: tuple[float, ...] | None = None
    height: float = 0.572
    velocity: float = 0.0
    goal: tuple[float, float] = (0.0, 0.0)
    yaw: float = 0.0
    guess_gains: tuple[float, float] = (600.0, 6.0)
    guess_push: Push | None = None
    control_weight: float = 100.0
    running: BaseWeights = field(default_factory=BaseWeights)
    terminal: BaseWeights = field(default_factory=BaseWeights)
    waypoint: Waypoint | None = None

    def checks(self) -> Checks:
        return super().checks() | {
            "feet": (len(self.feet) > 0, "at least one frame"),
            "height": (self.height > 0, "a positive number of meters"),
            "control_weight": not_negative(self.control_weight),
            "guess_gains": not_negative(self.guess_gains),
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings.

    Raises UnknownName for a foot that the robot does not have, ValueError for a posture that does not fit it.
    """
    s = settings
    model = load_robot(s.robot, base="floating")
    system = s.standing_on(model, s.feet)
    joints = _posture(model, s.joints, "joints")
    x0 = np.concatenate([[0.0, 0.0, s.height], quaternion((0.0, 0.0, s.yaw)), joints, np.zeros(model.nv)])
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        x0,
        s.horizon,
        s.dt,
        _running(model, system, s, joints),
        [_cost(model, system, s, joints, "goal", s.terminal, position=(*s.goal, s.height))],
        name="quadruped_gait",
        model=model,
    )
    found = partial(_guess, ocp, model, s, joints)
    return Task(ocp, found, outcome=lambda x: _outcome(s, x), feet=s.feet)


def _posture(model: Model, joints: tuple[float, ...], key: str) -> Array:
    names = model.q_names[7:]
    if len(joints) != len(names):
        raise ValueError(f"{key} has {len(joints)} entries; {model.name} has {len(names)} joints: {', '.join(names)}")
    return np.array(joints)


def _running(model: Model, system: SoftContact, s: Settings, joints: Array) -> list[to.CostTerm]:
    reference = joints if s.running_joints is None else _posture(model, s.running_joints, "running_joints")
    going = {"position": (0.0, 0.0, s.height), "velocity": (s.velocity, 0.0, 0.0)}
    terms = [
        to.control_cost(system.nu, 0.0, s.control_weight, names=system.control_names),
        _cost(model, system, s, reference, "gait", s.running, **going),
    ]
    if s.waypoint is not None:
        way = s.waypoint
        times = s.dt * np.arange(s.horizon)
        during = (times >= way.start) & (times <= way.end)
        term = _cost(model, system, s, joints, "waypoint", way.weights, position=(0.0, 0.0, way.height))
        terms.append(term.updated(weight=during[:, None] * term.weight))
    return terms


def _cost(
    model: Model, system: SoftContact, s: Settings, joints: Array, name: str, weights: BaseWeights, **reference: Triple
) -> to.CostTerm:
    weight = weights.vector(len(joints))
    return base_state_cost(model, system.manifold, weight, joints, name, attitude=(0.0, 0.0, s.yaw), **reference)


def _guess(ocp: to.OCP, model: Model, s: Settings, joints: Array) -> to.Guess:
    """The motion under the joint controller, whose position gain turns the posture of a push into torques."""
    u = np.zeros((ocp.horizon, len(joints)))
    if s.guess_push is not None:
        during = (ocp.times[:-1] >= s.guess_push.start) & (ocp.times[:-1] < s.guess_push.end)
        u[during] = s.guess_gains[0] * (_posture(model, s.guess_push.joints, "guess_push.joints") - joints)
    return to.feedback_guess(ocp, _joint_gains(model, *s.guess_gains), u)


def _joint_gains(model: Model, position: float, velocity: float) -> Array:
    """K (nu, ndx) of u = K (x (-) x0)."""
    joints = model.nv - 6
    K = np.zeros((joints, 2 * model.nv))
    K[:, 6 : model.nv] = -position * np.eye(joints)
    K[:, model.nv + 6 :] = -velocity * np.eye(joints)
    return K


def _outcome(s: Settings, x: Array) -> list[str]:
    angles = np.degrees([float(a) for a in euler_xyz(rotation(x))])
    return [
        f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m; asked for {s.goal[0]:g}, {s.goal[1]:g}, {s.height:g}",
        f"its roll, pitch and yaw end at {angles[0]:.1f}, {angles[1]:.1f}, {angles[2]:.1f} deg",
    ]
