"""Periodic replanning while the current plan is executed, and control of a plant by successive plans.

At each replanning period, if the planner is idle, a solve starts with

    initial state   predicted under the current and pending plans to the start of the new plan, ``lead`` seconds later (or the
                    duration of the last solve, if that was longer)
    problem         of the horizon at that start, with the predicted positions of objects at each knot
    guess           the plan that is valid at that start, shifted in time; with ``prepare_early``, that of the last solve

The new plan is executed from its start on, or as soon as it is available. With a lead longer than a period, several plans are
pending; a new plan replaces those that do not begin earlier. After a failed solve, the last plan stays current; late plans may be
dropped. The replanning loop and :class:`~trajopt.replanning.mpc.MPC` share the control (:class:`Control`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.impact_stage import has_fixed_steps
from trajopt.problem.ocp import OCP
from trajopt.replanning.measurements import MovingObject, Observer, Track
from trajopt.replanning.plan import MIN_STEP, Following, Horizon, Plan, fault_of, require_same_names, warm_start
from trajopt.replanning.run_log import EventKind, RunRecorder, Solve
from trajopt.replanning.simulator import Model
from trajopt.replanning.workers import SAME_TIME, Answer, Timing, Worker
from trajopt.results.solution import Solution


class Planner(Protocol):
    """Solver interface of a replanning loop; ``prepare`` and ``respond`` alternate, one pair for each solve."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Do all work that does not need the current state.

        ocp: problem, whose x0 is the first state of the guess. warm: the last plan, shifted to the start of the problem.
        """

    def respond(self, x0: Array) -> Solution:
        """Return the solution of the prepared problem from the state x0 (nx,)."""


def require_planner(planner: Any) -> None:
    """Raise TypeError for an object without the methods of a :class:`Planner`, such as a name, and for a class."""
    if isinstance(planner, type) or not (hasattr(planner, "prepare") and hasattr(planner, "respond")):
        what = f"the class {planner.__name__}" if isinstance(planner, type) else f"a {type(planner).__name__}"
        raise TypeError(
            f"the planner is {what}; expected an object with prepare and respond, such as trajopt.RealTimeSLQ()"
        )


def _require_horizon_and_plan(horizon: Any, plan: Any) -> None:
    """Raise TypeError for a horizon that is no function, such as a problem, and for a plan of another type, such as a solution."""
    if isinstance(horizon, type) or not callable(horizon):
        found = type(horizon).__name__
        raise TypeError(f"horizon is a {found}; expected a function of time, such as trajopt.RecedingHorizon(ocp)")
    if not isinstance(plan, Plan):
        found = type(plan).__name__
        raise TypeError(f"initial_plan is a {found}; expected a plan, as of trajopt.Plan.from_solution(solution, 0.0)")


class _Job(NamedTuple):
    """Running solve. tick: its start. valid: start of its plan [s]. problem: the problem that it solves."""

    tick: int
    valid: float
    problem: OCP


class Planning:
    """Current and pending plans, and the solves that replace them.

    initial_plan: executed until the first new plan starts. objects: moving objects of the world. recorder: receives events and
    solves. Raises TypeError for a horizon, planner or initial plan of another type, and ValueError for a horizon without a problem
    at the start of the initial plan, for objects whose name, parameter or size does not fit that problem, for a tick that is not
    the time step of discrete dynamics, and for an initial plan of a robot, states or controls with other names, as far as known.
    """

    def __init__(
        self,
        horizon: Horizon,
        planner: Planner,
        worker: Worker,
        timing: Timing,
        initial_plan: Plan,
        objects: Sequence[MovingObject],
        recorder: RunRecorder,
    ) -> None:
        require_planner(planner)
        _require_horizon_and_plan(horizon, initial_plan)
        problem = horizon(initial_plan.start)
        if problem is None:
            raise ValueError(
                "the horizon has no problem at the start of the first plan; start the plan within the horizon"
            )
        require_whole_steps(problem, timing)
        require_same_names(initial_plan, problem)
        for item in objects:
            # raises if the object does not fit
            problem.updated(item.name, **{item.parameter: item.track.at(problem.times)})
        self._min_step = MIN_STEP * min(timing.tick, float(problem.dt.max()))
        self._horizon, self._planner, self._worker, self._timing = horizon, planner, worker, timing
        self._objects, self._recorder = objects, recorder
        self.model, self.manifold = Model(problem, initial_plan.start), problem.manifold
        self._plans = [replace(initial_plan, problem=initial_plan.problem or problem)]
        """Current plan and pending plans, sorted by start."""
        self._due: float | None = 0.0  # start of the next solve, None after the end of the horizon
        self._lead = timing.lead
        self._job: _Job | None = None
        self._prepared: tuple[float, OCP] | None = None
        """Start [s] of the problem that the last job prepared, and the problem."""

    @property
    def plan(self) -> Plan:
        """Plan that was valid at the last tick: of the plans that start by then, the last one, or else the first plan."""
        return self._plans[0]

    def reference(self, t: float) -> Array:
        """Reference state (nx,) at t [s] of the plan that is valid then, as far as it is known now."""
        return self._plan_at(t).reference(t, self.manifold)

    def control(self, t: float, x: Array) -> Array:
        """Control (nu,) at t [s] in the state x (nx,) by the plan that is valid then, clipped to the bounds of its problem."""
        plan = self._plan_at(t)
        u, bounds = plan.control(t, x, self.manifold), plan.bounds(t)
        return u if bounds is None else np.clip(u, *bounds)

    def tick(self, k: int, t: float, x: Array) -> None:
        """Add the plan of a finished solve, and start the next solve if it is due, from the state x (nx,) at tick k.

        A horizon that follows the state receives it first. If the planner is still running, the due solve is skipped, which becomes
        an event; solves that were due during a pause between ticks are left out. A plan that is available immediately is added too.
        Plans before the one valid at t [s] are dropped.
        """
        if isinstance(self._horizon, Following):
            self._horizon.observe(t, x)
        self._collect(k, t)
        if self._due is not None and t >= self._due - 0.5 * self._timing.tick:
            self._due += self._timing.period
            if t - self._due > 0.5 * self._timing.period:  # after a pause; less is jitter of the clock
                self._due = t + self._timing.period
            if self._worker.idle(k):
                self._start_solve(k, t, x)
                self._collect(k, t)
            else:
                self._recorder.event(t, EventKind.SKIPPED, "the planner is still running")
        self._plans = self._plans[self._plans.index(self._plan_at(t)) :]

    def _plan_at(self, t: float) -> Plan:
        """Plan that is valid at t [s]: of the known plans that start by then, the last one; else the current plan."""
        return next((plan for plan in reversed(self._plans) if plan.start <= t + SAME_TIME), self.plan)

    def _add_plan(self, new: Plan) -> None:
        """Add a plan; drops plans that do not begin earlier, because they are based on older states."""
        self._plans = [*(plan for plan in self._plans if plan.start < new.start - SAME_TIME), new]

    def _start_solve(self, k: int, t: float, x: Array) -> None:
        """Start a solve at tick k and t [s] from the state x (nx,), for a plan that begins ``lead`` seconds later.

        If a problem with a start from t up to that time was prepared after the last solve, the plan begins at its start; else the
        problem is prepared first. The initial state is predicted under the known plans; its SO(2) angles are shifted by whole
        turns to those of the last plan. After the end of the horizon, planning stops, which becomes an event; also once the time
        steps of a horizon that shrinks them are much shorter than a tick, because their gains would be too large for it.
        """
        prepared = self._prepared
        ready = prepared is not None and t - SAME_TIME <= prepared[0] < t + self._lead + SAME_TIME
        valid, problem = prepared if ready and prepared else (t + self._lead, self._horizon(t + self._lead))
        if problem is None or problem.dt.max() < self._min_step - SAME_TIME:
            self._due = None
            self._recorder.event(t, EventKind.HORIZON_ENDED, "no time left to plan; tracking the last plan")
            return
        self.model.problem, self.model.began = problem, valid
        x0, last = self._predict(x, t, valid), self._plan_at(valid)
        x0 = self.manifold.without_jumps(last.reference(valid, self.manifold), x0[None])[
            0
        ]  # undo wrapping of measured angles
        known = [item.prediction() for item in self._objects]
        self._prepared, self._job = None, _Job(k, valid, problem)

        def respond() -> Solution:
            """Return the planner's solution from x0; prepares the problem first unless it is ready."""
            if not ready:
                self._prepare(problem, valid, last, known)
            return self._planner.respond(x0)

        def prepare(solution: Solution | None) -> None:
            """Prepare the problem one period later, warm-started by the solution if it can be executed, else by the last plan.

            Does nothing unless ``timing.prepare_early``, and after the end of the horizon.
            """
            after = valid + self._timing.period
            following = self._horizon(after) if self._timing.prepare_early else None
            if following is not None:
                usable = solution is not None and fault_of(solution) is None
                self._prepare(
                    following, after, Plan.from_solution(solution, valid) if usable and solution else last, known
                )
                self._prepared = after, following

        self._worker.start(respond, prepare, k)

    def _predict(self, x: Array, t: float, until: float) -> Array:
        """State (nx,) predicted from x at t to ``until`` [s] by the model, under the plans' controls, tick by tick.

        Returns the reference state if the prediction is not finite.
        """
        while until - t > SAME_TIME:
            h = min(self._timing.tick, until - t)
            x = self.model.step(x, self.control(t, x), t, h)
            t += h
        return x if np.isfinite(x).all() else self.reference(until)

    def _prepare(self, problem: OCP, start: float, last: Plan, known: Sequence[Track]) -> None:
        """Prepare the planner for a problem at ``start`` [s], warm-started by the plan ``last``, with its first state as x0.

        known: predictions of the objects, from which the problem gets their positions at each knot.
        """
        for item, prediction in zip(self._objects, known, strict=True):
            problem = problem.updated(item.name, **{item.parameter: prediction.at(start + problem.times)})
        warm = warm_start(last, problem, start)
        self._planner.prepare(replace(problem, x0=warm.guess.xs[0]), warm)

    def _collect(self, k: int, t: float) -> None:
        """Add the plan of a finished solve, if any, unless it failed or is late and dropped.

        Records the solve, a failure, and lateness. Sets the lead of the next solve to the duration of this one, in whole ticks, but
        at least to ``timing.lead``.
        """
        answer = self._worker.poll(k)
        if answer is None or self._job is None:
            return
        job, self._job = self._job, None
        fault, timing = _answer_fault(answer), self._timing
        solution = answer.value if fault is None else None
        if fault is not None:
            self._recorder.event(t, EventKind.FAILED_SOLVE, f"{fault.rstrip('.')}; tracking the last plan")
        took = (answer.tick - job.tick) * timing.tick
        self._lead = max(timing.lead, took)
        late = took > timing.limit + SAME_TIME
        if late:
            self._recorder.event(t, EventKind.LATE_PLAN, f"a plan took {took:.4g} s")
        if solution is not None and not (late and timing.drop_late):
            self._add_plan(Plan.from_solution(solution, job.valid, job.problem))
        numbers = (0, False, np.nan) if solution is None else (solution.iterations, True, solution.cost)
        self._recorder.solves.append(Solve(job.tick * timing.tick, job.valid, t, answer.seconds, *numbers))


def _answer_fault(answer: Answer) -> str | None:
    """Reason why the answer of a planner must not be executed, its error or that of :func:`fault_of`; None if there is none."""
    if answer.error is not None:
        return f"{type(answer.error).__name__}: {answer.error}"
    return fault_of(answer.value)


def require_whole_steps(ocp: OCP, timing: Timing, delay: float = 0.0) -> None:
    """Raise ValueError unless predictions of discrete dynamics take whole time steps: one in each tick, lead and delay multiples.

    delay: of the measurements [s].
    """
    for phase in filter(has_fixed_steps, ocp.phases):
        wrong = np.abs(phase.dt - timing.tick) > SAME_TIME
        if wrong.any():
            step = f"one time step of the problem, {phase.dt[np.argmax(wrong)]:.6g} s"
            raise ValueError(
                f"tick = {timing.tick:.6g} s, but discrete dynamics advance by {step}, in each tick: choose equal ones"
            )
        for key, value in (("delay", delay), ("lead", timing.lead)):
            rest = value - round(value / timing.tick) * timing.tick
            if abs(rest) > SAME_TIME:
                raise ValueError(
                    f"{key} = {value:.6g} s; expected a multiple of the time step of the discrete dynamics, {timing.tick:.6g} s"
                )


class Control:
    """Controls of the current plan from the observed state; a control that is not finite is replaced by the last one, or zero.

    x0: (nx,) the state at t = 0. recorder: receives events.
    """

    def __init__(self, planning: Planning, x0: Array, recorder: RunRecorder) -> None:
        self.planning, self._recorder = planning, recorder
        self.observer = Observer(x0, planning.model.step)
        self._u = np.zeros(planning.model.problem.nu)

    def at(self, k: int, t: float) -> tuple[Array, Array]:
        """Observed state (nx,) and control (nu,) at tick k and time t [s]; also runs the planning of the tick.

        The control is applied until the next tick.
        """
        x = self.observer.state(t, self.planning.reference(t))
        self.planning.tick(k, t, x)
        u = self.planning.control(t, x)
        if np.isfinite(u).all():
            self._u = u
        else:
            message = "a control of the plan is not finite; holding the last control"
            self._recorder.event(t, EventKind.BAD_CONTROL, message)
        self.observer.applied(t, self._u)
        return x, self._u
