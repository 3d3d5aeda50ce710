"""Elastic mode: relaxes the rows of an infeasible QP with penalized slacks.

    minimize 1/2 d'Hd + g'd + gamma 1'(p + n)   subject to   l <= A d + p - n <= u,   lb <= d <= ub,   p, n >= 0

(Nocedal & Wright, eq. 18.12; P. Gill, W. Murray, M. Saunders, SNOPT, SIAM Rev. 47, 2005, section 1.)  The weight gamma depends
on the smallest attainable l1 violation of the linearized rows, computed by the same QP with g = 0 and a small H
(R. Byrd, J. Nocedal, R. Waltz, Steering exact penalty methods for nonlinear programming, Optim. Methods Softw. 23, 2008).  If
this equals the violation at d = 0, the point is stationary for the violation: the problem is locally infeasible.
If no weight suffices, a step ignores the objective (the restoration of R. Fletcher, S. Leyffer, Math. Program. 91, 2002).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trajopt.solvers.nlp.nlp_diagnosis import STATIONARY_VIOLATION
from trajopt.solvers.qp.casadi_qp import InteriorPoint
from trajopt.solvers.qp.convexity import positive_definite
from trajopt.solvers.qp.qp import QP, QPSolution, QPSolver, QPStatus, violation
from trajopt.solvers.qp.scipy_sparse import sp
from trajopt.solvers.sqp.convexify import convexified

PROXIMITY = 1e-6
"""Diagonal of H of the QP for the smallest violation, relative to the largest entry of each column of A (at least 1), so that it
does not depend on the units of the variables; and smallest shift of H in a step on the violation, relative to the largest entry of
A."""
SHARE = 0.5
"""Fraction of the attainable decrease of the linearized violation that an elastic step must reach (Byrd et al. 2008, eq. 3.7)."""
GROWTH = 10.0


class ElasticStep(NamedTuple):
    """Step d with its multipliers, and the weight gamma.

    stationary: True if no step reduces more than the fraction STATIONARY_VIOLATION of the violation. sufficient: True if d
    reaches the required decrease of the violation.
    """

    solution: QPSolution
    weight: float
    stationary: bool
    sufficient: bool


def elastic(qp: QP, weight: float) -> QP:
    """Return the elastic QP in (d, p, n), with sparse matrices: l <= A d + p - n <= u, slacks p, n >= 0 with cost ``weight``."""
    m = len(qp.l)
    slack = np.zeros(2 * m), np.full(2 * m, np.inf)
    g = np.concatenate([qp.g, np.full(2 * m, weight)])
    bounds = np.concatenate([qp.lb, slack[0]]), np.concatenate([qp.ub, slack[1]])
    H = sp.block_diag([qp.sparse_H, sp.csc_matrix((2 * m, 2 * m))], format="csc")
    identity = sp.identity(m, format="csc")
    return QP(H, g, sp.hstack([qp.sparse_A, identity, -identity], format="csc"), qp.l, qp.u, *bounds)


class ElasticInteriorPoint(InteriorPoint):
    """Interior-point method for elastic QPs: rows may be violated, so that H must be positive definite on the whole space."""

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite."""
        return positive_definite(qp.sparse_H)


def elastic_step(qp: QP, weight: float, largest: float) -> ElasticStep | None:
    """Return the step for the first sufficient weight from ``weight`` up to ``largest``; None if no QP gives one.

    The weight grows by GROWTH until a step reaches SHARE of the attainable decrease of the linearized violation. At ``largest``,
    any step is returned; if its QP fails, that which ignores the objective. If hardly any decrease is attainable, the step that
    ignores the objective is returned, as stationary. None if the QP of that step fails. If the rows hold at d = 0, only
    ``largest`` is tried.
    """
    solver = ElasticInteriorPoint()
    qp = convexified(qp.sparse, np.zeros_like(qp.l), np.zeros_like(qp.g), (solver,)).qp
    now = _violated(qp, np.zeros(qp.A.shape[1]))
    if now == 0.0:  # the rows are consistent: the QP failed for another reason, such as its scaling
        found = _solved(qp, solver, largest)
        return None if found is None else ElasticStep(found, largest, False, True)
    H = sp.diags(PROXIMITY * np.maximum(1.0, abs(qp.sparse_A).max(axis=0).toarray().ravel()), format="csc")
    best = _solved(replace(qp, H=H, g=np.zeros_like(qp.g)), solver, 1.0)
    if best is None:
        return None
    attainable = now - _violated(qp, best.w)
    if attainable <= STATIONARY_VIOLATION * now:
        return ElasticStep(best, weight, True, False)
    while True:
        found = _solved(qp, solver, weight)
        if found is not None:
            enough = now - _violated(qp, found.w) >= SHARE * attainable
            if enough or weight >= largest:
                return ElasticStep(found, weight, False, enough)
        if weight >= largest:
            return ElasticStep(best, weight, False, False)
        weight = min(GROWTH * weight, largest)


def _solved(qp: QP, solver: QPSolver, weight: float) -> QPSolution | None:
    """Return the solution of the elastic QP with this weight of the slacks, without its slacks, or None if the solver fails."""
    n = len(qp.g)
    found = solver.solve(elastic(qp, weight))
    if found.status is not QPStatus.SOLVED:
        return None
    return found._replace(w=found.w[:n], z=found.z[:n])


def _violated(qp: QP, d: np.ndarray) -> float:
    """Return the l1 violation of the rows l <= A d <= u."""
    return float(violation(qp.A @ d, qp.l, qp.u).sum())


def feasibility_step(qp: QP, floor: float) -> QPSolution | None:
    """Return a step that reduces the violation alone, or None if the QP fails.

    qp: with the Hessian of the constraints; its g is ignored. floor: lower bound of the shift of H.
    """
    size = PROXIMITY * max(1.0, float(np.abs(qp.A.data).max(initial=0.0)))
    alone, solver = replace(qp.sparse, g=np.zeros_like(qp.g)), ElasticInteriorPoint()
    convex = convexified(alone, np.zeros_like(qp.l), np.zeros_like(qp.g), (solver,), smallest=max(size, floor)).qp
    return _solved(replace(convex, g=alone.g), solver, 1.0)
