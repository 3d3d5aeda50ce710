"""Constraints: residuals between bounds.

    running     lower <= g(x_k, u_k, t_k, p) <= upper    at every knot of a phase
    terminal    lower <= g(x_N, t_N, p) <= upper         equal bounds make an equality

A residual is the same kind of map as in :mod:`trajopt.problem.terms`, and every cost term can be turned into a constraint
(:func:`bounded`). Bounds and parameters are run-time values, constant or one per knot. A running constraint that reads no
controls is not imposed on x0, which is fixed; :func:`final_constraints` imposes it on x_N too, unless it has values by knot.
Bounds on controls, such as torque limits, are fields of the OCP.

Bounds can be costs instead. The quadratic barrier 1/2 w |g - P(g)|^2, with P the projection on [lower, upper], is zero within the
bounds and once differentiable at them (Crocoddyl's ActivationModelQuadraticBarrier). For continuous second derivatives, use
:func:`softened`, which rounds the corner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.composed_map import composed
from dynamics_backends.manifold import AnyManifold, Manifold, as_manifold
from dynamics_backends.protocol import Array, Batch, FunctionMap, Map
from trajopt.problem import residuals
from trajopt.problem.residuals import LinkPoint, Path
from trajopt.problem.terms import (
    CostTerm,
    Residual,
    Values,
    changed_parameters,
    finite_parameters,
    last_axis,
    parameters_at,
    require_state_of_model,
    rows_at,
)

INFINITE = 1e20
"""Finite substitute for an infinite bound; IPOPT treats bounds beyond 1e19 as infinite (nlp_upper_bound_inf)."""


class Composition(NamedTuple):
    """Parts of a residual psi(r(x, u, t, p), p), psi convex or concave, for sequential convex quadratic programming (SCQP).

    inner: r. outer: psi, a twice differentiable map of the state r in R^k without controls. convex: True if psi is convex, False if
    it is concave.
    """

    inner: Map
    outer: Map
    convex: bool


@dataclass(frozen=True, eq=False)
class Constraint:
    """A residual with bounds and parameters.

    name: for reports. residual: map with nr outputs. lower, upper: a number, (nr,) or (N, nr), infinite for no bound; None:
    infinite if the other has a finite entry, else zero. parameters: run-time values by name, each (n,), or (N, n) with one row
    per knot of the phase. composition: parts of the residual, if it is a convex or concave function of another residual.
    between_knots: False if the problem checks the motion between knots by other means; True to report violations between knots
    (:mod:`trajopt.validation.between_knots`).

    Raises ValueError for bounds whose shape does not fit the residual.
    """

    name: str
    residual: Map
    lower: Array = None  # type: ignore[assignment]
    upper: Array = None  # type: ignore[assignment]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    composition: Composition | None = None
    between_knots: bool = True

    def __post_init__(self) -> None:
        nr = self.residual.n_out
        sides: dict[str, Any] = {"lower": self.lower, "upper": self.upper}
        given = {key: np.array(value, dtype=float) for key, value in sides.items() if value is not None}
        one_sided = any(np.isfinite(bound).any() for bound in given.values())
        for key, unbounded in (("lower", -np.inf), ("upper", np.inf)):
            bound = given.get(key, np.array(unbounded if one_sided else 0.0))
            bound = np.full(nr, bound) if bound.ndim == 0 else bound
            if bound.ndim > 2 or bound.shape[-1] != nr:
                message = f"{key} has shape {bound.shape}; expected (nr = {nr},) or (N, {nr})"
                raise ValueError(f"constraint {self.name!r}: {message}")
            object.__setattr__(self, key, bound)
        values = {key: np.atleast_1d(np.array(value, dtype=float)) for key, value in self.parameters.items()}
        object.__setattr__(self, "parameters", values)

    def __repr__(self) -> str:
        return f"Constraint({self.name!r}: {self.residual.n_out} rows, {self.kind})"

    @property
    def kind(self) -> str:
        """ "equality" if lower equals upper in all rows, "inequality" if in none, else "equality and inequality"."""
        lower, upper = np.broadcast_arrays(self.lower, self.upper)
        equal = (lower == upper).reshape(-1, lower.shape[-1])
        if equal.all():
            return "equality"
        return "equality and inequality" if equal.any() else "inequality"

    def updated(self, *, lower: Values | None = None, upper: Values | None = None, **parameters: Values) -> Constraint:
        """Copy of this constraint with new bounds or new values of parameters.

        Values that are not given are unchanged. A number sets all entries of a parameter. Raises ValueError for an unknown
        parameter or a wrong size.
        """
        low, high = (
            old if new is None else np.asarray(new, dtype=float)
            for old, new in ((self.lower, lower), (self.upper, upper))
        )
        changed = changed_parameters(f"constraint {self.name!r}", self.parameters, parameters)
        return replace(self, lower=low, upper=high, parameters=changed)

    def at_knots(self, knots: int | slice | Array) -> Constraint:
        """Copy of this constraint with its bounds and parameters at knots of its phase; constant ones are unchanged."""
        lower, upper = rows_at(self.lower, knots), rows_at(self.upper, knots)
        return replace(self, lower=lower, upper=upper, parameters=parameters_at(self.parameters, knots))

    def bounds(self, knots: int) -> tuple[Array, Array]:
        """Lower and upper bounds, each (knots, nr), with constant bounds repeated for each knot."""
        shape = (knots, self.residual.n_out)
        return np.broadcast_to(self.lower, shape), np.broadcast_to(self.upper, shape)

    @property
    def is_constant(self) -> bool:
        """True without bounds or parameters by knot."""
        return all(value.ndim == 1 for value in (self.lower, self.upper, *self.parameters.values()))

    @property
    def component_names(self) -> tuple[str, ...]:
        """Name of each row for messages, the constraint's name with that of the residual's output: "joint limits: shoulder"."""
        return tuple(f"{self.name}: {name}" for name in self.residual.output_names)


def residual_constraint(
    name: str,
    function: Residual,
    manifold: AnyManifold,
    n_out: int,
    lower: Values | None = None,
    upper: Values | None = None,
    *,
    nu: int = 0,
    parameters: Mapping[str, Values] | None = None,
    output_names: tuple[str, ...] | None = None,
    control_names: tuple[str, ...] | None = None,
) -> Constraint:
    """Constraint lower <= function(x, u, t, p) <= upper with a user-defined residual.

    lower, upper: as in :class:`Constraint`; by default an equality with zero; with one finite bound, the other side is free.
    function, nu, parameters: as in :func:`trajopt.problem.terms.residual_cost`. Raises ValueError for a bound that is NaN, and for
    a parameter that is not finite.
    """
    require_state_of_model(f"constraint {name!r}", function, as_manifold(manifold))
    residual = FunctionMap(function, manifold, nu, n_out, output_names=output_names, control_names=control_names)
    values = finite_parameters(f"constraint {name!r}", parameters or {})
    return _check_nan(Constraint(name, residual, lower, upper, values))  # type: ignore[arg-type]


def bounded(
    term: CostTerm, lower: Values | None = None, upper: Values | None = None, name: str | None = None
) -> Constraint:
    """Constraint that keeps the residual of a cost term between bounds, by default zero.

    lower, upper: as in :class:`Constraint`. Without them, components whose weight is zero are free, unless all weights are zero.
    Weights have no other effect.

    For example, ``bounded(frame_placement_cost(...))`` fixes a pose, and ``bounded(state_cost(manifold, x_goal))`` a state.

    >>> import trajopt as to
    >>> to.bounded(to.state_cost(to.Manifold.vector(2), [1.0, 0.0]), name="goal").upper
    array([0., 0.])
    """
    free = np.asarray(term.weight) == 0.0
    if lower is None and upper is None and free.any() and not free.all():
        lower, upper = np.where(free, -np.inf, 0.0), np.where(free, np.inf, 0.0)
    return _check_nan(Constraint(name or term.name, term.residual, lower, upper, term.parameters))  # type: ignore[arg-type]


def _check_nan(constraint: Constraint) -> Constraint:
    """Return the constraint. Raises ValueError if one of its bounds is NaN."""
    for key, bound in (("lower", constraint.lower), ("upper", constraint.upper)):
        if np.isnan(bound).any():
            component = constraint.residual.output_names[int(np.argwhere(np.isnan(bound))[0][-1])]
            raise ValueError(f"constraint {constraint.name!r}: {key} is NaN for {component}; use infinity for no bound")
    return constraint


def softened(constraint: Constraint, weight: Values, width: float = 0.01, name: str | None = None) -> CostTerm:
    """Soft constraint: cost term for slacks that cost 1/2 weight s^2 each, with the slacks eliminated.

        min_(s >= 0) 1/2 w s^2  subject to  g + s >= lower   =   1/2 w max(0, lower - g)^2,     likewise at the upper bound

    A soft constraint is never infeasible, as replanning around moving obstacles requires. width: rounding of the corner of max(0,
    e), (e + sqrt(e^2 + width^2)) / 2, for continuous second derivatives; in units of g, a run-time value. weight: a number, (nr,)
    or (N, nr). Raises ValueError for a width that is not positive, TypeError for another object than a constraint.
    """
    more = {"width": _positive(width, "width", constraint.name)}
    return _cost_of_excess(constraint, residuals.rounded_excess, weight, name, more)


def state_bounds(
    manifold: AnyManifold,
    lower: Values = -np.inf,
    upper: Values = np.inf,
    name: str = "state bounds",
    names: Sequence[str] | None = None,
) -> Constraint:
    """Bounds lower <= x <= upper on the entries of the state that have a finite bound.

    lower, upper: (nx,), (N, nx), or one number for all; by default none. names: names of all entries of the state. On a vector
    space, solvers with bounds on variables treat them as such. Raises ValueError if nothing is bounded, or a bound is NaN or of
    another shape.
    """
    manifold = as_manifold(manifold)
    limits = [np.asarray(b, dtype=float) for b in (lower, upper)]
    for key, bound in zip(("lower", "upper"), limits, strict=True):
        if bound.ndim > 2 or bound.shape[-1:] not in ((), (1,), (manifold.nx,)):
            n = manifold.nx
            raise ValueError(f"constraint {name!r}: {key} has shape {bound.shape}; expected (nx = {n},) or (N, {n})")
    low, high = np.broadcast_arrays(*limits, np.empty(manifold.nx))[:2]
    if np.isnan(low).any() or np.isnan(high).any():
        bad = int(np.argmax(np.atleast_2d(np.isnan(low) | np.isnan(high)).any(axis=0)))
        raise ValueError(f"constraint {name!r}: a bound of entry {bad} of the state is NaN; use infinity for no bound")
    chosen = tuple(int(i) for i in np.flatnonzero(np.atleast_2d(np.isfinite(low) | np.isfinite(high)).any(axis=0)))
    if not chosen:
        raise ValueError(f"constraint {name!r}: no bound is finite; remove the constraint")
    names = names or (manifold.tangent_names if manifold.is_flat else [f"x[{i}]" for i in range(manifold.nx)])
    return residual_constraint(
        name,
        partial(residuals.coordinates, chosen),
        manifold,
        len(chosen),
        low[..., list(chosen)],
        high[..., list(chosen)],
        output_names=tuple(names[i] for i in chosen),
    )


def chosen_coordinates(constraint: Constraint) -> tuple[int, ...] | None:
    """Indices of the bounded state entries of a :func:`state_bounds` constraint; None for any other constraint."""
    function = constraint.residual.function if isinstance(constraint.residual, FunctionMap) else None
    if isinstance(function, partial) and function.func is residuals.coordinates:
        return function.args[0]
    return None


def violations_at(c: Constraint, x: Array, t: float, knots: int = 1) -> Array:
    """Return by how much a state x (nx,) violates each row (nr,) of a constraint on the state; at most 0 for satisfied rows.

    t: time [s]. Parameters and bounds are those of its first knot. knots: number of its knots.
    """
    p = parameters_at(c.parameters, 0)
    batch = Batch.of(c.residual, x[None, : c.residual.manifold.nx], np.zeros((1, 0)), t, p)
    with np.errstate(all="ignore"):
        g, (lower, upper) = np.asarray(c.residual(*batch))[:, 0], (b[0] for b in c.bounds(knots))
        return np.maximum(lower - g, g - upper)


def final_constraints(
    path: Sequence[Constraint], terminal: Sequence[Constraint], t: float
) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Terminal constraints, with those of ``path`` that also hold at the last state x_N, at time t [s], and the names of others.

    Of ``path`` the former are those on the state alone without bounds or parameters by knot, whose name no terminal constraint has.
    If a terminal equality fixes the whole state, only those that the fixed state violates; the others, which it satisfies, are
    named.
    """
    names, x = {c.name for c in terminal}, fixed_state(terminal)
    also = [c for c in path if c.name not in names and not c.residual.nu and c.is_constant]
    implied = [] if x is None else [c for c in also if _is_satisfied(c, x, t)]
    left = [c for c in also if all(c is not other for other in implied)]
    return (*terminal, *left), tuple(c.name for c in implied)


def _is_satisfied(c: Constraint, x: Array, t: float) -> bool:
    """True if a state x (nx,) satisfies all rows of a constraint; False also if its function fails, which validation explains."""
    try:
        return bool(violations_at(c, x, t).max(initial=0.0) <= 0.0)
    except Exception:
        return False


def fixed_state(constraints: Sequence[Constraint]) -> Array | None:
    """State (nx,) that equalities from :func:`state_bounds` or :func:`bounded` fix together; None if an entry is free.

    The first value of an entry counts. On a manifold that is not flat, a single equality must fix the whole state.
    """
    fixed: dict[int, float] = {}
    for c in constraints:
        if not c.is_constant:
            continue
        manifold, rows, values = c.residual.manifold, chosen_coordinates(c), c.lower
        function = c.residual.function if isinstance(c.residual, FunctionMap) else None
        if isinstance(function, partial) and function.func is residuals.state_difference:
            if c.kind == "equality" and not c.lower.any():
                return c.parameters["reference"]
            if manifold.is_flat:
                rows, values = tuple(range(manifold.nx)), c.lower + c.parameters["reference"]
        for i, value, equal in zip(rows or (), values, c.lower == c.upper, strict=False):
            if equal:
                fixed.setdefault(i, value)
        if len(fixed) == manifold.nx:
            return np.array([fixed[i] for i in range(manifold.nx)])
    return None


# -- robots: the state is (q, v) of a rigid_body Model ------------------------------------------------------------------


def joint_limits(model, manifold: Manifold, margin: float = 0.0, name: str = "joint limits") -> Constraint:
    """Position limits of the model, tightened by a margin [rad or m]: lower + margin <= q <= upper - margin.

    Joints without a finite limit are not bounded, nor are mimic joints that follow others. Raises ValueError if the model has no
    finite limit or the margin leaves no feasible range.
    """
    lower, upper = model.q_lower + margin, model.q_upper - margin
    if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
        raise ValueError(f"{name}: no joint of the robot has a position limit; leave out position_limits")
    if np.any(lower > upper):
        worst = model.q_names[int(np.argmax(lower - upper))]
        raise ValueError(f"{name}: margin {margin} leaves no feasible range between the limits of {worst!r}; reduce it")
    return _joint_bounds(model, manifold, np.array([lower, upper]), np.array([[-np.inf], [np.inf]]), name)


def velocity_limits(model, manifold: Manifold, fraction: float = 1.0, name: str = "velocity limits") -> Constraint:
    """Velocity limits |v| <= fraction * limit of the model's joints.

    Joints without a finite limit are not bounded, nor are mimic joints that follow others. Raises ValueError if the model has no
    finite limit.
    """
    limit = fraction * model.velocity_limit
    if not np.isfinite(limit).any():
        raise ValueError(f"{name}: no joint of the robot has a velocity limit; leave out velocity_limits")
    return _joint_bounds(model, manifold, np.array([[-np.inf], [np.inf]]), np.array([-limit, limit]), name)


def _joint_bounds(model, manifold: Manifold, q: Array, v: Array, name: str) -> Constraint:
    """Bounds on the state of a robot from lower and upper limits q (2, nq) and v (2, nv), or (2, 1) for all.

    The state is that of the model, without mimic joints that follow others, or a vector that begins with it; then its other entries
    are not bounded.
    """
    q, v = np.broadcast_to(q, (2, model.nq)), np.broadcast_to(v, (2, model.nv))
    names, both = np.array([*model.q_names, *(f"v[{dof}]" for dof in model.dof_names)]), np.hstack([q, v])
    if model.coupling is not None:
        own = np.r_[model.independent_q, model.nq + model.independent_v]
        names, both = names[own], both[:, own]
    robot = (*(f"q[{name}]" for name in names[: len(names) // 2]), *names[len(names) // 2 :])
    more = manifold.nx - len(names) if manifold.is_flat and manifold.tangent_names[: len(robot)] == robot else 0
    both = np.hstack([both, np.tile([[-np.inf], [np.inf]], (1, more))])
    return state_bounds(manifold, both[0], both[1], name, [*names.tolist(), *[""] * more])


def link_points(model, frame: str, spacing: float) -> tuple[LinkPoint, ...]:
    """Points along the links that lead to a frame, at most ``spacing`` [m] apart.

    The points lie on straight lines between consecutive joints, and from the last joint to the frame. The origin of a body is among
    them if its joint slides: the rod that such a joint draws out is not covered. The fixed point of a first joint that turns is
    omitted. Raises UnknownName if the model has no such frame, ValueError for a spacing that is not positive.
    """
    if not spacing > 0:
        raise ValueError(f"spacing = {spacing!r}; expected a positive length [m]")
    end = model.frames[model.frame_id(frame)]
    ends, body = [(end.body, end.p)], end.body
    while body >= 0 and model.parent[body] >= 0:
        ends.append((int(model.parent[body]), model.placement_p[body]))
        body = int(model.parent[body])
    points = []
    for body, tip in reversed(ends):
        count, slides = (
            int(np.ceil(np.linalg.norm(tip) / spacing - 1e-9)),
            body >= 0 and model.joint_types[body] not in TURNING,
        )
        points += [
            LinkPoint(body, _triple(tip * (i / max(count, 1))), f"{model.body_names[body]} {i}/{max(count, 1)}")
            for i in range(0 if slides else 1, count + 1)
        ]
    return tuple(points)


TURNING = ("revolute", "spherical")
"""Joints that keep the origin of their body in place."""


def _triple(v: Array) -> tuple[float, float, float]:
    """Vector as a tuple of three floats."""
    x, y, z = v.tolist()
    return x, y, z


def sphere_obstacle(
    model,
    manifold: Manifold,
    points: Sequence[LinkPoint],
    center: Values,
    radius: float | Array,
    name: str = "obstacle",
) -> Constraint:
    """Constraint that keeps points outside of a sphere; center (3,) or (N, 3) [m] and radius [m], (1,) or (N, 1), are parameters.

    g = (distance^2 - radius^2) / (2 radius) >= 0, which near the surface is the distance from it [m].
    Raises ValueError without points, for a radius that is not positive or a center of another shape.
    """
    if not points:
        raise ValueError(f"constraint {name!r} has no points; see link_points")
    return residual_constraint(
        name,
        partial(residuals.sphere_clearance, model, tuple(points)),
        manifold,
        len(points),
        0.0,
        np.inf,
        parameters={"center": last_axis(center, 3, "center", name), "radius": _positive(radius, "radius", name)},
        output_names=tuple(point.name for point in points),
    )


def self_collision(
    model,
    manifold: Manifold,
    pairs: Sequence[tuple[LinkPoint, LinkPoint]],
    distance: float | Array,
    name: str = "self-collision",
) -> Constraint:
    """Constraint that keeps the points of each pair at least ``distance`` [m] apart: a number, or one for each pair.

    Raises ValueError without pairs, and for a distance that is not positive.
    """
    if not pairs:
        raise ValueError(f"constraint {name!r} has no pairs of points; see link_points")
    distances = np.broadcast_to(_positive(distance, "distance", name), (len(pairs),))
    return residual_constraint(
        name,
        partial(residuals.pair_clearance, model, tuple(pairs)),
        manifold,
        len(pairs),
        0.0,
        np.inf,
        parameters={"distance": distances},
        output_names=tuple(f"{a.name} and {b.name}" for a, b in pairs),
    )


def tube(
    model,
    manifold: Manifold,
    frame: str,
    path: Values | Path,
    radius: float | Array,
    name: str | None = None,
    *,
    nu: int = 0,
    parameters: Mapping[str, Values] | None = None,
) -> Constraint:
    """Constraint that keeps a frame within ``radius`` [m] of the point of a path that belongs to each knot.

    path: one point (3,) or one per knot (N, 3) [m], stored as the parameter ``path``; or a function ``path(x, u, t, p)`` of three
    scalars, for example of a path parameter that is part of the state. nu, parameters: number of controls and parameters that this
    function reads. Raises UnknownName if the model has no such frame, ValueError for a radius that is not positive.
    """
    title = name or f"tube of {frame}"
    values = dict(parameters or {}) | {"radius": _positive(radius, "radius", title)}
    if not callable(path):
        values |= {"path": last_axis(path, 3, "path", title)}
    along = FunctionMap(path, manifold, nu, 3) if callable(path) else residuals.path_parameter
    where = (model, model.frame_id(frame), along)
    function = partial(residuals.tube_clearance, *where)
    inner = FunctionMap(partial(residuals.path_offset, *where), manifold, nu, 3)
    result = residual_constraint(
        title, function, manifold, 1, 0.0, np.inf, nu=nu, parameters=values, output_names=(frame,)
    )
    return replace(result, composition=Composition(inner, FunctionMap(residuals.depth_in_ball, 3, 0, 1), convex=False))


def _positive(value: float | Array, what: str, where: str) -> Array:
    """Lengths as an array with at least one axis.

    Raises ValueError if one is not positive; the message names ``what`` of ``where``.
    """
    value = np.atleast_1d(np.asarray(value, dtype=float))
    if not (value > 0).all():
        raise ValueError(f"{what} of {where!r} is {value.min()}; expected a positive length [m]")
    return value


def quadratic_barrier(constraint: Constraint, weight: Values = 1.0, name: str | None = None) -> CostTerm:
    """Cost term 1/2 weight |g - P(g)|^2 of a constraint's residual g, with P(g) its projection on the bounds.

    It is zero within the bounds and once differentiable at them. weight: a number, (nr,) or (N, nr).
    """
    return _cost_of_excess(constraint, residuals.excess, weight, name, {})


def _cost_of_excess(
    constraint: Constraint, excess: Callable[..., Any], weight: Values, name: str | None, more: Mapping[str, Array]
) -> CostTerm:
    """Cost term of the excess of a constraint's residual over its bounds. excess: function of the finite bounds of each row,
    values and parameters. more: parameters besides the bounds. Raises TypeError for another object than a constraint.
    """
    if not isinstance(constraint, Constraint):
        raise TypeError(f"the constraint is a {type(constraint).__name__}; expected a trajopt.Constraint")
    low, high = constraint.lower, constraint.upper
    present = [np.isfinite(b).reshape(-1, b.shape[-1]).any(axis=0).tolist() for b in (low, high)]
    residual = composed(constraint.residual, partial(excess, tuple(zip(*present, strict=True))))
    bounds = {"lower": np.maximum(low, -INFINITE), "upper": np.minimum(high, INFINITE)}
    return CostTerm(name or constraint.name, residual, np.asarray(weight), {**constraint.parameters, **bounds, **more})


def joint_limit_cost(
    model, manifold: Manifold, weight: Values = 1.0, margin: float = 0.0, name: str = "joint limits"
) -> CostTerm:
    """Soft position limits: r_i = q_i - upper_i above, q_i - lower_i below, 0 within; once differentiable.

    One residual for each coordinate with a finite limit. margin: tightening of the limits [rad or m].
    Raises ValueError if the model has no finite limit or the margin leaves no feasible range.
    """
    if not np.isfinite([model.q_lower, model.q_upper]).any():
        raise ValueError(f"term {name!r}: the robot has no finite position limit; remove the term")
    return quadratic_barrier(joint_limits(model, manifold, margin, name), weight)
