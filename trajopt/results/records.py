"""Records of iterations, and the journal that times their phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array

NUMBERS = (
    "iteration",
    "cost",
    "merit",
    "stop",
    "gradient",
    "regularization",
    "step_norm",
    "defect",
    "constraint_violation",
    "expected_decrease",
    "actual_decrease",
    "step_length",
    "kkt",
)
"""Numeric columns of an :class:`IterationRecord`, in the order of the table."""
PHASES = ("derivatives", "backward", "rollout")
"""Timed phases of an iteration, equal for all solvers:

derivatives: first- and second-order expansions of dynamics, cost and constraints, also at trial points of a search.
backward: linear algebra: Riccati sweeps, KKT systems, QPs, optimality measures; for ``dms`` all time within IPOPT itself.
rollout: values at trial points, by simulation or knot by knot.
"""
OTHER = "other"
"""Remaining time of a solve: setup, multiplier updates between inner solves, feedback gains, callbacks, Python between phases."""


@dataclass(frozen=True)
class IterationRecord:
    """One iteration: the iterate at its start, and its step. The last record may be that of the solution, without a step.

    cost, merit (cost + penalty * l1 norm of the defects), gradient (infinity norm of the projected reduced gradient),
    defect (largest entry of any gap), constraint_violation (largest violation of bounds and constraints): of the iterate at the
    start. stop: max(gradient / its tolerance, defect / its tolerance); at most 1 means converged. regularization: mu
    used. step_norm: largest entry of the change (dx, du), 0 for a rejected step. expected_decrease, actual_decrease: of the merit.
    step_length: alpha, 0 for a rejected step. hessian: second derivatives in the quadratic model of the step: the value of
    that option, "newton" or "true" if DDP added the curvature of the dynamics with these costates, or "mixed".
    times: seconds by phase. kkt: scaled KKT error (:mod:`trajopt.solvers.rules.cost_size`, for nonlinear programs
    :mod:`trajopt.solvers.nlp.scaled_kkt`), NaN if the solver has none. iterate: for callbacks, a function without arguments that
    returns copies of the states (N + 1, nx) and controls (N, nu) of the iterate; it raises RuntimeError after the callback has
    returned. None in the history of a solution.
    """

    iteration: int
    cost: float
    merit: float
    stop: float
    gradient: float
    regularization: float = 0.0
    step_norm: float = 0.0
    defect: float = 0.0
    constraint_violation: float = 0.0
    expected_decrease: float = 0.0
    actual_decrease: float = 0.0
    step_length: float = 0.0
    hessian: str = "gauss_newton"
    times: dict[str, float] = field(default_factory=dict)
    kkt: float = float("nan")
    iterate: Callable[[], tuple[Array, Array]] | None = field(default=None, repr=False, compare=False)


Trajectory = Callable[[], tuple[Array, Array]]
Callback = Callable[[IterationRecord], None]
"""Function called after each iteration; it may raise KeyboardInterrupt to stop the solver."""


class Journal:
    """History of a running solve: times the phases, stores the records and calls the callback."""

    def __init__(self, callback: Callback | None = None) -> None:
        self.records: list[IterationRecord] = []
        self._callback = callback
        self._clock: dict[str, float] = {}
        self._phase: str | None = None
        self._since = 0.0

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Context that adds its duration to a phase of the current record; a nested phase suspends the outer one."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, phase: str | None) -> str | None:
        """End the timed phase, add its time since the last switch, and begin ``phase`` (None: no phase); returns the ended one."""
        now, ended = time.perf_counter(), self._phase
        if ended is not None:
            self._clock[ended] = self._clock.get(ended, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return ended

    def history(self) -> tuple[IterationRecord, ...]:
        """Return the records; time measured after the last record is added to it, once."""
        if self.records:
            times = self.records[-1].times
            for phase, seconds in self._clock.items():
                times[phase] = times.get(phase, 0.0) + seconds
            self._clock = {}
        return tuple(self.records)

    def spent(self, *seconds: float) -> None:
        """Add seconds measured elsewhere to the current record, one number for each of :data:`PHASES` in that order."""
        if not self._clock:
            self._clock = dict(zip(PHASES, seconds, strict=True))
            return
        for phase, more in zip(PHASES, seconds, strict=True):
            self._clock[phase] = self._clock.get(phase, 0.0) + more

    def add_failed_start(self) -> None:
        """Add the only record of a solve whose start is not finite, with NaN as cost, merit, stop, gradient and defect."""
        unknown = dict.fromkeys(("cost", "merit", "stop", "gradient", "defect"), float("nan"))
        self.add(None, iteration=0, **unknown)

    def add(self, trajectory: Trajectory | None = None, **numbers: Any) -> None:
        """Add a record and call the callback, if any. numbers: fields of an :class:`IterationRecord` without times and iterate.

        trajectory: returns states and controls of the iterate, for the ``iterate`` of the record that the callback gets, which may
        call it only while it runs; None: that record has no iterate.
        """
        record = _record(numbers, self._clock)
        self._clock = {}
        self.records.append(record)
        if self._callback is None:
            return
        if trajectory is None:
            self._callback(record)
            return
        available = [trajectory]
        try:
            self._callback(_with_iterate(record, partial(_copied, available)))
        finally:
            available.clear()


def _record(numbers: dict[str, Any], times: dict[str, float]) -> IterationRecord:
    """Record from ``numbers``, with defaults for missing fields, and ``times``; five times as fast as the constructor."""
    record = object.__new__(IterationRecord)
    record.__dict__.update(_DEFAULTS, **numbers, times=times)
    assert len(record.__dict__) == _FIELDS, sorted(record.__dict__)
    return record


def _with_iterate(record: IterationRecord, iterate: Callable[[], tuple[Array, Array]]) -> IterationRecord:
    """Copy of a record with its iterate, in a fifth of the time of dataclasses.replace."""
    result = object.__new__(IterationRecord)
    result.__dict__.update(record.__dict__, iterate=iterate)
    return result


_FIELDS = len(fields(IterationRecord))
_DEFAULTS = {own.name: own.default for own in fields(IterationRecord) if own.default is not MISSING}


def _copied(available: list[Trajectory]) -> tuple[Array, Array]:
    """Copies of states and controls, while the callback runs: the solver overwrites their memory with the next iterate.

    available: the function that returns them; empty after the callback. Then raises RuntimeError.
    """
    if not available:
        raise RuntimeError(
            "the iterate is no longer available: call record.iterate() while the callback runs, and store its result"
        )
    xs, us = available[0]()
    return np.array(xs), np.array(us)
