"""How a solve by Newton's loop ends, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers.methods.newton import End, Ended
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import verdicts
from trajopt.stage.evaluation import Evaluator, Expansion


class Blamed(NamedTuple):
    """A problem, states, and the expansion about them that is to blame where numbers or the search have failed."""

    ocp: OCP
    xs: Array
    expansion: Expansion


def verdict(at: Ended, o: SLQOptions, refused: Callable[[], Blamed]) -> Status:
    """The status of an end; refused: finds what is to blame for a failure."""
    end, iterations, gradient, defect, kkt, change = at
    if end is End.OPTIMAL:
        return verdicts.optimal(iterations, kkt, gradient, defect)
    if end is End.CHEAPER:
        return verdicts.cost_converged(iterations, change, o, kkt)
    if end is End.MOST_ITERATIONS:
        return verdicts.max_iterations(gradient, defect, o, kkt)
    if end is End.OUT_OF_TIME:
        return verdicts.time_limit(iterations, gradient, defect, o)
    if end is End.ROUNDED:
        return verdicts.precision_limit(gradient, defect, o, kkt)
    if end is End.INTERRUPTED:
        return verdicts.interrupted(iterations)
    ocp, xs, expansion = refused()
    if end is End.NOT_FINITE:
        return verdicts.non_finite(ocp, xs, expansion)
    return verdicts.line_search_failed(iterations + 1, gradient, o, ocp, expansion.lq)


def is_finite(e: Expansion, lq_solver: LQSolver) -> bool:
    """Whether all numbers of an expansion are."""
    return bool(np.isfinite(e.cost)) and lq_solver.is_finite(e.lq)


def to_blame(ocp: OCP, xs: Array, us: Array, evaluators: Sequence[Evaluator], lq_solver: LQSolver) -> Blamed:
    """The expansion about a trajectory by the first of the evaluators that finds it not to be finite, else that by the last."""
    expansions = [evaluator.expand(xs, us) for evaluator in evaluators]
    return Blamed(ocp, xs, next((e for e in expansions if not is_finite(e, lq_solver)), expansions[-1]))
