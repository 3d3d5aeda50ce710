"""Motion from rest to rest along a path of configurations, nearly time-optimal within limits of velocity and acceleration.

A running mean rounds the corners of the path. Coordinates are scaled by the velocity limits, so the path length r has the unit of
time. With y = (dr/dt)^2 the limits are

    |q'| sqrt(y) <= v_max,     |q''| y <= CURVED a_max,     |dy/dr| <= 2 min_i (a_max - |q''| y_max)_i / |q'_i|

and the largest feasible y follows from one forward and one backward sweep (J. E. Bobrow, S. Dubowsky, J. S. Gibson,
Time-optimal control of robotic manipulators along specified paths, IJRR 4, 1985, with bounds that do not depend on y).

A motion of N steps with constant accelerations cannot pass through all points of another motion without oscillations. The
least-squares fit to its positions and velocities, with the same ends, is a linear map of these. If steps begin exactly when the
slowest coordinate stops accelerating and when it starts braking, the motion can be as fast as its limits allow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

POINTS = 240
"""Number of grid intervals of a path; limits hold at the grid points."""
ROUNDED = 0.12
"""Length [s] of the running mean that rounds corners."""
CURVED = 0.7
"""Fraction of the acceleration limits available for the curvature of the path."""


class Motion(NamedTuple):
    """Configurations q and velocities v (N + 1, n) at N + 1 times, constant accelerations a (N, n) between; duration [s]."""

    q: Array
    v: Array
    a: Array
    duration: float


def timed_motion(
    path: Array, velocity: Array, acceleration: Array, steps: int | Array, shortest: float = 0.0
) -> Motion:
    """Motion from rest to rest near the corners (K, n) of a path, with the same ends.

    velocity, acceleration (n,): limits, infinite for none. steps: number of equal time steps, or their fractions (N,) of the
    duration. shortest: minimum duration [s].
    """
    q, r = rounded(np.asarray(path, float), velocity)
    t = passing_times(q, r, velocity, acceleration)
    if t[-1] < shortest:
        t = np.linspace(0.0, shortest, len(r)) if t[-1] == 0.0 else t * (shortest / t[-1])
    return held_accelerations(q, t, steps)


def rounded(path: Array, velocity: Array) -> tuple[Array, Array]:
    """Round the corners of a path; returns points (M, n) and their path lengths r (M,) [s]."""
    scale = np.where(np.isfinite(velocity), velocity, 1.0)
    lengths = np.linalg.norm(np.diff(path / scale, axis=0), axis=1)
    path = path[np.r_[True, lengths > 0.0]]
    along = np.concatenate([[0.0], np.cumsum(lengths[lengths > 0.0])])
    r = np.linspace(0.0, along[-1], POINTS + 1)
    q = np.stack([np.interp(r, along, column) for column in path.T], axis=1)
    if along[-1] > 0.0:
        half = int(min(0.5 * ROUNDED / r[1], POINTS // 4))
        for _ in range(2):
            q = _mean(q, half // 2)
    return q, r


def _mean(q: Array, half: int) -> Array:
    """Running mean over 2 half + 1 points; odd reflection keeps the end points fixed."""
    if half == 0:
        return q
    sums = np.cumsum(np.pad(q, ((half + 1, half), (0, 0)), mode="reflect", reflect_type="odd"), axis=0)
    return np.asarray((sums[2 * half + 1 :] - sums[: -2 * half - 1]) / (2 * half + 1))


def passing_times(q: Array, r: Array, velocity: Array, acceleration: Array) -> Array:
    """Times (M,) [s] at which a motion from rest to rest passes points q (M, n) at path lengths r (M,)."""
    step = r[1] - r[0]
    if step == 0.0:
        return np.zeros(len(r))
    slope, second = np.abs(np.gradient(q, step, axis=0)), np.zeros_like(q)
    second[1:-1] = np.abs(np.diff(q, 2, axis=0)) / step**2
    slope, second = np.maximum(slope, 1e-9), np.maximum(second, 1e-9)
    y = np.minimum((velocity / slope) ** 2, CURVED * acceleration / second).min(axis=1)
    y = np.minimum(y, 1e6)
    rise = 2.0 * np.minimum(((acceleration - second * y[:, None]) / slope).min(axis=1), 1e6)
    total = np.concatenate([[0.0], np.cumsum(0.5 * step * (rise[1:] + rise[:-1]))])
    y[[0, -1]] = 0.0
    y = np.minimum.accumulate(y - total) + total
    y = np.minimum.accumulate((y + total)[::-1])[::-1] - total
    speed = np.sqrt(np.maximum(y, 0.0))
    return np.concatenate([[0.0], np.cumsum(2.0 * step / np.maximum(speed[1:] + speed[:-1], 1e-9))])


def held_accelerations(q: Array, t: Array, steps: int | Array) -> Motion:
    """Motion from rest to rest with constant acceleration in each step, fitted to points q (M, n) at times t (M,), t[0] = 0.

    See :func:`timed_motion`.
    """
    fractions = np.full(steps, 1.0 / steps) if isinstance(steps, int) else np.asarray(steps, float)
    T, N = float(t[-1]), len(fractions)
    times = T * np.append(0.0, np.cumsum(fractions))
    at = np.stack([np.interp(times, t, column) for column in q.T], axis=1)
    at[-1] = q[-1]
    rates = np.gradient(q, t, axis=0)
    v = T * np.stack([np.interp(times, t, column) for column in rates.T], axis=1)
    v[[0, -1]] = 0.0
    a = _nearest(tuple(fractions.tolist())) @ np.concatenate([at[1:] - at[0], v[1:] / N])
    still, h = np.zeros((1, q.shape[1])), fractions[:, None]
    speeds = np.concatenate([still, np.cumsum(h * a, axis=0)])
    places = at[0] + np.concatenate([still, np.cumsum(h * (speeds[:-1] + 0.5 * h * a), axis=0)])
    return Motion(places, speeds / T, a / T**2, T)


@lru_cache(maxsize=8)
def _nearest(fractions: tuple[float, ...]) -> Array:
    """Matrix (N, 2 N) of the least-squares fit: from positions and velocities / N after each step to accelerations, duration 1."""
    h, N = np.array(fractions), len(fractions)
    end = np.cumsum(h)
    before = np.tri(N, dtype=bool)
    places, speeds = np.where(before, h * (end[:, None] - end + 0.5 * h), 0.0), np.where(before, h, 0.0) / N
    M, ends = np.concatenate([places, speeds]), np.stack([places[-1], speeds[-1]])
    system = np.block([[M.T @ M, ends.T], [ends, np.zeros((2, 2))]])
    right_hand_sides = np.zeros((2, 2 * N))
    right_hand_sides[0, N - 1] = right_hand_sides[1, -1] = 1.0
    return np.asarray(np.linalg.solve(system, np.concatenate([M.T, right_hand_sides]))[:N])


def shortest_times(distance: Array, velocity: Array, acceleration: Array) -> tuple[Array, Array]:
    """Minimum duration (n,) [s] from rest to rest of each coordinate over ``distance`` (n,), and its acceleration time."""
    distance = np.abs(distance)
    with np.errstate(invalid="ignore", divide="ignore"):
        peak = np.minimum(velocity, np.sqrt(distance * acceleration))
        rise = np.where(np.isfinite(acceleration), peak / acceleration, 0.0)
        return np.where(distance > 0.0, distance / peak + rise, 0.0), np.where(distance > 0.0, rise, 0.0)


def steps_of_slowest(distance: Array, velocity: Array, acceleration: Array, steps: int) -> Array:
    """Fractions (N,) of nearly equal steps that begin when the slowest coordinate stops accelerating and when it starts braking.

    distance (n,): distance from rest to rest.
    """
    times, rises = shortest_times(distance, velocity, acceleration)
    slowest = int(np.nanargmax(times))
    rise = float(rises[slowest] / times[slowest]) if times[slowest] > 0.0 else 0.0
    count = min(max(round(rise * steps), 1), (steps - 1) // 2)
    if not rise > 0.0 or 0.5 - rise < SHORT / steps or count == 0:
        return np.full(steps, 1.0 / steps)
    middle = steps - 2 * count
    return np.repeat([rise / count, (1.0 - 2.0 * rise) / middle, rise / count], [count, middle, count])


SHORT = 0.25
"""Minimum time at the velocity limit, as a fraction of a step, for steps aligned with the slowest coordinate."""
