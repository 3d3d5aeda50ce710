"""Tangent directions of a state that are positions, and those of their velocities, for random variations of motions.

A direction j is the velocity of a direction i if xdot_i = x_j for all states and controls: a change of x_j by d changes xdot_i by
d, and no other change of the state or the controls does. All directions but velocities are positions. So are the first half of the
state (q, v) of a robot, or of a system that declares itself of second order; and all directions of a system without such pairs,
such as xdot = u or a car with given speed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, Map, innermost, is_second_order
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import parameters_at

STEP, EXACT = 1e-3, 1e-6
"""Change of an entry of the state or the controls, and largest relative error of the change of xdot."""
PROBES, SPREAD = 2, 0.3
"""Number of random states and controls at which pairs are tested, and their standard deviation about x0 and 0."""


class PositionDirections(NamedTuple):
    """Tangent directions: positions (P,), those of them that have velocities (V,), and these velocities (V,)."""

    positions: Array
    moving: Array
    velocities: Array


def position_directions(ocp: OCP) -> PositionDirections:
    """Return the directions of positions and velocities in the tangent of the state, without durations."""
    phase = next((phase for phase in ocp.phases if hasattr(phase.dynamics, "system")), None)
    dynamics: Any = None if phase is None else phase.dynamics
    map = None if phase is None else innermost(dynamics.system)
    n = ocp.manifold.ndx if map is None else map.manifold.ndx
    declared = map is not None and is_second_order(map) and n % 2 == 0
    if declared or (ocp.model is not None and n == 2 * ocp.model.nv):
        return PositionDirections(np.arange(n // 2), np.arange(n // 2), np.arange(n // 2, n))
    velocity_of = dict[int, int]()
    if phase is not None and map is not None:
        own = parameters_at(phase.parameters, 0)
        try:
            velocity_of = _velocities(map, ocp.x0[: map.manifold.nx], own)
        except Exception:  # a user's function refuses states near x0: nothing is known
            velocity_of = {}
    positions = [i for i in range(n) if i not in velocity_of.values()]
    if not positions:
        positions, velocity_of = [*range(n)], {}
    moving = [i for i in positions if i in velocity_of]
    return PositionDirections(*(np.array(a, dtype=int) for a in (positions, moving, [velocity_of[i] for i in moving])))


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
