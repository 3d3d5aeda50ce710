"""Cache of loaded robots: the same object with the same warnings, until the file changes."""

import warnings

import pytest

from dynamics_backends.rigid_body.urdf.xml_source import URDFError
from problems.robots import robot_path
from problems.robots.loading import MAX_RECENT, load_fixed_base, load_floating_base

UNTIDY = """<robot name="untidy"><link name="base"/><link name="arm"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="10" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="j" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint></robot>"""


def test_a_robot_is_the_same_object_until_its_file_changes(tmp_path):
    one = load_fixed_base("double_pendulum")
    assert load_fixed_base("double_pendulum") is one
    urdf = tmp_path / "own.urdf"
    urdf.write_text(robot_path("double_pendulum").read_text())
    before = load_fixed_base(str(urdf))
    assert load_fixed_base(str(urdf)) is before is not one
    urdf.write_text(urdf.read_text() + "<!-- changed -->")
    assert load_fixed_base(str(urdf)) is not before
    assert load_floating_base("hyq") is load_floating_base("hyq")
    first = load_fixed_base("double_pendulum", "lock")
    for i in range(MAX_RECENT):
        (tmp_path / f"{i}.urdf").write_text(urdf.read_text())
        load_fixed_base(str(tmp_path / f"{i}.urdf"))
    assert load_fixed_base("double_pendulum", "lock") is not first


def test_a_floating_base_of_the_file_is_fixed(tmp_path):
    urdf, link = tmp_path / "free.urdf", UNTIDY[UNTIDY.index('<link name="arm">') : UNTIDY.index("<joint")]
    heavy = UNTIDY.replace('<link name="base"/>', link.replace("arm", "base")).replace('izz="10"', 'izz="1"')
    ends = '<origin xyz="0 0 0.4"/><parent link="world"/><child link="base"/></joint></robot>'
    urdf.write_text(heavy.replace("</robot>", f'<link name="world"/><joint name="free" type="floating">{ends}'))
    model = load_fixed_base(str(urdf))
    assert model.joint_names == ("j",) and model.placement_p[0].tolist() == [0.0, 0.0, 0.4]
    assert any("floating joint 'free' is rigid" in note for note in model.notes)


def test_implausible_elements_of_a_file_are_reported_each_time(tmp_path):
    urdf = tmp_path / "untidy.urdf"
    urdf.write_text(UNTIDY)
    for _ in range(2):
        with pytest.warns(UserWarning, match="arm"):
            load_fixed_base(str(urdf))
        with warnings.catch_warnings(), pytest.raises(UserWarning, match="arm"):
            warnings.simplefilter("error")
            load_fixed_base(str(urdf))


def test_a_xacro_file_is_reported_with_the_command_to_expand_it(tmp_path):
    xacro = tmp_path / "arm.urdf.xacro"
    xacro.write_text('<robot xmlns:xacro="http://ros.org/wiki/xacro"><link name="a"><xacro:inertia/></link></robot>')
    with pytest.raises(URDFError, match=r"run `xacro arm.urdf.xacro > arm.urdf` and load the file that it writes"):
        load_fixed_base(str(xacro))
    with pytest.raises(FileNotFoundError, match=r"no URDF file 'arm.xacro'"):
        load_fixed_base("arm.xacro")
