"""What every problem module offers: settings, checked at construction, and a function from settings to a task.

A problem module has a frozen dataclass ``Settings`` and ``build(settings, backend) -> Task``.  ``backend`` turns a
system into a `DynamicsBackend`; the module knows neither its name nor the solver.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, DynamicsBackend, Map
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.user_input import quoted, shortened
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.goals import Goal, OfMotion, state_goal
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import MOST_STEPS, OCP
from trajopt.problem.residuals import LinkPoint
from trajopt.replanning.plan import Horizon
from trajopt.results.solution import Solution
from trajopt.solvers.refinement import Again
from trajopt.step.sensitivities import MOST_SUBSTEPS, SampledSystem
from trajopt.validation.limit_violations import LimitViolation

BackendFactory = Callable[[Map], DynamicsBackend]
Integrator = Literal["semi_implicit_euler", "euler", "rk4"]
MOST_KNOTS = 100_000
"""A trajectory of more does not fit into the memory of most machines."""
Checks = dict[str, tuple[bool, str]]
"""key -> (whether its value is acceptable, what is expected)."""


def at_any_time(ocp: OCP, t: float) -> OCP:
    """The problem itself."""
    return ocp


def no_clock(xs: Array) -> None:
    """The times of the problem are those of the motion."""


def no_contacts(xs: Array, us: Array) -> list[LimitViolation]:
    """Nothing touches the ground by rigid contacts."""
    return []


class Nearness(NamedTuple):
    """How near a motion comes to what it is to stay out of, in sentences. warnings: of what it is inside of, unasked."""

    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def nothing_near(xs: Array) -> Nearness:
    """There is nothing to stay out of."""
    return Nearness()


def no_fall(xs: Array, times: Array) -> Sequence[str]:
    """No sentence about a fall, for what stands on no legs."""
    return ()


def nothing_missed(xs: Array) -> Sequence[str]:
    """What was asked for is there."""
    return ()


def missing(
    manifold: Manifold, reference: Array, coordinates: Sequence[str] | None = None
) -> Callable[[Array], Sequence[str]]:
    """The ``missed`` of a task that ends at a state (nx,); see :func:`trajopt.problem.goals.state_goal`."""
    return partial(_state_missed, state_goal(manifold, reference, coordinates))


def _state_missed(goal: Goal, xs: Array) -> Sequence[str]:
    return goal.missed(xs, np.zeros(len(xs)))


def no_commands(xs: Array, times: Array) -> Sequence[str]:
    """No sentence, where no speed and no distance is commanded."""
    return ()


def no_outcome(x: Array) -> list[str]:
    """Say nothing about the final state."""
    return []


class Contour(NamedTuple):
    """A path to follow. at: its points (M, 3) [m] at states (x, s, ds/dt) (M, nx). tube: how far from it the frame may be [m]."""

    at: Callable[[Array], Array]
    tube: float


class Refined(NamedTuple):
    """What a look at a solution found. good: whether it stands. report: a sentence. ocp, guess: what to solve next, and where from,
    or None. solution: an earlier one that stands in its place, or None. multipliers: to start the next with. sharp: whether the
    next is to be solved to a smaller tolerance."""

    good: bool
    report: str
    ocp: OCP | None = None
    guess: Guess | None = None
    solution: Solution | None = None
    multipliers: Mapping[str, Array] = {}
    sharp: bool = False

    @property
    def again(self) -> Again | None:
        """The solve that follows; None where there is none."""
        if self.ocp is None or self.guess is None:
            return None
        return Again(self.ocp, self.guess, self.multipliers, self.sharp)


@dataclass(frozen=True)
class Task:
    """An optimal control problem with its initial guess and the facts that reports and pictures of it use.

    initial: the guess, or a function that finds it where that takes a while, such as a simulation.
    frame: the one whose path is drawn. goal: its goal (3,) in the world [m]. feet: frames that touch the ground.
    points: those of the links whose distance from obstacles is reported. contour: the path that the frame follows.
    moved: takes a problem's references to those from a time [s] on; default: they stay. following: of a problem, a new horizon of a
    run that follows what is measured; or None.
    warnings: settings that are likely to be mistakes. notes: further sentences for ``trajopt validate``.
    contact_limits: sentences about contact forces that no ground can give, in states (N + 1, nx) under controls (N, nu).
    outcome: sentences about a final state (nx,), for example how far from its goal it is.
    commands: sentences about commanded and achieved speeds and distances, from states (M, nx) at times (M,) [s].
    nearness: sentences about the smallest distance of states (N + 1, nx) from obstacles.
    missed: sentences about what states (N + 1, nx) do not reach, with the reason and the remedy; none where the goal is met.
    fallen: the same about falls, in states (M, nx) at times (M,) [s]. These three become the ``goals`` of the problem.
    clock: of problems with free durations, the times (N + 1,) [s] of states (N + 1, nx), for pictures; else None.
    time_key: the setting that weighs such durations, of problems that have one of their own for it.
    scene: what stands around the robot, for pictures.
    easier: problems of the same sizes to be solved before this one, each from the solution of the last, the first from the guess.
    other_guesses: that may lead to other local optima.
    refined: looks at a solution, of problems that are solved again where their constraints have overlooked something; or None.
    patience: iterations after which such a solve ends, to begin anew; None: those of the solver's options.
    latest: of such problems, that of the solution that is returned, until then the one that was solved last.
    resolved: what settings that were left out came to, by their keys, for what is saved of them.
    clearance: how far (M,) [m] the robot is from what moves, at states (M, nx) and places (M, 3); or None.
    removed_by: for messages, the setting that takes a constraint, by its name, or "phases" out of the problem.
    """

    ocp: OCP
    initial: Guess | Callable[[], Guess]
    frame: str | None = None
    goal: Array | None = None
    feet: tuple[str, ...] = ()
    points: tuple[LinkPoint, ...] = ()
    contour: Contour | None = None
    moved: Callable[[OCP, float], OCP] = at_any_time
    following: Callable[[OCP], Horizon] | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    contact_limits: Callable[[Array, Array], list[LimitViolation]] = no_contacts
    outcome: Callable[[Array], list[str]] = no_outcome
    commands: Callable[[Array, Array], Sequence[str]] = no_commands
    nearness: Callable[[Array], Nearness] = nothing_near
    missed: Callable[[Array], Sequence[str]] = nothing_missed
    fallen: Callable[[Array, Array], Sequence[str]] = no_fall
    clock: Callable[[Array], Array | None] = no_clock
    time_key: str = ""
    easier: tuple[OCP, ...] = ()
    other_guesses: tuple[Guess, ...] = ()
    refined: Callable[[Solution], Refined] | None = None
    patience: int | None = None
    latest: Callable[[], OCP] | None = None
    scene: Scene | None = None
    resolved: Mapping[str, Any] = field(default_factory=dict)
    clearance: Callable[[Array, Array], Array] | None = None
    removed_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """The goals of the task, as its problem has them: to reach the end, to stay clear of obstacles, not to fall."""
        nearness = OfMotion(self.nearness)
        return (
            Goal("end", partial(_end_missed, self.missed), partial(_end_report, self.outcome, self.commands)),
            Goal("clearance", partial(_inside, nearness), partial(_near, nearness)),
            Goal("no fall", self.fallen),
        )

    def with_checks(self, replay_tolerance: float | None = None) -> Task:
        """The task with its goals, and a replay tolerance, in the problem: they count in the status of solutions."""
        return replace(self, ocp=replace(self.ocp, goals=self.goals, replay_tolerance=replay_tolerance))

    @cached_property
    def guess(self) -> Guess:
        """Where solvers start."""
        return self.initial() if callable(self.initial) else self.initial

    @property
    def start(self) -> Guess:
        """The guess where it is at hand; else x0 at all knots, which takes no simulation."""
        return constant_guess(self.ocp) if callable(self.initial) else self.initial


# the sentences of goals are functions of modules, so that problems can be pickled


def _end_missed(missed: Callable[[Array], Sequence[str]], xs: Array, times: Array) -> Sequence[str]:
    return missed(xs)


def _end_report(
    outcome: Callable[[Array], list[str]],
    commands: Callable[[Array, Array], Sequence[str]],
    xs: Array,
    times: Array,
) -> list[str]:
    return [*outcome(xs[-1]), *commands(xs, times)]


def _inside(nearness: Callable[[Array], Nearness], xs: Array, times: Array) -> Sequence[str]:
    return nearness(xs).warnings


def _near(nearness: Callable[[Array], Nearness], xs: Array, times: Array) -> Sequence[str]:
    return nearness(xs).sentences


def _all_numbers(value: Any, is_valid: Callable[[float], bool]) -> bool:
    """True if each float in a setting, or in the settings that it is made of, is valid."""
    if isinstance(value, (Mapping, tuple, list)):
        return all(_all_numbers(v, is_valid) for v in (value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, float) or is_valid(value)


POSTURES = ("q0", "goal_q", "joints")
"""Settings whose NaN is told with its joint, once the robot is there."""


class SettingsError(ValueError):
    """Values out of range; ``problems`` maps each key to what is wrong with it."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(shortened("; ".join(f"{key}: {text}" for key, text in problems.items())))


class Checked:
    """A base of dataclasses that checks all values at construction: SettingsError names every bad one.

    Numbers are finite, except those of the keys in :meth:`unbounded`.
    """

    def unbounded(self) -> tuple[str, ...]:
        """The keys whose numbers may be infinite."""
        return ()

    def checks(self) -> Checks:
        """What is required of each value."""
        return {}

    def __post_init__(self) -> None:
        failed = {k: expected for k, (good, expected) in self.checks().items() if not good}
        for key, value in ((f.name, getattr(self, f.name)) for f in fields(self)):  # type: ignore[arg-type]
            if key in failed or key in POSTURES:
                continue
            if not _all_numbers(value, lambda number: number == number):
                failed[key] = "a number" if isinstance(value, float) else "numbers"
            elif key not in self.unbounded() and not _all_numbers(value, math.isfinite):
                failed[key] = "a finite number" if isinstance(value, float) else "finite numbers"
        if failed:
            raise SettingsError({k: f"expected {e}{self._found(k, e)}" for k, e in failed.items()})

    def _found(self, key: str, expected: str) -> str:
        """The value at fault; nothing for a table, and where other settings are named: then it is their combination."""
        if is_dataclass(getattr(self, key)):
            return ""
        others = {f.name for f in fields(self) if f.name != key}  # type: ignore[arg-type]
        return "" if others & set(re.findall(r"\w+", expected)) else f", got {quoted(getattr(self, key))}"


@dataclass(frozen=True, kw_only=True)
class Sampling(Checked):
    """Time grid of a problem. horizon: number of time steps. dt: length of a time step [s]. integrator: integration scheme,
    see :mod:`trajopt.step.integrators`. substeps: integrator steps per time step."""

    horizon: int = 100
    dt: float = 0.01
    integrator: Integrator = "semi_implicit_euler"
    substeps: int = 1

    def checks(self) -> Checks:
        endless = self.dt * self.horizon == np.inf
        return {
            "horizon": (1 <= self.horizon <= MOST_KNOTS, f"at least 1 and at most {MOST_KNOTS}"),
            "dt": (
                self.dt > 0 and not endless,
                "a positive number of seconds" + (", finite when multiplied by the horizon" if endless else ""),
            ),
            "substeps": substeps_check(self.substeps, self.horizon),
        }

    def sampled(self, backend: DynamicsBackend) -> SampledSystem:
        """The system of a backend on this time grid."""
        return SampledSystem(backend, self.integrator, self.substeps)


def substeps_check(substeps: int, steps: float) -> tuple[bool, str]:
    """The check of the steps of an integrator in each of a number of time steps, of which there are at most MOST_KNOTS."""
    most = int(min(MOST_SUBSTEPS, MOST_STEPS / min(max(1.0, steps), MOST_KNOTS)))
    return 1 <= substeps <= most, f"at least 1 and, with so many time steps, at most {most}"


def not_negative(value: float | tuple[float, ...]) -> tuple[bool, str]:
    """The check of a weight or of a list of weights."""
    array = np.asarray(value, dtype=float)
    return bool(np.isfinite(array).all() and (array >= 0).all()), "finite numbers of at least 0"


def positive(value: float) -> tuple[bool, str]:
    """The check of a number above 0."""
    return value > 0, "a positive number"


def one_of_two(settings: Any, key: str, *others: str) -> tuple[bool, str]:
    """The check of a number, or None, that is given in place of other settings."""
    value, beside = getattr(settings, key), [other for other in others if getattr(settings, other) is not None]
    expected = f"a finite number and no {' or '.join(others)} beside it: leave one of them out"
    return value is None or (bool(np.isfinite(value)) and not beside), expected


def per_dof(value: float | tuple[float, ...], size: int, key: str) -> Array:
    """A number for each of ``size`` degrees of freedom. Raises ValueError for a list of another length."""
    array = np.asarray(value, dtype=float)
    if array.ndim and array.shape != (size,):
        raise ValueError(f"{key} has {array.size} entries; give one number, or one for each of {size} joints")
    return np.broadcast_to(array, (size,)).copy()


def position_of(model: Model, frame: str, q: Array) -> Array:
    """World position (3,) or (N, 3) [m] of a frame at q (nq,) or (N, nq)."""
    return frame_placement(model, q, frame)[1]
