"""Diagnosis of nonlinear programs: the constraint, bound or number that caused a solve to fail."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.nlp.nlp import NLP
from trajopt.solvers.qp.qp import violation
from trajopt.solvers.termination import CrossedBounds, NonFinite, WorstConstraint

STATIONARY_VIOLATION = 1e-5
"""A point counts as a minimizer of the violation if, to first order, no step reduces more than this fraction of it."""


def worst_constraint(nlp: NLP, w: Array, g: Array) -> WorstConstraint | None:
    """Return the name and amount of the most violated of the rows g (m,) and the bounds on w (n,), or None without violation."""
    amounts = np.concatenate([violation(g, nlp.g_lower, nlp.g_upper), violation(w, nlp.x_lower, nlp.x_upper)])
    if not amounts.any():
        return None
    i = int(np.argmax(amounts))
    name = nlp.g_names[i] if i < len(g) else f"the bound on {nlp.x_names[i - len(g)]}"
    return WorstConstraint(name, float(amounts[i]))


def worst_in_rollout(nlp: NLP, w: Array) -> WorstConstraint | None:
    """Return the constraint that the rollout w (n,) of the controls violates most, or None if there is none or it is not finite.

    w: variables with states from a rollout. At a minimizer of the violation, defects carry a part of it and hide its cause; a
    rollout has no defects.
    """
    worst = worst_constraint(nlp, w, nlp.evaluate(w)[1])
    return worst if worst is not None and np.isfinite(worst.violation) else None


def crossed_bounds(nlp: NLP) -> CrossedBounds | None:
    """Return the row or variable whose lower bound is farthest above its upper one, or None if no bounds cross."""
    lower, upper = np.concatenate([nlp.g_lower, nlp.x_lower]), np.concatenate([nlp.g_upper, nlp.x_upper])
    if not (lower > upper).any():
        return None
    i = int(np.argmax(lower - upper))
    return CrossedBounds((*nlp.g_names, *nlp.x_names)[i], float(lower[i]), float(upper[i]))


def non_finite_number(nlp: NLP, w: Array, objective: float, g: Array, other: str = "a derivative") -> NonFinite:
    """Return the first non-finite number of w (n,), constraints g (m,) and objective, or ``other`` if all are finite."""
    for values, names, kind in ((w, nlp.x_names, "the variable"), (g, nlp.g_names, "the constraint")):
        if not np.isfinite(values).all():
            return NonFinite(names[int(np.argmin(np.isfinite(values)))], kind)
    return NonFinite(other if np.isfinite(objective) else "the objective")
