"""SQP on robots: the optimum of other solvers, and as few iterations as theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.build import build_task
from experiments.config import load_config
from problems.robots import ERD_PACKAGE, erd_names
from problems.task import position_of
from trajopt import Guess, solve

CONFIGS = Path(__file__).parent.parent / "problems" / "configs"
needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.needs_compiler]  # robots' dynamics are compiled


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
    direct = solve(task.ocp, task.guess, {"barrier_strategy": "adaptive"}, solver="dms")
    solution = solve(task.ocp, task.guess, {"hessian": hessian}, solver="sqp")
    check_optimality(solution)
    assert solution.iterations <= iterations
    assert solution.cost == pytest.approx(direct.cost, rel=1e-8)
    np.testing.assert_allclose(solution.xs, direct.xs, atol=1e-5)
    sphere = load_config(CONFIGS / "ur5_obstacle.toml").problem.obstacle
    at = position_of(task.ocp.model, task.frame, solution.xs[1:, : task.ocp.model.nq])
    assert np.linalg.norm(at - sphere.center, axis=1).min() >= sphere.radius - 1e-6


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_the_large_arm_around_a_sphere(hessian):
    """It touches the sphere with another link than IPOPT's solution does; from near that one, the two agree."""
    pytest.importorskip("cyipopt")
    task = task_of("irb4600_obstacle")
    own = solve(task.ocp, task.guess, {"hessian": hessian}, solver="sqp")
    check_optimality(own)
    assert own.cost == pytest.approx(10.692399, rel=1e-6)
    direct = solve(task.ocp, task.guess, solver="dms")
    near = Guess(direct.xs + 1e-3 * np.sin(np.arange(direct.xs.size)).reshape(direct.xs.shape), direct.us)
    again = solve(task.ocp, near, {"hessian": hessian}, solver="sqp")
    check_optimality(again)
    assert again.cost == pytest.approx(direct.cost, rel=1e-8)


@needs_erd
def test_a_reach_over_many_knots_by_the_exact_hessian():
    task = task_of("ur5_reach")
    reference = solve(task.ocp, task.guess, solver="slq")
    solution = solve(task.ocp, task.guess, {"hessian": "exact", "max_iterations": 20}, solver="sqp")
    check_optimality(solution)
    assert solution.cost == pytest.approx(reference.cost, rel=1e-8)
