"""A second start where linear gaps have blown up.

A full step closes linear gaps to first order only, and what it leaves may be large where a problem is far from linear: a
pendulum that swings up from rest gains gaps of several revolutions in two steps while its cost falls.  Closing them then costs more
than all that was gained, the penalty of the merit rises beyond all proportion, and no step length is accepted.  Nonlinear gaps
shrink by the step length and no iterate has larger ones than the guess, at the price of shorter steps: so the second start has
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers.methods.delegation import Continued, SolveRequest, at_end
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import LEAST_TIME, SLQOptions


def started_twice(options: SLQOptions, max_iterations: int) -> Generator[SolveRequest, Any, Solution]:
    """A solve from the guess, and where its linear gaps have blown up another one with nonlinear gaps.

    Answers are solutions, or None where the solve was stopped before the second one.
    """
    began = time.perf_counter()
    found = yield SolveRequest(options, max_iterations, options.time_limit)
    left = max_iterations - found.iterations
    if not (found.iterations and left > 0 and blown_up(found, options)):
        return found
    limit = options.time_limit
    if limit is not None:
        limit = max(limit - found.meta.get("solve_time", time.perf_counter() - began), LEAST_TIME)
    second = yield SolveRequest(replace(options, gaps="nonlinear"), left, limit)
    return found if second is None else of_both(found, second)


def blown_up(found: Solution, options: SLQOptions) -> bool:
    """True if a solve with linear gaps ended without a step while its gaps were open."""
    linear = options.shooting != "single" and options.gaps == "linear"
    stuck = found.status.code in (StatusCode.LINE_SEARCH_FAILED, StatusCode.NON_FINITE)
    return linear and stuck and not at_end(found)["defect"] <= options.defect_tolerance


def solve_twice(
    run: Callable[[Any, Callback | None], Solution], options: SLQOptions, callback: Callback | None
) -> Solution:
    """Answer the requests of :func:`started_twice`; run: solves with options."""
    tell = None if callback is None else Continued(callback)

    def answer(request: SolveRequest) -> Solution:
        return run(request.limited, tell)

    found: Solution = run_alone(started_twice(options, options.max_iterations), answer)
    return found


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
    times = [s.meta["solve_time"] for s in (found, second) if "solve_time" in s.meta]
    return replace(
        best,
        status=replace(last, message=f"{message} A second start {start} {how}.", advice=advice),
        iterations=found.iterations + second.iterations,
        history=(*found.history, *(replace(r, iteration=r.iteration + first) for r in second.history)),
        meta={**best.meta, **({"solve_time": sum(times)} if times else {})},
    )
