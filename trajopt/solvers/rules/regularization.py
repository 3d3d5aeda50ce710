"""Regularization of indefinite Hessians.

The shooting methods add mu to Quu or V'xx, by the quadratic schedule of Y. Tassa, T. Erez, E. Todorov, IROS 2012, section II-F
(:class:`Regularization`).

The interior-point method chooses between reflected eigenvalues and a diagonal shift (:class:`Curvature`). Reflected eigenvalues
near zero leave directions of little curvature. Steps along them are long, and bounds or the filter shorten them. If all knots are
indefinite, as with products of forces and distances in complementarity constraints, steps become tiny. The shift of Waechter and
Biegler's algorithm IC avoids this; in other problems it shortens the steps of all knots because of one. Each time reflections fail,
the shift is used for twice as many steps as the time before.

Shifts, also those of Newton's method and of SQP, grow as in algorithm IC (:func:`raised_shift`): A. Waechter, L. Biegler, Math.
Program. 106, 2006.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from trajopt.solvers.options import SLQOptions

FIRST_SHIFT, FASTER, RAISE, LOWER = 1e-4, 100.0, 8.0, 1.0 / 3.0
"""delta_w_0, kappa_w+ (first time and later) and kappa_w- of algorithm IC."""


def raised_shift(shift: float, last: float, smallest: float) -> float:
    """Return the first shift of a series if ``shift`` is 0, else the next larger one.

    last: last shift that was needed, 0 for none: a series begins with LOWER times it, at least ``smallest``.
    """
    if shift == 0.0:
        return max(smallest, LOWER * last) if last else FIRST_SHIFT
    return shift * (RAISE if last else FASTER)


class Regularization(NamedTuple):
    """Schedule of the regularization mu, with its rate of change delta; factor: delta_0; smallest, largest: range of nonzero mu."""

    mu: float
    delta: float
    factor: float
    smallest: float
    largest: float

    @classmethod
    def from_options(cls, options: SLQOptions) -> Regularization:
        """Return the initial state of the schedule from the options: initial mu, delta = 1, factor and limits."""
        factor, limits = options.regularization_factor, (options.min_regularization, options.max_regularization)
        return cls(options.initial_regularization, 1.0, factor, *limits)

    def raised(self) -> Regularization:
        """Return the state after an increase: delta = max(factor, delta factor), mu = mu delta within smallest and largest."""
        delta = max(self.factor, self.delta * self.factor)
        return self._replace(delta=delta, mu=min(max(self.smallest, self.mu * delta), self.largest))

    def lowered(self) -> Regularization:
        """Return the state after a decrease: delta = min(1 / factor, delta / factor), mu = mu delta, or 0 below smallest."""
        mu, delta, factor, smallest, largest = self
        delta = min(1.0 / factor, delta / factor)
        mu *= delta
        return Regularization(mu if mu >= smallest else 0.0, delta, factor, smallest, largest)

    @property
    def saturated(self) -> bool:
        """True if mu has reached its maximum."""
        return self.mu >= self.largest


SLOW, LITTLE = 4, 0.5
"""SLOW reflected steps in a row, none below SHORT, are slow if the last begins with over LITTLE times the first one's error."""
SHORT, TINY = 0.1, 0.01
"""Two consecutive reflected steps below the length SHORT, or one below TINY, switch to the shift."""
SHIFTED = 5
"""Number of steps with a shift after the first failure of reflections."""


class Curvature:
    """Counter of slow and short steps that decides when the shift replaces reflections (``shifts``).

    shifted: number of first steps with the shift.
    """

    def __init__(self, shifted: float = 0) -> None:
        self._left, self._spell, self._short = shifted, SHIFTED, 0
        self._errors = deque[float](maxlen=SLOW)

    @property
    def shifts(self) -> bool:
        """True while the shift replaces reflections."""
        return self._left > 0

    def watch(self, error: float, alpha: float, changed: bool) -> None:
        """Record a step of length alpha from an iterate with this error; changed: True if its Hessian was convexified.

        Reflections fail after SLOW convexified steps in a row, none below SHORT, if the last one begins with more than the fraction
        LITTLE of the first one's error; after two convexified steps in a row below SHORT; or after one below TINY. A step without
        convexification restarts the counts. The shift then replaces reflections for SHIFTED steps, twice as many each time; a step
        with the shift only counts down.
        """
        if self._left:
            self._left -= 1
            return
        short = changed and alpha < SHORT
        self._short = self._short + (2 if alpha < TINY else 1) if short else 0
        if short or not changed:
            self._errors.clear()
        else:
            self._errors.append(error)
        slow = len(self._errors) == SLOW and error > LITTLE * self._errors[0]
        if slow or self._short >= 2:
            self._left, self._spell, self._short = self._spell, 2 * self._spell, 0
            self._errors.clear()
