"""Diagnosis of nonlinear programs: the constraint, bound or number that caused a solve to fail."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.nlp.nlp import Program
from trajopt.solvers.qp.qp import violation
from trajopt.solvers.termination import CrossedBounds, NonFinite, WorstConstraint

STATIONARY_VIOLATION = 1e-5
"""A point counts as a minimizer of the violation if, to first order, no step reduces more than this fraction of it."""
DYNAMICS = "dynamics of "
"""Start of the names of rows that are defects."""
APPARENT = 1e-3
"""Largest violation of constraints other than defects, in their units, at which the rollout names the cause."""


def worst_constraint(nlp: Program, w: Array, g: Array) -> WorstConstraint | None:
    """Return the name and amount of the most violated of the rows g (m,) and the bounds on w (n,), or None without violation."""
    amounts = np.concatenate([violation(g, nlp.g_lower, nlp.g_upper), violation(w, nlp.x_lower, nlp.x_upper)])
    if not amounts.any():
        return None
    i = int(np.argmax(amounts))
    name = nlp.g_names[i] if i < len(g) else f"the bound on {nlp.x_names[i - len(g)]}"
    return WorstConstraint(name, float(amounts[i]))


class Cause(NamedTuple):
    """Constraint that names the cause of a violation, None if there is none. in_rollout: True if a rollout violates it."""

    worst: WorstConstraint | None
    in_rollout: bool


def cause_of_violation(nlp: Program, w: Array, rollout: Array) -> Cause:
    """Return the most violated constraint at w (n,) without the defects, or in a rollout (n,) of its controls.

    At a minimizer of the violation, defects carry a part of it. If they carry nearly all, so that the others are violated by at
    most APPARENT, the rollout, which has no defects, shows the cause, if it is finite.
    """
    g = nlp.evaluate(w)[1]
    worst = worst_constraint(nlp, w, np.where([name.startswith(DYNAMICS) for name in nlp.g_names], 0.0, g))
    if worst is not None and worst.violation > APPARENT:
        return Cause(worst, False)
    with np.errstate(all="ignore"):  # the rollout may overflow
        simulated = worst_constraint(nlp, rollout, nlp.evaluate(rollout)[1])
    found = simulated is not None and np.isfinite(simulated.violation)
    return Cause(simulated, True) if found else Cause(worst, False)


def crossed_bounds(nlp: Program) -> CrossedBounds | None:
    """Return the row or variable whose lower bound is farthest above its upper one, or None if no bounds cross."""
    lower, upper = np.concatenate([nlp.g_lower, nlp.x_lower]), np.concatenate([nlp.g_upper, nlp.x_upper])
    if not (lower > upper).any():
        return None
    i = int(np.argmax(lower - upper))
    return CrossedBounds((*nlp.g_names, *nlp.x_names)[i], float(lower[i]), float(upper[i]))


def non_finite_number(nlp: Program, w: Array, objective: float, g: Array, other: str = "a derivative") -> NonFinite:
    """Return the first non-finite number of w (n,), constraints g (m,) and objective, or ``other`` if all are finite."""
    for values, names, kind in ((w, nlp.x_names, "the variable"), (g, nlp.g_names, "the constraint")):
        if not np.isfinite(values).all():
            return NonFinite(names[int(np.argmin(np.isfinite(values)))], kind)
    return NonFinite(other if np.isfinite(objective) else "the objective")
