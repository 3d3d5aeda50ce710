"""Robot arm of a task: its initial state, its goal state for a joint-space goal, and the frame to move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.robots import named_posture
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.free_body import FreeBody

Configuration = str | tuple[float, ...] | Mapping[str, float]
"""All of q (nq) [rad, m]; some joints by name with zero for the others; "zero"; or the name of a posture in the SRDF or MJCF
file."""


class Arm(NamedTuple):
    """A fixed-base robot, at rest at x0 (nx,), and at x_goal (nx,) if the goal is a configuration."""

    model: Model
    manifold: Manifold
    x0: Array
    x_goal: Array | None
    frame: str

    @classmethod
    def from_model(cls, model: Model, q0: Configuration, goal_q: Configuration | None, frame: str | None) -> Arm:
        """Create the arm. frame: default: the last link. The goal of a continuous joint is the equivalent angle nearest to q0.

        Raises UnknownName and ValueError for arguments that do not match the model.
        """
        frame = last_link(model) if frame is None else frame
        model.frame_id(frame)
        x0 = at_rest(model, q0, "q0")
        manifold, x_goal = FreeBody(model).manifold, None
        if goal_q is not None:
            x_goal = manifold.without_jumps(x0, at_rest(model, goal_q, "goal_q")[None])[0]
        return cls(model, manifold, x0, x_goal, frame)

    @property
    def q0(self) -> Array:
        """Initial configuration (nq,)."""
        return self.x0[: self.model.nq]

    def weight(self, q: Array | float = 0.0, v: Array | float = 0.0) -> Array:
        """Return weights (ndx,) of a state from joint position and velocity weights."""
        n = self.model.nv
        return np.concatenate([np.broadcast_to(q, (n,)), np.broadcast_to(v, (n,))])


def last_link(model: Model) -> str:
    """Return the last link of the last body: the tool of a serial arm."""
    return [f.name for f in model.frames if f.kind == "link" and f.body == model.nb - 1][-1]


def at_rest(model: Model, configuration: Configuration, key: str) -> Array:
    """Return the state (nx,) at rest in a configuration. key: name of the setting in errors."""
    if configuration == "zero":
        q = model.neutral()
    elif isinstance(configuration, str):
        q = _posture(model, configuration, key)
    elif isinstance(configuration, Mapping):
        q = _by_name(model, configuration)
    else:
        q = np.array(configuration, dtype=float)
    if q.shape != (model.nq,):
        joints = ", ".join(model.q_names)
        raise ValueError(f"{key} has {q.size} entries; {model.name} has nq = {model.nq}: {joints}")
    if not np.isfinite(q).all():
        bad = int(np.argmin(np.isfinite(q)))
        raise ValueError(f"{key} is {q[bad]} at {model.q_names[bad]}: give finite numbers")
    return np.concatenate([q, np.zeros(model.nv)])


def _posture(model: Model, name: str, key: str) -> Array:
    """Return a keyframe of the robot's MJCF file, or a group state of its SRDF file."""
    try:
        return named_posture(model, name)
    except FileNotFoundError as error:
        raise ValueError(f"{key} = {name!r} is neither 'zero' nor the name of a posture: {error}") from error


def with_springs(model: Model, q: Rows, tau: Rows) -> list[Scalar]:
    """Return the motor torques (nv) for the inverse-dynamics torques tau (nv) at q (nq): those plus stiffness (q - reference)."""
    found = [tau[i] for i in range(model.nv)]
    for d in np.flatnonzero(model.stiffness).tolist():
        place = q[int(model.q_index[model.dof_body[d]])]
        found[d] = found[d] + float(model.stiffness[d]) * (place - float(model.spring_reference[d]))
    return found


def _by_name(model: Model, values: Mapping[str, float]) -> Array:
    q = model.neutral()
    for name, value in values.items():
        if name not in model.q_names:
            raise unknown_name("joint coordinate", name, model.q_names)
        q[model.q_names.index(name)] = value
    return q


def holding_forces(model: Model, q: Array) -> Array:
    """Return the joint forces that hold q (nq,) or (N, nq) against gravity and joint springs."""
    still = np.zeros((*np.shape(q)[:-1], model.nv))
    return inverse_dynamics(model, q, still, still) - model.spring_forces(q)
