"""Commanded and achieved motion of the base: speed and distance."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array

START, END = 0.25, 0.75
"""Fractions of a rest-to-rest motion between which its speed is measured."""
RUNNING = 0.5
"""Fraction of a motion that starts at rest after which its speed is measured."""


def mean_speed(xs: Array, times: Array, start: float, end: float) -> float:
    """Return the mean velocity of the base along x [m/s] in states xs (M, nx) at times (M,) [s], from ``start`` to ``end``
    [s]."""
    a, b = np.interp([start, end], times, xs[:, 0])
    return float((b - a) / (end - start))


def speed_sentence(commanded: float, xs: Array, times: Array, start: float = 0.0, end: float = 1.0) -> str:
    """Compare commanded and achieved velocity along x [m/s]; start, end: fractions of the motion between which it is measured."""
    first, last = times[0] + np.array([start, end]) * (times[-1] - times[0])
    achieved = mean_speed(xs, times, first, last)
    where = f"mean velocity of the base along x from {first:.2f} to {last:.2f} s"
    return f"commanded {commanded:.2f} m/s, achieved {achieved:.2f} m/s ({where})"


def distance_sentence(commanded: float, xs: Array, times: Array) -> str:
    """Compare commanded and achieved displacement of the base along x [m], from the first state to the last."""
    achieved, took = float(xs[-1, 0] - xs[0, 0]), float(times[-1] - times[0])
    return f"commanded {commanded:.2f} m, achieved {achieved:.2f} m along x in {took:.2f} s"


def travel_sentences(commanded: float, xs: Array, times: Array) -> list[str]:
    """Return both sentences about a motion with a commanded displacement along x [m]; none if it is 0."""
    if not commanded:
        return []
    speed = commanded / float(times[-1] - times[0])
    return [speed_sentence(speed, xs, times), distance_sentence(commanded, xs, times)]
