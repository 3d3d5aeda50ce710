"""Numbers of one robot for another: a copy of HyQ in another size has the same problem in other units."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.config.build import build_task, solve_task
from experiments.config.config import load_config
from problems.legged.robot.similarity import LENGTH, TORQUE, Scale, running_weight, terminal_weight
from problems.robots import ERD_PACKAGE, erd_names, robot_path
from trajopt.stage.evaluation import StageEvaluator

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
LENGTHS, MASSES = 0.4, 0.05
TIMES = LENGTHS**0.5
SHORT = {
    "hyq_trot_rigid": ["problem.swing=0.04", "problem.support=0.01", "problem.step_length=0.02"],
    "hyq_trot": ["problem.horizon=2"],
    "hyq_trot_published": ["problem.horizon=2"],
    "hyq_gallop": ["problem.horizon=2"],
    "hyq_jump": ["problem.horizon=2", "problem.guess_push.start=0.0", "problem.waypoint.start=0.0"],
    "hyq_trot_mpc": ["problem.horizon=2"],
    "hyq_trot_rigid soft": [
        *("problem.contact=soft", "problem.swing=0.04", "problem.support=0.01", "problem.step_length=0.02"),
        "problem.contact_law=hunt_crossley",
    ],
}
needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")


@pytest.fixture(scope="module")
def small_hyq(tmp_path_factory) -> str:
    """HyQ with lengths and masses in these ratios; no joint of the file has damping or friction."""
    tree = ElementTree.parse(robot_path("hyq"))
    for origin in tree.iter("origin"):
        if "xyz" in origin.attrib:
            origin.set("xyz", " ".join(repr(LENGTHS * float(a)) for a in origin.get("xyz").split()))
    for mass in tree.iter("mass"):
        mass.set("value", repr(MASSES * float(mass.get("value"))))
    for inertia in tree.iter("inertia"):
        for key, value in inertia.attrib.items():
            inertia.set(key, repr(MASSES * LENGTHS**2 * float(value)))
    path = tmp_path_factory.mktemp("robots") / "small.urdf"
    tree.write(path)
    return str(path)


def task_of(name: str, *overrides: str):
    return build_task(load_config(CONFIGS / f"{name.split()[0]}.toml", [*SHORT[name], "engine=numpy", *overrides]))


@pytest.mark.parametrize("name", SHORT)
def test_a_small_copy_has_the_same_problem_in_other_units(name, small_hyq):
    one, other = task_of(name), task_of(name, f"problem.robot={small_hyq}")
    assert np.allclose(other.ocp.times, TIMES * one.ocp.times, rtol=1e-9)
    rng = np.random.default_rng(8)
    a, b = one.guess, other.guess
    n = 3  # the base's place is a length, all other coordinates of a configuration have no unit
    scale = np.ones(a.xs.shape[1])
    scale[:n] = LENGTHS
    scale[19:22], scale[22:] = LENGTHS / TIMES, 1.0 / TIMES
    assert np.allclose(b.xs, a.xs * scale, atol=2e-4)
    assert np.allclose(b.us[0], a.us[0] * MASSES * LENGTHS, atol=1e-4)
    xs = a.xs + np.r_[rng.uniform(-0.01, 0.01, 3), np.zeros(4), rng.uniform(-0.1, 0.1, 30)]
    us = a.us + rng.uniform(-5.0, 5.0, a.us.shape)
    here, there = (
        float(StageEvaluator(ocp).cost(xs[None], us[None])[0])
        for ocp, xs, us in ((one.ocp, xs, us), (other.ocp, xs * scale, us * MASSES * LENGTHS))
    )
    assert there == pytest.approx(here, rel=1e-3)


def test_a_small_copy_trots_as_the_large_one_does(small_hyq):
    config = load_config(CONFIGS / "hyq_trot_rigid.toml", [*SHORT["hyq_trot_rigid"], "engine=numpy"])
    small = load_config(
        CONFIGS / "hyq_trot_rigid.toml",
        [*SHORT["hyq_trot_rigid"], "engine=numpy", f"problem.robot={small_hyq}"],
    )
    one, other = (solve_task(c, build_task(c)) for c in (config, small))
    assert one.status.success and other.status.success and one.iterations == other.iterations
    assert other.cost == pytest.approx(one.cost, rel=1e-5)
    assert np.allclose(other.xs[:, :3], LENGTHS * one.xs[:, :3], atol=1e-5)
    assert np.allclose(other.us, MASSES * LENGTHS * one.us, atol=1e-3 * np.abs(other.us).max())


@needs_erd
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
@pytest.mark.parametrize("robot", ["erd:solo12", "erd:go2"])
def test_a_robot_trots_from_its_file_alone(robot):
    """The bundled trot of HyQ, in coarser steps."""
    coarse = ["problem.dt=0.02", "problem.swing=0.2", "problem.support=0.04", "engine=numpy"]
    config = load_config(CONFIGS / "hyq_trot_rigid.toml", [*coarse, f"problem.robot={robot}"])
    task = build_task(config)
    solution = solve_task(config, task)
    assert solution.status.success, solution.status
    model, step = task.ocp.model, float(task.outcome(solution.xs[-1])[0].rpartition("asked for ")[2].split(",")[0])
    assert 0.05 < step / task.ocp.x0[2] < 0.4
    assert solution.xs[-1, 0] == pytest.approx(step, abs=0.25 * step)
    assert model.name in task.notes[0] and "numbers are those of hyq" in task.notes[1]


def test_units_of_weights():
    assert running_weight(TORQUE) == (-2, -4, 3)
    assert terminal_weight(LENGTH) == (0, -2, 0)
    scale = Scale(mass=0.5, length=0.25)
    assert scale.time == 0.5
    assert scale.scaled((2.0, 4.0), TORQUE) == (2.0 * 0.125, 4.0 * 0.125)
