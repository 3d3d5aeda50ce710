"""What runs below a shooting solver: the evaluator of a problem, and the solver of its LQ problems."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.stage.engine import lq_solver_for
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.solver_cache import SolverCache


class Numerics(NamedTuple):
    """An evaluator and an LQ solver."""

    evaluator: StageEvaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """The evaluator and the LQ solver of the engines that a problem's backends are on."""
    return Numerics(StageEvaluator(ocp, hessian, "auto"), lq_solver_for(ocp))


def kept_numerics(kept: SolverCache | None, ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """An evaluator of a problem that is kept for the next one, and the LQ solver."""
    return Numerics(kept_evaluator(kept, ocp, hessian), lq_solver_for(ocp))


def kept_evaluator(kept: SolverCache | None, ocp: OCP, hessian: str = "gauss_newton") -> StageEvaluator:
    """The one that is kept, with the values of a problem; else a new one, which is kept where it can go on with another."""
    known: StageEvaluator | None = None if kept is None else kept.prepared.pop(hessian, None)
    if known is None or not known.follow(ocp):
        known = StageEvaluator(ocp, hessian, "auto")
    if kept is not None and known.may_follow:
        kept.prepared[hessian] = known
    return known
