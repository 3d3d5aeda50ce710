"""Status of a solve by Newton's method or shooting, and the culprit of non-finite values or a failed line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.measures import FEASIBLE
from trajopt.solvers.methods.method import SUCCESSES, End, Ended
from trajopt.solvers.options import MethodOptions, SLQOptions
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.stage.evaluation import Expansion, StageEvaluator

Culprit = tuple[OCP, Array, Expansion]
"""Problem, states, and the expansion about them that is not finite or whose line search failed."""


def status_of(at: Ended, o: SLQOptions | MethodOptions, find_culprit: Callable[[], Culprit]) -> Status:
    """Return the status, with errors and tolerances, for the reason why a solve ended.

    at: the reason (:class:`End`), with the final errors. Reasons without a rule here count as a failed line search.
    ``find_culprit()`` is called only for that and for non-finite values; it returns the expansion to name the cause, such as an
    unstable time step. A success that a user-defined method reports needs defects up to its tolerance, or FEASIBLE.
    """
    end, n = at.end, at.iterations
    kkt = None if end is End.CONVERGED else at.kkt  # the convergence test does not use it
    measured = termination.Measured(n, termination.Errors(kkt, at.gradient, at.defect), o.tolerances)
    user_defined = isinstance(o, MethodOptions)
    if user_defined and end in SUCCESSES and not at.defect <= max(FEASIBLE, o.defect_tolerance):
        return termination.ended_infeasible(measured)
    match end:
        case End.OPTIMAL | End.CONVERGED:
            return termination.converged(measured)
        case End.CHEAPER:
            return termination.cost_converged(n, at.change, o.cost_tolerance, at.kkt)
        case End.MOST_ITERATIONS:
            return termination.max_iterations(o.max_iterations, measured)
        case End.OUT_OF_TIME:
            return termination.time_limit(o.time_limit, measured)
        case End.ROUNDED:
            return termination.precision_limit(measured)
        case End.INTERRUPTED:
            return termination.interrupted(n)
        case End.UNBOUNDED:
            return termination.unbounded(n, at.cost)
        case End.GAPS_OPEN:
            return termination.line_search_failed(termination.OPEN_DEFECTS, measured)
        case End.NOT_POSITIVE_DEFINITE if user_defined:
            return termination.no_convex_problem(measured)
        case End.NOT_POSITIVE_DEFINITE if isinstance(o, SLQOptions):
            return termination.not_positive_definite(at.failed_at, o.max_regularization, o.hessian)
    ocp, xs, expansion = find_culprit()
    if end is End.NOT_FINITE:
        return termination.non_finite(
            shooting_diagnosis.non_finite_entry(ocp, xs, expansion), termination.BETTER_ROLLOUT
        )
    return shooting_diagnosis.no_step(ocp, expansion.lq, measured)


def is_finite(e: Expansion) -> bool:
    """True if the cost and the LQ problem of an expansion are finite."""
    return bool(np.isfinite(e.cost)) and shared_lq().is_finite(e.lq)


def failed_expansion(ocp: OCP, xs: Array, us: Array, evaluators: Sequence[StageEvaluator]) -> Culprit:
    """Expand about a trajectory with each evaluator; return the first expansion that is not finite, else that of the last one."""
    expansions = [evaluator.expand(xs, us) for evaluator in evaluators]
    return ocp, xs, next((e for e in expansions if not is_finite(e)), expansions[-1])
