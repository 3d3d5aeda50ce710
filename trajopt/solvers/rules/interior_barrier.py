"""Update rules of the barrier parameter of the interior-point method.

monotone    mu stays until E_mu <= KAPPA_EPS mu, then becomes max(tol / 10, min(KAPPA_MU mu, mu^THETA_MU))  (A. V. Fiacco,
            G. P. McCormick; eq. 7 of Waechter and Biegler)
adaptive    mu = sigma (mean complementarity) at each iteration; sigma minimizes the linearized optimality error of its step. This
            continues while the error falls below the largest of the last few errors; otherwise monotone steps follow until it does
            (quality functions: J. Nocedal, A. Waechter, R. A. Waltz, SIAM J. Optim. 19, 2009)

An adaptive mu can fall much faster than the violation and the gradient. The monotone steps that follow may then fail to solve the
barrier problem of that mu. After STUCK steps at one mu the rest of the solve is monotone, with a mu that matches the error (eq. 7).
"""

from __future__ import annotations

from collections import deque
from math import isfinite

from trajopt.solvers.barrier_rules import KAPPA_EPS, KAPPA_MU, THETA_MU

LEAST = 0.1
"""Final mu as a fraction of the tolerance."""
PROGRESS, REMEMBERED = 0.9999, 4
"""Progress: the error is at most PROGRESS times the largest of the last REMEMBERED errors."""
SIGMA, LARGEST = (1e-6, 100.0), 1e3
"""Range of sigma, and largest mu relative to the mean complementarity at the start."""
AFTER = 0.8
"""Initial mu of monotone steps, as a fraction of the mean complementarity."""
STUCK = 20
"""Number of monotone steps at one mu after which an adaptive barrier becomes monotone permanently."""


class Barrier:
    """Barrier parameter mu with its update rule; adaptive: True if adaptive steps are allowed; free: True while they are used."""

    def __init__(self, mu: float, tolerance: float, adaptive: bool) -> None:
        self.mu, self.min_mu, self.adaptive, self.free = mu, LEAST * tolerance, adaptive, adaptive
        self._first, self._max_mean = mu, float("inf")
        self._held, self._steps = mu, 0
        self._errors: deque[float] = deque(maxlen=REMEMBERED)

    def lowered(self) -> float:
        """Return the next mu of monotone steps."""
        fast = self.mu**THETA_MU if self.mu < 1.0 else self.mu
        return max(self.min_mu, min(KAPPA_MU * self.mu, fast))

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
            self.free, self.mu = False, max(self.min_mu, AFTER * mean)
            return True
        if not self.free and enough:
            self.free = True
        return False

    def range_of_sigma(self, mean: float) -> tuple[float, float]:
        """Return the search interval of sigma for a positive mean complementarity."""
        if not isfinite(self._max_mean):
            self._max_mean = LARGEST * mean
        low, high = max(SIGMA[0], self.min_mu / mean), min(SIGMA[1], self._max_mean / mean)
        return low, max(high, low)
