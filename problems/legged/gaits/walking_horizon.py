"""Receding horizon of a walk with commanded speed, on ground estimated from foot contacts.

    ground    plane for contacts, slip and base height, from :mod:`~problems.legged.contact.ground_estimate`; the base's
              reference is parallel to it
    speed     reference v + RATE int (v - v_x) dt, with the measured v_x; the integral compensates errors due to other
              costs, slopes and loads

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
    """A :class:`~trajopt.replanning.plan.Following` horizon. height: base height above the ground [m]. speed: commanded [m/s]."""

    def __init__(self, ocp: OCP, stance: Stance, height: float, speed: float) -> None:
        self.ocp, self._height, self._speed, self._stance = ocp, height, speed, stance
        self.ground = GroundEstimate(stance, ocp.manifold, ocp.x0)
        g, length = float(np.linalg.norm(stance.model.gravity)), stance.leg_length
        self._rate, self._reach = RATE * float(np.sqrt(g / length)), REACH * float(np.sqrt(g * length))
        self.lacking = 0.0
        self._every = EVERY * float(np.sqrt(length / g))
        self._seen = self._known = 0.0, ocp.x0
        self._now = self._with_references()

    def observe(self, t: float, x: Array) -> None:
        """See :class:`~trajopt.replanning.plan.Following`."""
        self._seen = t, x

    def __call__(self, t: float) -> OCP:
        """See :class:`~trajopt.replanning.plan.Horizon`."""
        if self._seen[0] >= self._known[0] + self._every:
            self._use_observation(*self._seen)
            self._now = self._with_references()
        return self._now

    def _use_observation(self, t: float, x: Array) -> None:
        elapsed, self._known = t - self._known[0], (t, x)
        self.ground.observe(x, elapsed)
        R, nq = rotation(x), self._stance.model.nq
        forward_speed = sum(R[0][i] * x[nq + i] for i in range(3))
        lacking = self.lacking + self._rate * elapsed * (self._speed - float(forward_speed))
        self.lacking = float(np.clip(lacking, -self._reach, self._reach))

    def _with_references(self) -> OCP:
        """Return the problem with the current ground estimate and speed."""
        (height, slope), x, ocp = self.ground.plane, self._known[1], self.ocp
        speed = self._speed + self.lacking
        positions = x[:2] + np.outer(ocp.times, [speed, 0.0])
        heights = self.ground.plane.at(positions) + self._height
        attitude = (np.arctan(slope[1]), -np.arctan(slope[0]), -self._stance.heading)
        base = {
            "position": np.stack([np.zeros_like(heights), np.zeros_like(heights), heights], axis=1),
            "attitude": np.array(attitude),
            "velocity": np.array([speed, 0.0, speed * slope[0]]),
        }
        (phase,) = ocp.phases
        final = {**base, "position": base["position"][-1]}
        given = {"base": {**base, "position": base["position"][:-1]}, "slip": {"ground": np.array([height, *slope])}}
        terms = tuple(term.updated(**given[term.name]) if term.name in given else term for term in phase.terms)
        terminal = tuple(term.updated(**final) if term.name == "base" else term for term in ocp.terminal)
        parameters = {
            "ground_height": _repeated_by_knot(height, phase.knots),
            "ground_slope": _repeated_by_knot(slope, phase.knots),
        }
        return replace(ocp, phases=(replace(phase, terms=terms, parameters=parameters),), terminal=terminal)


def _repeated_by_knot(value: Array | float, knots: int) -> Array:
    """Repeat a value for all knots, (N, n)."""
    return np.tile(np.atleast_1d(value), (knots, 1))
