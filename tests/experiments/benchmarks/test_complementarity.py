"""Random complementarity problems: solutions satisfy independent formulas."""

import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.first_try.complementarity import CLEARANCE, COUNT, FAMILIES, OBSTACLES, instances


def first(family, number=0):
    """The problem and the guess of an instance, with the values of its parameters."""
    ocp, guess = [i for i in instances() if i.family == family][number].build()
    return ocp, guess, {key: np.squeeze(v) for key, v in ocp.phases[0].parameters.items()}


def test_instances_are_named_once_and_follow_from_the_seed():
    found = instances(3)
    assert len(found) == COUNT * len(FAMILIES) == len({i.name for i in found})
    again, other = instances(3)[60].build(), instances(4)[60].build()
    ocp, guess = found[60].build()
    np.testing.assert_array_equal(ocp.x0, again[0].x0)
    np.testing.assert_array_equal(guess.xs, again[1].xs)
    assert np.abs(ocp.x0 - other[0].x0).max() > 1e-3


@pytest.mark.parametrize("number", [0, 31])
def test_the_car_keeps_its_distance(number):
    """Compare with the distance of a point from a rectangle with corners; CLEARANCE is the radius of the car."""
    ocp, guess, p = first("car among obstacles", number)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    for cx, cy, turn, a, b in p["obstacles"].reshape(OBSTACLES, 5):
        R = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        beyond = np.abs((s.xs[1:-1, :2] - [cx, cy]) @ R) - [a, b]
        assert np.hypot(*np.maximum(beyond, 0.0).T).min() >= CLEARANCE - 1e-6


def test_friction_opposes_the_motion_of_the_cart():
    ocp, guess, p = first("cart-pole with friction", 1)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    force, speed, slack = s.us[:, 1] - s.us[:, 2], s.xs[1:, 2], s.us[:, 7]
    assert np.abs(force).max() <= p["cart_friction"] + 1e-6
    slides = np.abs(speed) > 0.1
    assert slides.sum() > 10
    off = np.abs(force - p["cart_friction"] * np.sign(speed))[slides]
    assert off.max() <= (2.0 * slack[slides] / 0.1).max() + 1e-3


def test_torques_at_the_joint_limits_act_there_alone():
    ocp, guess, p = first("acrobot with joint limits")
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    angle = s.xs[1:, 1]
    assert np.abs(angle).max() <= p["limit"] + 1e-6
    for torque, distance in ((s.us[:, 1], p["limit"] - angle), (s.us[:, 2], p["limit"] + angle)):
        assert (torque * distance <= s.us[:, 3] + 1e-6).all()
    assert s.us[:, 3].max() < 1e-2


def test_the_contact_slides_at_the_edge_of_the_friction_cone_alone():
    ocp, guess, p = first("planar pushing", 1)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    normal, tangent, slides = s.us[:, 0], s.us[:, 1], (s.us[:, 2] - s.us[:, 3])
    inside = p["friction"] * normal - np.abs(tangent)
    assert inside.min() >= -1e-6
    assert (np.maximum(inside, 0.0) * np.abs(slides) <= 2.0 * s.us[:, 4] + 1e-6).all()
    np.testing.assert_allclose(np.diff(s.xs[:, 3]), p["dt"] * slides, atol=1e-9)


def test_swing_ups_through_contact_are_solved_at_first_try():
    """Reflections alone solve 2 of these 8; different rounding may lose one."""
    found = []
    for number in range(4, 12):
        ocp, guess, _ = first("acrobot with joint limits", number)
        found.append(to.solve(ocp, guess, solver="ipm", check=False).status.success)
    assert sum(found) >= len(found) - 1
