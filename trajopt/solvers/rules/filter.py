"""Filter of a line search: accepts a step that reduces the violation or the cost and that no earlier iterate dominates.

theta = |d|_1 measures the defects, phi is the cost plus barrier.  If theta is small against the expected decrease of phi, phi has
to satisfy the Armijo condition.  Otherwise either measure has to fall, and the filter stores the previous iterate (R. Fletcher,
S. Leyffer, Math. Program. 91, 2002; constants of A. Waechter, L. Biegler, Math. Program. 106, 2006, section 2.3).  Steps that
close defects may therefore raise the cost by any amount; a merit function with a fixed penalty would reject them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log

MARGIN = 1e-5
"""Smallest relative decrease of theta, and of phi relative to theta."""
ARMIJO = 1e-4
SWITCH_PHI, SWITCH_THETA = 2.3, 1.1
SMALL, LARGE = 1e-4, 1e4
"""Limits on theta relative to its start value (at least 1): phi alone decides below SMALL; steps above LARGE are rejected."""
CLOSED = 1e-10
"""Below this value, relative to its start value, theta counts as zero."""
NOISE = 1e-12
"""Relative changes of phi below this are rounding errors."""
SAFETY, SHORTEST = 0.05, 1e-14
"""gamma_alpha, the safety factor of the minimum step length, and the absolute minimum of the step length."""


MAX_PAIRS = 1 << 16
"""Maximum number of pairs; the oldest pair is dropped first."""


@dataclass
class Filter:
    """Pairs (theta, phi) of earlier iterates, none of which dominates another.

    scale: max(1, theta at the start). largest: limit on theta / scale. pairs: the stored pairs, oldest first.
    """

    scale: float
    largest: float = LARGE
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def accepts(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if the step from ``at`` to ``new``, pairs (theta, phi), is acceptable; expected: slope of phi times step length."""
        return not self.matched(new) and self.improves(at, new, expected)

    def improves(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if ``new`` improves on ``at``, regardless of the stored pairs."""
        (theta, phi), (gaps, value) = at, new
        if self.decides_by_cost(at, expected):
            return value <= phi + ARMIJO * min(expected, 0.0) + NOISE * abs(phi)
        return gaps <= (1.0 - MARGIN) * theta or value <= phi - MARGIN * theta

    def matched(self, new: tuple[float, float]) -> bool:
        """True if a stored pair dominates the pair ``new`` (theta, phi), or if its theta is too large."""
        gaps, value = new
        if gaps > self.largest * self.scale:
            return True
        return any(not (gaps <= (1.0 - MARGIN) * t or value <= p - MARGIN * t) for t, p in self.pairs)

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """Switching condition: True if the Armijo condition on phi decides."""
        theta, promise = at[0], -expected
        if theta <= CLOSED * self.scale:
            return True
        return theta <= SMALL * self.scale and promise > 0.0 and SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def add(self, at: tuple[float, float]) -> None:
        """Store a pair (theta, phi) and drop the pairs that it dominates."""
        theta, phi = at
        self.pairs = [(t, p) for t, p in self.pairs if t < theta or p - MARGIN * t < phi - MARGIN * theta][
            -MAX_PAIRS + 1 :
        ]
        self.pairs.append(at)


class BarrierFilter(Filter):
    """Filter of the interior-point method: theta is never treated as zero.

    Barrier problems with tiny mu depend on violations below the tolerance.
    """

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """Switching condition, eq. 19."""
        theta, promise = at[0], -expected
        if not (theta <= SMALL * self.scale and promise > 0.0):
            return False
        return theta == 0.0 or SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def least_length(self, theta: float, slope: float) -> float:
        """Return alpha_min of eq. 23, the minimum trial step length, from theta and the slope of phi along the step."""
        if not slope < 0.0:
            return SAFETY * MARGIN
        bound = min(MARGIN, MARGIN * (theta / -slope))
        if theta <= SMALL * self.scale:
            power = SWITCH_THETA * log(theta) - SWITCH_PHI * log(-slope) if theta > 0.0 else -inf
            bound = min(bound, exp(min(power, 0.0)))
        return max(SAFETY * bound, SHORTEST)
