"""Diagnosis of nonlinear programs: the constraint, bound or number that caused a solve to fail."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.nlp.nlp import NLP
from trajopt.solvers.qp.qp import violation
from trajopt.solvers.termination import CrossedBounds, NonFinite, WorstConstraint

STATIONARY_VIOLATION = 1e-5
"""A point is one of least violation where to first order no step reduces more than this share of the violation."""


def worst_constraint(nlp: NLP, w: Array, g: Array) -> WorstConstraint | None:
    """Among the rows g (m,) and the bounds on w (n,); None where there is no constraint or none is violated."""
    amounts = np.concatenate([violation(g, nlp.g_lower, nlp.g_upper), violation(w, nlp.x_lower, nlp.x_upper)])
    if not amounts.any():
        return None
    i = int(np.argmax(amounts))
    name = nlp.g_names[i] if i < len(g) else f"the bound on {nlp.x_names[i - len(g)]}"
    return WorstConstraint(name, float(amounts[i]))


def worst_in_rollout(nlp: NLP, w: Array) -> WorstConstraint | None:
    """The constraint that the rollout w (n,) of the controls violates most; None also where that is not finite.

    At a point of least violation the defects take their share of it, and say nothing about its cause.
    """
    worst = worst_constraint(nlp, w, nlp.evaluate(w)[1])
    return worst if worst is not None and np.isfinite(worst.violation) else None


def crossed_bounds(nlp: NLP) -> CrossedBounds | None:
    """The bounds of which the lower one is farthest above the upper one; None where none is."""
    lower, upper = np.concatenate([nlp.g_lower, nlp.x_lower]), np.concatenate([nlp.g_upper, nlp.x_upper])
    if not (lower > upper).any():
        return None
    i = int(np.argmax(lower - upper))
    return CrossedBounds((*nlp.g_names, *nlp.x_names)[i], float(lower[i]), float(upper[i]))


def non_finite_number(nlp: NLP, w: Array, objective: float, g: Array, other: str = "a derivative") -> NonFinite:
    """First non-finite number among w (n,), the constraints g (m,) and the objective; other: reported if all are finite."""
    for values, names, kind in ((w, nlp.x_names, "the variable"), (g, nlp.g_names, "the constraint")):
        if not np.isfinite(values).all():
            return NonFinite(names[int(np.argmin(np.isfinite(values)))], kind)
    return NonFinite(other if np.isfinite(objective) else "the objective")
