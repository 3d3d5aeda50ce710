"""Acceptance of SQP steps: by an l1 merit function, by a filter, or of all steps.

Merit: phi = f + nu theta, theta the l1 norm of the violation, and for a step d that leaves a linearized violation theta_d

    phi(w + alpha d) <= phi(w) + eta alpha D,     D = grad f'd - nu (theta - theta_d)

(Nocedal & Wright, algorithm 18.3).  Filter: a point must improve f or theta, sufficiently, over the current one and over all
remembered; where the step promises more for f than theta^S_THETA, f must fall by Armijo's rule (A. Wächter, L. Biegler, SIAM J.
Optim. 16, 2005, algorithm A; the numbers are those of Math. Program. 106, 2006, section 3).  That asks for Armijo's rule below a
theta_min only; here it counts wherever it is promised, as in R. Fletcher, S. Leyffer, P. Toint, On the global convergence of a
filter-SQP algorithm, SIAM J. Optim. 13, 2002, eq. 2.12: full steps with a Hessian that leaves out negative curvature would go to
and fro between two points that take turns in f and theta.
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
"""Share of a value below which its changes are noise."""
GAMMA_THETA, GAMMA_F, DELTA, S_THETA, S_F, ETA_F = 1e-5, 1e-8, 1.0, 1.1, 2.3, 1e-4
LARGEST_VIOLATION, GROWTH = 100.0, 1.25
"""No point is accepted with theta above the larger of this, and so many times theta at the start (R. Fletcher, S. Leyffer, User
manual for filterSQP, Dundee 1998: ubd, tt).  With the 1e4 of Wächter & Biegler 2006 a swing-up lost itself where the gaps were a
hundred revolutions a second."""


class Step(NamedTuple):
    """d (n,) with the multipliers of its QP, slope grad f'd, quadratic d'Hd, the violation theta_d left.

    weight: of the violation in an elastic QP, 0 in a plain one, infinite where the objective was left out.
    """

    d: Array
    y: Array
    z: Array
    slope: float
    quadratic: float
    left: float
    weight: float = 0.0


def step_of(at: Iterate, qp: QP, found: QPSolution, weight: float) -> Step:
    """A solution of the QP with what the search needs to know of it."""
    d = found.w
    left = float(violation(qp.A @ d, qp.l, qp.u).sum())
    return Step(d, found.y, found.z, float(at.grad @ d), float(d @ (qp.H @ d)), left, weight)


class Acceptance(ABC):
    """The test of a line search. slope: of the merit (for the filter: of f) along the step."""

    slope: float

    @abstractmethod
    def begin(self, at: Iterate, step: Step) -> None:
        """Take a new step."""

    @property
    def corrects(self) -> bool:
        """True if a second-order correction of the step is worth a trial."""
        return True

    @abstractmethod
    def accepts(self, alpha: float, new: Trial) -> bool:
        """True if the trial at alpha d is acceptable; if so, the test updates its state."""

    def expected(self, alpha: float) -> float:
        """Decrease of the merit that the slope promises."""
        return -alpha * self.slope

    @abstractmethod
    def value(self, f: float, theta: float) -> float:
        """The merit; for the filter, f."""


class MeritTest(Acceptance):
    """Armijo's rule on the l1 merit, with the penalty of each step."""

    def __init__(self, options: SQPOptions) -> None:
        self.smallest = self.penalty = options.penalty
        self.ratio = options.accept_ratio

    def begin(self, at: Iterate, step: Step) -> None:
        """Raise nu above the multipliers and to where d is one of descent (Nocedal & Wright, eq. 18.36); lower it by halves."""
        gap = at.theta - step.left
        wanted = max(self.smallest, (1.0 + PENALTY_MARGIN) * max(step.weight, float(np.abs(step.y).max(initial=0.0))))
        if gap > ROUNDING * at.theta:
            wanted = max(wanted, (step.slope + 0.5 * step.quadratic) / ((1.0 - PENALTY_MARGIN) * gap))
        self.penalty = max(wanted, 0.5 * self.penalty)
        self.start = self.value(at.f, at.theta)
        self.slope = step.slope - self.penalty * max(gap, 0.0)

    def value(self, f: float, theta: float) -> float:
        """phi."""
        return f + self.penalty * theta

    def accepts(self, alpha: float, new: Trial) -> bool:
        """Armijo's rule, up to rounding."""
        noise = ROUNDING * (1.0 + abs(self.start))
        return self.value(new.f, new.theta) <= self.start + self.ratio * alpha * self.slope + noise


class FilterTest(Acceptance):
    """The filter: pairs (theta, f) that later points may not be worse than in both."""

    def __init__(self, options: SQPOptions) -> None:
        self.entries: list[tuple[float, float]] = []
        self.largest: float | None = None

    def begin(self, at: Iterate, step: Step) -> None:
        """Take the slope of f, and at the first step the limit on theta."""
        if self.largest is None:
            self.largest = max(LARGEST_VIOLATION, GROWTH * at.theta)
        self.at, self.slope = at, step.slope

    def value(self, f: float, theta: float) -> float:
        """f."""
        return f

    def accepts(self, alpha: float, new: Trial) -> bool:
        """Algorithm A, steps 5.3 and 5.4; the filter grows unless f fell by Armijo's rule (step 7)."""
        assert self.largest is not None
        at, noise = self.at, ROUNDING * (1.0 + abs(self.at.f))
        if new.theta > self.largest or any(new.theta >= theta and new.f >= f + noise for theta, f in self.entries):
            return False
        if self._promises(alpha):
            return new.f <= at.f + ETA_F * alpha * self.slope + noise
        closer = new.theta <= (1.0 - GAMMA_THETA) * at.theta
        if not (closer or new.f <= at.f - GAMMA_F * at.theta + noise):
            return False
        self.remember()
        return True

    def _promises(self, alpha: float) -> bool:
        """True if the step promises more for f than there is violation."""
        return self.slope < 0.0 and alpha * (-self.slope) ** S_F > DELTA * self.at.theta**S_THETA

    @property
    def corrects(self) -> bool:
        """True if second-order corrections are tried: only where f must decrease; elsewhere a shorter step is as good."""
        return self._promises(1.0)

    def remember(self) -> None:
        """Add the current point to the filter."""
        theta, f = self.at.theta, self.at.f
        self.entries.append(((1.0 - GAMMA_THETA) * theta, f - GAMMA_F * theta))


class ViolationTest(Acceptance):
    """Armijo's rule on theta alone, for steps that leave the objective out."""

    @property
    def corrects(self) -> bool:
        """Corrections have no use for them."""
        return False

    def begin(self, at: Iterate, step: Step) -> None:
        """Take theta and its slope."""
        self.start, self.slope = at.theta, step.left - at.theta

    def value(self, f: float, theta: float) -> float:
        """theta."""
        return theta

    def accepts(self, alpha: float, new: Trial) -> bool:
        """Armijo's rule."""
        return new.theta <= self.start + ETA_F * alpha * self.slope and self.slope < 0.0


class AnyStep(MeritTest):
    """Accepts every finite step; the merit is that of :class:`MeritTest`, for the record."""

    def accepts(self, alpha: float, new: Trial) -> bool:
        """Always."""
        return True


def acceptance(options: SQPOptions) -> Acceptance:
    """The test that the options name."""
    kinds: dict[str, type[MeritTest] | type[FilterTest]] = {"merit": MeritTest, "filter": FilterTest, "none": AnyStep}
    return kinds[options.globalization](options)
