"""Size of a cost, to which errors are relative, so that they do not depend on its unit."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array

OF_GUESS, LEAST_SIZE = 1e-6, 1e-12
"""Smallest size of a cost: relative to the cost of the guess, and absolute."""
TINY = 2.2250738585072014e-308
"""Smallest cost used as a scale of errors."""
EFFECT = 1e-2
"""Smallest first-order change of a cost, relative to its size, to which gradients are relative: all terms of a gradient vanish with
a control that is zero at the optimum."""


def size_of(cost: float) -> float:
    """Return the scale of errors in the unit of the cost: its absolute value, at least TINY."""
    return max(abs(cost), TINY)


def cost_size(cost: float, of_guess: float = 0.0) -> float:
    """Return the size of a cost: |cost|, or OF_GUESS times that of the guess if this is larger and finite, at least LEAST_SIZE."""
    return max(abs(cost), OF_GUESS * abs(of_guess) if np.isfinite(of_guess) else 0.0, LEAST_SIZE)


def least_with_effect(size: float, us: Array) -> float:
    """Return the smallest size of the terms of a gradient: EFFECT size / max(1, |u|), for the size of a cost and all controls u."""
    return EFFECT * size / max(1.0, float(np.abs(us).max(initial=0.0)))
