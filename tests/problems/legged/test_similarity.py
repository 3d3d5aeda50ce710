"""Scaling of settings between robots: a scaled copy of HyQ has the same problem in other units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contact_cases import LENGTHS, MASSES

from experiments.sweep.run import FromConfig
from problems.legged.robot.similarity import LENGTH, TORQUE, Scale, running_weight, terminal_weight
from problems.robots import ERD_PACKAGE, erd_names
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import load_config
from trajopt.config.schema import to_toml
from trajopt.stage.evaluation import StageEvaluator

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
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


def short_file(name: str, folder: Path) -> Path:
    """Return a file with a shortened bundled configuration, whose numbers are for HyQ."""
    config = load_config(CONFIGS / f"{name.split()[0]}.toml", [*SHORT[name], "engine=numpy"])
    path = folder / "short.toml"
    path.write_text(to_toml(config.as_dict()), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHORT)
def test_a_small_copy_has_the_same_problem_in_other_units(name, small_hyq, tmp_path):
    file = short_file(name, tmp_path)
    one, other = (build_task(load_config(file, o)) for o in ([], [f"problem.robot={small_hyq}"]))
    assert np.allclose(other.ocp.times, TIMES * one.ocp.times, rtol=1e-9)
    rng = np.random.default_rng(8)
    a, b = one.guess, other.guess
    n = 3  # base positions are lengths, other coordinates have no unit
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


def test_a_small_copy_trots_as_the_large_one_does(small_hyq, tmp_path):
    file = short_file("hyq_trot_rigid", tmp_path)
    loose = "check.replay_tolerance=1e3"
    config, small = (load_config(file, [loose, *o]) for o in ([], [f"problem.robot={small_hyq}"]))
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
    coarse = ["problem.dt=0.0125", "problem.swing=0.125", "problem.support=0.025"]
    config = load_config(CONFIGS / "hyq_trot_rigid.toml", [*coarse, f"problem.robot={robot}"])
    task = build_task(config)
    solution = solve_task(config, task)
    assert solution.status.success, solution.status
    model, step = task.ocp.model, float(task.outcome(solution.xs[-1])[0].rpartition("target ")[2].split(",")[0])
    assert 0.05 < step / task.ocp.x0[2] < 0.4
    assert solution.xs[-1, 0] == pytest.approx(step, abs=0.25 * step)
    assert model.name in task.notes[0] and f"numbers for hyq are scaled to {model.name}" in config.notes[0]


def test_numbers_given_with_another_robot_are_not_scaled(small_hyq):
    """Values of --set are not scaled, those of the file are, and each change is listed."""
    given = ["problem.velocity=0.5", "problem.base.joints=7.0", "problem.contact_parameters.creep=0.3"]
    config = load_config(CONFIGS / "hyq_free_walk.toml", [*given, f"problem.robot={small_hyq}"])
    s, scale = config.problem, Scale(MASSES, LENGTHS)
    assert (s.velocity, s.base.joints, s.contact_parameters["creep"]) == (0.5, 7.0, 0.3)
    assert s.dt == pytest.approx(0.02 * TIMES, rel=1e-9)
    assert s.clearance == pytest.approx(0.05 * LENGTHS, rel=1e-9)
    assert s.base.attitude == pytest.approx(3e3 / TIMES, rel=1e-9)
    assert s.contact_parameters["stiffness"] == pytest.approx(2e4 * scale.factor((1, 0, -2)), rel=1e-9)
    listed = "\n".join(config.notes)
    for key in (
        "dt: 0.02 ->",
        "clearance: 0.05 ->",
        "base.attitude: 3000 ->",
        "contact_parameters.stiffness: 2e+04 ->",
    ):
        assert f"problem.{key}" in listed
    assert not any(f"problem.{key}:" in listed for key in ("velocity", "base.joints", "contact_parameters.creep"))
    assert config.replan.period == 0.01 and "times of [replan] are not scaled: period 0.01 s" in listed


def test_numbers_of_a_file_are_for_the_robot_it_names(small_hyq, tmp_path):
    """A robot in the same file as the numbers changes none of them; only defaults, those of HyQ, are scaled to it."""
    path = tmp_path / "own.toml"
    path.write_text(f'[problem]\nname = "free_gait"\nrobot = "{small_hyq}"\nvelocity = 0.5\n')
    config = load_config(path)
    assert config.problem.velocity == 0.5
    assert config.problem.dt == pytest.approx(0.02 * TIMES, rel=1e-9)
    (note,) = config.notes
    assert note.startswith(f"defaults for hyq are scaled to {build_task(config).ocp.model.name} (masses x")
    assert load_config(path, [f"problem.robot={small_hyq}"]).problem == config.problem
    back = load_config(path, ["problem.robot=hyq"])
    assert back.problem.dt == pytest.approx(0.02, rel=1e-9)
    saved = tmp_path / "saved.toml"
    saved.write_text(to_toml(config.as_dict()))
    again = load_config(saved)
    assert (again.problem, again.notes) == (config.problem, ())


def test_heights_and_postures_are_carried_over(small_hyq):
    config = load_config(CONFIGS / "hyq_jump.toml", [f"problem.robot={small_hyq}"])
    s = config.problem
    assert s.height == pytest.approx(0.572 * LENGTHS, abs=1e-4)
    assert s.waypoint.height == pytest.approx(1.0 * LENGTHS, abs=1e-4)
    assert s.waypoint.start == pytest.approx(0.45 * TIMES, rel=1e-9)
    original = load_config(CONFIGS / "hyq_jump.toml").problem
    assert s.guess_push.joints == pytest.approx(original.guess_push.joints, abs=1e-3)
    assert s.joints == pytest.approx(original.joints, abs=1e-3)
    own = load_config(CONFIGS / "hyq_jump.toml", [f"problem.robot={small_hyq}", "problem.height=0.2"]).problem
    assert own.height == 0.2 and own.waypoint.height == s.waypoint.height


def test_saved_numbers_are_not_scaled(small_hyq, tmp_path):
    config = load_config(CONFIGS / "hyq_free_walk.toml", ["problem.velocity=0.5", f"problem.robot={small_hyq}"])
    path = tmp_path / "saved.toml"
    path.write_text(to_toml(config.as_dict()), encoding="utf-8")
    again = load_config(path)
    assert again.notes == () and again.problem == config.problem


def test_rows_of_a_study_scale_the_keys_that_are_not_varied(small_hyq):
    base = load_config(CONFIGS / "hyq_free_walk.toml", ["problem.velocity=0.5"])
    row = FromConfig.from_config(base).config({"problem.robot": small_hyq, "problem.clearance": 0.01}).problem
    assert (row.velocity, row.clearance) == (0.5, 0.01)
    assert row.dt == pytest.approx(0.02 * TIMES, rel=1e-9)


def test_units_of_weights():
    assert running_weight(TORQUE) == (-2, -4, 3)
    assert terminal_weight(LENGTH) == (0, -2, 0)
    scale = Scale(mass=0.5, length=0.25)
    assert scale.time == 0.5
    assert scale.scaled((2.0, 4.0), TORQUE) == (2.0 * 0.125, 4.0 * 0.125)


def test_default_trot_is_that_of_hyq_in_other_units(small_hyq, tmp_path):
    """A quadruped_gait with only a robot and a distance has a cost, and equal costs for a scaled copy of the robot."""
    costs = []
    for robot, distance in (("hyq", 0.5), (small_hyq, 0.5 * LENGTHS)):
        path = tmp_path / "own.toml"
        path.write_text(
            f'engine = "numpy"\n[problem]\nname = "quadruped_gait"\nrobot = "{robot}"\ndistance = {distance}\n'
        )
        config = load_config(path)
        task = build_task(config)
        assert len(task.easier) == 1
        assert task.ocp.times[-1] == pytest.approx(2.5 * (1.0 if robot == "hyq" else TIMES))
        costs.append(float(StageEvaluator(task.ocp).cost(task.start.xs[None], task.start.us[None])[0]))
    assert costs[0] > 1e4
    assert costs[1] == pytest.approx(costs[0], rel=1e-6)


def on_sliding_legs(path: Path, mass: float, length: float) -> str:
    """Write a quadruped of this mass [kg] whose legs, of this length [m], slide; return its path."""

    def link(name, share):
        m, i = share * mass, 0.1 * share * mass * length**2
        return (
            f'<link name="{name}"><inertial><mass value="{m}"/><inertia ixx="{i}" iyy="{i}" izz="{i}" ixy="0" ixz="0" iyz="0"/>'
            "</inertial></link>"
        )

    def joint(name, kind, above, at, axis):
        xyz = " ".join(f"{length * v:.12g}" for v in at)
        return (
            f'<joint name="{name}_joint" type="{kind}"><parent link="{above}"/><child link="{name}"/><origin xyz="{xyz}"/>'
            f'<axis xyz="{axis}"/><limit lower="-2" upper="2" effort="0" velocity="0"/></joint>'
        )

    parts = [link("trunk", 0.6)]
    for leg, x, y in (("lf", 0.6, 0.3), ("rf", 0.6, -0.3), ("lh", -0.6, 0.3), ("rh", -0.6, -0.3)):
        chain = [
            ("trunk", "hip", "revolute", (x, y, 0), "1 0 0"),
            ("hip", "thigh", "revolute", (0, 0, 0), "0 1 0"),
            ("thigh", "slider", "prismatic", (0, 0, -0.5), "0 0 -1"),
            ("slider", "foot", "fixed", (0, 0, -0.5), "0 0 1"),
        ]
        for above, name, kind, at, axis in chain:
            parts.append(link(f"{leg}_{name}", 0.025))
            parts.append(joint(f"{leg}_{name}", kind, above if above == "trunk" else f"{leg}_{above}", at, axis))
    path.write_text(f'<robot name="slider">{"".join(parts)}</robot>', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("problem", ["scheduled_gait", "quadruped_gait", "free_gait", "receding_gait"])
def test_sliding_legs_have_the_same_problem_in_other_units(problem, tmp_path):
    mass, length = 0.1, 0.25
    costs = []
    for m, L in ((60.0, 0.8), (60.0 * mass, 0.8 * length)):
        file = tmp_path / "own.toml"
        robot = on_sliding_legs(tmp_path / f"{L}.urdf", m, L)
        file.write_text(f'engine = "numpy"\n[problem]\nname = "{problem}"\nrobot = "{robot}"\n', encoding="utf-8")
        task = build_task(load_config(file))
        unit = task.ocp.model.dof_units[6:]
        of_joint, force = (np.where([u == "m" for u in unit], one, other) for one, other in ((L, 1.0), (m, m * L)))
        moved = np.random.default_rng(3).uniform(-0.1, 0.1, (2, task.ocp.horizon + 1, 12))
        xs, us = np.tile(task.ocp.x0, (task.ocp.horizon + 1, 1)), task.start.us + force * 9.81 * moved[0, :-1]
        xs[:, 7:19] += of_joint * moved[0]
        xs[:, 25:] += of_joint / L**0.5 * moved[1]
        costs.append(float(StageEvaluator(task.ocp).cost(xs[None], us[None])[0]))
    assert costs[1] == pytest.approx(costs[0], rel=1e-3)
