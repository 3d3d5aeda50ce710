"""The weight mu of a logarithmic barrier in Newton's method, which falls with the error relative to the cost."""

from __future__ import annotations

from trajopt.solvers.barrier_rules import KAPPA_EPS, KAPPA_MU, THETA_MU

SHARE = 0.1
"""The first weight: that share of the cost, divided by the number of controls."""
SMALLEST = 1e-11
"""The last mu relative to the cost."""
TINY = 2.2250738585072014e-308


def first_weight(cost: float, controls: int) -> float:
    """mu that fits the cost of a guess with so many controls."""
    return SHARE * max(abs(cost), TINY) / controls


def lowered(mu: float, error: float, cost: float) -> float | None:
    """The next mu where the error (with mu, relative to the cost) is at most KAPPA_EPS mu, else None (Waechter & Biegler
    2006, eq. 7).
    """
    relative = mu / cost
    if not error <= KAPPA_EPS * relative or relative <= SMALLEST:  # an error may be NaN
        return None
    fast = relative**THETA_MU if relative < 1.0 else relative
    return cost * max(SMALLEST, min(KAPPA_MU * relative, fast))
