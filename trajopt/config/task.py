"""Interface of a problem module: checked settings, and a function that builds a task from them.

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
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.user_input import quoted, shortened
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.goals import CLEARANCE, CachedEvaluation, Goal, nothing, state_goal
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import MAX_STEPS, OCP
from trajopt.problem.residuals import LinkPoint
from trajopt.replanning.plan import Horizon
from trajopt.results.solution import Solution
from trajopt.solvers.refinement import Again
from trajopt.step.sensitivities import MAX_SUBSTEPS, SampledSystem
from trajopt.validation.limit_violations import LimitViolation

BackendFactory = Callable[[Map], DynamicsBackend]
Integrator = Literal["semi_implicit_euler", "euler", "rk4"]
MAX_KNOTS = 100_000
"""Maximum number of knots; longer trajectories exceed the memory of most machines."""
Checks = dict[str, tuple[bool, str]]
"""Checks of settings: key -> (True if the value is acceptable, description of acceptable values)."""


def at_any_time(ocp: OCP, t: float) -> OCP:
    """Return the problem unchanged, for tasks whose references do not depend on time."""
    return ocp


def no_clock(xs: Array) -> None:
    """Return None: the problem has no free durations, so its knots have fixed times."""


class Nearness(NamedTuple):
    """Sentences about the distance from obstacles. warnings: sentences about unintended penetration of a keep-out region."""

    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def empty_nearness(xs: Array) -> Nearness:
    """Return an empty report, for tasks without obstacles."""
    return Nearness()


def missing(
    manifold: Manifold, reference: Array, coordinates: Sequence[str] | None = None
) -> Callable[[Array], Sequence[str]]:
    """Return a function for :attr:`Task.missed`: sentences about a final state that misses the goal state ``reference`` (nx,).

    coordinates: names of the tangent directions to check. Defaults and tolerance are those of
    :func:`trajopt.problem.goals.state_goal`.
    """
    return partial(_state_missed, state_goal(manifold, reference, coordinates))


def _state_missed(goal: Goal, xs: Array) -> Sequence[str]:
    """Sentences of a state goal that states xs (N + 1, nx) miss; it does not depend on times."""
    return goal.missed(xs, np.zeros(len(xs)))


class Contour(NamedTuple):
    """A path to follow. at: its points (M, 3) [m] for states (M, nx), (x, s, ds/dt) with the path parameter s. tube: maximum
    distance [m] of the frame from these points.
    """

    at: Callable[[Array], Array]
    tube: float


class Refined(NamedTuple):
    """Result of checking a solution. good: the solution is accepted. report: a sentence. again: the next solve, or None.
    solution: an earlier, better solution to return, or None."""

    good: bool
    report: str
    again: Again | None = None
    solution: Solution | None = None


@dataclass(frozen=True)
class Task:
    """An optimal control problem with its initial guess and the data that reports and plots use.

    initial: the guess, or a function that computes it if that takes long, as a simulation does.
    frame: frame whose path is drawn. goal: goal (3,) of the frame in the world [m]. feet: frames that touch the ground.
    points: link points whose distance from obstacles is reported. radii: radius [m] of each spherical obstacle, by name.
    contour: path that the frame follows.
    moved: shifts the references of a problem to those from a time [s] on; default: constant references. following: creates
    the horizon of a replanning run that adapts to measurements; or None.
    warnings: settings that are likely to be mistakes. notes: further sentences for ``trajopt validate``.
    contact_limits: contact forces that the ground cannot provide, at states (N + 1, nx) with controls (N, nu).
    outcome: sentences about a final state (nx,), for example how far from its goal it is.
    commands: sentences about commanded and achieved speeds and distances, and landings, from states (M, nx) at times (M,) [s].
    nearness: sentences about the smallest distance of states (N + 1, nx) from obstacles.
    missed: sentences about goals that states (N + 1, nx) miss, with reason and remedy; none if all goals are met.
    fallen: sentences about falls, in states (M, nx) at times (M,) [s]. outcome to fallen become the ``goals`` of the problem.
    clock: knot times (N + 1,) [s] of states (N + 1, nx) of problems with free durations, for plots; else None.
    time_key: setting that weighs free durations, for problems with a setting for it.
    scene: surroundings of the robot, for plots.
    easier: relaxed problems of the same sizes, solved first. Each starts from the solution before it, the first from the guess.
    other_guesses: guesses that may lead to other local optima.
    refined: checks a solution of a problem that is solved again when its constraints missed a violation; or None.
    patience: maximum iterations of such a solve before the next one starts, in place of a default limit of the solver's options
    (``auto`` has none); None: the limit of the options.
    latest: returns the problem of the returned solution; before that, the problem that was solved last.
    resolved: values that omitted settings were resolved to, by key; saved with a solution.
    clearance: distance (M,) [m] of the robot from a moving object, at states (M, nx) and object positions (M, 3); or None.
    removed_by: for messages: the setting that removes a constraint, by constraint name; the key "phases" removes phases.
    """

    ocp: OCP
    initial: Guess | Callable[[], Guess]
    frame: str | None = None
    goal: Array | None = None
    feet: tuple[str, ...] = ()
    points: tuple[LinkPoint, ...] = ()
    radii: Mapping[str, float] = field(default_factory=dict)
    contour: Contour | None = None
    moved: Callable[[OCP, float], OCP] = at_any_time
    following: Callable[[OCP], Horizon] | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    contact_limits: Callable[[Array, Array], list[LimitViolation]] = nothing
    outcome: Callable[[Array], list[str]] = nothing
    commands: Callable[[Array, Array], Sequence[str]] = nothing
    nearness: Callable[[Array], Nearness] = empty_nearness
    missed: Callable[[Array], Sequence[str]] = nothing
    fallen: Callable[[Array, Array], Sequence[str]] = nothing
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

    def __repr__(self) -> str:
        more = f", {len(self.warnings)} warnings" if self.warnings else ""
        return f"Task({self.ocp!r}, frame={self.frame!r}{more})"

    @property
    def goals(self) -> tuple[Goal, ...]:
        """Goals from functions of the task: reach the end (``missed``), avoid obstacles (``nearness``), no fall (``fallen``)."""
        nearness = CachedEvaluation(self.nearness)
        return (
            Goal("end", partial(_end_missed, self.missed), partial(_end_report, self.outcome, self.commands)),
            Goal(CLEARANCE, partial(_penetrations, nearness), partial(_distances, nearness)),
            Goal("no fall", self.fallen),
        )

    def with_checks(self, replay_tolerance: float | None = None) -> Task:
        """Return the task with its goals and a replay tolerance in the problem, where they count in the status of solutions."""
        return replace(self, ocp=replace(self.ocp, goals=self.goals, replay_tolerance=replay_tolerance))

    @cached_property
    def guess(self) -> Guess:
        """Initial guess of the solver, computed at the first use if ``initial`` is a function."""
        return self.initial() if callable(self.initial) else self.initial

    @property
    def start(self) -> Guess:
        """The guess if ``initial`` is no function; else x0 at all knots, which needs no simulation."""
        return constant_guess(self.ocp) if callable(self.initial) else self.initial


# the sentences of goals are functions of modules, so that problems can be pickled


def _end_missed(missed: Callable[[Array], Sequence[str]], xs: Array, times: Array) -> Sequence[str]:
    """Sentences of ``missed`` about states xs, with the signature of :attr:`Goal.missed`; times is unused."""
    return missed(xs)


def _end_report(
    outcome: Callable[[Array], list[str]],
    commands: Callable[[Array, Array], Sequence[str]],
    xs: Array,
    times: Array,
) -> list[str]:
    """Sentences about the final state, then about commanded and achieved motion."""
    return [*outcome(xs[-1]), *commands(xs, times)]


def _penetrations(nearness: Callable[[Array], Nearness], xs: Array, times: Array) -> Sequence[str]:
    """Return the warnings of ``nearness``, sentences about penetrated obstacles; times is unused."""
    return nearness(xs).warnings


def _distances(nearness: Callable[[Array], Nearness], xs: Array, times: Array) -> Sequence[str]:
    """Return the sentences of ``nearness`` about distances from obstacles; times is unused."""
    return nearness(xs).sentences


def _all_numbers(value: Any, is_valid: Callable[[float], bool]) -> bool:
    """True if each float in a setting, also within tables and lists, is valid; other types count as valid."""
    if isinstance(value, (Mapping, tuple, list)):
        return all(_all_numbers(v, is_valid) for v in (value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, float) or is_valid(value)


POSTURES = ("q0", "goal_q", "joints")
"""Settings whose NaN and infinite entries are reported later, with the joint's name, once the robot is loaded."""


class SettingsError(ValueError):
    """Settings have values out of range; ``problems`` maps each key to its error."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(shortened("; ".join(f"{key}: {text}" for key, text in problems.items())))


class Checked:
    """Base class of the ``Settings`` of a problem: construction checks all values, and SettingsError lists every bad one.

    A subclass is a frozen dataclass. Its method :meth:`checks` returns the conditions of its own; numbers must be finite, those of
    the keys in :meth:`unbounded` may be infinite, but not NaN. Entries of q0, goal_q and joints are checked later, with the robot.
    """

    def unbounded(self) -> tuple[str, ...]:
        """Return the keys whose numbers may be infinite; none by default."""
        return ()

    def checks(self) -> Checks:
        """Return checks by key: (True if the value is acceptable, description of acceptable values); none by default."""
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
            raise SettingsError({k: f"expected {e}{self._faulty_value(k, e)}" for k, e in failed.items()})

    def _faulty_value(self, key: str, expected: str) -> str:
        """Return the faulty value for the message; empty for a table, and if the message names other settings."""
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
        """Checks by key, (True if acceptable, acceptable values): horizon from 1 to MAX_KNOTS, positive dt, bounded substeps.

        Their maximum is that of :func:`substeps_check`.
        """
        endless = self.dt * self.horizon == np.inf
        return {
            "horizon": (1 <= self.horizon <= MAX_KNOTS, f"at least 1 and at most {MAX_KNOTS}"),
            "dt": (
                self.dt > 0 and not endless,
                "a positive number of seconds" + (", finite when multiplied by the horizon" if endless else ""),
            ),
            "substeps": substeps_check(self.substeps, self.horizon),
        }

    def sampled(self, backend: DynamicsBackend) -> SampledSystem:
        """Return the system of a backend, sampled on this time grid."""
        return SampledSystem(backend, self.integrator, self.substeps)


def substeps_check(substeps: int, steps: float) -> tuple[bool, str]:
    """Check for a number of substeps per time step: (True if from 1 to the maximum for this number of steps, acceptable values).

    The maximum is MAX_SUBSTEPS, and less if all steps together would exceed MAX_STEPS.
    """
    limit = int(min(MAX_SUBSTEPS, MAX_STEPS / min(max(1.0, steps), MAX_KNOTS)))
    return 1 <= substeps <= limit, f"at least 1 and, with {min(steps, MAX_KNOTS):.0f} time steps, at most {limit}"


def not_negative(value: float | tuple[float, ...]) -> tuple[bool, str]:
    """Check for one or several weights: (True if finite and at least 0, description of acceptable values)."""
    array = np.asarray(value, dtype=float)
    return bool(np.isfinite(array).all() and (array >= 0).all()), "finite numbers of at least 0"


def positive(value: float) -> tuple[bool, str]:
    """Check for a number, which may be infinite: (True if positive, description of acceptable values)."""
    return value > 0, "a positive number"


def one_of_two(settings: Any, key: str, *others: str) -> tuple[bool, str]:
    """Check for a number that excludes other settings: (True if valid, description of acceptable values).

    Valid are None, and a finite number if all alternative settings ``others`` are None.
    """
    value, beside = getattr(settings, key), [other for other in others if getattr(settings, other) is not None]
    expected = f"a finite number, and {' or '.join(others)} unset: set only one of them"
    return value is None or (bool(np.isfinite(value)) and not beside), expected


def per_dof(value: float | tuple[float, ...], size: int, key: str) -> Array:
    """Expand one number, or a list, to an array (size,), an entry for each joint.

    Raises ValueError for a list of another length; ``key`` names it in the message.
    """
    array = np.asarray(value, dtype=float)
    if array.ndim and array.shape != (size,):
        raise ValueError(f"{key} has {array.size} entries; give one number, or one for each of {size} joints")
    return np.broadcast_to(array, (size,)).copy()


def position_of(model: Model, frame: str, q: Array) -> Array:
    """World position (3,) or (N, 3) [m] of a frame at q (nq,) or (N, nq)."""
    return positions_of(model, [frame], q)[0]


def positions_of(model: Model, frames: Sequence[str], q: Array) -> Array:
    """World positions (F, 3) or (F, N, 3) [m] of frames at q (nq,) or (N, nq), from one recursion."""
    known = [model.frames[model.frame_id(name)] for name in frames]
    at = point_positions(model, np.atleast_2d(q).T, [(frame.body, frame.p) for frame in known])
    places = np.array([np.stack(np.broadcast_arrays(*p, np.atleast_2d(q)[:, 0])[:3], axis=1) for p in at])
    return places if np.ndim(q) == 2 else places[:, 0]
