"""Torque rate limits, and costs of motions: time, energy, and their weighted sum."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from problems.arms.scenes.in_scene import motion_at
from problems.arms.scenes.torque_rate import AccelerationHistory, TorqueRate
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import ConfigError, read_config

needs_coal = pytest.mark.skipif(find_spec("coal") is None, reason="the package coal is not installed")
LINK = """<link name="{name}"><inertial><origin xyz="0 0 -0.25"/><mass value="2"/>
<inertia ixx="0.05" iyy="0.05" izz="0.05" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 -0.25"/><geometry><box size="0.04 0.04 0.5"/></geometry></collision></link>"""
JOINT = """<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 {z}"/>
<axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="60" velocity="6"/></joint>"""
ARM = (
    '<robot name="arm"><link name="ground"/>'
    + LINK.format(name="l1")
    + LINK.format(name="l2")
    + JOINT.format(name="j1", parent="ground", child="l1", z=0)
    + JOINT.format(name="j2", parent="l1", child="l2", z=-0.5)
    + "</robot>"
)
MODEL = load_urdf(ARM, base="fixed")
SYSTEM = AccelerationHistory(MODEL.dof_names, 12)


def arguments(count=5):
    rng = np.random.default_rng(0)
    return np.hstack([rng.normal(size=(count, 6)), rng.uniform(0.3, 2.0, (count, 1))]), rng.normal(size=(count, 2))


def test_derivatives_of_steps_with_acceleration_history():
    (x, u), lam = arguments(), np.random.default_rng(1).normal(size=(5, 7))
    own, source = (make_backend(SYSTEM, m, engine="numpy") for m in ("analytic", "forward_ad"))
    (a, first), (b, second) = (m.hessian_contraction(x, u, 0.0, None, lam) for m in (own, source))
    for one, other in zip((*a, *first), (*b, *second), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("end", [False, True])
def test_derivatives_of_rates(end):
    x, u = arguments()
    residual = TorqueRate(MODEL, [50.0, 20.0], SYSTEM, end=end)
    own, source = (make_backend(residual, m, engine="numpy") for m in ("analytic", "complex_step"))
    for one, other in zip(*(m.jacobians(x, u[:, : residual.nu]) for m in (own, source)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def solved(tmp_path, **problem):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    settings = {"name": "arm_in_scene", "robot": str(path), "q0": [0.0, 0.0], "goal_q": [0.9, -0.5], "knots": 24}
    settings |= {"acceleration_limits": 40.0, "self_collision": False, "guess": "straight", **problem}
    ipm = {"name": "ipm", "hessian": "gauss_newton", "gradient_tolerance": 1e-5, "constraint_tolerance": 1e-7}
    config = read_config({"problem": settings, "solver": ipm, "engine": "numpy"}, "test")
    solution = solve_task(config, build_task(config))
    assert solution.status.success, solution.status
    assert solution.duration == pytest.approx(solution.xs[-1, -1])
    return solution


def torques(solution):
    """Return torques at the midpoints of steps, with rest at both ends, and the step length."""
    xs, us, T = solution.xs, solution.us[1:], float(solution.xs[-1, -1])
    s = T / len(us) / 2.0
    q, v = xs[1:-1, :2] + s * (xs[1:-1, 2:4] + 0.5 * s * us), xs[1:-1, 2:4] + s * us
    rest = [inverse_dynamics(MODEL, xs[i, :2][None], np.zeros((1, 2)), np.zeros((1, 2))) for i in (0, -1)]
    return np.vstack([rest[0], inverse_dynamics(MODEL, q, v, us), rest[1]]), 2.0 * s


@needs_coal
def test_torques_change_no_faster_than_their_limits(tmp_path):
    limit = np.array([250.0, 120.0])
    free, held = solved(tmp_path), solved(tmp_path, torque_rate_limits=limit.tolist())
    rates = []
    for solution in (free, held):
        tau, h = torques(solution)
        rates.append((np.abs(np.diff(tau, axis=0)) / h / limit).max())
    assert rates[0] > 2.0 and 0.99 < rates[1] < 1.0 + 1e-5
    assert held.xs[-1, -1] > 1.02 * free.xs[-1, -1]
    q, v, a, _ = motion_at(held, 2, 500.0)
    np.testing.assert_allclose(q[-1], [0.9, -0.5], atol=1e-5)
    assert np.abs(v[-1]).max() < 1e-5 and np.abs(inverse_dynamics(MODEL, q, v, a)).max() < 60.0 * 1.02


@needs_coal
def test_time_energy_and_their_weighted_sum(tmp_path):
    """Each motion is optimal for its own cost, and the weighted sum lies between."""
    weights = [{"time": 1.0}, {"time": 1.0, "energy": 5.0}, {"time": 0.0, "energy": 1.0}]
    found = [solved(tmp_path, weights={"acceleration": 1e-4, **w}, duration=[0.1, 2.0]) for w in weights]
    durations = [float(s.xs[-1, -1]) for s in found]
    energies = []
    for s in found:
        tau, h = torques(s)
        energies.append(h * float(np.sum((tau[1:-1] / 60.0) ** 2)))
    sums = [T + 2.5 * E for T, E in zip(durations, energies, strict=True)]
    assert durations[0] < durations[1] and energies[2] < min(energies[:2])
    assert sums[1] <= min(sums[0], sums[2]) * (1.0 + 1e-3)


def test_invalid_rate_limits_are_reported():
    with pytest.raises(ConfigError, match="torque_rate_limits: expected positive rates"):
        read_config({"problem": {"name": "arm_in_scene", "goal_q": [0.0], "torque_rate_limits": 0.0}})
