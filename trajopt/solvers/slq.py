"""SLQ: sequential linear-quadratic optimal control, with single and multiple shooting.

Each iteration solves the LQ problem at the current trajectory (first derivatives of the dynamics, Gauss-Newton or exact Hessian of
the cost) by a Riccati sweep, and searches along its solution.

| name | shooting | gaps | reference |
|---|---|---|---|
| ilqr | single | | W. Li, E. Todorov, ICINCO 2004; box limits: Tassa et al., ICRA 2014 |
| slq | by options | by options | A. Sideris, J. Bobrow, ACC 2005 |
| gnms | all | linear | M. Giftthaler et al., IROS 2018 |
| fddp | all | nonlinear | C. Mastalli et al., ICRA 2020 |

If linearly closed defects diverge, the problem is solved again from the guess with nonlinear closing
(:mod:`trajopt.solvers.shooting.restart`); the status reports this.
"""

from __future__ import annotations

from dataclasses import replace

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.restart import solve_twice
from trajopt.solvers.window.newton import filtered, solve_newton
from trajopt.solvers.window.shooting import solve_shooting
from trajopt.stage.evaluation import Evaluator
from trajopt.stage.evaluators import cached_evaluator
from trajopt.stage.solver_cache import SolverCache, borrowed


def slq(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions | None = None,
    callback: Callback | None = None,
    *,
    evaluator: Evaluator | None = None,
    cache: SolverCache | None = None,
) -> Solution:
    """Solve a valid problem from a guess, whose states need not satisfy the dynamics.

    evaluator: evaluates the stages; default: by the engine of the backends. cache: cache of workspaces; default:
    that of the thread.
    """
    options = options or SLQOptions()
    with borrowed(ocp, cache) as own:
        evaluator = evaluator or cached_evaluator(own, ocp, options.hessian)

        def run(options: SLQOptions, callback: Callback | None) -> Solution:
            if filtered(ocp, options):
                return solve_newton(ocp, guess, options, callback, evaluator, cache=own)
            return solve_shooting(ocp, guess, options, callback, evaluator, cache=own)

        found = solve_twice(run, options, callback)
        hessian = "exact cost" if options.hessian == "exact" else options.hessian
        return replace(found, meta={**found.meta, "hessian": hessian})
