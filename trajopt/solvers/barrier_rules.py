"""Constants of logarithmic barriers, of the interior points and of the bounds on controls in shooting.

A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear
programming, Math. Program. 106, 2006.
"""

from __future__ import annotations

KAPPA_EPS, KAPPA_MU, THETA_MU = 10.0, 0.2, 1.5
"""mu falls to min(KAPPA_MU mu, mu^THETA_MU) where the error is at most KAPPA_EPS mu (eq. 7)."""
TAU = 0.99
"""Least share of the distance from a bound, and of a multiplier, that a step may take (eq. 8)."""
KAPPA_SIGMA = 1e10
"""Multipliers stay within this factor of mu over the distance (eq. 16)."""
PUSH, NEAR_PUSH = 1e-2, 1e-6
"""kappa_1 and kappa_2: how far a start is moved off its bounds (section 3.6), and one near the solution."""
NEAR = 1e-3
"""A start with a first barrier parameter below is one near the solution."""
