"""Optional joint limits of gaits: bounds on torques, constraints on positions and velocities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from .walker import LeggedRobot

REMOVED_BY = {
    "joint limits": "problem.position_limits = false",
    "velocity limits": "problem.velocity_limits = false",
}
"""Setting that removes each constraint."""


class EnforcedLimits(NamedTuple):
    """Enforced limits. constraints: on the state, at all knots. bounds: u_lower and u_upper (nu,) [N m, N], or empty."""

    constraints: tuple[to.Constraint, ...]
    bounds: Mapping[str, Any]

    @classmethod
    def from_settings(cls, model: Model, s: LeggedRobot) -> EnforcedLimits:
        """Return the limits that the settings enable. Raises ValueError if the robot's file has no such limits."""
        manifold, constraints = FreeBody(model).manifold, []
        if s.position_limits:
            constraints.append(to.joint_limits(model, manifold))
        if s.velocity_limits:
            constraints.append(to.velocity_limits(model, manifold))
        return cls(tuple(constraints), _torques(model) if s.torque_limits else {})


def _torques(model: Model) -> dict[str, Array]:
    limits = np.array(model.effort_limit[model.actuated])
    if not np.isfinite(limits).any():
        raise ValueError(f"torque_limits = true, but the file of {model.name} has no effort limits: remove the key")
    return {"u_lower": -limits, "u_upper": limits}
