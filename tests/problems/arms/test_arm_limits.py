"""Default limits of a pole of 1 m and 1 kg, saved values of the settings, and placeholder effort limits."""

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from problems.arms.arm_go_to import Settings, build
from problems.arms.arm_limits import missing_limit_warnings

URDF = """<robot name="pole"><link name="base"/>
<joint name="hinge" type="{kind}"><parent link="base"/><child link="pole"/><axis xyz="0 1 0"/>{limit}</joint>
<link name="pole"><inertial><mass value="1"/><origin xyz="0 0 0.5"/>
<inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="elbow" type="revolute"><parent link="pole"/><child link="tip"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/>
<limit lower="-2" upper="2" effort="{effort}" velocity="3"/></joint>
<link name="tip"><inertial><mass value="0.1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
</robot>"""
LIMITED = '<limit lower="-1" upper="1" effort="50" velocity="5"/>'


def task(tmp_path, kind="revolute", limit=LIMITED, effort="20", **settings):
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(kind=kind, limit=limit, effort=effort))
    own = {"robot": str(path), "frame": "tip", "goal_q": (0.5, 0.5), "horizon": 5} | settings
    return build(Settings(**own), lambda system: make_backend(system, engine="numpy"))


def constraints(task):
    return {c.name: (c.lower, c.upper) for c in task.ocp.phases[0].constraints}


def test_limits_that_hold_by_default_are_resolved_to_the_same_problem(tmp_path):
    left_out = task(tmp_path)
    assert left_out.resolved == {"torque_limits": True, "position_limits": True, "velocity_limits": True}
    asked = task(tmp_path, **left_out.resolved)
    assert asked.resolved == {}
    np.testing.assert_equal(constraints(asked), constraints(left_out))
    np.testing.assert_equal(constraints(left_out)["joint limits"][1][:2], [1.0, 2.0])
    np.testing.assert_equal(asked.ocp.control_bounds, left_out.ocp.control_bounds)
    np.testing.assert_equal(left_out.ocp.control_bounds[1][0], [50.0, 20.0])


def test_a_start_beyond_one_limit_leaves_only_that_setting_unresolved(tmp_path):
    found = task(tmp_path, q0=(1.5, 0.0))
    assert "position_limits" not in found.resolved
    np.testing.assert_equal(constraints(found)["joint limits"][1], [2.0])


def test_limits_of_some_joints_are_not_resolved_to_one_value(tmp_path):
    found = task(tmp_path, kind="continuous", limit="")
    assert found.resolved == {"position_limits": True, "velocity_limits": True}  # only the elbow has limits
    np.testing.assert_equal(found.ocp.control_bounds[1][0], [np.inf, 20.0])


def test_joints_that_leave_the_joint_they_follow_are_reported(tmp_path):
    path, mimic = tmp_path / "gripper.urdf", '<mimic joint="hinge"/></joint>\n<link name="tip">'
    text = URDF.format(kind="revolute", limit=LIMITED, effort="20").replace('</joint>\n<link name="tip">', mimic)
    path.write_text(text)
    (warning,) = task(tmp_path, robot=str(path)).warnings
    assert "elbow (follows hinge)" in warning and "problem.locked_joints" in warning
    assert task(tmp_path, robot=str(path), locked_joints=("elbow",), goal_q=(0.5,)).warnings == ()


@pytest.mark.parametrize(("effort", "expected"), [("20", False), ("900", False), ("1000", True), ("1e6", True)])
def test_placeholder_effort_limits_are_reported(tmp_path, effort, expected):
    """The weight is 10.8 N, the length 1.5 m: 16 N m."""
    warnings = task(tmp_path, effort=effort).warnings
    assert bool(warnings) == expected
    if expected:
        assert warnings[0].startswith(
            f"the effort limits of elbow ({float(effort):g} N m and more) look like placeholders"
        )
        assert "needs 16 N m" in warnings[0]
    assert not task(tmp_path, effort=effort, torque_limits=False).warnings


def test_an_arm_that_cannot_hold_its_start_or_its_goal_is_reported(tmp_path):
    """Gravity turns the pole at angle t with (1 kg * 0.5 m + 0.1 kg * 1 m) g sin t, including its tip."""
    weak = LIMITED.replace('effort="50"', 'effort="3"')
    needed = [0.6 * 9.81 * np.sin(t) for t in (0.5, 0.8)]
    (goal,) = task(tmp_path, limit=weak, goal_q=(0.8, 0.5)).warnings
    assert goal.startswith(
        f"hinge is too weak to hold the arm at rest at its goal: this needs {needed[1]:.3g} N m, and its limit is 3"
    )
    assert not task(tmp_path, limit=weak).warnings and needed[0] < 3.0
    (start,) = task(tmp_path, limit=weak, q0=(0.8, 0.0)).warnings
    assert start.startswith("hinge is too weak to hold the arm at rest at its start")
    assert not task(tmp_path, limit=weak, q0=(0.8, 0.0), torque_limits=False).warnings


def test_omitted_dry_friction_is_reported(tmp_path):
    with_friction = LIMITED + '<dynamics friction="0.5"/>'
    (note,) = task(tmp_path, limit=with_friction).notes
    assert note.startswith("dry friction is ignored for hinge; set friction_velocity")
    assert not task(tmp_path, limit=with_friction, friction_velocity=0.1).notes and not task(tmp_path).notes


def test_missing_limits_of_minimum_time_motions_are_reported(tmp_path):
    limited = task(tmp_path).ocp.model
    free = task(tmp_path, kind="continuous", limit="").ocp.model
    assert missing_limit_warnings(limited) == ()
    velocity, effort = missing_limit_warnings(free)
    assert "no velocity limits for hinge:" in velocity and "no effort limits for hinge:" in effort


def test_a_goal_of_continuous_joints_is_taken_at_the_nearest_turn_unless_turns_are_counted():
    turn = 2.0 * np.pi
    given = {"robot": "double_pendulum", "horizon": 20, "dt": 0.05, "terminal": "constraint"}
    tasks = {
        turns: build(
            Settings(**given, goal_q=(0.3 + turn, 0.2 - turn), turns=turns), lambda system: make_backend(system)
        )
        for turns in ("nearest", "counted")
    }
    goals = {turns: task.ocp.terminal_constraints[0].lower[:2] for turns, task in tasks.items()}
    np.testing.assert_allclose(goals["nearest"], [0.3, 0.2], atol=1e-12)
    np.testing.assert_allclose(goals["counted"], [0.3 + turn, 0.2 - turn], atol=1e-12)
    assert tasks["counted"].ocp.manifold.is_vector_space and not tasks["nearest"].ocp.manifold.is_vector_space
    found = to.solve(tasks["nearest"].ocp, tasks["nearest"].guess)
    assert found.status.success and found.xs[-1, :2] == pytest.approx([0.3, 0.2], abs=1e-6)
