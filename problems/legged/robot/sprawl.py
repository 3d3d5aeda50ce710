"""Legs that sprawl: that have not the joints to put a foot under its hip, but can put it at a height beside it.

The joints q of a leg, near to where they rest and within their limits, with the foot at the height z*:

    min_q  ((z(q) - z*) / L)^2 + e |q - q_rest|^2,        e small, so that the height holds to about e
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from problems.legged.robot.legs import Leg
from trajopt.config.task import position_of

EASE = 1e-4
"""sqrt e."""
NEAR = 1e-3
"""Tolerance on the height, in leg lengths."""
INSIDE = 0.02
"""Starts are so far [rad] within the limits."""


def at_height(bolted: Model, leg: Leg, height: float, rest: Array) -> Array | None:
    """The posture (nq,) of a robot on a fixed base with the foot at a height [m]; None where the leg does not get there."""
    from scipy.optimize import least_squares

    own = list(leg.joints)
    lower, upper = bolted.q_lower[own], bolted.q_upper[own]
    start = np.clip(rest[own], np.minimum(lower + INSIDE, upper), np.maximum(upper - INSIDE, lower))

    def posture(q: Array) -> Array:
        moved = np.array(rest)
        moved[own] = q
        return moved

    def residual(q: Array) -> Array:
        z = float(position_of(bolted, leg.foot, posture(q))[2])
        return np.append(EASE * (q - start), (z - height) / leg.length)

    found = least_squares(residual, start, bounds=(lower, upper))
    return posture(found.x) if abs(found.fun[-1]) < NEAR else None
