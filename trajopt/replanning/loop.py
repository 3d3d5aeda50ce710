"""Replanning loop: advances time, independent of solver and plant.

At each control tick, the loop estimates the state (:mod:`~trajopt.replanning.measurements`), applies the current plan with its
feedback (:mod:`~trajopt.replanning.planning` replaces the plan periodically), and steps the plant. The log records faults as
events; no NaN reaches the plant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.replanning.arguments import seconds
from trajopt.replanning.measurements import Estimator, Measurement, MovingObject, Sensor
from trajopt.replanning.plan import Horizon, Plan
from trajopt.replanning.planning import Control, Planner, Planning
from trajopt.replanning.run_log import EventKind, RunLog, RunRecorder, Tick
from trajopt.replanning.setpoints import Setpoint, setpoint
from trajopt.replanning.workers import SAME_TIME, Clock, SimulatedClock, SimulatedWorker, Timing, Worker

MAX_STATE = 1e6
"""Largest magnitude of an entry of a plant state, in SI units; beyond it the simulation counts as diverged."""


class Plant(Protocol):
    """Controlled plant."""

    def state(self) -> Array:
        """True state (nx,), in the conventions of the problem."""

    def step(self, u: Array, dt: float) -> None:
        """Advance by dt [s] under the constant control u (nu,)."""


class Now(NamedTuple):
    """Snapshot of a run after a tick: current plan, and true object positions by name.

    The time t [s], the true state x (nx,) and the positions are those at the beginning of the tick.
    """

    t: float
    x: Array
    plan: Plan
    objects: Mapping[str, Array]


class ReplanningLoop:
    """One run of replanning.

    initial_plan: executed until the first solve gives a plan. estimator: of the state; default: the true state at each tick.
    objects: moving objects of the world. worker: runs the solves. clock: simulated or wall time; by default time is simulated and
    each solve takes its measured duration. on_tick: called after each tick with the time [s] of its beginning; a KeyboardInterrupt
    that it raises ends the run. until: called after each tick with the time [s] and the true state (nx,) at its end; a nonempty
    result ends the run and becomes the message of an event. watch: called after each tick with its snapshot.

    Raises TypeError for a horizon, planner, plant, initial plan, timing or estimator of another type, and ValueError for a horizon
    without a problem at the start of the initial plan, for objects and a plant that do not fit the problem, and for a tick that is
    not the time step of discrete dynamics.
    """

    def __init__(
        self,
        horizon: Horizon,
        planner: Planner,
        plant: Plant,
        initial_plan: Plan,
        timing: Timing,
        *,
        estimator: Estimator | None = None,
        objects: Sequence[MovingObject] = (),
        worker: Worker | None = None,
        clock: Clock | None = None,
        on_tick: Callable[[float], None] | None = None,
        until: Callable[[float, Array], str] | None = None,
        watch: Callable[[Now], None] | None = None,
    ) -> None:
        if not isinstance(timing, Timing):
            raise TypeError(f"timing is a {type(timing).__name__}; expected a trajopt.Timing")
        if estimator is not None and not (hasattr(estimator, "patience") and hasattr(estimator, "measure")):
            raise TypeError(
                f"the estimator is a {type(estimator).__name__}; expected an object with patience and measure"
            )
        self._plant, self._tick, self._objects = plant, timing.tick, tuple(objects)
        self._worker, self._clock = worker or SimulatedWorker(timing.tick), clock or SimulatedClock()
        self._on_tick, self._until, self._watch = on_tick or (lambda t: None), until or (lambda t, x: ""), watch
        self._recorder = RunRecorder()
        self._planning = Planning(horizon, planner, self._worker, timing, initial_plan, self._objects, self._recorder)
        if not (hasattr(plant, "state") and hasattr(plant, "step")):
            raise TypeError(f"the plant is a {type(plant).__name__}; expected an object with state and step")
        size, nx = np.shape(plant.state()), self._planning.manifold.nx
        if size != (nx,):
            raise ValueError(f"the state of the plant has shape {size}; expected (nx = {nx},), that of the problem")
        self._control = Control(self._planning, plant.state(), self._recorder)
        self._estimator = estimator or Sensor(self._planning.manifold)
        self._patience = max(self._estimator.patience, timing.tick) - SAME_TIME
        self._last_measurement: float | None = 0.0  # time of the last measurement; None once its absence is recorded

    @property
    def plan(self) -> Plan:
        """Current plan."""
        return self._planning.plan

    def run(self, duration: float) -> RunLog:
        """Run for ``duration`` seconds, rounded to whole ticks, and return the log.

        The run ends earlier if the plant diverges, ``until`` returns a reason, or the user presses Ctrl-C. Raises KeyboardInterrupt
        only before the end of the first tick; later it becomes an event. Raises ValueError for a duration that is not a number, and
        if not even one tick was run, because the duration rounds to zero ticks or the first state counts as diverged.
        """
        duration = seconds("duration", duration)
        try:
            for k in range(round(duration / self._tick)):
                t = k * self._tick
                tick = self._move(k, t, self._clock.wait_until(t))
                if tick is None:
                    break
                self._recorder.ticks.append(tick)
                self._on_tick(t)
                if self._watch is not None:
                    where = zip(self._objects, tick.objects, strict=True)
                    self._watch(Now(t, tick.x, self.plan, {item.name: at for item, at in where}))
                if reason := self._until(t + self._tick, np.array(self._plant.state(), dtype=float)):
                    self._recorder.event(t + self._tick, EventKind.STOPPED, reason)
                    break
        except KeyboardInterrupt:
            if not self._recorder.ticks:
                raise
            self._recorder.event(len(self._recorder.ticks) * self._tick, EventKind.INTERRUPTED, "stopped by the user")
        names = [item.name for item in self._objects]
        return self._recorder.log(self._tick, names, self._worker.spells(), self._planning.manifold)

    def setpoint(self, t: float, feet: Sequence[str] = ()) -> Setpoint:
        """Setpoint of the current plan at t [s], for a controller.

        feet: frames whose positions and velocities it includes, default none.
        """
        assert self.plan.problem is not None  # every plan of a loop has one
        return setpoint(self.plan.problem, self.plan, t, feet)

    def _move(self, k: int, t: float, lag: float) -> Tick | None:
        """One control tick: measure, compute the control, step the plant; returns its record, with values before the step.

        If the state at its beginning is beyond MAX_STATE or not finite, the plant has diverged: then records an event and returns
        None, without a step. k: number of the tick, from 0. lag: delay of the tick [s], for the log.
        """
        truth = np.array(self._plant.state(), dtype=float)
        if not (np.abs(truth) <= MAX_STATE).all():
            beyond = f"beyond {MAX_STATE:g}" if np.isfinite(truth).all() else "not finite"
            self._recorder.event(t, EventKind.PLANT_DIVERGED, f"the plant state is {beyond}")
            return None
        self._measure(t, truth)
        x, u = self._control.at(k, t)
        self._plant.step(u, self._tick)
        places = [np.array(item.truth(t), dtype=float) for item in self._objects]
        return Tick(t, truth, x, self._planning.reference(t), u, lag, places)

    def _measure(self, t: float, truth: Array) -> None:
        """Pass the measurement that arrives at t [s] to the observer, and update the objects.

        A gap longer than the estimator's patience and a tick, and a measurement that is not finite, become events, one for each
        gap; measurements that are not finite are not passed on. A time after t counts as t. truth: true state of the plant (nx,).
        Raises TypeError if the estimator returns anything else.
        """
        measured, event = self._estimator.measure(t, truth), self._recorder.event
        if not isinstance(measured, Measurement | None):
            raise TypeError(
                f"the estimator returned a {type(measured).__name__}; expected a trajopt.Measurement, or None"
            )
        if measured is None:
            if self._last_measurement is not None and t - self._last_measurement > self._patience:
                self._last_measurement = None
                event(t, EventKind.NO_MEASUREMENT, "no state measurements; using the model prediction")
        elif not np.isfinite(measured.value).all():
            event(t, EventKind.BAD_MEASUREMENT, "a measured state is not finite; using the model prediction")
        else:
            self._control.observer.correct(Measurement(min(measured.time, t), measured.value))
            self._last_measurement = t
        for item in self._objects:
            if not item.observe(t):
                event(t, EventKind.BAD_MEASUREMENT, f"a measurement of {item.name!r} is not finite")
