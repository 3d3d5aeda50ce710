"""Evaluator and LQ solver that a shooting method runs on."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.stage.engine import lq_solver_for
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.solver_cache import SolverCache


class Numerics(NamedTuple):
    """Evaluator of a problem and solver of its LQ problems."""

    evaluator: StageEvaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """Evaluator and LQ solver on the engines of a problem's backends."""
    return Numerics(StageEvaluator(ocp, hessian, "auto"), lq_solver_for(ocp))


def kept_numerics(cache: SolverCache | None, ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """Cached evaluator, loaded with the values of a problem, and the LQ solver."""
    return Numerics(kept_evaluator(cache, ocp, hessian), lq_solver_for(ocp))


def kept_evaluator(cache: SolverCache | None, ocp: OCP, hessian: str = "gauss_newton") -> StageEvaluator:
    """Return the cached evaluator loaded with the values of a problem, or a new one, cached if other problems can reuse it."""
    known: StageEvaluator | None = None if cache is None else cache.prepared.pop(hessian, None)
    if known is None or not known.follow(ocp):
        known = StageEvaluator(ocp, hessian, "auto")
    if cache is not None and known.may_follow:
        cache.prepared[hessian] = known
    return known
