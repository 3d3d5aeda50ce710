"""Backtracking line search of the SQP method: the lengths 1, 1/2, 1/4, ... until the acceptance test passes.

Multipliers of shortened steps can grow without bound far from the constraints: the Hessian contains the multipliers, and those of
the next QP grow with the Hessian.  If the gradient of the Lagrangian far exceeds that of the objective, the multipliers are worse
than none, and start again at zero; the Hessian is then that of the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import Journal
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import largest
from trajopt.solvers.sqp.sqp_acceptance import Acceptance, Step
from trajopt.solvers.sqp.sqp_iterate import Iterate, Trial, iterate_at, measured, trial

LOST = 1e2
"""Multipliers of an infeasible iterate are dropped if the Lagrangian's gradient exceeds this multiple of the objective's, at
least 1."""


class Taken(NamedTuple):
    """Result of a line search: next iterate or None, step length, decrease of the test's value, number of non-finite trials."""

    new: Iterate | None
    alpha: float
    actual: float
    broken: int


class LineSearch:
    """Line search of one solve."""

    def __init__(self, options: SQPOptions, journal: Journal) -> None:
        self.options, self.journal = options, journal

    def along(self, at: Iterate, step: Step, test: Acceptance, halvings: int) -> Taken:
        """Return the longest accepted step of the lengths 1, 1/2, ..., 2^-halvings; its iterate is None if all are rejected.

        A step without finite derivatives at its end is rejected.
        """
        broken, start = 0, test.value(at.f, at.theta)
        for k in range(halvings + 1):
            alpha = 0.5**k
            tried = self._trial(at, alpha * step.d)
            broken += not tried.finite
            if not tried.finite or not test.accepts(alpha, tried):
                continue
            new = self._derived(at, step, tried, alpha)
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
