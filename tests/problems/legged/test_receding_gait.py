"""Gait in receding horizon: its moving references, and a walk on its plant."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.systems.contact.soft_contact import SoftContact
from experiments.replan.plants import plants_of
from experiments.replan.run import setup, simulate
from problems.legged.gaits.receding_gait import Settings, build
from trajopt.config.config import load_config
from trajopt.config.scenario import horizon_of
from trajopt.config.task import SettingsError

CONFIG = Path(__file__).parents[3] / "problems" / "configs" / "hyq_trot_mpc.toml"
JOINTS = (-0.2, 0.723, -1.458, -0.2, 0.723, -1.458, -0.2, -0.723, 1.458, -0.2, -0.723, 1.458)


@pytest.fixture(scope="module")
def task():
    settings = Settings(
        joints=JOINTS,
        horizon=12,
        dt=0.01,
        substeps=10,
        integrator="semi_implicit_euler",
        swing=0.2,
        support=0.1,
        cycles=2,
        step_height=0.1,
    )
    return build(settings, lambda map: make_backend(map))


def terms(ocp):
    return {term.name: term for term in ocp.phases[0].terms}


def test_references_move_with_time(task):
    """The right front and left hind feet swing first, from 0.1 s to 0.3 s, and are highest at half time."""
    first, model = terms(task.ocp), task.ocp.model
    moved = task.moved(task.ocp, 0.2)
    later = terms(moved)
    for foot, swings in (("rf_foot", True), ("lh_foot", True), ("lf_foot", False), ("rh_foot", False)):
        hold = frame_placement(model, task.ocp.x0[: model.nq], foot)[1]
        np.testing.assert_allclose(first[foot].parameters["goal"][0], hold, atol=1e-12)
        wanted = hold + (np.array([0.075, 0.0, 0.1]) if swings else 0.0)
        np.testing.assert_allclose(later[foot].parameters["goal"][0], wanted, atol=1e-12)
        assert (later[foot].weight[0] > first[foot].weight[0]).all() == swings
    base = [part["base"].parameters["position"] for part in (first, later)]
    np.testing.assert_allclose(base[1][0] - base[0][0], [0.0375, 0.0, 0.0], atol=1e-12)  # the mean of the feet
    assert moved.terminal[0].parameters["position"].shape == (3,)


def test_the_horizon_has_the_references_of_its_time(task):
    settings = load_config(CONFIG, ["engine='numpy'"]).replan
    at = horizon_of(task, settings)(0.2)
    np.testing.assert_array_equal(
        terms(at)["rf_foot"].parameters["goal"], terms(task.moved(task.ocp, 0.2))["rf_foot"].parameters["goal"]
    )


def test_the_plant_is_the_same_system_with_more_controls(task):
    """Joint forces have the same effect; the base forces are zero unless something pushes the base."""
    model, feet = task.ocp.model, task.feet
    system = SoftContact(model, feet)
    x = np.tile(task.ocp.x0, (3, 1))
    x[:, 2] += np.array([-0.01, 0.0, 0.05])  # feet deep in the ground, at it, above it
    u = np.random.default_rng(4).normal(0.0, 20.0, (3, 12))
    driven = make_backend(system.fully_driven(model))
    whole = np.concatenate([np.zeros((3, 6)), u], axis=1)
    np.testing.assert_allclose(driven.f(x, whole), make_backend(system).f(x, u), rtol=1e-12, atol=1e-9)
    assert system.nu == 12 and driven.map.nu == 18


def test_a_plant_on_the_ground_is_made_from_the_task(task):
    settings = load_config(CONFIG, ["engine='numpy'"]).replan
    plant = plants_of(task, settings, lambda map: make_backend(map), "hyq")()
    np.testing.assert_array_equal(plant.state(), task.ocp.x0)
    elsewhere = replace(settings, plant=replace(settings.plant, kind="mujoco"))
    pytest.importorskip("mujoco")
    grounded = plants_of(task, elsewhere, lambda map: make_backend(map), "hyq")()
    np.testing.assert_allclose(grounded.state(), task.ocp.x0, atol=1e-14)
    grounded.step(np.zeros(12), 0.2)
    assert grounded._data.ncon > 0


@pytest.mark.slow
def test_it_trots():
    start = setup(load_config(CONFIG, ["replan.duration=1.0", "replan.charge=0.01"]))
    log = simulate(start)
    assert not log.events
    assert np.abs(log.xs[:, 2] - 0.572).max() < 0.03 and 0.15 < log.xs[-1, 0] < 0.3
    model = start.task.ocp.model
    for foot in start.task.feet:
        height = frame_placement(model, log.xs[:, : model.nq], foot)[1][:, 2]
        assert np.ptp(height) > 0.05


@pytest.mark.parametrize(
    ("values", "said"), [({"height": np.nan}, "height"), ({"cycles": 0}, "cycles"), ({"terminal": -1.0}, "terminal")]
)
def test_mistakes(values, said):
    with pytest.raises(SettingsError, match=said):
        Settings(**values)


def test_a_posture_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="12 joints"):
        build(Settings(joints=(0.0,)), lambda map: make_backend(map))
