"""Motion from rest to rest along a path of configurations, time-optimal or nearly so.

Nearly time-optimal within limits of velocity and acceleration (:func:`timed_motion`). A running mean rounds the corners of the
path. Coordinates are scaled by the velocity limits, so the path length r has the unit of time. With y = (dr/dt)^2 the limits are

    |q'| sqrt(y) <= v_max,     |q''| y <= CURVED a_max,     |dy/dr| <= 2 min_i (a_max - |q''| y_max)_i / |q'_i|

with y_max the largest y by the first two limits, and the largest feasible y follows from one forward and one backward sweep (J.
E. Bobrow, S. Dubowsky, J. S. Gibson, Time-optimal control of robotic manipulators along specified paths, IJRR 4, 1985, with
bounds that do not depend on y).

A motion of N steps with constant accelerations cannot pass through all points of another motion without oscillations. The
least-squares fit to its positions and velocities, with the same ends, is a linear map of these. If steps begin exactly when the
slowest coordinate stops accelerating and when it starts braking, the motion can be as fast as its limits allow.

Time-optimal within torque limits (:func:`time_optimal`), by TOPP-RA of the package toppra,

    q(s) given,   minimize T   subject to   |q' ds/dt| <= v_max,   |q' d2s/dt2 + q'' (ds/dt)^2| <= a_max,   |tau| <= tau_max

The backward sweep over a grid of s computes the speeds from which the end can be reached, the forward sweep selects the largest of
these. H. Pham, Q.-C. Pham, A new approach to time-optimal path parameterization based on reachability analysis, IEEE Transactions
on Robotics 34, 2018.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

POINTS = 240
"""Number of grid intervals of a rounded path; the times at which it passes the grid points obey the limits there."""
ROUNDED = 0.12
"""Length [s] of the path over which running means round a corner."""
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

    velocity, acceleration (n,): limits, infinite for none; the fit to constant accelerations may exceed them. steps: number of
    equal time steps, or their fractions (N,) of the duration. shortest: minimum duration [s].
    """
    q, r = rounded(np.asarray(path, float), velocity)
    t = passing_times(q, r, velocity, acceleration)
    if t[-1] < shortest:
        t = np.linspace(0.0, shortest, len(r)) if t[-1] == 0.0 else t * (shortest / t[-1])
    return held_accelerations(q, t, steps)


def rounded(path: Array, velocity: Array) -> tuple[Array, Array]:
    """Round the corners of a path; returns points (M, n) at equal path lengths r (M,), and r [s].

    r is the length in coordinates divided by their velocity limits (n,), thus a time; infinite limits count as 1.
    """
    scale = np.where(np.isfinite(velocity), velocity, 1.0)
    lengths = np.linalg.norm(np.diff(path / scale, axis=0), axis=1)
    path = path[np.r_[True, lengths > 0.0]]
    along = np.concatenate([[0.0], np.cumsum(lengths[lengths > 0.0])])
    r = np.linspace(0.0, along[-1], POINTS + 1)
    q = np.stack([np.interp(r, along, column) for column in path.T], axis=1)
    if along[-1] > 0.0:
        half = int(min(0.5 * ROUNDED / r[1], POINTS // 4))
        for _ in range(2):
            q = _running_mean(q, half // 2)
    return q, r


def _running_mean(q: Array, half: int) -> Array:
    """Running mean over 2 half + 1 points; odd reflection keeps the end points fixed."""
    if half == 0:
        return q
    sums = np.cumsum(np.pad(q, ((half + 1, half), (0, 0)), mode="reflect", reflect_type="odd"), axis=0)
    return np.asarray((sums[2 * half + 1 :] - sums[: -2 * half - 1]) / (2 * half + 1))


def passing_times(q: Array, r: Array, velocity: Array, acceleration: Array) -> Array:
    """Times (M,) [s] at which a nearly time-optimal motion from rest to rest passes points q (M, n) at path lengths r (M,).

    velocity, acceleration (n,): limits. Zeros for a path without length.
    """
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
    a = _fit_matrix(tuple(fractions.tolist())) @ np.concatenate([at[1:] - at[0], v[1:] / N])
    still, h = np.zeros((1, q.shape[1])), fractions[:, None]
    speeds = np.concatenate([still, np.cumsum(h * a, axis=0)])
    places = at[0] + np.concatenate([still, np.cumsum(h * (speeds[:-1] + 0.5 * h * a), axis=0)])
    return Motion(places, speeds / T, a / T**2, T)


@lru_cache(maxsize=8)
def _fit_matrix(fractions: tuple[float, ...]) -> Array:
    """Matrix (N, 2 N) of the least-squares fit: from positions and velocities / N after each step to accelerations, duration 1.

    The last position and velocity are met exactly.
    """
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
    """Minimum duration (n,) [s] from rest to rest of each coordinate over ``distance`` (n,), and how long (n,) [s] it accelerates.

    Both are 0 for a distance of 0; the second one also for an infinite limit of the acceleration.
    """
    distance = np.abs(distance)
    with np.errstate(invalid="ignore", divide="ignore"):
        peak = np.minimum(velocity, np.sqrt(distance * acceleration))
        rise = np.where(np.isfinite(acceleration), peak / acceleration, 0.0)
        return np.where(distance > 0.0, distance / peak + rise, 0.0), np.where(distance > 0.0, rise, 0.0)


def steps_of_slowest(distance: Array, velocity: Array, acceleration: Array, steps: int) -> Array:
    """Fractions (N,) of nearly equal steps that begin when the slowest coordinate stops accelerating and when it starts braking.

    Equal steps if it is hardly at its velocity limit (SHORT), if its acceleration is unlimited, and for fewer than three steps.
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
"""Half of the minimum time at the velocity limit, as a fraction of a step, for steps aligned with the slowest coordinate."""


GRID = 400
"""Default number of grid intervals of a path; limits hold at the grid points."""
UNBOUNDED = 1e4
"""Finite substitute for an infinite limit [rad/s, rad/s^2, m/s, m/s^2]."""

Torques = Callable[[Array, Array, Array], Array]
"""Function from configurations, velocities and accelerations (M, n) to joint forces (M, n)."""


class PathLimits(NamedTuple):
    """Limits of velocity, acceleration and torque (n,), infinite for none. torques: inverse dynamics."""

    velocity: Array
    acceleration: Array
    torque: Array
    torques: Torques


class Timing(NamedTuple):
    """Configurations q (M, n) of a motion from rest to rest, and their times (M,) [s]."""

    q: Array
    times: Array

    @property
    def duration(self) -> float:
        """Duration of the motion [s]."""
        return float(self.times[-1])


def has_toppra() -> bool:
    """True if the package toppra is installed."""
    return find_spec("toppra") is not None


def time_optimal(points: Array, along: Array, limits: PathLimits, grid: int = GRID) -> Timing | None:
    """Fastest motion within limits along the spline through points (K, n) at path parameters along (K,), from rest to rest.

    Limits hold at the grid points. Returns None if TOPP-RA finds none. Infinite torque limits are left out, other infinite limits
    replaced by UNBOUNDED. Raises ModuleNotFoundError without toppra.
    """
    toppra, algorithm, constraint = _toppra()
    path = toppra.SplineInterpolator(along, points)
    bounds = [_symmetric_limits(limits.velocity), _symmetric_limits(limits.acceleration)]
    asked = [constraint.JointVelocityConstraint(bounds[0]), constraint.JointAccelerationConstraint(bounds[1])]
    if np.isfinite(limits.torque).any():
        asked.append(_torque_constraint(constraint, limits))
    s = np.linspace(along[0], along[-1], grid + 1)
    result = algorithm.TOPPRA(asked, path, gridpoints=s, solver_wrapper="seidel")
    _, speed, _ = result.compute_parameterization(0.0, 0.0)
    if speed is None or not np.isfinite(speed).all():
        return None
    mean = 0.5 * (speed[1:] + speed[:-1])
    if not (mean > 0.0).all():
        return None
    return Timing(path(s), np.append(0.0, np.cumsum(np.diff(s) / mean)))


def on_spline(points: Array, along: Array, count: int) -> Array:
    """Configurations (count, n) on the spline of :func:`time_optimal` through points (K, n), at equal steps of its parameter."""
    return np.asarray(_toppra()[0].SplineInterpolator(along, points)(np.linspace(along[0], along[-1], count)))


def _symmetric_limits(limit: Array) -> Array:
    """Lower and upper limits (n, 2), -limit and limit, with finite numbers for infinite limits."""
    most = np.minimum(limit, UNBOUNDED)
    return np.stack([-most, most], axis=1)


def _torque_constraint(constraint: Any, limits: PathLimits) -> Any:
    """Constraint of toppra for the finite torque limits on tau = a(s) d2s/dt2 + b(s) (ds/dt)^2 + c(s).

    a, b and c come from inverse dynamics at all grid points in one batch.
    """

    class TorqueConstraint(constraint.LinearConstraint):
        """Limits of the joint torques, linear in d2s/dt2 and (ds/dt)^2."""

        def __init__(self) -> None:
            super().__init__()
            self.identical = True

        def compute_constraint_params(self, path: Any, gridpoints: Array, *args: Any, **kwargs: Any) -> tuple:
            """Return (a, b, c, F, g, None, None) as toppra expects them: a, b, c at the grid points, and the bounds F tau <= g of
            the limited torques; no further bounds.
            """
            q, slope, second = (np.asarray(path(gridpoints, order)) for order in range(3))
            still, bounded = np.zeros_like(q), np.isfinite(limits.torque)
            c = limits.torques(q, still, still)
            a, b = limits.torques(q, still, slope) - c, limits.torques(q, slope, second) - c
            sides = np.eye(q.shape[1])[bounded]
            most = limits.torque[bounded]
            return a, b, c, np.concatenate([sides, -sides]), np.concatenate([most, most]), None, None

    return TorqueConstraint()


def duration_lower_bound(corners: Array, velocity: Array, acceleration: Array) -> float:
    """Lower bound [s] on the duration of motions from rest to rest through corners (K, n) in order, within limits (n,)."""
    corners = np.asarray(corners, float)
    return max(
        _bound_by_coordinates(corners, velocity, acceleration), _bound_by_pieces(corners, velocity, acceleration)
    )


def _bound_by_coordinates(corners: Array, velocity: Array, acceleration: Array) -> float:
    """Lower bound by single coordinates: each stops where it reverses, and its limits bound the time between two reversals."""
    least = 0.0
    for i, q in enumerate(corners.T):
        travel = np.diff(q)
        travel = travel[travel != 0.0]
        if not len(travel):
            continue
        starts = np.append(0, np.flatnonzero(np.diff(np.sign(travel))) + 1)
        pieces = np.add.reduceat(travel, starts)
        times, _ = shortest_times(pieces, np.full(len(pieces), velocity[i]), np.full(len(pieces), acceleration[i]))
        least = max(least, float(times.sum()))
    return least


def _bound_by_pieces(corners: Array, velocity: Array, acceleration: Array) -> float:
    """Lower bound by pieces between corners: the slowest coordinate bounds each; the first and last pieces have an end at rest.

    0 for a single piece.
    """
    travel = np.abs(np.diff(corners, axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(travel > 0.0, travel / velocity, 0.0)
        for end in (0, -1):  # from rest to a free speed, which takes less time than from rest to rest
            rise = np.minimum(velocity / acceleration, np.sqrt(2.0 * travel[end] / acceleration))
            rise = np.where(np.isfinite(acceleration), rise, 0.0)
            cruise = np.where(travel[end] > 0.0, (travel[end] - 0.5 * acceleration * rise**2) / velocity, 0.0)
            times[end] = np.maximum(times[end], rise + np.where(np.isfinite(cruise), cruise, 0.0))
    return float(times.max(axis=1).sum()) if len(travel) > 1 else 0.0


def _toppra() -> tuple[Any, Any, Any]:
    """Import toppra and its modules algorithm and constraint. Raises ModuleNotFoundError with the command that installs them."""
    try:
        with warnings.catch_warnings(action="ignore"):  # when Python compiles it, it warns of its escape sequences
            import toppra
            from toppra import algorithm, constraint
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the fastest motion along a path needs the package toppra: pip install 'urdf-trajopt[scene]'", name="toppra"
        ) from error
    logging.getLogger("toppra").setLevel(logging.CRITICAL)
    return toppra, algorithm, constraint
