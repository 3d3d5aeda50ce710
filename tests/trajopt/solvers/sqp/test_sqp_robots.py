"""SQP on robots: the optimum of other solvers, and as few iterations as theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from slq_solve import solve

from problems.robots import ERD_PACKAGE, erd_names
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.config.task import position_of

CONFIGS = Path(__file__).parents[4] / "problems" / "configs"
needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
pytestmark = pytest.mark.slow


def task_of(name):
    return build_task(load_config(CONFIGS / f"{name}.toml"))


def check_optimality(solution):
    assert solution.status.success, solution.status
    assert solution.history[-1].gradient <= 1e-6
    assert solution.history[-1].constraint_violation <= 1e-6


@needs_erd
@pytest.mark.parametrize(("hessian", "iterations"), [("exact", 14), ("gauss_newton", 60)])
def test_the_optimum_of_ipopt_around_a_sphere(hessian, iterations):
    """IPOPT takes 14 iterations with the exact Hessian, and does not find this optimum in 60 with Gauss and Newton's."""
    pytest.importorskip("cyipopt")
    task = task_of("ur5_obstacle")
    direct = solve(task.ocp, task.guess, {"barrier_strategy": "adaptive"}, solver="dms", check=False)
    solution = solve(task.ocp, task.guess, {"hessian": hessian}, solver="sqp", check=False)  # at the knots alone
    check_optimality(solution)
    assert solution.iterations <= iterations
    assert solution.cost == pytest.approx(direct.cost, rel=1e-8)
    np.testing.assert_allclose(solution.xs, direct.xs, atol=1e-5)
    sphere = load_config(CONFIGS / "ur5_obstacle.toml").problem.obstacle
    at = position_of(task.ocp.model, task.frame, solution.xs[1:, : task.ocp.model.nq])
    assert np.linalg.norm(at - sphere.center, axis=1).min() >= sphere.radius - 1e-6


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("sqp", {"hessian": "exact"}),
        ("sqp", {"hessian": "gauss_newton"}),
        ("ddp", {"max_iterations": 300}),
        ("slq", {"max_iterations": 300}),
    ],
)
def test_one_optimum_of_the_large_arm_around_a_sphere(solver, options):
    """Two minima mirror each other, by which knots lie beside the sphere; their costs differ by 4.6e-6."""
    pytest.importorskip("cyipopt")
    task = task_of("irb4600_obstacle")
    direct = solve(task.ocp, task.guess, solver="dms", check=False)  # at the knots alone
    solution = solve(task.ocp, task.guess, options, solver=solver, check=False)
    check_optimality(direct)
    check_optimality(solution)
    assert solution.cost == pytest.approx(direct.cost, rel=1e-5)
    assert solution.iterations <= (20 if solver == "sqp" else 150)
    (sphere,) = (c for c in task.ocp.phases[0].constraints if c.name == "obstacle")
    for found in (direct, solution):
        batch = found.xs.T, np.zeros((0, len(found.xs))), 0.0
        values = {key: value[:, None] for key, value in sphere.parameters.items()}
        clearance = np.asarray(sphere.residual(*batch, values))  # (distance^2 - radius^2) / (2 radius)
        assert np.sqrt(0.25**2 + 0.5 * clearance).min() >= 0.25 - 1e-6


@needs_erd
def test_a_reach_over_many_knots_by_the_exact_hessian():
    task = task_of("ur5_reach")
    reference = solve(task.ocp, task.guess, solver="slq")
    solution = solve(task.ocp, task.guess, {"hessian": "exact", "max_iterations": 20}, solver="sqp")
    check_optimality(solution)
    assert solution.cost == pytest.approx(reference.cost, rel=1e-8)
