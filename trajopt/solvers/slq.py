"""SLQ: sequential linear-quadratic optimal control, with single and multiple shooting.

Each iteration solves the LQ problem at the current trajectory (first derivatives of the dynamics, Gauss-Newton or exact Hessian of
the cost) by a Riccati sweep, and searches along its solution.

| name | shooting | gaps | reference |
|---|---|---|---|
| ilqr | single | | W. Li, E. Todorov, ICINCO 2004; box limits: Tassa et al., ICRA 2014 |
| slq | by options | by options | A. Sideris, J. Bobrow, ACC 2005 |
| gnms | all | linear | M. Giftthaler et al., IROS 2018 |
| fddp | all | nonlinear | C. Mastalli et al., ICRA 2020 |

If linearly closed gaps diverge, the problem is solved again from the guess with nonlinear closing; the status reports this.
A full step closes linear gaps to first order only, and the remaining gaps are large for strongly nonlinear problems.  A pendulum
that swings up from rest reaches gaps of several revolutions in two steps while its cost falls.  Closing these gaps costs more
than was gained, the penalty of the merit becomes very large, and no step length is accepted.  Nonlinear gaps shrink by the step
length and never exceed those of the guess, but steps are shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode, iterations_text
from trajopt.solvers.methods.delegation import Continued, Second, SolveRequest, at_end, started_twice
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.newton import filtered, solve_newton
from trajopt.solvers.window.shooting import solve_shooting
from trajopt.stage.evaluators import cached_evaluator
from trajopt.stage.solver_cache import SolverCache, borrowed


def with_nonlinear_gaps(options: SLQOptions, max_iterations: int) -> Generator[SolveRequest, Any, Solution | Status]:
    """Solve from the guess with the options; if linear gaps fail, solve from the guess again with nonlinear gaps.

    Linear gaps fail if the solve ends in a failed line search or NaN with defects above their tolerance, after at least one
    iteration. Returns the second solution if it succeeded, else the first, with iterations and records of both, or a status if
    nothing was solved. Yields requests, answered by solutions, or None if not started. Both solves share max_iterations and the
    time limit.
    """

    linear = options.shooting != "single" and options.gaps == "linear"

    def second(found: Solution) -> Second | None:
        """Return the second start with nonlinear gaps, or None if the first solve needs none."""
        stuck = found.status.code in (StatusCode.LINE_SEARCH_FAILED, StatusCode.NON_FINITE)
        if not (linear and stuck and found.iterations) or at_end(found)["defect"] <= options.defect_tolerance:
            return None
        end = f"The solve with linear gaps ended with {found.status.code} after {iterations_text(found.iterations)}."
        return Second(replace(options, gaps="nonlinear"), end, "with nonlinear gaps")

    return started_twice(options, max_iterations, second)


def solve_twice(
    run: Callable[[Any, Callback | None], Solution], options: SLQOptions, callback: Callback | None
) -> Solution:
    """Solve one problem; if its linear gaps diverge, solve it again from the guess with nonlinear gaps.

    run: solves it with given options and callback.
    """
    report = None if callback is None else Continued(callback)
    method = with_nonlinear_gaps(options, options.max_iterations)
    return run_alone(method, lambda request: run(request.limited, report))


def slq(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions | None = None,
    callback: Callback | None = None,
    *,
    cache: SolverCache | None = None,
) -> Solution:
    """Solve a valid problem without constraints by SLQ; the states of the guess need not satisfy the dynamics.

    A solve whose linear gaps diverge is repeated with nonlinear gaps. cache: cache of workspaces; default: that of the thread.
    """
    options = options or SLQOptions()
    with borrowed(ocp, cache) as own:
        evaluator = cached_evaluator(own, ocp, options.hessian)

        def run(options: SLQOptions, callback: Callback | None) -> Solution:
            """Solve once with given options: by Newton's method with a filter if they select it, else by search on a merit."""
            if filtered(ocp, options):
                return solve_newton(ocp, guess, options, callback, evaluator, cache=own)
            return solve_shooting(ocp, guess, options, callback, evaluator, cache=own)

        found = solve_twice(run, options, callback)
        hessian = "exact cost" if options.hessian == "exact" else options.hessian
        return replace(found, meta={**found.meta, "hessian": hessian})
