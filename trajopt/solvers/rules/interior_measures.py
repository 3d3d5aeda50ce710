"""Optimality error of an interior-point iterate, and the two measures of its filter."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

_new = tuple.__new__  # of named tuples, in a fifth of the time
LARGE = 100.0
"""s_max of eq. 6 of Waechter and Biegler: multipliers beyond it scale the conditions down."""


class Violation(NamedTuple):
    """theta: l1 norm of all residuals; the largest of them, and of the gaps alone; minus the sum of the logarithms of the
    distances from bounds; the sum of squares of the residuals. NaN where they are not finite.
    """

    theta: float
    largest: float
    gap: float
    barrier: float
    squares: float


class Optimality(NamedTuple):
    """The largest entry of the Lagrangian's gradient, violation and complementarity, unscaled but for the objective's factor; E_0
    and E_mu of eq. 5; the mean and the least of the products of multipliers and distances, how many there are; the sum of squares
    of the gradient.
    """

    gradient: float
    violation: float
    complementarity: float
    error: float
    barrier_error: float
    mean: float
    least: float
    products: int
    squares: float


def optimality(sums: Sequence[float], violation: float) -> Optimality:
    """The scaled errors of eq. 5 and 6. sums: the ten numbers of ipm_measure; violation: the largest residual."""
    gradient, plain, shifted, sum_y, sum_z, count_y, count_z, total, least, squares = sums
    s_d = max(LARGE, (sum_y + sum_z) / max(count_y + count_z, 1.0)) / LARGE
    s_c, mean = 1.0, 0.0
    if count_z:
        s_c, mean = max(LARGE, sum_z / count_z) / LARGE, total / count_z
    error = barrier_error = nan
    if isfinite(gradient + violation):
        worst = max(gradient / s_d, violation)
        error, barrier_error = max(worst, plain / s_c), max(worst, shifted / s_c)
    errors = gradient, violation, plain, error, barrier_error, mean, least, int(count_z), squares
    return _new(Optimality, errors)
