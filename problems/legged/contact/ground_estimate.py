"""Ground estimate of a robot: a plane through the places of the last foot contacts.

Each foot has a place, which follows the foot with the rate e^(-(|v| / RESTS)^2) / HOLD: fast while the foot rests, not at all
while it swings.  The least-squares plane z = height + slope . (x, y) through the places is low-pass filtered with time constant
SETTLE. The ground ahead is unknown until a foot steps on it.

Speeds are in units of sqrt(g L), times of sqrt(L / g), for legs of length L.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from ..robot.stance import Stance

RESTS, HOLD, SETTLE = 0.06, 0.1, 0.5
STEEPEST = 0.5
"""Maximum slope of an estimate, rise over run."""
TIME_STEP = 1e-4
"""Time step [s] of the finite difference that gives foot velocities."""


class Plane(NamedTuple):
    """A plane z = height + slope . (x, y) [m]."""

    height: float
    slope: Array

    def at(self, places: Array) -> Array:
        """Return the heights (...) at places (..., 2) [m]."""
        return self.height + places @ self.slope


class GroundEstimate:
    """Ground estimate of a robot that starts on the plane z = 0. manifold: manifold of its state."""

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
        """Update the estimate with a state x (nx,), ``elapsed`` seconds after the last one."""
        at, moving = self._feet(x)
        stands = np.exp(-((np.linalg.norm(moving, axis=1) / (RESTS * self._speed)) ** 2))
        blend = 1.0 - np.exp(-stands * elapsed / (HOLD * self._time))
        self.places += blend[:, None] * (at - self.places)
        blend = 1.0 - np.exp(-elapsed / (SETTLE * self._time))
        found = plane_through(self.places)
        height, slope = self.plane
        self.plane = Plane(height + blend * (found.height - height), slope + blend * (found.slope - slope))

    def _feet(self, x: Array) -> tuple[Array, Array]:
        """Return positions and velocities (F, 3) of the feet."""
        nq = self._model.nq
        step = np.concatenate([TIME_STEP * x[nq:], np.zeros(len(x) - nq)])
        both = np.stack([x, np.asarray(self._manifold.integrate(x, step))], axis=1)
        at = np.stack(point_positions(self._model, both[:nq], self._points))
        return at[:, :, 0].copy(), (at[:, :, 1] - at[:, :, 0]) / TIME_STEP


def plane_through(places: Array) -> Plane:
    """Return the least-squares plane through places (F, 3), level along directions in which the places coincide."""
    middle = places.mean(axis=0)
    off = places - middle
    slope = np.clip(np.linalg.lstsq(off[:, :2], off[:, 2], rcond=1e-3)[0], -STEEPEST, STEEPEST)
    return Plane(float(middle[2] - slope @ middle[:2]), slope)
