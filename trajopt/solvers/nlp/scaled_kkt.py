"""Scaled KKT error of a nonlinear program, without units.

It corresponds to :mod:`trajopt.solvers.rules.cost_size` and is the largest of

    |L_i| / s_i               L = grad f + J'y + z, the gradient of the Lagrangian
                              s_i = max (|grad f| + |J|'|y| + |z|) over the variables of a kind, the size of the terms that cancel,
                              at least EFFECT |f| / max(1, |w|) (:mod:`trajopt.solvers.rules.cost_size`)
    |y| (g - bound) / |f|     complementarity of rows and bounds on variables, relative to the objective; distances count up to 1
    violations                in the units of the constraints

The variables of a kind have one unit: in a transcription, a component of the states or of the controls at all knots. The
multipliers y of the dynamics are then the costates, and gradients in states count like gradients in controls.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import least_size
from trajopt.solvers.nlp.nlp import Program
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.qp import Jacobian, complementarity, largest, violation
from trajopt.solvers.rules.cost_size import least_with_effect


def scaled_kkt(nlp: Program, w: Array, f: float, g: Array, gradient: Array, J: Jacobian, y: Array, z: Array) -> float:
    """Return the scaled KKT error at w (n,), the largest of three parts.

    Gradient of the Lagrangian, relative to the largest sum of its absolute terms over variables of the same kind; complementarity
    of rows and bounds (distances count up to 1), relative to |f|; violation of rows and bounds, unscaled. f, gradient (n,):
    objective and its gradient. g (m,), J (m, n): constraints and their Jacobian. y (m,), z (n,): multipliers.
    """
    outside = max(largest(violation(g, nlp.g_lower, nlp.g_upper)), largest(violation(w, nlp.x_lower, nlp.x_upper)))
    complementary = max(
        largest(complementarity(g, nlp.g_lower, nlp.g_upper, y)),
        largest(complementarity(w, nlp.x_lower, nlp.x_upper, z)),
    )
    sizes = sizes_of(nlp, np.abs(gradient) + _absolute_product(J, np.abs(y)) + np.abs(z))
    sizes = np.maximum(sizes, least_with_effect(abs(f), w))
    lagrangian = np.abs(gradient + y @ J + z)
    relative = lagrangian / sizes
    return max(
        largest(relative), complementary / max(abs(f), np.finfo(float).tiny) if complementary > 0.0 else 0.0, outside
    )


def sizes_of(nlp: Program, terms: Array) -> Array:
    """Return, for each variable (n,), the largest of the terms (n,) over variables of its kind, with a lower limit.

    The limit is :func:`~trajopt.lq.lq.least_size`: 2^-26 times the largest of all terms and 1. All variables of a program without
    ``kinds`` are of one kind.
    """
    kinds = getattr(nlp, "kinds", None)
    if kinds is None:
        return np.full_like(terms, max(terms.max(initial=0.0), least_size(terms)))
    largest = np.zeros(int(kinds.max(initial=-1)) + 1)
    np.maximum.at(largest, kinds, terms)
    return np.maximum(largest, least_size(largest))[kinds]


def _absolute_product(J: Jacobian, y: Array) -> Array:
    """Return |J|'y (n,) for a sparse or stagewise Jacobian J (m, n)."""
    return J.absolute_transposed_product(y) if isinstance(J, StageJacobian) else abs(J).T @ y
