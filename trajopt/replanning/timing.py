"""Periods and deadlines of a replanning run, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAME_TIME = 1e-9
"""Tolerance for equal times [s], which absorbs rounding errors of step sums."""


def steps_of(duration: float, step: float) -> int:
    """Number of equal steps, none longer than ``step``, in a duration."""
    return max(1, math.ceil(duration / step - SAME_TIME))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Timing of a replanning run, in seconds.

    tick: control period. period: time between the starts of solves. lead: time from the start of a solve to the start of its plan.
    deadline: of a solve, from its start; default the lead, or the period if the lead is 0. drop_late: drop plans that miss the
    deadline; otherwise they are executed as soon as they are available. prepare_early: prepare the next solve before its
    measurement. Raises ValueError for values that are not positive.
    """

    tick: float = 0.001
    period: float = 0.01
    lead: float = 0.0
    deadline: float | None = None
    drop_late: bool = False
    prepare_early: bool = False

    def __post_init__(self) -> None:
        for key in ("tick", "period"):
            if not getattr(self, key) > 0.0:
                raise ValueError(f"{key} = {getattr(self, key)}; expected a positive number of seconds")
        if self.period < self.tick - SAME_TIME:
            raise ValueError(f"period = {self.period} is shorter than tick = {self.tick}: replan at most once a tick")
        if not self.lead >= 0.0:
            raise ValueError(f"lead = {self.lead}; expected a number of seconds of at least 0")
        if self.deadline is not None and not self.deadline > 0.0:
            raise ValueError(f"deadline = {self.deadline}; expected a positive number of seconds, or None")

    @property
    def limit(self) -> float:
        """Deadline of a solve, with its default [s]."""
        return self.deadline or self.lead or self.period
