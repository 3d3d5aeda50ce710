"""Single solves by Newton's method: C kernels answer the requests; for stages that are not compiled, they call Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.alone import solve_alone
from trajopt.solvers.window.newton_calling import CallingNewtonSlot
from trajopt.solvers.window.newton_slot import NewtonSlot, serves
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.solver_cache import SolverCache


def filtered(ocp: OCP, o: SLQOptions) -> bool:
    """True if the options select Newton's method with a filter, and no lower control bound lies above the upper one.

    Options: globalization "filter", shooting "all" and gaps "linear".
    """
    consistent = ocp.control_bounds is None or bool((ocp.control_bounds[0] <= ocp.control_bounds[1]).all())
    return o.globalization == "filter" and o.shooting == "all" and o.gaps == "linear" and consistent


def solve_newton(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    evaluator: StageEvaluator,
    exact: StageEvaluator | None = None,
    *,
    cache: SolverCache | None = None,
    method: Callable[..., Any] = Newton,
) -> Solution:
    """Solve from a guess by Newton's method; after Ctrl-C, return the current iterate.

    evaluator: with the Gauss-Newton Hessian of the cost. exact: with the Hessian to which the curvature of the dynamics is added,
    maybe the same evaluator; None for Gauss-Newton alone. cache: cache of solver workspaces, read and updated. method: constructor
    of the method from a size, options and a maximum number of iterations.
    """
    given: Any = ocp, evaluator, exact
    evaluators = evaluator, exact or evaluator
    if serves(evaluators, exact is not None):
        slot = NewtonSlot.reused(cache, NewtonSlot, *given)
    else:
        slot = CallingNewtonSlot(*given)
    own = method(slot.take(ocp, guess), options, options.max_iterations)
    return solve_alone(ocp, guess, own, slot, options, Journal(callback), evaluators)
