"""Heights of contact points above the ground, and warnings about them in the initial state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dynamics_backends.protocol import Array, Parameters
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.contact.contact_points import Point
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.systems.contact.ground_surface import Ground

MAX_DEPTH, MAX_HEIGHT = 0.02, 0.05
"""Depth below the ground and height above it [m] from which an initial state causes a warning."""


def contact_gaps(model: Model, points: Sequence[Point], ground: Ground, x: Array, p: Parameters) -> dict[str, float]:
    """Heights [m] of points above the ground at a state x (nx,), by name; p: name -> (n,)."""
    q = np.asarray(x, dtype=float)[: model.nq, None]
    places = point_positions(model, q, [(point.body, point.at) for point in points])
    rows = {name: np.atleast_1d(value)[:, None] for name, value in p.items()}
    return {
        point.name: float(np.squeeze(ground.surface(Vec(*place), rows).gap))
        for point, place in zip(points, places, strict=True)
    }


def gap_warnings(gaps: Mapping[str, float]) -> Iterator[str]:
    """Warnings about an initial state with these gaps."""
    lowest = min(gaps, key=lambda name: gaps[name])
    if gaps[lowest] < -MAX_DEPTH:
        yield (
            f"x0 has {lowest} {100 * -gaps[lowest]:.2g} cm below the ground: the contact force will throw the robot up; "
            "raise its base by this amount"
        )
    if gaps[lowest] > MAX_HEIGHT:
        yield (
            f"all contact points of x0 are above the ground, the lowest is {lowest} at {100 * gaps[lowest]:.2g} cm: the motion "
            "starts with a fall; lower the base if the robot should stand"
        )
