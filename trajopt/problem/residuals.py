"""Residuals of :mod:`trajopt.problem.terms` and :mod:`trajopt.problem.constraints`, as functions of rows.

Terms bind the arguments before x with ``functools.partial``. The residuals are module-level functions, so problems made of them can
be pickled and sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.chained_map import dot
from dynamics_backends.manifold import Manifold, v_inverse_times
from dynamics_backends.protocol import Map
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar

Parameters = Mapping[str, Rows]
Path = Callable[[Rows, Rows, Scalar, Parameters], Sequence[Scalar]]
"""Function from state, control, time and parameters to a point (3) in the world [m]."""


class LinkPoint(NamedTuple):
    """Point of a body: index of the body, coordinates (3) [m] in the body's internal frame, and a name for reports."""

    body: int
    offset: tuple[float, float, float]
    name: str


def state_difference(manifold: Manifold, x: Rows, u: Rows, t: Scalar, p: Parameters) -> Rows:
    """State difference x (-) reference in the tangent space; ``reference`` is a parameter in p."""
    return manifold.difference(p["reference"], x)


def control_difference(x: Rows, u: Rows, t: Scalar, p: Parameters) -> Rows:
    """Control difference u - reference; ``reference`` is a parameter in p."""
    return u - p["reference"]


def linear(state: int, control: int, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Linear function a'x + b'u of the first ``state`` entries of x and the first ``control`` entries of u.

    a, b: the parameters ``state`` and ``control``.
    """
    along = [p["state"][i] * x[i] for i in range(state)]
    return [sum([*along, *(p["control"][i] * u[i] for i in range(control))])]


def scaled(residual: Map, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Residual multiplied by the parameter ``quadrature``, which the residual itself does not receive."""
    rows = residual(x, u, t, {key: value for key, value in p.items() if key != "quadrature"})
    return [p["quadrature"][0] * rows[i] for i in range(residual.n_out)]


def frame_position(model: Model, frame: int, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Position of a frame minus the parameter ``goal``, (3) in the world [m]."""
    position = kinematics.frame_position(model, x[: model.nq], frame)
    return [position[i] - p["goal"][i] for i in range(3)]


def frame_placement(model: Model, frame: int, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Placement error (R_goal' (position - p_goal), log(R_goal' R)) of a frame, (6) [m, rad].

    Parameters: ``position``, p_goal, and ``rotation``, R_goal row by row (9).
    """
    q, goal = x[: model.nq], p["rotation"]
    at, R = kinematics.frame_position(model, q, frame), kinematics.frame_rotation(model, q, frame)
    offset = [at[i] - p["position"][i] for i in range(3)]
    columns = [[goal[3 * i + j] for i in range(3)] for j in range(3)]  # columns of R_goal
    linear = [dot(columns[j], offset) for j in range(3)]
    relative = [[dot(columns[i], [R[k][j] for k in range(3)]) for j in range(3)] for i in range(3)]
    return [*linear, *kinematics.rotation_log(relative)]


def frame_axis(
    model: Model, frame: int, axis: Sequence[float], x: Rows, u: Rows, t: Scalar, p: Parameters
) -> list[Scalar]:
    """Error (position - p_goal, s_1'R axis, s_2'R axis) of a frame, (5) [m, 1]; the last two vanish if R axis is parallel or
    opposite to its goal direction.

    s_1, s_2: directions perpendicular to the goal direction of the axis, the parameter ``across`` (6). p_goal: ``position``.
    """
    q, across = x[: model.nq], p["across"]
    at, R = kinematics.frame_position(model, q, frame), kinematics.frame_rotation(model, q, frame)
    turned = [dot([R[i][j] for j in range(3)], list(axis)) for i in range(3)]
    return [
        *(at[i] - p["position"][i] for i in range(3)),
        *(dot([across[3 * k + i] for i in range(3)], turned) for k in range(2)),
    ]


def frame_log(model: Model, frame: int, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Placement error log6(M_goal^-1 M) of a frame, [linear, angular] (6), with the parameters of :func:`frame_placement`."""
    six = frame_placement(model, frame, x, u, t, p)
    return [*v_inverse_times(six[3:], six[:3]), *six[3:]]


def frame_velocity(
    model: Model, frame: int, expressed_in: str, x: Rows, u: Rows, t: Scalar, p: Parameters
) -> list[Scalar]:
    """Velocity [linear, angular] (6) of a frame, expressed in ``expressed_in``, minus the parameter ``reference``."""
    q, v = x[: model.nq], x[model.nq : model.nq + model.nv]
    velocity = kinematics.frame_velocity(model, q, v, frame, expressed_in)
    return [velocity[i] - p["reference"][i] for i in range(6)]


def center_of_mass(model: Model, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Center of mass minus the parameter ``goal``, (3) in the world [m]."""
    center = kinematics.center_of_mass(model, x[: model.nq])
    return [center[i] - p["goal"][i] for i in range(3)]


def excess(finite: Sequence[tuple[bool, bool]], values: Sequence[Scalar], p: Parameters) -> list[Scalar]:
    """Excess of ``values`` over the limits in p: value - upper above (positive), value - lower below (negative), 0 within.

    finite: flags (lower, upper) of the finite limits of each; other limits are ignored.
    """
    return [_excess(values[i], p["lower"][i], p["upper"][i], *sides) for i, sides in enumerate(finite)]


def _excess(q: Scalar, lower: Scalar, upper: Scalar, has_lower: bool, has_upper: bool) -> Scalar:
    """Excess q - upper above, q - lower below, 0 within the limits; a limit without its flag is ignored."""
    over = sm.select(q - upper, q - upper, 0.0 * q) if has_upper else 0.0 * q
    return over + sm.select(lower - q, q - lower, 0.0 * q) if has_lower else over


def rounded_excess(finite: Sequence[tuple[bool, bool]], values: Sequence[Scalar], p: Parameters) -> list[Scalar]:
    """Violation max(0, lower - g) + max(0, g - upper) of the bounds in p by ``values`` g, without corners.

    Each max(0, e) is rounded to (e + sqrt(e^2 + width^2)) / 2. finite: flags (lower, upper) of the finite bounds of each value.
    """
    width = p["width"][0]
    return [
        sum(
            (_rounded(e, width) for e in _bound_violations(values[i], p["lower"][i], p["upper"][i], *sides)),
            0.0 * values[i],
        )
        for i, sides in enumerate(finite)
    ]


def _bound_violations(value: Scalar, lower: Scalar, upper: Scalar, has_lower: bool, has_upper: bool) -> list[Scalar]:
    """Signed violations lower - value and value - upper of the finite bounds."""
    return ([lower - value] if has_lower else []) + ([value - upper] if has_upper else [])


def _rounded(excess: Scalar, width: Scalar) -> Scalar:
    """Smooth max(0, excess): (excess + sqrt(excess^2 + width^2)) / 2."""
    return 0.5 * (excess + sm.sqrt(excess * excess + width * width))


def coordinates(chosen: Sequence[int], x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Entries ``chosen`` of the state."""
    return [x[i] for i in chosen]


def sphere_clearance(
    model: Model, points: Sequence[LinkPoint], x: Rows, u: Rows, t: Scalar, p: Parameters
) -> list[Scalar]:
    """Clearance (distance^2 - radius^2) / (2 radius) of each point from a sphere; near its surface, the distance from it.

    distance: from the point to ``center``, a parameter like ``radius``.
    """
    at = kinematics.point_positions(model, x[: model.nq], [(point.body, point.offset) for point in points])
    return [_clearance([a[i] - p["center"][i] for i in range(3)], p["radius"][0]) for a in at]


def pair_clearance(
    model: Model, pairs: Sequence[tuple[LinkPoint, LinkPoint]], x: Rows, u: Rows, t: Scalar, p: Parameters
) -> list[Scalar]:
    """Clearance (d^2 - distance^2) / (2 distance) of each pair of points at distance d; positive if d is larger than ``distance``.

    distance: parameter with a number for each pair.
    """
    places = list(dict.fromkeys(point for pair in pairs for point in pair))
    at = kinematics.point_positions(model, x[: model.nq], [(point.body, point.offset) for point in places])
    where = dict(zip(places, at, strict=True))
    return [
        _clearance([where[a][i] - where[b][i] for i in range(3)], p["distance"][j]) for j, (a, b) in enumerate(pairs)
    ]


def tube_clearance(model: Model, frame: int, path: Path, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Depth (radius^2 - d^2) / (2 radius) of a frame at distance d from the point of a path; positive inside the tube."""
    return depth_in_ball(path_offset(model, frame, path, x, u, t, p), u, t, p)


def path_offset(model: Model, frame: int, path: Path, x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Position of a frame minus the point of a path, (3) in the world [m].

    path: function of (x, u, t, p) that returns the point.
    """
    position, center = kinematics.frame_position(model, x[: model.nq], frame), path(x, u, t, p)
    return [position[i] - center[i] for i in range(3)]


def depth_in_ball(x: Rows | list[Scalar], u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Depth (radius^2 - |x|^2) / (2 radius) of an offset x (3) in a ball; concave, positive inside. radius: a parameter."""
    return [-_clearance([x[i] for i in range(3)], p["radius"][0])]


def path_parameter(x: Rows, u: Rows, t: Scalar, p: Parameters) -> list[Scalar]:
    """Point (3) of a path given by the parameter ``path``, as a :data:`Path`."""
    return [p["path"][i] for i in range(3)]


def _clearance(offset: list[Scalar], radius: Scalar) -> Scalar:
    """Clearance (|offset|^2 - radius^2) / (2 radius), smooth at the center, with slope one at the surface."""
    return 0.5 * (dot(offset, offset) / radius - radius)
