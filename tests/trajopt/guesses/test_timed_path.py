"""Timed paths: end states, limits, and known durations."""

import numpy as np
import pytest

from trajopt.guesses.timed_path import held_accelerations, steps_of_slowest, timed_motion

VELOCITY, ACCELERATION = np.array([2.0, 1.0, 3.0]), np.array([10.0, 6.0, 8.0])
CORNERS = np.array([[0.0, 0.0, 0.0], [1.0, 0.5, -0.5], [1.2, -0.4, 0.6], [2.0, 0.0, 0.0]])


def simulated(motion):
    """Positions and velocities (N + 1, n) that its accelerations lead to."""
    h = motion.duration / len(motion.a)
    q, v = [motion.q[0]], [motion.v[0]]
    for a in motion.a:
        q.append(q[-1] + h * v[-1] + 0.5 * h * h * a)
        v.append(v[-1] + h * a)
    return np.array(q), np.array(v)


def test_the_motion_is_rest_to_rest_and_integrates_its_accelerations():
    motion = timed_motion(CORNERS, VELOCITY, ACCELERATION, 40)
    q, v = simulated(motion)
    np.testing.assert_allclose(q, motion.q, atol=1e-9)
    np.testing.assert_allclose(v, motion.v, atol=1e-9)
    np.testing.assert_allclose([q[0], q[-1]], CORNERS[[0, -1]], atol=1e-9)
    np.testing.assert_allclose(v[[0, -1]], 0.0, atol=1e-9)


def test_limits_hold_up_to_discretization():
    motion = timed_motion(CORNERS, VELOCITY, ACCELERATION, 60)
    assert np.abs(motion.v / VELOCITY).max() < 1.1
    assert np.abs(motion.a / ACCELERATION).max() < 1.2
    assert np.abs(motion.v / VELOCITY).max() > 0.9  # and it makes use of them


@pytest.mark.parametrize("way", [0.1, 3.0])
def test_a_straight_line_takes_as_long_as_bang_bang(way):
    """A triangle of velocities, or a trapezoid where the limit of velocity is reached."""
    v, a = 2.0, 10.0
    shortest = 2.0 * np.sqrt(way / a) if way < v * v / a else way / v + v / a
    path = np.array([[0.0], [way]])
    assert timed_motion(path, np.array([v]), np.array([a]), 50).duration == pytest.approx(shortest, rel=0.02)


def test_the_motion_stays_near_the_corners():
    motion = timed_motion(CORNERS, VELOCITY, ACCELERATION, 200)
    for corner in CORNERS:
        assert np.linalg.norm(motion.q - corner, axis=1).min() < 0.08


def test_a_path_of_zero_length_takes_the_minimum_duration():
    still = timed_motion(np.array([[0.3, 0.1], [0.3, 0.1]]), np.ones(2), np.ones(2), 8, shortest=0.2)
    assert still.duration == 0.2
    np.testing.assert_allclose(still.q, [[0.3, 0.1]] * 9)


def test_constant_accelerations_reproduce_a_parabola():
    t = np.linspace(0.0, 1.0, 401)
    q = np.where(t < 0.5, 2.0 * t**2, 1.0 - 2.0 * (1.0 - t) ** 2)[:, None]
    motion = held_accelerations(q, t, 20)
    np.testing.assert_allclose(motion.a[:, 0], np.repeat([4.0, -4.0], 10), atol=0.2)


def test_steps_of_the_slowest_coordinate_reproduce_its_bang_bang_motion():
    """0.8 s: 0.2 s to speed up to 2, 0.4 s at that, 0.2 s to brake; 21 equal steps do not switch then."""
    v, a, T = 2.0, 10.0, 0.8
    t = np.linspace(0.0, T, 16001)
    speeds = np.minimum(np.minimum(a * t, v), a * (T - t))
    q = np.concatenate([[0.0], np.cumsum(0.5 * (speeds[1:] + speeds[:-1]) * np.diff(t))])[:, None]
    fractions = steps_of_slowest(np.array([0.1, q[-1, 0]]), np.array([3.0, v]), np.array([10.0, a]), 21)
    assert len(fractions) == 21 and fractions.sum() == pytest.approx(1.0) and np.ptp(fractions) < 0.01
    grid = T * np.append(0.0, np.cumsum(fractions))
    assert min(abs(grid - 0.2)) < 1e-12 and min(abs(grid - 0.6)) < 1e-12
    motion = held_accelerations(q, t, fractions)
    exact = np.where(grid[1:] < 0.2 + 1e-9, a, np.where(grid[:-1] > 0.6 - 1e-9, -a, 0.0))
    np.testing.assert_allclose(motion.a[:, 0], exact, atol=0.02)
    assert np.abs(held_accelerations(q, t, 21).a[:, 0]).max() > a + 0.02


@pytest.mark.parametrize(("way", "velocity", "acceleration"), [(0.0, 1.0, 1.0), (0.1, 9.0, 1.0), (1.0, 1.0, np.inf)])
def test_steps_are_equal_without_motion_or_with_one_switch_or_jump(way, velocity, acceleration):
    fractions = steps_of_slowest(*(np.array([x]) for x in (way, velocity, acceleration)), 8)
    np.testing.assert_allclose(fractions, 0.125)
