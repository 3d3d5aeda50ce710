"""Guesses that step in place."""

import numpy as np
import pytest

import trajopt as to
from problems.legged.gaits.falls import falls, heights
from problems.legged.gaits.quadruped_gait import Marching, Settings
from problems.legged.robot.walker import joint_gains
from problems.robots import ERD_PACKAGE, erd_names, load_robot, robot_path
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.config.task import SettingsError

JOINTS = tuple(np.tile([-0.2, 0.723, -1.458], 2)) + tuple(np.tile([-0.2, -0.723, 1.458], 2))
DRAWN = tuple(np.tile([-0.2, 1.023, -2.058], 2)) + tuple(np.tile([-0.2, -1.023, 2.058], 2))


def lifted(gait, times):
    """Return the lift of the legs (N, legs, 3)."""
    standing = Settings(robot="hyq", joints=JOINTS).stand()
    offsets = Marching(gait=gait, period=0.8, joints=DRAWN).lifted(np.array(times), standing)
    return offsets.reshape(len(times), 4, 3)


def test_diagonal_legs_are_drawn_up_in_turn():
    """Legs are left front, right front, left hind, right hind."""
    at = lifted("trot", [0.0, 0.2, 0.4, 0.6, 0.8 / 12, 1.0])
    away = np.subtract(DRAWN, JOINTS).reshape(4, 3)
    np.testing.assert_allclose(at[[0, 2]], 0.0, atol=1e-12)
    for row, legs, fraction in ((1, [1, 2], 1.0), (3, [0, 3], 1.0), (4, [1, 2], 0.5), (5, [1, 2], 1.0)):
        expected = np.zeros((4, 3))
        expected[legs] = fraction * away[legs]
        np.testing.assert_allclose(at[row], expected, atol=1e-12)


def test_a_walk_draws_up_one_leg_at_a_time():
    at = np.abs(lifted("walk", 0.8 * (np.arange(4) + 0.5) / 4)).max(axis=2) > 0.1
    assert at.tolist() == np.eye(4, dtype=bool)[[2, 0, 3, 1]].tolist()


@pytest.mark.parametrize("wrong", [{"gait": "hop"}, {"period": 0.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Marching(**{"period": 0.8, "joints": DRAWN} | wrong)


@pytest.mark.parametrize("key", ["guess_steps", "guess_push"])
def test_postures_of_the_guess_are_checked_before_it_is_computed(key):
    """`trajopt validate` reports the posture before a guess is computed."""
    given = {"guess_steps": ["period=0.8"], "guess_push": ["start=0.0", "end=0.1"]}[key]
    overrides = [f"problem.{key}.{text}" for text in (*given, f"joints={[0.1] * 11}")]
    with pytest.raises(ValueError, match=f"{key}.joints has 11 entries; hyq has 12 joints"):
        build_task(load_config("hyq_trot", overrides))


def test_a_guess_that_diverges_is_reported():
    long = ["problem.dt=0.1", "problem.horizon=25", "problem.substeps=1"]
    task = build_task(load_config("hyq_trot", long))
    with pytest.raises(ValueError, match=r"diverges at t = .*: reduce problem.dt = 0.1 s, increase"):
        task.guess  # noqa: B018


def test_the_joint_controller_gives_the_guess_if_the_robot_stays_upright():
    task = build_task(load_config("hyq_trot_stepped", ["problem.horizon=20"]))
    first = task.easier[0]
    expected = to.feedback_guess(first, joint_gains(np.ones(12), 100.0, 1.0))
    np.testing.assert_array_equal(task.guess.xs, expected.xs)


def test_the_guess_does_not_depend_on_the_frame_of_the_base(tmp_path):
    """HyQ sinks on soft springs, and a frame 0.55 m below its hips then lies under the ground."""
    text = robot_path("hyq").read_text(encoding="utf-8")
    root = load_robot("hyq", base="floating").body_names[0]
    floor = f"<link name='floor'/><joint name='up' type='fixed'><parent link='floor'/><child link='{root}'/>"
    (tmp_path / "low.urdf").write_text(
        text.replace("</robot>", floor + "<origin xyz='0 0 0.55'/></joint></robot>"), encoding="utf-8"
    )
    overrides = ["problem.horizon=20", f'problem.robot="{tmp_path / "low.urdf"}"', "problem.height=0.022"]
    task = build_task(load_config("hyq_trot_stepped", overrides))
    expected = to.feedback_guess(task.easier[0], joint_gains(np.ones(12), 100.0, 1.0))
    np.testing.assert_array_equal(task.guess.xs, expected.xs)
    assert task.guess.xs[:, 2].min() < -0.1


@pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
@pytest.mark.parametrize("robot", ["erd:go2", "erd:anymal-kinova"])
def test_the_regulator_gives_the_guess_if_the_robot_tips_over(robot):
    """Go2 turns over within a second, and ANYmal with an arm diverges after ten steps."""
    task = build_task(load_config("hyq_trot_stepped", [f'problem.robot="{robot}"']))
    xs, model, feet = task.guess.xs, task.ocp.model, task.feet
    assert falls(model, feet, xs, task.ocp.times) == []
    height = heights(model, feet, xs)
    assert height.min() > 0.7 * height[0]
