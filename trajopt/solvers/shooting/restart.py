"""Second start with nonlinear gaps after linear gaps have grown too large.

A full step closes linear gaps to first order only, and the remaining gaps are large for strongly nonlinear problems.  A pendulum
that swings up from rest reaches gaps of several revolutions in two steps while its cost falls.  Closing these gaps costs more
than was gained, the penalty of the merit becomes very large, and no step length is accepted.  Nonlinear gaps shrink by the step
length and never exceed those of the guess, but steps are shorter.  The second start therefore uses nonlinear gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.methods.delegation import Continued, Second, SolveRequest, at_end, started_twice
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import SLQOptions


def with_nonlinear_gaps(options: SLQOptions, max_iterations: int) -> Generator[SolveRequest, Any, Solution | Status]:
    """Solve from the guess; if linear gaps prevented progress, solve again with nonlinear gaps."""

    linear = options.shooting != "single" and options.gaps == "linear"

    def second(found: Solution) -> Second | None:
        stuck = found.status.code in (StatusCode.LINE_SEARCH_FAILED, StatusCode.NON_FINITE)
        if not (linear and stuck and found.iterations) or at_end(found)["defect"] <= options.defect_tolerance:
            return None
        end = f"The solve with linear gaps ended with {found.status.code} after {found.iterations} iterations."
        return Second(replace(options, gaps="nonlinear"), end, "with nonlinear gaps")

    return started_twice(options, max_iterations, second)


def solve_twice(
    run: Callable[[Any, Callback | None], Solution], options: SLQOptions, callback: Callback | None
) -> Solution:
    """Run :func:`with_nonlinear_gaps` on one problem; run: solves it with given options and callback."""
    tell = None if callback is None else Continued(callback)
    method = with_nonlinear_gaps(options, options.max_iterations)
    found: Solution = run_alone(method, lambda request: run(request.limited, tell))
    return found
