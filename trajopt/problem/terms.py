"""Cost terms: weighted squares of residuals, and weighted sums of functions.

    running    sum_k dt_k 1/2 sum_i w_i r_i(x_k, u_k, t_k, p)^2        integral of 1/2 |r|_w^2 by the rectangle rule
    terminal               1/2 sum_i w_i r_i(x_N, t_N, p)^2
    objective  sum_k dt_k sum_i w_i f_i(x_k, u_k, t_k, p)              Lagrange term; at the end, without dt, a Mayer term

At a stage without duration, such as an impact, running terms have the weight 1 in place of dt_k.

A residual is a :class:`~dynamics_backends.protocol.Map`, generic in the scalar type. References, goals and weights are run-time
values, constant or one per knot. A residual on the empty manifold (:data:`NO_STATE`) does not read the state, and one with nu = 0
does not read the controls; derivatives in these are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.manifold import AnyManifold, Manifold, as_manifold
from dynamics_backends.protocol import Array, FunctionMap, Map
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.rotations import rotation_matrix
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem import residuals

NO_STATE = Manifold([])
"""Manifold of residuals that do not read the state."""
_LINEAR, _ANGULAR = ("x", "y", "z"), ("rx", "ry", "rz")
Residual = Callable[[Rows, Rows, Scalar, Mapping[str, Rows]], "Rows | list[Scalar]"]
Values = Array | float | Sequence[Any]


def rows_at(value: Array, knots: int | slice | Array) -> Array:
    """Return the rows of knots of a value (N, n) that is given by knot; a constant value (n,) is returned unchanged."""
    return value[knots] if value.ndim == 2 else value


def next_rows(rows: Array) -> Array:
    """Return the rows of the next knots; the last row is repeated."""
    return np.vstack([rows[1:], rows[-1:]])


def parameters_at(parameters: Mapping[str, Array], knots: int | slice | Array) -> dict[str, Array]:
    """Return the parameters by name at knots of their phase; see :func:`rows_at`."""
    return {name: rows_at(value, knots) for name, value in parameters.items()}


@dataclass(frozen=True, eq=False)
class CostTerm:
    """A residual with weight and parameters.

    name: for reports. residual: map with nr outputs.
    weight: (nr,) or (N, nr), at least zero; a number sets all components.
    parameters: run-time values by name, each (n,), or (N, n) with one row per knot of the phase.
    squared: False for a term that is the weighted sum of the outputs. Its Hessian is always exact, because Gauss-Newton has none
    for it.

    Raises ValueError for a negative or non-finite weight, or one that does not fit the residual.
    """

    name: str
    residual: Map
    weight: Array = 1.0  # type: ignore[assignment]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    squared: bool = True

    def __post_init__(self) -> None:
        nr = self.residual.n_out
        weight = np.array(self.weight, dtype=float)
        weight = np.full(nr, weight) if weight.ndim == 0 else weight
        if weight.ndim > 2 or weight.shape[-1] != nr:
            message = f"weight has shape {weight.shape}; expected (nr = {nr},) or (N, {nr})"
            raise ValueError(f"term {self.name!r}: {message}")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError(f"term {self.name!r}: weights must be finite and at least zero, got {weight}")
        object.__setattr__(self, "weight", weight)
        values = {key: np.atleast_1d(np.array(value, dtype=float)) for key, value in self.parameters.items()}
        object.__setattr__(self, "parameters", values)

    def __repr__(self) -> str:
        low, high = self.weight.min(initial=np.inf), self.weight.max(initial=0.0)
        weight = f"{high:g}" if low == high else f"{low:g} to {high:g}"
        kind = "residuals" if self.squared else "functions"
        return f"CostTerm({self.name!r}: {self.residual.n_out} {kind}, weight {weight})"

    def updated(self, *, weight: Values | None = None, **parameters: Values) -> CostTerm:
        """Copy of this term with a new weight or new values of parameters.

        Values that are not given are unchanged. A number sets all entries of a parameter. Raises ValueError for an unknown
        parameter or a wrong size.
        """
        new_weight = self.weight if weight is None else np.asarray(weight, dtype=float)
        changed = changed_parameters(f"term {self.name!r}", self.parameters, parameters)
        return replace(self, weight=new_weight, parameters=changed)

    def at_knots(self, knots: int | slice | Array) -> CostTerm:
        """Copy of this term with its weight and parameters at knots of its phase; constant ones are unchanged."""
        return replace(self, weight=rows_at(self.weight, knots), parameters=parameters_at(self.parameters, knots))


def residual_cost(
    name: str,
    function: Residual,
    manifold: AnyManifold,
    n_out: int,
    weight: Values = 1.0,
    *,
    nu: int = 0,
    parameters: Mapping[str, Values] | None = None,
    output_names: tuple[str, ...] | None = None,
    control_names: tuple[str, ...] | None = None,
) -> CostTerm:
    """Cost term with a user-defined residual, a function ``function(x, u, t, p)`` of rows.

    The function returns rows or a list of ``n_out`` scalars and uses arithmetic, indexing and functions of NumPy or trajopt.
    weight: a number, (n_out,) or (N, n_out) with one row per knot, in cost per squared unit of the residual, and per second [s] in
    a running term. nu: number of controls of the problem, if the function reads u; with nu = 0 (required for a terminal term) ``u``
    is empty. Raises ValueError for a parameter (a goal, a reference) that is not finite, and for an invalid weight, see
    :class:`CostTerm`.

    >>> import numpy as np, trajopt as to
    >>> plane = to.Manifold.vector(2)
    >>> def ring(x, u, t, p):
    ...     return [x[0] * x[0] + x[1] * x[1] - p["r"][0]]
    >>> ring = to.residual_cost("ring", ring, plane, 1, 2.0, parameters={"r": [1.0]})
    >>> to.quadratize(ring, np.array([[1.0, 1.0]]), np.zeros((1, 0)), 0.0).value
    array([1.])
    >>> ring.updated(r=[2.0]).parameters["r"]
    array([2.])
    """
    require_state_of_model(f"term {name!r}", function, as_manifold(manifold))
    residual = FunctionMap(function, manifold, nu, n_out, output_names=output_names, control_names=control_names)
    return CostTerm(name, residual, np.asarray(weight), finite_parameters(f"term {name!r}", parameters or {}))


def require_state_of_model(what: str, function: Residual, manifold: Manifold) -> None:
    """Raise ValueError if a function of a robot model gets the state of another robot, to judge by the names of its directions.

    function: a functools.partial whose first argument is the model is checked, and only with a state whose directions have names of
    joints. what: begins the message.
    """
    model = function.args[0] if isinstance(function, partial) and function.args else None
    given = [name for name in manifold.tangent_names if name.startswith("q[")]
    if not (isinstance(model, Model) and given):
        return
    expected = [f"q[{name}]" for name in model.dof_names]
    if given == expected:
        return
    if model.coupling is not None:
        raise ValueError(
            f"{what}: {model.name} has mimic joints that follow others, which terms of frames do not know: load it with mimic = "
            "'free' or 'lock', or write the term as a function of the independent joints"
        )
    raise ValueError(f"{what}: the state has {', '.join(given)}, but {model.name} has {', '.join(expected)}")


def objective_term(
    name: str,
    function: Residual,
    manifold: AnyManifold,
    weight: Values = 1.0,
    *,
    nu: int = 0,
    parameters: Mapping[str, Values] | None = None,
) -> CostTerm:
    """Cost term with a user-defined objective: l = weight f, weight >= 0, f = function(x, u, t, p) as in :func:`residual_cost`.

    A running term is integrated over time (Lagrange term), a terminal term is added once (Mayer term). The function returns one
    scalar, or a list of one, and need not be a square. All solvers use its exact Hessian, which may be indefinite. For a function
    1/2 r'r, prefer :func:`residual_cost`: the Gauss-Newton Hessian works better far from the optimum. nu: number of controls of
    the problem, if the function reads u, else 0. Raises ValueError for parameters that are not finite.

    >>> import numpy as np, trajopt as to
    >>> far = to.objective_term("minus the distance", lambda x, u, t, p: [-x[0]], to.vector_space(2))
    >>> to.quadratize(far, np.array([[3.0, 1.0]]), np.zeros((1, 0)), 0.0).lx
    array([[-1.,  0.]])
    """

    residual = FunctionMap(function, manifold, nu, 1, output_names=(name,))
    values = finite_parameters(f"term {name!r}", parameters or {})
    return CostTerm(name, residual, np.asarray(weight), values, squared=False)


def linear_cost(
    manifold: AnyManifold,
    state: Values | None = None,
    control: Values | None = None,
    weight: Values = 1.0,
    name: str = "linear",
) -> CostTerm:
    """Linear cost l = weight (a'x + b'u), for example of slacks or of fuel.

    state: a, (nx,) or (N, nx), one entry per entry of the state. control: b, (nu,) or (N, nu). Both can be changed between solves,
    as the parameters ``state`` and ``control``. A linear cost has no curvature, so the problem needs bounds or another, curved
    cost. Raises ValueError if neither is given, for a scalar, and for a state of another size.

    >>> import numpy as np, trajopt as to
    >>> price = to.linear_cost(to.vector_space(2), control=[2.0])
    >>> to.quadratize(price, np.zeros((1, 2)), np.array([[3.0]]), 0.0).value
    array([6.])
    """
    whole = as_manifold(manifold)
    slopes = {"state": state, "control": control}
    coefficients = {key: np.asarray(value, float) for key, value in slopes.items() if value is not None}
    if not coefficients:
        raise ValueError(f"term {name!r}: give the slope in the state, in the control, or both")
    for key, value in coefficients.items():
        if not value.ndim:
            raise ValueError(
                f"term {name!r}: {key} is a number; give one slope for each entry, such as {key} = [{value:g}]"
            )
    nx, nu = (coefficients[key].shape[-1] if key in coefficients else 0 for key in slopes)
    if nx not in (0, whole.nx):
        raise ValueError(f"term {name!r}: state has {nx} entries; expected (nx = {whole.nx},) or (N, {whole.nx})")
    residual = FunctionMap(partial(residuals.linear, nx, nu), whole if nx else NO_STATE, nu, 1, output_names=(name,))
    return CostTerm(
        name, residual, np.asarray(weight), finite_parameters(f"term {name!r}", coefficients), squared=False
    )


QUADRATURE = "quadrature"
"""Parameter of terms with the trapezoidal rule: the factor of each knot, or its square root if the term is squared."""


def trapezoidal(running: Sequence[CostTerm], dt: Array) -> tuple[list[CostTerm], list[CostTerm]]:
    """Convert running terms to the trapezoidal rule on time steps dt (N,) [s]; returns running terms and additional terminal terms.

    Knot k gets the weight (dt_(k-1) + dt_k) / 2 in place of dt_k, the last one dt_(N-1) / 2. Terms that read controls, which are
    constant over each step, keep the rectangle rule. Terminal terms use the last row of references and weights given by knot.
    """
    factors = trapezoidal_factors(dt)
    result, end = [], []
    for term in running:
        if term.residual.nu:
            result.append(term)
            continue
        result.append(_scaled_term(term, factors[:, None]))
        end.append(_scaled_term(term.at_knots(-1), np.array([0.5 * dt[-1]])))
    return result, end


def trapezoidal_factors(dt: Array) -> Array:
    """Factors (N,) from weights of the rectangle rule to weights of the trapezoidal rule, on time steps dt (N,) [s]."""
    return 0.5 * (1.0 + np.concatenate([[0.0], dt[:-1]]) / dt)


def _scaled_term(term: CostTerm, factor: Array) -> CostTerm:
    """Copy of a term that reads only the state, with its cost multiplied by a factor (1,) or (N, 1).

    The factor (its square root for a squared term) is a parameter (:data:`QUADRATURE`), so that the user's weights are unchanged.
    """
    inner = term.residual
    function = partial(residuals.scaled, inner)
    residual = FunctionMap(function, inner.manifold, 0, inner.n_out, output_names=inner.output_names)
    values = {**term.parameters, QUADRATURE: np.sqrt(factor) if term.squared else factor}
    return replace(term, residual=residual, parameters=values)


def state_cost(manifold: AnyManifold, reference: Values, weight: Values = 1.0, name: str = "state") -> CostTerm:
    """Cost of r = x (-) reference in the tangent space at the reference, (ndx,).

    reference: (nx,) or (N, nx). weight: a number, (ndx,) or (N, ndx). Raises ValueError for another shape, and for a quaternion
    that is not of unit length.
    """
    manifold, reference = as_manifold(manifold), np.asarray(reference, dtype=float)
    if reference.shape[-1:] != (manifold.nx,):
        hint = velocities_hint(manifold, reference.shape[-1:])
        raise ValueError(f"term {name!r}: reference has shape {reference.shape}; expected (nx = {manifold.nx},){hint}")
    error = quaternion_error(manifold, reference)
    if error > QUATERNION_TOLERANCE:
        raise ValueError(f"term {name!r}: a quaternion of the reference has norm 1 +- {error:.1e}: normalize it")

    return residual_cost(
        name,
        partial(residuals.state_difference, manifold),
        manifold,
        manifold.ndx,
        weight,
        parameters={"reference": reference},
        output_names=manifold.tangent_names,
    )


def control_cost(
    nu: int,
    reference: Values = 0.0,
    weight: Values | None = None,
    name: str = "control",
    names: tuple[str, ...] | None = None,
) -> CostTerm:
    """Cost of r = u - reference, (nu,).

    reference, weight: a number, (nu,) or (N, nu); default weight 1. names: names of the controls, for reports. Raises ValueError
    for another shape, for a reference that is not finite, and for a single nonzero number as the reference without a weight, which
    may be meant as the weight.
    """
    reference = np.asarray(reference, dtype=float)
    if weight is None and reference.ndim == 0 and reference:
        raise ValueError(
            f"term {name!r}: {reference} is the reference, and there is no weight; pass weight={reference}, or both by name"
        )
    weight = 1.0 if weight is None else weight
    reference = np.full(nu, reference) if reference.ndim == 0 else reference
    if reference.shape[-1:] != (nu,):
        raise ValueError(f"term {name!r}: reference has shape {reference.shape}; expected (nu = {nu},) or (N, {nu})")

    return residual_cost(
        name,
        residuals.control_difference,
        NO_STATE,
        nu,
        weight,
        nu=nu,
        parameters={"reference": reference},
        output_names=names,
        control_names=names,
    )


# -- robots: the state is (q, v) of a rigid_body Model ------------------------------------------------------------------


def frame_position_cost(
    model, manifold: Manifold, frame: str, goal: Values, weight: Values = 1.0, name: str | None = None
) -> CostTerm:
    """Cost of r = position of the frame - goal, WORLD, (3,) [m]; goal: (3,) or (N, 3).

    weight: a number, (3,) or (N, 3). Raises UnknownName if the model has no such frame, ValueError for a goal of another shape or
    that is not finite.
    """

    frame_id = model.frame_id(frame)

    goal = last_axis(goal, 3, "goal", frame)
    residual = partial(residuals.frame_position, model, frame_id)
    names = tuple(f"{frame}.{axis}" for axis in _LINEAR)
    title = name or f"position of {frame}"
    return residual_cost(title, residual, manifold, 3, weight, parameters={"goal": goal}, output_names=names)


def frame_placement_cost(
    model,
    manifold: Manifold,
    frame: str,
    position: Values,
    rotation: Values,
    weight: Values = 1.0,
    name: str | None = None,
    *,
    log6: bool = False,
) -> CostTerm:
    """Cost of r = (R_goal' (p - p_goal), log(R_goal' R)), coordinates of the goal frame, (6,) [m, rad].

    position: (3,) or (N, 3), WORLD. rotation: world from goal frame, a matrix (3, 3), a quaternion x, y, z, w (4,) or roll, pitch,
    yaw (3,) [rad], each with a leading axis N for one per knot, see :func:`~trajopt.rotation_matrix`. The rotation at a
    configuration q0 is ``to.frame_placement(model, q0, frame)[0]``. It is stored as the parameter ``rotation`` (9,), row by row.
    weight: a number, (6,) or (N, 6). The residual is smooth while the angle to the goal is below pi. log6: use r = log(M_goal^-1 M)
    on SE(3), whose linear part is that of the screw motion from the goal to the frame (Crocoddyl's ResidualModelFramePlacement).
    Raises UnknownName if the model has no such frame, ValueError for an invalid rotation or a position that is not finite.
    """

    frame_id = model.frame_id(frame)
    rotation = rotation_matrix(rotation, f"the rotation of the goal of {frame!r}")

    values = {
        "position": last_axis(position, 3, "position", frame),
        "rotation": rotation.reshape(*rotation.shape[:-2], 9),
    }
    residual = partial(residuals.frame_log if log6 else residuals.frame_placement, model, frame_id)
    names = tuple(f"{frame}.{axis}" for axis in (*_LINEAR, *_ANGULAR))
    title = name or f"placement of {frame}"
    return residual_cost(title, residual, manifold, 6, weight, parameters=values, output_names=names)


def frame_axis_cost(
    model,
    manifold: Manifold,
    frame: str,
    position: Values,
    rotation: Values,
    axis: Values,
    weight: Values = 1.0,
    name: str | None = None,
) -> CostTerm:
    """Cost of a placement with free rotation about an axis of the frame, (5,) [m, 1].

    r = p - p_goal and the two components of R axis perpendicular to R_goal axis. position: (3,) or (N, 3), WORLD. rotation: world
    from goal frame, as in :func:`frame_placement_cost`, the same at all knots. axis: (3,) in the frame; the opposite direction at
    the goal has a zero residual too. weight: a number, (5,) or (N, 5). Raises UnknownName if the model has no such frame,
    ValueError for an axis without direction, and for an invalid rotation.
    """
    R = rotation_matrix(rotation, f"the rotation of the goal of {frame!r}")
    direction = np.asarray(axis, dtype=float)
    if direction.shape != (3,) or not 0.0 < np.linalg.norm(direction) < np.inf or R.shape != (3, 3):
        raise ValueError(
            f"axis = {direction.tolist()}; expected a direction (3,) in the frame {frame!r}, and one rotation (3, 3)"
        )
    direction = direction / np.linalg.norm(direction)
    along = R @ direction
    across = np.linalg.svd(along[None])[2][1:]
    values = {"position": last_axis(position, 3, "position", frame), "across": across.ravel()}
    residual = partial(residuals.frame_axis, model, model.frame_id(frame), tuple(direction.tolist()))
    names = (*(f"{frame}.{component}" for component in _LINEAR), f"{frame}.tilt 1", f"{frame}.tilt 2")
    title = name or f"axis of {frame}"
    return residual_cost(title, residual, manifold, 5, weight, parameters=values, output_names=names)


def frame_velocity_cost(
    model,
    manifold: Manifold,
    frame: str,
    reference: Values = (0.0,) * 6,
    weight: Values = 1.0,
    *,
    expressed_in: str = "LOCAL_WORLD_ALIGNED",
    name: str | None = None,
) -> CostTerm:
    """Cost of r = velocity of the frame - reference, [linear, angular] (6,) [m/s, rad/s].

    reference: (6,) or (N, 6); default: zero. weight: a number, (6,) or (N, 6). expressed_in: "LOCAL", "WORLD" or
    "LOCAL_WORLD_ALIGNED". Raises ValueError for another one or another reference, UnknownName if the model has no such frame.
    """

    frame_id = model.frame_id(frame)
    if expressed_in not in kinematics.REFERENCES:
        raise ValueError(f"expressed_in = {expressed_in!r}; known: {', '.join(kinematics.REFERENCES)}")

    values = {"reference": last_axis(reference, 6, "reference", frame)}
    residual = partial(residuals.frame_velocity, model, frame_id, expressed_in)
    names = tuple(f"{frame}.v{axis}" for axis in (*_LINEAR, *_ANGULAR))
    title = name or f"velocity of {frame}"
    return residual_cost(title, residual, manifold, 6, weight, parameters=values, output_names=names)


def center_of_mass_cost(
    model, manifold: Manifold, goal: Values, weight: Values = 1.0, name: str = "center of mass"
) -> CostTerm:
    """Cost of r = center of mass - goal, WORLD, (3,) [m]; goal: (3,) or (N, 3). weight: a number, (3,) or (N, 3).

    Raises ValueError for a goal of another shape or that is not finite.
    """

    goal = last_axis(goal, 3, "goal", name)
    names = tuple(f"com.{axis}" for axis in _LINEAR)
    residual = partial(residuals.center_of_mass, model)
    return residual_cost(name, residual, manifold, 3, weight, parameters={"goal": goal}, output_names=names)


def arrays_of(values: Mapping[str, Values]) -> dict[str, Array]:
    """Parameters by name as arrays of floats."""
    return {key: np.asarray(value, dtype=float) for key, value in values.items()}


def finite_parameters(where: str, parameters: Mapping[str, Values]) -> dict[str, Array]:
    """Parameters as arrays (n,) or (N, n). Raises ValueError for NaN or infinity; ``where`` begins the message."""
    values = {key: np.atleast_1d(value) for key, value in arrays_of(parameters).items()}
    for key, value in values.items():
        wrong = ~np.isfinite(value)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            at = f"entry {place[-1]}" + (f" of knot {place[0]}" if len(place) > 1 else "")
            raise ValueError(f"{where}: parameter {key!r} is {value[place]} at {at}: give finite numbers")
    return values


def changed_parameters(where: str, known: Mapping[str, Array], changes: Mapping[str, Values]) -> dict[str, Array]:
    """Copy of the parameters ``known`` with the new values ``changes``, each (n,) or (N, n), or a number for all entries.

    Raises ValueError for an unknown parameter or another n; ``where`` begins the message.
    """
    changed = dict(known)
    for key, value in arrays_of(changes).items():
        if key not in known:
            raise ValueError(f"{where} has no parameter {key!r}; it has: {', '.join(known) or 'none'}")
        size = known[key].shape[-1]
        if value.ndim and value.shape[-1] != size:
            raise ValueError(f"{where}: the parameter {key!r} has {size} numbers; got {value.shape[-1]}")
        changed[key] = value if value.ndim else np.full(size, value)
    return changed


def last_axis(value: Values, size: int, what: str, where: str) -> Array:
    """Value as an array (size,) or (N, size). Raises ValueError for another shape; the message names ``what`` of ``where``."""
    value = np.asarray(value, dtype=float)
    if value.ndim not in (1, 2) or value.shape[-1] != size:
        raise ValueError(f"{what} of {where!r} has shape {value.shape}; expected ({size},) or (N, {size})")
    return value


def velocities_hint(manifold: Manifold, shape: tuple[int, ...]) -> str:
    """Advice for messages if a ``shape`` fits positions q of a state (q, v) without its velocities; "" for other shapes."""
    nv = manifold.ndx // 2
    if manifold.ndx % 2 or shape != (manifold.nx - nv,):
        return ""
    return f": for a state (q, v) append velocities, np.r_[q, np.zeros({nv})]"


# -- unit quaternions ---------------------------------------------------------------------------------------------------

QUATERNION_TOLERANCE = 1e-6
"""Largest accepted deviation of a quaternion's norm from one."""
_QUATERNION_OFFSET = {"SO(3)": 0, "SE(3)": 3}


def quaternion_error(manifold: Manifold, x: Array) -> float:
    """Largest | |quaternion| - 1 | of the states x (..., nx); 0 without quaternions, NaN for NaN states."""
    return float(quaternion_errors(manifold, x).max(initial=0.0))


def quaternion_errors(manifold: Manifold, x: Array) -> Array:
    """Largest | |quaternion| - 1 | of each of the states x (..., nx), an array (...); 0 without quaternions."""
    worst, start = np.zeros(x.shape[:-1]), 0
    for group in manifold.groups:
        offset = _QUATERNION_OFFSET.get(group.name)
        if offset is not None:
            quaternion = x[..., start + offset : start + offset + 4]
            worst = np.maximum(worst, np.abs(np.linalg.norm(quaternion, axis=-1) - 1.0))
        start += group.nq
    return worst
