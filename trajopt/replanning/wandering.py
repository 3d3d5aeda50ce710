"""Random motion of a point: on straight lines between random positions in a box, at rest at each position.

On a line of length d with duration T = 3 d / (2 v), the traveled fraction is 3 s^2 - 2 s^3 with s = t / T, so the speed never
exceeds v.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array


class Wandering:
    """Random motion in a box with center (n,) and half sizes (n,) [m], at a maximum speed [m/s]; seed: of the positions.

    Raises ValueError for a box without extent or a speed that is not positive.
    """

    def __init__(self, center: Array, size: Array, speed: float, seed: int) -> None:
        self._center, self._size, self._speed = np.asarray(center, dtype=float), np.asarray(size, dtype=float), speed
        if not (self._size.any() and (self._size >= 0.0).all() and speed > 0.0):
            raise ValueError(f"a box of half sizes {self._size} and a speed of {speed}: give positive numbers")
        self._random = np.random.default_rng(seed)
        self._places, self._times = [self._place()], [0.0]

    def __call__(self, t: float) -> Array:
        """Position (n,) at t >= 0 [s]."""
        while self._times[-1] <= t:
            place = self._place()
            self._times.append(self._times[-1] + 1.5 * float(np.linalg.norm(place - self._places[-1])) / self._speed)
            self._places.append(place)
        k = int(np.searchsorted(self._times, t, side="right")) - 1
        fraction = (t - self._times[k]) / (self._times[k + 1] - self._times[k])
        return self._places[k] + fraction * fraction * (3.0 - 2.0 * fraction) * (self._places[k + 1] - self._places[k])

    def _place(self) -> Array:
        return self._center + self._size * self._random.uniform(-1.0, 1.0, len(self._center))
