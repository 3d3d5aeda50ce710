"""Choice between reflected eigenvalues and a diagonal shift for indefinite Hessians in the interior-point method.

Reflected eigenvalues near zero leave directions of little curvature.  Steps along them are long, and bounds or the filter shorten
them.  If all knots are indefinite, as with products of forces and distances in complementarity constraints, steps become tiny.
The shift of Waechter and Biegler's algorithm IC avoids this; in other problems it shortens the steps of all knots because of one.
Each time reflections fail, the shift is used for twice as many steps as the time before.
"""

from __future__ import annotations

from collections import deque

SLOW, LITTLE = 4, 0.5
"""SLOW consecutive reflected steps, none below SHORT, count as slow if more than the fraction LITTLE of the error remains."""
SHORT, TINY = 0.1, 0.01
"""Two consecutive reflected steps below the length SHORT, or one below TINY, switch to the shift."""
SHIFTED = 5
"""Number of steps with a shift after the first failure of reflections."""


class Curvature:
    """Counter of slow and short steps that decides when the shift replaces reflections (``shifts``)."""

    def __init__(self) -> None:
        self._left, self._spell, self._short = 0, SHIFTED, 0
        self._errors = deque[float](maxlen=SLOW)

    @property
    def shifts(self) -> bool:
        """True while the shift replaces reflections."""
        return self._left > 0

    def watch(self, error: float, alpha: float, changed: bool) -> None:
        """Record a step of length alpha from an iterate with the given error; changed: True if its Hessian was convexified."""
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
