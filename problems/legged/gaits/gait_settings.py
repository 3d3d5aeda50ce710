"""Settings of scheduled gaits, and the schedule that they define."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Batch
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.contact_law import LOADED
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt.config.task import (
    MAX_KNOTS,
    Checked,
    Checks,
    Integrator,
    not_negative,
    one_of_two,
    positions_of,
    positive,
    substeps_check,
)
from ..contact.soft_ground import SoftGround
from ..robot.base_state import BaseWeights, Triple
from ..robot.similarity import (
    LENGTH,
    NONE,
    RATE,
    TIME,
    TORQUE,
    Unit,
    Units,
    prefixed,
    running_weight,
    terminal_weight,
)
from .gait import PATTERNS, STEP_LENGTH, Gait


@dataclass(frozen=True, kw_only=True)
class RunningWeights(BaseWeights):
    """Running weights of the state, chosen so that a robot of some tens of kilograms stays upright."""

    attitude: float = 500.0
    position: Triple = (1e3, 1e3, 1e4)
    joints: float = 1.0
    angular_velocity: float = 10.0
    joint_velocities: float = 1.0


@dataclass(frozen=True, kw_only=True)
class FinalWeights(RunningWeights):
    """Terminal weights of the state. That of the position lets even a jump end at its goal."""

    position: Triple = (1e5, 1e5, 1e4)
    linear_velocity: float = 10.0


@dataclass(frozen=True, kw_only=True)
class FootWeights(Checked):
    """Weights of the feet [1/m^2]. swing: weight during swing. landing: weight at touchdown. stance: weight during stance.
    terminal: weight at the end. friction: weight of friction cones and pulling forces, for rigid contacts only."""

    swing: float = 1e6
    landing: float = 1e7
    stance: float = 0.0
    terminal: float = 1e4
    friction: float = 1e3

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}

    @staticmethod
    def units() -> dict[str, Unit]:
        """Return the units of the weights, by key."""
        on_the_way = dict.fromkeys(("swing", "landing", "stance"), running_weight(LENGTH))
        return on_the_way | {"terminal": terminal_weight(LENGTH), "friction": running_weight(NONE)}


@dataclass(frozen=True, kw_only=True)
class Settings(SoftGround):
    """A scheduled gait of any robot with a floating base (:class:`~problems.legged.robot.walker.LeggedRobot`).

    gait: name of the gait; ignored if swings is given. swings: groups of feet that swing in turn, instead of a named gait. swing:
    duration of a swing [s]. support: duration on all feet before each swing [s]. step_length: length of a step; default 0.15 [m].
    distance: distance that the base travels, instead of step_length: the mean of all steps of the feet together [m]. step_height:
    height of a step; default 0.1 [m]. cycles: repetitions of all groups. dt: length of a time step [s]. integrator: integration
    scheme. substeps: integrator steps per time step. control_weight: weight of the torques. running: running weights of the state.
    terminal: terminal weights of the state. foot_weights: weights of the feet. schedule_of: file of a solution on soft ground; its
    contact forces define the contact schedule and its feet the step lengths, instead of gait, swings, swing, support, cycles and
    step_length. min_contact_time: shorter contacts and swings of that solution are ignored [s]. contact: contact model, "rigid" or
    "soft". gains: Baumgarte gains (kp, kd) of rigid contacts; kp draws feet to their footholds. friction: friction coefficient of
    the rigid cone. cone: friction cone as a "cost" with weight foot_weights.friction, or as a "constraint"
    (:mod:`~problems.legged.contact.friction_cone`).
    """

    ALTERNATIVES = ((("distance",), ("step_length",)), (("schedule_of",), ("step_length", "distance")))

    gait: str = "trot"
    swings: tuple[tuple[str, ...], ...] = ()
    cycles: int = 1
    swing: float = 0.25
    support: float = 0.02
    step_length: float | None = None
    step_height: float = 0.1
    distance: float | None = None
    schedule_of: str = ""
    min_contact_time: float = 0.06
    contact: Literal["rigid", "soft"] = "rigid"
    dt: float = 0.01
    integrator: Integrator = "semi_implicit_euler"
    substeps: int = 1
    gains: tuple[float, float] = (0.0, 20.0)
    friction: float = 0.7
    cone: Literal["cost", "constraint"] = "cost"
    control_weight: float = 1e-2
    running: RunningWeights = field(default_factory=RunningWeights)
    terminal: FinalWeights = field(default_factory=FinalWeights)
    foot_weights: FootWeights = field(default_factory=FootWeights)

    def checks(self) -> Checks:
        return super().checks() | {
            "gait": (
                bool(self.swings) or self.gait in PATTERNS,
                f"one of {', '.join(PATTERNS)}, or user-defined swings",
            ),
            "cycles": (
                self.cycles >= 1 and (self.schedule_of != "" or self._steps() <= MAX_KNOTS),
                f"at least 1, with at most {MAX_KNOTS} time steps in total",
            ),
            "distance": one_of_two(self, "distance", "step_length"),
            "schedule_of": (
                not self.schedule_of or (self.step_length is None and self.distance is None),
                "no step_length and no distance: the solution defines the step length",
            ),
            "swing": positive(self.swing),
            "support": (self.support >= 0, "a duration of at least 0"),
            "min_contact_time": (self.min_contact_time >= 0, "a duration of at least 0"),
            "dt": (0 < self.dt < np.inf, "a positive number of seconds"),
            "substeps": substeps_check(self.substeps, self._steps()),
            "friction": positive(self.friction),
            "gains": not_negative(self.gains),
            "cone": (self.cone == "cost" or self.contact == "rigid", "cost, or contact = 'rigid'"),
            "control_weight": not_negative(self.control_weight),
        }

    def _steps(self) -> float:
        """Return the number of time steps of the schedule, 0 for invalid settings."""
        groups = len(self.swings or PATTERNS.get(self.gait, ()))
        return self.cycles * groups * (self.swing + self.support) / self.dt if self.dt > 0 else 0.0

    def units(self) -> dict[str, Units]:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.units`."""
        own: dict[str, Units] = {"control_weight": running_weight(TORQUE)}
        if self.schedule_of:
            own["min_contact_time"] = TIME
        own |= dict.fromkeys(("step_length", "step_height", "distance"), LENGTH) | dict.fromkeys(
            ("swing", "support", "dt"), TIME
        )
        own |= prefixed("running", BaseWeights.units(running_weight))
        own |= prefixed("terminal", BaseWeights.units(terminal_weight))
        own |= prefixed("foot_weights", FootWeights.units())
        return own | ({"gains": ((0, 0, -2), RATE)} if self.contact == "rigid" else super().units())

    def completed(self) -> Self:
        """See :meth:`problems.legged.robot.walker.LeggedRobot.completed`."""
        own = super().completed()
        known = own.step_length is not None or own.distance is not None or own.schedule_of
        return own if known else replace(own, step_length=STEP_LENGTH)

    def schedule(self, model: Model, feet: tuple[str, ...]) -> Gait:
        """Return the gait. Raises UnknownName for a foot of ``swings`` that is not in ``feet``, SolutionFileError, ValueError."""
        if self.schedule_of:
            soft = to.Solution.load(self.schedule_of)
            return observed_gait(
                model, feet, soft, step=self.dt, min_duration=self.min_contact_time, step_height=self.step_height
            )
        options = {"swing": self.swing, "support": self.support, "cycles": self.cycles, "step_height": self.step_height}
        options["step_length"] = STEP_LENGTH if self.step_length is None else self.step_length
        if self.swings:
            gait = Gait.in_turn(feet, self.swings, **options)  # type: ignore[arg-type]
        else:
            gait = Gait.named(self.gait, feet, **options)
        return gait if self.distance is None else gait.over(self.distance)


def observed_gait(
    model: Model, feet: Sequence[str], soft: to.Solution, *, step: float, min_duration: float, step_height: float
) -> Gait:
    """Return the schedule of a motion on soft ground from its contact forces, with the mean step length of its feet.

    Raises ValueError for a solution of another robot, detected by its sizes, and for sideways motion: steps go along x.
    """
    system = SoftContact(model, feet)
    if soft.xs.shape[1] != system.manifold.nx or soft.us.shape[1] != system.nu:
        sizes = f"nx = {soft.xs.shape[1]}, nu = {soft.us.shape[1]}"
        raise ValueError(
            f"schedule_of: that solution has {sizes}; {model.name} has nx = {system.manifold.nx}, nu = {system.nu}"
        )
    forces = system.outputs(*Batch.of(system, soft.xs[:-1], soft.us, soft.times[:-1]))
    load = np.stack([np.asarray(forces[foot])[2] for foot in feet], axis=1)
    contact = load > LOADED * model.total_mass * np.linalg.norm(model.gravity) / len(feet)
    gait = Gait.observed(feet, soft.times, contact, step=step, min_duration=min_duration, step_height=step_height)
    first, last = np.moveaxis(positions_of(model, feet, soft.xs[[0, -1], : model.nq])[:, :, :2], 1, 0)
    ways = last - first
    along_x, sideways = np.abs(ways.mean(axis=0))
    if sideways > max(MAX_SIDEWAYS, SIDEWAYS_FRACTION * along_x):
        raise ValueError(
            f"schedule_of: the feet of that solution move {sideways:.2f} m sideways and {along_x:.2f} m along x; a schedule "
            "supports motion along x only"
        )
    steps = sum(len(gait.swings(foot)) for foot in feet)
    return replace(gait, step_length=float(ways[:, 0].sum()) / max(1, steps))


MAX_SIDEWAYS, SIDEWAYS_FRACTION = 0.05, 0.2
"""Sideways displacement of the feet above which a motion is rejected: absolute [m], and relative to the forward displacement."""
