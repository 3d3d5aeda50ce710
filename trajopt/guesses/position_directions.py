"""Tangent directions of a state that are positions, and those of their velocities, for random variations of motions.

A direction i is a position and j its velocity if xdot_i = xdot_j's own component of the state for all states and controls: a
change of x_j by d changes xdot_i by d, and no other change of the state or the controls does. The first half of the state (q, v) of
a robot, or of a system that declares itself of second order, are positions. A system without such pairs, such as xdot = u or a car,
has positions only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, Map, innermost, is_second_order
from trajopt.problem.ocp import OCP

STEP, EXACT = 1e-3, 1e-6
"""Change of an entry of the state or the controls, and largest relative error of the change of xdot."""
PROBES, SPREAD = 2, 0.3
"""Number of random states and controls at which pairs are tested, and their standard deviation about x0 and 0."""


class PositionDirections(NamedTuple):
    """Tangent directions of positions (P,), and of their velocities (P,), or none (0,) if they do not follow from positions."""

    positions: Array
    velocities: Array


def position_directions(ocp: OCP) -> PositionDirections:
    """Return the directions of positions and velocities in the tangent of the state, without durations."""
    phase = next((phase for phase in ocp.phases if hasattr(phase.dynamics, "system")), None)
    dynamics: Any = None if phase is None else phase.dynamics
    map = None if phase is None else innermost(dynamics.system)
    n = ocp.manifold.ndx if map is None else map.manifold.ndx
    declared = map is not None and is_second_order(map) and n % 2 == 0
    if declared or (ocp.model is not None and n == 2 * ocp.model.nv):
        return PositionDirections(np.arange(n // 2), np.arange(n // 2, n))
    if phase is None or map is None:
        return PositionDirections(np.arange(n), np.arange(0))
    own = {key: value[0] if value.ndim == 2 else value for key, value in phase.parameters.items()}
    try:
        velocity_of = _velocities(map, ocp.x0[: map.manifold.nx], own)
    except Exception:  # a user's function refuses states near x0: nothing is known
        velocity_of = {}
    positions = np.array([i for i in velocity_of if i not in velocity_of.values()], dtype=int)
    if not len(positions):
        return PositionDirections(np.arange(n), positions)
    return PositionDirections(positions, np.array([velocity_of[i] for i in positions]))


def _velocities(map: Map, x0: Array, parameters: dict[str, Array]) -> dict[int, int]:
    """Return the direction of the velocity of each direction that has one, by differences of xdot at random points near x0."""
    n, rng = map.manifold.ndx, np.random.default_rng(0)
    unit, found = np.eye(n, n + map.nu), np.ones((n, n), dtype=bool)
    for _ in range(PROBES):
        away, u = SPREAD * rng.standard_normal(n), SPREAD * rng.standard_normal(map.nu)
        moves = STEP * np.vstack([np.zeros((1, n + map.nu)), np.eye(n + map.nu)])
        base = map.manifold.integrate(x0[:, None], away[:, None])
        x = map.manifold.integrate(np.repeat(base, len(moves), axis=1), moves[:, :n].T)
        b = Batch.of(map, np.ascontiguousarray(x.T), u + moves[:, n:], 0.0, parameters)
        with np.errstate(all="ignore"):
            xdot = np.array([np.broadcast_to(row, len(moves)) for row in map(b.x, b.u, b.t, b.p)], dtype=float)
            change = (xdot[:, 1:] - xdot[:, :1]) / STEP
            found &= np.array([[np.abs(row - unit[j]).max() <= EXACT for j in range(n)] for row in change])
    return {int(i): int(j) for i, j in np.argwhere(found) if i != j}
