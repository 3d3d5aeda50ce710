"""Reports of missed goals, for a pole of 1 m whose tip is at (sin q, 0, cos q)."""

import math
import re

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from problems.arms.arm_go_to import Settings, Weights, build
from problems.arms.obstacle import Obstacle
from trajopt.config.task import SettingsError

URDF = """<robot name="pole"><link name="base"/>
<joint name="hinge" type="revolute"><parent link="base"/><child link="pole"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" effort="50" velocity="{speed}"/></joint>
<link name="pole"><inertial><mass value="1"/><origin xyz="0 0 0.5"/>
<inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="end" type="fixed"><parent link="pole"/><child link="tip"/><origin xyz="0 0 1"/></joint><link name="tip"/></robot>"""
AT = (math.sin(1.0), 0.0, math.cos(1.0))
KNOTS, DT = 20, 0.05


def task(tmp_path, speed=5.0, **settings):
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(speed=speed))
    own = {"robot": str(path), "frame": "tip", "horizon": KNOTS, "dt": DT} | settings
    return build(Settings(**own), lambda system: make_backend(system, engine="numpy"))


def motion(end):
    """States from rest at 0 to rest at ``end`` [rad]."""
    return np.c_[np.linspace(0.0, end, KNOTS + 1), np.zeros(KNOTS + 1)]


def chord(angle):
    """Return the distance [mm] of two tip positions that are an angle [rad] apart."""
    return 2e3 * math.sin(0.5 * angle)


@pytest.mark.parametrize(("short", "missed"), [(0.0, False), (0.018, False), (0.022, True), (0.5, True)])
def test_a_frame_misses_its_goal_beyond_two_percent_of_its_path(tmp_path, short, missed):
    messages = task(tmp_path, goal_position=AT).missed(motion(1.0 - short))
    assert bool(messages) == missed
    if missed:
        assert messages[0].startswith(
            f"tip ends {chord(short):.3g} mm from its goal, which is within its reach: allow more time"
        )


@pytest.mark.parametrize("goal", [{"goal_position": AT}, {"goal_q": (1.0,)}])
def test_a_cost_of_holding_the_arm_above_that_of_the_goal_is_the_reason(tmp_path, goal):
    """The cost of holding (4.9 sin 1 N m)^2 for 1 s is 8 to 9 times that of the goal, with the weight 470."""
    (message,) = task(tmp_path, **goal, weights=Weights(control=470.0)).missed(motion(0.5))
    assert re.search(r": holding the arm there costs \d\.?\d* times as much as missing the goal: ", message)
    assert "divide weights.control by 1e3, or make the goal a constraint" in message
    for other in (
        {"weights": Weights(control=5.0)},
        {"weights": Weights(control=470.0), "control_reference": "gravity"},
    ):
        (message,) = task(tmp_path, goal_q=(1.0,), **other).missed(motion(0.5))
        assert "allow more time" in message


def test_a_goal_beyond_reach_is_missed_wherever_the_motion_ends(tmp_path):
    (message,) = task(tmp_path, goal_position=tuple(1.5 * x for x in AT)).missed(motion(1.0))
    assert message == "tip ends 500 mm from its goal: the goal is 500 mm beyond the reach of tip"


def test_a_goal_in_an_obstacle_is_reported_as_the_reason(tmp_path):
    blocked = {"goal_position": AT, "obstacle": Obstacle(center=AT, radius=0.05)}
    (message,) = task(tmp_path, **blocked).missed(motion(0.9))
    assert message.startswith("tip ends 100 mm") and "collide with an obstacle" in message and "--starts" not in message


def test_an_obstacle_before_the_goal_is_a_possible_reason(tmp_path):
    """A sphere around the tip at 0.5 rad, which the pole cannot pass."""
    ahead = Obstacle(center=(math.sin(0.5), 0.0, math.cos(0.5)), radius=0.1)
    for obstacle in (ahead, None):
        (message,) = task(tmp_path, goal_position=AT, obstacle=obstacle).missed(motion(0.4))
        assert ("check that the obstacles leave a path to the goal" in message) == (obstacle is not None)


@pytest.mark.parametrize(("short", "missed"), [(0.015, False), (0.025, True)])
def test_a_goal_of_joints_is_missed_by_its_worst_joint(tmp_path, short, missed):
    """On a path of 1 rad, an error of 0.02 rad is within tolerance."""
    messages = task(tmp_path, goal_q=(1.0,)).missed(motion(1.0 - short))
    assert messages == (
        [] if not missed else [f"hinge ends {short:.2g} rad from its goal: {messages[0].partition(': ')[2]}"]
    )


SLIDING = """<robot name="crane"><link name="base"/>
<joint name="turn" type="revolute"><parent link="base"/><child link="boom"/><axis xyz="0 0 1"/>
<limit lower="-4" upper="4" effort="50" velocity="5"/></joint>
<link name="boom"><inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="slide" type="prismatic"><parent link="boom"/><child link="tip"/><axis xyz="1 0 0"/>
<limit lower="0" upper="1" effort="50" velocity="5"/></joint>
<link name="tip"><inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
</robot>"""


@pytest.mark.parametrize(("short", "missed"), [(0.004, False), (0.006, True), (0.05, True)])
def test_a_joint_that_slides_is_judged_by_meters(tmp_path, short, missed):
    """A path of 3 rad and 0.1 m allows errors of 60 mrad and 5 mm."""
    path = tmp_path / "crane.urdf"
    path.write_text(SLIDING)
    settings = Settings(robot=str(path), frame="tip", horizon=KNOTS, dt=DT, goal_q=(3.0, 0.1))
    way = np.linspace([0.0, 0.0], [2.95, 0.1 - short], KNOTS + 1)
    messages = build(settings, lambda system: make_backend(system, engine="numpy")).missed(
        np.c_[way, np.zeros_like(way)]
    )
    assert bool(messages) == missed
    if missed:
        assert messages[0].startswith(f"slide ends {short:.2g} m from its goal")


def test_an_orientation_that_is_missed_is_reported_by_its_angle(tmp_path):
    goal = {"goal_position": AT, "goal_rotation": (0.0, 0.7, 0.0)}  # the tip reaches the goal only at a pitch of 1 rad
    (message,) = task(tmp_path, **goal).missed(motion(1.0))
    assert message.startswith("tip ends 0.3 rad from its goal") and "not its orientation" in message


PITCH = {"matrix": rpy_matrix((0.0, 1.0, 0.0)), "quaternion": (0.0, math.sin(0.5), 0.0, math.cos(0.5))}
PITCH |= {"angles": (0.0, 1.0, 0.0), "matrix": tuple(map(tuple, PITCH["matrix"].tolist()))}


@pytest.mark.parametrize("form", PITCH)
def test_an_orientation_is_given_in_any_form(tmp_path, form):
    made = task(tmp_path, goal_position=AT, goal_rotation=PITCH[form])
    assert made.missed(motion(1.0)) == [] and made.warnings == ()
    angle = re.fullmatch(r"tip ends (\S+) rad from its goal orientation", made.outcome(motion(1.0)[-1])[-1])
    assert angle is not None and float(angle[1]) < 1e-15


def test_the_orientation_at_the_start_is_a_goal(tmp_path):
    made = task(tmp_path, q0=(0.5,), goal_position=(math.sin(0.5), 0.0, math.cos(0.5)), goal_rotation="q0")
    assert made.missed(motion(0.5)) == [] and made.missed(motion(0.0)) != []


def test_a_quaternion_in_the_other_order_is_reported(tmp_path):
    x, y, z, w = PITCH["quaternion"]
    (message,) = task(tmp_path, goal_position=AT, goal_rotation=(w, x, y, z)).warnings[1:]
    assert message.startswith(
        "goal_rotation is read as x, y, z, w, and the goal is not reached; as w, x, y, z it would be"
    )
    assert f"write {[x, y, z, w]}" in message
    identity = task(tmp_path, goal_position=AT, goal_rotation=(1.0, 0.0, 0.0, 0.0)).warnings
    assert any("a half turn; if it is w, x, y, z, write [0.0, 0.0, 0.0, 1.0]" in message for message in identity)


@pytest.mark.parametrize(
    ("rotation", "message"),
    [
        ((0.0, 90.0, 0.0), "goal_rotation: expected an orientation; .*radians.*degrees"),
        ((0.0, 0.0, 0.0, 0.5), "quaternion x, y, z, w of norm 0.5"),
        (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.1, 1.0)), "is not a rotation"),
        ((0.0, float("nan"), 0.0), "give finite numbers"),
    ],
)
def test_invalid_orientations_are_rejected(tmp_path, rotation, message):
    with pytest.raises(SettingsError, match=message):
        task(tmp_path, goal_position=AT, goal_rotation=rotation)


def test_a_goal_in_degrees_is_reported(tmp_path):
    messages = task(tmp_path, goal_q=(90.0,), guess="constant").warnings
    assert "goal_q is outside its limits: hinge = 90 (degrees?), limits [-3, 3], which are not enforced" in messages
    with pytest.raises(ValueError, match=r"is 90 \(degrees\?\), beyond its limit 3"):
        task(tmp_path, goal_q=(90.0,), position_limits=True)


def test_a_path_too_long_for_the_velocity_limits_is_reported_as_the_reason(tmp_path):
    for goal in ({"goal_position": AT}, {"goal_q": (1.0,)}):
        (message,) = task(tmp_path, speed=0.5, **goal).missed(motion(0.5))
        assert "the motion lasts 1 s, but at the velocity limits it needs 2 s: allow more time" in message


def test_a_goal_constraint_is_not_reported_by_the_task(tmp_path):
    known = task(tmp_path, goal_position=AT, terminal="constraint")
    assert known.missed(motion(0.5)) == [] and not any("lasts" in text for text in known.warnings)


def test_too_short_a_motion_to_a_goal_constraint_is_reported_before_and_after_a_solve(tmp_path):
    short = task(tmp_path, speed=0.5, goal_position=AT, terminal="constraint")
    reason = "the motion lasts 1 s, but at the velocity limits it needs 2 s: allow more time"
    assert reason in short.warnings and reason in short.missed(motion(0.5))[0]
    assert short.missed(motion(1.0)) == []


def test_final_errors_are_reported_with_units(tmp_path):
    distance, speed = task(tmp_path, goal_position=AT).outcome(np.array([0.9, 0.25]))
    assert distance == f"tip ends {chord(0.1):.3g} mm from its goal"
    assert speed == "largest final joint speed 0.25 rad/s (hinge)"
    assert task(tmp_path, goal_q=(1.0,)).outcome(np.array([0.9, 0.0]))[0] == "largest final joint error 0.1 rad (hinge)"
