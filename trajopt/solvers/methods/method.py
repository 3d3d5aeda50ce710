"""The size of a problem, the ends of a solve, and what drivers ask of a method."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Any, NamedTuple, Protocol


class End(IntEnum):
    """OPTIMAL: the scaled KKT error is small; CONVERGED: the gradient and the gaps are. CHEAPER: the cost hardly falls.

    ROUNDED: double precision allows no more. NO_STEP: the search has failed. GAPS_OPEN: only short steps are accepted.
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


class Ended(NamedTuple):
    """The end, and the errors of the point where a test was met; change: the share by which the last step lowered the cost.

    gradient: of the open loop, or under the last feedback gains where the scaled KKT error decides the end.
    failed_at: the knot where Quu could not be factorized last, -1 for none.
    """

    end: End
    iterations: int
    gradient: float
    defect: float
    kkt: float
    change: float
    failed_at: int = -1


class Size(NamedTuple):
    """What of a problem a method depends on. widest: the number of the largest fraction of the curvature that is there.
    controls: how many numbers the controls of all knots are; bounded: whether they have bounds.
    """

    widest: int
    controls: int
    bounded: bool


Report = Callable[..., None]
"""Called with the numbers of a record (:class:`trajopt.results.records.IterationRecord`) before each step is taken."""
Solve = Generator[Any, Any, Ended]
"""Yields requests, takes their answers."""


class Method(Protocol):
    """One solve. begun: whether there is a point; began: the time [s] of its making; iteration: steps taken."""

    begun: bool
    began: float
    iteration: int
    report: Report | None

    def solve(self, *, gains: bool = True) -> Solve:
        """Iterate from the guess until a test is met; gains: whether feedback gains belong to the solution."""
        ...

    def stopped(self, *, gains: bool = True) -> Solve:
        """What is left to do where a solve that has begun is stopped from outside."""
        ...

    def ended(self, end: End) -> Ended:
        """An end where the solve is."""
        ...

    def report_end(self) -> None:
        """Report the solution, without a step."""
        ...
