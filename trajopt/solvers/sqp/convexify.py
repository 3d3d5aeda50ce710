"""Convexification: replaces an indefinite QP by a convex QP with the same local solution.

At a regular minimizer, the Hessian H of the Lagrangian is positive definite only on the null space of the active constraints
(Nocedal & Wright, Theorem 12.6); QP solvers require more.  Two terms make it convex:

    H + sum_active rho_i a_i a_i' + delta I,      rho_i = rho |H|_max / |a_i|^2

The first adds rho_i/2 (a_i'd - b_i)^2 for each equality and each inequality a_i'd <= b_i (or >=) with a multiplier.  This term and
its gradient vanish for a_i'd = b_i, so neither the solution nor the multipliers of a QP with the right active set change.  By
Debreu's lemma (G. Debreu, Econometrica 20, 1952), a sufficient rho exists exactly if the reduced Hessian is positive definite.
Newton's step and its quadratic convergence are then preserved.  The second term is needed only otherwise; delta grows as in
:func:`~trajopt.solvers.rules.regularization.raised_shift`.

delta I ignores the units of the variables. Programs with a semidefinite Gauss-Newton Hessian H_0 use H_0 instead: the largest theta
of :data:`FRACTIONS` for which theta H + (1 - theta) H_0 is convex. If H_0 has no curvature in some direction, as for an objective
of the last state alone, delta I is used. With H_0 the first term applies to equations only: it would keep inequalities in the
active set.

Solvers require convexity on different spaces: osqp and the active-set methods on the whole space, the interior-point method on the
null space of the equalities.  If the first solver rejects a QP, the second one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.qp import QP, Hessian, QPSolution, QPSolver, square_lengths
from trajopt.solvers.qp.scipy_sparse import sp
from trajopt.solvers.rules.regularization import FIRST_SHIFT, raised_shift

WEIGHTS = (1.0, 1e2, 1e4)
"""Values of rho, in the order of trials."""
FRACTIONS = (0.5, 0.25, 0.125, 0.0)
"""Values of theta, in the order of trials."""
SMALLEST, LARGEST = 1e-9, 1e40
"""Range of delta (delta_min, delta_max)."""
CURVED = 1e-12
"""Minimum curvature of H_0 in every direction, as a fraction of its largest entry."""
ACTIVE = 1e-6
"""An inequality is active if its multiplier exceeds this fraction of the largest one (or of 1), and the distance to the bound."""


@dataclass(frozen=True)
class Convexified:
    """A convex QP, a solver that accepts it, its diagonal shift delta, and the penalty weights rho_i of its active constraints.

    weights: rho_i of the rows and the bounds (m + n,), zero if inactive. upper (m + n,): True if the upper bound is active.
    fraction: theta, 1 if H is unchanged.
    """

    qp: QP
    solver: QPSolver
    delta: float
    weights: Array
    upper: Array
    fraction: float = 1.0

    def unpenalized(self, found: QPSolution) -> QPSolution:
        """Return the solution d with multipliers y_i + rho_i (a_i'd - b_i): those of the QP without its penalty terms.

        b_i is the active bound. The difference counts for inequalities that are not exactly active at d.
        """
        m, goal = len(found.y), np.where(self.upper, *reversed(self.qp.bounds))
        pull = self.weights * np.where(self.weights > 0.0, self.qp.bounded(found.w) - goal, 0.0)
        return found._replace(y=found.y + pull[:m], z=found.z + pull[m:])


def convexified(
    qp: QP,
    y: Array,
    z: Array,
    solvers: Sequence[QPSolver],
    last_delta: float = 0.0,
    smallest: float = 0.0,
    semidefinite: Callable[[], Hessian] | None = None,
    last_fraction: float = 1.0,
) -> Convexified:
    """Make ``qp`` convex for the first of the solvers that accepts it; the last solver accepts any QP with a large delta.

    Tried in this order: the QP without and with penalties rho_i/2 (a_i'd - b_i)^2 of active rows and bounds, rho growing as
    WEIGHTS; blends theta H + (1 - theta) H_0 with a semidefinite Hessian H_0, theta falling as FRACTIONS; and a growing delta I, at
    most about LARGEST. With H_0, only equations are penalized, with the first rho. If last_fraction is below FRACTIONS[0], blends
    come first; if H_0 lacks curvature in a direction, it is not used.

    y (m,), z (n,): multipliers, which identify the active constraints. last_delta: delta of the last QP that needed one.
    smallest: lower bound of delta, which all of these QPs have. semidefinite: function that returns H_0, or None. last_fraction:
    theta of the last QP; the theta of a blend is at most twice as large, or FRACTIONS[-2].
    """
    shape, upper = _active(qp, y, z)
    if semidefinite is not None:  # inequalities must be able to leave the active set; H_0 convexifies their directions
        shape = np.where(_equal(qp), shape, 0.0)
    rhos = WEIGHTS if semidefinite is None else WEIGHTS[:1]
    for solver in solvers if last_fraction >= FRACTIONS[0] else ():
        for weights in (0.0 * shape, *(rho * shape for rho in rhos if shape.any())):
            if solver.is_convex(candidate := penalized(shifted(qp, smallest), weights, upper)):
                return Convexified(candidate, solver, smallest, weights, upper)
    fraction, weights, base = 1.0, WEIGHTS[0] * shape, qp
    if semidefinite is not None:
        other = semidefinite()
        if not _curved(replace(qp, H=other), solvers):
            return convexified(qp, y, z, solvers, last_delta, smallest)
        for fraction in (s for s in FRACTIONS if s <= max(2.0 * last_fraction, FRACTIONS[-2])):
            base = replace(qp, H=fraction * qp.H + (1.0 - fraction) * other)
            candidate = penalized(shifted(base, smallest), weights, upper)
            for solver in solvers:
                if solver.is_convex(candidate):
                    return Convexified(candidate, solver, smallest, weights, upper, fraction)
    base, solver = penalized(shifted(base, smallest), weights, upper), solvers[-1]
    delta = raised_shift(0.0, last_delta, SMALLEST)
    while not solver.is_convex(candidate := shifted(base, delta)) and delta < LARGEST:
        delta = raised_shift(delta, last_delta, SMALLEST)
    return Convexified(candidate, solver, smallest + delta, weights, upper, fraction)


def _curved(qp: QP, solvers: Sequence[QPSolver]) -> bool:
    """True if the semidefinite Hessian of a QP has curvature in all directions of the null space that some solver considers.

    The curvature must exceed CURVED times the largest entry.
    """
    least = CURVED * float(np.abs(qp.H.data).max(initial=0.0))
    return least > 0.0 and any(solver.is_convex(shifted(qp, -least)) for solver in solvers)


def penalized(qp: QP, weights: Array, upper: Array) -> QP:
    """Return the QP plus rho_i/2 (a_i'd - b_i)^2 for each row and bound, with weights rho_i (m + n,), zero without a term.

    upper (m + n,): True where b_i is the upper bound, else the lower one.
    """
    if not weights.any():
        return qp
    m = len(qp.l)
    goal = np.where(upper, *reversed(qp.bounds))
    pull = weights * np.where(weights > 0.0, goal, 0.0)
    return replace(qp, H=_with_squares(qp, weights), g=qp.g - pull[:m] @ qp.A - pull[m:])


def shifted(qp: QP, delta: float) -> QP:
    """Return the QP with delta I added to H."""
    if delta == 0.0:
        return qp
    if isinstance(qp.H, StageHessian):
        return replace(qp, H=qp.H.plus_diagonal(np.full(len(qp.g), delta)))
    return replace(qp, H=sp.csc_matrix(qp.H + delta * sp.identity(len(qp.g), format="csc")))


def _with_squares(qp: QP, weights: Array) -> Hessian:
    """Return H + A' diag(W) A + diag(W_z) for the weights (W, W_z) (m + n,) of rows and bounds, which are zero for dynamics."""
    m = len(qp.l)
    if isinstance(qp.H, StageHessian) and isinstance(qp.A, StageJacobian):
        return qp.H.plus(qp.A.squares(weights[:m])).plus_diagonal(weights[m:])
    A = qp.sparse_A
    return sp.csc_matrix(qp.sparse_H + A.T @ sp.diags(weights[:m]) @ A + sp.diags(weights[m:]))


def _equal(qp: QP) -> Array:
    """Mask of the rows and bounds (m + n,) that are equations."""
    return np.equal(*qp.bounds)


def _active(qp: QP, y: Array, z: Array) -> tuple[Array, Array]:
    """Return rho_i for rho = 1, zero for inactive constraints, and True for each positive multiplier, both (m + n,).

    Active: equations, and inequalities whose multiplier exceeds the fraction ACTIVE of the largest one (or of 1) and the distance
    to its bound at d = 0; dynamics of QPs in stages are left out. rho_i is the largest entry of H, at least FIRST_SHIFT, over
    |a_i|^2.
    """
    both = np.concatenate([y, z])
    lower, upper = qp.bounds
    size, workspace = np.abs(both), np.abs(np.where(both > 0.0, upper, lower))
    active = _equal(qp) | ((size > ACTIVE * max(1.0, float(size.max(initial=0.0)))) & (workspace < size))
    if isinstance(qp.A, StageJacobian):  # dynamics couple stages; solvers of QPs in stages eliminate them exactly
        active[qp.A.places.dynamics] = False
    square = np.concatenate([square_lengths(qp.A), np.ones(len(z))])
    largest = max(float(np.abs(qp.H.data).max(initial=0.0)), FIRST_SHIFT)
    return np.where(active & (square > 0.0), largest / np.where(square > 0.0, square, 1.0), 0.0), both > 0.0
