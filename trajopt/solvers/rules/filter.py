"""The filter of a line search: a step is accepted that reduces the gaps or the cost, as no earlier iterate did both.

theta = |d|_1 measures the gaps, phi the cost with its barrier.  Where the gaps are small against the promised decrease of phi,
phi has to fall by a share of it; elsewhere either measure does, and the iterate left behind is remembered (R. Fletcher, S.
Leyffer, Math. Program. 91, 2002; constants of A. Waechter, L. Biegler, Math. Program. 106, 2006, section 2.3).  So steps
that close gaps may raise the cost as much as they must, which no fixed penalty on the gaps allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log

MARGIN = 1e-5
"""Smallest relative decrease of theta, and of phi relative to theta."""
ARMIJO = 1e-4
SWITCH_PHI, SWITCH_THETA = 2.3, 1.1
SMALL, LARGE = 1e-4, 1e4
"""Gaps below and above which, relative to those at the start (at least 1), phi decides alone and steps are refused."""
CLOSED = 1e-10
"""Gaps below this, relative to those at the start, count as none."""
NOISE = 1e-12
"""Changes of phi below this share are rounding."""
SAFETY, SHORTEST = 0.05, 1e-14
"""gamma_alpha: of the least step length, and the least there is."""


MOST_PAIRS = 1 << 16
"""Pairs that are kept at most; the oldest is forgotten where there are more."""


@dataclass
class Filter:
    """scale: max(1, theta at the start). largest: in place of LARGE. pairs: (theta, phi) of the iterates that were left, but
    those that another one dominates.
    """

    scale: float
    largest: float = LARGE
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def accepts(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if a step from ``at`` to ``new``, pairs (theta, phi), is one; expected: slope of phi times its length."""
        return not self.matched(new) and self.improves(at, new, expected)

    def improves(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if ``new`` is better than ``at``, regardless of the filter."""
        (theta, phi), (gaps, value) = at, new
        if self.decides_by_cost(at, expected):
            return value <= phi + ARMIJO * min(expected, 0.0) + NOISE * abs(phi)
        return gaps <= (1.0 - MARGIN) * theta or value <= phi - MARGIN * theta

    def matched(self, new: tuple[float, float]) -> bool:
        """True if an iterate that was left is as good as a pair (theta, phi) in both, or theta is too large for any phi."""
        gaps, value = new
        if gaps > self.largest * self.scale:
            return True
        return any(not (gaps <= (1.0 - MARGIN) * t or value <= p - MARGIN * t) for t, p in self.pairs)

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """The switching condition."""
        theta, promise = at[0], -expected
        if theta <= CLOSED * self.scale:
            return True
        return theta <= SMALL * self.scale and promise > 0.0 and SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def add(self, at: tuple[float, float]) -> None:
        """Remember an iterate that was left by a step for its gaps."""
        theta, phi = at
        self.pairs = [(t, p) for t, p in self.pairs if t < theta or p - MARGIN * t < phi - MARGIN * theta][
            -MOST_PAIRS + 1 :
        ]
        self.pairs.append(at)


class BarrierFilter(Filter):
    """A filter that no violation is too small for: barrier problems with tiny mu tell differences below that of the violation's
    tolerance.
    """

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """The switching condition, eq. 19."""
        theta, promise = at[0], -expected
        if not (theta <= SMALL * self.scale and promise > 0.0):
            return False
        return theta == 0.0 or SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def least_length(self, theta: float, slope: float) -> float:
        """alpha_min of eq. 23: a step from a violation theta, along which phi has this slope, is not tried any shorter."""
        if not slope < 0.0:
            return SAFETY * MARGIN
        bound = min(MARGIN, MARGIN * (theta / -slope))
        if theta <= SMALL * self.scale:
            power = SWITCH_THETA * log(theta) - SWITCH_PHI * log(-slope) if theta > 0.0 else -inf
            bound = min(bound, exp(min(power, 0.0)))
        return max(SAFETY * bound, SHORTEST)
