"""Sprawling legs: legs whose joints cannot place the foot below the hip, but can place it at a given height.

The joints q of a leg near their rest position and within their limits, with the foot at height z*, solve

    min_q  ((z(q) - z*) / L)^2 + e |q - q_rest|^2,        with small e, so that the height is accurate to about e
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.config.task import position_of
from .legs import Leg

EASE = 1e-4
"""sqrt e."""
NEAR = 1e-3
"""Tolerance on the foot height, in leg lengths."""
INSIDE = 0.02
"""Distance of the initial joint positions from their limits [rad]."""


def at_height(bolted: Model, leg: Leg, height: float, rest: Array) -> Array | None:
    """Return the posture (nq,) of a fixed-base robot with the foot at a height [m], or None if it is out of reach."""
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
