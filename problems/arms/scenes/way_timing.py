"""How fast a way can be passed at best: that of the planner, and that of a motion that was found.

A motion that takes longer than TOPP-RA (:mod:`trajopt.guesses.time_optimal`) on the planner's way is in a bad corner. One that
takes longer than TOPP-RA on its own way is no local optimum of the problem, but of the pairs and the tube that it was solved
with. In both cases the timing is a better start. Without the package toppra nothing is known of either."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from problems.arms.scenes.in_scene import Limits, motion_at
from problems.arms.scenes.joint_torques import torques_of
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.guesses.time_optimal import PathLimits, Timing, floor_of, on_spline, time_optimal

SETS = (16, 32, 64, 128, 256)
"""Points of the planner's way through which a spline is laid, until it is free."""
LOOKS = 1000
"""Places at which that is checked."""
ALIKE = 1.001
"""Durations up to this share of another one are as long as that."""
PLACES, GRID = 240, 240
"""Points of a motion, and intervals between which limits hold, that tell how fast its way can be passed."""


def path_limits(limits: Limits, model: Model) -> PathLimits:
    """The limits along a path."""
    return PathLimits(limits.velocity, limits.acceleration, limits.torque, partial(torques_of, model))


def planned_timing(way: Array, limits: Limits, model: Model, check: MeshCheck | None) -> Timing | None:
    """TOPP-RA on a spline through enough points of the planner's way (K, n) to be free; None where that is not found."""
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(way, axis=0), axis=1))])
    for count in SETS:
        s = np.unique(np.concatenate([along, np.linspace(0.0, along[-1], count)]))
        points = np.stack([np.interp(s, along, column) for column in way.T], axis=1)
        if check is None or check.is_clear(on_spline(points, s, LOOKS)):
            return time_optimal(points, s, path_limits(limits, model))
    return None


@dataclass(frozen=True, eq=False)
class WayTiming:
    """way: corners (K, n) of the planner's."""

    model: Model
    limits: Limits
    check: MeshCheck | None
    way: Array

    @cached_property
    def floor(self) -> float:
        """A time [s] that no motion along the planner's way falls below."""
        return floor_of(self.way, self.limits.velocity, self.limits.acceleration)

    @cached_property
    def planned(self) -> Timing | None:
        """TOPP-RA on the planner's way."""
        return planned_timing(self.way, self.limits, self.model, self.check)

    def faster_than(self, duration: float) -> Timing | None:
        """TOPP-RA on the planner's way, where that takes less than a duration [s]."""
        if duration <= self.floor or self.planned is None or self.planned.duration >= duration:
            return None
        return self.planned

    def compared(self, duration: float) -> str:
        """A sentence on a duration [s] beside the planner's way."""
        if duration <= self.floor:
            return f"at most {duration / self.floor:.3f} times the duration of TOPP-RA on the path of the planner"
        if self.planned is None:
            return "TOPP-RA found no timing for the path of the planner"
        share = duration / self.planned.duration
        longer = f", {1e3 * (duration - self.planned.duration):.0f} ms longer" if share > ALIKE else ""
        return f"{share:.3f} times the duration of TOPP-RA on the path of the planner{longer}"

    def own(self, solution: to.Solution) -> Timing | None:
        """TOPP-RA on the way of a motion."""
        q, _, _, times = motion_at(solution, self.model.nv, PLACES / float(solution.xs[-1, -1]))
        return time_optimal(q, times, path_limits(self.limits, self.model), GRID)
