"""Plans in absolute time, the problems they solve, and where the next solve starts from.

A plan holds from its start on.  Between knots its states lie on geodesics, its controls and gains are held, and it is executed
with feedback about them,

    u(t) = us_k + K_k (x (-) x_ref(t)),     t_k <= t - start < t_(k+1),

so that a plan made on any time grid can be followed at any rate.  Behind its end it stays at its last state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import reached_knots, resampled_guess, times_in
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.replanning.timing import SAME_TIME
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode

LEAST_STEP = 0.5
"""A first knot shorter than this share of its time step is joined to the next one: its gains would be huge."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A trajectory with its feedback from the time ``start`` [s] on; the arrays are those of a Solution, times from 0.

    problem: that was solved, where it is known.
    """

    start: float
    times: Array
    xs: Array
    us: Array
    K: Array
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    problem: OCP | None = None
    _between: dict[Any, Array] = field(default_factory=dict, init=False, repr=False)
    """The geodesics between knots (ndx, N), by manifold."""
    _last: dict[tuple[float, Any], Array] = field(default_factory=dict, init=False, repr=False)
    """The state on them that was asked for last, by time and manifold."""

    @classmethod
    def of(cls, solution: Solution, start: float, problem: OCP | None = None) -> Plan:
        """A solution, of a problem, whose first knot is at ``start``."""
        return cls(start, solution.times, solution.xs, solution.us, solution.K, solution.multipliers, problem)

    @property
    def end(self) -> float:
        """The time [s] of the last knot."""
        return self.start + float(self.times[-1])

    @cached_property
    def _held(self) -> tuple[int, int]:
        """The first and the last knot whose stage has a duration: only their controls are held; all knots where none has one."""
        held = np.flatnonzero(np.diff(self.times) > 0.0)
        return (int(held[0]), int(held[-1])) if len(held) else (0, len(self.us) - 1)

    def knots(self, times: Array) -> Array:
        """The knots (M,) whose controls are held at times (M,) [s]; none is an impact, whose stage has no duration."""
        at = np.searchsorted(self.times, np.asarray(times) - self.start + SAME_TIME, side="right") - 1
        return np.clip(at, *self._held)

    def knot(self, t: float) -> int:
        """The knot whose control is held at t; see :meth:`knots`."""
        first, last = self._held
        return min(max(self._stage(t), first), last)

    def _stage(self, t: float) -> int:
        """The stage under way at t, behind the end the last one, be it an impact."""
        at = int(self.times.searchsorted(t - self.start + SAME_TIME, side="right")) - 1
        return min(max(at, 0), len(self.us) - 1)

    def reference(self, t: float, manifold: Any) -> Array:
        """x_ref (nx,) on the geodesic between the knots around t."""
        known = self._last.get((t, manifold))
        if known is not None:
            return known
        if manifold not in self._between:
            self._between[manifold] = manifold.difference(self.xs[:-1].T, self.xs[1:].T)
        k = self._stage(t)
        dt = float(self.times[k + 1] - self.times[k])
        share = min(max(float(t - self.start - self.times[k]) / dt, 0.0), 1.0) if dt > 0.0 else 1.0
        found = np.asarray(manifold.integrate(self.xs[k], share * self._between[manifold][:, k]))
        self._last.clear()
        self._last[t, manifold] = found
        return found

    def control(self, t: float, x: Array, manifold: Any) -> Array:
        """u (nu,) in the state x (nx,)."""
        k = self.knot(t)
        deviation = np.asarray(manifold.difference(self.reference(t, manifold), x))
        return self.us[k] + self.K[k] @ deviation

    def bounds(self, t: float) -> tuple[Array, Array] | None:
        """The least and the largest u (nu,) that its problem allows at t; None where no control is bounded, or it is not known."""
        if self.problem is None or self.problem.control_bounds is None:
            return None
        lower, upper = self.problem.control_bounds
        k = min(self.knot(t), len(lower) - 1)
        return lower[k], upper[k]


ACCEPTED = (
    StatusCode.CONVERGED,
    StatusCode.ACCEPTABLE,
    StatusCode.GOAL_MISSED,
    StatusCode.VIOLATED_BETWEEN_KNOTS,
    StatusCode.DOES_NOT_HOLD,
    StatusCode.COST_CONVERGED,
    StatusCode.PRECISION_LIMIT,
    StatusCode.MAX_ITERATIONS,
    StatusCode.TIME_LIMIT,
)
"""Codes of trajectories that a loop follows: feedback and the next plan correct what time steps and short horizons miss."""


def fault_of(solution: Solution) -> str | None:
    """Why a solution must not be followed, or None."""
    for name in ("xs", "us", "K"):
        if not np.isfinite(getattr(solution, name)).all():
            return f"{name} of the solution is not finite"
    return None if solution.status.code in ACCEPTED else str(solution.status)


def warm_start(plan: Plan, ocp: OCP, start: float) -> WarmStart:
    """The plan on the time grid of a problem whose first knot is at ``start``."""
    guess = resampled_guess(ocp, plan, start - plan.start)
    t = times_in(ocp, plan.xs) + (start - plan.start)
    at = np.minimum(reached_knots(ocp, t, plan.times)[:-1], len(plan.us) - 1)
    return WarmStart(guess, plan.K[at], {name: _at_knots(value, at, plan) for name, value in plan.multipliers.items()})


def _at_knots(value: Array, at: Array, plan: Plan) -> Array:
    """Rows of each knot, of each knot and the last one, or of the last one alone."""
    if len(value) == len(plan.us):
        return value[at]
    return value[[*at, -1]] if len(value) == len(plan.xs) else value


class Horizon(Protocol):
    """Problem to solve at a given time."""

    def __call__(self, t: float) -> OCP | None:
        """The problem whose first knot is at t [s]; None where none is left to solve."""
        ...


@runtime_checkable
class Following(Protocol):
    """A horizon whose problems depend on what is measured: it is told at each tick."""

    def __call__(self, t: float) -> OCP | None:
        """See :class:`Horizon`."""
        ...

    def observe(self, t: float, x: Array) -> None:
        """Take in the estimated state x (nx,) at t [s]."""
        ...


@dataclass(frozen=True)
class RecedingHorizon:
    """One problem at all times, whose own time begins at 0 in each; ``moved`` gives it references of its own from t [s] on."""

    ocp: OCP
    moved: Callable[[OCP, float], OCP] | None = None

    def __call__(self, t: float) -> OCP | None:
        return self.ocp if self.moved is None else self.moved(self.ocp, t)


@dataclass(frozen=True)
class ShrinkingHorizon:
    """Remaining part of a problem that begins at 0; None if less than ``least`` knots or ``least_time`` [s] are left."""

    ocp: OCP
    least: int = 2
    least_time: float = 0.0

    def __call__(self, t: float) -> OCP | None:
        rest = remaining(self.ocp, t)
        return None if rest is None or rest.horizon < self.least or rest.times[-1] < self.least_time else rest


@dataclass(frozen=True)
class ResampledHorizon:
    """Remaining part of a single-phase problem that begins at 0, on a constant number of knots; None below ``least`` [s].

    Its size never changes; its knots come closer to each other. Raises ValueError for a problem of several phases.
    """

    ocp: OCP
    least: float = 0.0

    def __post_init__(self) -> None:
        if len(self.ocp.phases) > 1:
            raise ValueError("a problem with several phases cannot be regridded; use a shrinking horizon")

    def __call__(self, t: float) -> OCP | None:
        ocp, N = self.ocp, self.ocp.horizon
        left = float(ocp.times[-1]) - t
        if t <= 0.0:
            return ocp
        if left < max(self.least, SAME_TIME):
            return None
        dt = np.full(N, left / N)
        at = np.searchsorted(ocp.times, t + dt * np.arange(N) + SAME_TIME, side="right") - 1
        (phase,) = ocp.phases
        terms, constraints = (tuple(_at_rows(part, at) for part in kind) for kind in (phase.terms, phase.constraints))
        parameters = {key: _taken(value, at) for key, value in phase.parameters.items()}
        cut = replace(phase, dt=dt, terms=terms, parameters=parameters, constraints=constraints)
        bounds = {key: _taken(getattr(ocp, key), at) for key in ("u_lower", "u_upper")}
        return replace(ocp, phases=(cut,), start=ocp.start + t, **bounds)


def remaining(ocp: OCP, elapsed: float) -> OCP | None:
    """The problem without its first ``elapsed`` seconds; None where nothing is left.

    The knot under way is cut, or joined to the next one of its phase where little of it is left. The time t that residuals and
    dynamics read goes on.
    """
    if elapsed <= 0.0:
        return ocp
    phases, start = [], 0.0
    for phase in ocp.phases:
        cut = _cut(phase, elapsed - start)
        phases += [cut] if cut is not None else []
        start += float(phase.dt.sum())
    if not phases:
        return None
    dropped = ocp.horizon - sum(phase.knots for phase in phases)
    bounds = {key: _taken(getattr(ocp, key), np.arange(dropped, ocp.horizon)) for key in ("u_lower", "u_upper")}
    return replace(ocp, phases=tuple(phases), start=ocp.start + elapsed, **bounds)


def _cut(phase: Phase, elapsed: float) -> Phase | None:
    if elapsed <= 0.0:
        return phase
    ends = np.cumsum(phase.dt)
    first = int(np.searchsorted(ends, elapsed + SAME_TIME, side="right"))
    if first == phase.knots:
        return None
    dt = phase.dt[first:].copy()
    dt[0] = ends[first] - elapsed
    if dt[0] < LEAST_STEP * phase.dt[first] and len(dt) > 1:
        dt[1] += dt[0]
        dt, first = dt[1:], first + 1
    at = np.arange(first, phase.knots)
    terms, constraints = (tuple(_at_rows(part, at) for part in kind) for kind in (phase.terms, phase.constraints))
    parameters = {key: _taken(value, at) for key, value in phase.parameters.items()}
    return replace(phase, dt=dt, terms=terms, parameters=parameters, constraints=constraints)


def _at_rows(part: Any, at: Array) -> Any:
    """A cost term or constraint with the rows of some knots."""
    keys = ("weight",) if isinstance(part, CostTerm) else ("lower", "upper")
    own = {key: _taken(getattr(part, key), at) for key in keys}
    return replace(part, parameters={k: _taken(v, at) for k, v in part.parameters.items()}, **own)


def _taken(value: Any, at: Array) -> Any:
    return value[at] if np.ndim(value) == 2 else value


def with_values(ocp: OCP, name: str, values: Mapping[str, Array]) -> OCP:
    """The problem with other values in each cost term and constraint of a name, see :meth:`~trajopt.problem.ocp.OCP.updated`.

    Each value is one row (n,) for all knots, or rows (N, n) or (N + 1, n), of which terminal parts take the last one.
    Raises ValueError if nothing has this name, or such a value, or one of another shape.
    """
    ocp.parts_named(name)  # raises where there are none
    for key, value in values.items():
        if value.ndim > 2 or (value.ndim == 2 and len(value) not in (ocp.horizon, ocp.horizon + 1)):
            rows = f"(n,), (N = {ocp.horizon}, n) or (N + 1, n)"
            raise ValueError(f"{name!r}: {key} has shape {value.shape}; expected {rows}")

    def change(parts: tuple[Any, ...], at: Any) -> tuple[Any, ...]:
        own = {key: value[at] if value.ndim == 2 else value for key, value in values.items()}
        return tuple(part.updated(**own) if part.name == name else part for part in parts)

    phases = tuple(
        replace(phase, terms=change(phase.terms, knots), constraints=change(phase.constraints, knots))
        for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True)
    )
    terminal, final = change(ocp.terminal, -1), change(ocp.terminal_constraints, -1)
    return replace(ocp, phases=phases, terminal=terminal, terminal_constraints=final)
