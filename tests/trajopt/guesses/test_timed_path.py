"""Timed paths: end states, limits, known durations, and time-optimal timing."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from two_link_arm import two_link_arm

from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from trajopt.guesses.timed_path import (
    PathLimits,
    duration_lower_bound,
    held_accelerations,
    on_spline,
    steps_of_slowest,
    time_optimal,
    timed_motion,
)

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


# -- time-optimal timing ------------------------------------------------------------------------------------------------


def weightless(q, v, a):
    return np.zeros_like(q)


def limits(velocity, acceleration, torque=(np.inf, np.inf), torques=weightless):
    return PathLimits(np.array(velocity), np.array(acceleration), np.array(torque), torques)


def test_a_straight_line_takes_the_time_of_its_slowest_coordinate():
    """2 rad at 1 rad/s and 4 rad/s^2: 2 / 1 + 1 / 4 s; the other coordinate is faster."""
    pytest.importorskip("toppra")
    points = np.linspace([0.0, 0.0], [2.0, 1.0], 10)
    found = time_optimal(points, np.linspace(0.0, 1.0, 10), limits([1.0, 3.0], [4.0, 9.0]))
    assert found.duration == pytest.approx(2.25, rel=2e-3)
    np.testing.assert_allclose([found.q[0], found.q[-1]], [[0.0, 0.0], [2.0, 1.0]], atol=1e-12)
    assert (np.diff(found.times) > 0.0).all()


def test_torque_limits_are_those_of_toppra_itself(tmp_path):
    """TOPP-RA with its own constraint, which asks for inverse dynamics place by place, takes the same time."""
    toppra = pytest.importorskip("toppra")
    (tmp_path / "arm.urdf").write_text(two_link_arm(effort=8, velocity=5))
    model = load_urdf(tmp_path / "arm.urdf", base="fixed")
    s = np.linspace(0.0, 1.0, 12)
    points = np.stack([-0.6 + 1.2 * s, 0.5 * np.sin(np.pi * s)], axis=1)
    torques, most = partial(inverse_dynamics, model), np.array([8.0, 3.0])
    found = time_optimal(points, s, limits([5.0, 5.0], [30.0, 30.0], most, torques))

    def both(limit):
        return np.stack([-np.asarray(limit), np.asarray(limit)], axis=1)

    def one(q, v, a):
        return torques(q[None], v[None], a[None])[0]

    bounds = [
        toppra.constraint.JointVelocityConstraint(both([5.0, 5.0])),
        toppra.constraint.JointAccelerationConstraint(both([30.0, 30.0])),
        toppra.constraint.JointTorqueConstraint(one, both(most), np.zeros(2)),
    ]
    path, grid = toppra.SplineInterpolator(s, points), np.linspace(0.0, 1.0, 401)
    theirs = toppra.algorithm.TOPPRA(bounds, path, gridpoints=grid, solver_wrapper="seidel")
    assert found.duration == pytest.approx(theirs.compute_trajectory(0.0, 0.0).duration, rel=1e-6)
    free = time_optimal(points, s, limits([5.0, 5.0], [30.0, 30.0]))
    assert free.duration < 0.9 * found.duration  # the torques matter


def test_toppra_whose_sources_are_not_yet_compiled_is_imported_without_warnings(tmp_path):
    pytest.importorskip("toppra")
    script = (
        "import warnings; from trajopt.guesses import timed_path; warnings.simplefilter('error'); timed_path._toppra()"
    )
    done = subprocess.run(
        [sys.executable, "-X", f"pycache_prefix={tmp_path}", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_no_motion_along_corners_is_faster_than_the_lower_bound():
    pytest.importorskip("toppra")
    corners = np.array([[0.0, 0.0], [1.0, 0.3], [0.4, 0.6], [0.5, 0.8]])
    velocity, acceleration = np.array([1.0, 2.0]), np.array([5.0, 5.0])
    pieces = sum(way / 1.0 + 1.0 / 5.0 if way > 0.2 else 2.0 * np.sqrt(way / 5.0) for way in (1.0, 0.6, 0.1))
    floor = duration_lower_bound(corners, velocity, acceleration)
    assert floor == pytest.approx(pieces)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    assert time_optimal(corners, along, limits(velocity, acceleration)).duration > floor
    assert duration_lower_bound(corners[[0, 0]], velocity, acceleration) == 0.0


def test_corners_without_reversal_have_a_lower_bound_too():
    """From rest, 1 rad at 1 rad/s with 0.2 s of acceleration; 2 rad of the other coordinate at 2 rad/s; 1 rad to rest."""
    corners = np.array([[0.0, 0.0], [1.0, 0.2], [1.3, 2.2], [2.3, 2.3]])
    floor = duration_lower_bound(corners, np.array([1.0, 2.0]), np.array([5.0, 5.0]))
    assert floor == pytest.approx((0.2 + 0.9) + 1.0 + (0.2 + 0.9))
    slow = duration_lower_bound(
        corners, np.array([1.0, 2.0]), np.array([0.1, 5.0])
    )  # 1 rad from rest at 0.1 rad/s^2, and to rest
    assert slow == pytest.approx(np.sqrt(2.0 / 0.1) + 1.0 + np.sqrt(2.0 / 0.1))
    assert duration_lower_bound(corners, np.array([1.0, 2.0]), np.full(2, np.inf)) == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(4))
def test_no_timing_of_toppra_is_below_the_lower_bound(seed):
    pytest.importorskip("toppra")
    rng = np.random.default_rng(seed)
    corners = np.cumsum(rng.uniform(-1.0, 1.0, (int(rng.integers(2, 7)), 3)), axis=0)
    velocity, acceleration = rng.uniform(0.5, 3.0, (2, 3))
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    s = np.unique(np.concatenate([along, np.linspace(0.0, along[-1], 80)]))
    points = np.stack([np.interp(s, along, column) for column in corners.T], axis=1)
    found = time_optimal(points, s, limits(velocity, acceleration, np.full(3, np.inf)))
    assert found.duration >= duration_lower_bound(corners, velocity, acceleration) * (1.0 - 1e-3)


def test_the_spline_that_is_timed_passes_its_points():
    pytest.importorskip("toppra")
    points = np.array([[0.0], [1.0], [0.0]])
    q = on_spline(points, np.array([0.0, 1.0, 2.0]), 5)
    np.testing.assert_allclose(q[::2], points, atol=1e-12)
