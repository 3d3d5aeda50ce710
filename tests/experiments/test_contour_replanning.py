"""Contour following by NMPC: the plant follows its path with torques and with accelerations; report of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replanning_cases import WatchedPlant

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement, inverse_dynamics
from dynamics_backends.rigid_body.model.model import Model
from experiments.plots.replanning_plots import plot_contour
from experiments.replan.plants import BesidePath, plants_of
from experiments.replan.run import setup, simulate, statistics
from trajopt.config.config import load_config
from trajopt.config.scenario import sensor_of

CONFIGS = Path(__file__).parents[2] / "problems" / "configs"
SHORT = [
    "engine='numpy'",
    "problem.horizon=4",
    "problem.dt=0.1",
    "replan.duration=0.24",
    "replan.tick=0.02",
    "replan.period=0.1",
    "replan.lead=0.02",
    "replan.charge=0.02",
    "replan.plant.step=0.02",
]


def short(form, *overrides):
    return load_config(CONFIGS / f"gen3_contour_{form}_mpc.toml", [*SHORT, *overrides])


def built(form, *overrides):
    """The task, and its plant at rest on the path."""
    config = short(form, "solver.max_iterations=0", *overrides)
    task = setup(config).task
    return task, plants_of(task, config.replan, make_backend, config.problem.robot)()


def holding(model: Model, q):
    return np.asarray(inverse_dynamics(model, q, np.zeros(7), np.zeros(7)))


def test_the_path_parameter_moves_by_its_acceleration():
    plant = BesidePath(WatchedPlant(), np.array([0.1, 0.2]), lambda x, u: 2.0 * u)
    for w in (1.0, -3.0):
        plant.step(np.array([0.5, w]), 0.1)
    np.testing.assert_allclose(plant.state()[2:], [0.1 + 0.02 + 0.005 + 0.03 - 0.015, 0.0], atol=1e-15)
    np.testing.assert_allclose(plant.state()[:2], [0.02, 0.2], atol=1e-12)  # a unit mass under 1 N for 0.2 s


@pytest.mark.parametrize("kind", ["own", "mujoco"])
def test_the_robot_has_the_accelerations_of_the_plan(kind):
    """Inverse dynamics of the true state gives the torques: at rest, after 1 ms, v = a dt to first order."""
    if kind == "mujoco":
        pytest.importorskip("mujoco")
    _, plant = built("id", f"replan.plant.kind='{kind}'", "replan.plant.step=0.001", "replan.plant.mass_factor=1.0")
    a = np.linspace(-1.0, 1.0, 7)
    plant.step(np.append(a, 0.0), 1e-3)
    np.testing.assert_allclose(plant.state()[7:14], 1e-3 * a, atol=2e-6)
    np.testing.assert_array_equal(plant.state()[14:], [0.0, 0.0])


def test_torques_are_those_of_the_plan_and_bounded():
    task, plant = built("fd", "replan.plant.mass_factor=1.0")
    x0, model = task.ocp.x0, task.ocp.model
    np.testing.assert_array_equal(plant.state(), x0)
    plant.step(np.append(holding(model, x0[:7]), 2.0), 0.02)
    np.testing.assert_allclose(plant.state(), [*x0[:14], 4e-4, 0.04], atol=1e-9)
    ends = []
    for fraction in (1.0, 2.0):
        _, plant = built("fd", "replan.plant.mass_factor=1.0")
        plant.step(np.append(fraction * model.effort_limit, 0.0), 0.001)
        ends.append(plant.state())
    np.testing.assert_array_equal(*ends)


def test_no_noise_is_added_to_the_path_parameter():
    config = short("fd", "replan.sensor={position_noise=0.1, velocity_noise=0.1}")
    task = setup(replace(config, solver_options=replace(config.solver_options, max_iterations=0))).task
    measured = sensor_of(task.ocp, config.replan).measure(0.0, task.ocp.x0)
    assert measured is not None
    off = np.abs(measured.value - task.ocp.x0)
    assert (off[:14] > 0.0).all() and not off[14:].any()


@pytest.mark.parametrize(
    ("form", "overrides"),
    [
        ("fd", ()),
        ("id", ()),
        pytest.param("id", ("replan.mode='converge'",), marks=pytest.mark.slow),
    ],
)
def test_the_tool_follows_the_contour(form, overrides, tmp_path):
    start = setup(short(form, *overrides))
    log = simulate(start)
    assert not log.events
    model, s = start.task.ocp.model, log.xs[:, 14]
    angle = s / 0.1
    path = np.stack([0.1 * (np.cos(angle) - 1.0), 0.1 * np.sin(angle), 0.02 * np.sin(2.0 * angle)], axis=1)
    at = frame_placement(model, log.xs[:, :7], "EndEffector_Link")[1]
    error = np.linalg.norm(at - at[0] - path, axis=1)
    assert error.max() < 0.01 and s[-1] > 0.02
    errors = statistics(start, log)["distance from the contour [m]"]
    assert errors["largest"] == pytest.approx(error.max()) and errors["rms"] == pytest.approx(
        np.sqrt(np.mean(error**2))
    )
    assert errors["fraction within the tube"] == 1.0
    assert plot_contour(tmp_path / "contour.png", start.task, log, at).stat().st_size > 0
