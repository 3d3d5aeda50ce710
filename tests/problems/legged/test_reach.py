"""Checks of gaits against the robot's legs: steps out of reach, long swings, and the order of the feet."""

import numpy as np
import pytest

from problems.legged.gaits.gait import Gait
from problems.legged.gaits.reach import order_warnings, require_reach
from problems.legged.robot.walker import LeggedRobot
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.config.task import position_of

FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("hyq_trot_rigid", "step_length", 1.5),
        ("hyq_trot_rigid", "step_length", -1.5),
        ("hyq_trot_rigid", "distance", 5.0),
        ("hyq_trot_rigid", "step_height", 0.7),
        ("hyq_trot_mpc", "step_length", 1.5),
    ],
)
def test_steps_out_of_reach_are_refused(name, key, value):
    with pytest.raises(ValueError, match=r"step_(length|height): steps of .* leg is .*0.68 m.*: reduce step_"):
        build_task(load_config(name, ["engine=numpy", f"problem.{key}={value}"]))


def test_steps_without_standing_feet_may_be_longer_than_the_legs():
    """In a jump the base moves as far as the feet, so that they stay below the hips; in a trot half as far."""
    standing = LeggedRobot(robot="hyq").stand()
    footholds = np.stack([position_of(standing.model, foot, standing.q) for foot in FEET])
    sizes = {"swing": 0.25, "support": 0.02, "step_length": 1.5}
    require_reach(standing.stance, Gait.named("jump", FEET, **sizes), footholds)
    with pytest.raises(ValueError, match=r"take .*_foot 0.75\d* m away from its hip"):
        require_reach(standing.stance, Gait.named("trot", FEET, **sizes), footholds)


def test_long_swings_are_reported():
    task = build_task(
        load_config("hyq_trot_rigid", ["engine=numpy", "problem.swing=25", "problem.dt=1.0", "problem.support=1"])
    )
    (warning,) = task.warnings
    assert "problem.swing = 25 s is long for legs of 0.68 m: usual swings take 0.26 s" in warning
    assert build_task(load_config("hyq_trot_rigid", ["engine=numpy", "problem.swing=1.0"])).warnings == ()


@pytest.mark.parametrize("name", ["hyq_trot_rigid", "hyq_trot_mpc", "hyq_trot"])
def test_feet_in_another_order_are_reported(name):
    swapped = 'problem.feet=["rf_foot", "lf_foot", "lh_foot", "rh_foot"]'
    short = ["engine=numpy", swapped] if name == "hyq_trot_rigid" else ["engine=numpy", swapped, "problem.horizon=2"]
    (warning,) = [w for w in build_task(load_config(name, short)).warnings if "order" in w]
    assert 'problem.feet = ["lf_foot", "rf_foot", "lh_foot", "rh_foot"]' in warning
    swings = 'problem.swings=[["rf_foot"], ["lf_foot"]]'
    if name == "hyq_trot_rigid":  # groups of named feet have no order
        assert build_task(load_config(name, [*short, swings])).warnings == ()


def test_feet_in_order_have_no_warning():
    square = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [-1.0, -1.0, 0.0]])
    names = ("a", "b", "c", "d")
    assert order_warnings(names, square) == ()
    for turn in ([1, 0, 3, 2], [2, 3, 0, 1], [0, 2, 1, 3]):
        (warning,) = order_warnings(tuple(names[i] for i in turn), square[turn])
        assert 'problem.feet = ["a", "b", "c", "d"]' in warning
