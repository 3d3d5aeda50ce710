"""Robots on MuJoCo's ground: standing, and sliding with too little friction."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from problems.legged.robot.walker import LeggedRobot
from problems.robots import robot_path

pytest.importorskip("mujoco")

from trajopt.replanning.mujoco_plant import MujocoGround, MujocoPlant, load_mujoco

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
