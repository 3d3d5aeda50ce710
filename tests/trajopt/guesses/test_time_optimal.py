"""Time-optimal timing of paths of configurations within limits."""

from functools import partial

import numpy as np
import pytest
from two_link_arm import two_link_arm

from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from trajopt.guesses.time_optimal import PathLimits, floor_of, on_spline, time_optimal


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


def test_no_motion_along_corners_is_faster_than_the_lower_bound():
    pytest.importorskip("toppra")
    corners = np.array([[0.0, 0.0], [1.0, 0.3], [0.4, 0.6], [0.5, 0.8]])
    velocity, acceleration = np.array([1.0, 2.0]), np.array([5.0, 5.0])
    pieces = sum(way / 1.0 + 1.0 / 5.0 if way > 0.2 else 2.0 * np.sqrt(way / 5.0) for way in (1.0, 0.6, 0.1))
    floor = floor_of(corners, velocity, acceleration)
    assert floor == pytest.approx(pieces)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    assert time_optimal(corners, along, limits(velocity, acceleration)).duration > floor
    assert floor_of(corners[[0, 0]], velocity, acceleration) == 0.0


def test_corners_without_reversal_have_a_lower_bound_too():
    """From rest, 1 rad at 1 rad/s with 0.2 s of acceleration; 2 rad of the other coordinate at 2 rad/s; 1 rad to rest."""
    corners = np.array([[0.0, 0.0], [1.0, 0.2], [1.3, 2.2], [2.3, 2.3]])
    floor = floor_of(corners, np.array([1.0, 2.0]), np.array([5.0, 5.0]))
    assert floor == pytest.approx((0.2 + 0.9) + 1.0 + (0.2 + 0.9))
    slow = floor_of(corners, np.array([1.0, 2.0]), np.array([0.1, 5.0]))  # 1 rad from rest at 0.1 rad/s^2, and to rest
    assert slow == pytest.approx(np.sqrt(2.0 / 0.1) + 1.0 + np.sqrt(2.0 / 0.1))
    assert floor_of(corners, np.array([1.0, 2.0]), np.full(2, np.inf)) == pytest.approx(3.0)


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
    assert found.duration >= floor_of(corners, velocity, acceleration) * (1.0 - 1e-3)


def test_the_spline_that_is_timed_passes_its_points():
    pytest.importorskip("toppra")
    points = np.array([[0.0], [1.0], [0.0]])
    q = on_spline(points, np.array([0.0, 1.0, 2.0]), 5)
    np.testing.assert_allclose(q[::2], points, atol=1e-12)
