"""The sentences with which the solvers of nonlinear programs end."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.nlp.nlp import NLP
from trajopt.solvers.qp.qp import violation

_GUESS = "Start from a better guess."
NO_STEP = "Start from a better guess, check the derivatives (trajopt check), or try another hessian."
"""What helps where no step was found."""
STATIONARY = 1e-5
"""A point is one of least violation where to first order no step reduces more than this share of the violation."""


class Worst(NamedTuple):
    """The constraint that is violated most, by name, and by how much."""

    name: str
    violation: float


def worst_constraint(nlp: NLP, w: Array, g: Array) -> Worst | None:
    """Among the rows of g and the bounds on w; None where there is no constraint or none is violated."""
    amounts = np.concatenate([violation(g, nlp.g_lower, nlp.g_upper), violation(w, nlp.x_lower, nlp.x_upper)])
    if not amounts.any():
        return None
    i = int(np.argmax(amounts))
    name = nlp.g_names[i] if i < len(g) else f"the bound on {nlp.x_names[i - len(g)]}"
    return Worst(name, float(amounts[i]))


def contradiction(nlp: NLP) -> Status | None:
    """The verdict on bounds of which a lower one lies above its upper one, or None."""
    excess = np.concatenate([nlp.g_lower - nlp.g_upper, nlp.x_lower - nlp.x_upper])
    if not (excess > 0.0).any():
        return None
    i = int(np.argmax(excess))
    name = (*nlp.g_names, *nlp.x_names)[i]
    lower, upper = np.concatenate([nlp.g_lower, nlp.x_lower])[i], np.concatenate([nlp.g_upper, nlp.x_upper])[i]
    message = f"The bounds of {name} contradict each other: lower {lower:.6g} > upper {upper:.6g}."
    return Status(StatusCode.INFEASIBLE, message, component=name, advice="Correct the bounds.")


def converged(iterations: int, gradient: float, worst: float, kkt: float | None = None) -> Status:
    """The optimality conditions hold; kkt: the scaled measure."""
    measure = "" if kkt is None else f"scaled KKT error {kkt:.1e}, "
    tests = f"{measure}gradient {gradient:.1e}, constraint violation {worst:.1e}"
    return Status(StatusCode.CONVERGED, f"Converged after {iterations} iterations: {tests}.", kkt=kkt)


def infeasible(iterations: int, worst: Worst | None, *, simulated: bool = False) -> Status:
    """A stationary point of the violation; simulated: whether the worst is of the motion under its controls."""
    where = "" if worst is None else f"; largest violation: {worst.name}, {worst.violation:.3g}"
    where += " in the rollout of the controls (the states have open defects)" if where and simulated else ""
    return Status(
        StatusCode.LOCALLY_INFEASIBLE,
        f"No feasible point near iteration {iterations}: the constraint violation cannot be reduced further{where}.",
        component=None if worst is None else worst.name,
        advice="Relax the named constraint, or start from another guess: a feasible point may exist elsewhere.",
    )


def unbounded(iterations: int, objective: float) -> Status:
    """The objective fell below any meaningful value at feasible points."""
    message = f"The objective decreased to {objective:.1e} in {iterations} iterations along feasible points."
    return Status(StatusCode.UNBOUNDED, message, advice="Add bounds, or a cost that grows far away.")


def stopped(
    code: StatusCode, reason: str, distance: str, worst: Worst | None, advice: str, kkt: float | None = None
) -> Status:
    """An end without convergence; worst: the constraint to name, if one is violated too much. kkt: the scaled measure."""
    where = "" if worst is None else f"; largest violation: {worst.name}, {worst.violation:.3g}"
    name = None if worst is None else worst.name
    status = Status(code, f"{reason}: {distance}{where}.", component=name, advice=advice, kkt=kkt)
    return replace(status, advice="") if status.success else status


def non_finite(nlp: NLP, w: Array, objective: float, g: Array, what: str = "") -> Status:
    """NaN or infinity at a point, in what comes first among w, the constraints and the objective."""
    for values, names, kind in ((w, nlp.x_names, "variable"), (g, nlp.g_names, "constraint")):
        if not np.isfinite(values).all():
            name = names[int(np.argmin(np.isfinite(values)))]
            return Status(
                StatusCode.NON_FINITE, f"NaN or infinity in the {kind} {name}.", component=name, advice=_GUESS
            )
    name = "the objective" if not np.isfinite(objective) else what or "a derivative"
    return Status(StatusCode.NON_FINITE, f"NaN or infinity in {name}.", component=name, advice=_GUESS)
