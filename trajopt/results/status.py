"""How a solve ended: a code for programs and a sentence for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class StatusCode(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    """The gradient and the defects are below their tolerances."""
    COST_CONVERGED = "cost_converged"
    """The relative improvement of the cost fell below its tolerance, with closed defects."""
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
    """No point near satisfies the constraints: their violation cannot be reduced further; elsewhere there may be one."""
    UNBOUNDED = "unbounded"
    """The objective falls without end."""
    INTERRUPTED = "interrupted"
    """Stopped by the user (Ctrl-C)."""
    ERROR = "error"
    """The solve raised an error, its process died, or the problem is not valid; only within a batch."""


STOPPED = (StatusCode.INTERRUPTED, StatusCode.TIME_LIMIT)
"""Ends that no other attempt follows."""
SOLVED = 1e-6
"""An end at the limit of double precision is a success below this scaled KKT measure."""
NEAR = 1e-4
"""An end by a small change of the cost is a success below this one."""
_ENOUGH = {StatusCode.CONVERGED: float("inf"), StatusCode.COST_CONVERGED: NEAR, StatusCode.PRECISION_LIMIT: SOLVED}


@dataclass(frozen=True)
class Status:
    """The end of a solve.

    message: one sentence with the numbers that decided. knot, component: where, if it happened in one place.
    advice: what to try, empty on success. kkt: the scaled measure of optimality (:mod:`trajopt.solvers.shooting.optimality`)
    at the end, where the solver has one. asked: whether the options count such an end as a success (``accept_cost_tolerance``).
    """

    code: StatusCode
    message: str
    knot: int | None = None
    component: str | None = None
    advice: str = ""
    kkt: float | None = None
    asked: bool = False

    @property
    def success(self) -> bool:
        """Whether a convergence test fired, or what ended the solve left it close enough to a solution.

        A small change of the cost counts below the measure NEAR, or where the options ask for it; the limit of double precision
        below SOLVED.
        """
        if self.code is StatusCode.COST_CONVERGED and (self.kkt is None or self.asked):
            return True
        return self.code is StatusCode.CONVERGED or (self.kkt is not None and self.kkt <= _ENOUGH.get(self.code, -1.0))

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" {self.advice}" if self.advice else "")

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self) | {"code": str(self.code)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Status:
        """The inverse of :meth:`to_dict`."""
        return cls(**(fields | {"code": StatusCode(fields["code"])}))
