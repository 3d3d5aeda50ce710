"""When the shift of a whole Hessian takes the place of reflected eigenvalues in the interior point."""

from __future__ import annotations

from collections import deque

SLOW, LITTLE, SHORT = 4, 0.5, 0.1
"""So many steps of a convexified system, one after the other and none shorter than SHORT, are slow where they leave more than this
share of the error."""


class Curvature:
    """Whether steps by reflected Hessians lead on slowly (``slow``)."""

    def __init__(self) -> None:
        self.slow, self._errors = False, deque[float](maxlen=SLOW)

    def watch(self, error: float, alpha: float, changed: bool) -> None:
        """Look at a step of the length alpha from an iterate with this error; changed: whether its Hessian was convexified."""
        if not changed or alpha < SHORT:
            self._errors.clear()
        else:
            self._errors.append(error)
        self.slow = len(self._errors) == SLOW and error > LITTLE * self._errors[0]
