"""The robot of a task: its state at the start and, for a goal in joint space, at the goal; the frame that is to be moved."""

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
from dynamics_backends.systems.bodies.free_body import FreeBody

Configuration = str | tuple[float, ...] | Mapping[str, float]
"""All of q (nq) [rad, m], some joints by name and the others zero, "zero", or the name of a posture of the robot's SRDF or MJCF."""


class Arm(NamedTuple):
    """A robot bolted to the ground, at rest at x0 (nx,), and at x_goal (nx,) where the goal is a configuration."""

    model: Model
    manifold: Manifold
    x0: Array
    x_goal: Array | None
    frame: str

    @classmethod
    def of(cls, model: Model, q0: Configuration, goal_q: Configuration | None, frame: str | None) -> Arm:
        """frame: default the last link. The goal of a circular joint is taken at the turn that is nearest to q0.

        Raises UnknownName and ValueError for what does not fit the model.
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
        """(nq,) at the start."""
        return self.x0[: self.model.nq]

    def weight(self, q: Array | float = 0.0, v: Array | float = 0.0) -> Array:
        """The weight (ndx,) of a state."""
        n = self.model.nv
        return np.concatenate([np.broadcast_to(q, (n,)), np.broadcast_to(v, (n,))])


def last_link(model: Model) -> str:
    """The last link of the last body: the tool of a serial arm."""
    return [f.name for f in model.frames if f.kind == "link" and f.body == model.nb - 1][-1]


def at_rest(model: Model, configuration: Configuration, key: str) -> Array:
    """The state (nx,) of a configuration. key: what it is called in errors."""
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
    """A keyframe of the robot's MJCF, or a reference posture of the SRDF that belongs to its URDF."""
    try:
        return named_posture(model, name)
    except FileNotFoundError as error:
        raise ValueError(f"{key} = {name!r} is neither 'zero' nor the name of a posture: {error}") from error


def _by_name(model: Model, values: Mapping[str, float]) -> Array:
    q = model.neutral()
    for name, value in values.items():
        if name not in model.q_names:
            raise unknown_name("joint coordinate", name, model.q_names)
        q[model.q_names.index(name)] = value
    return q


def holding_forces(model: Model, q: Array) -> Array:
    """The joint forces that hold q (nq,) or (N, nq) against gravity."""
    still = np.zeros((*np.shape(q)[:-1], model.nv))
    return inverse_dynamics(model, q, still, still)
