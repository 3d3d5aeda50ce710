"""Interface of a method: problem size, termination reasons, result and the protocol that drivers call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from math import nan
from typing import Any, NamedTuple, Protocol


class End(IntEnum):
    """Reason why a solve ended.

    OPTIMAL: the scaled KKT error is small. CONVERGED: the gradient and the defects are small. CHEAPER: the last step hardly lowered
    the cost. ROUNDED: double precision allows no further progress. NO_STEP: the line search failed. GAPS_OPEN: only short steps are
    accepted, and defects stay open. UNBOUNDED: the cost decreases without bound.
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


class Ended(NamedTuple):
    """Reason of the end, and errors of the final point; change: relative cost decrease of the last step.

    gradient: of the open loop, or under the last feedback gains if the scaled KKT error decided the end.
    failed_at: the knot where Quu could not be factorized last, -1 for none. cost: NaN if unknown.
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
"""Called with the numbers of a record (:class:`trajopt.results.records.IterationRecord`) before each step is taken."""
Solve = Generator[Any, Any, Ended]
"""Generator that yields requests and receives their answers."""


class Method(Protocol):
    """State of one solve. begun: True once a point exists; began: start time [s]; iteration: number of steps."""

    begun: bool
    began: float
    iteration: int
    report: Report | None

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a termination test holds; gains: True to compute feedback gains of the solution."""
        ...

    def stopped(self, *, gains: bool = True) -> Solve:
        """Finish a solve interrupted by the caller: yield the last requests, among them that for gains if ``gains``.

        Return the result.
        """
        ...

    def ended(self, end: End) -> Ended:
        """Return the result: the given reason, with iterations and errors of the current point."""
        ...

    def report_end(self) -> None:
        """Report the solution as a record without a step, unless the method has already reported it."""
        ...
