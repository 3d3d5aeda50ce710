"""Real-time iteration by SQP, for problems with constraints: one step of direct multiple shooting per call.

    prepare   QP about the shifted plan, before the state is known, and feedback gains about that plan
    respond   solution of the QP with its first state fixed (:mod:`trajopt.solvers.direct.real_time_iteration`); the full step is
    the plan

Multipliers are passed from one call to the next while the number of knots is constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.replanning.planners.real_time import RealTimePlanner, SolveGenerator
from trajopt.results.records import IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QPStatus

if TYPE_CHECKING:
    from trajopt.solvers.direct.real_time_iteration import RealTimeIteration


class RealTimeSQP(RealTimePlanner):
    """:class:`~trajopt.replanning.planning.Planner` with one SQP step per response; uses options hold, hessian and qp_solver."""

    def __init__(self, options: SQPOptions | None = None) -> None:
        self.options = options or SQPOptions(hessian="gauss_newton")
        self._last: RealTimeIteration | None = None

    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One step about the guess of a warm start. Raises ValueError if the guess gives NaN."""
        from trajopt.solvers.direct.direct_sqp import stage_lq_solver, staged_program
        from trajopt.solvers.direct.real_time_iteration import RealTimeIteration

        program, before = staged_program(ocp, warm.guess, self.options), self._last
        step = RealTimeIteration(program, self.options, stage_lq_solver(ocp))
        if before is not None and before.y.shape == step.y.shape and before.z.shape == step.z.shape:
            step.y, step.z, step.last = before.y, before.z, before.last
        w = program.variables(*warm.guess)
        step.prepare(w)
        self._last, gains = step, tracking_gains(ocp, *warm.guess)

        x0 = yield

        result = step.feedback(x0)
        xs, us = program.trajectory(result.w)
        us, (cost, g) = us[: ocp.horizon], program.evaluate(result.w)
        outside = np.maximum(program.g_lower - g, g - program.g_upper)
        record = _record(cost, float(outside.max(initial=0.0)), float(np.abs(result.w - w).max()), self.options)
        status, k = _status(result.status, record.constraint_violation, self.options), np.zeros_like(us)
        multipliers = program.by_name(result.y)
        return Solution(xs, us, gains, k, status, cost, 1, (record,), ocp.times_of(xs), multipliers=multipliers)


def _status(status: QPStatus, violation: float, options: SQPOptions) -> Status:
    if status is QPStatus.SOLVED:
        return termination.real_time_iteration()
    if status is QPStatus.INFEASIBLE:
        return termination.infeasible_qp()
    measured = termination.Measured(1, termination.Errors(violation=violation), options.tolerances)
    return termination.line_search_failed(termination.UNSOLVED_QP, measured)


def _record(cost: float, violation: float, size: float, options: SQPOptions) -> IterationRecord:
    unknown = float("nan")
    return IterationRecord(
        iteration=0,
        cost=cost,
        merit=cost,
        stop=unknown,
        gradient=unknown,
        regularization=0.0,
        step_norm=size,
        defect=violation,
        constraint_violation=violation,
        expected_decrease=unknown,
        actual_decrease=unknown,
        step_length=1.0,
        hessian=options.hessian,
    )
