"""Acceptance tests of SQP steps: l1 merit function, filter, or no test.

Merit: phi = f + nu theta, with theta the l1 norm of the violation. A step d with the linearized violation theta_d is accepted if

    phi(w + alpha d) <= phi(w) + eta alpha D,     D = grad f'd - nu (theta - theta_d)

(Nocedal & Wright, algorithm 18.3).  Filter: a point must sufficiently improve f or theta over the current point and over all
pairs of the filter. If the expected decrease of f exceeds theta^S_THETA, f must satisfy Armijo's rule (A. Wächter, L. Biegler,
SIAM J. Optim. 16, 2005, algorithm A; constants of Math. Program. 106, 2006, section 3).  Algorithm A requires Armijo's rule only
below a theta_min.  Here it applies for any theta, as in R. Fletcher, S. Leyffer, P. Toint, On the global convergence of a
filter-SQP algorithm, SIAM J. Optim. 13, 2002, eq. 2.12: otherwise full steps with a Hessian that omits negative curvature can
alternate between two points, one with the lower f and one with the lower theta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QP, QPSolution, violation
from trajopt.solvers.rules.line_search import PENALTY_MARGIN
from trajopt.solvers.sqp.sqp_iterate import Iterate, Trial

ROUNDING = 1e-14
"""Relative changes of a value below this are rounding errors."""
GAMMA_THETA, GAMMA_F, DELTA, S_THETA, S_F, ETA_F = 1e-5, 1e-8, 1.0, 1.1, 2.3, 1e-4
LARGEST_VIOLATION, GROWTH = 100.0, 1.25
"""Limit on theta of accepted points: the larger of LARGEST_VIOLATION and GROWTH times theta at the start (R. Fletcher, S. Leyffer,
User manual for filterSQP, Dundee 1998: ubd, tt).  With the 1e4 of Wächter & Biegler 2006 a swing-up diverged to defects of a
hundred revolutions a second."""


class Step(NamedTuple):
    """Step d (n,) with the multipliers of its QP, slope grad f'd, quadratic d'Hd, and linearized violation ``left`` (theta_d).

    weight: weight of the violation in an elastic QP, 0 for a plain QP, infinite for a step that ignores the objective.
    """

    d: Array
    y: Array
    z: Array
    slope: float
    quadratic: float
    left: float
    weight: float = 0.0


def step_of(at: Iterate, qp: QP, found: QPSolution, weight: float) -> Step:
    """Convert a QP solution to a step of the line search, with its slope, d'Hd and linearized l1 violation of the rows.

    weight: of the violation in an elastic QP, 0 for a plain QP, infinite for a step that ignores the objective.
    """
    d = found.w
    left = float(violation(qp.A @ d, qp.l, qp.u).sum())
    return Step(d, found.y, found.z, float(at.grad @ d), float(d @ (qp.H @ d)), left, weight)


class Acceptance(ABC):
    """Acceptance test of a line search. slope: directional derivative of the merit (for the filter: of f) along the step."""

    slope: float

    @abstractmethod
    def begin(self, at: Iterate, step: Step) -> None:
        """Start the search along a new step from an iterate: update penalty, limits and slope."""

    @property
    def corrects(self) -> bool:
        """True if a second-order correction should be tried when the full step is rejected; True by default."""
        return True

    @abstractmethod
    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if the trial at alpha d is acceptable; if so, the test updates its state."""

    def expected(self, alpha: float) -> float:
        """Return the decrease of the value that the slope predicts for the step length alpha, -alpha slope."""
        return -alpha * self.slope

    @abstractmethod
    def value(self, f: float, theta: float) -> float:
        """Return the value that the search decreases, from objective f and l1 violation theta: merit, f or theta."""


class MeritTest(Acceptance):
    """Armijo's rule on the merit f + nu theta, theta the l1 violation, with the penalty nu of each step."""

    def __init__(self, options: SQPOptions) -> None:
        self.smallest = self.penalty = options.penalty
        self.ratio = options.accept_ratio

    def begin(self, at: Iterate, step: Step) -> None:
        """Set the penalty nu of a step, and the start value and slope of the merit.

        nu is at least options.penalty, exceeds the multipliers and the elastic weight by PENALTY_MARGIN, and makes d a descent
        direction (Nocedal & Wright, eq. 18.36). It is at least half the last penalty.
        """
        gap = at.theta - step.left
        wanted = max(self.smallest, (1.0 + PENALTY_MARGIN) * max(step.weight, float(np.abs(step.y).max(initial=0.0))))
        if gap > ROUNDING * at.theta:
            wanted = max(wanted, (step.slope + 0.5 * step.quadratic) / ((1.0 - PENALTY_MARGIN) * gap))
        self.penalty = max(wanted, 0.5 * self.penalty)
        self.start = self.value(at.f, at.theta)
        self.slope = step.slope - self.penalty * max(gap, 0.0)

    def value(self, f: float, theta: float) -> float:
        """Return the merit phi = f + nu theta."""
        return f + self.penalty * theta

    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if Armijo's rule holds, up to rounding errors."""
        noise = ROUNDING * (1.0 + abs(self.start))
        return self.value(new.f, new.theta) <= self.start + self.ratio * alpha * self.slope + noise


class FilterTest(Acceptance):
    """Filter: stores pairs (theta, f) of l1 violation and objective, and rejects points that a pair dominates."""

    def __init__(self, options: SQPOptions) -> None:
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

    @property
    def corrects(self) -> bool:
        """True if f must satisfy Armijo's rule for the full step.

        Otherwise a shorter step is as good, and corrections of long steps are unreliable.
        """
        return self._decides_by_cost(1.0)

    def add_current(self) -> None:
        """Add the pair (theta, f) of the current iterate to the filter, each lowered by its margin."""
        theta, f = self.at.theta, self.at.f
        self.entries.append(((1.0 - GAMMA_THETA) * theta, f - GAMMA_F * theta))


class ViolationTest(Acceptance):
    """Armijo's rule on the l1 violation theta alone, for steps that ignore the objective."""

    @property
    def corrects(self) -> bool:
        """False: second-order corrections do not help such steps."""
        return False

    def begin(self, at: Iterate, step: Step) -> None:
        """Set the start value theta, and its slope to the linearized change of theta."""
        self.start, self.slope = at.theta, step.left - at.theta

    def value(self, f: float, theta: float) -> float:
        """Return theta; f is ignored."""
        return theta

    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if Armijo's rule on theta holds, and the step was to reduce theta."""
        return new.theta <= self.start + ETA_F * alpha * self.slope and self.slope < 0.0


class AnyStep(MeritTest):
    """Accepts every finite step; the merit is that of :class:`MeritTest`, for the record."""

    def accepts(self, alpha: float, new: Trial) -> bool:
        """Return True; the line search rejects trials that are not finite before."""
        return True


def acceptance(options: SQPOptions) -> Acceptance:
    """Return the acceptance test for ``options.globalization``: "merit", "filter", or "none" for any finite step."""
    kinds: dict[str, type[MeritTest] | type[FilterTest]] = {"merit": MeritTest, "filter": FilterTest, "none": AnyStep}
    return kinds[options.globalization](options)
