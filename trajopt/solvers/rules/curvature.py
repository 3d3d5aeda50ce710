"""When the shift of a whole Hessian takes the place of reflected eigenvalues in the interior point.

Reflected eigenvalues near zero leave directions of little curvature: steps along them are long, and bounds or the filter cut them
short.  Where all knots are indefinite, as with products of forces and distances in complementarity constraints, steps creep so.
The shift of Waechter and Biegler's algorithm IC serves there; elsewhere it shortens the steps of all knots for the sake of one.
Each time that reflections fail, it stays for twice as many steps as the last time.
"""

from __future__ import annotations

from collections import deque

SLOW, LITTLE = 4, 0.5
"""Reflected steps in a row, none shorter than SHORT, that count as slow if they leave more than this share of the error."""
SHORT, TINY = 0.1, 0.01
"""Two reflected steps in a row below the first length, or one below the second, are too short."""
SHIFTED = 5
"""Steps of the first spell of shifts."""


class Curvature:
    """True if the shift replaces reflections (``shifts``)."""

    def __init__(self) -> None:
        self._left, self._spell, self._short = 0, SHIFTED, 0
        self._errors = deque[float](maxlen=SLOW)

    @property
    def shifts(self) -> bool:
        """True while the shift takes the place of reflections."""
        return self._left > 0

    def watch(self, error: float, alpha: float, changed: bool) -> None:
        """Count a step of the length alpha from an iterate with this error; changed: whether its Hessian was convexified."""
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
