"""Free durations for any problem: the keys ``time``, ``durations`` and ``time_weight`` of the table [problem].

The problem becomes that of :func:`trajopt.free_time`; the reports of the task still refer to the original problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

from dynamics_backends.protocol import Array
from trajopt.config.task import Checked, Checks, Task, at_any_time, no_clock, not_negative
from trajopt.step.free_time import FreeTime, free_time
from trajopt.validation.limit_violations import LimitViolation

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TimeSettings(Checked):
    """Duration of a motion.

    time: "fixed" uses the durations of the other settings; "free" optimizes the duration of each phase. durations: shortest
    and longest duration [s], one pair for all phases or a pair for each; equal values fix a duration; default: a third to
    three times the fixed duration. time_weight: cost of one second, for all phases or for each.
    """

    time: Literal["fixed", "free"] = "fixed"
    durations: Range | tuple[Range, ...] | None = None
    time_weight: float | tuple[float, ...] = 1.0

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): durations and a time weight other than 1 need ``time = "free"``.

        A time weight is finite and at least 0.
        """
        free = self.time == "free"
        return {
            "durations": (free or self.durations is None, 'time = "free" to be set too'),
            "time_weight": not_negative(self.time_weight)
            if free
            else (self.time_weight == 1.0, 'time = "free" to be set too'),
        }


TIME_KEYS = tuple(f.name for f in fields(TimeSettings))


def with_free_durations(task: Task, settings: TimeSettings) -> Task:
    """Return the task with free durations for ``time = "free"``, else the task unchanged.

    A task that has free durations already is unchanged too, if the settings give neither durations nor a time weight. Raises
    ValueError for settings that free_time rejects, for a task with refinement, with keys of its own for durations, or with a
    horizon that follows measurements.
    """
    if settings.time == "fixed":
        return task
    if task.clock is not no_clock and settings.durations is None:  # the task already has free durations
        if settings.time_weight == TimeSettings.time_weight:
            return task
        own = f"use problem.{task.time_key}" if task.time_key else "use these keys"
        raise ValueError(f"problem.time_weight: this problem has its own keys for durations; {own}")
    if task.clock is not no_clock or task.refined is not None or task.following is not None:
        raise ValueError(
            "problem.time: this problem has its own keys for durations; use these keys, and remove problem.durations"
        )
    try:
        free = free_time(task.ocp, settings.durations, settings.time_weight)
    except ValueError as error:
        raise ValueError(f"problem.time: {error}") from error
    easier = tuple(free_time(ocp, settings.durations, settings.time_weight).ocp for ocp in task.easier)
    nx, nu = task.ocp.manifold.nx, task.ocp.nu
    given, contour = task.initial, task.contour

    return replace(
        task,
        ocp=free.ocp,
        initial=(lambda: free.with_durations(given())) if callable(given) else free.with_durations(given),
        contour=None if contour is None else contour._replace(at=lambda xs: contour.at(xs[:, :nx])),
        moved=at_any_time,
        contact_limits=partial(_contact_limits, free, task, nx, nu),
        outcome=partial(_outcome, free, task.outcome, nx),
        commands=partial(_commands, task.commands, nx),
        clock=free.times,
        easier=easier,
        other_guesses=tuple(map(free.with_durations, task.other_guesses)),
    )


def _contact_limits(free: FreeTime, task: Task, nx: int, nu: int, xs: Array, us: Array) -> list[LimitViolation]:
    """Return the contact violations of the original problem, at the knots and times [s] of the problem with free durations."""
    times, found = free.times(xs), task.contact_limits(xs[1:, :nx], us[1:, :nu])
    return [b._replace(knot=b.knot + 1, time=float(times[b.knot + 1])) for b in found]


def _outcome(free: FreeTime, outcome: Callable[[Array], list[str]], nx: int, x: Array) -> list[str]:
    """Return sentences about a final state x, which ends with the durations: the durations first, then the outcome of the task."""
    return [_durations_text(free, x[nx:]), *outcome(x[:nx])]


def _commands(commands: Callable[[Array, Array], Sequence[str]], nx: int, xs: Array, times: Array) -> Sequence[str]:
    """Return the sentences about commanded motions at the states and times [s] of the original problem."""
    return commands(xs[1:, :nx], times[1:])


def _durations_text(free: FreeTime, durations: Array) -> str:
    """Return the duration of each phase with its planned duration."""
    rows = zip(free.names, durations, free.nominal, strict=True)
    return ", ".join(f"{name} {T:.3f} s (planned {T0:.3f})" for name, T, T0 in rows)
