"""Reports of falls and of missed goals of gaits."""

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.transform import Rotation

from experiments.cli.main import main
from problems.legged.gaits.falls import (
    FAR,
    LOW,
    NEAR,
    TILTED,
    falls,
    foothold_misses,
    goal_misses,
    heights,
    tilts,
)
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.config.task import position_of

TIMES = 0.1 * np.arange(6)


@pytest.fixture(scope="module")
def standing():
    """Return HyQ's task, and six states in which the robot stands."""
    task = build_task(load_config("hyq_trot", ["problem.horizon=2"]))
    return task, np.tile(task.ocp.x0, (6, 1))


def turned(xs, axis, degrees):
    """Return states with bases rotated about a world axis."""
    xs = xs.copy()
    extra = Rotation.from_rotvec(np.radians(degrees)[:, None] * np.asarray(axis))
    xs[:, 3:7] = (extra * Rotation.from_quat(xs[:, 3:7])).as_quat()
    return xs


@pytest.mark.parametrize("start", [(0.0, 0.0, 0.0), (0.3, -0.2, 2.0), (np.pi / 2, 0.0, 0.4)])
def test_tilts_are_angles_to_the_initial_vertical(start, standing):
    """Tilts do not depend on the base axes, which may point anywhere in a file."""
    xs = standing[1].copy()
    xs[:, 3:7] = Rotation.from_rotvec(start).as_quat()
    axis = np.array([0.6, 0.8, 0.0])
    degrees = np.array([0.0, 10.0, 59.0, 61.0, 120.0, 180.0])
    np.testing.assert_allclose(tilts(turned(xs, axis, degrees)), degrees, atol=1e-5)
    np.testing.assert_allclose(tilts(turned(xs, [0.0, 0.0, 1.0], degrees)), 0.0, atol=2e-6)


def test_a_robot_that_turns_over_falls(standing):
    task, xs = standing
    model = task.ocp.model
    assert falls(model, task.feet, xs, TIMES) == []
    rolled = turned(xs, [1.0, 0.0, 0.0], np.array([0.0, 30.0, TILTED + 1.0, 90.0, TILTED + 1.0, 0.0]))
    (tilted,) = [message for message in falls(model, task.feet, rolled, TIMES) if "tilted" in message]
    assert "from 0.20 to 0.40 s" in tilted and "(90 deg at 0.30 s)" in tilted


def test_a_robot_that_lies_down_falls_and_one_that_jumps_or_goes_downhill_does_not(standing):
    """The height of the base above the feet decides, since the knees carry it."""
    task, xs = standing
    model, feet = task.ocp.model, task.feet
    jumping = xs.copy()
    jumping[:, 2] += [0.0, 0.5, 1.0, 0.5, -2.0, -3.0]
    assert falls(model, feet, jumping, TIMES) == []
    lying = xs.copy()
    lying[3, 7:19] = [0.0, 1.2, -2.4] * 2 + [0.0, -1.2, 2.4] * 2  # thighs and shanks along the ground
    height = lying[3, 2] - min(position_of(model, foot, lying[3, :19])[2] for foot in feet)
    assert heights(model, feet, lying)[3] == pytest.approx(height)
    fraction = height / heights(model, feet, xs)[0]
    lying[3, 7:19] = [0.0, 1.5, -2.9] * 2 + [0.0, -1.5, 2.9] * 2
    assert fraction > heights(model, feet, lying)[3] / heights(model, feet, xs)[0] < LOW
    (message,) = falls(model, feet, lying, TIMES)
    assert "at 0.30 s its hips are below" in message


def test_an_end_is_missed_by_a_fraction_of_the_path(standing):
    xs = np.zeros((3, 37))
    xs[-1, :3] = 1.5, 0.0, 0.55
    assert goal_misses(0.7, (1.5 + 0.9 * FAR * 1.5, 0.0), 0.572, xs) == []
    assert goal_misses(0.7, (1.5, 0.9 * NEAR), 0.572, xs) == []
    (away,) = goal_misses(0.7, (8.0, 0.0), 0.572, xs)
    assert "6.50 m from its goal, 8.00 m from its start" in away
    (high,) = goal_misses(0.7, (1.5, 0.0), 2.0, xs)
    assert "0.55 m high; the target is 2.00 m" in high


def test_the_goal_of_a_small_robot_is_met_to_a_fraction_of_its_size():
    xs = np.zeros((2, 37))
    (away,) = goal_misses(0.2, (0.03, 0.0), None, xs)
    assert "0.03 m from its goal" in away and goal_misses(0.2, (0.015, 0.0), None, xs) == []


def test_the_command_ends_with_1_where_a_gait_does_not_arrive(tmp_path):
    """Two knots are enough for an optimum, but not for 10 cm."""
    settings = ("problem.horizon=2", "problem.distance=0.1", "problem.easier=[]", "output.plots=false")
    short = [f"--set={key}" for key in settings]
    result = CliRunner().invoke(main, ["solve", "hyq_trot_stepped", *short, "--out", str(tmp_path)])
    assert "goal_missed" in result.output and "m from its goal" in result.output
    assert result.exit_code == 1


@pytest.mark.parametrize(("hips", "step", "near"), [(0.9, 0.3, NEAR), (0.05, 0.0, 0.004), (0.9, -1.5, 0.09)])
def test_a_foothold_is_missed_by_a_fraction_of_the_size_or_of_the_step(hips, step, near):
    assert foothold_misses(hips, step, {"a": 0.99 * near, "b": 0.0}) == []
    (message,) = foothold_misses(hips, step, {"a": 1.01 * near, "b": 0.0})
    assert message.startswith("a ends") and "problem.foot_weights.terminal" in message and "b ends" not in message


def test_a_scheduled_gait_reports_missed_footholds():
    settings = ["engine=numpy", "problem.swing=0.02", "problem.step_length=0.12"]
    task = build_task(load_config("hyq_trot_rigid", settings))
    standing = np.tile(task.ocp.x0, (task.ocp.horizon + 1, 1))
    standing[:, 0] += 0.12
    assert task.missed(standing) == []
    standing[:, 0] -= 0.06  # half a step; the base may miss its goal by more
    (feet,) = [message for message in task.missed(standing) if "foothold" in message]
    assert all(f"{foot} ends 0.06 m" in feet for foot in task.feet)
