"""Limits of a robot's joints that its gait is asked to keep: bounds on the torques, constraints on positions and velocities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.legged.robot.walker import LeggedRobot

REMOVED_BY = {
    "joint limits": "problem.position_limits = false",
    "velocity limits": "problem.velocity_limits = false",
}
"""Constraint -> the setting without it."""


class KeptLimits(NamedTuple):
    """constraints: on the state, at all knots. bounds: of the problem, u_lower and u_upper (nu,) [N m, N], or none."""

    constraints: tuple[to.Constraint, ...]
    bounds: Mapping[str, Any]

    @classmethod
    def of(cls, model: Model, s: LeggedRobot) -> KeptLimits:
        """Those that the settings ask for. Raises ValueError where the robot's file gives none of a kind."""
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
