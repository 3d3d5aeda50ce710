"""Dynamics of this project as a plant, with its own time steps and unplanned forces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import DiscreteMap
from trajopt.replanning.arguments import delay_seconds, positive_seconds, seconds, vector
from trajopt.replanning.simulator import Simulator
from trajopt.replanning.workers import SAME_TIME, steps_of


class Push(NamedTuple):
    """Disturbance of a plant: ``force`` is added to its inputs from ``start`` [s] on for ``duration`` [s].

    force: (nf,) in the units of the inputs of a :class:`SampledPlant`; (nv,) [N, N m] for a :class:`~trajopt.MujocoPlant`.
    """

    start: float
    duration: float
    force: Array


def checked_pushes(pushes: Sequence[Push], size: int) -> tuple[Push, ...]:
    """Return the pushes of a plant. Raises ValueError for a force that is not (size,), and for times that are no numbers."""
    for push in pushes:
        seconds("start of a push", push.start), delay_seconds("duration of a push", push.duration)
        vector("force of a push", push.force, (size,), "(nf,)")
    return tuple(pushes)


def checked_limit(limit: Array | float, nu: int) -> Array:
    """Return the largest magnitude of the controls as an array. Raises ValueError unless it is a number of at least 0, or (nu,)."""
    limits = np.array(limit, dtype=float)
    if limits.shape not in ((), (nu,)) or not (limits >= 0.0).all():
        raise ValueError(f"limit = {limit}; expected a number of at least 0, or (nu = {nu},) of them")
    return limits


def pushed(pushes: Sequence[Push], t: float, size: int) -> Array:
    """Sum (size,) of the forces of the pushes that act at t [s]."""
    total = np.zeros(size)
    for push in pushes:
        if push.start <= t + SAME_TIME < push.start + push.duration:
            total += push.force
    return total


class SampledPlant:
    """Plant with the dynamics of a discrete map, in time steps of at most ``step`` [s].

    x0 (nx,): initial state. forces: (nf, nu) maps the controls u (nu,) of the plan to the inputs (nf,) of the map, default the
    identity; pushes are added to these. limit: largest magnitude of the controls, a number or (nu,). parameters: of the map.

    Raises ValueError for a step that is not positive, and for arguments of other shapes.
    """

    def __init__(
        self,
        dynamics: DiscreteMap,
        x0: Array,
        step: float,
        *,
        forces: Array | None = None,
        pushes: Sequence[Push] = (),
        limit: Array | float = np.inf,
        parameters: Mapping[str, Array] | None = None,
    ) -> None:
        nx, nu = dynamics.manifold.nx, dynamics.nu
        self._simulator, self._x = Simulator(dynamics, parameters), vector("x0", x0, (nx,), "(nx,)")
        self._step = positive_seconds("step", step)
        self._forces = np.eye(nu) if forces is None else np.asarray(forces, dtype=float)
        if self._forces.ndim != 2 or len(self._forces) != nu:
            raise ValueError(
                f"forces has shape {self._forces.shape}; expected (nf, nu), with nf = {nu} inputs of the map"
            )
        self._pushes, self._limit = checked_pushes(pushes, nu), checked_limit(limit, self._forces.shape[1])
        self._time = 0.0

    def state(self) -> Array:
        """True state (nx,)."""
        return self._x

    def step(self, u: Array, dt: float) -> None:
        """Advance by dt [s] under the constant control u (nu,), clipped to its limit, and the pushes at each time step.

        Raises ValueError for a control that is not finite.
        """
        if not np.isfinite(u).all():
            raise ValueError(f"a control is not finite: {u}")
        count = steps_of(dt, self._step)
        force = self._forces @ np.clip(u, -self._limit, self._limit)
        times = self._time + dt * np.arange(count) / count
        inputs = np.array([force + pushed(self._pushes, t, len(force)) for t in times])
        self._x = self._simulator.advance(self._x, inputs, dt / count, t=self._time)
        self._time += dt
