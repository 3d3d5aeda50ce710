"""A convex QP with the same local solution as an indefinite one.

The Hessian H of a Lagrangian need be positive definite only on the null space of the active constraints, at a regular
minimizer (Nocedal & Wright, Theorem 12.6); QP solvers ask for more.  Two terms make it convex:

    H + sum_active rho_i a_i a_i' + delta I,      rho_i = rho |H|_max / |a_i|^2

The first adds rho_i/2 (a_i'd - b_i)^2 for each equality and each inequality a_i'd <= b_i (or >=) with a multiplier, with the
gradient that goes with it: on a_i'd = b_i it vanishes, so neither the solution nor the multipliers of a QP with the
right active set change, and by Debreu's lemma (G. Debreu, Econometrica 20, 1952) some rho is enough exactly where the
reduced Hessian is positive definite.  So Newton's step, and its quadratic convergence, stay as they are.  Only elsewhere the
second term is needed; delta follows the schedule of A. Wächter, L. Biegler, Math. Program. 106, 2006, algorithm IC.

delta I knows nothing of the units of the variables. Programs that have a second Hessian H_0 which is semidefinite everywhere,
that of Gauss and Newton, use it instead: the largest theta of :data:`SHARES` for which theta H + (1 - theta) H_0 is convex; where
H_0 has no curvature in some direction, as that of an objective of the last state alone, delta I stays.
Then the first term is for equations alone: inequalities that it holds to their bounds could not leave the active set.

Solvers differ in what they take for convex: osqp and the active-set methods ask for all of H, the interior-point method for the
null space of the equalities, riccati for that of the dynamics.  A QP that only a second solver takes goes to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.qp import QP, Hessian, QPSolver, square_lengths

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
WEIGHTS = (1.0, 1e2, 1e4)
"""rho, in the order in which they are tried."""
SHARES = (0.5, 0.25, 0.125, 0.0)
"""theta, in the order in which they are tried."""
FIRST, SMALLEST, LARGEST = 1e-4, 1e-9, 1e40
"""delta: at the first attempt, at least, and where it ends (delta_0, delta_min, delta_max)."""
FIRST_GROWTH, GROWTH, DECAY = 100.0, 8.0, 1.0 / 3.0
CURVED = 1e-12
"""Least curvature of a second Hessian in every direction, as a share of its largest entry."""
ACTIVE = 1e-6
"""Inequalities count as active whose multiplier exceeds this share of the largest one (or of 1), and the distance to the bound."""


@dataclass(frozen=True)
class Convexified:
    """A convex QP, the solver that takes it, its delta, and its rho_i (for QPs with other right-hand sides).

    weights: rho_i of the rows and the bounds (m + n,), zero where inactive. upper: whether the upper side is active (m + n,).
    share: theta, 1 where H stayed.
    """

    qp: QP
    solver: QPSolver
    delta: float
    weights: Array
    upper: Array
    share: float = 1.0


def convexified(
    qp: QP,
    y: Array,
    z: Array,
    solvers: Sequence[QPSolver],
    last_delta: float = 0.0,
    smallest: float = 0.0,
    semidefinite: Callable[[], Hessian] | None = None,
    last_share: float = 1.0,
) -> Convexified:
    """A convex QP in place of ``qp`` for the first of the solvers that takes one; the last takes any with a large delta.

    y (m,), z (n,): multipliers that tell which constraints are active. last_delta: of the last QP that needed one.
    smallest: delta to begin with, added to all that follows. semidefinite: makes H_0, where there is one. last_share: theta of the
    last QP; the next one is not much larger.
    """
    shape, upper = _active(qp, y, z)
    if semidefinite is not None:  # inequalities may leave the active set; what they cannot do, the second Hessian does
        shape = np.where(_equal(qp), shape, 0.0)
    rhos = WEIGHTS if semidefinite is None else WEIGHTS[:1]
    for solver in solvers if last_share >= SHARES[0] else ():
        for weights in (0.0 * shape, *(rho * shape for rho in rhos if shape.any())):
            if solver.is_convex(candidate := penalized(shifted(qp, smallest), weights, upper)):
                return Convexified(candidate, solver, smallest, weights, upper)
    share, weights, base = 1.0, WEIGHTS[0] * shape, qp
    if semidefinite is not None:
        other = semidefinite()
        if not _curved(replace(qp, H=other), solvers):
            return convexified(qp, y, z, solvers, last_delta, smallest)
        for share in (s for s in SHARES if s <= max(2.0 * last_share, SHARES[-2])):
            base = replace(qp, H=share * qp.H + (1.0 - share) * other)
            candidate = penalized(shifted(base, smallest), weights, upper)
            for solver in solvers:
                if solver.is_convex(candidate):
                    return Convexified(candidate, solver, smallest, weights, upper, share)
    base, solver = penalized(shifted(base, smallest), weights, upper), solvers[-1]
    delta, growth = (FIRST, FIRST_GROWTH) if last_delta == 0.0 else (max(SMALLEST, DECAY * last_delta), GROWTH)
    while not solver.is_convex(candidate := shifted(base, delta)) and delta < LARGEST:
        delta *= growth
    return Convexified(candidate, solver, smallest + delta, weights, upper, share)


def _curved(qp: QP, solvers: Sequence[QPSolver]) -> bool:
    """True if a semidefinite Hessian has curvature in all directions that the equations leave, for some solver."""
    least = CURVED * float(np.abs(qp.H.data).max(initial=0.0))
    return least > 0.0 and any(solver.is_convex(shifted(qp, -least)) for solver in solvers)


def penalized(qp: QP, weights: Array, upper: Array) -> QP:
    """The QP with the first term of the docstring; weights rho_i (m + n,), upper (m + n,) bool."""
    if not weights.any():
        return qp
    m = len(qp.l)
    goal = np.where(upper, *reversed(qp.bounds))
    pull = weights * np.where(weights > 0.0, goal, 0.0)
    return replace(qp, H=_with_squares(qp, weights), g=qp.g - qp.A.T @ pull[:m] - pull[m:])


def shifted(qp: QP, delta: float) -> QP:
    """The QP with delta I added to H."""
    if delta == 0.0:
        return qp
    if isinstance(qp.H, StageHessian):
        return replace(qp, H=qp.H.plus_diagonal(np.full(len(qp.g), delta)))
    return replace(qp, H=sp.csc_matrix(qp.H + delta * sp.identity(len(qp.g), format="csc")))


def _with_squares(qp: QP, weights: Array) -> Hessian:
    """H + A'WA + W_z for the weights (W, W_z) (m + n,), which are zero for dynamics."""
    m = len(qp.l)
    if isinstance(qp.H, StageHessian) and isinstance(qp.A, StageJacobian):
        return qp.H.plus(qp.A.squares(weights[:m])).plus_diagonal(weights[m:])
    return sp.csc_matrix(qp.sparse_H + qp.A.T @ sp.diags(weights[:m]) @ qp.A + sp.diags(weights[m:]))


def _equal(qp: QP) -> Array:
    """Mask of the rows and bounds (m + n,) that are equations."""
    return np.equal(*qp.bounds)


def _active(qp: QP, y: Array, z: Array) -> tuple[Array, Array]:
    """rho_i for rho = 1 (m + n,), and whether the upper side is the active one."""
    both = np.concatenate([y, z])
    lower, upper = qp.bounds
    size, room = np.abs(both), np.abs(np.where(both > 0.0, upper, lower))
    active = _equal(qp) | ((size > ACTIVE * max(1.0, float(size.max(initial=0.0)))) & (room < size))
    if isinstance(
        qp.A, StageJacobian
    ):  # these rows couple stages; who solves QPs by their stages needs no help with them
        active[qp.A.places.dynamics] = False
    square = np.concatenate([square_lengths(qp.A), np.ones(len(z))])
    largest = max(float(np.abs(qp.H.data).max(initial=0.0)), FIRST)
    return np.where(active & (square > 0.0), largest / np.where(square > 0.0, square, 1.0), 0.0), both > 0.0
