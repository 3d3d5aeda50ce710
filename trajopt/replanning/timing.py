"""When what happens in a replanning run; times are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAME_TIME = 1e-9
"""Times closer than this are one, and so are sums of steps that differ by rounding."""


def steps_of(duration: float, step: float) -> int:
    """Number of equal steps, none longer than ``step``, in a duration."""
    return max(1, math.ceil(duration / step - SAME_TIME))


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
        if self.period < self.tick - SAME_TIME:
            raise ValueError(f"period = {self.period} is shorter than tick = {self.tick}: replan at most once a tick")
        if not self.lead >= 0.0:
            raise ValueError(f"lead = {self.lead}; expected a number of seconds of at least 0")
        if self.deadline is not None and not self.deadline > 0.0:
            raise ValueError(f"deadline = {self.deadline}; expected a positive number of seconds, or None")

    @property
    def limit(self) -> float:
        """The deadline, with its default."""
        return self.deadline or self.lead or self.period
