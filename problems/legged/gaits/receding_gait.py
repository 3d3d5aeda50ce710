"""Gait in receding horizon: a quadruped on soft ground tracks the feet and base references of a schedule.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref(t_k)|_Q^2 + sum_f |p_f(x_k) - p_ref,f(t_k)|_W(t_k)^2 + w_u |u_k|^2 )
               + share/2 |s(x_N) - s_ref(t_N)|_Q^2

with s(x) of :mod:`~problems.legged.robot.base_state`, the foot positions p_f(x), and the references of a
:class:`~problems.legged.gaits.gait.Gait`, which ``Task.moved`` shifts to any start time.  W depends on swing or stance of the
foot; contact forces and times result from the solve (soft ground, no schedule of forces).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import frame_placement
from trajopt.config.task import (
    MAX_KNOTS,
    BackendFactory,
    Checked,
    Checks,
    Integrator,
    Sampling,
    Task,
    not_negative,
    one_of_two,
)
from ..contact.contact_limits import contact_limits
from ..contact.soft_ground import SoftGround
from ..robot.base_state import BaseWeights, Triple, base_state_cost
from ..robot.joint_limits import REMOVED_BY, EnforcedLimits
from ..robot.legs import hips
from ..robot.similarity import DAMPING, LENGTH, TIME, TORQUE, Units, prefixed, running_weight
from ..robot.walker import StandingPose, joint_gains
from .commands import travel_sentences
from .falls import falls
from .gait import STEP_LENGTH, Gait
from .reach import order_warnings, require_reach, swing_warnings


@dataclass(frozen=True, kw_only=True)
class StateWeights(BaseWeights):
    """Weights of the state, with which HyQ trots."""

    attitude: float = 1e3
    position: Triple = (1e3, 1e3, 3e3)
    joints: float = 10.0
    angular_velocity: float = 10.0
    linear_velocity: float = 100.0
    joint_velocities: float = 0.05


@dataclass(frozen=True, kw_only=True)
class FootWeights(Checked):
    """Weights of a foot position [1/m^2]. swing: weight during swing. stance: weight during stance."""

    swing: float = 1e4
    stance: float = 1e3

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Settings(SoftGround, Sampling):
    """A scheduled gait on soft ground, replanned over a receding horizon, for a robot with a floating base and four feet
    (:class:`~problems.legged.robot.walker.LeggedRobot`).

    base: weights of the state. foot: weights of the feet. control_weight: weight of the torques. joints: initial and reference
    posture [rad]. height: height of the base; default: standing on the ground [m]. gait: name of a gait in
    :data:`problems.legged.gaits.gait.PATTERNS`. swing: duration of a swing [s]. support: duration on all feet between two swings
    [s]. cycles: gait cycles before the robot stands. step_length: length of a step; default 0.15 [m]. step_height: height of a
    step; default 0.08 [m]. distance: distance that the base travels in all cycles, instead of step_length [m]. terminal: terminal
    weights as a fraction of the running ones. guess_gains: gains (kp, kd) of the joint controller whose motion is the initial
    guess.
    """

    ALTERNATIVES = ((("distance",), ("step_length",)),)

    horizon: int = 50
    dt: float = 0.01
    integrator: Integrator = "semi_implicit_euler"
    substeps: int = 10
    height: float | None = None
    gait: str = "trot"
    swing: float = 0.25
    support: float = 0.05
    cycles: int = 20
    step_length: float | None = None
    step_height: float = 0.08
    distance: float | None = None
    base: StateWeights = field(default_factory=StateWeights)
    foot: FootWeights = field(default_factory=FootWeights)
    control_weight: float = 1e-3
    terminal: float = 0.1
    guess_gains: tuple[float, float] = (600.0, 6.0)

    def checks(self) -> Checks:
        return super().checks() | {
            "distance": one_of_two(self, "distance", "step_length"),
            "height": (self.height is None or math.isfinite(self.height), "a finite number of meters"),
            "cycles": (1 <= self.cycles <= MAX_KNOTS, f"at least 1 and at most {MAX_KNOTS}"),
            **{key: not_negative(getattr(self, key)) for key in ("control_weight", "terminal", "guess_gains")},
        }

    def units(self) -> dict[str, Units]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.units`."""
        # terminal weights are running weights times a duration
        own: dict[str, Units] = {"terminal": TIME, "guess_gains": (TORQUE, DAMPING)}
        own |= dict.fromkeys(("step_length", "step_height", "distance"), LENGTH) | dict.fromkeys(
            ("dt", "swing", "support"), TIME
        )
        own |= {"control_weight": running_weight(TORQUE)} | prefixed("base", BaseWeights.units(running_weight))
        return own | dict.fromkeys(("foot.swing", "foot.stance"), running_weight(LENGTH)) | super().units()

    def completed(self) -> Self:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.completed`."""
        own = super().completed()
        known = own.step_length is not None or own.distance is not None
        return own if known else replace(own, step_length=STEP_LENGTH)

    def heights(self) -> tuple[str, ...]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.heights`."""
        return () if self.height is None else ("height",)


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for an unknown foot or gait, ValueError if feet are not found or a posture does not match the robot.
    """
    standing = settings.stand()
    s = replace(settings, feet=standing.stance.feet)
    model = standing.model
    system = s.contact_dynamics(model, s.feet)
    x0 = _standing_state(standing, s)
    references = _References.create(standing, s, x0)
    running, terminal = _costs(standing, system, s, x0, references.footholds)
    sampled = s.sampled(backend(system))
    enforced = EnforcedLimits.from_settings(model, s)
    still = to.OCP.single_phase(
        *(sampled, x0, s.horizon, s.dt, running, terminal),
        name="receding_gait",
        model=model,
        constraints=enforced.constraints,
        **enforced.bounds,
    )
    ocp = references.moved(still, 0.0)
    guess = partial(to.feedback_guess, ocp, joint_gains(standing.stance.joint_units, *s.guess_gains))
    return Task(
        ocp,
        guess,
        feet=s.feet,
        moved=references.moved,
        outcome=_outcome,
        commands=references.commands,
        fallen=partial(falls, model, s.feet),
        warnings=(*swing_warnings(standing.stance, s.swing), *order_warnings(s.feet, references.footholds)),
        notes=standing.notes(),
        contact_limits=partial(contact_limits, ocp, None),
        removed_by=REMOVED_BY,
    )


def _costs(
    standing: StandingPose, system: to.SoftContact | to.SteppedContact, s: Settings, x0: Array, footholds: Array
) -> tuple[list[to.CostTerm], list[to.CostTerm]]:
    """Return running and terminal terms, with references of standing at x0."""
    model = standing.model
    base = partial(
        base_state_cost,
        model,
        system.manifold,
        joints=x0[7 : model.nq],
        name="base",
        hips=hips(model, s.feet),
        position=tuple(x0[:3]),
        attitude=(0.0, 0.0, standing.yaw),
    )
    weight = s.base.vector(standing.stance.joint_units)
    feet = [
        to.frame_position_cost(model, system.manifold, foot, hold, s.foot.stance, foot)
        for foot, hold in zip(s.feet, footholds, strict=True)
    ]
    control = to.control_cost(system.nu, weight=standing.control_weights(s.control_weight), names=system.control_names)
    return [control, base(weight), *feet], [base(s.terminal * weight)]


def _standing_state(standing: StandingPose, s: Settings) -> Array:
    """Return the initial state x0 (nx,), standing."""
    q, model = standing.q, standing.model
    q[2] = q[2] + s.resting_gap(standing.weight_per_foot) if s.height is None else s.height
    return np.concatenate([q, np.zeros(model.nv)])


SLOPE = 0.4
"""Fraction of a swing over which the base's reference speed is averaged."""


@dataclass(frozen=True)
class _References:
    """References of a gait. footholds (4, 3) [m] and start (3,) [m]: initial positions of feet and base. weights: foot weights.
    slope: time [s] over which the base's reference speed is averaged.
    """

    gait: Gait
    footholds: Array
    start: Array
    weights: FootWeights
    slope: float

    @classmethod
    def create(cls, standing: StandingPose, s: Settings, x0: Array) -> _References:
        model = standing.model
        footholds = np.array([frame_placement(model, x0[: model.nq], foot)[1] for foot in s.feet])
        length = STEP_LENGTH if s.step_length is None else s.step_length
        size = {"step_length": length, "step_height": s.step_height}
        gait = Gait.named(s.gait, s.feet, swing=s.swing, support=s.support, cycles=s.cycles, **size)
        gait = gait if s.distance is None else gait.over(s.distance)
        require_reach(standing.stance, gait, footholds)
        return cls(gait, footholds, x0[:3], s.foot, SLOPE * s.swing)

    def moved(self, ocp: to.OCP, t: float) -> to.OCP:
        """Return the problem with the references of the gait from t [s] on."""
        times = t + ocp.times
        wanted = self.gait.references(times, self.footholds)
        speed = self.gait.references(times + self.slope, self.footholds).base - wanted.base
        ocp = ocp.updated("base", position=self.start + wanted.base, velocity=speed / self.slope)
        for f, foot in enumerate(self.gait.feet):
            swings = wanted.swinging[:-1, f, None]
            weight = np.broadcast_to(np.where(swings, self.weights.swing, self.weights.stance), (ocp.horizon, 3))
            ocp = ocp.updated(foot, weight=weight, goal=wanted.position[:, f])
        return ocp

    def commands(self, xs: Array, times: Array) -> list[str]:
        """Compare commanded and achieved speed and distance in states xs (M, nx) at times (M,) [s]."""
        base = self.gait.references(times[[0, -1]], self.footholds).base[:, 0]
        return travel_sentences(float(base[1] - base[0]), xs, times)


def _outcome(x: Array) -> list[str]:
    return [f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m"]
