"""Feasibility restoration: steps that reduce the violation alone, after the line search accepts no step.

    minimize    1/2 |c(v)|^2  within bounds,    c = (F (-) x_next, g - s, e)

The method takes Levenberg-Marquardt steps with a log barrier whose parameter goes to zero. With w = c + J dv, their linear system
is that of :mod:`trajopt.solvers.interior.newton` for H = damping, with -w instead of zero in the rows: the dynamics and all
equations are soft. A point where |J'c + zu - zl| is small against |c| is a stationary point of the violation, a certificate that
no point nearby is feasible. Restoration ends there, or as soon as the filter accepts an iterate with less violation, or if it
makes no progress.

Controls in a large unit have short columns J_i of J. Their damping is relative to |J_i|^2, and their entries of J'c to |J_i|, if
|J_i| < 1: the certificate does not depend on the unit, as it does not for states and slacks, whose columns have a one (of -x_next
and -s).
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from dynamics_backends.compiled.runtime.memory import address
from dynamics_backends.protocol import Array
from trajopt.lq.lapack import inner_product
from trajopt.results.records import Journal
from trajopt.solvers.interior.newton import NewtonSystem, Step
from trajopt.solvers.interior.stage_program import Point
from trajopt.solvers.methods.interior_requests import RestorationEnd, Restore, Restored
from trajopt.solvers.nlp.nlp_diagnosis import STATIONARY_VIOLATION
from trajopt.solvers.rules.barrier import KAPPA_SIGMA
from trajopt.solvers.rules.interior_measures import Violation
from trajopt.solvers.rules.line_search import Filter

ENOUGH, NEARLY_ALL = 0.9, 1e-3
"""Fractions of the entry violation that end restoration: at points the filter accepts (kappa_resto), and at any point."""
NEARLY_STATIONARY = 1e2 * STATIONARY_VIOLATION
"""STATIONARY_VIOLATION for points that rounding errors or vanishing derivatives keep from improving."""
FEASIBLE = 1e-9
"""Largest residual up to which restoration ends."""
DAMPING, MIN_DAMPING, MAX_DAMPING = 1e-2, 1e-10, 1e10
POOR, GOOD, RAISE, LOWER = 0.25, 0.75, 4.0, 0.1
"""Ratios of actual to predicted decrease below and above which the damping is raised and lowered, with the factors."""
ARMIJO, SHORTEST = 1e-4, 1e-6
MIN_MU, MU_SHARE = 1e-9, 0.1
IDLE, SAME = 40, 0.98
"""Restoration gives up if IDLE steps leave more than the fraction SAME of |c|."""
SLOW = 0.5
"""Progress is slow if all steps, at the rate of the last IDLE steps, would leave more than this fraction of |c|."""
SHORTEST_COLUMN = 1e-8
"""Lower bound of |J_i|: a control with a shorter column hardly changes a residual."""
AWAY, WEIGHT = 1e-2, 0.1
"""Initial barrier parameter as a fraction of |c|_infinity, and the maximum weight of all bounds as a fraction of |c|^2.
A larger barrier parameter would push iterates to the middle of the bounds rather than to feasible points."""


class Restoration:
    """Feasibility restoration: minimizes 1/2 |c|^2 of the residuals c of a program within its bounds. journal: times the work."""

    def __init__(self, system: NewtonSystem, journal: Journal) -> None:
        self.program, self.kernels, self.system, self.journal = system.program, system.kernels, system, journal

    def run(self, point: Point, other: Point, r: Restore) -> tuple[Restored, Point]:
        """Take Levenberg-Marquardt steps on the violation from a point with first derivatives.

        Return the result and the final point. Result ACCEPTABLE: the violation is nearly zero or a thousandth of the first one,
        or it fell by 10 % and the filter of ``r`` accepts the point (not with r.to_feasible). LEAST_VIOLATION: the violation is
        stationary. NO_STEP: no damping gives a step that reduces the merit enough, at a point that is not stationary.
        NO_PROGRESS: 40 steps reduced |c| by less than 2 %. LIMIT: r.max_steps steps or the deadline. The start is stored for
        :meth:`restore_start`. other: memory for trial points. The final point has first derivatives and is one of the two.
        """
        self.z, self.step = self.program.multipliers(), self.system.empty_step()
        self._left = point.v.copy(), point.xs.copy()
        at = r.at
        entry, self.mu = at.theta, min(max(r.mu, min(AWAY * at.largest, 1.0)), self._max_barrier(at))
        self._reset_bound_multipliers(point)
        damping, objective, end, count = DAMPING, float(point.cost.sum()), RestorationEnd.LIMIT, 0
        sizes = deque[float](maxlen=IDLE)
        while count < r.max_steps:
            count += 1
            with self.journal.timed("backward"):
                taken, damping = self._take_step(point, other, damping)
            if taken is None:
                end = (
                    RestorationEnd.LEAST_VIOLATION
                    if self._slope(point) <= NEARLY_STATIONARY * self._norm(point)
                    else RestorationEnd.NO_STEP
                )
                break
            point, other, objective = other, point, taken
            at = self.system.violation(point)
            merit = r.scale * objective + r.mu * at.barrier
            accepted = not r.to_feasible and at.theta <= ENOUGH * entry and _is_acceptable(r.filter, at.theta, merit)
            if accepted or at.largest <= FEASIBLE or at.theta <= NEARLY_ALL * entry:
                end = RestorationEnd.ACCEPTABLE
                break
            slope, size = self._slope(point), self._norm(point)
            if slope <= STATIONARY_VIOLATION * size and self.mu <= max(MIN_MU, STATIONARY_VIOLATION * size * size):
                end = RestorationEnd.LEAST_VIOLATION
                break
            sizes.append(size)
            if len(sizes) == IDLE and size > SAME * sizes[0]:
                end = RestorationEnd.NO_PROGRESS
                break
            if slope <= max(self.mu, STATIONARY_VIOLATION * size):
                self.mu = max(MIN_MU, MU_SHARE * self.mu)
            if time.perf_counter() > r.deadline:
                break
        stationary = self._slope(point) <= NEARLY_STATIONARY * self._norm(point)
        slow = len(sizes) == IDLE and (sizes[-1] / sizes[0]) ** (count / (IDLE - 1)) > SLOW
        return Restored(end, count, objective, at, stationary, slow), point

    def restore_start(self, point: Point) -> None:
        """Write the v and xs with which the last :meth:`run` started into a point; values and derivatives are not evaluated."""
        point.v[:], point.xs[:] = self._left

    def _max_barrier(self, at: Violation) -> float:
        """Return the limit of the initial barrier parameter: a tenth of the squared violation per finite bound, at least MIN_MU."""
        bounds = sum(np.isfinite(own).sum() for own in (self.program.lower, self.program.upper))
        return max(MIN_MU, WEIGHT * at.squares / max(int(bounds), 1))

    def _take_step(self, p: Point, to: Point, damping: float) -> tuple[float | None, float]:
        """Take one step from p to ``to``; return the new objective (None if no damping gives enough decrease) and the next damping.

        Halves the step length until the merit satisfies the Armijo condition; if none does, raises the damping tenfold and solves
        again. An accepted step also moves the bound multipliers. The next damping is higher after a poor or shortened step, lower
        after a good one.
        """
        value, c = self._merit(p), self._residuals(p)
        self._set_multipliers(c)
        with self.journal.timed("derivatives"):
            self.program.second(p, 0.0, self.z)
        weights = self._columns(p) ** 2
        while damping <= MAX_DAMPING:
            step = self.system.toward_feasibility(p, self.z, self.mu, damping, weights, self.step)
            if step is not None and np.isfinite(step.v).all():
                slope = self._predicted_slope(step, c)
                alpha = step.alpha
                while alpha >= SHORTEST and slope < 0.0:
                    self.program.move(p, alpha, step.v, to)
                    with self.journal.timed("derivatives"):
                        objective = self.program.first(to)
                    gain = (self._merit(to) - value) / (alpha * (1.0 - 0.5 * alpha) * slope)
                    if gain >= ARMIJO:
                        self._move_bound_multipliers(to, step)
                        factor = RAISE if gain < POOR or alpha < step.alpha else LOWER if gain > GOOD else 1.0
                        return objective, max(MIN_DAMPING, damping * factor)
                    alpha *= 0.5
            damping *= 10.0
        return None, damping

    def _predicted_slope(self, step: Step, c: Array) -> float:
        """Return the predicted slope of the merit along a step, c'J dv plus the slope of the barrier; c: residuals at the start."""
        w = np.concatenate([step.z.lam.ravel(), step.z.y, step.z.f])
        return inner_product(c, w - c) + step.slope

    def _residuals(self, p: Point) -> Array:
        """Return the residuals c at a point in one vector: defects of the dynamics, constraint rows, fixed state entries."""
        rows, fixes = np.empty(self.program.rows), np.empty(len(self.program.fixed))
        self.kernels.residuals(self.program.ref, address(p.v), address(p.g), address(rows), address(fixes))
        return np.concatenate([p.d.ravel(), rows, fixes])

    def _merit(self, p: Point) -> float:
        """Return 1/2 |c|^2 plus mu times the log barrier of the bounds at a point; infinity if it is not finite."""
        c = self._residuals(p)
        value = 0.5 * inner_product(c, c) + self.mu * self.system.violation(p).barrier
        return value if np.isfinite(value) else np.inf

    def _norm(self, p: Point) -> float:
        """Return the Euclidean norm |c| of the residuals at a point."""
        c = self._residuals(p)
        return float(np.sqrt(inner_product(c, c)))

    def _slope(self, p: Point) -> float:
        """Return the largest absolute entry of J'c + zu - zl at a point, those of controls relative to :meth:`_columns`.

        Overwrites the multipliers lam, y, f of self.z with c.
        """
        program, z = self.program, self.z
        self._set_multipliers(self._residuals(p))
        controls = slice((program.N + 1) * program.n, (program.N + 1) * program.n + program.N * program.m)
        own = (z.zu - z.zl)[controls].reshape(program.N, program.m) + np.einsum("kij,ki->kj", p.B, z.lam)
        np.add.at(own, self._knots, p.gu[: len(self._knots)] * z.y[: len(self._knots), None])
        relative = np.where(program.held, 0.0, np.abs(own) / self._columns(p))
        return max(self.system.slope(p, z), float(relative.max(initial=0.0)))

    def _columns(self, p: Point) -> Array:
        """Return the lengths |J_i| (N, nu) of the columns of the controls at a point, between SHORTEST_COLUMN and 1."""
        squares = (p.B**2).sum(axis=1)
        np.add.at(squares, self._knots, p.gu[: len(self._knots)] ** 2)
        return np.clip(np.sqrt(squares), SHORTEST_COLUMN, 1.0)

    @property
    def _knots(self) -> Array:
        """Knot of each constraint row before the final knot."""
        return np.repeat(np.arange(self.program.N), np.diff(self.program.row[: self.program.N + 1]))

    def _set_multipliers(self, c: Array) -> None:
        """Store the residuals c as the multipliers lam, y, f of self.z, so that J' times multipliers gives J'c."""
        z, gaps, rows = self.z, self.program.N * self.program.n, self.program.rows
        z.lam[:], z.y[:], z.f[:] = c[:gaps].reshape(z.lam.shape), c[gaps : gaps + rows], c[gaps + rows :]

    def _reset_bound_multipliers(self, p: Point) -> None:
        """Set the bound multipliers of self.z to mu / distance to the bound at a point."""
        self.z.zl[:], self.z.zu[:] = self.mu / (p.v - self.program.lower), self.mu / (self.program.upper - p.v)

    def _move_bound_multipliers(self, to: Point, step: Step) -> None:
        """Add a step to the bound multipliers of self.z.

        Limits them to a factor KAPPA_SIGMA around mu / distance at the new point ``to``.
        """
        moved = (self.program.ref, address(to.v), step.z.ref, step.alpha_z, self.mu, KAPPA_SIGMA, self.z.ref)
        self.kernels.move_duals(*moved)


def _is_acceptable(filter_: Filter, theta: float, merit: float) -> bool:
    """True if every stored pair of the filter has a larger or equal violation or merit than the pair (theta, merit); no margin."""
    return all(theta <= t or merit <= value for t, value in filter_.pairs)
