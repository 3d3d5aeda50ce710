"""MuJoCo as an independent plant: the same free dynamics, states converted both ways, and its ground: standing, and sliding with
too little friction.
"""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import forward_dynamics
from dynamics_backends.rigid_body.mjcf.loader import load_mjcf
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.legged.robot.walker import LeggedRobot
from problems.robots import load_robot, robot_path
from trajopt import SampledSystem
from trajopt.replanning.mujoco_plant import MujocoGround, MujocoPlant, load_mujoco
from trajopt.replanning.sampled_plant import Push, SampledPlant

mujoco = pytest.importorskip("mujoco")

ROBOTS = ("cart_pole", "double_pendulum", "gen3", "iiwa7", "irb4600", "hyq")


def plant_of(name, x=None, **options):
    """A robot, a plant of it in a random state, and the random numbers."""
    model, rng = load_robot(name), np.random.default_rng(5)
    if x is None:
        x = np.concatenate([model.random_configuration(rng), rng.standard_normal(model.nv)])
    urdf = robot_path(name).read_text(encoding="utf-8")
    return model, MujocoPlant(urdf, model, x, 0.001, **options), x, rng


@pytest.mark.parametrize("name", ROBOTS)
def test_accelerations_are_those_of_the_project(name):
    model, plant, x, rng = plant_of(name)
    for _ in range(5):
        q, v = model.random_configuration(rng), rng.standard_normal(model.nv)
        tau = 10.0 * rng.standard_normal(model.nv)
        expected = forward_dynamics(model, q, v, tau - model.damping * v)
        a = plant.acceleration(np.concatenate([q, v]), tau)
        np.testing.assert_allclose(a, expected, rtol=0.0, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(plant.state(), x, atol=1e-14)


@pytest.mark.parametrize("name", ["cart_pole", "gen3", "hyq"])
def test_springs_are_those_of_the_model(name):
    model, rng = load_robot(name), np.random.default_rng(6)
    free = np.arange(model.nv) < (6 if model.floating_base else 0)
    stiffness, reference = np.where(free, 0.0, rng.uniform(10.0, 50.0, (2, model.nv)))
    sprung = model.replace(stiffness=stiffness, spring_reference=reference)
    x = np.concatenate([model.random_configuration(rng), rng.standard_normal(model.nv)])
    plant = MujocoPlant(robot_path(name).read_text(encoding="utf-8"), sprung, x, 0.001)
    q, v = x[: model.nq], x[model.nq :]
    angles = np.concatenate([np.zeros(free.sum()), q[len(q) - (~free).sum() :]])
    expected = forward_dynamics(model, q, v, -stiffness * (angles - reference) - model.damping * v)
    np.testing.assert_allclose(plant.acceleration(x, np.zeros(model.nv)), expected, rtol=1e-9, atol=1e-9)


def test_a_sprung_mass_swings_at_its_frequency():
    """x = x_0 + a cos(w t) with w^2 = k / m, about the reference of the spring."""
    urdf = """<robot name="mass"><link name="rail"/><link name="block"><inertial><mass value="2"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="slide" type="prismatic"><parent link="rail"/><child link="block"/><axis xyz="1 0 0"/>
    <limit lower="-9" upper="9" effort="9" velocity="9"/>
    <dynamics spring_stiffness="50" spring_reference="0.3"/></joint></robot>"""
    plant = MujocoPlant(urdf, load_urdf(urdf), np.array([0.5, 0.0]), 0.001)
    for k in range(1, 40):
        plant.step(np.zeros(1), 0.02)
        np.testing.assert_allclose(plant.state()[0], 0.3 + 0.2 * np.cos(5.0 * 0.02 * k), atol=1e-9)


MJCF = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="hip" type="hinge" axis="0 1 0" ref="0.2"
    stiffness="3" springref="0.7"/><geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5"/>
    <body pos="0 0 -0.5"><joint name="ball" type="ball"/><geom type="box" size="0.1 0.05 0.2"/>
    <body pos="0 0 -0.5"><joint name="knee" type="slide" axis="1 0 0" stiffness="5"/><geom type="sphere" size="0.1"/></body>
    </body></body></worldbody></mujoco>"""


def test_springs_of_an_mjcf_are_those_of_the_model():
    """Springs replaced or removed in the model are replaced or removed in MuJoCo."""
    model = load_mjcf(MJCF)
    q = model.neutral()
    for stiffness in (model.stiffness, 4.0 * model.stiffness, 0.0 * model.stiffness):
        sprung = model.replace(stiffness=stiffness, spring_reference=model.spring_reference + 0.1)
        plant = MujocoPlant(MJCF, sprung, np.concatenate([q, np.zeros(model.nv)]), 0.001)
        angles = np.array([q[0], 0.0, 0.0, 0.0, q[5]])
        expected = forward_dynamics(model, q, np.zeros(5), -stiffness * (angles - sprung.spring_reference))
        found = plant.acceleration(np.concatenate([q, np.zeros(5)]), np.zeros(5))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::trajopt.MJCFWarning")
@pytest.mark.parametrize("ground", [None, MujocoGround(feet=("tip",))])
def test_controls_carry_the_weight_of_bodies_with_gravity_compensation(ground):
    """A level arm of mass m and length l stays at rest under the torque -m g l about y, as without `gravcomp`."""
    mjcf = """<mujoco><worldbody><body pos="0 0 2" gravcomp="1"><joint name="hinge" axis="0 1 0"/>
    <inertial pos="0.5 0 0" mass="2" diaginertia="0.1 0.1 0.1"/><site name="tip" pos="1 0 0"/></body></worldbody></mujoco>"""
    plant = MujocoPlant(mjcf, load_mjcf(mjcf), np.zeros(2), 0.001, ground=ground)
    plant.step(np.array([-2.0 * 9.81 * 0.5]), 0.5)
    np.testing.assert_allclose(plant.state(), 0.0, atol=1e-9)


@pytest.mark.skipif(not hasattr(mujoco.MjModel, "actuator_armature"), reason="newer versions of MuJoCo only")
def test_damping_and_rotor_inertia_of_actuators_count_once():
    text = """<mujoco><worldbody><body><joint name="hinge" axis="0 1 0"/><geom type="capsule" size="0.02 0.2" pos="0 0 0.2"/></body>
    </worldbody><actuator><position joint="hinge" gear="3" kp="9" armature="0.1" damping="0.4"/></actuator></mujoco>"""
    model = load_mjcf(text)
    assert model.armature[0] == pytest.approx(0.9) and model.damping[0] == pytest.approx(3.6)
    x = np.array([0.4, 2.0])
    expected = forward_dynamics(model, x[:1], x[1:], np.array([0.5]) - model.damping * x[1:])
    found = MujocoPlant(text, model, x, 0.001).acceleration(x, np.array([0.5]))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["gen3", "hyq"])
def test_states_are_converted_both_ways(name):
    _, plant, x, _ = plant_of(name)
    states = plant._states
    qpos, qvel = states.to_mujoco(x)
    np.testing.assert_allclose(states.from_mujoco(qpos, qvel), x, atol=1e-14)
    again = states.to_mujoco(states.from_mujoco(qpos, qvel))
    np.testing.assert_allclose(again[0], qpos, atol=1e-14)
    np.testing.assert_allclose(again[1], qvel, atol=1e-14)


def test_a_floating_base_turned_by_hand():
    """Base turned by a right angle about z: its x axis is the world's y."""
    model = load_robot("hyq")
    s = np.sqrt(0.5)
    q = np.concatenate([[1.0, 2.0, 3.0, 0.0, 0.0, s, s], np.zeros(12)])
    v = np.concatenate([[0.7, 0.0, 0.0, 0.1, 0.2, 0.3], np.zeros(12)])
    _, plant, _, _ = plant_of("hyq", np.concatenate([q, v]))
    qpos, qvel = plant._data.qpos, plant._data.qvel
    np.testing.assert_allclose(qpos[:7], [1.0, 2.0, 3.0, s, 0.0, 0.0, s], atol=1e-15)
    np.testing.assert_allclose(qvel[:6], [0.0, 0.7, 0.0, 0.1, 0.2, 0.3], atol=1e-15)
    assert model.floating_base


@pytest.mark.parametrize("name", ["double_pendulum", "hyq"])
def test_motions_agree_with_the_simulated_plant(name):
    model = load_robot(name)
    pushes = [Push(0.02, 0.03, np.linspace(-1.0, 1.0, model.nv))]
    forces = np.eye(model.nv)[:, model.nv - 2 :]
    _, plant, x, _ = plant_of(name, forces=forces, pushes=pushes, limit=0.5)
    body = FreeBody(model, actuated=model.dof_names)
    own = SampledPlant(SampledSystem(make_backend(body), "rk4"), x, 0.001, forces=forces, pushes=pushes, limit=0.5)
    for k in range(20):
        for one in (plant, own):
            one.step(np.array([0.3, 2.0 * np.sin(k)]), 0.004)
    manifold = body.manifold
    # Forces on a base are held in the world there, in the body here, over a step of 1 ms.
    assert np.abs(manifold.difference(own.state()[:, None], plant.state()[:, None])).max() < 1e-4


def test_simulated_mass_errors():
    model, plant, x, rng = plant_of("gen3", mass_factor=1.3)
    heavy = model.replace(mass=1.3 * model.mass, inertia=1.3 * model.inertia)
    tau = rng.standard_normal(model.nv)
    expected = forward_dynamics(heavy, x[: model.nq], x[model.nq :], tau)
    np.testing.assert_allclose(plant.acceleration(x, tau), expected, rtol=1e-9)


def test_other_robots_and_controls_are_refused():
    model = load_robot("gen3")
    with pytest.raises(ValueError, match="load the same URDF"):
        MujocoPlant(robot_path("iiwa7").read_text(encoding="utf-8"), model, np.zeros(14), 0.001)
    _, plant, _, _ = plant_of("cart_pole")
    with pytest.raises(ValueError, match="not finite"):
        plant.step(np.array([np.nan, 0.0]), 0.001)


MASSLESS = """<robot name="camera"><link name="root"><inertial><mass value="0"/>
  <inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="trunk"><inertial><origin xyz="0.1 0 0.02"/><mass value="3"/>
    <inertia ixx="0.03" iyy="0.05" izz="0.04" ixy="0.001" ixz="0.002" iyz="-0.003"/></inertial></link>
  <link name="eye"><inertial><mass value="0.2"/>
    <inertia ixx="0.001" iyy="0.0001" izz="0.0001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="leg"><inertial><origin xyz="0 0 -0.2"/><mass value="1"/>
    <inertia ixx="0.02" iyy="0.02" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="bolt" type="fixed"><origin xyz="0 0.1 0.2" rpy="0.3 0.2 0.1"/><parent link="root"/><child link="trunk"/></joint>
  <joint name="mount" type="fixed"><origin xyz="0.2 0 0"/><parent link="trunk"/><child link="eye"/></joint>
  <joint name="hip" type="revolute"><origin xyz="0 0 -0.1" rpy="0 0 1"/><parent link="trunk"/><child link="leg"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="9" velocity="9"/></joint></robot>"""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_link_without_mass_moves_with_its_assumed_rotor():
    """The model's rotor inertia of 0.001 keeps the mass matrix of the wrist positive definite."""
    wrist = """<link name="wrist"/><joint name="roll" type="continuous"><origin xyz="0 0 -0.4"/><parent link="leg"/>
      <child link="wrist"/><axis xyz="0 0 1"/></joint></robot>"""
    text = MASSLESS.replace("</robot>", wrist)
    model, rng = load_urdf(text, base="floating"), np.random.default_rng(3)
    x = np.concatenate([model.random_configuration(rng), rng.standard_normal(model.nv)])
    tau = rng.standard_normal(model.nv)
    expected = forward_dynamics(model, x[: model.nq], x[model.nq :], tau)
    found = MujocoPlant(text, model, x, 0.001).acceleration(x, tau)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_links_that_mujoco_rejects_are_converted():
    """A massless root, and a camera with impossible moments of inertia."""
    import mujoco

    from trajopt.replanning.mujoco_plant import mujoco_urdf

    with pytest.raises(ValueError, match="inertia"):
        mujoco.MjModel.from_xml_string(mujoco_urdf(MASSLESS, True))
    model, rng = load_urdf(MASSLESS, base="floating"), np.random.default_rng(2)
    q, v = model.random_configuration(rng), rng.standard_normal(model.nv)
    plant = MujocoPlant(MASSLESS, model, np.concatenate([q, v]), 0.001)
    tau = rng.standard_normal(model.nv)
    expected = forward_dynamics(model, q, v, tau)
    np.testing.assert_allclose(plant.acceleration(np.concatenate([q, v]), tau), expected, rtol=1e-9, atol=1e-9)


def test_mujoco_takes_rotations_by_quaternions():
    arm = """<robot name="arm"><link name="ground"/><link name="rod"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
    <inertia ixx="1" iyy="2" izz="2.5" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="turn" type="continuous"><origin quat_xyzw="0.48 0 0.6 0.64"/><parent link="ground"/>
    <child link="rod"/></joint></robot>"""
    model = load_urdf(arm)
    plant = MujocoPlant(arm, model, np.array([0.5, 1.0]), 0.001)
    expected = forward_dynamics(model, np.array([0.5]), np.array([1.0]), np.array([0.3]))
    np.testing.assert_allclose(plant.acceleration(np.array([0.5, 1.0]), np.array([0.3])), expected, rtol=1e-9)


ROD = """<robot name="rod"><link name="ground"/><link name="rod"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
<inertia ixx="1" iyy="2" izz="2.5"/></inertial></link>
<joint name="turn" type="revolute"><limit lower="1" upper="-1" effort="1" velocity="1"/><axis xyz="0 1 0"/><parent link="ground"/>
<child link="rod"/></joint></robot>"""
UNUSUAL = {
    "missing products of inertia": ROD,
    "late declaration": f"\n<?xml version='1.0'?>\n{ROD}",
    "encoding": "<?xml version='1.0' encoding='iso-8859-1'?>" + ROD.replace('name="rod">', 'name="R\xf6b">', 1),
    "prefix": ROD.replace("</robot>", "<gz:sensor/></robot>"),
    "repetition": ROD.replace("</inertial>", '</inertial><inertial><mass value="9"/></inertial>'),
    "point mass": ROD.replace('<inertia ixx="1" iyy="2" izz="2.5"/>', ""),
}


@pytest.mark.filterwarnings("ignore::trajopt.URDFWarning")
@pytest.mark.parametrize("name", UNUSUAL)
def test_mujoco_takes_what_the_loader_reads(name, tmp_path):
    path = tmp_path / "rod.urdf"
    path.write_bytes(UNUSUAL[name].encode("iso-8859-1"))
    model = load_urdf(path)
    plant = MujocoPlant(path, model, np.array([0.5, 1.0]), 0.001)
    expected = forward_dynamics(model, np.array([0.5]), np.array([1.0]), np.array([0.3]))
    np.testing.assert_allclose(plant.acceleration(np.array([0.5, 1.0]), np.array([0.3])), expected, rtol=1e-6)


def test_planar_joints_are_refused():
    text = """<robot name="slab"><link name="ground"/><link name="body"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="slide" type="planar"><parent link="ground"/><child link="body"/><axis xyz="0 0 1"/></joint></robot>"""
    model = load_urdf(text)
    with pytest.raises(ValueError):
        MujocoPlant(text, model, np.zeros(6), 0.001)


def test_floating_joints_with_an_origin_are_refused():
    """MuJoCo takes the coordinates of a free joint for the pose in the world."""
    text = """<robot name="body"><link name="ground"/><link name="body"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="free" type="floating"><origin rpy="{roll} 0 0"/><parent link="ground"/><child link="body"/></joint></robot>"""
    x0 = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, *np.zeros(6)])
    assert MujocoPlant(text.format(roll=0), load_urdf(text.format(roll=0)), x0, 0.001).state().shape == (13,)
    with pytest.raises(ValueError, match="'free' has an origin in the file"):
        MujocoPlant(text.format(roll=1), load_urdf(text.format(roll=1)), x0, 0.001)


def test_a_urdf_is_given_by_its_path_or_as_text():
    path, model = robot_path("cart_pole"), load_robot("cart_pole")
    text = path.read_text(encoding="utf-8")
    masses = [load_mujoco(source, model)[0].body_mass for source in (path, str(path), text)]
    np.testing.assert_array_equal(masses[1], masses[0])
    np.testing.assert_array_equal(masses[2], masses[0])


FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")


def stood(seconds: float, lift: float = 0.0, **ground):
    """State of HyQ after holding its posture for ``seconds``, and the ground force as a fraction of its weight."""
    standing = LeggedRobot(robot="hyq").stand()
    model, forces = standing.model, np.eye(standing.model.nv)[:, 6:]
    x0 = np.concatenate([standing.q, np.zeros(model.nv)])
    x0[2] += lift
    plant = MujocoPlant(robot_path("hyq"), model, x0, 1e-3, forces=forces, ground=MujocoGround(feet=FEET, **ground))
    for _ in range(round(seconds / 0.001)):
        x = plant.state()
        plant.step(600.0 * (standing.joints - x[7:19]) - 20.0 * x[25:], 0.001)
    assert not any(warning.number for warning in plant._data.warning)
    total = sum(_normal_force(plant, i) for i in range(plant._data.ncon))
    return x0, plant.state(), total / (model.total_mass * 9.81)


def _normal_force(plant, i):
    import mujoco

    force = np.zeros(6)
    mujoco.mj_contactForce(plant._model, plant._data, i, force)
    return force[0]


def test_a_robot_stands_with_its_weight_on_its_feet():
    x0, x, carried = stood(1.0)
    assert carried == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(x[:2], x0[:2], atol=5e-3)
    assert abs(x[2] - x0[2]) < 0.03


def test_it_slides_where_the_slope_is_steeper_than_friction():
    assert stood(0.6, slope=0.1, friction=0.7)[1][0] > -0.06
    assert stood(0.6, slope=0.1, friction=0.02)[1][0] < -0.09


def test_boxes_stand_on_the_plane():
    _, x, _ = stood(0.6, lift=0.05, boxes=[(0.0, 0.0, 2.0, 2.0, 0.05)])
    _, level, _ = stood(0.6)
    assert x[2] - level[2] == pytest.approx(0.05, abs=2e-3)


def test_invalid_ground_parameters_are_refused():
    with pytest.raises(ValueError, match="feet is empty"):
        MujocoGround(feet=())
    with pytest.raises(ValueError, match="radius = 0.0.*give a positive radius"):
        MujocoGround(feet=FEET, radius=0.0)


HOPPER = """<mujoco><worldbody><body name="post"><geom name="post" size="0.1"/><site name="bolt"/></body>
  <body pos="0 0 1"><joint name="rail" type="slide" axis="0 0 1"/><geom name="trunk" size="0.1"/>
    <body pos="0 0 -0.5"><joint name="knee" axis="0 1 0"/><geom size="0.1"/><site name="toe" pos="0 0 -0.2"/></body></body>
  </worldbody><contact><pair geom1="post" geom2="trunk"/></contact></mujoco>"""


def test_only_feet_touch_the_ground_also_on_unnamed_bodies():
    model = to.load_mjcf(HOPPER)
    simulated, _ = load_mujoco(HOPPER, model, MujocoGround(feet=("toe",)))
    assert simulated.npair == 0
    (foot,) = [g for g in range(simulated.ngeom) if simulated.geom_contype[g] == 1]
    assert simulated.geom_bodyid[foot] == 3
    np.testing.assert_allclose(simulated.geom_pos[foot], [0, 0, -0.2])


def test_a_foot_on_a_fixed_body_is_refused():
    with pytest.raises(ValueError, match="the foot 'bolt' is fixed to the world"):
        load_mujoco(HOPPER, to.load_mjcf(HOPPER), MujocoGround(feet=("bolt",)))


CELL = """<mujoco><compiler angle="radian"/><worldbody>
<body name="arm" euler="0.3 0.1 0"><joint name="a" axis="0 0 1"/><geom type="box" size="0.1 0.05 0.2" pos="0 0 0.2"/>
 <body pos="0.1 0 0.4" euler="0 0.5 0.2"><joint axis="0 1 0"/><geom type="capsule" size="0.04 0.15" pos="0 0 0.2"/>
  <frame pos="0 0 0.1" euler="0.2 0 0.3">
  <body name="wrist" pos="0 0 0.3" axisangle="1 0 0 0.4"><joint name="c" axis="1 0 0" pos="0.02 0 0.01"/>
   <geom type="box" size="0.03 0.05 0.1"/>
   <body name="finger" pos="0 0.1 0.1"><joint name="slide" type="slide" axis="0 1 0" range="0 0.1"/><geom size="0.03"/></body>
   <body name="thumb" pos="0 -0.1 0.1"><joint name="mirrored" type="slide" axis="0 -1 0"/><geom size="0.03"/></body>
  </body></frame></body></body>
<body name="cube" pos="1 0 0"><freejoint/><geom type="box" size="0.1 0.1 0.1"/>
 <body name="lid" pos="0 0 0.1"><joint name="lid" axis="0 1 0"/><geom size="0.05"/></body></body></worldbody>
<equality><joint joint1="mirrored" joint2="slide"/></equality>
<actuator><motor joint="a"/><motor joint="c"/><position joint="slide"/></actuator>
<keyframe><key qpos="0 0.1 0.2 0 0 1 0 0 1 0 0 0 0"/></keyframe></mujoco>"""


@pytest.mark.filterwarnings("ignore::trajopt.MJCFWarning")
@pytest.mark.parametrize("ground", [None, MujocoGround(feet=("wrist",))])
def test_locked_joints_and_omitted_objects_are_gone(ground):
    model = load_mjcf(CELL, base="fixed", locked={"c": 0.7, "slide": 0.04, "mirrored": 0.02})
    assert model.joint_names == ("a", "body2_joint")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4)
    plant = MujocoPlant(CELL, model, x, 0.001, ground=ground)
    for _ in range(4):
        x, tau = rng.standard_normal(4), rng.standard_normal(2)
        expected = forward_dynamics(model, x[:2], x[2:], tau - model.damping * x[2:])
        np.testing.assert_allclose(plant.acceleration(x, tau), expected, rtol=1e-9, atol=1e-9)


HAND = """<robot name="hand"><link name="base"/>{links}
<joint name="a" type="revolute"><parent link="base"/><child link="a"/><origin xyz="0.1 0 0.3" rpy="0.2 0 0"/><axis xyz="0 1 0"/>
<limit lower="-2" upper="2" effort="9" velocity="9"/></joint>
<joint name="plate" type="fixed"><parent link="a"/><child link="b"/><origin xyz="0.3 0.1 0" rpy="0 0.4 0.1"/></joint>
<joint name="c" type="prismatic"><parent link="b"/><child link="c"/><origin xyz="0 0.2 0.1" rpy="0.3 0 0"/><axis xyz="1 0 0"/>
<limit lower="0" upper="1" effort="9" velocity="9"/></joint></robot>"""
LINK = """<link name="{0}"><inertial><origin xyz="0.05 0.02 0.1"/><mass value="1.2"/>
<inertia ixx="0.03" iyy="0.04" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>"""


@pytest.mark.parametrize(("name", "locked"), [("gen3", {1: 0.8, 4: -1.1}), ("hand", {1: 0.3})])
def test_locked_joints_of_a_urdf_are_gone(name, locked):
    """The locked joint of the hand hangs on a fixed one."""
    hand = HAND.format(links="".join(map(LINK.format, "abc")))
    urdf = hand if name == "hand" else robot_path(name).read_text(encoding="utf-8")
    joints = load_urdf(urdf).joint_names
    model = load_urdf(urdf, locked={joints[i]: value for i, value in locked.items()})
    rng = np.random.default_rng(1)
    x, tau = rng.standard_normal(2 * model.nv), rng.standard_normal(model.nv)
    plant = MujocoPlant(urdf, model, x, 0.001)
    expected = forward_dynamics(model, x[: model.nq], x[model.nq :], tau - model.damping * x[model.nq :])
    np.testing.assert_allclose(plant.acceleration(x, tau), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::trajopt.MJCFWarning")
def test_connected_bodies_keep_their_places_beside_a_locked_joint():
    rod = '<body name="{0}" pos="{1} 0 0"><joint name="{0}" axis="0 1 0"/><geom type="capsule" size="0.02 0.1"/>{2}</body>'
    left = rod.format("left", "-0.3", rod.format("end", "0.2", ""))
    connect = '<equality><connect body1="end" body2="right" anchor="0.1 0 0"/></equality>'
    text = f"<mujoco><worldbody>{left}{rod.format('right', '0.3', '')}</worldbody>{connect}</mujoco>"
    free, _ = load_mujoco(text, load_mjcf(text))
    model = load_mjcf(text, locked={"end": 0.6})
    locked, _ = load_mujoco(text, model)
    np.testing.assert_allclose(locked.eq_data, free.eq_data, atol=1e-12)
    plant = MujocoPlant(text, model, np.zeros(4), 0.001)
    np.testing.assert_allclose(plant._model.eq_data, free.eq_data, atol=1e-12)


@pytest.mark.filterwarnings("ignore::trajopt.MJCFWarning")
def test_connections_within_a_body_with_locked_joints_have_no_effect():
    """A locked joint opens the loop of a hanging pair, which swings as one body."""
    lower = '<body name="lower" pos="0 0 -0.4"><joint name="knee" axis="0 1 0"/><geom type="capsule" size="0.02 0.2"/></body>'
    upper = f'<body name="upper"><joint name="hip" axis="0 1 0"/><geom type="capsule" size="0.02 0.2"/>{lower}</body>'
    connect = '<connect body1="upper" body2="lower" anchor="0.1 0 -0.3"/>'
    text = f"<mujoco><worldbody>{upper}</worldbody><equality>{connect}</equality></mujoco>"
    model = load_mjcf(text, locked={"knee": 0.5})
    plant = MujocoPlant(text, model, np.array([0.3, 0.0]), 0.001)
    expected = forward_dynamics(model, np.array([0.3]), np.zeros(1), np.zeros(1))
    np.testing.assert_allclose(plant.acceleration(np.array([0.3, 0.0]), np.zeros(1)), expected, rtol=1e-8)


PENDULUM_ON_CART = """<mujoco><worldbody><body><joint name="slider" type="slide" axis="1 0 0"/><geom size="0.1" mass="2"/>
<body><joint name="hinge" axis="0 1 0"/><geom type="capsule" size="0.02 0.2" pos="0 0 0.2" mass="0.5"/></body></body>
</worldbody><equality><joint joint1="hinge" joint2="slider" polycoef="0 3 0 0 0"/></equality></mujoco>"""


@pytest.mark.filterwarnings("ignore::trajopt.MJCFWarning")
def test_sizes_that_do_not_fit_are_explained():
    model = load_mjcf(PENDULUM_ON_CART)
    plant = MujocoPlant(PENDULUM_ON_CART, model, np.zeros(4), 0.001)
    with pytest.raises(ValueError, match=r"u has shape \(1,\), and the plant maps 2 controls .* give forces"):
        plant.step(np.zeros(1), 0.01)
    coupled = load_mjcf(PENDULUM_ON_CART, mimic="follow")
    with pytest.raises(ValueError, match=r"x0 has shape \(2,\); expected \(nq \+ nv = 4,\).* mimic = 'free'"):
        MujocoPlant(PENDULUM_ON_CART, coupled, np.zeros(2), 0.001)
