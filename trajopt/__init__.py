"""Optimal-control problems, their expansions, and the solvers.

    ocp = OCP.single_phase(SampledSystem(make_backend(system, "forward_ad")), x0, horizon, dt, running, terminal)
    solution = solve(ocp, solver="fddp", callback=ConsoleTable())

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "problem.constraints": (
        "Composition",
        "Constraint",
        "bounded",
        "joint_limits",
        "link_points",
        "residual_constraint",
        "self_collision",
        "softened",
        "sphere_obstacle",
        "state_bounds",
        "tube",
        "velocity_limits",
    ),
    "stage.evaluation": ("Evaluator", "Shooting", "StageEvaluator"),
    "problem.expansion": ("StageExpansion", "quadratize"),
    "problem.impact_stage": ("ImpactStage",),
    "guesses.guesses": (
        "Guess",
        "constant_guess",
        "feedback_guess",
        "interpolated_guess",
        "quasi_static_guess",
        "resampled_guess",
    ),
    "guesses.inverse_kinematics": ("inverse_kinematics",),
    "guesses.minimum_jerk": ("minimum_jerk_guess",),
    "step.integrators": ("SCHEMES",),
    "lq.lq": ("LQProblem", "solve_riccati"),
    "replanning.measurements": ("Measurement", "MovingObject", "Sensor"),
    "replanning.loop": ("Planner", "Plant", "ReplanningLoop", "Timing"),
    "problem.ocp": ("DiscreteMap", "LinearizedStep", "OCP", "Phase"),
    "solvers.options": ("AutoOptions", "DDPOptions", "SLQOptions", "SQPOptions"),
    "replanning.plan": ("Plan", "Receding", "Shrinking", "warm_start"),
    "replanning.planners": ("Converging",),
    "replanning.plants": ("Push", "SampledPlant"),
    "replanning.real_time_slq": ("RealTimeSLQ",),
    "replanning.real_time_sqp": ("RealTimeSQP",),
    "results.records": ("IterationRecord",),
    "results.report": ("ConsoleTable",),
    "replanning.run_log": ("EventKind", "RunLog"),
    "step.sensitivities": ("SampledSystem",),
    "replanning.simulator": ("Simulator",),
    "results.solution": ("Solution", "SolutionFileError"),
    "solvers.registry": ("solve", "solver_names", "solver_options"),
    "solvers.sqp.sqp": ("solve_nlp",),
    "results.status": ("Status", "StatusCode"),
    "problem.terms": (
        "CostTerm",
        "center_of_mass_cost",
        "control_cost",
        "frame_placement_cost",
        "frame_position_cost",
        "frame_velocity_cost",
        "joint_limit_cost",
        "residual_cost",
        "state_cost",
    ),
    "validation.broken_limits": ("BrokenLimit", "broken_limits"),
    "validation.validation": ("Finding", "InvalidProblem", "validate"),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
