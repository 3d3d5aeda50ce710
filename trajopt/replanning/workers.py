"""Workers that run a planner, clocks, and the periods and deadlines of a run; time is counted in control ticks.

| worker | runs a job | answer available |
|---|---|---|
| SimulatedWorker | immediately | after the charged time, by default the measured one |
| ThreadWorker | in a separate thread | when the response is done |
| ImmediateWorker | immediately | immediately, unless the response took longer than a deadline |
| ScriptedWorker | immediately | at the tick of an earlier run: a replay |

A job has two parts: the response, and the preparation of the next one, during which the worker is busy.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trajopt.replanning.arguments import delay_seconds, positive_seconds

SAME_TIME = 1e-9
"""Tolerance for equal times [s], which absorbs rounding errors of step sums."""
RECENT = 100_000
"""Maximum number of latest solves, and of latest events, in the statistics of a loop that may run for days."""


def steps_of(duration: float, step: float) -> int:
    """Number of equal steps, none longer than ``step``, in a duration; at least one."""
    return max(1, math.ceil(duration / step - SAME_TIME))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Timing of a replanning run, in seconds.

    tick: control period. period: time between the starts of solves. lead: time from the start of a solve to the start of its plan.
    deadline: of a solve, from its start; default the lead, or the period if the lead is 0. drop_late: drop plans that miss the
    deadline; otherwise they are executed as soon as they are available. prepare_early: prepare the next solve before its
    measurement. Raises ValueError for a tick, period or deadline that is not positive, a negative lead, and a period shorter than
    the tick.
    """

    tick: float = 0.001
    period: float = 0.01
    lead: float = 0.0
    deadline: float | None = None
    drop_late: bool = False
    prepare_early: bool = False

    def __post_init__(self) -> None:
        for key in ("period", "tick"):
            positive_seconds(key, getattr(self, key))
        if self.period < self.tick - SAME_TIME:
            raise ValueError(f"period = {self.period} is shorter than tick = {self.tick}: replan at most once a tick")
        delay_seconds("lead", self.lead)
        if self.deadline is not None and self.deadline != np.inf:
            positive_seconds("deadline", self.deadline)

    @property
    def limit(self) -> float:
        """Time limit of a solve from its start [s]: the deadline, or else the lead, or the period if the lead is 0."""
        return self.deadline or self.lead or self.period


class Answer(NamedTuple):
    """Result of a response, or its error, the other one None. seconds: duration of the response. tick: when it was available."""

    value: Any
    error: Exception | None
    seconds: float
    tick: int


class Spell(NamedTuple):
    """Time span of a job in ticks: its start, its answer, and the end, when the worker is free; seconds of both parts."""

    start: int
    known: int
    free: int
    respond: float
    prepare: float


class Worker(Protocol):
    """Runs one job at a time."""

    def start(self, respond: Callable[[], Any], prepare: Callable[[Any], None], tick: int) -> None:
        """Start a job at a tick of the control loop: ``respond`` computes a plan, then ``prepare`` the start of the next solve.

        ``prepare`` is called with the response, or with None after an error. EXPECTED_ERRORS of ``respond`` become the answer,
        those of ``prepare`` are ignored.
        """

    def poll(self, tick: int) -> Answer | None:
        """Return the answer of a job at the first call after it is available; otherwise None."""

    def idle(self, tick: int) -> bool:
        """True if a job can be started: the last answer has been fetched, and its preparation is done."""

    def spells(self) -> list[Spell]:
        """Time spans of the jobs so far, or of the latest ones."""


EXPECTED_ERRORS = (ArithmeticError, ValueError, RuntimeError)
"""Errors that a solver may raise; other errors are bugs and stop the loop."""


def _timed(work: Callable[[], Any]) -> tuple[Any, Exception | None, float]:
    """Call a function; returns its result, its error, and the seconds.

    The result is None after an error of EXPECTED_ERRORS, and the error None without one. Other errors are passed on.
    """
    began, value, error = time.perf_counter(), None, None
    try:
        value = work()
    except EXPECTED_ERRORS as caught:
        error = caught
    return value, error, time.perf_counter() - began


class SimulatedWorker:
    """Worker that runs jobs immediately and charges time for them.

    tick: length of a tick [s]. charge: function from the measured to the charged seconds of response and preparation; default: the
    measured ones. The charged time is rounded up to whole ticks.
    """

    def __init__(self, tick: float, charge: Callable[[float, float], tuple[float, float]] | None = None) -> None:
        self._tick, self._charge = tick, charge or (lambda respond, prepare: (respond, prepare))
        self._spells: MutableSequence[Spell] = []
        self._answer: Answer | None = None

    def start(self, respond: Callable[[], Any], prepare: Callable[[Any], None], tick: int) -> None:
        """Run a job now; its answer becomes available after the charged time, counted from ``tick``."""
        value, error, first = _timed(respond)
        _, _, second = _timed(lambda: prepare(value))
        known, free = self._ticks(tick, first, second)
        self._answer = Answer(value, error, first, known)
        self._spells.append(Spell(tick, known, free, first, second))

    def _ticks(self, tick: int, respond: float, prepare: float) -> tuple[int, int]:
        """Ticks at which the answer is available and the worker is free, from measured seconds of both parts of a job."""
        first, second = self._charge(respond, prepare)
        known = tick + math.ceil(first / self._tick - SAME_TIME)
        return known, max(known, tick + math.ceil((first + second) / self._tick - SAME_TIME))

    def poll(self, tick: int) -> Answer | None:
        """Return the answer of a job at the first call after the charged time; otherwise None."""
        if self._answer is None or tick < self._answer.tick:
            return None
        answer, self._answer = self._answer, None
        return answer

    def idle(self, tick: int) -> bool:
        """True if the last answer has been fetched and the charged time of its preparation is over."""
        return self._answer is None and (not self._spells or tick >= self._spells[-1].free)

    def spells(self) -> list[Spell]:
        """Time spans of the jobs so far."""
        return list(self._spells)


class ImmediateWorker(SimulatedWorker):
    """Worker that runs jobs immediately, and charges time only for responses that exceed a deadline.

    The answer is available immediately or, if the response took longer than the deadline [s], after the time that it took.
    Preparations are free. deadline: None for none. recent: maximum number of latest jobs that :meth:`spells` returns.
    """

    def __init__(self, tick: float, deadline: float | None, recent: int) -> None:
        limit = np.inf if deadline is None else deadline
        super().__init__(tick, lambda respond, prepare: (respond if respond > limit else 0.0, 0.0))
        self._spells: deque[Spell] = deque(maxlen=recent)


class ScriptedWorker(SimulatedWorker):
    """Worker that repeats an earlier run with the recorded ticks of its jobs."""

    def __init__(self, script: Sequence[Spell]) -> None:
        super().__init__(1.0)
        self._script = {spell.start: spell for spell in script}

    def _ticks(self, tick: int, respond: float, prepare: float) -> tuple[int, int]:
        """Recorded ticks at which the answer was available and the worker was free."""
        return self._script[tick].known, self._script[tick].free

    def idle(self, tick: int) -> bool:
        """True at the ticks at which the earlier run started a job, if the last answer has been fetched."""
        return tick in self._script and self._answer is None


class ThreadWorker:
    """Worker that runs jobs in a separate thread, in parallel with the plant; usable in the process that created it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._response: Future | None = None
        self._job: Future | None = None
        self._started = 0
        self._spells: deque[Spell] = deque(maxlen=RECENT)

    def start(self, respond: Callable[[], Any], prepare: Callable[[Any], None], tick: int) -> None:
        """Start a job in the thread: ``respond`` and then ``prepare``. tick: number of the present control period."""
        response: Future = Future()

        def work() -> float:
            """Set the result of the future, then prepare the next solve; returns the seconds of the preparation."""
            answer = _timed(respond)
            response.set_result(answer)
            return _timed(lambda: prepare(answer[0]))[2]

        self._started, self._response = tick, response
        self._job = self._pool.submit(work)

    def poll(self, tick: int) -> Answer | None:
        """Return the answer of a job at the first call after its response is done; otherwise None.

        Raises unexpected errors of a job, and RuntimeError in a forked process, which has no thread of the worker.
        """
        if os.getpid() != self._process:
            raise RuntimeError("the ThreadWorker was created in another process; create it, and to.MPC, in this one")
        if self._job is not None and self._job.done():
            self._job.result()
        if self._response is None or not self._response.done():
            return None
        value, error, seconds = self._response.result()
        self._response = None
        self._spells.append(Spell(self._started, tick, tick, seconds, 0.0))
        return Answer(value, error, seconds, tick)

    def idle(self, tick: int) -> bool:
        """True if no job runs and the last answer has been fetched; then also completes the last job's time span.

        Raises unexpected errors of a job.
        """
        if self._job is None:
            return True
        if self._response is not None or not self._job.done():
            return False
        self._spells[-1] = self._spells[-1]._replace(free=tick, prepare=self._job.result())
        self._job = None
        return True

    def spells(self) -> list[Spell]:
        """Time spans of the latest jobs, at most RECENT."""
        return list(self._spells)

    def close(self) -> None:
        """Wait for the current job, then end the thread."""
        self._pool.shutdown(wait=True)


class Clock(Protocol):
    """Clock of the loop: real or simulated time."""

    def wait_until(self, t: float) -> float:
        """Wait until t [s]; returns the delay [s] if that time has already passed, else 0. The time of the first call is its t."""


class SimulatedClock:
    """Clock of simulated time, which never waits."""

    def wait_until(self, t: float) -> float:
        """Return 0 immediately."""
        return 0.0


class WallClock:
    """Clock of real time, which sleeps until the requested time."""

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._now, self._sleep = now, sleep
        self._start: float | None = None

    def wait_until(self, t: float) -> float:
        """Sleep until t [s], without delay at the first call; returns the delay [s] if that time has already passed, else 0."""
        if self._start is None:
            self._start = self._now() - t
        left = self._start + t - self._now()
        if left > 0.0:
            self._sleep(left)
        return max(0.0, -left)
