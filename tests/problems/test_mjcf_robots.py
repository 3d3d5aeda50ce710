"""Problems, scenes, pictures and plants of robots that come from MJCF files."""

from __future__ import annotations

import numpy as np
import pytest
from mjcf_robots import ARM, quadruped

import trajopt as to
from dynamics_backends.rigid_body.geometry.link_shapes import link_shapes
from experiments.cli.main import main
from problems.arms.scene_settings import load_scene
from problems.legged.stance import Stance
from problems.legged.walker import LeggedRobot
from problems.task import load_fixed_base, load_floating_base
from trajopt.view.surfaces import appearance

pytest.importorskip("mujoco")


@pytest.fixture
def arm(tmp_path):
    file = tmp_path / "arm.xml"
    file.write_text(ARM, encoding="utf-8")
    return str(file)


def test_a_configuration_takes_the_path_of_an_mjcf(arm, capsys):
    overrides = [
        "--set",
        "problem.frame=hand",
        "--set",
        "problem.q0=[0.1,0.2,0.3]",
        "--set",
        "problem.goal_position=[0.3,0.2,0.4]",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["validate", "problems/configs/ur5_reach.toml", "--urdf", arm, *overrides])
    out = capsys.readouterr()
    assert ended.value.code == 0, out.err
    assert (
        "arm: 3 bodies" in out.out
        and "note: no actuator drives a joint alone, yet it has a control here: bend" in out.out
    )


@pytest.mark.numpy
def test_a_reach_from_its_file_alone(arm):
    model = load_fixed_base(arm)
    body = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "semi_implicit_euler")
    goal = to.frame_placement(model, np.array([0.5, 0.6, 0.7]), "hand")[1]
    speed = np.r_[np.zeros(3), np.ones(3)]
    x0 = np.r_[0.1, 0.2, 0.3, np.zeros(3)]
    ocp = to.OCP.single_phase(
        dynamics,
        x0,
        10,
        0.1,
        [to.control_cost(3, weight=1e-4)],
        [
            to.frame_position_cost(model, body.manifold, "hand", goal, 1e4, "goal"),
            to.state_cost(body.manifold, x0, speed, "rest"),
        ],
        model=model,
    )
    solution = to.solve(ocp, solver="slq")
    assert solution.status.success
    np.testing.assert_allclose(to.frame_placement(model, solution.xs[-1, :3], "hand")[1], goal, atol=5e-3)


def test_robot_and_scene_of_one_file(arm):
    shapes = link_shapes(arm, "collision").placed
    assert [shape.link for shape in shapes] == ["stand", "upper", "lower", "hand"]
    assert [body.name for body in load_scene(arm).bodies] == ["table"]
    looks = appearance(load_fixed_base(arm))
    assert not looks.missing and sorted(surface.body for surface in looks.surfaces) == [-1, 1, 2, 2]


def test_feet_and_stance_of_a_quadruped(tmp_path):
    file = tmp_path / "quadruped.xml"
    file.write_text(quadruped(), encoding="utf-8")
    stance = Stance.of(load_floating_base(str(file)))
    assert stance.feet == ("FL", "FR", "RL", "RR")
    np.testing.assert_allclose(stance.leg_length, 0.5)
    standing = LeggedRobot(robot=str(file), sized_for="hyq").stand()
    places = stance.places(standing.joints)
    np.testing.assert_allclose(places[:, 2], places[0, 2], atol=1e-6)


def test_what_stands_has_a_weight(tmp_path):
    file = tmp_path / "floats.xml"
    file.write_text(quadruped(gravity="0 0 0"), encoding="utf-8")
    with pytest.warns(to.MJCFWarning, match="has no gravity in its file"):
        model = load_floating_base(str(file))
    assert model.gravity[2] == -9.81 and "no gravity" in model.notes[0]


def test_mujoco_simulates_the_file_itself(tmp_path):
    file = tmp_path / "quadruped.xml"
    file.write_text(quadruped(), encoding="utf-8")
    model = load_floating_base(str(file))
    rng = np.random.default_rng(0)
    x = np.r_[model.random_configuration(rng), rng.standard_normal(model.nv)]
    plant = to.MujocoPlant(file, model, x, 0.001)
    tau = rng.standard_normal(model.nv)
    expected = to.forward_dynamics(model, x[: model.nq], x[model.nq :], tau)
    np.testing.assert_allclose(plant.acceleration(x, tau), expected, rtol=0.0, atol=1e-10 * np.abs(expected).max())
    with pytest.raises(ValueError, match="cannot be matched with MuJoCo's"):
        to.MujocoPlant(file, load_fixed_base(str(file)), np.zeros(24), 0.001)
