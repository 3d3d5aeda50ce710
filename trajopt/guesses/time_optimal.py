"""Time-optimal motion along a path of configurations: TOPP-RA of the package toppra.

    q(s) given,   minimize T   subject to   |q' ds/dt| <= v_max,   |q' d2s/dt2 + q'' (ds/dt)^2| <= a_max,   |tau| <= tau_max

The fastest motion along a path from rest to rest follows from two sweeps over a grid of s. The backward sweep computes the speeds
from which the end can be reached, the forward sweep selects the largest of these. H. Pham, Q.-C. Pham, A new approach to
time-optimal path parameterization based on reachability analysis, IEEE Transactions on Robotics 34, 2018.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.timed_path import shortest_times

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
    """Fastest motion along the spline through points (K, n) at path parameters along (K,); None if TOPP-RA finds none.

    Raises ModuleNotFoundError without toppra.
    """
    toppra, algorithm, constraint = _toppra()
    path = toppra.SplineInterpolator(along, points)
    bounds = [_both(limits.velocity), _both(limits.acceleration)]
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
    """Configurations (count, n) on the spline of :func:`time_optimal` through points (K, n)."""
    return np.asarray(_toppra()[0].SplineInterpolator(along, points)(np.linspace(along[0], along[-1], count)))


def _both(limit: Array) -> Array:
    most = np.minimum(limit, UNBOUNDED)
    return np.stack([-most, most], axis=1)


def _torque_constraint(constraint: Any, limits: PathLimits) -> Any:
    """Torque limits on a(s) d2s/dt2 + b(s) (ds/dt)^2 + c(s), from inverse dynamics at all grid points in one batch."""

    class TorqueConstraint(constraint.LinearConstraint):
        def __init__(self) -> None:
            super().__init__()
            self.identical = True

        def compute_constraint_params(self, path: Any, gridpoints: Array, *args: Any, **kwargs: Any) -> tuple:
            q, slope, second = (np.asarray(path(gridpoints, order)) for order in range(3))
            still, bounded = np.zeros_like(q), np.isfinite(limits.torque)
            c = limits.torques(q, still, still)
            a, b = limits.torques(q, still, slope) - c, limits.torques(q, slope, second) - c
            sides = np.eye(q.shape[1])[bounded]
            most = limits.torque[bounded]
            return a, b, c, np.concatenate([sides, -sides]), np.concatenate([most, most]), None, None

    return TorqueConstraint()


def floor_of(corners: Array, velocity: Array, acceleration: Array) -> float:
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
    """Lower bound by pieces between corners: the slowest coordinate bounds each; the first and last pieces have an end at rest."""
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
    try:
        import toppra
        from toppra import algorithm, constraint
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the fastest motion along a path needs the package toppra: pip install 'urdf-trajopt[scene]'", name="toppra"
        ) from error
    logging.getLogger("toppra").setLevel(logging.CRITICAL)
    return toppra, algorithm, constraint
