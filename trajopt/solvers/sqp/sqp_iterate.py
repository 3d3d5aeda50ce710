"""Iterates of the SQP method: derivatives, residuals, and the QP at an iterate.

minimize 1/2 d'Hd + grad f'd   subject to   g_lower <= g + J d <= g_upper,   x_lower <= w + d <= x_upper
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.nlp.nlp import NLP, require_shapes
from trajopt.solvers.nlp.scaled_kkt import scaled_kkt
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QP, Hessian, Jacobian, complementarity, largest, violation
from trajopt.solvers.rules.interior_measures import MULTIPLIER_SCALE


class Trial(NamedTuple):
    """Trial point w (n,) with f, g (m,) and the l1 norm theta of the violation of the bounds on g."""

    w: Array
    f: float
    g: Array
    theta: float

    @property
    def finite(self) -> bool:
        """True if f and g are finite."""
        return bool(np.isfinite(self.f) and np.isfinite(self.theta))


class Iterate(NamedTuple):
    """Point with derivatives, multipliers and optimality errors.

    gradient: largest entry of the Lagrangian's gradient or of complementarity. violation: largest constraint violation. defect:
    largest violation of an equality. stop: the larger of gradient and violation, each divided by its tolerance. kkt: error of
    :mod:`trajopt.solvers.nlp.scaled_kkt`.
    """

    nlp: NLP
    w: Array
    f: float
    g: Array
    theta: float
    grad: Array
    J: Jacobian
    y: Array
    z: Array
    gradient: float
    violation: float
    defect: float
    stop: float
    kkt: float

    def is_solution(self, o: SQPOptions) -> bool:
        """True if violation and gradient (relative to large multipliers) meet their tolerances, or violation and scaled
        KKT error.
        """
        return self.stop <= 1.0 or (self.kkt <= o.kkt_tolerance and self.violation <= o.constraint_tolerance)


def trial(nlp: NLP, w: Array) -> Trial:
    """Evaluate f, g and the l1 violation of the bounds on g at w."""
    f, g = nlp.evaluate(w)
    require_shapes(nlp, g=g)
    return Trial(w, float(f), g, float(violation(g, nlp.g_lower, nlp.g_upper).sum()))


def iterate_at(nlp: NLP, at: Trial, y: Array, z: Array, o: SQPOptions) -> Iterate | None:
    """Differentiate at a trial point and return the iterate, or None if a derivative is not finite."""
    found = differentiated(nlp, at, y, z)
    return None if found is None else measured(found, o)


def differentiated(nlp: NLP, at: Trial, y: Array, z: Array) -> Iterate | None:
    """Differentiate at a trial point and return the iterate without its errors, or None if a derivative is not finite."""
    grad, J = nlp.differentiate(at.w)
    require_shapes(nlp, gradient=grad, jacobian=J)
    if not (np.isfinite(grad).all() and np.isfinite(J.data).all()):
        return None
    return Iterate(nlp, *at, grad, J, y, z, 0.0, 0.0, 0.0, 0.0, 0.0)


def measured(at: Iterate, o: SQPOptions) -> Iterate:
    """Return the iterate with its optimality errors computed from its derivatives and multipliers.

    In ``stop``, the tolerance on the gradient grows with the mean multiplier above MULTIPLIER_SCALE.
    """
    nlp = at.nlp
    outside = violation(at.g, nlp.g_lower, nlp.g_upper)
    worst = max(largest(outside), largest(violation(at.w, nlp.x_lower, nlp.x_upper)))
    gap_rows = complementarity(at.g, nlp.g_lower, nlp.g_upper, at.y)
    gap_bounds = complementarity(at.w, nlp.x_lower, nlp.x_upper, at.z)
    gradient = max(map(largest, (at.grad + at.y @ at.J + at.z, gap_rows, gap_bounds)))
    mean = (np.abs(at.y).sum() + np.abs(at.z).sum()) / max(1, len(at.y) + len(at.z))
    scale = max(MULTIPLIER_SCALE, float(mean)) / MULTIPLIER_SCALE
    stop = max(gradient / (scale * o.gradient_tolerance), worst / o.constraint_tolerance)
    defect = largest(outside[nlp.g_lower == nlp.g_upper])
    kkt = scaled_kkt(nlp, at.w, at.f, at.g, at.grad, at.J, at.y, at.z)
    return at._replace(gradient=gradient, violation=worst, defect=defect, stop=stop, kkt=kkt)


def settled(o: SQPOptions, nlp: NLP) -> SQPOptions:
    """Return the options with hessian = "auto" replaced: "scqp" for a program with ``convex_hessian``, else "exact".

    Raises ValueError for "gauss_newton" or "scqp" and a program without ``convex_hessian``.
    """
    convex = hasattr(nlp, "convex_hessian")
    if o.hessian == "auto":
        return replace(o, hessian="scqp" if convex else "exact")
    if o.hessian != "exact" and not convex:
        raise ValueError(f"hessian = {o.hessian!r} needs a program with convex_hessian; use hessian = 'exact'")
    return o


def hessian_at(at: Iterate, o: SQPOptions, sigma: float = 1.0) -> Hessian:
    """Return H (n, n) of the kind ``o.hessian``, with the factor sigma on the objective.

    "exact": of the Lagrangian. "gauss_newton": J'phi''J of the objective alone. "scqp": the same plus convex terms of constraints.
    """
    multipliers = np.zeros_like(at.y) if o.hessian == "gauss_newton" else at.y
    return _hessian(at, sigma, multipliers, o.hessian != "exact")


def semidefinite_at(at: Iterate, o: SQPOptions, sigma: float = 1.0) -> Callable[[], Hessian] | None:
    """Return a function for sigma times the Gauss-Newton Hessian of the objective.

    None unless the option hessian is "exact" and the program has a ``convex_hessian``.
    """
    if not hasattr(at.nlp, "convex_hessian") or o.hessian != "exact":
        return None
    return lambda: _hessian(at, sigma, np.zeros_like(at.y), True)


def _hessian(at: Iterate, sigma: float, multipliers: Array, convex: bool) -> Hessian:
    """Return the convex Hessian, or the exact one of the Lagrangian, with factor sigma and these multipliers; convex: which one."""
    nlp: Any = at.nlp
    found: Hessian = (nlp.convex_hessian if convex else nlp.hessian)(at.w, sigma, multipliers)
    if hasattr(found, "shape"):  # blocks of stages have none
        require_shapes(nlp, hessian=found)
    return found


def qp_about(at: Iterate, H: Hessian) -> QP:
    """Return the QP of a step d from an iterate, with Hessian H and linearized constraints:

    minimize 1/2 d'Hd + grad f'd subject to g_lower <= g + J d <= g_upper, x_lower <= w + d <= x_upper
    """
    nlp = at.nlp
    rows, bounds = (nlp.g_lower - at.g, nlp.g_upper - at.g), (nlp.x_lower - at.w, nlp.x_upper - at.w)
    return QP(H, at.grad, at.J, *rows, *bounds)
