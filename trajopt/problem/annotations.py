"""Goals, obstacles and shapes of a problem that viewers draw with its robot, or without a robot model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dynamics_backends.composed_map import PlainComposedMap
from dynamics_backends.protocol import Array, FunctionMap
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath, body_from_data, body_to_data
from dynamics_backends.rigid_body.geometry.shapes import Capsule, Cylinder, HalfSpace, Sphere
from dynamics_backends.rigid_body.spatial.rotations import segment_frame
from trajopt.problem import residuals

LEVEL = 0.999
"""Minimum cosine of the slope of a half-space that counts as a floor."""
TARGET_RADIUS = 0.02
"""Radius [m] of the ball drawn for a moving goal."""
Draw = Callable[[Array], Sequence[Body]]
"""Function from a state (nx,) to bodies, with the same names and shapes in every state and any pose."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Moving shapes of a user-defined system: k bodies with poses R (M, k, 3, 3), p (M, k, 3) [m] at M states.

    These poses replace those of the bodies.
    """

    bodies: tuple[Body, ...]
    R: Array
    p: Array

    @classmethod
    def from_function(cls, draw: Draw, xs: Array) -> Drawn:
        """Evaluate a draw function at states xs (M, nx).

        Spin of capsules and cylinders about their own axis is removed. Raises TypeError if the function returns anything but
        bodies, ValueError if it returns none, or if names or shapes change between states.
        """
        frames = [_checked_bodies(draw(np.array(x))) for x in np.asarray(xs, float)]
        first = frames[0]
        for i, frame in enumerate(frames):
            if [body.name for body in frame] != [body.name for body in first]:
                raise ValueError(f"draw returns other bodies at state {i} than at state 0: give all of them each time")
            for one, other in zip(first, frame, strict=True):
                if not _equal(one.shape, other.shape):
                    raise ValueError(
                        f"draw: the shape of {one.name!r} changes at state {i}; draw what changes its length as several "
                        "bodies, such as two rods that slide along each other"
                    )
        R, p = (np.array([[getattr(body, key) for body in frame] for frame in frames]) for key in ("R", "p"))
        for i, body in enumerate(first):
            if isinstance(body.shape, Capsule | Cylinder):
                R[:, i] = _without_spin(R[:, i])
        return cls(first, R, p)


@dataclass(frozen=True, eq=False)
class Annotations:
    """Annotations of a problem for viewers: goals, obstacles, and the shapes of a system without a robot model.

    goals: points (3,) [m]. spheres: (center (3,), radius) [m]. bodies: obstacles of any shape, such as ``Body(name, Box(size), R,
    p)``, which may move along a :class:`~trajopt.BodyPath`. targets: moving goals, as bodies. curves: polylines through points (M,
    3) [m] by name, such as the path of a tool. draw: function from a state (nx,) to the bodies of the system, or, in a loaded
    solution, their poses.
    """

    goals: Sequence[Array] = ()
    spheres: Sequence[tuple[Array, float]] = ()
    bodies: Sequence[Body] = ()
    targets: Sequence[Body] = ()
    curves: Mapping[str, Array] = field(default_factory=dict)
    draw: Draw | Drawn | None = None

    @property
    def floor(self) -> Body | None:
        """First static half-space that is a level floor (:data:`LEVEL`), drawn as the grid of the ground; None without one."""
        return next((body for body in self.bodies if _is_floor(body)), None)

    @property
    def solids(self) -> tuple[Body, ...]:
        """Bodies that are not level floors, drawn as solids."""
        return tuple(body for body in self.bodies if not _is_floor(body))

    def corners(self) -> Array:
        """Points (k, 3) [m] of the extent of the annotations: goals, points of curves, vertices of the triangulated spheres,
        bodies and targets. Half-spaces are omitted.

        A moving body appears at the corners of the box that contains its path offsets.
        """
        result = [np.zeros((0, 3)), *(np.reshape(goal, (1, 3)) for goal in self.goals), *self.curves.values()]
        result += [Sphere(r).triangles()[0] + c for c, r in self.spheres]
        for body in (*self.solids, *self.targets):
            if not isinstance(body.shape, HalfSpace):
                offsets = np.zeros((1, 3)) if body.path is None else np.asarray(body.path.offsets)
                ends = np.array(list(product(*zip(offsets.min(axis=0), offsets.max(axis=0), strict=True))))
                result += [body.shape.triangles()[0] @ body.R.T + (body.p + end) for end in np.unique(ends, axis=0)]
        return np.concatenate(result)

    def drawn(self, xs: Array) -> Drawn | None:
        """Shapes of the system at states xs (M, nx); None without ``draw``; poses stored with a loaded solution ignore xs.

        Raises the errors of :meth:`Drawn.from_function`.
        """
        if self.draw is None or isinstance(self.draw, Drawn):
            return self.draw
        return Drawn.from_function(self.draw, xs)


def rod(name: str, start: Array, end: Array, radius: float) -> Body:
    """Capsule between the points ``start`` and ``end`` (3,) [m] in the world, for ``draw``; radius [m].

    Raises ValueError for coincident points. Lengths are rounded to 1e-9 m, so that a rotating rod keeps the same shape.
    """
    start, end = np.asarray(start, float), np.asarray(end, float)
    R, middle, length = segment_frame(start, end)
    if not length > 0.0:
        raise ValueError(f"rod {name!r}: both ends are at {start.tolist()}; give two distinct points")
    return Body(name, Capsule(float(radius), round(length, 9)), R, middle)


# -- from a problem ------------------------------------------------------------------------------------------------------

_GOALS = {
    residuals.frame_position: "goal",
    residuals.frame_placement: "position",
    residuals.frame_log: "position",
    residuals.frame_axis: "position",
    residuals.center_of_mass: "goal",
}
"""Residual function -> parameter of its goal."""


def problem_annotations(ocp: Any) -> Annotations:
    """Annotations of a problem, with goals and obstacles of its cost terms and constraints where the annotations have none.

    ocp: an :class:`~trajopt.OCP`. Goals of frames and centers of mass, unless all their weights are zero, are added if the
    annotations have neither goals nor targets, spheres of :func:`~trajopt.sphere_obstacle` (with the largest of several radii) if
    they have neither spheres nor bodies. Goals and centers given by knot become moving targets and bodies over the times of the
    knots.
    """
    annotations = Annotations() if ocp.annotations is None else ocp.annotations
    goals, targets, spheres, moving = [], [], [], []
    for part, times in _parts(ocp):
        function, p = _function(part.residual), part.parameters
        if function in _GOALS and np.any(getattr(part, "weight", 1.0)):
            at = p[_GOALS[function]]
            if at.ndim == 1:
                goals.append(at)
            elif at.shape[0] == len(times):
                targets.append(_moving(part.name, TARGET_RADIUS, at, times))
        elif function is residuals.sphere_clearance:
            at, radius = p["center"], float(np.max(p["radius"]))
            if at.ndim == 1:
                spheres.append((at, radius))
            elif at.shape[0] == len(times):
                moving.append(_moving(part.name, radius, at, times))
    has_goals, has_obstacles = (
        bool(annotations.goals or annotations.targets),
        bool(annotations.spheres or annotations.bodies),
    )
    return replace(
        annotations,
        goals=annotations.goals if has_goals else _unique(goals),
        targets=annotations.targets if has_goals else _named(targets),
        spheres=annotations.spheres if has_obstacles else _unique_spheres(spheres),
        bodies=annotations.bodies if has_obstacles else _named(moving),
    )


def _parts(ocp: Any) -> Iterator[tuple[Any, Array]]:
    """Yield cost terms and constraints, each with the times [s] of its knots; terminal ones come last, with the final time."""
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        yield from ((part, ocp.times[knots]) for part in (*phase.terms, *phase.constraints))
    yield from ((part, ocp.times[-1:]) for part in (*ocp.terminal, *ocp.terminal_constraints))


def _function(residual: Any) -> Any:
    """Function of :mod:`trajopt.problem.residuals` of a residual, also within a softened constraint; None for other residuals."""
    if isinstance(residual, PlainComposedMap):
        return _function(residual.map)
    function = residual.function if isinstance(residual, FunctionMap) else None
    return function.func if isinstance(function, partial) else None


def _moving(name: str, radius: float, p: Array, times: Array) -> Body:
    """Ball at the points p (K, 3) [m] at times (K,) [s], as a body with a path; without a path if it does not move."""
    path = (
        BodyPath(tuple(times.tolist()), tuple(map(tuple, (p - p[0]).tolist())))
        if len(p) > 1 and np.ptp(p, 0).any()
        else None
    )
    return Body(name, Sphere(radius), p=p[0], path=path)


def _unique(points: list[Array]) -> list[Array]:
    """Points without repetitions."""
    return [np.array(p) for p in dict.fromkeys(tuple(point.tolist()) for point in points)]


def _unique_spheres(spheres: list[tuple[Array, float]]) -> list[tuple[Array, float]]:
    """Spheres without repetitions."""
    return [(np.array(c), r) for c, r in dict.fromkeys((tuple(c.tolist()), r) for c, r in spheres)]


def _named(bodies: list[Body]) -> list[Body]:
    """Bodies with unique names; the last body of a name is used."""
    return list({body.name: body for body in bodies}.values())


# -- files ---------------------------------------------------------------------------------------------------------------


def annotations_to_data(annotations: Annotations, xs: Array) -> dict[str, Any]:
    """Convert annotations to JSON data, with poses of ``draw`` at states xs (M, nx). Raises like :meth:`Drawn.from_function`."""
    drawn = annotations.drawn(xs)
    return {
        "goals": [np.asarray(goal, float).tolist() for goal in annotations.goals],
        "spheres": [[np.asarray(center, float).tolist(), float(radius)] for center, radius in annotations.spheres],
        "bodies": [body_to_data(body) for body in annotations.bodies],
        "targets": [body_to_data(body) for body in annotations.targets],
        "curves": {name: np.asarray(curve, float).tolist() for name, curve in annotations.curves.items()},
        "drawn": None
        if drawn is None
        else {"bodies": [body_to_data(body) for body in drawn.bodies], "R": drawn.R.tolist(), "p": drawn.p.tolist()},
    }


def annotations_from_data(data: Mapping[str, Any]) -> Annotations:
    """Inverse of :func:`annotations_to_data`. Raises ValueError, KeyError or TypeError for invalid data."""
    drawn = data["drawn"]
    if drawn is not None:
        bodies = tuple(body_from_data(body) for body in drawn["bodies"])
        R, p = (np.array(drawn[key], float) for key in ("R", "p"))
        if R.shape != (len(p), len(bodies), 3, 3) or p.shape != (len(p), len(bodies), 3):
            raise ValueError(f"shapes of {len(bodies)} bodies have poses R {R.shape}, p {p.shape}")
        drawn = Drawn(bodies, R, p)
    return Annotations(
        [_point(goal) for goal in data["goals"]],
        [(_point(center), float(radius)) for center, radius in data["spheres"]],
        tuple(body_from_data(body) for body in data["bodies"]),
        tuple(body_from_data(body) for body in data["targets"]),
        {str(name): np.array(curve, float).reshape(-1, 3) for name, curve in data["curves"].items()},
        drawn,
    )


def _point(value: Any) -> Array:
    """Point (3,) from JSON data. Raises ValueError for another shape."""
    point = np.array(value, float)
    if point.shape != (3,):
        raise ValueError(f"a point has shape {point.shape}; expected (3,)")
    return point


def _checked_bodies(bodies: Any) -> tuple[Body, ...]:
    """Result of a draw function as a tuple of bodies; a single body is accepted.

    Raises TypeError for anything else, ValueError without bodies.
    """
    bodies = tuple(bodies) if isinstance(bodies, Sequence) else (bodies,)
    if not bodies:
        raise ValueError("draw returns no bodies: return a list of to.Body")
    for body in bodies:
        if not isinstance(body, Body):
            raise TypeError(f"draw returns a {type(body).__name__}: return a list of to.Body(name, shape, R, p)")
    return bodies


def _without_spin(R: Array) -> Array:
    """Rotations (M, 3, 3) with the same z axes and no spin about them, for shapes that are symmetric about z.

    Each is the previous one after the smallest rotation between the axes. The first is unchanged, and one whose axis reverses.
    """
    result = R.copy()
    for k in range(1, len(R)):
        a, b = result[k - 1, :, 2], R[k, :, 2]
        cosine = float(a @ b)
        if cosine > -1.0 + 1e-9:
            x, y, z = np.cross(a, b)
            across = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            result[k] = (np.eye(3) + across + across @ across / (1.0 + cosine)) @ result[k - 1]
    return result


def _equal(a: Any, b: Any) -> bool:
    """True if two shapes are equal, or else have equal triangles."""
    return a is b or bool(a == b) or all(map(np.array_equal, a.triangles(), b.triangles()))


def _is_floor(body: Body) -> bool:
    """True for a half-space that does not move and whose normal points up to within :data:`LEVEL`."""
    return isinstance(body.shape, HalfSpace) and body.path is None and bool(body.R[2, 2] > LEVEL)
