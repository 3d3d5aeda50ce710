"""Polishing of a QP's solution: the equations of its active constraints, solved exactly (Stellato et al. 2020, section 4)."""

from __future__ import annotations

import numpy as np

from trajopt.solvers.qp.active_equations import solved_equations
from trajopt.solvers.qp.qp import QP, QPSolution, kkt_residual


def polished(qp: QP, found: QPSolution) -> QPSolution:
    """Solve the QP with its active constraints as equations; return that solution if its residuals are smaller, else ``found``.

    Active: equations, and inequalities whose multiplier exceeds the distance to the bound. w is clipped to its bounds; the status
    stays. Returns ``found`` also if the system is singular.
    """
    values, (lower, upper) = qp.bounded(found.w), qp.bounds
    both = np.concatenate([found.y, found.z])
    goal = np.where(both > 0.0, upper, lower)
    active = (lower == upper) | (np.abs(both) > np.abs(values - goal))
    with np.errstate(all="ignore"):
        solved = solved_equations(qp, active, np.where(active, goal, 0.0))
    if solved is None:
        return found
    w, both = solved
    m = len(qp.l)
    better = found._replace(w=np.clip(w, qp.lb, qp.ub), y=both[:m], z=both[m:])
    return better if max(kkt_residual(qp, better)) < max(kkt_residual(qp, found)) else found
