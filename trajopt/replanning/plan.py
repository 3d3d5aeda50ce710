"""Plans in absolute time, horizons (the problem at a time), and warm starts from plans.

A plan is valid from its start on. Between knots, states are interpolated on geodesics; gains are constant, and so are controls
without a first-order hold. A plan is executed with feedback about its states x_ref(t),

    u(t) = us_k + K_k (x (-) x_ref(t)),     t_k <= t - start < t_(k+1),

so that a plan on any time grid can be tracked at any rate. After its end, the reference is the last state, and us_k and K_k are
those of the last knot whose control is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart, reached_knots, resampled_guess, times_in
from trajopt.problem.impact_stage import has_fixed_steps
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import parameters_at
from trajopt.replanning.workers import SAME_TIME
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.results.status import StatusCode
from trajopt.step.time_dependence import reads_time

HOLDING_STEPS, RESTING = 3, 1e-2
"""Number of Gauss-Newton steps to a control that holds the last state of a plan, and its largest rates there (SI units)."""
MIN_STEP = 0.5
"""A first knot shorter than this fraction of its time step is merged with the next one, if any, because its gains would be huge.
Replanning ends before time steps shrink below this fraction of a tick."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Trajectory with feedback gains from the time ``start`` [s] on; arrays as in a Solution, with times from 0 at its first knot.

    problem: the solved problem, if known. last_control (nu,): control at the last knot, to which the controls are interpolated
    (first-order hold); None for constant controls.
    """

    start: float
    times: Array
    xs: Array
    us: Array
    K: Array
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    problem: OCP | None = None
    last_control: Array | None = None
    _between: dict[Any, Array] = field(default_factory=dict, init=False, repr=False)
    """Cached tangent vectors between knots (ndx, N), by manifold."""
    _last: dict[tuple[float, Any], Array] = field(default_factory=dict, init=False, repr=False)
    """Latest reference state, by time and manifold."""

    @classmethod
    def from_solution(cls, solution: Solution, start: float, problem: OCP | None = None) -> Plan:
        """Plan from a solution of a problem, with its first knot at ``start`` [s]."""
        last = solution.meta.get(LAST_CONTROL)
        last = None if last is None else np.asarray(last, dtype=float)
        return cls(start, solution.times, solution.xs, solution.us, solution.K, solution.multipliers, problem, last)

    @property
    def end(self) -> float:
        """Time [s] of the last knot."""
        return self.start + float(self.times[-1])

    @cached_property
    def _controlled_knots(self) -> tuple[int, int]:
        """First and last knot whose stage has a duration, since controls of impacts are not applied; all knots if none has one."""
        held = np.flatnonzero(np.diff(self.times) > 0.0)
        return (int(held[0]), int(held[-1])) if len(held) else (0, len(self.us) - 1)

    def knots(self, times: Array) -> Array:
        """Knots (M,) whose controls are applied at times (M,) [s], see :meth:`knot`."""
        at = np.searchsorted(self.times, np.asarray(times) - self.start + SAME_TIME, side="right") - 1
        return np.clip(at, *self._controlled_knots)

    def knot(self, t: float) -> int:
        """Knot whose control is applied at t [s]; outside of the plan, the first or last one.

        Impacts, whose stages have no duration, are excluded, unless no stage has a duration.
        """
        first, last = self._controlled_knots
        return min(max(self._stage(t), first), last)

    def _stage(self, t: float) -> int:
        """Index of the time step at t [s], impacts included: the first one before the start, the last one after the end."""
        at = int(self.times.searchsorted(t - self.start + SAME_TIME, side="right")) - 1
        return min(max(at, 0), len(self.us) - 1)

    def reference(self, t: float, manifold: Any) -> Array:
        """Reference state (nx,) at t [s], on the geodesic between adjacent knots; outside of the plan, its first or last state."""
        known = self._last.get((t, manifold))
        if known is not None:
            return known
        if manifold not in self._between:
            self._between[manifold] = manifold.difference(self.xs[:-1].T, self.xs[1:].T)
        k = self._stage(t)
        dt = float(self.times[k + 1] - self.times[k])
        fraction = min(max(float(t - self.start - self.times[k]) / dt, 0.0), 1.0) if dt > 0.0 else 1.0
        result = np.asarray(manifold.integrate(self.xs[k], fraction * self._between[manifold][:, k]))
        self._last.clear()
        self._last[t, manifold] = result
        return result

    def control(self, t: float, x: Array, manifold: Any) -> Array:
        """Control (nu,) with feedback, us + K (x (-) x_ref), at t [s] in the state x (nx,); not clipped to bounds."""
        k = self.knot(t)
        deviation = np.asarray(manifold.difference(self.reference(t, manifold), x))
        return self.feed_forward(t, k) + self.K[k] @ deviation

    @cached_property
    def _holding(self) -> Array | None:
        """Control (nu,) that holds the last state, within RESTING; None if there is none, or the problem is unknown."""
        phase = None if self.problem is None else self.problem.phases[-1]
        sampling = None if phase is None else phase.dynamics.sampling
        if phase is None or sampling is None:
            return None
        backend, nu = sampling.backend, phase.dynamics.nu
        p = parameters_at(phase.parameters, -1)
        x, t, held = self.xs[-1:], float(self.times[-1]), self.us[-1].copy()
        for _ in range(HOLDING_STEPS):
            value, _, fu = backend.jacobians(x, held[None, :nu], t, p)
            if not (np.isfinite(value).all() and np.isfinite(fu).all()):
                return None  # the plan ends at a state far away, as after a fall
            held[:nu] -= np.linalg.lstsq(fu[0], value[0], rcond=None)[0]
        rates = backend.f(x, held[None, :nu], t, p)
        return held if np.abs(rates).max(initial=0.0) <= RESTING else None

    def feed_forward(self, t: float, k: int) -> Array:
        """Control (nu,) at t [s] after knot k, without feedback; from the end on, one that holds the last state, if any."""
        over = t - self.end >= (-SAME_TIME if self.last_control is None else SAME_TIME)
        if over and self._holding is not None:
            return self._holding
        if self.last_control is None:
            return self.us[k]
        dt = float(self.times[k + 1] - self.times[k])
        after = self.us[k + 1] if k + 1 < len(self.us) else self.last_control
        fraction = min(max((t - self.start - float(self.times[k])) / dt, 0.0), 1.0) if dt > 0.0 else 0.0
        return self.us[k] + fraction * (after - self.us[k])

    def bounds(self, t: float) -> tuple[Array, Array] | None:
        """Bounds on controls, each (nu,), of the plan's problem at t [s]; None without bounds, or if the problem is unknown."""
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
"""Status codes of plans that a loop executes; feedback and the next plan correct errors of time steps and short horizons."""


LIMITS = (StatusCode.MAX_ITERATIONS, StatusCode.TIME_LIMIT)
"""Status codes of plans that are accepted only after an iteration; before it, they are the guess."""


def fault_of(solution: Solution) -> str | None:
    """Reason why a solution must not be executed, or None.

    Reasons are numbers that are not finite, a status not in ACCEPTED, and a limit that ended the solve before its first iteration.
    """
    wrong = not_finite(solution)
    if wrong is not None:
        return f"{wrong} of the solution is not finite"
    if solution.iterations == 0 and solution.status.code in LIMITS:
        return f"{solution.status.code} before the first iteration: the solution is the guess; raise this limit"
    return None if solution.status.code in ACCEPTED else str(solution.status)


def not_finite(plan: Plan | Solution) -> str | None:
    """Name of the first of the arrays xs, us and K that is not finite; None if all are."""
    return next((name for name in ("xs", "us", "K") if not np.isfinite(getattr(plan, name)).all()), None)


def require_same_names(plan: Plan | Solution, ocp: OCP, what: str = "initial_plan") -> None:
    """Raise ValueError if a plan is known to be of another robot than a problem, or to have other states or controls.

    what: name of the plan in the error. Controls may be those of any phase, since plans of a horizon may have the last phases only.
    """
    if isinstance(plan, Plan):
        known = {} if plan.problem is None else _names(plan.problem)
    else:
        robot = (plan.meta.get("model") or {}).get("name")
        states, controls = (plan.meta.get(f"{kind}_names") for kind in ("state", "control"))
        known = {"robot": [robot], "states": [states], "controls": [controls]}
    for kind, own in _names(ocp).items():
        given = [value if kind == "robot" else tuple(value) for value in known.get(kind, ()) if value is not None]
        if given and None not in own and not set(given) & set(own):
            one, other = (value if kind == "robot" else ", ".join(value) for value in (given[0], own[0]))
            remedy = "solve this problem with that plan as the guess, and pass the solution"
            raise ValueError(f"{what} is of another problem, with the {kind} {one} instead of {other}: {remedy}")


def _names(ocp: OCP) -> dict[str, list[Any]]:
    """Names of the robot, None without one, of the states, and of the controls of each phase of a problem."""
    robot, controls = None if ocp.model is None else ocp.model.name, [p.dynamics.control_names for p in ocp.phases]
    return {"robot": [robot], "states": [ocp.state_names], "controls": [ocp.control_names, *controls]}


def warm_start(plan: Plan, ocp: OCP, start: float) -> WarmStart:
    """Warm start from a plan, resampled on the time grid of a problem whose first knot is at ``start`` [s].

    Gains and multipliers are those of the plan's last knot at or before each time. Multipliers without a row for each knot, such as
    those of the last knot alone, are unchanged.
    """
    guess = resampled_guess(ocp, plan, start - plan.start)
    t = times_in(ocp, plan.xs) + (start - plan.start)
    at = np.minimum(reached_knots(ocp, t, plan.times)[:-1], len(plan.us) - 1)
    return WarmStart(guess, plan.K[at], {name: _at_knots(value, at, plan) for name, value in plan.multipliers.items()})


def _at_knots(value: Array, at: Array, plan: Plan) -> Array:
    """Rows of multipliers at the knots ``at`` of a plan; of those with N + 1 rows also the last one. Others are unchanged."""
    if len(value) == len(plan.us):
        return value[at]
    return value[[*at, -1]] if len(value) == len(plan.xs) else value


class Horizon(Protocol):
    """Problem to solve at a given time."""

    def __call__(self, t: float) -> OCP | None:
        """Problem whose first knot is at t [s]; None after the end."""


@runtime_checkable
class Following(Horizon, Protocol):
    """Horizon whose problems depend on the estimated state, which it receives at each tick."""

    def observe(self, t: float, x: Array) -> None:
        """Receive the estimated state x (nx,) at t [s]."""


@dataclass(frozen=True)
class RecedingHorizon:
    """Horizon with the same problem at all times.

    Time in residuals and dynamics starts at 0 for each problem, but at t if the dynamics read it. moved: function from the problem
    and a start t [s] to the problem with references for that start; None: no change.
    """

    ocp: OCP
    moved: Callable[[OCP, float], OCP] | None = None

    def __call__(self, t: float) -> OCP | None:
        """Problem for a start at t [s], with references updated by ``moved`` if given; never None."""
        ocp = self.ocp if self.moved is None else self.moved(self.ocp, t)
        timed = any(reads_time(phase.dynamics, self.ocp.x0, phase.parameters) for phase in self.ocp.phases)
        return replace(ocp, start=self.ocp.start + t) if timed else ocp


@dataclass(frozen=True)
class ShrinkingHorizon:
    """Remaining part of a problem that begins at time 0; None if fewer than ``min_knots`` knots or ``min_time`` [s] remain."""

    ocp: OCP
    min_knots: int = 2
    min_time: float = 0.0

    def __call__(self, t: float) -> OCP | None:
        """Remaining problem at t [s], see :func:`remaining`; None if fewer than ``min_knots`` or less than ``min_time`` remain."""
        rest = remaining(self.ocp, t)
        return None if rest is None or rest.horizon < self.min_knots or rest.times[-1] < self.min_time else rest


@dataclass(frozen=True)
class ResampledHorizon:
    """Remaining part of a single-phase problem that begins at time 0, on a constant number of knots; None below ``min_time`` [s].

    The time steps shrink; replanning ends before they are shorter than half a tick. Values by knot are those of the knot of the
    problem at or before each new one. Raises ValueError for a problem with several phases, and for discrete dynamics.
    """

    ocp: OCP
    min_time: float = 0.0

    def __post_init__(self) -> None:
        if len(self.ocp.phases) > 1:
            raise ValueError("a problem with several phases cannot be resampled; use a ShrinkingHorizon")
        if has_fixed_steps(self.ocp.phases[0]):
            raise ValueError(
                "discrete dynamics cannot be resampled, since their time steps are fixed; use a ShrinkingHorizon"
            )

    def __call__(self, t: float) -> OCP | None:
        """Remaining problem at t [s] with the same number of knots; None if less than ``min_time`` remains.

        For t <= 0, it is the problem itself.
        """
        ocp, N = self.ocp, self.ocp.horizon
        left = float(ocp.times[-1]) - t
        if t <= 0.0:
            return ocp
        if left < max(self.min_time, SAME_TIME):
            return None
        dt = np.full(N, left / N)
        at = np.searchsorted(ocp.times, t + dt * np.arange(N) + SAME_TIME, side="right") - 1
        return ocp.with_phases([ocp.phases[0].at_knots(at, dt)], at, start=ocp.start + t)


def remaining(ocp: OCP, elapsed: float) -> OCP | None:
    """Problem without its first ``elapsed`` seconds; None if nothing remains; the problem itself for ``elapsed`` <= 0.

    The current time step is shortened, or merged with the next one of its phase if little of it remains (MIN_STEP). The time t that
    residuals and dynamics read continues; x0 is unchanged.
    """
    if elapsed <= 0.0:
        return ocp
    phases, start = [], 0.0
    for phase in ocp.phases:
        cut = _remaining_phase(phase, elapsed - start)
        phases += [cut] if cut is not None else []
        start += float(phase.dt.sum())
    if not phases:
        return None
    dropped = ocp.horizon - sum(phase.knots for phase in phases)
    return ocp.with_phases(phases, np.arange(dropped, ocp.horizon), start=ocp.start + elapsed)


def _remaining_phase(phase: Phase, elapsed: float) -> Phase | None:
    """Phase without its first ``elapsed`` seconds; the phase itself for ``elapsed`` <= 0, None if nothing remains.

    A time step cut to less than MIN_STEP of its length is merged with the next one, if there is one.
    """
    if elapsed <= 0.0:
        return phase
    ends = np.cumsum(phase.dt)
    first = int(np.searchsorted(ends, elapsed + SAME_TIME, side="right"))
    if first == phase.knots:
        return None
    dt = phase.dt[first:].copy()
    dt[0] = ends[first] - elapsed
    if dt[0] < MIN_STEP * phase.dt[first] and len(dt) > 1:
        dt[1] += dt[0]
        dt, first = dt[1:], first + 1
    return phase.at_knots(np.arange(first, phase.knots), dt)
