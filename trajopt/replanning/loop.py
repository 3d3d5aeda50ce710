"""Replanning while a plant moves: the loop that owns time, and knows neither the solver nor the plant.

At each tick of the control the state is estimated (:mod:`~trajopt.replanning.senses`), the plan in force, which is replaced in turn
(:mod:`~trajopt.replanning.planning`), is followed with its feedback, and the plant moves on.  Everything out of the ordinary is an
event in the log; no NaN reaches the plant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.replanning.control import Control
from trajopt.replanning.measurements import Estimator, MovingObject, Sensor
from trajopt.replanning.plan import Horizon, Plan
from trajopt.replanning.planning import Planner, Planning
from trajopt.replanning.run_log import Account, EventKind, RunLog, Tick
from trajopt.replanning.senses import Senses
from trajopt.replanning.setpoints import Setpoint, setpoint
from trajopt.replanning.timing import Timing
from trajopt.replanning.workers import Clock, SimulatedClock, SimulatedWorker, Worker

BEYOND = 1e6
"""A number of a state above this, in SI units, is that of a simulation that has diverged."""


class Plant(Protocol):
    """Controlled plant."""

    def state(self) -> Array:
        """The true state (nx,), in the conventions of the problem."""
        ...

    def step(self, u: Array, dt: float) -> None:
        """Move on by dt [s] under the held control u (nu,)."""
        ...


class Now(NamedTuple):
    """What a run is like after a tick. t: [s]. x: the true state (nx,). objects: where they are, by name."""

    t: float
    x: Array
    plan: Plan
    objects: Mapping[str, Array]


class ReplanningLoop:
    """One run. first: the plan to begin with. estimator: of the state, default exact. objects: what moves in the world.

    worker, clock: who solves, and how time passes; default simulated time with the measured seconds of each solve charged.
    on_tick: called with the time [s] after each tick; its KeyboardInterrupt ends the run. until: called with the time
    [s] and the true state (nx,) after each tick; a sentence that it returns ends the run and becomes an event, "" continues.
    watch: called after each tick too, with what there is to see.
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
        until: Callable[[float, Array], str] | None = None,
        watch: Callable[[Now], None] | None = None,
    ) -> None:
        self._plant, self._tick, self._objects = plant, timing.tick, tuple(objects)
        self._worker, self._clock = worker or SimulatedWorker(timing.tick), clock or SimulatedClock()
        self._on_tick, self._until, self._watch = on_tick or (lambda t: None), until or (lambda t, x: ""), watch
        self._account = Account()
        self._planning = Planning(horizon, planner, self._worker, timing, first, self._objects, self._account)
        self._control = Control(self._planning, plant.state(), self._account)
        estimator = estimator or Sensor(self._planning.manifold)
        self._senses = Senses(estimator, self._control.observer, self._objects, timing.tick, self._account)

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._planning.plan

    def run(self, duration: float) -> RunLog:
        """Run for ``duration`` seconds, or until the plant's state is beyond all measure, or as ``until`` says, or Ctrl-C.

        Raises KeyboardInterrupt where that comes before the first tick has passed; later on an event tells of it.
        """
        try:
            for k in range(round(duration / self._tick)):
                t = k * self._tick
                tick = self._move(k, t, self._clock.wait_until(t))
                if tick is None:
                    break
                self._account.ticks.append(tick)
                self._on_tick(t)
                if self._watch is not None:
                    where = zip(self._objects, tick.objects, strict=True)
                    self._watch(Now(t, tick.x, self.plan, {item.name: at for item, at in where}))
                if reason := self._until(t + self._tick, np.array(self._plant.state(), dtype=float)):
                    self._account.event(t + self._tick, EventKind.STOPPED, reason)
                    break
        except KeyboardInterrupt:
            if not self._account.ticks:
                raise
            self._account.event(len(self._account.ticks) * self._tick, EventKind.INTERRUPTED, "stopped by the user")
        names = [item.name for item in self._objects]
        return self._account.log(self._tick, names, self._worker.spells(), self._planning.manifold)

    def setpoint(self, t: float, feet: Sequence[str] = ()) -> Setpoint:
        """Setpoint of the current plan at t [s], for a controller; feet: frames whose positions are returned."""
        assert self.plan.problem is not None  # every plan of a loop has one
        return setpoint(self.plan.problem, self.plan, t, feet)

    def _move(self, k: int, t: float, lag: float) -> Tick | None:
        """One period of the control; None where the plant has no state any more."""
        truth = np.array(self._plant.state(), dtype=float)
        if not (np.abs(truth) <= BEYOND).all():
            beyond = f"beyond {BEYOND:g}" if np.isfinite(truth).all() else "not finite"
            self._account.event(t, EventKind.PLANT_DIVERGED, f"the plant state is {beyond}")
            return None
        self._senses.measure(t, truth)
        x, u = self._control.at(k, t)
        self._plant.step(u, self._tick)
        return Tick(t, truth, x, self._planning.reference(t), u, lag, self._senses.truths(t))
