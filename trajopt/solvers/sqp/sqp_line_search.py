"""The search along a step of the SQP method: the steps 1, 1/2, 1/4, ... until one passes the test.

A full step that is refused and raises the violation gets a second-order correction: the same QP with g(w + d) - J d in place of g
(Nocedal & Wright, eq. 18.56), without which steps near the solution may be refused that raise objective and violation by
second-order terms (the Maratos effect); and further ones from where it leads, while the violation falls (A. Wächter, L. Biegler,
Math. Program. 106, 2006, steps A-5.5 to A-5.9).  Its active set is near that of the step, or else it is not worth its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import Journal
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QP, QPSolution
from trajopt.solvers.rules.line_search import MAX_CORRECTIONS
from trajopt.solvers.sqp.convexify import Convexified, penalized
from trajopt.solvers.sqp.sqp_acceptance import Acceptance, Step
from trajopt.solvers.sqp.sqp_iterate import Iterate, Trial, iterate_at, qp_about, trial

CORRECTION_FALLS = 0.99
"""Share of the last violation that a correction must undercut to be followed by another; kappa_soc of Wächter & Biegler 2006."""


class Taken(NamedTuple):
    """The outcome of a search: the next iterate or None, the step length, the decrease of the merit, and the trials that were
    not finite."""

    new: Iterate | None
    alpha: float
    actual: float
    broken: int


class LineSearch:
    """Searches with the tests given; solve_near: who solves the QPs of the corrections, from the multipliers of the step (y, z),
    None where that does not lead to the solution.
    """

    def __init__(
        self, options: SQPOptions, journal: Journal, solve_near: Callable[[QP, Array, Array], QPSolution | None]
    ) -> None:
        self.options, self.journal, self.solve_near = options, journal, solve_near

    def along(self, at: Iterate, step: Step, convex: Convexified, test: Acceptance, halvings: int) -> Taken:
        """The longest of the steps 1, 1/2, ..., 2^-halvings that is accepted; convex: the QP of the step."""
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
        """The full step if the residual falls and the merit does not rise by more than a share ``noise``."""
        tried, start = self._trial(at, step.d), test.value(at.f, at.theta)
        if not (tried.finite and test.value(tried.f, tried.theta) <= start + noise * (1.0 + abs(start))):
            return None
        new = self._derived(at, step, tried, 1.0)
        return Taken(new, 1.0, 0.0, 0) if new is not None and new.stop < at.stop else None

    def _trial(self, at: Iterate, d: Array) -> Trial:
        with self.journal.timed("rollout"):
            return trial(at.nlp, np.clip(at.w + d, at.nlp.x_lower, at.nlp.x_upper))

    def _accepted(self, at: Iterate, step: Step, test: Acceptance, alpha: float, tried: Trial) -> Iterate | None:
        """The iterate at a trial that passes the test and whose derivatives are finite."""
        if not tried.finite or not test.accepts(alpha, tried):
            return None
        return self._derived(at, step, tried, alpha)

    def _derived(self, at: Iterate, step: Step, tried: Trial, alpha: float) -> Iterate | None:
        """The iterate at a trial; multipliers go as far as the variables (Nocedal & Wright, algorithm 18.3)."""
        y, z = at.y + alpha * (step.y - at.y), at.z + alpha * (step.z - at.z)
        with self.journal.timed("derivatives"):
            return iterate_at(at.nlp, tried, y, z, self.options)

    def _corrected(
        self, at: Iterate, step: Step, convex: Convexified, test: Acceptance, tried: Trial
    ) -> Iterate | None:
        """The iterate at the first correction of the full step that is accepted."""
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
        """The step of the QP with g(w + d) - J d in place of g, for the step d that was tried."""
        nlp, shift = at.nlp, tried.g - at.J @ (tried.w - at.w)
        qp = replace(qp_about(at, convex.qp.H), l=nlp.g_lower - shift, u=nlp.g_upper - shift)
        if convex.weights.any():
            qp = replace(penalized(qp, convex.weights, convex.upper), H=convex.qp.H)
        with self.journal.timed("backward"):
            found = self.solve_near(qp, step.y, step.z)
        return None if found is None else found.w
