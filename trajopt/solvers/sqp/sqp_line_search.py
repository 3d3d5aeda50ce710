"""Backtracking line search of the SQP method: the lengths 1, 1/2, 1/4, ... until the acceptance test passes.

A rejected full step that does not reduce the violation gets a second-order correction: the same QP with g(w + d) - J d in place of
g (Nocedal & Wright, eq. 18.56).  Corrections avoid the Maratos effect: near the solution, second-order terms may raise objective
and violation of good steps.  Further corrections follow while the violation falls (A. Wächter, L. Biegler,
Math. Program. 106, 2006, steps A-5.5 to A-5.9).  A correction starts from the active set of the step; if that fails, it is skipped.

Multipliers of shortened steps can grow without bound far from the constraints: the Hessian contains the multipliers, and those of
the next QP grow with the Hessian.  If the gradient of the Lagrangian far exceeds that of the objective, the multipliers are worse
than none, and start again at zero; the Hessian is then that of the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import Journal
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QP, QPSolution, largest
from trajopt.solvers.rules.line_search import MAX_CORRECTIONS
from trajopt.solvers.sqp.convexify import Convexified, penalized
from trajopt.solvers.sqp.sqp_acceptance import Acceptance, Step
from trajopt.solvers.sqp.sqp_iterate import Iterate, Trial, iterate_at, measured, qp_about, trial

LOST = 1e2
"""Multipliers of an infeasible iterate are dropped if the Lagrangian's gradient exceeds this multiple of the objective's, at
least 1."""
CORRECTION_FALLS = 0.99
"""Largest ratio of a correction's violation to the last one that allows another correction (kappa_soc, Wächter & Biegler 2006)."""


class Taken(NamedTuple):
    """Result of a line search: next iterate or None, step length, decrease of the test's value, number of non-finite trials."""

    new: Iterate | None
    alpha: float
    actual: float
    broken: int


class LineSearch:
    """Line search with second-order corrections.

    solve_near: solves the QP of a correction from the multipliers (y, z) of the step; returns None if it fails.
    """

    def __init__(
        self, options: SQPOptions, journal: Journal, solve_near: Callable[[QP, Array, Array], QPSolution | None]
    ) -> None:
        self.options, self.journal, self.solve_near = options, journal, solve_near

    def along(self, at: Iterate, step: Step, convex: Convexified, test: Acceptance, halvings: int) -> Taken:
        """Return the longest accepted step of the lengths 1, 1/2, ..., 2^-halvings; its iterate is None if all are rejected.

        If the full step is rejected and does not reduce the violation, its second-order correction is tried, if options, test and a
        plain QP allow that. convex: the QP of the step.
        """
        broken, start = 0, test.value(at.f, at.theta)
        for k in range(halvings + 1):
            alpha = 0.5**k
            tried = self._trial(at, alpha * step.d)
            new = self._accepted(at, step, test, alpha, tried)
            broken += not tried.finite
            correct = k == 0 and self.options.second_order_correction and step.weight == 0.0 and test.corrects
            if new is None and correct and tried.theta >= at.theta:
                new = self._corrected(at, step, convex, test, tried)
            if new is not None:
                return Taken(new, alpha, start - test.value(new.f, new.theta), broken)
        return Taken(None, 0.0, 0.0, broken)

    def polished(self, at: Iterate, step: Step, test: Acceptance, noise: float) -> Taken | None:
        """Return the full step if the residual falls and the value of the test rises by at most ``noise`` (1 + its size).

        Else None, also if numbers at the end of the step are not finite.
        """
        tried, start = self._trial(at, step.d), test.value(at.f, at.theta)
        if not (tried.finite and test.value(tried.f, tried.theta) <= start + noise * (1.0 + abs(start))):
            return None
        new = self._derived(at, step, tried, 1.0)
        return Taken(new, 1.0, 0.0, 0) if new is not None and new.stop < at.stop else None

    def _trial(self, at: Iterate, d: Array) -> Trial:
        """Evaluate f, g and the violation at w + d, clipped to the bounds on w."""
        with self.journal.timed("rollout"):
            return trial(at.nlp, np.clip(at.w + d, at.nlp.x_lower, at.nlp.x_upper))

    def _accepted(self, at: Iterate, step: Step, test: Acceptance, alpha: float, tried: Trial) -> Iterate | None:
        """Return the iterate at a trial, or None if trial or derivatives are not finite or the test rejects the trial."""
        if not tried.finite or not test.accepts(alpha, tried):
            return None
        return self._derived(at, step, tried, alpha)

    def _derived(self, at: Iterate, step: Step, tried: Trial, alpha: float) -> Iterate | None:
        """Return the iterate at a trial, or None if derivatives are not finite.

        Multipliers move by the same step length (Nocedal & Wright, algorithm 18.3). At an infeasible point they become zero if the
        gradient of the Lagrangian exceeds LOST times that of the objective, at least LOST.
        """
        y, z = at.y + alpha * (step.y - at.y), at.z + alpha * (step.z - at.z)
        with self.journal.timed("derivatives"):
            new = iterate_at(at.nlp, tried, y, z, self.options)
        if new is None or new.violation <= self.options.constraint_tolerance:
            return new
        lost = new.gradient > LOST * max(1.0, largest(new.grad))
        return measured(new._replace(y=0.0 * y, z=0.0 * z), self.options) if lost else new

    def _corrected(
        self, at: Iterate, step: Step, convex: Convexified, test: Acceptance, tried: Trial
    ) -> Iterate | None:
        """Return the iterate at the first accepted second-order correction of the full step, or None.

        At most MAX_CORRECTIONS are tried, while each reduces the violation by the factor CORRECTION_FALLS, and only if the trial
        violates the constraints more than their linearization.
        """
        for _ in range(MAX_CORRECTIONS):
            if not tried.finite or tried.theta <= step.left:
                return None
            last, d = tried.theta, self._correction(at, step, convex, tried)
            if d is None:
                return None
            tried = self._trial(at, d)
            new = self._accepted(at, step, test, 1.0, tried)
            if new is not None or not tried.theta <= CORRECTION_FALLS * last:
                return new
        return None

    def _correction(self, at: Iterate, step: Step, convex: Convexified, tried: Trial) -> Array | None:
        """Return the step of the QP with g(w + d) - J d in place of g, for the trial step d; None if its solution fails."""
        nlp, shift = at.nlp, tried.g - at.J @ (tried.w - at.w)
        qp = replace(qp_about(at, convex.qp.H), l=nlp.g_lower - shift, u=nlp.g_upper - shift)
        if convex.weights.any():
            qp = replace(penalized(qp, convex.weights, convex.upper), H=convex.qp.H)
        with self.journal.timed("backward"):
            found = self.solve_near(qp, step.y, step.z)
        return None if found is None else found.w
