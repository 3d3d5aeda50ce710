"""Evaluators of problems on the engines of their backends."""

from __future__ import annotations

from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.solver_cache import SolverCache


def evaluator_for(ocp: OCP, hessian: str = "gauss_newton") -> StageEvaluator:
    """Return a new evaluator of a problem on the engines of its backends; hessian: of the cost, "gauss_newton" or "exact"."""
    return StageEvaluator(ocp, hessian, "auto")


def cached_evaluator(cache: SolverCache | None, ocp: OCP, hessian: str = "gauss_newton") -> StageEvaluator:
    """Return the cached evaluator of this Hessian, loaded with the values of a problem, or a new one.

    It is new if the cache has none, or one of another structure. hessian: of the cost, "gauss_newton" or "exact". The evaluator
    is stored in the cache if all its stages are fully compiled. cache: None to create a new evaluator.
    """
    known: StageEvaluator | None = None if cache is None else cache.prepared.pop(hessian, None)
    if known is None or not known.follow(ocp):
        known = evaluator_for(ocp, hessian)
    if cache is not None and known.may_follow:
        cache.prepared[hessian] = known
    return known
