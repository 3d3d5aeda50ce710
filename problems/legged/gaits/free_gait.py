"""Gait without schedule in receding horizon: a legged robot walks at a commanded speed; the solver finds the steps.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref|_Q^2 + w_s sum_f e^(-2 z_f / c) |v_f|^2 + w_u |u_k - u_rest|^2 )
               + share/2 |s(x_N) - s_ref|_Q^2

with s(x) of :mod:`~problems.legged.robot.base_state`, whose reference is the standing posture at the commanded velocity, and for
each foot its height z_f above the ground and its horizontal velocity v_f: the slip term makes feet move forward in the air, at a
height of about c. There is no schedule, no foothold and no phase. In replanning, ground and speed are those of
:mod:`~problems.legged.gaits.walking_horizon`.  The contacts allow long time steps
(:class:`~dynamics_backends.systems.contact.stepped_contact.SteppedContact`), so half a second takes 25 steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array, DynamicsBackend
from trajopt.config.task import BackendFactory, Checks, Sampling, Task, not_negative, one_of_two, positive
from ..contact.contact_limits import contact_limits
from ..contact.feet_terms import slip_cost
from ..contact.soft_ground import SoftGround
from ..robot.base_state import BaseWeights, Triple, base_state_cost
from ..robot.joint_limits import REMOVED_BY, EnforcedLimits
from ..robot.legs import hips
from ..robot.similarity import LENGTH, SPEED, TIME, TORQUE, Units, prefixed, running_weight
from .commands import RUNNING, distance_sentence, speed_sentence
from .falls import falls
from .walking_horizon import FLAT, WalkingHorizon

VELOCITY = 0.4
"""Default velocity [m/s], for a robot as large as HyQ, if neither a velocity nor a distance is given."""
ITERATIONS = 8
"""Number of Gauss-Newton steps for the resting torques."""


SMOOTH: Mapping[str, float] = {"stiffness": 2e4, "relaxation": 1.0, "creep": 0.2}
"""Default parameters of the law relaxed_cone in this problem, smoother than its own defaults."""


@dataclass(frozen=True, kw_only=True)
class StateWeights(BaseWeights):
    """Weights of the state, with which HyQ walks."""

    attitude: float = 3e3
    position: Triple = (0.0, 100.0, 1e3)
    joints: float = 200.0
    angular_velocity: float = 50.0
    linear_velocity: float = 4e3
    joint_velocities: float = 0.3


@dataclass(frozen=True, kw_only=True)
class Settings(SoftGround, Sampling):
    """A gait without contact schedule, replanned over a receding horizon, for a robot with a floating base
    (:class:`~problems.legged.robot.walker.LeggedRobot`).

    velocity: commanded forward velocity; default 0.4 [m/s]. distance: distance that the base travels, instead of a velocity: in
    the run of ``replan.duration``, or without a table [replan] in the horizon [m]. height: height of the base; default: standing
    on the ground [m]. base: weights of the state. slip: weight of the horizontal velocity of feet near the ground. clearance:
    height below which a foot is near the ground [m]. control_weight: weight of the torques relative to those at rest. terminal:
    time that scales the terminal weights [s]. contact_parameters: numbers by the keys of the contact law, instead of its
    defaults; those of relaxed_cone are here a stiffness of 2e4, a relaxation of 1 and a creep of 0.2.
    """

    ALTERNATIVES = ((("distance",), ("velocity",)),)

    horizon: int = 25
    dt: float = 0.02
    contact_law: str = "relaxed_cone"
    velocity: float | None = None
    distance: float | None = None
    height: float | None = None
    base: StateWeights = field(default_factory=StateWeights)
    slip: float = 300.0
    clearance: float = 0.05
    control_weight: float = 5e-3
    terminal: float = 0.1

    def checks(self) -> Checks:
        return super().checks() | {
            "distance": one_of_two(self, "distance", "velocity"),
            "height": (self.height is None or math.isfinite(self.height), "a finite number of meters"),
            "clearance": positive(self.clearance),
            **{key: not_negative(getattr(self, key)) for key in ("slip", "control_weight", "terminal")},
        }

    def with_run_duration(self, run: float | None) -> tuple[Settings, tuple[str, ...]]:
        """Return these settings with the velocity that covers the distance in a run [s], and a note about it.

        run: duration of the run; None: the horizon. Without a distance the settings are unchanged.
        """
        if self.distance is None:
            return self, ()
        lasts = self.horizon * self.dt if run is None else run
        what = "the horizon" if run is None else "replan.duration"
        velocity = self.distance / lasts
        note = (
            f"problem.distance = {self.distance:g} m in {what} of {lasts:g} s: problem.velocity is {velocity:.4g} m/s"
        )
        return replace(self, distance=None, velocity=velocity), (note,)

    def units(self) -> dict[str, Units]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.units`."""
        own: dict[str, Units] = {
            "dt": TIME,
            "velocity": SPEED,
            "distance": LENGTH,
            "clearance": LENGTH,
            "terminal": TIME,
        }
        own |= {"slip": running_weight(SPEED), "control_weight": running_weight(TORQUE)}
        return own | prefixed("base", BaseWeights.units(running_weight)) | super().units()

    def completed(self) -> Self:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.completed`."""
        own = super().completed()
        return replace(own, velocity=VELOCITY) if own.velocity is None and own.distance is None else own

    def law_defaults(self) -> Mapping[str, float]:
        """See :meth:`problems.legged.contact.soft_ground.SoftGround.law_defaults`."""
        return SMOOTH if self.contact_law == "relaxed_cone" else {}

    def heights(self) -> tuple[str, ...]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.heights`."""
        return () if self.height is None else ("height",)


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for an unknown foot, ValueError if feet are not found or a posture does not match the robot.
    """
    s, notes = settings.with_run_duration(None)
    standing = s.stand()
    speed = VELOCITY if s.velocity is None else s.velocity
    model, feet = standing.model, standing.stance.feet
    system = s.contact_dynamics(model, feet)
    q = standing.q
    q[2] = q[2] + s.resting_gap(standing.weight_per_foot) if s.height is None else s.height
    x0, dynamics = np.concatenate([q, np.zeros(model.nv)]), backend(system)
    resting = resting_controls(dynamics, x0)
    base = partial(
        base_state_cost,
        model,
        system.manifold,
        joints=q[7:],
        name="base",
        hips=hips(model, feet),
        position=(0.0, 0.0, float(q[2])),
        attitude=(0.0, 0.0, standing.yaw),
        velocity=(speed, 0.0, 0.0),
    )
    weight = s.base.vector(standing.stance.joint_units)
    terms = [
        to.control_cost(
            system.nu, reference=resting, weight=standing.control_weights(s.control_weight), names=system.control_names
        ),
        base(weight),
        slip_cost(model, system.manifold, feet, s.clearance, s.slip),
    ]
    final = [base(s.terminal * weight)]
    enforced = EnforcedLimits.from_settings(model, s)
    ocp = to.OCP.single_phase(
        *(s.sampled(dynamics), x0, s.horizon, s.dt, terms, final),
        parameters=FLAT,
        name="free_gait",
        model=model,
        constraints=enforced.constraints,
        **enforced.bounds,
    )
    following = partial(WalkingHorizon, stance=standing.stance, height=float(q[2]), speed=speed)
    guess = to.constant_guess(ocp, resting)
    return Task(
        ocp,
        guess,
        feet=feet,
        following=following,
        outcome=_outcome,
        commands=partial(_commands, speed),
        fallen=partial(falls, model, feet),
        notes=(*notes, *standing.notes()),
        contact_limits=partial(contact_limits, ocp, None),
        removed_by=REMOVED_BY,
    )


def resting_controls(dynamics: DynamicsBackend, x: Array) -> Array:
    """Return the controls (nu,) with the smallest accelerations at a state x (nx,), by Gauss-Newton."""
    u, n = np.zeros(dynamics.map.nu), dynamics.map.manifold.ndx // 2
    for _ in range(ITERATIONS):
        value, _, fu = dynamics.jacobians(x[None], u[None])
        u -= np.linalg.lstsq(fu[0, n:], value[0, n:], rcond=None)[0]
    return u


def _commands(speed: float, xs: Array, times: Array) -> list[str]:
    distance = speed * float(times[-1] - times[0])
    return [speed_sentence(speed, xs, times, RUNNING), distance_sentence(distance, xs, times)]


def _outcome(x: Array) -> list[str]:
    return [f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m"]
