"""Termination at the level of rounding: steps that promise next to nothing and no longer reduce the KKT error."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

STALLED = 10
"""Iterations at the level of rounding without a smaller KKT error before giving up."""
BETTER, LITTLE = 0.9, 1e-10
"""A KKT error is smaller if below BETTER times the least before; a step is at the level of rounding if the decrease that it
promises is at most LITTLE times the size of the cost."""


@dataclass
class RoundingTest:
    """Counts consecutive iterations at the level of rounding. least: the smallest KKT error so far. idle: the count."""

    least: float = inf
    idle: int = 0

    def exhausted(self, kkt: float, promised: float, size: float) -> bool:
        """True after more than STALLED such iterations. kkt: of the iterate that a step reached. promised: its expected decrease.
        size: of the cost.
        """
        better = kkt < BETTER * self.least or abs(promised) > LITTLE * size
        self.least = min(self.least, kkt)
        self.idle = 0 if better else self.idle + 1
        return self.idle > STALLED
