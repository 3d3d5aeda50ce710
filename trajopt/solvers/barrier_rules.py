"""Constants of logarithmic barriers, in interior-point methods and for control bounds in shooting.

A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear
programming, Math. Program. 106, 2006.
"""

from __future__ import annotations

KAPPA_EPS, KAPPA_MU, THETA_MU = 10.0, 0.2, 1.5
"""mu decreases to min(KAPPA_MU mu, mu^THETA_MU) once the error is at most KAPPA_EPS mu (eq. 7)."""
TAU = 0.99
"""Minimum of tau: a step may use the fraction tau of the distance from a bound, and of a multiplier (eq. 8)."""
KAPPA_SIGMA = 1e10
"""Multipliers are limited to this factor of mu / distance, and its inverse (eq. 16)."""
PUSH, NEAR_PUSH = 1e-2, 1e-6
"""kappa_1 = kappa_2: minimum relative distance of the initial point from its bounds (section 3.6); and near a solution."""
NEAR = 1e-3
"""Initial barrier parameter below which the initial point counts as near a solution."""
