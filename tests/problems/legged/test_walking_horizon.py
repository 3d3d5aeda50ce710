"""Walking horizon: ground estimate from standing feet, and integral speed correction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from problems.legged.contact.ground_estimate import plane_through
from problems.legged.robot.base_state import quaternion
from problems.legged.robot.walker import LeggedRobot
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.replanning.plan import Following

CONFIG = Path(__file__).parents[3] / "problems/configs/hyq_free_walk.toml"
SLOPE = np.array([0.08, -0.05])


@pytest.fixture(scope="module")
def one():
    return build_task(load_config(CONFIG, ["engine=numpy", "problem.horizon=3"]))


def standing_on_a_slope(x0, height):
    """Return the state of a robot rotated with the ground about the origin, z = height + SLOPE . (x, y)."""
    angle = np.arctan(np.linalg.norm(SLOPE))
    axis = np.array([SLOPE[1], -SLOPE[0], 0.0]) / np.linalg.norm(SLOPE)
    x = x0.copy()
    half = 0.5 * angle
    x[3:7] = [*(np.sin(half) * axis), np.cos(half)]
    up = np.array([-SLOPE[0], -SLOPE[1], 1.0]) * np.cos(angle)
    x[:3] = x0[2] * up + [0.0, 0.0, height]
    return x


def test_feet_on_a_plane_define_it():
    rng = np.random.default_rng(0)
    at = rng.standard_normal((4, 2))
    found = plane_through(np.column_stack([at, 0.3 + at @ SLOPE]))
    assert found.height == pytest.approx(0.3)
    np.testing.assert_allclose(found.slope, SLOPE, atol=1e-12)
    line = np.array(
        [[0.0, 0.1, 0.0], [0.0, -0.1, 0.0], [0.0, 0.0, 0.0]]
    )  # feet in a lateral line give no forward slope
    np.testing.assert_allclose(plane_through(line).slope, 0.0, atol=1e-12)


def test_the_ground_of_plans_becomes_that_of_the_feet(one):
    horizon = one.following(one.ocp)
    assert isinstance(horizon, Following)
    sunk = (
        one.ocp.x0[2] - LeggedRobot(robot="hyq").stand().q[2]
    )  # penetration of resting feet in the plan's soft ground
    x = standing_on_a_slope(one.ocp.x0, 0.2)
    for k in range(1, 60):
        horizon.observe(0.05 * k, x)
        problem = horizon(0.05 * k)
    p = problem.phases[0].parameters
    np.testing.assert_allclose(p["ground_slope"][0], SLOPE, atol=1e-3)
    assert p["ground_height"][0, 0] == pytest.approx(0.2 + sunk, abs=2e-3)
    slip, base = (next(t for t in problem.terms() if t.name == name) for name in ("slip", "base"))
    np.testing.assert_allclose(np.ravel(slip.parameters["ground"])[:3], [p["ground_height"][0, 0], *SLOPE], atol=1e-3)
    attitude = np.ravel(base.parameters["attitude"])[:3]
    np.testing.assert_allclose(attitude[:2], [np.arctan(SLOPE[1]), -np.arctan(SLOPE[0])], atol=1e-3)
    speed = np.atleast_2d(base.parameters["velocity"])[0]
    assert speed[2] == pytest.approx(SLOPE[0] * speed[0], rel=1e-2)


def test_feet_in_the_air_do_not_change_the_ground_estimate(one):
    horizon = one.following(one.ocp)
    x = one.ocp.x0.copy()
    x[2] += 0.1
    x[len(x) // 2 + 1] = 1.0  # all feet move forward
    for k in range(1, 40):
        horizon.observe(0.05 * k, x)
        problem = horizon(0.05 * k)
    assert abs(problem.phases[0].parameters["ground_height"][0, 0]) < 1e-6


def test_a_commanded_velocity_turns_with_the_heading(one):
    """The reference of the base moves to the left of a heading that turns, also over more than half a turn."""
    horizon, turn, x = one.following(one.ocp), 0.5, one.ocp.x0
    horizon.command(0.0, 0.2, turn)
    for k in range(101):
        horizon.observe(50.0 + 0.1 * k, x)
        problem = horizon(50.0 + 0.1 * k)
    base = next(t for t in problem.phases[0].terms if t.name == "base")
    headings = 10.0 * turn + turn * problem.times[:-1]
    speed = 0.2 + horizon.lacking
    np.testing.assert_allclose(base.parameters["attitude"][:, 2], headings, atol=1e-9)
    left = speed * np.column_stack([-np.sin(headings), np.cos(headings)])
    np.testing.assert_allclose(base.parameters["velocity"][:, :2], left, atol=1e-9)
    assert horizon.lacking > 0.0  # the robot stands still


def test_the_yaw_error_is_that_within_half_a_turn(one):
    base = next(t for t in one.ocp.terms() if t.name == "base")
    x = one.ocp.x0.copy()
    x[3:7] = quaternion((0.1, -0.2, -3.0))
    values = [
        base.residual(x, np.zeros(0), 0.0, {**base.parameters, "attitude": np.array([0.1, -0.2, yaw])})
        for yaw in (3.0, -3.1)
    ]
    np.testing.assert_allclose([v[:3] for v in values], [[0.0, 0.0, 2.0 * np.pi - 6.0], [0.0, 0.0, 0.1]], atol=1e-9)


def test_missing_speed_is_corrected_within_bounds(one):
    horizon = one.following(one.ocp)
    asked = []
    for k in range(1, 100):
        horizon.observe(0.1 * k, one.ocp.x0)  # the robot stands still
        base = next(t for t in horizon(0.1 * k).terms() if t.name == "base")
        asked.append(np.ravel(base.parameters["velocity"])[0])
    assert asked[1] > 0.4
    assert (np.diff(asked) >= 0).all()
    assert asked[-1] == asked[-20] < 0.4 + 0.15 * np.sqrt(9.81 * 0.7)
