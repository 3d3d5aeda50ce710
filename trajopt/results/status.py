"""Status of a solution: a code for programs and a sentence for users."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


def iterations_text(count: int) -> str:
    """Return "1 iteration", or the count with "iterations"."""
    return f"{count} iteration{'' if count == 1 else 's'}"


class StatusCode(StrEnum):
    """Result of a solve. The first two are passed checks of :mod:`trajopt.solvers.success`, the others failed ones or early ends.

    Solvers report COST_CONVERGED and PRECISION_LIMIT before the checks; with a small KKT error these count as success.
    """

    CONVERGED = "converged"
    """Feasible, optimal to first order, confirmed by the replay, and the goals are met; without checks, feasible and optimal."""
    ACCEPTABLE = "acceptable"
    """Feasible, confirmed by the replay, and the goals are met, but the scaled KKT error is above its tolerance."""
    NOT_FEASIBLE = "not_feasible"
    """The solver stopped at a trajectory that violates dynamics, bounds or constraints by more than the tolerance."""
    VIOLATED_BETWEEN_KNOTS = "violated_between_knots"
    """Feasible at the knots, but an inequality is violated between them by more than the tolerance."""
    DOES_NOT_HOLD = "does_not_hold"
    """The motion, replayed with finer time steps, deviates from the plan by more than the replay tolerance, or misses a goal."""
    GOAL_MISSED = "goal_missed"
    """The trajectory is feasible, but it misses a goal, falls, or touches an obstacle."""
    COST_CONVERGED = "cost_converged"
    """The relative improvement of the cost fell below its tolerance, at a feasible trajectory."""
    PRECISION_LIMIT = "precision_limit"
    """Double precision allows no further progress; the gradient is still above its tolerance."""
    MAX_ITERATIONS = "max_iterations"
    TIME_LIMIT = "time_limit"
    LINE_SEARCH_FAILED = "line_search_failed"
    """No further step: no step length was accepted, even with the largest regularization, or a QP could not be solved."""
    NOT_POSITIVE_DEFINITE = "not_positive_definite"
    """Quu could not be factorized, even with the largest regularization; in a real-time iteration, with the present one."""
    NON_FINITE = "non_finite"
    """NaN or infinity in the dynamics, the cost, or their derivatives."""
    INFEASIBLE = "infeasible"
    """No point satisfies the constraints, or in a real-time iteration the linearized ones: they contradict each other."""
    LOCALLY_INFEASIBLE = "locally_infeasible"
    """Stationary point of the violation, far above its tolerance: no nearby point is feasible, but distant ones may be."""
    STALLED = "stalled"
    """The violation hardly decreases, but the point is not proved to be locally infeasible; or more equations than variables."""
    UNBOUNDED = "unbounded"
    """The objective decreases without bound."""
    INTERRUPTED = "interrupted"
    """Stopped by the user (Ctrl-C)."""
    ERROR = "error"
    """The solve raised an error, its process died, or the problem is invalid; only in a batch."""


STOPPED = (StatusCode.INTERRUPTED, StatusCode.TIME_LIMIT)
"""Status codes of a solve stopped by the user or the clock; no other start or solver is tried then."""
SOLVED = 1e-6
"""Scaled KKT error up to which a stop at the limit of double precision counts as converged."""
STATIONARY = 1e-4
"""Tolerance on the scaled KKT error; up to it, a stop because the cost hardly decreases counts as converged."""
_ENOUGH = {
    StatusCode.CONVERGED: float("inf"),
    StatusCode.COST_CONVERGED: STATIONARY,
    StatusCode.PRECISION_LIMIT: SOLVED,
}


@dataclass(frozen=True)
class Status:
    """Status of a solution.

    message: one sentence with the decisive numbers. knot, component: location of the failure, if it has one.
    advice: what to try, empty on success. kkt: final scaled KKT error (:mod:`trajopt.solvers.rules.cost_size`), if the solver
    has one.
    """

    code: StatusCode
    message: str
    knot: int | None = None
    component: str | None = None
    advice: str = ""
    kkt: float | None = None

    @property
    def success(self) -> bool:
        """True if converged, or, for the status of a solver before checks, if it stopped close enough to an optimum.

        COST_CONVERGED counts with a scaled KKT error of at most STATIONARY, PRECISION_LIMIT with at most SOLVED.
        """
        return self.code is StatusCode.CONVERGED or (self.kkt is not None and self.kkt <= _ENOUGH.get(self.code, -1.0))

    @property
    def acceptable(self) -> bool:
        """True if the motion can be used: success, or ACCEPTABLE (feasible, replayed, goals met, but not proved optimal)."""
        return self.success or self.code is StatusCode.ACCEPTABLE

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" {self.advice}" if self.advice else "")

    def to_dict(self) -> dict[str, Any]:
        """Fields as plain values for JSON."""
        return asdict(self) | {"code": str(self.code)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Status:
        """Inverse of :meth:`to_dict`. Raises KeyError, TypeError or ValueError for other fields."""
        return cls(**(fields | {"code": StatusCode(fields["code"])}))
