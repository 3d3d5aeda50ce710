"""Multi-start solves: detours keep the end states, optima are distinguished, and the command reports them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from experiments.analysis.starts import guesses
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import read_config
from trajopt.solvers.batch.multi_start import optima

CONFIG = {
    "engine": "numpy",
    "problem": {
        "name": "arm_go_to",
        "robot": "double_pendulum",
        "frame": "tip",
        "goal_position": [1.2, 0.0, -1.0],
        "horizon": 15,
        "dt": 0.04,
        "weights": {"control": 1e-2},
    },
    "solver": "slq",
}


def test_starts_are_the_guess_then_others_then_detours_with_the_same_ends():
    task = build_task(read_config(CONFIG))
    listed = list(guesses(task, 5, seed=1))
    assert len(listed) == 5 and listed[0] is task.guess
    moved = to.detour(task.ocp, task.guess, np.random.default_rng(0)).xs - task.guess.xs
    np.testing.assert_allclose(moved[[0, -1]], 0.0, atol=1e-12)
    assert np.abs(moved[7, :2]).max() > 0.05
    times = task.ocp.times
    slope = np.gradient(moved[:, 0], times)
    np.testing.assert_allclose(slope[3:-3], moved[3:-3, 2], atol=0.1 * np.abs(moved[:, 2]).max())


def test_distinct_optima_are_distinguished_and_failures_omitted():
    config = read_config(CONFIG)
    task = build_task(config)
    solution = solve_task(config, task)
    assert solution.status.success
    xs = np.stack([solution.xs + shift for shift in (0.0, 0.5, 0.0, 0.0)])
    cost = solution.cost * np.array([1.0, 2.0, 1.0 + 1e-9, 0.0])
    status = (*[solution.status] * 3, replace(solution.status, code="max_iterations"))
    found = to.BatchSolution(xs, np.stack([solution.us] * 4), cost, np.ones(4, int), status, task.ocp.times[None])
    assert [o.starts for o in optima(found)] == [(0, 2), (1,)]
    result = to.MultiStart(optima(found), found)
    assert result.best.cost == solution.cost and result.best_start == 0
    assert "2 optima from 3 of 4 starts" in repr(result) and "2 times" in repr(result)
    assert to.MultiStart((), found).best.cost == solution.cost


def test_multi_start_finds_paths_on_both_sides():
    """A point passes an obstacle on either side with equal cost; different starts find both sides."""
    cart = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
    step = to.SampledSystem(to.make_backend(cart, "forward_ad", engine="numpy"), "semi_implicit_euler")
    bump = to.residual_cost(
        "bump", lambda x, u, t, p: [to.exp(-4.0 * (x[0] * x[0] + x[1] * x[1]))], cart.manifold, 1, 200.0
    )
    goal = to.state_cost(cart.manifold, [1.0, 0.0, 0.0, 0.0], 1e3)
    ocp = to.OCP.single_phase(step, [-1.0, 0.0, 0.0, 0.0], 20, 0.1, [to.control_cost(2, weight=0.1), bump], [goal])
    found = to.multi_start(ocp, 8, solver="ddp", guess=to.interpolated_guess(ocp, [1.0, 0.0, 0.0, 0.0]), seed=2)
    sides = {np.sign(o.solution.xs[10, 1]): o for o in found.optima if abs(o.solution.xs[10, 1]) > 0.1}
    assert set(sides) == {-1.0, 1.0}
    assert sides[-1.0].solution.cost == pytest.approx(sides[1.0].solution.cost, rel=1e-6)
    assert sum(o.times_found for o in found.optima) == found.solutions.success.sum()
    again = to.multi_start(ocp, 8, solver="ddp", guess=to.interpolated_guess(ocp, [1.0, 0.0, 0.0, 0.0]), seed=2)
    assert [o.starts for o in again.optima] == [o.starts for o in found.optima]
    with pytest.raises(ValueError, match="at least 1"):
        to.multi_start(ocp, 0)
