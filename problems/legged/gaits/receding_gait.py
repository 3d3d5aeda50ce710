"""A gait in receding horizon: a quadruped on soft ground follows the feet and the base of a schedule.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref(t_k)|_Q^2 + sum_f |p_f(x_k) - p_ref,f(t_k)|_W(t_k)^2 + w_u |u_k|^2 )
               + share/2 |s(x_N) - s_ref(t_N)|_Q^2

with s(x) of :mod:`~problems.legged.robot.base_state`, the foot positions p_f(x), and the references of a
:class:`~problems.legged.gaits.gait.Gait`, which ``Task.moved`` takes to those from any time on.  W is that of a swinging or of a
standing foot; forces and times of contact are the solver's (soft ground, no schedule of forces).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import frame_placement
from problems.legged.contact.soft_ground import SoftGround
from problems.legged.gaits.falls import falls
from problems.legged.gaits.gait import Gait
from problems.legged.robot.base_state import BaseWeights, base_state_cost
from problems.legged.robot.joint_limits import KeptLimits
from problems.legged.robot.similarity import DAMPING, LENGTH, TIME, TORQUE, Scale, running_weight, scaled_fields
from problems.legged.robot.walker import LeggedRobot, Standing, joint_gains
from problems.task import MOST_KNOTS, BackendFactory, Checked, Checks, Integrator, Sampling, Task, not_negative
from trajopt.replanning.plan import with_values


@dataclass(frozen=True, kw_only=True)
class FootWeights(Checked):
    """Weights of a foot's position [1/m^2]. swing: while it swings. stance: while it stands."""

    swing: float = 5e3
    stance: float = 5e2

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}

    def sized(self, scale: Scale) -> FootWeights:
        """These weights for a robot of another size."""
        weights: FootWeights = scaled_fields(self, scale, dict.fromkeys(("swing", "stance"), running_weight(LENGTH)))
        return weights


@dataclass(frozen=True, kw_only=True)
class Settings(LeggedRobot, SoftGround, Sampling):
    """A gait of a robot with a floating base and four feet (:class:`~problems.legged.robot.walker.LeggedRobot`); the horizon is
    what is planned at a time.

    base: weights of the state. foot: weights of the feet. control_weight: of the torques.
    joints: at the start, which the joints are drawn to. height: of the base [m], default that of standing on the ground. gait: of
    :data:`problems.legged.gaits.gait.PATTERNS`. swing, support: seconds in the air, and on all feet between two swings.
    cycles: of the gait, after which the robot stands. step_length, step_height: of a foot [m].
    terminal: share of the state's weights at the end. guess_gains: of the joint controller whose motion is the first guess.
    """

    horizon: int = 50
    dt: float = 0.01
    integrator: Integrator = "rk4"
    substeps: int = 10
    height: float | None = None
    gait: str = "trot"
    swing: float = 0.25
    support: float = 0.05
    cycles: int = 20
    step_length: float = 0.15
    step_height: float = 0.1
    base: BaseWeights = field(default_factory=BaseWeights)
    foot: FootWeights = field(default_factory=FootWeights)
    control_weight: float = 1e-3
    terminal: float = 0.1
    guess_gains: tuple[float, float] = (600.0, 6.0)

    def checks(self) -> Checks:
        return super().checks() | {
            "height": (self.height is None or self.height > 0, "a positive number of meters"),
            "cycles": (1 <= self.cycles <= MOST_KNOTS, f"at least 1 and at most {MOST_KNOTS}"),
            **{key: not_negative(getattr(self, key)) for key in ("control_weight", "terminal", "guess_gains")},
        }

    def sized(self, scale: Scale) -> Settings:
        """These settings for a robot of another size, but for the height."""
        lengths = dict.fromkeys(("step_length", "step_height"), LENGTH)
        times = dict.fromkeys(("dt", "swing", "support"), TIME)
        sized: Settings = scaled_fields(self, scale, lengths | times | {"control_weight": running_weight(TORQUE)})
        position, velocity = self.guess_gains
        gains = (scale.scaled(position, TORQUE), scale.scaled(velocity, DAMPING))
        # the terminal cost has weights of the running one, whose time is that of a fixed share
        at_the_end = scale.scaled(self.terminal, TIME)
        base = self.base.sized(scale, running_weight)
        return replace(sized, guess_gains=gains, base=base, foot=self.foot.sized(scale), terminal=at_the_end)


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings.

    Raises UnknownName for a foot or a gait, ValueError for feet that are not found and for a posture that does not fit the robot.
    """
    standing = settings.stand()
    s = replace(settings.sized(standing.scale), feet=standing.stance.feet)
    model = standing.model
    system = s.standing_on(model, s.feet, standing.scale)
    x0 = _standing(standing, settings)
    references = _References.of(standing, s, x0)
    running, terminal = _costs(standing, system, s, x0, references.footholds)
    sampled = s.sampled(backend(system))
    kept = KeptLimits.of(model, s)
    still = to.OCP.single_phase(
        *(sampled, x0, s.horizon, s.dt, running, terminal),
        name="receding_gait",
        model=model,
        constraints=kept.constraints,
        terminal_constraints=kept.constraints,
        **kept.bounds,
    )
    ocp = references.moved(still, 0.0)
    guess = partial(to.feedback_guess, ocp, joint_gains(model, *s.guess_gains))
    fallen, notes = partial(falls, model, s.feet), standing.notes()
    return Task(ocp, guess, feet=s.feet, moved=references.moved, outcome=_outcome, fallen=fallen, notes=notes)


def _costs(
    standing: Standing, system: to.SoftContact | to.SteppedContact, s: Settings, x0: Array, footholds: Array
) -> tuple[list[to.CostTerm], list[to.CostTerm]]:
    """Running and terminal terms, their references those of standing at x0."""
    model = standing.model
    base = partial(
        base_state_cost,
        model,
        system.manifold,
        joints=x0[7 : model.nq],
        name="base",
        position=tuple(x0[:3]),
        attitude=(0.0, 0.0, standing.yaw),
    )
    weight = s.base.vector(model.nv - 6)
    feet = [
        to.frame_position_cost(model, system.manifold, foot, hold, s.foot.stance, foot)
        for foot, hold in zip(s.feet, footholds, strict=True)
    ]
    control = to.control_cost(system.nu, 0.0, s.control_weight, names=system.control_names)
    return [control, base(weight), *feet], [base(s.terminal * weight)]


def _standing(standing: Standing, s: Settings) -> Array:
    """x0 (nx,)."""
    q, model = standing.q, standing.model
    if s.height is None:
        q[2] += s.resting_gap(standing.share, standing.scale)
    else:
        q[2] = standing.height(s.height)
    return np.concatenate([q, np.zeros(model.nv)])


SLOPE = 0.1
"""Seconds of a robot as large as HyQ over which the base's speed is averaged: shorter than a swing, longer than a time step."""


@dataclass(frozen=True)
class _References:
    """What the gait asks for: from footholds (4, 3) [m] and the base at ``start`` (3,) [m], with the weights of the feet.

    slope: time [s] over which the base's speed is averaged.
    """

    gait: Gait
    footholds: Array
    start: Array
    weights: FootWeights
    slope: float

    @classmethod
    def of(cls, standing: Standing, s: Settings, x0: Array) -> _References:
        model = standing.model
        footholds = np.array([frame_placement(model, x0[: model.nq], foot)[1] for foot in s.feet])
        size = {"step_length": s.step_length, "step_height": s.step_height}
        gait = Gait.named(s.gait, s.feet, swing=s.swing, support=s.support, cycles=s.cycles, **size)
        return cls(gait, footholds, x0[:3], s.foot, standing.scale.scaled(SLOPE, TIME))

    def moved(self, ocp: to.OCP, t: float) -> to.OCP:
        """The problem with the references of the gait from t [s] on."""
        times = t + ocp.times
        wanted = self.gait.references(times, self.footholds)
        speed = self.gait.references(times + self.slope, self.footholds).base - wanted.base
        ocp = with_values(ocp, "base", "position", self.start + wanted.base)
        ocp = with_values(ocp, "base", "velocity", speed / self.slope)
        for f, foot in enumerate(self.gait.feet):
            swings = wanted.swinging[:-1, f, None]
            weight = np.broadcast_to(np.where(swings, self.weights.swing, self.weights.stance), (ocp.horizon, 3))
            ocp = with_values(ocp.updated(foot, weight=weight), foot, "goal", wanted.position[:, f])
        return ocp


def _outcome(x: Array) -> list[str]:
    return [f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m"]
