"""How far a point is from the solution, and the two measures of the filter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from trajopt.solvers.ipm.library import Kernels, Multipliers
from trajopt.solvers.ipm.stage_program import Point, StageProgram

LARGE = 100.0
"""s_max of eq. 6 of Waechter and Biegler: multipliers beyond it scale the conditions down."""
STEEPEST = 100.0
"""Objectives with a steeper gradient at the start are scaled down to it (nlp_scaling_max_gradient)."""


class Violation(NamedTuple):
    """theta: l1 norm of all residuals; the largest of them, and of the gaps alone; minus the sum of the logarithms of the
    distances from bounds; the sum of squares of the residuals.
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


class Measures:
    """Measures of points of a program."""

    def __init__(self, program: StageProgram, kernels: Kernels) -> None:
        self.program, self.kernels = program, kernels
        self._out = np.zeros(10)
        self._at = address(self._out)

    def violation(self, p: Point) -> Violation:
        """At a point whose values are known; NaN where they are not finite."""
        self.kernels.values(self.program.ref, p.data.v, p.data.d, p.data.g, self._at)
        return Violation(*self._out[:5].tolist())

    def optimality(self, p: Point, z: Multipliers, violation: float, scale: float, mu: float) -> Optimality:
        """At a point whose derivatives are known."""
        self.kernels.measure(self.program.ref, p.ref, z.ref, scale, mu, self._at)
        gradient, plain, shifted, sum_y, sum_z, count_y, count_z, total, least, squares = self._out.tolist()
        s_d = max(LARGE, (sum_y + sum_z) / max(count_y + count_z, 1.0)) / LARGE
        s_c = max(LARGE, sum_z / max(count_z, 1.0)) / LARGE
        error, barrier_error = (max(gradient / s_d, violation, c / s_c) for c in (plain, shifted))
        if not np.isfinite(gradient + violation):
            error = barrier_error = float("nan")
        mean = total / count_z if count_z else 0.0
        return Optimality(gradient, violation, plain, error, barrier_error, mean, least, int(count_z), squares)
