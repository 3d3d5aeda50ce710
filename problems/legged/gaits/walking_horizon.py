"""Receding horizon of a walk with commanded velocity, on ground estimated from foot contacts.

    ground    plane for contacts, slip and base height, from :mod:`~problems.legged.contact.ground_estimate`; the base's
              reference is parallel to it
    velocity  reference v + d RATE int (|v| - d . v_measured) dt in the direction d of the commanded velocity v; the integral
              compensates errors due to other costs, slopes and loads
    heading   turns at the commanded rate, and the velocity with it

The integral is limited to REACH. Ground and speed are updated after EVERY.  Rates are in units of sqrt(g / L), speeds of
sqrt(g L), times of sqrt(L / g), for legs of length L.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import OCP
from ..contact.ground_estimate import GroundEstimate
from ..robot.base_state import rotation
from ..robot.stance import Stance

RATE, REACH, EVERY = 0.15, 0.1, 0.07
FLAT: Mapping[str, Array] = {"ground_height": np.zeros(1), "ground_slope": np.zeros(2)}
"""Parameters of the dynamics on level ground at height 0."""


class WalkingHorizon:
    """A :class:`~trajopt.replanning.plan.Following` horizon. height: base height above the ground [m]. speed: commanded [m/s].

    The walk begins along x of the world; :meth:`command` changes the velocity.
    """

    def __init__(self, ocp: OCP, stance: Stance, height: float, speed: float) -> None:
        self.ocp, self._height, self._stance = ocp, height, stance
        self._velocity, self._turn, self.heading = np.array([speed, 0.0]), 0.0, 0.0
        self.ground = GroundEstimate(stance, ocp.manifold, ocp.x0)
        g, length = float(np.linalg.norm(stance.model.gravity)), stance.leg_length
        self._rate, self._reach = RATE * float(np.sqrt(g / length)), REACH * float(np.sqrt(g * length))
        self.lacking = 0.0
        self._every = EVERY * float(np.sqrt(length / g))
        self._seen: tuple[float, Array] | None = None
        self._known = 0.0, ocp.x0
        self._now = self._with_references()

    def command(self, speed: float, sideways: float = 0.0, turn: float = 0.0) -> None:
        """Command the speed along the heading and to its left [m/s], and the rate of the heading [rad/s], for the next problems."""
        self._velocity, self._turn = np.array([speed, sideways]), turn

    def observe(self, t: float, x: Array) -> None:
        """See :class:`~trajopt.replanning.plan.Following`."""
        if self._seen is None:
            self._known = t, self.ocp.x0
        self._seen = t, x

    def __call__(self, t: float) -> OCP:
        """See :class:`~trajopt.replanning.plan.Horizon`."""
        if self._seen is not None and self._seen[0] >= self._known[0] + self._every:
            self._use_observation(*self._seen)
            self._now = self._with_references()
        return self._now

    def _use_observation(self, t: float, x: Array) -> None:
        elapsed, self._known = t - self._known[0], (t, x)
        self.ground.observe(x, elapsed)
        R: Array = np.array(rotation(x))
        nq = self._stance.model.nq
        speed = self._direction @ _turned(R[:2] @ x[nq : nq + 3], -self.heading)
        lacking = self.lacking + self._rate * elapsed * float(np.linalg.norm(self._velocity) - speed)
        self.lacking = float(np.clip(lacking, -self._reach, self._reach))
        self.heading += self._turn * elapsed

    @property
    def _direction(self) -> Array:
        """Direction (2,) of the commanded velocity relative to the heading, which is forward at rest."""
        speed = float(np.linalg.norm(self._velocity))
        return self._velocity / speed if speed else np.array([1.0, 0.0])

    def _with_references(self) -> OCP:
        """Return the problem with the current ground estimate and velocity."""
        (height, slope), x, ocp = self.ground.plane, self._known[1], self.ocp
        headings = self.heading + self._turn * ocp.times
        velocity = _turned(self._velocity + self.lacking * self._direction, headings)
        positions = x[:2] + np.concatenate(
            [np.zeros((1, 2)), np.cumsum(np.diff(ocp.times)[:, None] * velocity[:-1], axis=0)]
        )
        heights = self.ground.plane.at(positions) + self._height
        tilt = np.tile([np.arctan(slope[1]), -np.arctan(slope[0])], (len(headings), 1))
        base = {
            "position": np.stack([np.zeros_like(heights), np.zeros_like(heights), heights], axis=1),
            "attitude": np.column_stack([tilt, headings - self._stance.heading]),
            "velocity": np.column_stack([velocity, velocity @ slope]),
        }
        (phase,) = ocp.phases
        final = {key: rows[-1] for key, rows in base.items()}
        given = {"base": {key: rows[:-1] for key, rows in base.items()}, "slip": {"ground": np.array([height, *slope])}}
        terms = tuple(term.updated(**given[term.name]) if term.name in given else term for term in phase.terms)
        terminal = tuple(term.updated(**final) if term.name == "base" else term for term in ocp.terminal)
        parameters = {
            "ground_height": _repeated_by_knot(height, phase.knots),
            "ground_slope": _repeated_by_knot(slope, phase.knots),
        }
        return replace(ocp, phases=(replace(phase, terms=terms, parameters=parameters),), terminal=terminal)


def _turned(v: Array, angle: Array | float) -> Array:
    """Rotate a vector v (2,) by angles (N,) or a number [rad], to (N, 2) or (2,)."""
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * v[0] - s * v[1], s * v[0] + c * v[1]], axis=-1)


def _repeated_by_knot(value: Array | float, knots: int) -> Array:
    """Repeat a value for all knots, (N, n)."""
    return np.tile(np.atleast_1d(value), (knots, 1))
