"""Acceptance tests of SQP steps: a filter of the objective f and theta, the l1 norm of the violation, or theta alone.

Filter: a point must sufficiently improve f or theta over the current point and over all
pairs of the filter. If the expected decrease of f exceeds theta^S_THETA, f must satisfy Armijo's rule (A. Wächter, L. Biegler,
SIAM J. Optim. 16, 2005, algorithm A; constants of Math. Program. 106, 2006, section 3).  Algorithm A requires Armijo's rule only
below a theta_min.  Here it applies for any theta, as in R. Fletcher, S. Leyffer, P. Toint, On the global convergence of a
filter-SQP algorithm, SIAM J. Optim. 13, 2002, eq. 2.12: otherwise full steps with a Hessian that omits negative curvature can
alternate between two points, one with the lower f and one with the lower theta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from dynamics_backends.protocol import Array
from trajopt.lq.lapack import inner_product
from trajopt.solvers.qp.qp import QP, QPSolution, violation
from trajopt.solvers.sqp.sqp_iterate import Iterate, Trial

ROUNDING = 1e-14
"""Relative changes of a value below this are rounding errors."""
GAMMA_THETA, GAMMA_F, DELTA, S_THETA, S_F, ETA_F = 1e-5, 1e-8, 1.0, 1.1, 2.3, 1e-4
LARGEST_VIOLATION, GROWTH = 100.0, 1.25
"""Limit on theta of accepted points: the larger of LARGEST_VIOLATION and GROWTH times theta at the start (R. Fletcher, S. Leyffer,
User manual for filterSQP, Dundee 1998: ubd, tt).  With the 1e4 of Wächter & Biegler 2006 a swing-up diverged to defects of a
hundred revolutions a second."""


class Step(NamedTuple):
    """Step d (n,) with the multipliers of its QP, slope grad f'd, and linearized violation ``left`` (theta_d).

    weight: weight of the violation in an elastic QP, 0 for a plain QP, infinite for a step that ignores the objective.
    """

    d: Array
    y: Array
    z: Array
    slope: float
    left: float
    weight: float = 0.0


def step_of(at: Iterate, qp: QP, found: QPSolution, weight: float) -> Step:
    """Convert a QP solution to a step of the line search, with its slope and linearized l1 violation of the rows.

    weight: of the violation in an elastic QP, 0 for a plain QP, infinite for a step that ignores the objective.
    """
    d = found.w
    left = float(violation(qp.A @ d, qp.l, qp.u).sum())
    return Step(d, found.y, found.z, inner_product(at.grad, d), left, weight)


class Acceptance(ABC):
    """Acceptance test of a line search. slope: directional derivative along the step of the value that the search decreases."""

    slope: float

    @abstractmethod
    def begin(self, at: Iterate, step: Step) -> None:
        """Start the search along a new step from an iterate: update limits and slope."""

    @abstractmethod
    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if the trial at alpha d is acceptable; if so, the test updates its state."""

    def expected(self, alpha: float) -> float:
        """Return the decrease of the value that the slope predicts for the step length alpha, -alpha slope."""
        return -alpha * self.slope

    @abstractmethod
    def value(self, f: float, theta: float) -> float:
        """Return the value that the search decreases, from objective f and l1 violation theta: one of them."""


class FilterTest(Acceptance):
    """Filter: stores pairs (theta, f) of l1 violation and objective, and rejects points that a pair dominates."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, float]] = []
        self.largest: float | None = None

    def begin(self, at: Iterate, step: Step) -> None:
        """Store the iterate and the slope of f; at the first step, set the limit on theta."""
        if self.largest is None:
            self.largest = max(LARGEST_VIOLATION, GROWTH * at.theta)
        self.at, self.slope = at, step.slope

    def value(self, f: float, theta: float) -> float:
        """Return f; theta is ignored."""
        return f

    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if a trial is acceptable to the filter and improves on the iterate (steps 5.3 and 5.4 of algorithm A).

        Rejected: theta above its limit, or dominated by a pair. If f decides (switching condition), f must satisfy Armijo's rule.
        Otherwise theta or f must fall sufficiently, and the iterate is added to the filter (step 7).
        """
        assert self.largest is not None
        at, noise = self.at, ROUNDING * (1.0 + abs(self.at.f))
        if new.theta > self.largest or any(new.theta >= theta and new.f >= f + noise for theta, f in self.entries):
            return False
        if self._decides_by_cost(alpha):
            return new.f <= at.f + ETA_F * alpha * self.slope + noise
        closer = new.theta <= (1.0 - GAMMA_THETA) * at.theta
        if not (closer or new.f <= at.f - GAMMA_F * at.theta + noise):
            return False
        self.add_current()
        return True

    def _decides_by_cost(self, alpha: float) -> bool:
        """Switching condition: True if the expected decrease of f dominates the violation, so that Armijo's rule on f decides.

        alpha (-slope)^S_F > DELTA theta^S_THETA, with a negative slope of f.
        """
        return self.slope < 0.0 and alpha * (-self.slope) ** S_F > DELTA * self.at.theta**S_THETA

    def add_current(self) -> None:
        """Add the pair (theta, f) of the current iterate to the filter, each lowered by its margin."""
        theta, f = self.at.theta, self.at.f
        self.entries.append(((1.0 - GAMMA_THETA) * theta, f - GAMMA_F * theta))


class ViolationTest(Acceptance):
    """Armijo's rule on the l1 violation theta alone, for steps that ignore the objective."""

    def begin(self, at: Iterate, step: Step) -> None:
        """Set the start value theta, and its slope to the linearized change of theta."""
        self.start, self.slope = at.theta, step.left - at.theta

    def value(self, f: float, theta: float) -> float:
        """Return theta; f is ignored."""
        return theta

    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if Armijo's rule on theta holds, and the step was to reduce theta."""
        return new.theta <= self.start + ETA_F * alpha * self.slope and self.slope < 0.0
