"""Optimality and violation measures of an interior-point iterate."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

_new = tuple.__new__  # creates named tuples five times faster than their constructor
MULTIPLIER_SCALE = 100.0
"""s_max of eq. 6 of Waechter and Biegler: larger mean multipliers scale the errors down."""


class Violation(NamedTuple):
    """Residual norms of a point, NaN if not finite.

    theta: l1 norm of all residuals. largest: largest residual. defect: largest defect of the dynamics. barrier: minus the sum of
    the logarithms of the distances to bounds. squares: sum of squares of the residuals.
    """

    theta: float
    largest: float
    defect: float
    barrier: float
    squares: float


class Optimality(NamedTuple):
    """Optimality errors of an iterate.

    gradient, violation, complementarity: largest entries of the Lagrangian's gradient, the residuals and the products of
    multipliers and distances; only the factor of the objective scales them. error, barrier_error: E_0 and E_mu of eq. 5. mean,
    products: mean and number of the products, 0 without bounds. squares: sum of squares of the gradient.
    """

    gradient: float
    violation: float
    complementarity: float
    error: float
    barrier_error: float
    mean: float
    products: int
    squares: float


def optimality(sums: Sequence[float], violation: float) -> Optimality:
    """Return the optimality errors of an iterate; those for mu = 0 and for mu are scaled as in eq. 5 and 6 of Waechter & Biegler.

    sums: the nine numbers of ipm_measure (interior_point.h). violation: the largest residual. The scaled errors are NaN if the
    gradient or the violation is not finite.
    """
    gradient, plain, shifted, sum_y, sum_z, count_y, count_z, total, squares = sums
    s_d = max(MULTIPLIER_SCALE, (sum_y + sum_z) / max(count_y + count_z, 1.0)) / MULTIPLIER_SCALE
    s_c, mean = 1.0, 0.0
    if count_z:
        s_c, mean = max(MULTIPLIER_SCALE, sum_z / count_z) / MULTIPLIER_SCALE, total / count_z
    error = barrier_error = nan
    if isfinite(gradient + violation):
        worst = max(gradient / s_d, violation)
        error, barrier_error = max(worst, plain / s_c), max(worst, shifted / s_c)
    errors = gradient, violation, plain, error, barrier_error, mean, int(count_z), squares
    return _new(Optimality, errors)
