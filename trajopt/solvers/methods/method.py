"""Interface of a method: problem size, termination reasons, result and the protocol that drivers call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from math import nan
from typing import Any, NamedTuple, Protocol


class End(IntEnum):
    """Reason why a solve ended.

    OPTIMAL: the scaled KKT error is small; in Newton's method also if gradient and defects are small. CONVERGED: the gradient and
    the defects are small. CHEAPER: the last step hardly changed the cost, and defects are small. MOST_ITERATIONS, OUT_OF_TIME,
    INTERRUPTED: the limit of iterations or time, or Ctrl-C; for user-defined methods, the toolkit ends the solve so. ROUNDED:
    double precision allows no further progress. NOT_FINITE: cost or derivatives at the guess are not finite. NO_STEP: the line
    search failed. GAPS_OPEN: only short steps are accepted, and defects stay open. NOT_POSITIVE_DEFINITE: Quu could not be
    factorized. UNBOUNDED: the cost decreases without bound.
    """

    OPTIMAL = 0
    CHEAPER = 1
    MOST_ITERATIONS = 2
    OUT_OF_TIME = 3
    ROUNDED = 4
    INTERRUPTED = 5
    NOT_FINITE = 6
    NO_STEP = 7
    CONVERGED = 8
    GAPS_OPEN = 9
    NOT_POSITIVE_DEFINITE = 10
    UNBOUNDED = 11


SUCCESSES = (End.OPTIMAL, End.CONVERGED, End.CHEAPER, End.ROUNDED)
"""Reasons that may be a success."""


class Ended(NamedTuple):
    """Reason of the end, and errors of the final point.

    gradient: largest entry of the Lagrangian's gradient in the controls: under the last feedback gains in Newton's method, and in
    shooting methods for OPTIMAL, CHEAPER and ROUNDED; else of the open loop. defect: largest defect. kkt: scaled KKT error.
    change: relative cost change of the last step, set for CHEAPER and in user-defined methods, else 0. failed_at: the knot where
    Quu could not be factorized last, -1 for none. cost: NaN if unknown.
    """

    end: End
    iterations: int
    gradient: float
    defect: float
    kkt: float
    change: float
    failed_at: int = -1
    cost: float = nan


class Size(NamedTuple):
    """Problem size. widest: index in FRACTIONS of the largest curvature fraction available. controls: total number of control
    entries over all knots. bounded: True if controls have bounds.
    """

    widest: int
    controls: int
    bounded: bool


Report = Callable[..., None]
"""Called with the fields of a record (:class:`trajopt.results.records.IterationRecord`) as keyword arguments: for each iteration
before its step is taken, and for the final point."""
Solve = Generator[Any, Any, Ended]
"""Generator that yields requests, receives their answers, and returns an :class:`Ended`."""


class Method(Protocol):
    """State of one solve. begun: True once a point exists; began: start time [s]; iteration: number of iterations; report: see
    :data:`Report`, None for no records.
    """

    begun: bool
    began: float
    iteration: int
    report: Report | None

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a termination test holds; gains: True to compute feedback gains of the solution."""

    def stopped(self, *, gains: bool = True) -> Solve:
        """Finish a solve interrupted by the caller: yield the last requests, among them that for gains if ``gains``.

        Return the result, with the reason INTERRUPTED.
        """

    def ended(self, end: End) -> Ended:
        """Return the result: the given reason, with iterations and errors of the current point."""

    def report_end(self) -> None:
        """Report the final point as a record without a step; a method that has reported it already may do nothing."""
