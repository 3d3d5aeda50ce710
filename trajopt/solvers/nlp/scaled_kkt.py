"""Scaled KKT error of a nonlinear program, without units.

The measure of :mod:`trajopt.solvers.shooting.optimality` for programs. It is the largest of

    |L_i| / s_i               L = grad f + J'y + z, the gradient of the Lagrangian
                              s_i = max (|grad f| + |J|'|y| + |z|) over the variables of a kind, the size of the terms that cancel
    |y| (g - bound) / |f|     complementarity relative to the objective, of rows and of bounds on variables
    violations                in the units of the constraints

The variables of a kind have one unit: in a transcription, a component of the states or of the controls at all knots.  There y
of the dynamics are the costates, and what is left of the gradient in the states counts like that in the controls.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import HALF_OF_DIGITS
from trajopt.solvers.nlp.nlp import NLP
from trajopt.solvers.qp.blocks.sparse_assembly import Columns
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.qp import Jacobian, complementarity, largest, violation


@runtime_checkable
class OfKinds(Protocol):
    """A program whose variables have kinds; those of others are all of one."""

    @property
    def kinds(self) -> Array:
        """A number (n,) for each variable, from 0 on."""
        ...


def scaled_kkt(
    nlp: NLP, w: Array, f: float, g: Array, gradient: Array, J: Jacobian | Columns, y: Array, z: Array
) -> float:
    """The measure at w (n,) with objective f, its gradient (n,), rows g (m,), Jacobian J (m, n), and multipliers y (m,), z (n,)."""
    outside = max(largest(violation(g, nlp.g_lower, nlp.g_upper)), largest(violation(w, nlp.x_lower, nlp.x_upper)))
    gap = max(
        largest(complementarity(g, nlp.g_lower, nlp.g_upper, y)),
        largest(complementarity(w, nlp.x_lower, nlp.x_upper, z)),
    )
    sizes = sizes_of(nlp, np.abs(gradient) + _absolute_product(J, np.abs(y)) + np.abs(z))
    lagrangian = np.abs(gradient + J.T @ y + z)
    relative = np.divide(lagrangian, sizes, out=np.zeros_like(lagrangian), where=sizes > 0.0)
    return max(largest(relative), gap / max(abs(f), np.finfo(float).tiny) if gap > 0.0 else 0.0, outside)


def sizes_of(nlp: NLP, terms: Array) -> Array:
    """The largest of the terms (n,) of each variable's kind (n,), at least HALF_OF_DIGITS of the largest of all.

    All terms of a variable that hardly matters may be rounding errors of others.
    """
    if not isinstance(nlp, OfKinds):
        return np.full_like(terms, terms.max(initial=0.0))
    largest = np.zeros(int(nlp.kinds.max(initial=-1)) + 1)
    np.maximum.at(largest, nlp.kinds, terms)
    return np.maximum(largest, HALF_OF_DIGITS * largest.max(initial=0.0))[nlp.kinds]


def _absolute_product(J: Jacobian | Columns, y: Array) -> Array:
    """|J|'y (n,)."""
    return J.absolute_transposed_product(y) if isinstance(J, StageJacobian) else abs(J).T @ y
