"""Replanning while a plant moves: the loop that owns time, and knows neither the solver nor the plant.

At each tick of the control the state is estimated, the plan in force is followed with its feedback, and the plant moves on.  At
each replanning period a solve is started, if the planner is free,

    from    the state predicted to the time at which its plan shall hold, ``lead`` seconds later (after a solve that took longer:
            as long as that one), under the plan in force
    of      the horizon's problem at that time, with objects where they are predicted to be at each knot
    with    the last plan, shifted, as its guess

and its plan is followed from that time on, or from when it is known.  A solve that fails or is late changes nothing: the last
plan is tracked on.  Everything out of the ordinary is an event in the log; no NaN reaches the plant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.replanning.measurements import Estimator, MovingObject, Observer, Prediction, Sensor
from trajopt.replanning.plan import Following, Horizon, Plan, fault_of, warm_start, with_values
from trajopt.replanning.run_log import Event, EventKind, RunLog, Solve
from trajopt.replanning.setpoints import Setpoint, setpoint
from trajopt.replanning.simulator import Simulator
from trajopt.replanning.workers import Answer, Clock, SimulatedClock, SimulatedWorker, Worker
from trajopt.results.solution import Solution

_SAME_TIME = 1e-9
_DIGITS = 9
"""Time steps [s] are rounded to so many digits: sums of ticks that differ by rounding are one."""


class Planner(Protocol):
    """What a replanning loop asks of a solver; both steps belong to one solve and are called in turn."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Make ready for the problem, whose x0 is a prediction."""
        ...

    def respond(self, x0: Array) -> Solution:
        """The solution from the state x0 (nx,)."""
        ...


class Plant(Protocol):
    """What is controlled."""

    def state(self) -> Array:
        """The true state (nx,), in the conventions of the problem."""
        ...

    def step(self, u: Array, dt: float) -> None:
        """Move on by dt [s] under the held control u (nu,)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All in seconds. tick: period of the control. period: between the starts of solves. lead: from a start until its plan holds.

    deadline: of a solve, from its start; default the lead, or the period where there is none. drop_late: a plan that misses it is
    not followed; else it is, from when it is known. prepare_ahead: the next solve is prepared before its measurement.
    Raises ValueError for numbers that are not positive.
    """

    tick: float = 0.001
    period: float = 0.01
    lead: float = 0.0
    deadline: float | None = None
    drop_late: bool = False
    prepare_ahead: bool = False

    def __post_init__(self) -> None:
        for key in ("tick", "period"):
            if not getattr(self, key) > 0.0:
                raise ValueError(f"{key} = {getattr(self, key)}; expected a positive number of seconds")
        if self.period < self.tick - _SAME_TIME:
            raise ValueError(f"period = {self.period} is shorter than tick = {self.tick}: replan at most once a tick")
        if not self.lead >= 0.0:
            raise ValueError(f"lead = {self.lead}; expected a number of seconds of at least 0")
        if self.deadline is not None and not self.deadline > 0.0:
            raise ValueError(f"deadline = {self.deadline}; expected a positive number of seconds, or None")

    @property
    def limit(self) -> float:
        """The deadline, with its default."""
        return self.deadline or self.lead or self.period


class Now(NamedTuple):
    """What a run is like after a tick. t: [s]. x: the true state (nx,). objects: where they are, by name."""

    t: float
    x: Array
    plan: Plan
    objects: Mapping[str, Array]


class ReplanningLoop:
    """One run. first: the plan to begin with. estimator: of the state, default exact. objects: what moves in the world.

    worker, clock: who solves, and how time passes; default simulated time with the measured seconds of each solve charged.
    on_tick: called with the time [s] after each tick; its KeyboardInterrupt ends the run. watch: called after each tick too, with
    what there is to see.
    """

    def __init__(
        self,
        horizon: Horizon,
        planner: Planner,
        plant: Plant,
        first: Plan,
        timing: Timing,
        *,
        estimator: Estimator | None = None,
        objects: Sequence[MovingObject] = (),
        worker: Worker | None = None,
        clock: Clock | None = None,
        on_tick: Callable[[float], None] | None = None,
        watch: Callable[[Now], None] | None = None,
    ) -> None:
        problem = horizon(first.start)
        if problem is None:
            raise ValueError("the horizon has no problem at the start of the first plan; let it begin there")
        self.horizon, self.planner, self.plant, self.timing = horizon, planner, plant, timing
        self.manifold, self.objects = problem.manifold, tuple(objects)
        self.estimator = estimator or Sensor(self.manifold)
        self.worker, self.clock = worker or SimulatedWorker(timing.tick), clock or SimulatedClock()
        self.on_tick, self.watch = on_tick or (lambda t: None), watch
        self.plan, self._problem = replace(first, problem=first.problem or problem), problem
        self._next: Plan | None = None
        self._due, self._lead = 0.0, timing.lead
        self._job: tuple[int, float, OCP] | None = (
            None  # its tick, from when its plan shall hold, and of what it is one
        )
        self._prepared_for: float | None = None
        self._ended = False
        self._heard, self._silent = 0.0, False
        self._u = np.zeros(problem.nu)
        self._simulator: Simulator | None = None
        self._observer = Observer(plant.state(), self._model_step, timing.tick)
        self._events: list[Event] = []
        self._solves: list[Solve] = []
        self._rows: list[tuple[Array, ...]] = []

    def run(self, duration: float) -> RunLog:
        """Run for ``duration`` seconds, or until the plant's state is not finite, or Ctrl-C."""
        try:
            for k in range(round(duration / self.timing.tick)):
                lag = self.clock.wait_until(k * self.timing.tick)
                if not self._tick(k, k * self.timing.tick, lag):
                    break
                self.on_tick(k * self.timing.tick)
                if self.watch is not None:
                    self.watch(self._now(k * self.timing.tick))
        except KeyboardInterrupt:
            self._event(len(self._rows) * self.timing.tick, EventKind.INTERRUPTED, "stopped by the user")
        return self._log()

    def setpoint(self, t: float, feet: Sequence[str] = ()) -> Setpoint:
        """What the plan in force says at t [s], for a controller; feet: frames that are to be told."""
        assert self.plan.problem is not None  # every plan of a loop has one
        return setpoint(self.plan.problem, self.plan, t, feet)

    def _tick(self, k: int, t: float, lag: float) -> bool:
        """One period of the control; False where it is the last."""
        truth = np.array(self.plant.state(), dtype=float)
        if not np.isfinite(truth).all():
            self._event(t, EventKind.PLANT_DIVERGED, "the state of the plant is not finite")
            return False
        self._measure(t, truth)
        x = self._observer.state(self.plan.reference(t, self.manifold))
        if isinstance(self.horizon, Following):
            self.horizon.observe(t, x)
        self._replan(k, t, x)
        u = self._control(t, x)
        self.plant.step(u, self.timing.tick)
        self._observer.applied(t, u)
        where = [np.array(o.truth(t), dtype=float) for o in self.objects]
        self._rows.append((np.array(t), truth, x, self.plan.reference(t, self.manifold), u, np.array(lag), *where))
        return True

    def _now(self, t: float) -> Now:
        where = zip(self.objects, self._rows[-1][6:], strict=True)
        return Now(t, self._rows[-1][1], self.plan, {item.name: at for item, at in where})

    # -- what is known --------------------------------------------------------------------------------------------------
    def _measure(self, t: float, truth: Array) -> None:
        measured = self.estimator.measure(t, truth)
        if measured is None:
            self._note_silence(t)
        elif not np.isfinite(measured.value).all():
            self._event(t, EventKind.BAD_MEASUREMENT, "a measured state is not finite; it is predicted by the model")
        else:
            self._observer.correct(measured)
            self._heard, self._silent = t, False
        for item in self.objects:
            if not item.observe(t):
                self._event(t, EventKind.BAD_MEASUREMENT, f"a measurement of {item.name!r} is not finite")

    def _note_silence(self, t: float) -> None:
        """An event for each time that no measurement comes for too long."""
        if not self._silent and t - self._heard > max(self.estimator.patience, self.timing.tick) - _SAME_TIME:
            self._silent = True
            self._event(t, EventKind.NO_MEASUREMENT, "no state is measured any more; it is predicted by the model")

    def _model_step(self, x: Array, u: Array, t: float, dt: float) -> Array:
        phase = self._problem.phases[0]
        if self._simulator is None or self._simulator.dynamics is not phase.dynamics:
            self._simulator = Simulator(phase.dynamics)
        now = {key: value[0] if value.ndim == 2 else value for key, value in phase.parameters.items()}
        return self._simulator.advance(x, u[None, : phase.dynamics.nu], round(dt, _DIGITS), now)

    def _ahead(self, x: Array, t: float, until: float) -> Array:
        """The state at ``until`` under the plan in force."""
        while until - t > _SAME_TIME:
            h = min(self.timing.tick, until - t)
            x = self._model_step(x, self._bounded(self.plan.control(t, x, self.manifold)), t, h)
            t += h
        return x if np.isfinite(x).all() else self.plan.reference(until, self.manifold)

    # -- solves ---------------------------------------------------------------------------------------------------------
    def _replan(self, k: int, t: float, x: Array) -> None:
        """Take what the planner has found, and set it to work where it is time."""
        self._take(k, t)
        if t >= self._due - _SAME_TIME and not self._ended:
            self._due += self.timing.period
            if self.worker.idle(k):
                self._start(k, t, x)
                self._take(k, t)
            else:
                self._event(t, EventKind.SKIPPED, "the planner is still at work")
        if self._next is not None and t >= self._next.start - _SAME_TIME:
            self.plan, self._next = self._next, None

    def _start(self, k: int, t: float, x: Array) -> None:
        ready = self._prepared_for is not None and t - _SAME_TIME <= self._prepared_for < t + self._lead + _SAME_TIME
        valid = self._prepared_for if ready and self._prepared_for is not None else t + self._lead
        problem = self.horizon(valid)
        if problem is None:
            self._ended = True
            self._event(t, EventKind.HORIZON_ENDED, "nothing is left to plan; the last plan is tracked")
            return
        self._problem = problem
        x0, last = self._ahead(x, t, valid), self._next or self.plan
        known = [item.prediction() for item in self.objects]
        self._prepared_for, self._job = None, (k, valid, problem)

        def respond() -> Solution:
            if not ready:
                self._prepare(problem, valid, last, known)
            return self.planner.respond(x0)

        def prepare(solution: Solution | None) -> None:
            after = valid + self.timing.period
            following = self.horizon(after) if self.timing.prepare_ahead else None
            if following is not None:
                found = solution is not None and fault_of(solution) is None
                self._prepare(following, after, Plan.of(solution, valid) if found and solution else last, known)
                self._prepared_for = after

        self.worker.start(respond, prepare, k)

    def _prepare(self, problem: OCP, start: float, last: Plan, known: Sequence[Prediction]) -> None:
        for item, prediction in zip(self.objects, known, strict=True):
            problem = with_values(problem, item.name, item.parameter, prediction.at(start + problem.times))
        warm = warm_start(last, problem, start)
        self.planner.prepare(replace(problem, x0=warm.guess.xs[0]), warm)

    def _take(self, k: int, t: float) -> None:
        """The planner's answer, if it is known."""
        answer = self.worker.poll(k)
        if answer is None or self._job is None:
            return
        (start, valid, problem), self._job = self._job, None
        fault = _fault(answer)
        solution = answer.value if fault is None else None
        if fault is not None:
            self._event(t, EventKind.FAILED_SOLVE, f"{fault}; the last plan is tracked")
        took = (answer.tick - start) * self.timing.tick
        self._lead = max(self.timing.lead, took)
        late = took > self.timing.limit + _SAME_TIME
        if late:
            self._event(t, EventKind.LATE_PLAN, f"a plan took {took:.4g} s")
        if solution is not None and not (late and self.timing.drop_late):
            self._next = Plan.of(solution, valid, problem)
        numbers = (0, False, np.nan) if solution is None else (solution.iterations, True, solution.cost)
        self._solves.append(Solve(start * self.timing.tick, valid, t, answer.seconds, *numbers))

    # -- control --------------------------------------------------------------------------------------------------------
    def _control(self, t: float, x: Array) -> Array:
        """The plan's control within the bounds; the last one where it is not finite."""
        u = self._bounded(self.plan.control(t, x, self.manifold))
        if np.isfinite(u).all():
            self._u = u
        else:
            self._event(t, EventKind.BAD_CONTROL, "a control of the plan is not finite; the last one is held")
        return self._u

    def _bounded(self, u: Array) -> Array:
        bounds = self._problem.control_bounds
        return u if bounds is None else np.clip(u, bounds[0][0], bounds[1][0])

    # -- the account ----------------------------------------------------------------------------------------------------
    def _event(self, t: float, kind: EventKind, message: str) -> None:
        self._events.append(Event(t, kind, message))

    def _log(self) -> RunLog:
        if not self._rows:
            raise ValueError("the run has no ticks; give a duration of at least one tick")
        columns: list[Any] = [np.array(column) for column in zip(*self._rows, strict=True)]
        objects = {item.name: column for item, column in zip(self.objects, columns[6:], strict=True)}
        times, xs, estimates, references, us, lags = columns[:6]
        return RunLog(
            self.timing.tick,
            times,
            xs,
            estimates,
            references,
            us,
            lags,
            objects,
            self._solves,
            self._events,
            self.worker.spells(),
            manifold=self._problem.manifold,
        )


def _fault(answer: Answer) -> str | None:
    if answer.error is not None:
        return f"{type(answer.error).__name__}: {answer.error}"
    return fault_of(answer.value)
