"""What every method has: the size of its problem, the ends of a solve, and the generator that solves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Any, NamedTuple

from trajopt.solvers.methods.requests import Request


class End(IntEnum):
    """CHEAPER: the cost hardly falls. ROUNDED: double precision allows no more. NO_STEP: the search has failed."""

    OPTIMAL = 0
    CHEAPER = 1
    MOST_ITERATIONS = 2
    OUT_OF_TIME = 3
    ROUNDED = 4
    INTERRUPTED = 5
    NOT_FINITE = 6
    NO_STEP = 7


class Ended(NamedTuple):
    """The end, and the errors of the point where a test was met; change: the share by which the last step lowered the cost."""

    end: End
    iterations: int
    gradient: float
    defect: float
    kkt: float
    change: float


class Size(NamedTuple):
    """What of a problem a method depends on. widest: the number of the largest fraction of the curvature that is there.
    controls: how many numbers the controls of all knots are; bounded: whether they have bounds.
    """

    widest: int
    controls: int
    bounded: bool


Report = Callable[..., None]
"""Called with the numbers of a record (:class:`trajopt.results.records.IterationRecord`) before each step is taken."""
Solve = Generator[Request, Any, Ended]
