"""Benchmark of arms: selection of arms, reproducible tasks, and robustness to failing robots."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.benchmarks.robots import arm_goals
from experiments.benchmarks.robots.benchmark_arms import Job, Row, arm_rows, failures, lowest_costs, read_rows, table
from experiments.benchmarks.tables import write_csv
from trajopt.config.task import position_of

GRIPPER = """<robot name="pinch"><link name="base"/>
<link name="arm"><inertial><mass value="1"/><origin xyz="0.2 0 0"/><inertia ixx="0.1" iyy="0.1" izz="0.1"/></inertial></link>
<link name="left"><inertial><mass value="0.1"/><inertia ixx="0.01" iyy="0.01" izz="0.01"/></inertial></link>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="20" velocity="0.5"/></joint>
<joint name="left_finger" type="prismatic"><parent link="arm"/><child link="left"/><axis xyz="0 0 1"/>
<limit lower="0.01" upper="0.04" effort="5" velocity="1"/></joint>
</robot>"""


@pytest.fixture
def gripper(tmp_path):
    path = tmp_path / "gripper.urdf"
    path.write_text(GRIPPER)
    return str(path)


def test_fingers_are_locked_within_their_limits(gripper):
    arm = arm_goals.load_arm(gripper)
    assert arm.locked == {"left_finger": 0.01}
    assert (arm.frame, arm.model.joint_names) == ("arm", ("shoulder",))
    assert arm_goals.load_arm(f"{gripper}:left").frame == "left"


def test_a_task_depends_on_seed_and_number_alone(gripper):
    arm = arm_goals.load_arm(f"{gripper}:left")
    task, again = (arm_goals.reach(arm, "plain", 3, 7) for _ in range(2))
    assert np.array_equal(task.q0, again.q0) and np.array_equal(task.goal, again.goal)
    assert np.abs(task.q0).max() <= arm_goals.START_RANGE
    assert not np.array_equal(task.goal, arm_goals.reach(arm, "plain", 4, 7).goal)


def test_hard_goals_can_be_reached_within_the_velocity_limits(gripper):
    arm = arm_goals.load_arm(f"{gripper}:left")
    for number in range(20):
        task = arm_goals.reach(arm, "hard", 0, number)
        x, z = task.goal[0], task.goal[2]
        radius = np.linalg.norm(position_of(arm.model, arm.frame, np.zeros(1)))
        angle = np.arctan2(-z, x) + np.arcsin(0.01 / radius)
        assert abs(angle - task.q0[0]) <= 0.5 * 2.0 / arm_goals.PEAK_SPEED + 1e-9


def test_a_robot_that_cannot_be_loaded_gives_rows_with_the_reason():
    job = Job("plain", 0, 2, ("slq", "dms"), None, None)
    rows = list(arm_rows("no/such.urdf", job))
    assert len(rows) == 4 and {r.status for r in rows} == {"error"}
    assert "no URDF file" in rows[0].reason


def _row(solver, number, status="converged", miss=0.5, cost=1.0):
    return Row("plain", 0, "arm", number, solver, status, status == "converged", miss, 5, 10.0, 9.0, cost, "so")


def test_results_are_counted_by_status_code(tmp_path):
    rows = [
        _row("a", 0, miss=3.1, cost=1.5),
        _row("a", 1, "acceptable"),
        _row("a", 2, "goal_missed", 9.0, 0.5),
        _row("b", 0, cost=1.0),
        _row("b", 2, "goal_missed"),
        _row("b", 3, "max_iterations"),
        _row("b", 4, "goal_missed"),
    ]
    best = lowest_costs(rows)
    assert best == {rows[0].task: 1.0}
    write_csv(tmp_path / "rows.csv", rows)
    assert read_rows(tmp_path / "rows.csv") == rows
    found = table(rows, best)
    assert "| a | 3 | 1 | 1 | 1 goal_missed | 3.1 / 3.1 | 5 | 10 | 10 | 9 | 50 / 50 % |" in found
    assert "| b | 4 | 1 | 0 | 2 goal_missed, 1 max_iterations | 0.5 / 0.5 |" in found
    assert failures(rows).splitlines()[1] == "arm goal 2, a: goal_missed, 9 mm from the goal: so"
