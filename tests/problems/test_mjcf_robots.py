"""Problems, scenes, pictures and plants of robots from MJCF files."""

from __future__ import annotations

import numpy as np
import pytest
from mjcf_robots import ARM, quadruped, spider, waisted

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.geometry.link_shapes import link_shapes
from dynamics_backends.rigid_body.mjcf.loader import mjcf_postures
from experiments.cli.main import main
from problems.arms.arm import Arm
from problems.arms.arm_go_to import Settings, build
from problems.arms.scenes.scene_robot import scene_robot
from problems.arms.scenes.scene_settings import load_scene
from problems.legged.robot.stance import CROUCH, Stance
from problems.legged.robot.walker import LeggedRobot
from problems.robots.loading import load_fixed_base, load_floating_base
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
    assert "arm: 3 bodies" in out.out and "note: no actuator drives a joint, yet it has a control here: bend" in out.out


def test_forces_without_an_actuator_are_a_warning(arm):
    posed = {"robot": arm, "q0": {"lift": 0.2}, "goal_q": {"lift": 0.4}}
    (warning,) = build(Settings(**posed), make_backend).warnings
    assert warning.startswith("no actuator drives a joint, yet it has a control here: bend; the robot cannot make")
    assert build(Settings(**posed, locked_joints=("bend",)), make_backend).warnings == ()


def test_objects_in_the_file_of_an_arm_are_not_its_links(tmp_path):
    path = tmp_path / "arm.xml"
    toy = '<body name="toy" pos="1 1 1"><freejoint/><geom size="0.1"/></body></worldbody>'
    path.write_text(ARM.replace("</worldbody>", toy), encoding="utf-8")
    model = load_fixed_base(str(path))
    robot = scene_robot(model)
    assert [shape.link for shape in robot.shapes] == ["stand", "upper", "lower", "hand"]
    assert set(robot.cover.links) == {"stand", "upper", "lower", "hand"}


def test_a_keyframe_is_a_posture_by_name(arm):
    model = load_fixed_base(arm, locked=["bend"])
    np.testing.assert_array_equal(Arm.from_model(model, "home", None, "hand").q0, [0.1, 0.2])
    with pytest.raises(UnknownName, match="did you mean 'home'"):
        Arm.from_model(model, "hom", None, "hand")
    standing = quadruped().replace(
        "</mujoco>", '<keyframe><key name="up" qpos="1 2 3 0.6 0 0 0.8 {}"/></keyframe></mujoco>'
    )
    text = standing.format(" ".join(["0.1 0.2 0.3"] * 4))
    q = mjcf_postures(text).posture(to.load_mjcf(text), "up")
    np.testing.assert_allclose(q[:8], [1, 2, 3, 0, 0, 0.8, 0.6, 0.1])


def test_a_robot_is_shown(arm, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["show", arm])
    assert ended.value.code == 0
    assert "arm: 3 bodies, nq 3, nv 3" in (out := capsys.readouterr().out) and "note: no actuator drives a joint" in out


def test_robot_and_scene_of_one_file(arm):
    shapes = link_shapes(arm, "collision").placed
    assert [shape.link for shape in shapes] == ["stand", "upper", "lower", "hand"]
    assert [body.name for body in load_scene(arm).bodies] == ["table"]
    looks = appearance(load_fixed_base(arm))
    assert not looks.missing and sorted(surface.body for surface in looks.surfaces) == [-1, 1, 2, 2]


def test_feet_and_stance_of_a_quadruped(tmp_path):
    file = tmp_path / "quadruped.xml"
    file.write_text(quadruped(), encoding="utf-8")
    stance = Stance.from_model(load_floating_base(str(file)))
    assert stance.feet == ("FL", "FR", "RL", "RR")
    np.testing.assert_allclose(stance.leg_length, 0.5)
    standing = LeggedRobot(robot=str(file)).carried_over(LeggedRobot(robot="hyq"))[0].stand()
    places = stance.places(standing.joints)
    np.testing.assert_allclose(places[:, 2], places[0, 2], atol=1e-6)


def test_legs_that_point_outward_stand_where_they_reach_the_ground(tmp_path):
    file = tmp_path / "spider.xml"
    file.write_text(spider(), encoding="utf-8")
    stance = Stance.from_model(load_floating_base(str(file)))
    assert stance.heading == 0.0 and stance.feet == ("FL", "FR", "HL", "HR")
    joints = stance.posture()
    np.testing.assert_allclose(joints[::2], 0.0, atol=1e-3)
    np.testing.assert_allclose(stance.places(joints)[:, 2], -CROUCH, atol=1e-3)
    q = stance.configuration(joints)
    at = np.stack([to.frame_placement(stance.model, q, foot)[1] for foot in stance.feet])
    np.testing.assert_allclose(np.abs(at), np.abs(at[0])[None].repeat(4, axis=0), atol=1e-3)
    with pytest.raises(ValueError, match="cannot be at"):
        stance.posture(np.tile([0.0, 0.0, -1.6], (4, 1)))


def test_a_waist_is_no_part_of_the_legs(tmp_path):
    file = tmp_path / "waisted.xml"
    file.write_text(waisted(), encoding="utf-8")
    stance = Stance.from_model(load_floating_base(str(file)))
    assert stance.feet == ("left", "right") and [len(leg.joints) for leg in stance.legs] == [2, 2]
    np.testing.assert_allclose([leg.length for leg in stance.legs], 0.6)
    joints = stance.posture()
    np.testing.assert_array_equal(joints[:2], 0.0)
    assert np.abs(joints[2:]).min() > 0.1
    np.testing.assert_allclose(stance.places(joints), [[0, 0, -CROUCH]] * 2, atol=1e-3)


def test_standing_robots_need_gravity(tmp_path):
    file = tmp_path / "floats.xml"
    file.write_text(quadruped(gravity="0 0 0"), encoding="utf-8")
    with pytest.warns(to.MJCFWarning, match="has no gravity in its file"):
        model = load_floating_base(str(file))
    assert model.gravity[2] == -9.81 and "no gravity" in model.notes[0]


def test_mujoco_keeps_bodies_connected(tmp_path):
    """Two rods hang from two hinges, and their ends are connected: neither can fall without the other."""
    joint = '<body name="{0}" pos="{1} 0 0"><joint name="{0}" axis="0 1 0"/>'
    rod = joint + '<geom type="capsule" size="0.02" fromto="0 0 0 {2} 0 -1"/></body>'
    rods = rod.format("left", "-0.5", "0.5") + rod.format("right", "0.5", "-0.5")
    loop = '<equality><connect body1="left" body2="right" anchor="0.5 0 -1"/></equality>'
    text = f'<mujoco><option timestep="0.001"/><worldbody>{rods}</worldbody>{loop}</mujoco>'
    file = tmp_path / "loop.xml"
    file.write_text(text, encoding="utf-8")
    with pytest.warns(to.MJCFWarning, match="equalities are not part of the free dynamics"):
        model = to.load_mjcf(str(file))
    plant = to.MujocoPlant(file, model, np.zeros(4), 0.001)
    for _ in range(20):
        plant.step(np.array([2.0, 0.0]), 0.01)
    assert np.abs(plant.state()[:2]).max() < 0.01  # alone, the left rod would turn by more than 0.1 rad


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
