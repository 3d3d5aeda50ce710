"""Termination test at rounding level: steps with a negligible expected decrease no longer reduce the KKT error."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

STALLED = 10
"""Maximum number of consecutive iterations at rounding level without a smaller KKT error."""
BETTER, LITTLE = 0.9, 1e-10
"""A KKT error is smaller if below BETTER times the smallest so far. A step is at rounding level if its expected decrease is at most
LITTLE times the size of the cost."""


@dataclass
class RoundingTest:
    """Counter of consecutive iterations at rounding level. smallest: smallest KKT error so far. idle: the count."""

    smallest: float = inf
    idle: int = 0

    def exhausted(self, kkt: float, expected: float, size: float) -> bool:
        """Count an iteration; True after more than STALLED consecutive ones at rounding level.

        kkt: KKT error after the step. expected: expected decrease of the step. size: absolute value of the cost.
        """
        better = kkt < BETTER * self.smallest or abs(expected) > LITTLE * size
        self.smallest = min(self.smallest, kkt)
        self.idle = 0 if better else self.idle + 1
        return self.idle > STALLED
