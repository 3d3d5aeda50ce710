"""Acceptance tests of a line search: an l1 merit function, or a filter.

The merit function is phi = cost + penalty |d|_1 with gaps d. It is exact for a penalty above the largest multiplier (J. Nocedal, S.
Wright, Numerical Optimization, 2006, Theorem 17.3). A nonmonotone search compares a trial with the largest merit of the last
iterates (L. Grippo, F. Lampariello, S. Lucidi, SIAM J. Numer. Anal. 23, 1986). At rounding level, steps with a negligible expected
decrease no longer reduce the KKT error (:class:`RoundingTest`).

The filter (:class:`Filter`) accepts a step that reduces the violation or the cost and that no earlier iterate dominates.
theta = |d|_1 measures the defects, phi is the cost plus barrier.  If theta is small against the expected decrease of phi, phi has
to satisfy the Armijo condition.  Otherwise either measure has to fall, and the filter stores the previous iterate (R. Fletcher,
S. Leyffer, Math. Program. 91, 2002; constants of A. Waechter, L. Biegler, Math. Program. 106, 2006, section 2.3).  Steps that
close defects may therefore raise the cost by any amount; a merit function with a fixed penalty would reject them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log
from typing import NamedTuple, Protocol

PENALTY_MARGIN = 0.1
"""rho of Nocedal & Wright, eq. 18.36."""
MAX_CORRECTIONS = 4
"""Maximum number of second-order corrections of a full step; each brings it closer to the closed-loop rollout of the policy."""
ROUNDING = 1e-12
"""Expected decreases below this fraction of the merit are rounding errors."""
NEAR_ROUNDING = 1e-8
"""If a step with a relative expected decrease below this is rejected, gradients decide (in SQP: the residual)."""
LOWER_AT, LOWER_RATIO = 0.5, 0.6
"""mu falls after a step above LOWER_AT that realized LOWER_RATIO of its expected decrease; it rises if no step is accepted."""
MAX_IDLE, PROGRESS = 20, 0.99
"""The solve ends after MAX_IDLE iterations by gradients in which the residual did not fall below PROGRESS times its best."""
DRIFTING, ADRIFT, CLOSING = 0.125, 20, 0.5
"""The search fails after more than ADRIFT steps in a row up to DRIFTING in which linear gaps did not fall to the fraction
CLOSING."""
POLISHED = 4
"""Number of step lengths 1, 1/2, ... tried near rounding level."""
DOUBLINGS = 3
"""Number of step lengths 2, 4, ... tried if a full step gained too much."""
TOO_MUCH = 1.5
"""A full step gained too much if its actual decrease is this multiple of the expected one: the model overestimates curvature."""


class Trial(NamedTuple):
    """Trial trajectory: its cost, and the l1 norm of its gaps, infinite if a state is not finite."""

    cost: float
    theta: float


class Found(NamedTuple):
    """Accepted or best rejected trial of a line search: row, step length, expected and actual decrease of the merit."""

    accepted: bool
    row: int
    alpha: float
    expected: float
    actual: float
    trial: Trial

    @property
    def good(self) -> bool:
        """True if the trial is accepted with at least LOWER_RATIO of its expected decrease, so that none shorter is needed."""
        return self.accepted and self.actual >= LOWER_RATIO * self.expected

    @property
    def allows_lower_mu(self) -> bool:
        """True if the regularization may fall: step length above LOWER_AT, and at least LOWER_RATIO of the expected decrease."""
        return self.alpha > LOWER_AT and self.actual >= LOWER_RATIO * self.expected


def adapted(penalty: float, D1: float, D2: float, theta: float) -> float:
    """Return the penalty, raised if needed for a step with cost derivatives D1, D2 that closes gaps of l1 norm ``theta`` to be a
    descent direction of the merit.

    The penalty only rises (Nocedal & Wright, eq. 18.36 and the remark after it), and stays without gaps. A penalty above the
    multipliers would also work in theory. With contacts, multipliers are a thousand times larger, and the merit would reject all
    but the shortest steps. It is 1 if neither cost nor penalty would count, as at a cost of zero.
    """
    closed = (1.0 - PENALTY_MARGIN) * theta
    if closed == 0.0:
        return penalty
    rise = D1 + 0.5 * max(D2, 0.0)
    if rise == 0.0 and penalty == 0.0:
        return 1.0
    needed = rise / closed
    return needed if needed > penalty else penalty


def expected_decrease(penalty: float, alpha: float, D1: float, D2: float, theta: float) -> float:
    """Return the predicted decrease of the merit for alpha times a step that closes the gaps: -(alpha D1 + alpha^2/2 D2) + alpha
    penalty theta.
    """
    return -(alpha * D1 + 0.5 * alpha * alpha * D2) + alpha * penalty * theta


class HasMerit(Protocol):
    """A trajectory: its cost, and the l1 norm of its gaps."""

    @property
    def cost(self) -> float: ...
    @property
    def theta(self) -> float: ...


def reference(last: Iterable[HasMerit], penalty: float) -> float:
    """Return the reference merit of a nonmonotone search: the largest merit, cost + penalty theta, of the last iterates."""
    return max([at.cost + penalty * at.theta for at in last])


LOST = 1e10
"""Growth of the l1 norm of the gaps, from at least 1, at which a trial is lost: the time steps there amplify errors so much that no
digit of a sweep remains. The penalty alone does not exclude it, as it is zero until gaps open."""


def decrease(start: float, penalty: float, trial: Trial, theta: float) -> float:
    """Return the decrease of the merit of a trial, with this penalty, from the reference merit ``start``.

    It is -inf if it is not finite, or if the trial is lost. theta: l1 norm of the gaps of the iterate.
    """
    actual = start - (trial.cost + penalty * trial.theta)
    return actual if isfinite(actual) and trial.theta < LOST * max(1.0, theta) else -inf


def relative_decrease(decrease: float, merit: float) -> float:
    """Return the magnitude of a decrease relative to the magnitude of the merit; infinite for a merit of zero."""
    return abs(decrease) / abs(merit) if merit != 0.0 else inf


class Drift(NamedTuple):
    """Count of consecutive short steps with open gaps; theta: l1 norm of the gaps at the start of the count."""

    steps: int = 0
    theta: float = 0.0

    def after(self, alpha: float, theta: float) -> Drift:
        """Return the count after a step of length alpha (0: rejected) from an iterate whose open gaps have this l1 norm.

        A step longer than DRIFTING resets the count to zero. Gaps below CLOSING times those at its start restart it at 1.
        """
        if alpha > DRIFTING:
            return STEADY
        if self.steps == 0 or theta < CLOSING * self.theta:
            return Drift(1, theta)
        return self._replace(steps=self.steps + 1)

    @property
    def over(self) -> bool:
        """True after more than ADRIFT short steps in a row: the search has failed."""
        return self.steps > ADRIFT


STEADY = Drift()
"""Initial count: no short steps."""


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
        """Count an iteration; True after more than STALLED consecutive ones at rounding level without a smaller KKT error.

        An iteration resets the count if its KKT error is below BETTER times the smallest so far, or if its expected decrease
        exceeds LITTLE times the size of the cost. kkt: KKT error after the step. expected: expected decrease of the step. size:
        absolute value of the cost.
        """
        better = kkt < BETTER * self.smallest or abs(expected) > LITTLE * size
        self.smallest = min(self.smallest, kkt)
        self.idle = 0 if better else self.idle + 1
        return self.idle > STALLED


MARGIN = 1e-5
"""Smallest relative decrease of theta, and of phi relative to theta."""
ARMIJO = 1e-4
SWITCH_PHI, SWITCH_THETA = 2.3, 1.1
SMALL, LARGE = 1e-4, 1e4
"""Limits on theta relative to its start value (at least 1): phi alone may decide only below SMALL; steps above LARGE are
rejected."""
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
    """Filter: pairs (theta, phi) of violation and barrier objective of earlier iterates.

    scale: max(1, theta at the start). largest: limit on theta / scale. pairs: the stored pairs, oldest first.
    """

    scale: float
    largest: float = LARGE
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def accepts(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if the step from ``at`` to ``new``, pairs (theta, phi), improves on ``at``, and no stored pair dominates ``new``.

        expected: slope of phi times step length.
        """
        return not self.matched(new) and self.improves(at, new, expected)

    def improves(self, at: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        """True if ``new`` improves on ``at``, regardless of the stored pairs.

        Where phi decides, it must satisfy the Armijo condition, up to rounding errors; else theta must fall by the fraction
        MARGIN, or phi by MARGIN theta. expected: slope of phi times step length.
        """
        (theta, phi), (gaps, value) = at, new
        if self.decides_by_cost(at, expected):
            return value <= phi + ARMIJO * min(expected, 0.0) + NOISE * abs(phi)
        return gaps <= (1.0 - MARGIN) * theta or value <= phi - MARGIN * theta

    def matched(self, new: tuple[float, float]) -> bool:
        """True if the filter rejects ``new``, a pair (theta, phi): a stored pair dominates it, or theta exceeds its limit.

        A stored pair dominates ``new`` unless theta is lower by the fraction MARGIN, or phi by MARGIN times the stored theta. The
        limit is ``largest`` times ``scale``.
        """
        gaps, value = new
        if gaps > self.largest * self.scale:
            return True
        return any(not (gaps <= (1.0 - MARGIN) * t or value <= p - MARGIN * t) for t, p in self.pairs)

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """Switching condition: True if the Armijo condition on phi decides, not the decrease of either measure.

        It holds if theta counts as zero, or if theta is small and the expected decrease of phi is large against it:
        (-expected)^SWITCH_PHI > theta^SWITCH_THETA, with expected the slope of phi times step length.
        """
        theta, promise = at[0], -expected
        if theta <= CLOSED * self.scale:
            return True
        return theta <= SMALL * self.scale and promise > 0.0 and SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def add(self, at: tuple[float, float]) -> None:
        """Store a pair (theta, phi); drop the pairs that it dominates, and the oldest ones beyond MAX_PAIRS."""
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
        """Switching condition: True if the Armijo condition on phi decides, not the decrease of either measure.

        It holds if theta is small, and phi is expected to fall so that (-expected)^SWITCH_PHI > theta^SWITCH_THETA, with expected
        the slope of phi times step length (eq. 19 has the step length outside the power).
        """
        theta, promise = at[0], -expected
        if not (theta <= SMALL * self.scale and promise > 0.0):
            return False
        return theta == 0.0 or SWITCH_PHI * log(promise) > SWITCH_THETA * log(theta)

    def least_length(self, theta: float, slope: float) -> float:
        """Return alpha_min of eq. 23, the minimum trial step length, from theta and the slope of phi along the step.

        theta: violation of the constraints; phi: barrier function. The length is SAFETY times MARGIN if phi does not descend along
        the step, and never below SHORTEST.
        """
        if not slope < 0.0:
            return SAFETY * MARGIN
        bound = min(MARGIN, MARGIN * (theta / -slope))
        if theta <= SMALL * self.scale:
            power = SWITCH_THETA * log(theta) - SWITCH_PHI * log(-slope) if theta > 0.0 else -inf
            bound = min(bound, exp(min(power, 0.0)))
        return max(SAFETY * bound, SHORTEST)
