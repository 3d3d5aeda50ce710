"""The status of a solve by the line search of shooting methods."""

from __future__ import annotations

from collections.abc import Callable

from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.methods.shooting import End, Ended
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.solvers.window.newton_status import Blamed


def status_of(at: Ended, o: SLQOptions, refused: Callable[[], Blamed]) -> Status:
    """The status of an end; refused: finds what is to blame where numbers are not finite or no step length was accepted."""
    end, n = at.end, at.iterations
    kkt = None if end is End.CONVERGED else at.kkt  # which its test does not ask for
    measured = termination.Measured(n, termination.Errors(kkt, at.gradient, at.defect), o.tolerances)
    match end:
        case End.CONVERGED | End.OPTIMAL:
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
        case End.GAPS_OPEN:
            return termination.line_search_failed(termination.OPEN_DEFECTS, measured)
        case End.NOT_POSITIVE_DEFINITE:
            return termination.not_positive_definite(at.failed_at, o.max_regularization, o.hessian)
    ocp, xs, expansion = refused()
    if end is End.NOT_FINITE:
        return termination.non_finite(
            shooting_diagnosis.non_finite_entry(ocp, xs, expansion), termination.BETTER_ROLLOUT
        )
    return shooting_diagnosis.no_step(ocp, expansion.lq, measured)
