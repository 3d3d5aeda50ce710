"""Which numerics run below a shooting solver: NumPy, or compiled code where the problem's backends are on the compiled engine."""

from __future__ import annotations

import logging
from typing import NamedTuple

from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import Evaluator, StageEvaluator

_LOG = logging.getLogger(__name__)


class Numerics(NamedTuple):
    """An evaluator and an LQ solver."""

    evaluator: Evaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """Compiled sweeps where a phase is on the compiled engine, and the whole stage compiled where its kind allows it."""
    engines = {getattr(getattr(phase.dynamics, "backend", None), "engine", "numpy") for phase in ocp.phases}
    if "compiled" not in engines:
        return Numerics(StageEvaluator(ocp, hessian), NumpyLQ())
    from trajopt.lq.compiled_lq import CompiledLQ

    return Numerics(_evaluator(ocp, hessian), CompiledLQ(ocp.manifold.ndx, ocp.nu))


def _evaluator(ocp: OCP, hessian: str) -> Evaluator:
    from dynamics_backends.compiled.interface.sources import TooLong, TraceError
    from trajopt.stage.compiled_evaluation import CompiledEvaluator, serves

    if not serves(ocp):
        return StageEvaluator(ocp, hessian)
    try:
        return CompiledEvaluator(ocp, hessian)
    except (TooLong, TraceError) as reason:
        _LOG.info("the stage is not compiled as a whole: %s", reason)
        return StageEvaluator(ocp, hessian)
