"""Update rules of the barrier parameter of the interior-point method.

monotone    mu stays until E_mu <= KAPPA_EPS mu, then becomes max(tol / 10, min(KAPPA_MU mu, mu^THETA_MU))  (A. V. Fiacco,
            G. P. McCormick; eq. 7 of Waechter and Biegler)
adaptive    mu = sigma (mean complementarity) at each iteration, with the sigma whose step leaves least of the optimality
            conditions as their linearization sees it, as long as the error falls below the largest of the last few; where it does
            not, monotone steps until it does  (quality functions: J. Nocedal, A. Waechter, R. A. Waltz, SIAM J. Optim. 19, 2009)

An adaptive mu can fall far faster than the violation and the gradient do. The monotone steps that follow then keep a mu whose
problem they do not solve. After STUCK steps at one mu the rest of the solve is monotone, from a mu that suits the error (eq. 7).
"""

from __future__ import annotations

from collections import deque
from math import isfinite

from trajopt.solvers.barrier_rules import KAPPA_EPS, KAPPA_MU, THETA_MU

LEAST = 0.1
"""The share of the tolerance where mu ends."""
PROGRESS, REMEMBERED = 0.9999, 4
"""Least relative decrease of the error against the largest of the last few, and how many these are."""
SIGMA, LARGEST = (1e-6, 100.0), 1e3
"""The range of sigma; the largest mu, relative to the mean complementarity at the start."""
AFTER = 0.8
"""The share of the mean complementarity that mu is at the start of monotone steps."""
STUCK = 20
"""Monotone steps at one mu after which an adaptive barrier becomes monotone for good."""


class Barrier:
    """mu, whether it may follow the complementarity (``adaptive``), and whether it does (``free``)."""

    def __init__(self, mu: float, tolerance: float, adaptive: bool) -> None:
        self.mu, self.least, self.adaptive, self.free = mu, LEAST * tolerance, adaptive, adaptive
        self._first, self._most = mu, float("inf")
        self._held, self._steps = mu, 0
        self._errors: deque[float] = deque(maxlen=REMEMBERED)

    def lowered(self) -> float:
        """The next mu of monotone steps."""
        fast = self.mu**THETA_MU if self.mu < 1.0 else self.mu
        return max(self.least, min(KAPPA_MU * self.mu, fast))

    def watch(self, error: float, mean: float) -> bool:
        """Choose between free and monotone steps by the error of an iterate; True if this has changed mu."""
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
            self.free, self.mu = False, max(self.least, AFTER * mean)
            return True
        if not self.free and enough:
            self.free = True
        return False

    def range_of_sigma(self, mean: float) -> tuple[float, float]:
        """Between which sigma is looked for, at a positive mean complementarity."""
        if not isfinite(self._most):
            self._most = LARGEST * mean
        low, high = max(SIGMA[0], self.least / mean), min(SIGMA[1], self._most / mean)
        return low, max(high, low)
