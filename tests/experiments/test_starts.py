"""Solves from several starts: the ends of detours stay, and optima are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.analysis.starts import best, detour, guesses, optima
from experiments.config.build import build_task, solve_task
from experiments.config.config import read_config

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
    moved = detour(task, np.random.default_rng(0)).xs - task.guess.xs
    np.testing.assert_allclose(moved[[0, -1]], 0.0, atol=1e-12)
    assert np.abs(moved[7, :2]).max() > 0.05
    times = task.ocp.times
    slope = np.gradient(moved[:, 0], times)
    np.testing.assert_allclose(slope[3:-3], moved[3:-3, 2], atol=0.1 * np.abs(moved[:, 2]).max())


def test_distinct_optima_are_told_apart_and_failures_left_out():
    config = read_config(CONFIG)
    task = build_task(config)
    solution = solve_task(config, task)
    assert solution.status.success

    def numbered(number, **changes):
        return replace(solution, meta={"start": number}, **changes)

    other = numbered(1, cost=2.0 * solution.cost, xs=solution.xs + 0.5)
    failed = numbered(3, cost=0.0, status=replace(solution.status, code="max_iterations"))
    found = [other, numbered(0), numbered(2, cost=solution.cost * (1 + 1e-9)), failed]
    assert [o.starts for o in optima(found)] == [(0, 2), (1,)]
    assert best(found).cost == solution.cost
    assert best([failed]) is failed
