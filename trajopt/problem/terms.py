"""Cost terms: weighted squares of residuals, and weighted sums of functions.

    running    sum_k dt_k 1/2 sum_i w_i r_i(x_k, u_k, t_k, p)^2        the integral of 1/2 |r|_w^2 by the rectangle rule
    terminal               1/2 sum_i w_i r_i(x_N, t_N, p)^2
    objective  sum_k dt_k sum_i w_i f_i(x_k, u_k, t_k, p)              Lagrange term; at the end, without dt, a Mayer term

At a stage without duration, such as an impact, a running term counts as a terminal one does, without dt_k.

A residual is a :class:`~dynamics_backends.protocol.Map`, generic in the scalar.  References, goals and weights are
run-time values, constant or one per knot.  A residual on the empty manifold (:data:`NO_STATE`) does not read the
state, one with nu = 0 does not read the controls, so that its derivatives cost nothing there.
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
from dynamics_backends.rigid_body.spatial.rotations import rotation_matrix
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem import residuals

NO_STATE = Manifold([])
"""The manifold of residuals that do not read the state."""
_LINEAR, _ANGULAR = ("x", "y", "z"), ("rx", "ry", "rz")
Residual = Callable[[Rows, Rows, Scalar, Mapping[str, Rows]], "Rows | list[Scalar]"]
Values = Array | float | Sequence[Any]


@dataclass(frozen=True, eq=False)
class CostTerm:
    """A residual with its weight and parameters.

    name: for reports. residual: map with nr outputs.
    weight: (nr,) or (N, nr), at least zero; a number is taken for all components.
    parameters: run-time values by name, each (n,), or (N, n) with one row per knot of the phase.
    squared: False for a term that is the weighted sum of the outputs. Gauss-Newton has no Hessian for it: it has the exact one
    under every setting.

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
        """This term with another weight or other values of some parameters.

        A number stands for all entries of a parameter. Raises ValueError for a parameter that the term does not have, or of
        another size.
        """
        new_weight = self.weight if weight is None else np.asarray(weight, dtype=float)
        changed = changed_parameters(f"term {self.name!r}", self.parameters, parameters)
        return replace(self, weight=new_weight, parameters=changed)


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
    """A user's own residual, written as one function ``function(x, u, t, p)`` of rows.

    It returns rows or a list of ``n_out`` scalars and uses arithmetic, indexing and :mod:`dynamics_backends.scalar`.
    nu: the number of controls that it reads, the problem's; with nu = 0 (needed for a terminal term) ``u`` is empty.
    Raises ValueError for a parameter (a goal, a reference) that is not finite.

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
    residual = FunctionMap(function, manifold, nu, n_out, output_names=output_names, control_names=control_names)
    return CostTerm(name, residual, np.asarray(weight), finite_parameters(f"term {name!r}", parameters or {}))


def objective_term(
    name: str,
    function: Residual,
    manifold: AnyManifold,
    weight: Values = 1.0,
    *,
    nu: int = 0,
    parameters: Mapping[str, Values] | None = None,
) -> CostTerm:
    """A user's own objective, minimized as it is: l = weight f, weight >= 0, f = function(x, u, t, p) as in :func:`residual_cost`.

    As a running cost it is integrated over time (Lagrange term), as a terminal cost it is added once (Mayer term). The function
    returns one scalar, or a list of one; it need not be a square: its Hessian, which may be indefinite, is exact for all solvers.
    Where the function is 1/2 r'r, a residual's Gauss-Newton Hessian (:func:`residual_cost`) is the better one far from the optimum.
    nu: the number of controls that it reads, the problem's. Raises ValueError for parameters that are not finite.

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
    """l = weight (a'x + b'u): prices of states and of controls, such as those of slacks or of fuel.

    state: a, (nx,) or (N, nx), in the numbers of the state. control: b, (nu,) or (N, nu). Both can be changed between solves, as
    the parameters ``state`` and ``control``. A price has no curvature: the problem needs bounds, or a curved cost beside it.
    Raises ValueError for neither, for a number, and for a state of another size.

    >>> import numpy as np, trajopt as to
    >>> price = to.linear_cost(to.vector_space(2), control=[2.0])
    >>> to.quadratize(price, np.zeros((1, 2)), np.array([[3.0]]), 0.0).value
    array([6.])
    """
    whole = as_manifold(manifold)
    slopes = {"state": state, "control": control}
    given = {key: np.asarray(value, float) for key, value in slopes.items() if value is not None}
    if not given:
        raise ValueError(f"term {name!r}: give the slope in the state, in the control, or both")
    for key, value in given.items():
        if not value.ndim:
            raise ValueError(
                f"term {name!r}: {key} is a number; give one slope for each entry, such as {key} = [{value:g}]"
            )
    nx, nu = (given[key].shape[-1] if key in given else 0 for key in slopes)
    if nx not in (0, whole.nx):
        raise ValueError(f"term {name!r}: state has {nx} entries; expected (nx = {whole.nx},) or (N, {whole.nx})")
    residual = FunctionMap(partial(residuals.linear, nx, nu), whole if nx else NO_STATE, nu, 1, output_names=(name,))
    return CostTerm(name, residual, np.asarray(weight), finite_parameters(f"term {name!r}", given), squared=False)


QUADRATURE = "quadrature"
"""Parameter of running terms by the trapezoidal rule: the factor of each knot."""


def trapezoidal(running: Sequence[CostTerm], dt: Array) -> tuple[list[CostTerm], list[CostTerm]]:
    """Running terms whose sum over the time steps dt (N,) [s] is the trapezoidal rule, and its terms at the end.

    Knot k has the weight (dt_(k-1) + dt_k) / 2 in place of dt_k, the last one dt_(N-1) / 2; for terms that read controls, which are
    held over each step, the rectangle rule stays. References and weights given by knot keep their last row at the end.
    """
    factors = trapezoidal_factors(dt)
    found, end = [], []
    for term in running:
        if term.residual.nu:
            found.append(term)
            continue
        found.append(_weighed(term, factors[:, None]))
        last = {key: v[-1] if v.ndim == 2 else v for key, v in term.parameters.items()}
        weight = term.weight[-1] if term.weight.ndim == 2 else term.weight
        end.append(_weighed(replace(term, weight=weight, parameters=last), np.array([0.5 * dt[-1]])))
    return found, end


def trapezoidal_factors(dt: Array) -> Array:
    """(N,) by which the weights of the rectangle rule on time steps dt (N,) [s] are multiplied."""
    return 0.5 * (1.0 + np.concatenate([[0.0], dt[:-1]]) / dt)


def _weighed(term: CostTerm, factor: Array) -> CostTerm:
    """A term on the state times a factor, (1,) or (N, 1), which is a parameter of its own: weights stay those of the user."""
    inner = term.residual
    function = partial(residuals.scaled, inner)
    residual = FunctionMap(function, inner.manifold, 0, inner.n_out, output_names=inner.output_names)
    values = {**term.parameters, QUADRATURE: np.sqrt(factor) if term.squared else factor}
    return replace(term, residual=residual, parameters=values)


def state_cost(manifold: AnyManifold, reference: Values, weight: Values = 1.0, name: str = "state") -> CostTerm:
    """r = x (-) reference in the tangent space at the reference, (ndx,).

    reference: (nx,) or (N, nx). Raises ValueError if it does not fit or holds a quaternion that is not of unit length.
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
    weight: Values = 1.0,
    name: str = "control",
    names: tuple[str, ...] | None = None,
) -> CostTerm:
    """r = u - reference, (nu,); reference: a number, (nu,) or (N, nu); names: of the controls, for reports."""
    reference = np.asarray(reference, dtype=float)
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
    """r = position of the frame - goal, WORLD, (3,) [m]; goal: (3,) or (N, 3).

    Raises UnknownName if the model has no such frame.
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
    """r = (R_goal' (p - p_goal), log(R_goal' R)), coordinates of the goal frame, (6,) [m, rad].

    position: (3,) or (N, 3), WORLD. rotation: world from goal frame, a matrix (3, 3), a quaternion x, y, z, w (4,) or roll, pitch,
    yaw (3,) [rad], each with N in front for one per knot, see :func:`~trajopt.rotation_matrix`; as at a configuration q0 it is
    ``to.frame_placement(model, q0, frame)[0]``. It is stored as the parameter ``rotation`` (9,), row by row. The residual is smooth
    while the angle to the goal stays below pi.
    log6: r = log(M_goal^-1 M) on SE(3) instead, whose linear part is that of the screw motion from the goal to the frame
    (Crocoddyl's ResidualModelFramePlacement). Raises UnknownName if the model has no such frame, ValueError for an invalid rotation
    or a position that is not finite.
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
    """r = (p - p_goal, R axis across R_goal axis), (5,) [m, 1]: a placement, but for the rotation about an axis of the frame.

    position: (3,) or (N, 3), WORLD. rotation: world from goal frame, as in :func:`frame_placement_cost`, the same at all knots.
    axis: (3,) in the frame; one that points the opposite way at the goal has the residual zero too. Raises UnknownName if the model
    has no such frame, ValueError for an axis without direction, and for an invalid rotation.
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
    """r = velocity of the frame - reference, [linear, angular] (6,) [m/s, rad/s].

    expressed_in: "LOCAL", "WORLD" or "LOCAL_WORLD_ALIGNED".
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
    """r = center of mass - goal, WORLD, (3,) [m]; goal: (3,) or (N, 3)."""

    goal = last_axis(goal, 3, "goal", name)
    names = tuple(f"com.{axis}" for axis in _LINEAR)
    residual = partial(residuals.center_of_mass, model)
    return residual_cost(name, residual, manifold, 3, weight, parameters={"goal": goal}, output_names=names)


def joint_limit_cost(
    model, manifold: Manifold, weight: Values = 1.0, margin: float = 0.0, name: str = "joint limits"
) -> CostTerm:
    """Soft position limits: r_i = q_i - upper_i above, q_i - lower_i below, 0 within; a cost once differentiable.

    One residual for each coordinate with a finite limit. margin: [rad or m] by which the limits are narrowed.
    Raises ValueError if the model has no finite limit or the margin leaves no room.
    """
    lower, upper = model.q_lower + margin, model.q_upper - margin
    limited = [int(i) for i in np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))]
    if not limited:
        raise ValueError(f"term {name!r}: the model has no finite position limit; remove the term")
    if np.any(lower > upper):
        worst = model.q_names[int(np.argmax(lower - upper))]
        raise ValueError(
            f"term {name!r}: margin {margin} leaves no feasible range between the limits of {worst!r}; reduce it"
        )
    finite = list(zip(np.isfinite(lower[limited]).tolist(), np.isfinite(upper[limited]).tolist(), strict=True))
    residual = partial(residuals.limit_excess, limited, finite)

    values = {"lower": _finite(lower[limited]), "upper": _finite(upper[limited])}
    names = tuple(model.q_names[i] for i in limited)
    return residual_cost(name, residual, manifold, len(limited), weight, parameters=values, output_names=names)


def arrays_of(values: Mapping[str, Values]) -> dict[str, Array]:
    """Parameters by name as arrays of floats."""
    return {key: np.asarray(value, dtype=float) for key, value in values.items()}


def finite_parameters(where: str, parameters: Mapping[str, Values]) -> dict[str, Array]:
    """Parameters as arrays (n,) or (N, n). Raises ValueError for NaN or infinity, naming ``where``."""
    values = {key: np.atleast_1d(value) for key, value in arrays_of(parameters).items()}
    for key, value in values.items():
        wrong = ~np.isfinite(value)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            at = f"entry {place[-1]}" + (f" of knot {place[0]}" if len(place) > 1 else "")
            raise ValueError(f"{where}: parameter {key!r} is {value[place]} at {at}: give finite numbers")
    return values


def changed_parameters(where: str, known: Mapping[str, Array], given: Mapping[str, Values]) -> dict[str, Array]:
    """Parameters with other values for some of them, each (n,) or (N, n) as before, or a number for all entries.

    Raises ValueError for one that is not known, or of another n, naming ``where``.
    """
    changed = dict(known)
    for key, value in arrays_of(given).items():
        if key not in known:
            raise ValueError(f"{where} has no parameter {key!r}; it has: {', '.join(known) or 'none'}")
        size = known[key].shape[-1]
        if value.ndim and value.shape[-1] != size:
            raise ValueError(f"{where}: the parameter {key!r} has {size} numbers; got {value.shape[-1]}")
        changed[key] = value if value.ndim else np.full(size, value)
    return changed


def _finite(bounds: Array) -> Array:
    return np.where(np.isfinite(bounds), bounds, 0.0)


def last_axis(value: Values, size: int, what: str, where: str) -> Array:
    """The value as an array (size,) or (N, size). Raises ValueError for another shape, naming ``what`` and ``where``."""
    value = np.asarray(value, dtype=float)
    if value.ndim not in (1, 2) or value.shape[-1] != size:
        raise ValueError(f"{what} of {where!r} has shape {value.shape}; expected ({size},) or (N, {size})")
    return value


def velocities_hint(manifold: Manifold, shape: tuple[int, ...]) -> str:
    """What helps where a state (q, v) is given as q alone: "" for other shapes."""
    nv = manifold.ndx // 2
    if manifold.ndx % 2 or shape != (manifold.nx - nv,):
        return ""
    return f": for a state (q, v) append velocities, np.r_[q, np.zeros({nv})]"


# -- unit quaternions ---------------------------------------------------------------------------------------------------

QUATERNION_TOLERANCE = 1e-6
"""Largest accepted deviation of a quaternion's norm from one."""
_QUATERNION_OFFSET = {"SO(3)": 0, "SE(3)": 3}


def quaternion_error(manifold: Manifold, x: Array) -> float:
    """The largest | |quaternion| - 1 | among states x (..., nx); 0 where there are none, NaN for NaN states."""
    return float(quaternion_errors(manifold, x).max(initial=0.0))


def quaternion_errors(manifold: Manifold, x: Array) -> Array:
    """(...) the largest | |quaternion| - 1 | of each of the states x (..., nx)."""
    worst, start = np.zeros(x.shape[:-1]), 0
    for group in manifold.groups:
        offset = _QUATERNION_OFFSET.get(group.name)
        if offset is not None:
            quaternion = x[..., start + offset : start + offset + 4]
            worst = np.maximum(worst, np.abs(np.linalg.norm(quaternion, axis=-1) - 1.0))
        start += group.nq
    return worst
