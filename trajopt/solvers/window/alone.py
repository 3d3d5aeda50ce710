"""Single solves: run a method whose requests a slot answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.methods.delegation import not_begun
from trajopt.solvers.methods.driver import never, run_alone
from trajopt.solvers.methods.method import Method
from trajopt.solvers.options import MethodOptions, SLQOptions
from trajopt.solvers.window.status import Culprit, failed_expansion, status_of
from trajopt.stage.evaluation import StageEvaluator


def run_to_end(
    method: Any,
    slot: Any,
    journal: Journal,
    status_of: Callable[[Any], Status],
    gains: Callable[[], bool] = never,
) -> Status:
    """Run a method on the problem in a slot until it terminates or Ctrl-C; record its iterations, and return the status.

    ``status_of`` turns a termination into a status. The journal, the history of the solve, also gets a record of the final
    iterate, or one of NaN if the start is not finite. After Ctrl-C there is no such record, and the status is "interrupted"; if
    there is an iterate, the method still finishes its point, with feedback gains if ``gains()``.
    """

    def report(**numbers: Any) -> None:
        """Add the times of the kernels and a record of the current iterate to the history."""
        slot.note_times(journal)
        journal.add(lambda: slot.trajectory, **numbers)

    method.report = report
    try:
        status = status_of(run_alone(method.solve(), slot.answer))
        if method.begun:
            method.report_end()
        else:
            journal.add_failed_start()
    except KeyboardInterrupt:
        status = termination.interrupted(method.iteration)
        if method.begun:
            run_alone(method.stopped(gains=gains()), slot.answer)
    return status


def solve_alone(
    ocp: OCP,
    guess: Guess,
    method: Method,
    slot: Any,
    options: SLQOptions | MethodOptions,
    journal: Journal,
    evaluators: Sequence[StageEvaluator],
) -> Solution:
    """Run a method on the problem in a slot, close the slot and return the solution; after Ctrl-C, the current iterate.

    The gains of that iterate are zero after the time limit if Python functions would compute them. Without a finite start, the
    solution is the guess with zero gains and cost NaN. The evaluators find the culprit of non-finite values or of a failed line
    search.
    """

    def find_culprit() -> Culprit:
        """Expand about the current iterate, to find the culprit of a failure."""
        xs, us = slot.trajectory
        return failed_expansion(ocp, xs, us, evaluators)

    try:
        with np.errstate(all="ignore"):  # the status reports non-finite values
            status = run_to_end(
                method,
                slot,
                journal,
                lambda ended: status_of(ended, options, find_culprit),
                lambda: may_expand_again(ocp, options.time_limit),
            )
            found, cost = (slot.solution(), slot.cost) if method.begun else (not_begun(ocp, guess), float("nan"))
            if status.code is StatusCode.INTERRUPTED and not may_expand_again(ocp, options.time_limit):
                found = not_begun(ocp, Guess(found.xs, found.us))
            slot.note_times(journal)
    finally:
        slot.close()
    return Solution(found.xs, found.us, found.K, found.k, status, cost, method.iteration, journal.history(), ocp.times)
