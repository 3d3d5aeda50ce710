"""The l1 merit of a line search: phi = cost + penalty |d|_1, with d the gaps, and what it accepts.

The merit is exact for a penalty above the largest multiplier (J. Nocedal, S. Wright, Numerical Optimization, 2006, Theorem 17.3).
A nonmonotone search compares a trial with the largest merit of the last iterates (L. Grippo, F. Lampariello, S. Lucidi, SIAM J.
Numer. Anal. 23, 1986).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import NamedTuple, Protocol

PENALTY_MARGIN = 0.1
"""rho of Nocedal & Wright, eq. 18.36."""
MAX_CORRECTIONS = 4
"""Second-order corrections of a full step; each is one more step toward the closed-loop roll-out of the policy."""
ROUNDING = 1e-12
"""Expected decreases below this share of the merit are noise."""
NEAR_ROUNDING = 1e-8
"""Below this share, gradients have the last word where the merit refuses a step, or residuals where rows are violated."""
LOWER_AT, LOWER_RATIO = 0.5, 0.6
"""mu falls after a step longer than this that realized this share of its promise; it rises where no step is accepted."""
MAX_IDLE, PROGRESS = 20, 0.99
"""Iterations decided by gradients in which the residual does not fall below this share before giving up."""
DRIFTING, ADRIFT, CLOSING = 0.125, 20, 0.5
"""Linear gaps are given up after a row of ADRIFT steps no longer than DRIFTING in which they did not fall to the share CLOSING."""
POLISHED = 4
"""Step lengths 1, 1/2, ... tried near rounding level."""
DOUBLINGS = 3
"""Step lengths 2, 4, ... tried where a full step gained too much."""
TOO_MUCH = 1.5
"""A full step whose gain is that many times what the model promised met at most half of the curvature of the model."""


class Trial(NamedTuple):
    """A trajectory that was tried: its cost, and the l1 norm of its gaps, infinite where it is not finite."""

    cost: float
    gap: float


class Found(NamedTuple):
    """An accepted (or the best refused) trial of a line search: its row, its step length, what was expected, what came."""

    accepted: bool
    row: int
    alpha: float
    expected: float
    actual: float
    trial: Trial

    @property
    def good(self) -> bool:
        """True if no shorter step needs a trial."""
        return self.accepted and self.actual >= LOWER_RATIO * self.expected

    @property
    def long_and_good(self) -> bool:
        """True if mu decreases."""
        return self.alpha > LOWER_AT and self.actual >= LOWER_RATIO * self.expected


def adapted(penalty: float, D1: float, D2: float, gap: float) -> float:
    """The penalty for a step (D1, D2 of the cost) that closes gaps of l1 norm ``gap``: where it is one of descent.

    It only rises (Nocedal & Wright, eq. 18.36 and the remark after it). A penalty above the multipliers would do as
    well in theory; with contacts these are a thousand times larger, and it would forbid all but the shortest steps.
    """
    closed = (1.0 - PENALTY_MARGIN) * gap
    if closed == 0.0:
        return penalty
    needed = (D1 + 0.5 * max(D2, 0.0)) / closed
    return needed if needed > penalty else penalty


def expected_decrease(penalty: float, alpha: float, D1: float, D2: float, gap: float) -> float:
    """The decrease of the merit that the model expects along alpha times the step."""
    return -(alpha * D1 + 0.5 * alpha * alpha * D2) + alpha * penalty * gap


class HasMerit(Protocol):
    """A trajectory: its cost, and the l1 norm of its gaps."""

    @property
    def cost(self) -> float: ...
    @property
    def gap(self) -> float: ...


def reference(last: Iterable[HasMerit], penalty: float) -> float:
    """The largest merit of the last iterates, which a trial is compared with."""
    return max([at.cost + penalty * at.gap for at in last])


def decrease(start: float, penalty: float, trial: Trial) -> float:
    """By how much a trial is below the reference merit ``start``, -inf where something is not finite."""
    actual = start - (trial.cost + penalty * trial.gap)
    return actual if isfinite(actual) else -inf


def share(decrease: float, merit: float) -> float:
    """A decrease as a share of the merit."""
    return abs(decrease) / abs(merit) if merit != 0.0 else inf


class Drift(NamedTuple):
    """steps: short ones in a row with open gaps; gap: l1 norm of these where the row began, or where they had fallen last."""

    steps: int = 0
    gap: float = 0.0

    def after(self, alpha: float, gap: float) -> Drift:
        """What follows a step of a length, 0 for one that was refused, from an iterate with open gaps."""
        if alpha > DRIFTING:
            return STEADY
        if self.steps == 0 or gap < CLOSING * self.gap:
            return Drift(1, gap)
        return self._replace(steps=self.steps + 1)

    @property
    def over(self) -> bool:
        """True if the search has failed."""
        return self.steps > ADRIFT


STEADY = Drift()
"""No short steps."""
