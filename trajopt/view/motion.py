"""Motions for the viewer: of a robot, or of the shapes of a system without a robot model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import center_of_mass, point_positions
from dynamics_backends.rigid_body.model.model import STANDARD_GRAVITY, Model
from dynamics_backends.rigid_body.model.state import configuration_manifold
from trajopt.collisions.poses import body_poses
from trajopt.problem.annotations import Annotations, Drawn
from trajopt.view.surfaces import GRAY, Appearance, Geometry, Surface, appearance

ARROW = 0.6
"""Length of a force arrow [m] for a force equal to the robot's weight."""
ROUND = 2.0
"""Maximum margin around the robots for objects beside them, in extents of the robots; larger objects are cropped."""


@dataclass(frozen=True, eq=False)
class Motion:
    """Motion of a robot. times (M,) [s], q (M, nq). name: unique among the motions shown together.

    forces: by frame name, world forces (M, 3) [N] at the frame; of fewer rows, the last one is repeated. tracks: frames whose paths
    are drawn. opacity: below 1 for ghosts. Raises ValueError for a q of wrong shape and without times.
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

    @property
    def title(self) -> str:
        """Name of the robot."""
        return self.model.name

    @property
    def gravity(self) -> Array:
        """Gravity (3,) [m/s^2] in the world."""
        return self.model.gravity

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the bodies, in the order of the poses."""
        return tuple(self.model.body_names)

    @property
    def shape_key(self) -> int:
        """Key that is equal for motions of the same model object, which have the same surfaces."""
        return id(self.model)

    def appearance(self, geometry: Geometry) -> Appearance:
        """Return the surfaces of the robot: visual shapes, collision shapes or capsules."""
        return appearance(self.model, geometry)

    def poses(self) -> Poses:
        """Return the poses of the bodies at each time."""
        poses, (M, nb) = body_poses(self.model, self.q), (len(self.q), self.model.nb)
        R, p = (np.array([poses[b][i] for b in range(nb)]) for i in (0, 1))
        return Poses(R.reshape(nb, M, 3, 3).swapaxes(0, 1), p.reshape(nb, M, 3).swapaxes(0, 1))

    def points(self) -> Array:
        """Return positions (k, 3) [m] in the world of the origins of all bodies and of all movable frames, at all times."""
        poses = self.poses()
        frames = [poses.p[:, f.body] + poses.R[:, f.body] @ f.p for f in self.model.frames if f.body >= 0]
        return np.concatenate([poses.p.reshape(-1, 3), *frames])

    def paths(self) -> dict[str, Array]:
        """Return the paths to draw, positions (M, 3) [m] by name: center of mass of a robot with floating base, and tracked frames.

        Frames fixed to the world are omitted. Raises UnknownName for an unknown frame.
        """
        q = np.ascontiguousarray(self.q.T)
        found: dict[str, Array] = {}
        if self.model.floating_base:
            found["center of mass"] = np.asarray(center_of_mass(self.model, q)).T
        return found | _positions(self, self.tracks)

    def force_arrows(self) -> dict[str, tuple[Array, Array]]:
        """Return, by frame name, the points of attack (M, 3) [m] of the forces and their arrows (M, 3) [m].

        A force equal to the robot's weight has an arrow of length ARROW. Forces on frames fixed to the world are omitted.
        """
        at = _positions(self, tuple(self.forces))
        weight = max(self.model.total_mass * float(np.linalg.norm(self.model.gravity)), 1e-9)
        held = {
            name: force[np.minimum(np.arange(len(self.times)), len(force) - 1)] for name, force in self.forces.items()
        }
        return {name: (p, held[name] * (ARROW / weight)) for name, p in at.items()}

    def at(self, times: Array) -> Motion:
        """Resample to times (T,) [s]: joints along the geodesic between knots, forces of the knot at which a time step begins.

        Both are constant outside of the motion. The forces at the last of several knots are not used.
        """
        index = np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, max(len(self.times) - 2, 0))
        after = np.minimum(index + 1, len(self.times) - 1)
        span = np.maximum(self.times[after] - self.times[index], 1e-12)
        fraction = np.clip((times - self.times[index]) / span, 0.0, 1.0)
        manifold = configuration_manifold(self.model)
        a, b = self.q[index].T, self.q[after].T
        q = manifold.integrate(a, fraction * manifold.difference(a, b)).T
        held = {name: values[np.minimum(index, len(values) - 1)] for name, values in self.forces.items()}
        return Motion(self.name, self.model, times, q, held, self.tracks, self.opacity)


@dataclass(frozen=True, eq=False)
class ShapeMotion:
    """Motion of shapes, for a system without a robot model. times (M,) [s]; drawn: bodies with a pose at each time. name: unique
    among the motions shown together. title: name of the problem. tracks: bodies whose paths are drawn. opacity: below 1 for
    ghosts. gravity (3,) [m/s^2]: selects the direction of view.

    Raises ValueError without times, or if the number of poses differs from that of times; UnknownName for an unknown body in
    ``tracks``.
    """

    name: str
    drawn: Drawn
    times: Array
    title: str = "motion"
    tracks: tuple[str, ...] = ()
    opacity: float = 1.0
    gravity: Array = field(default_factory=lambda: np.array(STANDARD_GRAVITY, float))

    def __post_init__(self) -> None:
        if not len(self.times) or len(self.drawn.p) != len(self.times):
            raise ValueError(f"the motion {self.name!r} has {len(self.drawn.p)} poses at {len(self.times)} times")
        unknown = [name for name in self.tracks if name not in self.body_names]
        if unknown:
            raise unknown_name("body", unknown[0], list(self.body_names))

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the bodies, in the order of the poses."""
        return tuple(body.name for body in self.drawn.bodies)

    @property
    def shape_key(self) -> int:
        """Key that is equal for motions with the same tuple of bodies, which have the same surfaces."""
        return id(self.drawn.bodies)

    def appearance(self, geometry: Geometry) -> Appearance:
        """Return the surfaces of the shapes; geometry has no effect."""
        surfaces = [Surface(i, *body.shape.triangles(), GRAY) for i, body in enumerate(self.drawn.bodies)]
        return Appearance(tuple(surfaces), ())

    def poses(self) -> Poses:
        """Return the poses of the shapes at each time."""
        return Poses(self.drawn.R, self.drawn.p)

    def points(self) -> Array:
        """Return bounding-box corners (k, 3) [m] of all shapes at all times."""
        found = []
        for i, body in enumerate(self.drawn.bodies):
            vertices = body.shape.triangles().vertices
            box = np.array(list(product(*zip(vertices.min(axis=0), vertices.max(axis=0), strict=True))))
            found.append((box @ self.drawn.R[:, i].transpose(0, 2, 1) + self.drawn.p[:, i, None]).reshape(-1, 3))
        return np.concatenate(found)

    def paths(self) -> dict[str, Array]:
        """Return positions (M, 3) [m] of the tracked bodies, by name."""
        return {name: self.drawn.p[:, self.body_names.index(name)] for name in self.tracks}

    def force_arrows(self) -> dict[str, tuple[Array, Array]]:
        """Return no arrows: shapes have no forces."""
        return {}

    def at(self, times: Array) -> ShapeMotion:
        """Resample to times (T,) [s], constant outside of the motion: positions linearly, rotations about the axis of each step."""
        from scipy.spatial.transform import Rotation, Slerp

        R, p = self.drawn.R, self.drawn.p
        if len(self.times) > 1:
            t = np.clip(times, self.times[0], self.times[-1])
            keys, first = np.unique(
                self.times, return_index=True
            )  # an instantaneous stage shares its time with the next one
            turned = [Slerp(keys, Rotation.from_matrix(R[first, i]))(t).as_matrix() for i in range(R.shape[1])]
            moved = [
                np.stack([np.interp(t, keys, p[first, i, j]) for j in range(3)], axis=1) for i in range(p.shape[1])
            ]
            R, p = np.stack(turned, axis=1), np.stack(moved, axis=1)
        else:
            R, p = np.repeat(R, len(times), axis=0), np.repeat(p, len(times), axis=0)
        return replace(self, drawn=Drawn(self.drawn.bodies, R, p), times=np.asarray(times))


class Poses(NamedTuple):
    """Poses of bodies in the world: R (M, nb, 3, 3), p (M, nb, 3) [m]."""

    R: Array
    p: Array


def _positions(motion: Motion, names: Sequence[str]) -> dict[str, Array]:
    """Return positions (M, 3) [m] of the frames ``names`` by name, without those fixed to the world.

    Raises UnknownName for an unknown frame.
    """
    model = motion.model
    frames = [(name, model.frames[model.frame_id(name)]) for name in names]
    moving = [(name, frame) for name, frame in frames if frame.body >= 0]
    if not moving:
        return {}
    at = point_positions(model, np.ascontiguousarray(motion.q.T), [(f.body, f.p.tolist()) for _, f in moving])
    return {name: p.T for (name, _), p in zip(moving, at, strict=True)}


AnyMotion = Motion | ShapeMotion


def with_annotations(
    low: Array, high: Array, annotations: Annotations, margin: float, axes: Array | None = None
) -> tuple[Array, Array]:
    """Return bounds low, high (n,) [m] along axes (n, 3) (default: world axes), widened to include annotations.

    Each bound is widened by at most ``margin`` [m].
    """
    at = annotations.corners() @ (np.eye(3) if axes is None else axes).T
    at = np.clip(np.vstack([low, high, at]), low - margin, high + margin)
    return at.min(axis=0), at.max(axis=0)
