"""Plans that are made in turn while one of them is followed.

At each replanning period a solve is started, if the planner is free,

    from    the state predicted to the time at which its plan shall hold, ``lead`` seconds later (after a solve that took longer:
            as long as that one), under the plan in force
    of      the horizon's problem at that time, with objects where they are predicted to be at each knot
    with    the last plan, shifted, as its guess

and its plan is followed from that time on, or from when it is known.  Where the lead is longer than a period, several plans wait
for their time; a new one replaces those that would begin no earlier.  A solve that fails or is late changes nothing: the last plan
is tracked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.replanning.measurements import MovingObject, Prediction
from trajopt.replanning.plan import Following, Horizon, Plan, fault_of, warm_start, with_values
from trajopt.replanning.run_log import Account, EventKind, Solve
from trajopt.replanning.simulator import Model
from trajopt.replanning.timing import SAME_TIME, Timing
from trajopt.replanning.workers import Answer, Worker
from trajopt.results.solution import Solution


class Planner(Protocol):
    """Solver interface of a replanning loop; both steps belong to one solve and are called alternately."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Make ready for the problem, whose x0 is a prediction."""
        ...

    def respond(self, x0: Array) -> Solution:
        """The solution from the state x0 (nx,)."""
        ...


class _Job(NamedTuple):
    """What the planner is at. tick: when it was started. valid: from when its plan shall hold [s]. problem: of which it is one."""

    tick: int
    valid: float
    problem: OCP


class Planning:
    """The plan in force, and what makes the next one.

    first: the plan to begin with. objects: what moves in the world. account: where events and solves are noted.
    Raises ValueError for a horizon that has no problem where the first plan starts.
    """

    def __init__(
        self,
        horizon: Horizon,
        planner: Planner,
        worker: Worker,
        timing: Timing,
        first: Plan,
        objects: Sequence[MovingObject],
        account: Account,
    ) -> None:
        problem = horizon(first.start)
        if problem is None:
            raise ValueError("the horizon has no problem at the start of the first plan; start it there")
        self._horizon, self._planner, self._worker, self._timing = horizon, planner, worker, timing
        self._objects, self._account = objects, account
        self.model, self.manifold = Model(problem), problem.manifold
        self._plans = [replace(first, problem=first.problem or problem)]
        """The plan in force, and those that wait for their time, by their starts."""
        self._due: float | None = 0.0  # when the next solve starts, None where the horizon has ended
        self._lead = timing.lead
        self._job: _Job | None = None
        self._prepared_for: float | None = None

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plans[0]

    def reference(self, t: float) -> Array:
        """The state (nx,) where the plan that holds at t [s] is then."""
        return self._plan_at(t).reference(t, self.manifold)

    def control(self, t: float, x: Array) -> Array:
        """The control (nu,) of the plan that holds at t [s], within the bounds of the problem that it solves."""
        plan = self._plan_at(t)
        u, bounds = plan.control(t, x, self.manifold), plan.bounds(t)
        return u if bounds is None else np.clip(u, *bounds)

    def tick(self, k: int, t: float, x: Array) -> None:
        """Take what the planner has found, and set it to work where it is time, from the state x (nx,) at tick k."""
        if isinstance(self._horizon, Following):
            self._horizon.observe(t, x)
        self._take(k, t)
        if self._due is not None and t >= self._due - SAME_TIME:
            self._due += self._timing.period
            if self._worker.idle(k):
                self._start(k, t, x)
                self._take(k, t)
            else:
                self._account.event(t, EventKind.SKIPPED, "the planner is still running")
        self._plans = self._plans[self._plans.index(self._plan_at(t)) :]

    def _plan_at(self, t: float) -> Plan:
        """The plan that holds at t [s], as far as plans are known."""
        return next((plan for plan in reversed(self._plans) if plan.start <= t + SAME_TIME), self.plan)

    def _follow(self, new: Plan) -> None:
        """From its start on; plans that begin no earlier were made from older states."""
        self._plans = [*(plan for plan in self._plans if plan.start < new.start - SAME_TIME), new]

    def _start(self, k: int, t: float, x: Array) -> None:
        ready = self._prepared_for is not None and t - SAME_TIME <= self._prepared_for < t + self._lead + SAME_TIME
        valid = self._prepared_for if ready and self._prepared_for is not None else t + self._lead
        problem = self._horizon(valid)
        if problem is None:
            self._due = None
            self._account.event(t, EventKind.HORIZON_ENDED, "no time left to plan; tracking the last plan")
            return
        self.model.problem = problem
        x0, last = self._ahead(x, t, valid), self._plan_at(valid)
        x0 = self.manifold.without_jumps(last.reference(valid, self.manifold), x0[None])[
            0
        ]  # measured angles may be wrapped
        known = [item.prediction() for item in self._objects]
        self._prepared_for, self._job = None, _Job(k, valid, problem)

        def respond() -> Solution:
            if not ready:
                self._prepare(problem, valid, last, known)
            return self._planner.respond(x0)

        def prepare(solution: Solution | None) -> None:
            after = valid + self._timing.period
            following = self._horizon(after) if self._timing.prepare_ahead else None
            if following is not None:
                found = solution is not None and fault_of(solution) is None
                self._prepare(following, after, Plan.of(solution, valid) if found and solution else last, known)
                self._prepared_for = after

        self._worker.start(respond, prepare, k)

    def _ahead(self, x: Array, t: float, until: float) -> Array:
        """The state at ``until`` under the plans that hold until then."""
        while until - t > SAME_TIME:
            h = min(self._timing.tick, until - t)
            x = self.model.step(x, self.control(t, x), t, h)
            t += h
        return x if np.isfinite(x).all() else self.reference(until)

    def _prepare(self, problem: OCP, start: float, last: Plan, known: Sequence[Prediction]) -> None:
        for item, prediction in zip(self._objects, known, strict=True):
            problem = with_values(problem, item.name, {item.parameter: prediction.at(start + problem.times)})
        warm = warm_start(last, problem, start)
        self._planner.prepare(replace(problem, x0=warm.guess.xs[0]), warm)

    def _take(self, k: int, t: float) -> None:
        """The planner's answer, if it is known."""
        answer = self._worker.poll(k)
        if answer is None or self._job is None:
            return
        job, self._job = self._job, None
        fault, timing = _fault(answer), self._timing
        solution = answer.value if fault is None else None
        if fault is not None:
            self._account.event(t, EventKind.FAILED_SOLVE, f"{fault}; tracking the last plan")
        took = (answer.tick - job.tick) * timing.tick
        self._lead = max(timing.lead, took)
        late = took > timing.limit + SAME_TIME
        if late:
            self._account.event(t, EventKind.LATE_PLAN, f"a plan took {took:.4g} s")
        if solution is not None and not (late and timing.drop_late):
            self._follow(Plan.of(solution, job.valid, job.problem))
        numbers = (0, False, np.nan) if solution is None else (solution.iterations, True, solution.cost)
        self._account.solves.append(Solve(job.tick * timing.tick, job.valid, t, answer.seconds, *numbers))


def _fault(answer: Answer) -> str | None:
    if answer.error is not None:
        return f"{type(answer.error).__name__}: {answer.error}"
    return fault_of(answer.value)
