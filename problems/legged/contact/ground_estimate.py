"""The ground under a robot as its feet have felt it: a plane through the places where they stood last.

A foot that hardly moves stands.  Its place follows it with the rate e^(-(|v| / RESTS)^2) / HOLD, so that feet in the air leave
theirs where it was; the plane z = height + slope . (x, y) of least squares through these places is followed within SETTLE.
Nothing is seen ahead: ground that rises is met by the foot that steps on it.

Speeds are in units of sqrt(g L), times of sqrt(L / g), for legs of length L.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from problems.legged.robot.stance import Stance

RESTS, HOLD, SETTLE = 0.06, 0.1, 0.5
STEEPEST = 0.5
"""The largest slope of an estimate, rise over run."""
AHEAD = 1e-4
"""[s] over which the motion of the feet is told from the velocity."""


class Plane(NamedTuple):
    """z = height + slope . (x, y) [m]."""

    height: float
    slope: Array

    def at(self, places: Array) -> Array:
        """Heights (...) under places (..., 2) [m]."""
        return self.height + places @ self.slope


class GroundEstimate:
    """The ground of a robot that starts on a plane z = 0. manifold: of its state."""

    def __init__(self, stance: Stance, manifold: Manifold, x0: Array) -> None:
        model = stance.model
        frames = [model.frames[model.frame_id(foot)] for foot in stance.feet]
        self._model, self._manifold = model, manifold
        self._points = [(frame.body, tuple(frame.p.tolist())) for frame in frames]
        g = float(np.linalg.norm(model.gravity))
        self._time, self._speed = float(np.sqrt(stance.leg_length / g)), float(np.sqrt(stance.leg_length * g))
        self.places = self._feet(x0)[0]
        self.places[:, 2] = 0.0
        self.plane = Plane(0.0, np.zeros(2))

    def observe(self, x: Array, elapsed: float) -> None:
        """Take in a state x (nx,), ``elapsed`` seconds after the last one."""
        at, moving = self._feet(x)
        stands = np.exp(-((np.linalg.norm(moving, axis=1) / (RESTS * self._speed)) ** 2))
        share = 1.0 - np.exp(-stands * elapsed / (HOLD * self._time))
        self.places += share[:, None] * (at - self.places)
        share = 1.0 - np.exp(-elapsed / (SETTLE * self._time))
        found = plane_through(self.places)
        height, slope = self.plane
        self.plane = Plane(height + share * (found.height - height), slope + share * (found.slope - slope))

    def _feet(self, x: Array) -> tuple[Array, Array]:
        """Positions and velocities (F, 3) of the feet."""
        nq = self._model.nq
        step = np.concatenate([AHEAD * x[nq:], np.zeros(len(x) - nq)])
        both = np.stack([x, np.asarray(self._manifold.integrate(x, step))], axis=1)
        at = np.stack(point_positions(self._model, both[:nq], self._points))
        return at[:, :, 0].copy(), (at[:, :, 1] - at[:, :, 0]) / AHEAD


def plane_through(places: Array) -> Plane:
    """The plane of least squares through places (F, 3), level across a direction in which they do not differ."""
    middle = places.mean(axis=0)
    off = places - middle
    slope = np.clip(np.linalg.lstsq(off[:, :2], off[:, 2], rcond=1e-3)[0], -STEEPEST, STEEPEST)
    return Plane(float(middle[2] - slope @ middle[:2]), slope)
