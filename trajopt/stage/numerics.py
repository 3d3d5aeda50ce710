"""What runs below a shooting solver: the evaluator of a problem, and the solver of its LQ problems."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.stage.engine import lq_solver_for
from trajopt.stage.evaluation import Evaluator, StageEvaluator


class Numerics(NamedTuple):
    """An evaluator and an LQ solver."""

    evaluator: Evaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """The evaluator and the LQ solver of the engines that a problem's backends are on."""
    return Numerics(StageEvaluator(ocp, hessian, "auto"), lq_solver_for(ocp))
