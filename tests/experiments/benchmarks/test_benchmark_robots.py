"""Benchmark of robots: an MJCF arm passes all tests, and a broken file gives a row with its reason."""

from __future__ import annotations

import numpy as np
import pytest
from mjcf_robots import ARM, quadruped

from experiments.benchmarks.robots.arm_goals import load_arm
from experiments.benchmarks.robots.benchmark_robots import derivative_errors, load, robot_row, table

pytest.importorskip("mujoco")


@pytest.fixture
def arm(tmp_path):
    file = tmp_path / "arm.xml"
    file.write_text(ARM, encoding="utf-8")
    return str(file)


def test_an_arm_reaches_from_its_file_alone(arm):
    row = robot_row(arm)
    assert row.solved and "reach of lower_tip by 2 joints converged" in row.tasks  # the third has no actuator
    assert max(row.first, row.second, row.mujoco) < 1e-10
    assert table([row]).splitlines()[-1].count("|") == 10


def test_robots_that_cannot_be_loaded_give_a_row(tmp_path):
    file = tmp_path / "bad.xml"
    file.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>", encoding="utf-8")
    row = robot_row(str(file))
    assert not row.solved and "MJCFError" in row.reason and np.isnan(row.first)


def test_undriven_joints_are_locked(arm):
    assert set(load_arm(arm, rigid=("bend",)).locked) == {"bend"}
    with pytest.raises(ValueError, match="no joint moves a link"):
        load_arm(arm, rigid=("turn", "lift", "bend"))


def test_derivatives_of_a_floating_base(tmp_path):
    file = tmp_path / "quadruped.xml"
    file.write_text(quadruped(), encoding="utf-8")
    assert max(derivative_errors(load(str(file)), 0)) < 1e-10
