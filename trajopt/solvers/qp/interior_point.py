"""Convex QPs by a primal-dual interior-point method with Mehrotra's predictor and corrector.

    minimize 1/2 w'Hw + g'w   subject to   E w = e,   l <= C w <= u

E contains the rows with l = u and the variables with equal bounds, C the other rows and bounds; t_l = Cw - l and
t_u = u - Cw > 0 are the slacks, v_l and v_u > 0 their multipliers.  Each iteration takes Newton steps toward
t v = sigma mu,  which solve

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C,       D = v_l / t_l + v_u / t_u

where dC is the change of v_u - v_l.  Near the solution D tends to 0 or infinity; dC stays accurate because it is a separate unknown
(J. Nocedal, S. Wright, Numerical Optimization, 2006, section 16.6; S. Mehrotra, SIAM J. Optim. 2, 1992).  The solver of this
linear system is a parameter (:mod:`trajopt.solvers.qp.kkt.choice`).

If the constraints are infeasible, the multipliers diverge along a Farkas certificate: a direction with
A'y + z = 0 and a negative maximum of  y'Aw + z'w  over the bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.convexity import convex_on_equalities
from trajopt.solvers.qp.kkt.choice import KKTSystem, system_of
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus, kkt_residual, largest

TOLERANCE = 1e-12
GAP = 10.0
"""The tolerance on complementarity is TOLERANCE / GAP: weakly active bounds are accurate only to its square root."""
MAX_ITERATIONS = 100
TO_BOUNDARY = 0.995
"""Fraction-to-the-boundary parameter of a step."""
BLOCKED, CENTERING = 0.1, 0.8
"""If a corrected step is shorter than BLOCKED, a step toward t v = CENTERING mu replaces it, provided that step is longer."""
FARKAS_RADIUS, LAST_RADIUS = 1e4, 10.0
"""A certificate must exclude every w up to FARKAS_RADIUS times the size of the current w; LAST_RADIUS after the iteration
failed."""
RECESSION = 1e-7
FLAT = 1e-3
"""Test of an unbounded direction: RECESSION limits its relative residual, FLAT the relative change of the gradient along it."""
ALMOST = 1e5
"""If the iteration ends without meeting the tolerance, residuals up to this multiple of it count as solved."""
PATIENCE, LAST_PATIENCE = 15, 2
"""Maximum number of iterations in which neither residual nor mu halves; LAST_PATIENCE applies once the residual is below ALMOST.
The residual is relative to the size of its terms, and stays constant while both fall at the same rate."""


class InteriorPoint:
    """Interior-point :class:`~trajopt.solvers.qp.qp.QPSolver`, to TOLERANCE on the residuals relative to the size of their terms.

    For QPs in stages, the cost of an iteration grows linearly with the horizon.
    """

    def is_convex(self, qp: QP) -> bool:
        """True if H is positive definite on the null space of the equality rows and fixed variables."""
        return convex_on_equalities(qp)

    def solve(self, qp: QP, start: QPSolution | None = None) -> QPSolution:
        """Solve a convex QP; ``start`` is ignored. A solution is polished on its active set."""
        found = solve_interior_point(qp)
        return polished(qp, system_of(qp), found) if found.status is QPStatus.SOLVED else found


class _Point(NamedTuple):
    """Iterate: w, multipliers y of E (m + n,), slacks t and multipliers v of both sides (2, m + n); 1 and 0 without a bound."""

    w: Array
    y: Array
    t: Array
    v: Array

    def along(self, step: _Point, alpha: float) -> _Point:
        """Return the point at a step length alpha along a step."""
        return _Point(*(p + alpha * d for p, d in zip(self, step, strict=True)))


class _Residuals(NamedTuple):
    """Residuals of stationarity (n,), E (m + n,) and slacks (2, m + n), and mean mu of t v.

    worst: the largest relative error, in units of TOLERANCE.
    """

    dual: Array
    equal: Array
    slack: Array
    mu: float
    worst: float


class _Iteration:
    """QP with its equations and finite bounds, residuals and Newton steps.

    equal (m + n,): True for equations. sides (2, m + n): True for each finite bound of an inequality.
    """

    def __init__(self, qp: QP, system: KKTSystem) -> None:
        self.qp, self.system = qp, system
        bounds = np.array(qp.bounds)
        self.equal = bounds[0] == bounds[1]
        self.goal = np.where(self.equal, bounds[0], 0.0)
        self.sides = np.isfinite(bounds) & ~self.equal
        self.bounds = np.where(self.sides, bounds, 0.0)
        self.sign = np.array([[1.0], [-1.0]])
        self.count = max(1, int(self.sides.sum()))

    def transposed(self, values: Array) -> Array:
        """Return A'y + z for values (y, z) (m + n,)."""
        m = len(self.qp.l)
        return np.asarray(self.qp.A.T @ values[:m] + values[m:])

    def multipliers(self, p: _Point) -> Array:
        """Return the multipliers (y, z) of rows and bounds, (m + n,); for inequalities, upper minus lower multiplier."""
        return p.y + p.v[1] - p.v[0]

    def start(self, centered: bool = False) -> _Point | None:
        """Return the minimizer with unit weights, its slacks pushed inside (Nocedal & Wright, section 16.6, p. 484).

        Slacks are at least 1, or a quarter of a smaller range; multipliers are 1. Returns None if the system is singular.
        centered: True to raise multipliers, and slacks up to a quarter of their range, to the largest violation that the pushed
        slacks leave, for a second start after a failure.
        """
        if not self.system.factorize(np.where(self.equal, np.inf, np.where(self.sides.any(axis=0), 1.0, 0.0))):
            return None
        both = self.sides.all(axis=0)
        w, y = self.system.solve(-self.qp.g, np.where(both, 0.5, 1.0) * self.bounds.sum(axis=0) + self.goal)
        width = np.where(both, self.bounds[1] - self.bounds[0], np.inf)
        t = np.maximum(self.sign * (self.qp.bounded(w) - self.bounds), np.minimum(1.0, 0.25 * width))
        size = 1.0
        if centered:
            size = max(1.0, largest(np.where(self.sides, self.sign * (self.qp.bounded(w) - self.bounds) - t, 0.0)))
            t = np.maximum(t, np.minimum(size, 0.25 * width))
        v = np.where(self.sides, size, 0.0)
        return _Point(w, np.where(self.equal, y, 0.0), np.where(self.sides, t, 1.0), v)

    def residuals(self, p: _Point) -> _Residuals:
        """Return the residuals of the optimality conditions at a point; ``worst``: relative, in units of TOLERANCE."""
        qp, products, force = self.qp, self.qp.bounded(p.w), self.transposed(self.multipliers(p))
        Hw = qp.H @ p.w
        dual = Hw + qp.g + force
        equal = np.where(self.equal, products - self.goal, 0.0)
        slack = np.where(self.sides, self.sign * (products - self.bounds) - p.t, 0.0)
        mu = float((p.t * p.v).sum()) / self.count
        scales = 1.0 + max(largest(Hw), largest(qp.g), largest(force)), 1.0 + largest(products)
        gap = GAP * largest(p.v * np.minimum(p.t, 1.0)) / scales[0]
        worst = max(largest(dual) / scales[0], largest(equal) / scales[1], largest(slack) / scales[1], gap)
        return _Residuals(dual, equal, slack, mu, worst / TOLERANCE)

    def factorize(self, p: _Point) -> bool:
        """Factorize the Newton system of a point, with weights multiplier / slack of inequalities; True if it is regular."""
        return self.system.factorize(np.where(self.equal, np.inf, (p.v / p.t).sum(axis=0)))

    def step(self, p: _Point, r: _Residuals, target: Array) -> _Point:
        """Return the Newton step that removes the residuals, toward multiplier times slack = target (2, m + n).

        It uses the last factorization. The system yields the change of the difference of both multipliers: that of the nearer bound
        follows from it, that of the other bound from its complementarity.
        """
        gap = np.where(self.sides, p.t * p.v - target, 0.0)
        weights = (p.v / p.t).sum(axis=0)
        pushed = (self.sign * (gap + p.v * r.slack) / p.t).sum(axis=0)
        goal = np.where(weights > 0.0, -pushed / np.where(weights > 0.0, weights, 1.0), 0.0)
        dw, both = self.system.solve(-r.dual, np.where(self.equal, -r.equal, goal))
        dt = np.where(self.sides, self.sign * self.qp.bounded(dw) + r.slack, 0.0)
        dv = -(gap + p.v * dt) / p.t
        upper_near = p.v[1] * p.t[0] > p.v[0] * p.t[1]
        dv = np.where([~upper_near, upper_near], [dv[1] - both, dv[0] + both], dv)
        return _Point(dw, np.where(self.equal, both, 0.0), dt, np.where(self.sides, dv, 0.0))

    def longest(self, p: _Point, step: _Point) -> float:
        """Return the longest step length, at most 1, that uses the fraction TO_BOUNDARY of each slack and multiplier."""
        falling_t, falling_v = self.sides & (step.t < 0.0), self.sides & (step.v < 0.0)
        to_t = (-p.t[falling_t] / step.t[falling_t]).min(initial=np.inf)
        to_v = (-p.v[falling_v] / step.v[falling_v]).min(initial=np.inf)
        return float(min(1.0, TO_BOUNDARY * to_t, TO_BOUNDARY * to_v))

    def infeasible(self, p: _Point, radius: float = FARKAS_RADIUS) -> bool:
        """True if the multipliers certify that no w up to ``radius`` times the size of the current one, plus 1, is feasible."""
        support = float((p.v[1] * self.bounds[1] - p.v[0] * self.bounds[0] + p.y * self.goal).sum())
        rest = float(np.abs(self.transposed(self.multipliers(p))).sum())
        return support < -rest * radius * (1.0 + largest(p.w))

    def unbounded(self, p: _Point) -> bool:
        """True if w has diverged along a descent direction without curvature that no bound stops."""
        size = largest(p.w)
        if size * RECESSION <= 1.0:
            return False
        d, qp = p.w / size, self.qp
        along = self.qp.bounded(d)
        outside = np.where(self.sides, np.maximum(-self.sign * along, 0.0), 0.0)
        crossing = np.where(self.equal, along, 0.0)
        bending = largest(qp.H @ p.w) <= FLAT * largest(qp.g)
        return float(qp.g @ d) < 0.0 and bending and max(largest(outside), largest(crossing)) <= RECESSION


def solve_interior_point(qp: QP) -> QPSolution:
    """Solve a QP by the interior-point method, with the objective scaled to a gradient of at most 1.

    If the first start fails, a centered one follows. Crossed bounds give INFEASIBLE, a singular first system FAILED, with zeros.
    """
    if np.greater(*qp.bounds).any():
        return qp.without_solution(QPStatus.INFEASIBLE)
    scale = max(1.0, largest(qp.g))
    scaled = replace(qp, H=qp.H / scale, g=qp.g / scale)
    with np.errstate(all="ignore"):
        iteration = _Iteration(scaled, system_of(scaled))
        point = iteration.start()
        if point is None:
            return qp.without_solution(QPStatus.FAILED)
        found = _iterate(iteration, point)
        if found.status is QPStatus.FAILED and (again := iteration.start(centered=True)) is not None:
            found = _iterate(iteration, again)
        return found._replace(y=found.y * scale, z=found.z * scale)


def _iterate(iteration: _Iteration, p: _Point) -> QPSolution:
    """Iterate from a point until the residuals meet TOLERANCE; return the solution with status and iteration count.

    Ends early with INFEASIBLE or UNBOUNDED by a certificate, after MAX_ITERATIONS, or without progress. In the last two cases the
    best point counts as SOLVED up to ALMOST times the tolerance, else as INFEASIBLE if LAST_RADIUS gives a certificate, else as
    MAX_ITERATIONS or FAILED.
    """
    best, smallest, least, patience, status = p, np.inf, np.inf, PATIENCE, QPStatus.FAILED
    for count in range(MAX_ITERATIONS + 1):
        r = iteration.residuals(p)
        progress = r.worst < 0.5 * smallest or (r.mu < 0.5 * least and smallest > ALMOST)
        patience, least = PATIENCE if progress else patience - 1, min(least, r.mu)
        if r.worst < smallest:
            best, smallest = p, r.worst
        patience = min(patience, LAST_PATIENCE) if smallest <= ALMOST else patience
        if smallest <= 1.0 or not np.isfinite(r.worst) or patience == 0:
            break
        for found, test in ((QPStatus.INFEASIBLE, iteration.infeasible), (QPStatus.UNBOUNDED, iteration.unbounded)):
            if test(p):
                return _answer(iteration, p, found, count)
        if count == MAX_ITERATIONS:
            status = QPStatus.MAX_ITERATIONS
        elif iteration.factorize(p):
            p = _advanced(iteration, p, r)
        else:
            break
    if smallest <= ALMOST:
        return _answer(iteration, best, QPStatus.SOLVED, count)
    excluded = iteration.infeasible(p, LAST_RADIUS) or iteration.infeasible(best, LAST_RADIUS)
    return _answer(iteration, best, QPStatus.INFEASIBLE if excluded else status, count)


def _advanced(iteration: _Iteration, p: _Point, r: _Residuals) -> _Point:
    """Return the point after a predictor-corrector step with Mehrotra's rule sigma = (mu_affine / mu)^3.

    If the corrected step is shorter than BLOCKED, a longer step toward multiplier times slack = CENTERING mu replaces it.
    """
    predictor = iteration.step(p, r, np.zeros_like(p.t))
    predicted = p.along(predictor, iteration.longest(p, predictor))
    mu_affine = float((predicted.t * predicted.v).sum()) / iteration.count
    sigma = (mu_affine / r.mu) ** 3 if r.mu > 0.0 else 0.0
    step = iteration.step(p, r, sigma * r.mu - predictor.t * predictor.v)
    length = iteration.longest(p, step)
    if length < BLOCKED:
        centering = iteration.step(p, r, np.full_like(p.t, CENTERING * r.mu))
        if (longer := iteration.longest(p, centering)) > length:
            step, length = centering, longer
    return p.along(step, length)


def _answer(iteration: _Iteration, p: _Point, status: QPStatus, count: int) -> QPSolution:
    """Return a point as a solution with multipliers of rows and bounds, this status and number of iterations."""
    m, both = len(iteration.qp.l), iteration.multipliers(p)
    return QPSolution(p.w, both[:m], both[m:], status, count)


def polished(qp: QP, system: KKTSystem, found: QPSolution) -> QPSolution:
    """Solve the QP with its active constraints as equations; return that solution if its residuals are smaller, else ``found``.

    system: linear solver of the QP. Active: equations, and inequalities whose multiplier exceeds the distance to the bound. w is
    clipped to its bounds; the status stays. Returns ``found`` also if the system is singular.
    """
    values, (lower, upper) = qp.bounded(found.w), qp.bounds
    both = np.concatenate([found.y, found.z])
    goal = np.where(both > 0.0, upper, lower)
    active = (lower == upper) | (np.abs(both) > np.abs(values - goal))
    with np.errstate(all="ignore"):
        if not system.factorize(np.where(active, np.inf, 0.0)):
            return found
        w, both = system.solve(-qp.g, np.where(active, goal, 0.0))
        m = len(qp.l)
        both = np.where(active, both, 0.0)
        better = found._replace(w=np.clip(w, qp.lb, qp.ub), y=both[:m], z=both[m:])
        return better if max(kkt_residual(qp, better)) < max(kkt_residual(qp, found)) else found
