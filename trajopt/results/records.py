"""What a solver tells about each iteration."""

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
"""The numeric columns of an :class:`IterationRecord`, in the order of the table."""
PHASES = ("derivatives", "backward", "rollout")
"""The parts of an iteration that are timed, the same in every solver:

derivatives: expansions of dynamics, cost and constraints, first and second order, also those at trial points of a search.
backward: linear algebra: Riccati sweeps, KKT systems, QPs, optimality measures; for ``dms`` all that IPOPT does itself.
rollout: values at trial points, by simulation or knot by knot.
"""
OTHER = "other"
"""The rest of a solve: setting up, multiplier updates between inner solves, feedback gains, callbacks, Python between phases."""


@dataclass(frozen=True)
class IterationRecord:
    """One iteration: the iterate it started from, and the step it took.

    cost, merit (cost + penalty * l1 norm of the defects), gradient (infinity norm of the projected reduced gradient),
    defect (largest entry of any gap), constraint_violation (of the bounds on the controls): of the iterate at the
    start. stop: max(gradient / its tolerance, defect / its tolerance); at most 1 means converged. regularization: mu
    used. step_norm: largest entry of the change (dx, du). expected_decrease, actual_decrease: of the merit.
    step_length: alpha, 0 for a rejected step. hessian: the second derivatives in the quadratic model of the step: the value of
    that option, "newton" or "true" where DDP added the curvature of the dynamics with these costates, or "mixed".
    times: seconds by phase. kkt: the scaled measure of optimality (:mod:`trajopt.solvers.shooting.optimality`, of programs
    :mod:`trajopt.solvers.nlp.scaled_kkt`), NaN where the solver has none. iterate: for callbacks, a function without arguments that
    returns copies of the states (N + 1, nx) and controls (N, nu) of the iterate, and raises RuntimeError once the callback has
    returned; None in the history of a solution.
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
"""Called after each iteration; may raise KeyboardInterrupt to stop the solver."""


class Journal:
    """The history of a solve in the making: it times phases, keeps the records and passes them on."""

    def __init__(self, callback: Callback | None = None) -> None:
        self.records: list[IterationRecord] = []
        self._callback = callback
        self._clock: dict[str, float] = {}
        self._phase: str | None = None
        self._since = 0.0

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent within to a phase of the record in the making; a phase inside of another one suspends it."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, phase: str | None) -> str | None:
        """Charge the time since the last switch to the phase that ends; returns that phase."""
        now, ended = time.perf_counter(), self._phase
        if ended is not None:
            self._clock[ended] = self._clock.get(ended, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return ended

    def history(self) -> tuple[IterationRecord, ...]:
        """The records; phases that were timed after the last one count as part of it."""
        if self.records:
            times = self.records[-1].times
            for phase, seconds in self._clock.items():
                times[phase] = times.get(phase, 0.0) + seconds
            self._clock = {}
        return tuple(self.records)

    def spent(self, *seconds: float) -> None:
        """Add seconds to the phases in their order, of what was timed elsewhere."""
        if not self._clock:
            self._clock = dict(zip(PHASES, seconds, strict=True))
            return
        for phase, more in zip(PHASES, seconds, strict=True):
            self._clock[phase] = self._clock.get(phase, 0.0) + more

    def refused(self) -> None:
        """The one record of a solve whose start is not finite."""
        unknown = dict.fromkeys(("cost", "merit", "stop", "gradient", "defect"), float("nan"))
        self.add(None, iteration=0, **unknown)

    def add(self, trajectory: Trajectory | None = None, **numbers: Any) -> None:
        """Close a record: the fields of an :class:`IterationRecord` without its times.

        trajectory: finds states and controls of the iterate, while the callback runs.
        """
        record = _record(numbers, self._clock)
        self._clock = {}
        self.records.append(record)
        if self._callback is None:
            return
        if trajectory is None:
            self._callback(record)
            return
        lent = [trajectory]
        try:
            self._callback(_with_iterate(record, partial(_copied, lent)))
        finally:
            lent.clear()


def _record(numbers: dict[str, Any], times: dict[str, float]) -> IterationRecord:
    """What the constructor makes, in a fifth of the time: a small problem's iteration takes no longer than the constructor."""
    record = object.__new__(IterationRecord)
    record.__dict__.update(_DEFAULTS, **numbers, times=times)
    assert len(record.__dict__) == _FIELDS, sorted(record.__dict__)
    return record


def _with_iterate(record: IterationRecord, iterate: Callable[[], tuple[Array, Array]]) -> IterationRecord:
    """The record with its iterate, in a fifth of the time of dataclasses.replace."""
    found = object.__new__(IterationRecord)
    found.__dict__.update(record.__dict__, iterate=iterate)
    return found


_FIELDS = len(fields(IterationRecord))
_DEFAULTS = {own.name: own.default for own in fields(IterationRecord) if own.default is not MISSING}


def _copied(lent: list[Trajectory]) -> tuple[Array, Array]:
    """Copies of the states and controls, while they are lent: the solver writes the next iterate into the same memory."""
    if not lent:
        raise RuntimeError(
            "this iterate is gone: call record.iterate() while the callback runs, and keep what it returns"
        )
    xs, us = lent[0]()
    return np.array(xs), np.array(us)
