"""Gait without schedule: its problem, and one second of it on MuJoCo's ground."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contact_cases import FEET, hyq

from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.legged.contact.feet_terms import slip_cost
from problems.legged.gaits.free_gait import resting_controls
from trajopt.config.build import build_task
from trajopt.config.config import ConfigError, load_config, read_config

CONFIG = Path(__file__).parents[3] / "problems/configs/hyq_free_walk.toml"


def task(*overrides):
    return build_task(load_config(CONFIG, ["problem.horizon=2", *overrides]))


def test_the_guess_rests():
    """The least-squares residual of the accelerations at rest is small relative to those without torques."""
    ocp = task().ocp
    backend = ocp.phases[0].dynamics.backend
    u = resting_controls(backend, ocp.x0)
    still, limp = (np.linalg.norm(backend.f(ocp.x0[None], v[None])) for v in (u, 0.0 * u))
    assert still < 0.1 * limp
    value, _, fu = backend.jacobians(ocp.x0[None], u[None])
    np.testing.assert_allclose(fu[0, 18:].T @ value[0, 18:], 0.0, atol=1e-6)


def test_default_weights_are_those_with_which_hyq_walks():
    assert read_config({"problem": {"name": "free_gait", "velocity": 0.4}}).problem == load_config(CONFIG).problem


def test_feet_pay_for_speed_near_the_ground_only():
    model = hyq()
    term = slip_cost(model, FreeBody(model).manifold, FEET, 0.03, 2.0)
    low = np.concatenate([model.neutral(), np.zeros(model.nv)])
    low[2] = 0.6
    moving = low.copy()
    moving[model.nq] = 1.0
    high = moving.copy()
    high[2] += 0.3

    def residual(x):
        p = {key: np.asarray(value)[:, None] for key, value in term.parameters.items()}
        return np.asarray(term.residual(x[:, None], np.zeros((12, 1)), np.zeros(1), p))[:, 0]

    assert not residual(low).any()
    np.testing.assert_allclose(residual(high), residual(moving) * np.exp(-10.0), rtol=1e-9)
    assert residual(moving)[::2] == pytest.approx(residual(moving)[0])


@pytest.mark.parametrize(
    ("override", "message"),
    [("problem.clearance=0", "clearance"), ("problem.slip=-1", "slip"), ("problem.integrator=rk4", "integrator")],
)
def test_mistakes_are_reported(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(CONFIG, [override])


def test_a_second_of_walking_in_mujoco():
    pytest.importorskip("mujoco")
    from experiments.benchmarks.replanning.benchmark_walking import SCENES, outcome, walk

    seconds = 1.5
    start, log = walk("hyq", SCENES["level"], seconds, seed=0)
    found = outcome(start, log)
    assert not found.fell
    assert found.failed == 0
    assert found.distance > 0.4 * 0.7 * seconds


def test_a_fall_is_a_result_of_the_walking_benchmark():
    pytest.importorskip("mujoco")
    from experiments.benchmarks.replanning.benchmark_walking import SCENES, outcome, row, walk

    push = ["replan.plant.push_joints=['base_y']", "replan.plant.pushes=[[0.1, 0.2, 4000.0]]"]
    found = outcome(*walk("hyq", SCENES["level"], 1.5, seed=0, overrides=push))
    assert found.fell.startswith("the robot falls: ") and 0.1 < found.walked < 1.4
    assert f"FELL ({found.fell})" in row("level", found)[1]
