"""What runs below a shooting solver: the evaluator of a problem, and the solver of its LQ problems."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.problem.ocp import OCP
from trajopt.stage.engine import lq_solver_for
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.kept import Kept


class Numerics(NamedTuple):
    """An evaluator and an LQ solver."""

    evaluator: StageEvaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """The evaluator and the LQ solver of the engines that a problem's backends are on."""
    return Numerics(StageEvaluator(ocp, hessian, "auto"), lq_solver_for(ocp))


def kept_numerics(kept: Kept | None, ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """Those that are kept, with the values of a problem; else new ones, which are kept where they can go on with another."""
    if kept is None:
        return numerics_for(ocp, hessian)
    known: Numerics | None = kept.prepared.pop(hessian, None)
    if known is None or not known.evaluator.follow(ocp):
        known = numerics_for(ocp, hessian)
    if known.evaluator.may_follow and not isinstance(known.lq_solver, NumpyLQ):
        kept.prepared[hessian] = known
    return known
