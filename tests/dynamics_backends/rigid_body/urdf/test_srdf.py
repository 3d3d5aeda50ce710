"""Reference postures and disabled pairs of SRDF files."""

import numpy as np
import pytest

import trajopt as to
from problems.arms.arm import at_rest

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
URDF = f"""<robot name="crane">
<link name="base">{INERTIAL}</link><link name="arm">{INERTIAL}</link><link name="hook">{INERTIAL}</link>
<joint name="turn" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
<joint name="lift" type="revolute"><parent link="arm"/><child link="hook"/><axis xyz="0 1 0"/>
<limit lower="-2" upper="2" effort="9" velocity="9"/></joint></robot>"""
SRDF = """<?xml version="1.0"?>
<robot name="crane">
  <group name="all"><joint name="turn"/></group>
  <group_state name="ready" group="all"><joint name="turn" value="0.6 0.8"/><joint name="lift" value="-0.5"/>
    <joint name="finger" value="0.01"/></group_state>
  <group_state name="ready" group="hand"><joint name="lift" value="0.25"/></group_state>
  <group_state name="up" group="all"><joint name="root_joint" value="0 0 1.5 0 0 0.6 0.8000001"/></group_state>
  <disable_collisions link1="base" link2="arm" reason="Adjacent"/>
  <disable_collisions link1="arm" link2="hook"/>
</robot>"""


def test_postures_and_pairs():
    model, found = to.load_urdf(URDF), to.load_srdf(SRDF)
    assert found.robot == "crane" and set(found.postures) == {("all", "ready"), ("hand", "ready"), ("all", "up")}
    assert found.disabled == (("base", "arm", "Adjacent"), ("arm", "hook", ""))
    np.testing.assert_allclose(found.posture(model, "ready"), [np.arctan2(0.8, 0.6), -0.5])
    np.testing.assert_allclose(found.posture(model, "ready", group="hand"), [0.0, 0.25])
    floating = to.load_urdf(URDF, base="floating")
    q = found.posture(floating, "up")
    np.testing.assert_allclose(q[:7], [0, 0, 1.5, 0, 0, 0.6, 0.8], atol=1e-6)
    assert np.linalg.norm(q[3:7]) == pytest.approx(1.0, abs=1e-15)
    locked = to.load_urdf(URDF, locked=["lift"])
    np.testing.assert_allclose(found.posture(locked, "ready"), [np.arctan2(0.8, 0.6)])


def test_postures_of_no_group_are_those_of_the_joints_they_name():
    """The form used by three robots of example-robot-data."""
    model, found = to.load_urdf(URDF), to.load_srdf(SRDF.replace(' group="hand"', ""))
    assert set(found.postures) == {("all", "ready"), ("", "ready"), ("all", "up")}
    np.testing.assert_allclose(found.posture(model, "ready", group=""), [0.0, 0.25])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<model/>", "line 1, <model>: an SRDF has <robot> outermost"),
        (SRDF.replace('value="-0.5"', 'value="half"'), "line 4, .*<joint name='lift'>: value is 'half'"),
        (SRDF.replace('value="-0.5"', 'value=" "'), "line 4, .*<joint name='lift'>: value is empty"),
        (SRDF.replace('name="up" ', ""), "line 7, <group_state>"),
        ('<!DOCTYPE r [<!ENTITY a "b">]><robot/>', "entit"),
        (SRDF[:200], "line"),
    ],
)
def test_invalid_files_are_refused(text, what):
    with pytest.raises(to.URDFError, match=f"(?i){what}"):
        to.load_srdf(text)


def test_postures_of_other_robots_are_refused():
    model, found = to.load_urdf(URDF), to.load_srdf(SRDF)
    with pytest.raises(to.UnknownName, match="'redy'.*ready"):
        found.posture(model, "redy")
    with pytest.raises(to.UnknownName, match="root_joint"):
        found.posture(model, "up")
    with pytest.raises(to.URDFError, match="joint 'lift' has 3 values in a posture, and takes 1"):
        to.load_srdf(SRDF.replace('value="0.25"', 'value="1 2 3"')).posture(model, "ready", "hand")


def test_a_posture_in_a_configuration(tmp_path):
    """q0 = "ready" in a config, from an SRDF in a sibling folder of the URDF's."""
    (tmp_path / "urdf").mkdir()
    (tmp_path / "srdf").mkdir()
    file = tmp_path / "urdf" / "crane.urdf"
    file.write_text(URDF)
    model = to.load_urdf(file)
    with pytest.raises(
        ValueError, match="q0 = 'ready' is neither 'zero' nor the name of a posture: no SRDF belongs to .*crane.urdf"
    ):
        at_rest(model, "ready", "q0")
    (tmp_path / "srdf" / "crane_moveit.srdf").write_text(SRDF)
    np.testing.assert_allclose(at_rest(model, "ready", "q0"), [np.arctan2(0.8, 0.6), -0.5, 0.0, 0.0])
    with pytest.raises(ValueError, match="there is no file"):
        at_rest(to.load_urdf(URDF), "ready", "q0")


def test_robots_of_example_robot_data():
    if not to.erd_names():
        pytest.skip("example-robot-data is not installed")
    path = to.robot_path("erd:panda")
    found = to.load_srdf(to.srdf_beside(path))
    q = found.posture(to.load_robot("erd:panda"), "default")
    assert q[3] == pytest.approx(-2.35619)
