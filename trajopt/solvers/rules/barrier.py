"""Update rule of the barrier parameter mu in Newton's method, from the KKT error relative to the cost."""

from __future__ import annotations

from trajopt.solvers.barrier_rules import KAPPA_EPS, KAPPA_MU, THETA_MU

SHARE = 0.1
"""Fraction of the cost, divided by the number of control entries, that gives the first mu."""
SMALLEST = 1e-11
"""Final mu relative to the cost."""
TINY = 2.2250738585072014e-308


def first_weight(cost: float, controls: int) -> float:
    """Return the first mu from the cost of the guess and its total number of control entries."""
    return SHARE * max(abs(cost), TINY) / controls


def lowered(mu: float, error: float, cost: float) -> float | None:
    """Return the next mu if the error of the barrier problem, relative to the cost, is at most KAPPA_EPS mu; else None.

    Waechter & Biegler 2006, eq. 7, with mu relative to the cost.
    """
    relative = mu / cost
    if not error <= KAPPA_EPS * relative or relative <= SMALLEST:  # an error may be NaN
        return None
    fast = relative**THETA_MU if relative < 1.0 else relative
    return cost * max(SMALLEST, min(KAPPA_MU * relative, fast))
