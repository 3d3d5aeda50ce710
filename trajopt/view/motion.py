"""What is shown of a solution: where the bodies are at each time, and what is drawn beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import center_of_mass, point_positions
from dynamics_backends.rigid_body.geometry.scene import Body
from dynamics_backends.rigid_body.geometry.shapes import HalfSpace, Sphere
from dynamics_backends.rigid_body.model.model import Model

LEVEL = 0.999
"""The cosine of the slope below which a half-space is a floor."""
ARROW = 0.6
"""Length [m] of an arrow as strong as the robot's weight."""
ROUND = 2.0
"""How far a picture reaches around the robots for what stands beside them, in extents of the robots: a wide table is cut there."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A robot that moves. times (M,) [s], q (M, nq). name: unique among those shown together.

    forces: by name of a frame, world forces (M, 3) [N] that act there. tracks: frames whose paths are drawn.
    opacity: below 1 for ghosts. Raises ValueError for shapes that do not fit.
    """

    name: str
    model: Model
    times: Array
    q: Array
    forces: Mapping[str, Array] = field(default_factory=dict)
    tracks: tuple[str, ...] = ()
    opacity: float = 1.0

    def __post_init__(self) -> None:
        expected = (len(self.times), self.model.nq)
        if np.shape(self.q) != expected or not len(self.times):
            raise ValueError(f"the motion {self.name!r} has q of shape {np.shape(self.q)}; expected {expected}")

    def at(self, times: Array) -> Motion:
        """The motion at other times (T,) [s]: joints as they are between knots on the geodesic, forces held."""
        index = np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, max(len(self.times) - 2, 0))
        after = np.minimum(index + 1, len(self.times) - 1)
        span = np.maximum(self.times[after] - self.times[index], 1e-12)
        share = np.clip((times - self.times[index]) / span, 0.0, 1.0)
        manifold = _configurations(self.model)
        a, b = self.q[index].T, self.q[after].T
        q = manifold.integrate(a, share * manifold.difference(a, b)).T
        held = {name: values[np.minimum(index, len(values) - 1)] for name, values in self.forces.items()}
        return Motion(self.name, self.model, times, q, held, self.tracks, self.opacity)


def _configurations(model: Model) -> Manifold:
    from dynamics_backends.rigid_body.model.state import configuration_manifold

    return configuration_manifold(model)


class Poses(NamedTuple):
    """World from body: R (M, nb, 3, 3), p (M, nb, 3) [m]."""

    R: Array
    p: Array


def body_poses(model: Model, q: Array) -> Poses:
    """The poses of all bodies at configurations q (M, nq), by one recursion."""
    corners = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    points = [(body, corner) for body in range(model.nb) for corner in corners]
    found = np.stack([p.T for p in point_positions(model, np.ascontiguousarray(q.T), points)], axis=1)
    found = found.reshape(len(q), model.nb, 4, 3)
    p = found[:, :, 0]
    return Poses((found[:, :, 1:] - p[:, :, None]).transpose(0, 1, 3, 2), p)


def paths(motion: Motion) -> dict[str, Array]:
    """Name -> positions (M, 3) [m]: of the center of mass of a robot that is not bolted down, and of the tracked frames."""
    model, q = motion.model, np.ascontiguousarray(motion.q.T)
    found: dict[str, Array] = {}
    if model.floating_base:
        found["center of mass"] = np.asarray(center_of_mass(model, q)).T
    return found | _positions(motion, motion.tracks)


def _positions(motion: Motion, names: Sequence[str]) -> dict[str, Array]:
    """Name -> positions (M, 3) [m] of those frames that can move."""
    model = motion.model
    frames = [(name, model.frames[model.frame_id(name)]) for name in names]
    moving = [(name, frame) for name, frame in frames if frame.body >= 0]
    if not moving:
        return {}
    at = point_positions(model, np.ascontiguousarray(motion.q.T), [(f.body, f.p.tolist()) for _, f in moving])
    return {name: p.T for (name, _), p in zip(moving, at, strict=True)}


def force_arrows(motion: Motion) -> dict[str, tuple[Array, Array]]:
    """Name of a frame -> where its force acts (M, 3) [m], and its arrow (M, 3) [m]."""
    at = _positions(motion, tuple(motion.forces))
    weight = max(motion.model.total_mass * float(np.linalg.norm(motion.model.gravity)), 1e-9)
    held = {
        name: force[np.minimum(np.arange(len(motion.times)), len(force) - 1)] for name, force in motion.forces.items()
    }
    return {name: (p, held[name] * (ARROW / weight)) for name, p in at.items()}


@dataclass(frozen=True, eq=False)
class Marks:
    """What stands beside the robots.

    goals: points (3,) [m]. spheres: (center (3,), radius) [m]. bodies: of a scene, ``Body(name, Box(size), R, p, way)``; they may
    move, along a :class:`~trajopt.Way`. targets: goals that move, likewise. curves: lines through points (M, 3) [m], by name: what
    a tool is to follow.
    """

    goals: Sequence[Array] = ()
    spheres: Sequence[tuple[Array, float]] = ()
    bodies: Sequence[Body] = ()
    targets: Sequence[Body] = ()
    curves: Mapping[str, Array] = field(default_factory=dict)

    @property
    def floor(self) -> Body | None:
        """The body that is a level floor: the ground's grid is drawn on it, in its place."""
        return next((body for body in self.bodies if _is_floor(body)), None)

    @property
    def solids(self) -> tuple[Body, ...]:
        """The bodies that are drawn as they are."""
        return tuple(body for body in self.bodies if not _is_floor(body))

    def corners(self) -> Array:
        """Points (k, 3) [m] between which goals, curves, spheres and bodies lie, wherever these move; half-spaces have none."""
        found = [np.zeros((0, 3)), *(np.reshape(goal, (1, 3)) for goal in self.goals), *self.curves.values()]
        found += [Sphere(r).triangles()[0] + c for c, r in self.spheres]
        for body in (*self.solids, *self.targets):
            if not isinstance(body.shape, HalfSpace):
                offsets = np.zeros((1, 3)) if body.way is None else np.asarray(body.way.offsets)
                ends = np.array(list(product(*zip(offsets.min(axis=0), offsets.max(axis=0), strict=True))))
                found += [body.shape.triangles()[0] @ body.R.T + (body.p + end) for end in np.unique(ends, axis=0)]
        return np.concatenate(found)


def with_marks(low: Array, high: Array, marks: Marks, margin: float, axes: Array | None = None) -> tuple[Array, Array]:
    """Bounds (n), (n) [m] along axes (n, 3), the world's by default, widened for marks by a margin [m] at most."""
    at = marks.corners() @ (np.eye(3) if axes is None else axes).T
    at = np.clip(np.vstack([low, high, at]), low - margin, high + margin)
    return at.min(axis=0), at.max(axis=0)


def _is_floor(body: Body) -> bool:
    return isinstance(body.shape, HalfSpace) and body.way is None and bool(body.R[2, 2] > LEVEL)
