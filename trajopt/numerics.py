"""Which numerics run below a shooting solver: NumPy, or compiled code where the problem's backends are on the compiled engine."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.evaluation import Evaluator, StageEvaluator
from trajopt.lq_solver import LQSolver, NumpyLQ
from trajopt.ocp import OCP


class Numerics(NamedTuple):
    """An evaluator and an LQ solver."""

    evaluator: Evaluator
    lq_solver: LQSolver


def numerics_for(ocp: OCP, hessian: str = "gauss_newton") -> Numerics:
    """Compiled sweeps where a phase is on the compiled engine, and the whole stage compiled where its kind allows it."""
    engines = {getattr(getattr(phase.dynamics, "backend", None), "engine", "numpy") for phase in ocp.phases}
    if "compiled" not in engines:
        return Numerics(StageEvaluator(ocp, hessian), NumpyLQ())
    from trajopt.compiled_evaluation import CompiledEvaluator, serves
    from trajopt.compiled_lq import CompiledLQ

    evaluator = CompiledEvaluator(ocp, hessian) if serves(ocp) else StageEvaluator(ocp, hessian)
    return Numerics(evaluator, CompiledLQ(ocp.manifold.ndx, ocp.nu))
