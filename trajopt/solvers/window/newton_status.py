"""The status of a solve by Newton's method, and what is to blame where numbers or the search have failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.methods.method import End, Ended
from trajopt.solvers.options import MethodOptions, SLQOptions
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.stage.evaluation import Evaluator, Expansion


class Blamed(NamedTuple):
    """A problem, states, and the expansion about them that is to blame where numbers or the search have failed."""

    ocp: OCP
    xs: Array
    expansion: Expansion


def status_of(at: Ended, o: SLQOptions | MethodOptions, refused: Callable[[], Blamed]) -> Status:
    """The status of an end; refused: finds what is to blame for a failure."""
    end, n, errors = at.end, at.iterations, termination.Errors(at.kkt, at.gradient, at.defect)
    measured = termination.Measured(n, errors, o.tolerances)
    if end is End.OPTIMAL:
        return termination.converged(measured)
    if end is End.CHEAPER:
        return termination.cost_converged(n, at.change, o.cost_tolerance, at.kkt)
    if end is End.MOST_ITERATIONS:
        return termination.max_iterations(o.max_iterations, measured)
    if end is End.OUT_OF_TIME:
        return termination.time_limit(o.time_limit, measured)
    if end is End.ROUNDED:
        return termination.precision_limit(measured)
    if end is End.INTERRUPTED:
        return termination.interrupted(n)
    ocp, xs, expansion = refused()
    if end is End.NOT_FINITE:
        return termination.non_finite(
            shooting_diagnosis.non_finite_entry(ocp, xs, expansion), termination.BETTER_ROLLOUT
        )
    return shooting_diagnosis.no_step(ocp, expansion.lq, measured)


def is_finite(e: Expansion, lq_solver: LQSolver) -> bool:
    """Whether all numbers of an expansion are."""
    return bool(np.isfinite(e.cost)) and lq_solver.is_finite(e.lq)


def to_blame(ocp: OCP, xs: Array, us: Array, evaluators: Sequence[Evaluator], lq_solver: LQSolver) -> Blamed:
    """The expansion about a trajectory by the first of the evaluators that finds it not to be finite, else that by the last."""
    expansions = [evaluator.expand(xs, us) for evaluator in evaluators]
    return Blamed(ocp, xs, next((e for e in expansions if not is_finite(e, lq_solver)), expansions[-1]))
