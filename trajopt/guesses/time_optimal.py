"""A path of configurations in as little time as limits let it take: TOPP-RA, of the package toppra.

    q(s) given,   minimize T   subject to   |q' ds/dt| <= v_max,   |q' d2s/dt2 + q'' (ds/dt)^2| <= a_max,   |tau| <= tau_max

Of all motions along a path, from rest to rest, the fastest one is found by two sweeps over a grid of s: backwards, the speeds from
which the end can be reached; forwards, the largest of these. H. Pham, Q.-C. Pham, A new approach to time-optimal path
parameterization based on reachability analysis, IEEE Transactions on Robotics 34, 2018.
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
"""Intervals of a path between which limits hold."""
UNBOUNDED = 1e4
"""[rad/s, rad/s^2, m/s, m/s^2] What stands for a limit that is infinite."""

Torques = Callable[[Array, Array, Array], Array]
"""Joint forces (M, n) at configurations, velocities and accelerations (M, n)."""


class PathLimits(NamedTuple):
    """velocity, acceleration, torque (n,): limits, infinite where there is none. torques: by inverse dynamics."""

    velocity: Array
    acceleration: Array
    torque: Array
    torques: Torques


class Timing(NamedTuple):
    """Configurations q (M, n) of a motion from rest to rest, and when it passes them, times (M,) [s]."""

    q: Array
    times: Array

    @property
    def duration(self) -> float:
        """[s]."""
        return float(self.times[-1])


def has_toppra() -> bool:
    """True if the package toppra is installed."""
    return find_spec("toppra") is not None


def time_optimal(points: Array, along: Array, limits: PathLimits, grid: int = GRID) -> Timing | None:
    """The fastest motion through points (K, n) at path parameters along (K,), along a spline; None where TOPP-RA finds none.

    Raises ModuleNotFoundError without toppra.
    """
    toppra, algorithm, constraint = _toppra()
    path = toppra.SplineInterpolator(along, points)
    bounds = [_both(limits.velocity), _both(limits.acceleration)]
    asked = [constraint.JointVelocityConstraint(bounds[0]), constraint.JointAccelerationConstraint(bounds[1])]
    if np.isfinite(limits.torque).any():
        asked.append(_torque_constraint(constraint, limits))
    s = np.linspace(along[0], along[-1], grid + 1)
    found = algorithm.TOPPRA(asked, path, gridpoints=s, solver_wrapper="seidel")
    _, speed, _ = found.compute_parameterization(0.0, 0.0)
    if speed is None or not np.isfinite(speed).all():
        return None
    mean = 0.5 * (speed[1:] + speed[:-1])
    if not (mean > 0.0).all():
        return None
    return Timing(path(s), np.append(0.0, np.cumsum(np.diff(s) / mean)))


def on_spline(points: Array, along: Array, count: int) -> Array:
    """Configurations (count, n) of the spline through points (K, n) that :func:`time_optimal` follows."""
    return np.asarray(_toppra()[0].SplineInterpolator(along, points)(np.linspace(along[0], along[-1], count)))


def _both(limit: Array) -> Array:
    most = np.minimum(limit, UNBOUNDED)
    return np.stack([-most, most], axis=1)


def _torque_constraint(constraint: Any, limits: PathLimits) -> Any:
    """a(s) d2s/dt2 + b(s) (ds/dt)^2 + c(s) within limits, from inverse dynamics at all places of the grid at once."""

    class TorqueConstraint(constraint.LinearConstraint):
        def __init__(self) -> None:
            super().__init__()
            self.identical = True

        def compute_constraint_params(self, path: Any, gridpoints: Array, *args: Any, **kwargs: Any) -> tuple:
            q, slope, bend = (np.asarray(path(gridpoints, order)) for order in range(3))
            still, bounded = np.zeros_like(q), np.isfinite(limits.torque)
            c = limits.torques(q, still, still)
            a, b = limits.torques(q, still, slope) - c, limits.torques(q, slope, bend) - c
            sides = np.eye(q.shape[1])[bounded]
            most = limits.torque[bounded]
            return a, b, c, np.concatenate([sides, -sides]), np.concatenate([most, most]), None, None

    return TorqueConstraint()


def floor_of(corners: Array, velocity: Array, acceleration: Array) -> float:
    """A time [s] below which no motion from rest to rest passes corners (K, n), one after the other, within limits (n,)."""
    corners = np.asarray(corners, float)
    return max(_floor_of_turns(corners, velocity, acceleration), _floor_of_pieces(corners, velocity, acceleration))


def _floor_of_turns(corners: Array, velocity: Array, acceleration: Array) -> float:
    """A coordinate stops where it turns back, and takes at least as long as its limits let it from one such place to the next."""
    least = 0.0
    for i, q in enumerate(corners.T):
        way = np.diff(q)
        way = way[way != 0.0]
        if not len(way):
            continue
        starts = np.append(0, np.flatnonzero(np.diff(np.sign(way))) + 1)
        pieces = np.add.reduceat(way, starts)
        times, _ = shortest_times(pieces, np.full(len(pieces), velocity[i]), np.full(len(pieces), acceleration[i]))
        least = max(least, float(times.sum()))
    return least


def _floor_of_pieces(corners: Array, velocity: Array, acceleration: Array) -> float:
    """From one corner to the next, each of the coordinates takes its time; the first and the last piece have an end at rest."""
    way = np.abs(np.diff(corners, axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(way > 0.0, way / velocity, 0.0)
        for end in (0, -1):  # from rest to a speed that is free, by half the square root that it takes to stop again
            rise = np.minimum(velocity / acceleration, np.sqrt(2.0 * way[end] / acceleration))
            rise = np.where(np.isfinite(acceleration), rise, 0.0)
            cruise = np.where(way[end] > 0.0, (way[end] - 0.5 * acceleration * rise**2) / velocity, 0.0)
            times[end] = np.maximum(times[end], rise + np.where(np.isfinite(cruise), cruise, 0.0))
    return float(times.max(axis=1).sum()) if len(way) > 1 else 0.0


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
