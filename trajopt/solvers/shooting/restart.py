"""A second start where linear gaps have blown up.

A full step closes linear gaps to first order only, and what it leaves may be large where a problem is far from linear: a
pendulum that swings up from rest gains gaps of several revolutions in two steps while its cost falls.  Closing them then costs more
than all that was gained, the penalty of the merit rises beyond all proportion, and no step length is accepted.  Nonlinear gaps
shrink by the step length and no iterate has larger ones than the guess, at the price of shorter steps: so the second start has
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers.options import LEAST_TIME, SLQOptions

Options = TypeVar("Options", bound=SLQOptions)


def started_twice(
    run: Callable[[Options, Callback | None], Solution], options: Options, callback: Callback | None
) -> Solution:
    """What ``run`` finds, where linear gaps have blown up with a second start; run: solves from the guess."""
    began = time.perf_counter()
    found = run(options, callback)
    if not blown_up(found, found.history[-1].defect if found.history else 0.0, options):
        return found
    again = restarted(options, found, time.perf_counter() - began)
    return of_both(found, run(again, continued(callback, len(found.history))))


def blown_up(found: Solution, defect: float, options: SLQOptions) -> bool:
    """Whether a solve with linear gaps ended without a step while its gaps were open, with iterations left; defect: the largest."""
    linear = options.shooting != "single" and options.gaps == "linear"
    stuck = found.status.code in (StatusCode.LINE_SEARCH_FAILED, StatusCode.NON_FINITE)
    return linear and stuck and not defect <= options.defect_tolerance and 0 < found.iterations < options.max_iterations


def restarted(options: Options, found: Solution, spent: float) -> Options:
    """The options of the second start, with what is left of iterations and time; spent: seconds."""
    left = options.max_iterations - found.iterations
    limit = None if options.time_limit is None else max(options.time_limit - spent, LEAST_TIME)
    return replace(options, gaps="nonlinear", max_iterations=left, time_limit=limit)


def continued(callback: Callback | None, first: int) -> Callback | None:
    """The callback, with the records numbered from ``first`` on."""
    if callback is None:
        return None

    def told(record: IterationRecord) -> None:
        callback(replace(record, iteration=record.iteration + first))

    return told


def of_both(
    found: Solution, second: Solution, first_end: str | None = None, start: str = "with nonlinear gaps"
) -> Solution:
    """The second solution if it is one, else the first; with the records of both.

    first_end, start: a sentence on how the first one ended, and what is new of the second. Where neither is one, the advice is
    that of the second, whose gaps the first would advise; unless the first names a place. A second start that was stopped by hand
    or by its time limit ends the solve as such, with the first one's trajectory.
    """
    first = len(found.history)
    best = second if second.status.success else found
    how = "converged" if second.status.success else f"ended with {second.status.code}"
    first_end = (
        first_end or f"The solve with linear gaps ended with {found.status.code} after {found.iterations} iterations."
    )
    last = second.status if second.status.code in STOPPED else best.status
    message = last.message if first_end in last.message else f"{last.message} {first_end}"
    advice = last.advice if last.knot is not None else second.status.advice
    return replace(
        best,
        status=replace(last, message=f"{message} A second start {start} {how}.", advice=advice),
        iterations=found.iterations + second.iterations,
        history=(*found.history, *(replace(r, iteration=r.iteration + first) for r in second.history)),
    )
