"""One solve by Newton's method: answered by kernels where all is compiled, else by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.methods.method import End, Ended
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.methods.requests import Gains, Solved
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.driver import run_alone
from trajopt.solvers.window.newton_numpy import NewtonNumpy
from trajopt.solvers.window.newton_status import status_of, to_blame
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

        slot = NewtonSlot.of(ocp, evaluator, exact, lq_solver, options.max_backtracks + 1, kept)  # type: ignore[arg-type]
    run = method(slot.take(ocp, guess), options, options.max_iterations)

    def report(**numbers: Any) -> None:
        slot.note_times(journal)
        journal.add(lambda: slot.trajectory, **numbers)

    def worded(ended: Ended) -> Status:
        blamed = (ocp, *slot.trajectory, (evaluator, exact or evaluator), lq_solver)
        return status_of(ended, options, lambda: to_blame(*blamed))

    run.report = report
    try:
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                ended = run_alone(run.solve(), slot.answer)
                status = worded(ended)
                if ended.end is End.NOT_FINITE:
                    journal.refused()
                else:
                    run.report_end()
            except KeyboardInterrupt:
                status = termination.interrupted(run.iteration)
                if run.begun:
                    slot.answer(Gains(run.size.widest))
            if run.begun:
                found, cost = slot.solution(), slot.cost
            else:
                found, cost = _unsolved(ocp, guess), float("nan")
    finally:
        slot.close()
    return Solution(found.xs, found.us, found.K, found.k, status, cost, run.iteration, journal.history(), ocp.times)


def _unsolved(ocp: OCP, guess: Guess) -> Solved:
    """A guess without gains."""
    N, m, n = ocp.horizon, ocp.nu, ocp.manifold.ndx
    return Solved(*guess, np.zeros((N, m, n)), np.zeros((N, m)))


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
