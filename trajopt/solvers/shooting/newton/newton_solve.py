"""A solve by Newton's loop: in C, an iteration to a call, where all is compiled and one thread is enough; else in Python.

What is told of iterations, how Ctrl-C and callbacks that raise it end a solve, and statuses are the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.newton.newton_ends import End, Ended, to_blame, verdict
from trajopt.solvers.shooting.newton.newton_loop import NewtonLoop
from trajopt.solvers.shooting.newton.newton_memory import GO_ON, RESULT
from trajopt.solvers.shooting.newton.newton_point import name
from trajopt.stage.engine import is_compiled
from trajopt.stage.evaluation import Evaluator, StageEvaluator
from trajopt.stage.kept import Kept
from trajopt.stage.start import starts_at_once

_TOLD = {name: name for name in ("cost", "merit", "stop", "gradient", "step_norm", "defect", "kkt")} | {
    "regularization": "delta",
    "expected_decrease": "expected",
    "actual_decrease": "actual",
    "step_length": "alpha",
}
"""Names of a record, and those of newton_record_t."""


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
) -> Solution:
    """Solve from a guess; exact: see :class:`~trajopt.solvers.shooting.newton.newton_model.NewtonModel`; kept: where what makes
    iterations one call is found, and left for the next solve."""
    if one_call_serves(ocp, evaluator, lq_solver, exact):
        return _Calls(ocp, options, callback, evaluator, lq_solver, exact, kept).run(guess)
    return NewtonLoop(ocp, evaluator, options, callback, lq_solver, exact).run(guess)


def one_call_serves(ocp: OCP, evaluator: Evaluator, lq_solver: LQSolver, exact: Evaluator | None) -> bool:
    """Whether an iteration can be one call."""
    if type(evaluator) is not StageEvaluator or not is_compiled(ocp):
        return False
    from trajopt.lq.compiled_lq import CompiledLQ
    from trajopt.solvers.shooting.newton.compiled_newton import at_once, serves

    if starts_at_once() and not at_once():
        return False
    whole = serves([evaluator, evaluator if exact is None else exact], exact is not None)
    return whole and evaluator.alone and type(lq_solver) is CompiledLQ


class _Calls:
    """One solve, whose iterations are calls."""

    def __init__(
        self,
        ocp: OCP,
        options: SLQOptions,
        callback: Callback | None,
        plain: Any,
        lq_solver: Any,
        exact: Any,
        kept: Kept | None,
    ) -> None:
        self.ocp, self.options, self.plain, self.exact, self.lq_solver = ocp, options, plain, exact, lq_solver
        self.kept = kept
        self.journal = Journal(callback)
        self.iteration = 0

    def run(self, guess: Guess) -> Solution:
        """Iterate from a guess until a test fires; there is a solution after Ctrl-C too."""
        from trajopt.solvers.shooting.newton.compiled_newton import CompiledNewton

        self.xs, self.us = (np.array(rows, dtype=float, order="C") for rows in guess)
        N, nu = self.us.shape
        self.K, self.k, self.result = np.zeros((N, nu, self.ocp.manifold.ndx)), np.zeros((N, nu)), np.zeros(1, RESULT)
        self.calls = CompiledNewton.of(self.ocp, self.plain, self.exact, self.lq_solver, self.options, self.kept)
        begun = False
        try:
            begun = self.calls.begin_at(self.xs, self.us, (self.K, self.k), self.result) == GO_ON
            self.journal.spent(*self.calls.seconds)
            status = self._iterated() if begun else self._refused()
        except KeyboardInterrupt:
            if begun:
                self.calls.end(End.INTERRUPTED)
            status = termination.interrupted(self.iteration)
        finally:
            self.calls.close()
        xs, us, cost = (self.xs, self.us, float(self.result["cost"][0])) if begun else (*guess, float("nan"))
        records = self.journal.history()
        return Solution(xs, us, self.K, self.k, status, cost, self.iteration, records, self.ocp.times)

    def _iterated(self) -> Status:
        """Iterate to an end, and tell of it."""
        calls, end = self.calls, GO_ON
        try:
            while end == GO_ON:
                point, end = calls.point, calls.iterate()
                if calls.iterations > self.iteration:
                    self._record(point)
                    self.iteration += 1
        except KeyboardInterrupt:
            if calls.iterations > self.iteration:
                calls.go_back()
            raise
        calls.end(end)
        status = self._verdict(End(end))
        self._record(calls.point)
        return status

    def _refused(self) -> Status:
        """The verdict on a guess whose numbers are not finite."""
        self.calls.end(End.NOT_FINITE)
        self.journal.refused()
        return self._verdict(End.NOT_FINITE)

    def _verdict(self, end: End) -> Status:
        r: Any = self.result[0]
        errors = (float(r[name]) for name in ("gradient", "defect", "kkt", "change"))
        evaluators = (self.plain, self.exact or self.plain)
        blamed = partial(to_blame, self.ocp, self.xs, self.us, evaluators, self.lq_solver)
        return verdict(Ended(end, self.iteration, *errors), self.options, blamed)

    def _record(self, point: int) -> None:
        """Tell what the last call did at a point."""
        told = self.calls.told
        self.journal.spent(*self.calls.seconds)
        self.journal.add(
            partial(self.calls.trajectory, point),
            iteration=self.iteration,
            constraint_violation=0.0,
            hessian=name(self.calls.share),
            **{key: told[own] for key, own in _TOLD.items()},
        )
