"""Time-optimal timing of paths by TOPP-RA: of the planner's path, and of the path of a solution.

A motion that is slower than TOPP-RA (:mod:`trajopt.guesses.timed_path`) on the planner's path is in a poor local optimum. A
motion that is slower than TOPP-RA on its own path is limited by its collision pairs or its tube. In both cases the timing is a
better guess. Without the package toppra, no timing is available."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.guesses.timed_path import PathLimits, Timing, duration_lower_bound, on_spline, time_optimal
from .in_scene import Limits, motion_at
from .joint_torques import torques_of

SETS = (16, 32, 64, 128, 256)
"""Numbers of spline points on the planner's path, tried until the spline is collision-free."""
CHECKED_POINTS = 1000
"""Number of samples of the collision check of a spline."""
ALIKE = 1.001
"""Ratio up to which two durations count as equal."""
PLACES, GRID = 240, 240
"""Number of samples of a motion, and of intervals with limits, for the timing of its path."""


def path_limits(limits: Limits, model: Model) -> PathLimits:
    """Return the limits along a path."""
    return PathLimits(limits.velocity, limits.acceleration, limits.torque, partial(torques_of, model))


def planned_timing(path: Array, limits: Limits, model: Model, check: MeshCheck | None) -> Timing | None:
    """Time a collision-free spline through points of the planner's path (K, n) by TOPP-RA; None if none is found."""
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    for count in SETS:
        s = np.unique(np.concatenate([along, np.linspace(0.0, along[-1], count)]))
        points = np.stack([np.interp(s, along, column) for column in path.T], axis=1)
        if check is None or check.is_clear(on_spline(points, s, CHECKED_POINTS)):
            return time_optimal(points, s, path_limits(limits, model))
    return None


@dataclass(frozen=True, eq=False)
class PathTiming:
    """Timings of paths. path: corners (K, n) of the planner's path."""

    model: Model
    limits: Limits
    check: MeshCheck | None
    path: Array

    @cached_property
    def floor(self) -> float:
        """Lower bound [s] on the duration of a motion along the planner's path."""
        return duration_lower_bound(self.path, self.limits.velocity, self.limits.acceleration)

    @cached_property
    def planned(self) -> Timing | None:
        """TOPP-RA timing of the planner's path."""
        return planned_timing(self.path, self.limits, self.model, self.check)

    def faster_than(self, duration: float) -> Timing | None:
        """Return the TOPP-RA timing of the planner's path if it is shorter than a duration [s], else None."""
        if duration <= self.floor or self.planned is None or self.planned.duration >= duration:
            return None
        return self.planned

    def compared(self, duration: float) -> str:
        """Compare a duration [s] with the timing of the planner's path, in a sentence."""
        if duration <= self.floor:
            return f"at most {duration / self.floor:.3f} times the duration of TOPP-RA on the path of the planner"
        if self.planned is None:
            return "TOPP-RA found no timing for the path of the planner"
        ratio = duration / self.planned.duration
        longer = f", {1e3 * (duration - self.planned.duration):.0f} ms longer" if ratio > ALIKE else ""
        return f"{ratio:.3f} times the duration of TOPP-RA on the path of the planner{longer}"

    def solution_timing(self, solution: to.Solution) -> Timing | None:
        """Return the TOPP-RA timing of a solution's path."""
        q, _, _, times = motion_at(solution, self.model.nv, PLACES / float(solution.xs[-1, -1]))
        return time_optimal(q, times, path_limits(self.limits, self.model), GRID)
