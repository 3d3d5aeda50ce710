"""Update rules of the barrier parameter mu, in the interior-point method and in Newton's method, with their constants.

Interior-point method (:class:`Barrier`):

monotone    mu stays until E_mu <= KAPPA_EPS mu, then becomes max(tol / 10, min(KAPPA_MU mu, mu^THETA_MU))  (A. V. Fiacco,
            G. P. McCormick; eq. 7 of Waechter and Biegler)
adaptive    mu = sigma (mean complementarity) at each iteration; sigma minimizes the linearized optimality error of its step. This
            continues while the error falls below the largest of the last few errors; otherwise monotone steps follow until it does
            (quality functions: J. Nocedal, A. Waechter, R. A. Waltz, SIAM J. Optim. 19, 2009)

An adaptive mu can fall much faster than the violation and the gradient. The monotone steps that follow may then fail to solve the
barrier problem of that mu. After STUCK steps at one mu the rest of the solve is monotone, with a mu that matches the error (eq. 7).

Newton's method with bounds on controls (:func:`first_weight`, :func:`lowered`) uses the monotone rule with mu relative to the cost.

Equations are those of A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for
large-scale nonlinear programming, Math. Program. 106, 2006.
"""

from __future__ import annotations

from collections import deque
from math import isfinite

from trajopt.solvers.rules.cost_size import size_of

KAPPA_EPS, KAPPA_MU, THETA_MU = 10.0, 0.2, 1.5
"""mu decreases to min(KAPPA_MU mu, mu^THETA_MU) once the error is at most KAPPA_EPS mu (eq. 7)."""
TAU = 0.99
"""Minimum of tau: a step may use the fraction tau of the distance from a bound, and of a multiplier (eq. 8)."""
KAPPA_SIGMA = 1e10
"""Multipliers are limited to this factor of mu / distance, and its inverse (eq. 16)."""
WIDEST = 1e3
"""Largest range of a control that a barrier distinguishes, relative to max(1, magnitude of the nearer bound)."""
HELD = 1e-7
"""Newton's method: a control is at its bound if the slack is at most this fraction of the range, and the multiplier times the range
exceeds mu / HELD.
"""
PUSH, NEAR_PUSH = 1e-2, 1e-6
"""kappa_1 = kappa_2: minimum relative distance of the initial point from its bounds (section 3.6). NEAR_PUSH: near a solution."""
NEAR = 1e-3
"""Initial barrier parameter below which the initial point counts as near a solution."""

SHARE = 0.1
"""Fraction of the cost, divided by the number of control entries, that gives the first mu."""
NEAR_WEIGHT = 1e-6
"""First mu for a guess near a solution, relative to the first one for other guesses."""
SMALLEST = 1e-11
"""Final mu relative to the cost."""


def superlinear(mu: float) -> float:
    """Return min(KAPPA_MU mu, mu^THETA_MU), the next mu of the monotone rule (eq. 7)."""
    return min(KAPPA_MU * mu, mu**THETA_MU if mu < 1.0 else mu)


def first_weight(cost: float, controls: int) -> float:
    """Return the first mu of Newton's method: SHARE times the absolute cost of the guess, per entry of all its controls."""
    return SHARE * size_of(cost) / controls


def lowered(mu: float, error: float, cost: float) -> float | None:
    """Return the next mu of Newton's method, or None if mu must stay: the error is too large, NaN, or mu is the final one.

    With mu relative to the cost, and if the error of the barrier problem (relative, too) is at most KAPPA_EPS mu, the next mu is
    min(KAPPA_MU mu, mu^THETA_MU), at least SMALLEST (Waechter & Biegler 2006, eq. 7).
    """
    relative = mu / cost
    if not error <= KAPPA_EPS * relative or relative <= SMALLEST:  # an error may be NaN
        return None
    return cost * max(SMALLEST, superlinear(relative))


FINAL_FRACTION = 0.1
"""Final mu as a fraction of the tolerance."""
PROGRESS, REMEMBERED = 0.9999, 4
"""Progress: the error is at most PROGRESS times the largest of the last REMEMBERED errors."""
SIGMA, LARGEST = (1e-6, 100.0), 1e3
"""Range of sigma, and largest mu relative to the mean complementarity at the first adaptive step."""
AFTER = 0.8
"""Initial mu of monotone steps, as a fraction of the mean complementarity."""
STUCK = 20
"""Number of monotone steps at one mu after which an adaptive barrier becomes monotone permanently."""


class Barrier:
    """Barrier parameter mu with its update rule; adaptive: True if adaptive steps are allowed; free: True while they are used."""

    def __init__(self, mu: float, tolerance: float, adaptive: bool) -> None:
        self.mu, self.min_mu, self.adaptive, self.free = mu, FINAL_FRACTION * tolerance, adaptive, adaptive
        self._first, self._max_mean = mu, float("inf")
        self._held, self._steps = mu, 0
        self._errors: deque[float] = deque(maxlen=REMEMBERED)

    def lowered(self) -> float:
        """Return the next mu of monotone steps, min(KAPPA_MU mu, mu^THETA_MU), at least its final value; mu itself stays."""
        return max(self.min_mu, superlinear(self.mu))

    def watch(self, error: float, mean: float) -> bool:
        """Choose between free (adaptive) and monotone steps by the error of an iterate; return True if this has set mu.

        Progress: the error is at most PROGRESS times the largest of the last REMEMBERED errors with progress; the first
        REMEMBERED errors count as progress. Free steps continue while there is progress. Without it, monotone steps start at mu =
        AFTER times the mean complementarity ``mean``; they last until there is progress again. After STUCK of them at one mu the
        barrier becomes monotone for good, with a mu that matches the error. No effect on a monotone barrier.
        """
        if not self.adaptive:
            return False
        self._steps = 0 if self.free or self.mu != self._held else self._steps + 1
        self._held = self.mu
        if self._steps >= STUCK:
            self.adaptive, self.mu = False, min(max(self.mu, error / KAPPA_EPS), max(self.mu, self._first))
            return True
        enough = len(self._errors) < REMEMBERED or error <= PROGRESS * max(self._errors)
        if enough:
            self._errors.append(error)
        if self.free and not enough:
            self.free, self.mu = False, max(self.min_mu, AFTER * mean)
            return True
        if not self.free and enough:
            self.free = True
        return False

    def range_of_sigma(self, mean: float) -> tuple[float, float]:
        """Return the interval in which to search sigma = mu / mean, with the positive mean complementarity ``mean``.

        It is SIGMA, cut off so that mu stays between its final value and LARGEST times the mean complementarity of the first call.
        """
        if not isfinite(self._max_mean):
            self._max_mean = LARGEST * mean
        low, high = max(SIGMA[0], self.min_mu / mean), min(SIGMA[1], self._max_mean / mean)
        return low, max(high, low)
