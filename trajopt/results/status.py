"""Status of a solution: a code for programs and a sentence for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class StatusCode(StrEnum):
    """Result of a solve. The first two are results of the checks in :mod:`trajopt.solvers.success`, the others name what failed."""

    CONVERGED = "converged"
    """Feasible, optimal, confirmed by the replay, and the goals are met; without checks, feasible and optimal."""
    ACCEPTABLE = "acceptable"
    """Feasible, confirmed by the replay, and the goals are met, but the scaled KKT error is above its tolerance."""
    NOT_FEASIBLE = "not_feasible"
    """The solver stopped at a trajectory that violates dynamics, bounds or constraints by more than the tolerance."""
    VIOLATED_BETWEEN_KNOTS = "violated_between_knots"
    """Feasible at the knots, but an inequality is violated between them by more than the tolerance."""
    DOES_NOT_HOLD = "does_not_hold"
    """Replayed on finely integrated dynamics, the motion leaves the plan by more than the replay tolerance, or misses a goal."""
    GOAL_MISSED = "goal_missed"
    """The trajectory is feasible, but it misses a goal, falls, or touches an obstacle."""
    COST_CONVERGED = "cost_converged"
    """The relative improvement of the cost fell below its tolerance, at a feasible trajectory."""
    PRECISION_LIMIT = "precision_limit"
    """Double precision allows no further progress; the gradient is still above its tolerance."""
    MAX_ITERATIONS = "max_iterations"
    TIME_LIMIT = "time_limit"
    LINE_SEARCH_FAILED = "line_search_failed"
    """No step length was accepted, even with the largest regularization."""
    NOT_POSITIVE_DEFINITE = "not_positive_definite"
    """Quu could not be factorized, even with the largest regularization."""
    NON_FINITE = "non_finite"
    """NaN or infinity in the dynamics, the cost, or their derivatives."""
    INFEASIBLE = "infeasible"
    """No point satisfies the constraints: they contradict each other."""
    LOCALLY_INFEASIBLE = "locally_infeasible"
    """No point near satisfies the constraints: a stationary point of the violation, far above the tolerance; elsewhere there may be
    one."""
    STALLED = "stalled"
    """The violation hardly falls, and nothing proves that no point near satisfies the constraints."""
    UNBOUNDED = "unbounded"
    """The objective falls without end."""
    INTERRUPTED = "interrupted"
    """Stopped by the user (Ctrl-C)."""
    ERROR = "error"
    """The solve raised an error, its process died, or the problem is not valid; only within a batch."""


STOPPED = (StatusCode.INTERRUPTED, StatusCode.TIME_LIMIT)
"""Codes after which no other solver is tried."""
SOLVED = 1e-6
"""A solver that stops at the limit of double precision has converged below this scaled KKT error."""
STATIONARY = 1e-4
"""Tolerance on the scaled KKT error of a solution; a solver that stops because the cost hardly falls has converged below it."""
_ENOUGH = {
    StatusCode.CONVERGED: float("inf"),
    StatusCode.COST_CONVERGED: STATIONARY,
    StatusCode.PRECISION_LIMIT: SOLVED,
}


@dataclass(frozen=True)
class Status:
    """Status of a solution.

    message: one sentence with the numbers that decided. knot, component: where, if it happened in one place.
    advice: what to try, empty on success. kkt: the scaled KKT error (:mod:`trajopt.solvers.shooting.optimality`) at the end, where
    the solver has one.
    """

    code: StatusCode
    message: str
    knot: int | None = None
    component: str | None = None
    advice: str = ""
    kkt: float | None = None

    @property
    def success(self) -> bool:
        """True if converged; for a solver's own status, before checks, also if it stopped close enough to an optimum.

        A small change of the cost counts below the scaled KKT error STATIONARY, the limit of double precision below SOLVED.
        """
        return self.code is StatusCode.CONVERGED or (self.kkt is not None and self.kkt <= _ENOUGH.get(self.code, -1.0))

    @property
    def acceptable(self) -> bool:
        """True if the motion can be used: converged, or feasible and confirmed with its goals met, but not optimal."""
        return self.success or self.code is StatusCode.ACCEPTABLE

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" {self.advice}" if self.advice else "")

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self) | {"code": str(self.code)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Status:
        """The inverse of :meth:`to_dict`."""
        return cls(**(fields | {"code": StatusCode(fields["code"])}))
