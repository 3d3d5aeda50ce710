"""One solve by Newton's method: answered by kernels where all is compiled, else by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.alone import solve_alone
from trajopt.solvers.window.newton_numpy import NewtonNumpy
from trajopt.solvers.window.status import Blamed, to_blame
from trajopt.stage.engine import is_compiled
from trajopt.stage.evaluation import Evaluator, StageEvaluator
from trajopt.stage.kept import Kept
from trajopt.stage.start import starts_at_once


def filtered(ocp: OCP, o: SLQOptions) -> bool:
    """Whether the options ask for this method, and the bounds have an interior."""
    open_bounds = ocp.control_bounds is None or bool((ocp.control_bounds[0] < ocp.control_bounds[1]).all())
    return o.globalization == "filter" and o.shooting == "all" and o.gaps == "linear" and open_bounds


def solve_newton(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    evaluator: Evaluator,
    lq_solver: LQSolver,
    exact: Evaluator | None = None,
    *,
    kept: Kept | None = None,
    method: Callable[..., Any] = Newton,
) -> Solution:
    """Solve from a guess; there is a solution after Ctrl-C too.

    evaluator: of the Gauss-Newton Hessian of the cost. exact: of the one that the curvature of the dynamics is added to, maybe
    the same; None for Gauss-Newton alone. kept: memory of earlier solves, where this one leaves its own.
    method: makes the method of a size, options and a maximum number of iterations.
    """
    journal = Journal(callback)
    slot: Any = NewtonNumpy(ocp, evaluator, exact, lq_solver, journal)
    if kernels_serve(ocp, evaluator, lq_solver, exact):
        from trajopt.solvers.window.newton_slot import NewtonSlot

        given = ocp, evaluator, exact, lq_solver, options.max_backtracks + 1
        slot = NewtonSlot.of(kept, *given, may_follow=evaluator.may_follow)  # type: ignore[attr-defined]
    own = method(slot.take(ocp, guess), options, options.max_iterations)

    def refused() -> Blamed:
        xs, us = slot.trajectory
        return to_blame(ocp, xs, us, (evaluator, exact or evaluator), lq_solver)

    return solve_alone(ocp, guess, own, slot, options, journal, refused)


def kernels_serve(ocp: OCP, evaluator: Evaluator, lq_solver: LQSolver, exact: Evaluator | None) -> bool:
    """Whether kernels answer all requests."""
    if type(evaluator) is not StageEvaluator or not is_compiled(ocp):
        return False
    from trajopt.lq.compiled_lq import CompiledLQ
    from trajopt.solvers.window.newton_slot import at_once, serves

    if starts_at_once() and not at_once():
        return False
    whole = serves([evaluator, evaluator if exact is None else exact], exact is not None)
    return whole and evaluator.alone and type(lq_solver) is CompiledLQ
