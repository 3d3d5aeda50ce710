"""A gait that nobody prescribes, in receding horizon: a legged robot is told how fast to go, and finds when and where to step.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref|_Q^2 + w_s sum_f e^(-2 z_f / c) |v_f|^2 + w_u |u_k - u_rest|^2 )
               + share/2 |s(x_N) - s_ref|_Q^2

with s(x) of :mod:`~problems.legged.robot.base_state`, whose reference is the posture of standing at the velocity asked for, and for
each foot its height z_f over the ground and its horizontal velocity v_f: a foot that is to go forward does so in the air, some c
high. There is no schedule, no foothold and no phase; where plans follow each other, their ground and their speed are those of
:mod:`~problems.legged.gaits.walking_horizon`.  Contacts are those of long steps
(:class:`~dynamics_backends.systems.contact.stepped_contact.SteppedContact`), so that half a second is 25 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array, DynamicsBackend
from problems.legged.contact.feet_terms import slip_cost
from problems.legged.contact.soft_ground import SoftGround
from problems.legged.gaits.falls import falls
from problems.legged.gaits.walking_horizon import FLAT, WalkingHorizon
from problems.legged.robot.base_state import BaseWeights, base_state_cost
from problems.legged.robot.joint_limits import KeptLimits
from problems.legged.robot.similarity import LENGTH, SPEED, TIME, TORQUE, Scale, running_weight, scaled_fields
from problems.legged.robot.walker import LeggedRobot
from problems.task import BackendFactory, Checks, Sampling, Task, not_negative, positive

ITERATIONS = 8
"""Steps of Newton's method for the torques of rest."""


def _smooth_contacts() -> Mapping[str, float]:
    return {"stiffness": 2e4, "relaxation": 1.0, "creep": 0.2}


@dataclass(frozen=True, kw_only=True)
class Settings(LeggedRobot, SoftGround, Sampling):
    """A gait of a robot with a floating base (:class:`~problems.legged.robot.walker.LeggedRobot`); the horizon is planned at a
    time.

    velocity: forward, asked for [m/s]. height: of the base [m], default that of standing on the ground. base: weights of the state.
    slip: weight of the horizontal velocity of feet near the ground; clearance: what is near [m]. control_weight: of the torques,
    from those of rest. terminal: share of the state's weights at the end [s].
    """

    horizon: int = 25
    dt: float = 0.02
    contact_law: str = "relaxed_cone"
    contact_parameters: Mapping[str, float] = field(default_factory=_smooth_contacts)
    velocity: float = 0.4
    height: float | None = None
    base: BaseWeights = field(default_factory=BaseWeights)
    slip: float = 300.0
    clearance: float = 0.03
    control_weight: float = 5e-3
    terminal: float = 0.1

    def checks(self) -> Checks:
        return super().checks() | {
            "height": (self.height is None or self.height > 0, "a positive number of meters"),
            "clearance": positive(self.clearance),
            **{key: not_negative(getattr(self, key)) for key in ("slip", "control_weight", "terminal")},
        }

    def sized(self, scale: Scale) -> Settings:
        """These settings for a robot of another size, but for the height."""
        units = {"dt": TIME, "velocity": SPEED, "clearance": LENGTH, "terminal": TIME}
        units |= {"slip": running_weight(SPEED), "control_weight": running_weight(TORQUE)}
        sized: Settings = scaled_fields(self, scale, units)
        return replace(sized, base=self.base.sized(scale, running_weight))


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings.

    Raises UnknownName for a foot, ValueError for feet that are not found and for a posture that does not fit the robot.
    """
    standing = settings.stand()
    s = settings.sized(standing.scale)
    model, feet = standing.model, standing.stance.feet
    system = settings.standing_on(model, feet, standing.scale)
    q = standing.q
    if settings.height is None:
        q[2] += settings.resting_gap(standing.share, standing.scale)
    else:
        q[2] = standing.height(settings.height)
    x0, dynamics = np.concatenate([q, np.zeros(model.nv)]), backend(system)
    resting = resting_controls(dynamics, x0)
    base = partial(
        base_state_cost,
        model,
        system.manifold,
        joints=q[7:],
        name="base",
        position=(0.0, 0.0, float(q[2])),
        attitude=(0.0, 0.0, standing.yaw),
        velocity=(s.velocity, 0.0, 0.0),
    )
    weight = s.base.vector(model.nv - 6)
    terms = [
        to.control_cost(system.nu, resting, s.control_weight, names=system.control_names),
        base(weight),
        slip_cost(model, system.manifold, feet, s.clearance, s.slip),
    ]
    final = [base(s.terminal * weight)]
    kept = KeptLimits.of(model, s)
    ocp = to.OCP.single_phase(
        *(s.sampled(dynamics), x0, s.horizon, s.dt, terms, final),
        parameters=FLAT,
        name="free_gait",
        model=model,
        constraints=kept.constraints,
        terminal_constraints=kept.constraints,
        **kept.bounds,
    )
    following = partial(WalkingHorizon, stance=standing.stance, height=float(q[2]), speed=s.velocity)
    guess = to.constant_guess(ocp, resting)
    fallen = partial(falls, model, feet)
    return Task(ocp, guess, feet=feet, following=following, outcome=_outcome, fallen=fallen, notes=standing.notes())


def resting_controls(dynamics: DynamicsBackend, x: Array) -> Array:
    """The controls (nu,) under which the accelerations at a state x (nx,) are least, by Gauss and Newton."""
    u, n = np.zeros(dynamics.map.nu), dynamics.map.manifold.ndx // 2
    for _ in range(ITERATIONS):
        value, _, fu = dynamics.jacobians(x[None], u[None])
        u -= np.linalg.lstsq(fu[0, n:], value[0, n:], rcond=None)[0]
    return u


def _outcome(x: Array) -> list[str]:
    return [f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m"]
