"""Loading a URDF: joints, inertias, limits, frames, mimic joints, snapping, rotor inertia, warnings."""

from itertools import pairwise

import numpy as np
import pytest
from kinematics_oracle import frame_matrices, world_inertias

from dynamics_backends.rigid_body.model.model import Model, UnknownName
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from dynamics_backends.rigid_body.model.state import state_manifold
from dynamics_backends.rigid_body.robots import load_robot
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from dynamics_backends.rigid_body.urdf.loader import URDFError, URDFWarning, load_urdf

INERTIAL = """<inertial><origin xyz="0.1 0.2 0.3"/><mass value="2"/>
    <inertia ixx="0.1" ixy="0.01" ixz="0.02" iyy="0.2" iyz="0.03" izz="0.25"/></inertial>"""
LIMIT = '<limit lower="-1" upper="2" effort="30" velocity="4"/>'
BODY = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name: str, inertial: str = INERTIAL) -> str:
    return f'<link name="{name}">{inertial}</link>'


def joint(name: str, kind: str, parent: str, child: str, inside: str = LIMIT) -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{inside}</joint>'


def robot(*parts: str) -> str:
    return '<robot name="sample">' + "\n".join(parts) + "</robot>"


def one_joint(kind: str, inside: str = LIMIT, **options) -> Model:
    return load_urdf(robot(link("base"), link("arm"), joint("j", kind, "base", "arm", inside)), **options)


MIMIC = robot(
    link("palm"),
    *(link(name) for name in ("f1", "f2", "f3", "thumb")),
    joint("a", "revolute", "palm", "f1"),
    joint("b", "revolute", "f1", "f2", LIMIT + '<mimic joint="a" multiplier="2" offset="0.1"/>'),
    joint("c", "revolute", "f2", "f3", LIMIT + '<mimic joint="b" multiplier="-1"/>'),
    joint("d", "prismatic", "palm", "thumb"),
)


def test_revolute_joint_with_its_limits_and_default_axis():
    model = one_joint("revolute", LIMIT + '<dynamics damping="0.5" friction="0.25"/>')
    assert model.name == "sample" and model.joint_types == ("revolute",) and model.body_names == ("arm",)
    assert (model.q_lower[0], model.q_upper[0]) == (-1, 2)
    assert (model.effort_limit[0], model.velocity_limit[0]) == (30, 4)
    assert (model.damping[0], model.friction[0], model.armature[0]) == (0.5, 0.25, 0)
    turned = frame_matrices(model, np.array([0.3]))[model.frame_id("arm")]
    assert np.allclose(turned[:3, :3], rpy_matrix([0.3, 0, 0]), atol=1e-15)  # the URDF's default axis is x


def test_continuous_joint_is_revolute_without_position_limits():
    model = one_joint("continuous")
    assert model.joint_types == ("revolute",) and model.nq == 1
    assert (model.q_lower[0], model.q_upper[0]) == (-np.inf, np.inf)
    assert model.effort_limit[0] == 30


def test_continuous_joints_are_angles_on_a_circle_unless_turns_are_counted():
    model = one_joint("continuous")
    assert model.circular == (model.joint_names[0],)
    assert [g.name for g in state_manifold(model).groups] == ["SO(2)", "R^1"]
    assert model.digest == model.replace(circular=()).digest
    assert one_joint("revolute", LIMIT).circular == ()
    counted = one_joint("continuous", turns="counted")
    assert counted.circular == () and state_manifold(counted).is_vector_space
    with pytest.raises(ValueError, match="turns is 'all'; choose one of 'nearest', 'counted'"):
        one_joint("continuous", turns="all")
    with pytest.raises(UnknownName, match="revolute joint"):
        one_joint("prismatic", LIMIT).replace(circular=("j",))
    led = MIMIC.replace('name="a" type="revolute"', 'name="a" type="continuous"')
    assert load_urdf(led).circular == ("a",) and load_urdf(led, mimic="follow").circular == ()
    gen3 = load_robot("gen3")
    assert len(gen3.circular) == 4 and lock_joints(gen3, [gen3.circular[0]]).circular == gen3.circular[1:]


def test_effort_and_velocity_of_zero_mean_not_given():
    model = one_joint("prismatic", '<limit lower="0" upper="1" effort="0" velocity="0"/>')
    assert model.effort_limit[0] == np.inf and model.velocity_limit[0] == np.inf
    assert one_joint("revolute", '<limit upper="inf" lower="-inf"/>').q_upper[0] == np.inf


def test_one_missing_position_limit_is_zero_as_the_format_says():
    assert one_joint("revolute", '<limit upper="1.5"/>').q_lower[0] == 0


@pytest.mark.parametrize(("kind", "nq", "nv"), [("floating", 7, 6), ("planar", 3, 3)])
def test_joints_of_several_dofs(kind, nq, nv):
    model = one_joint(kind, '<axis xyz="0 0 1"/>')
    assert (model.nq, model.nv) == (nq, nv) and model.floating_base == (kind == "floating")


def test_planar_joint_moves_across_its_normal():
    model = one_joint("planar", '<axis xyz="0 1 0"/>')
    arm = frame_matrices(model, np.array([0.5, -0.7, 0.3]))[model.frame_id("arm")]
    assert arm[1, 3] == 0 and np.hypot(arm[0, 3], arm[2, 3]) == pytest.approx(np.hypot(0.5, 0.7))
    assert np.allclose(arm[:3, :3], rpy_matrix([0, 0.3, 0]), atol=1e-15)


def test_floating_base_is_body_zero():
    model = one_joint("revolute", base="floating")
    assert model.joint_names == ("root_joint", "j") and model.body_names == ("base", "arm")
    assert model.floating_base and model.total_mass == 4
    fixed = one_joint("revolute")
    assert fixed.total_mass == 2 and fixed.frames[fixed.frame_id("base")].body == -1


def test_rotated_inertial_frame_turns_the_tensor():
    rotated = INERTIAL.replace('xyz="0.1 0.2 0.3"', 'xyz="0.1 0.2 0.3" rpy="0.4 0.5 0.6"')
    text = robot(link("base"), link("arm", rotated), joint("j", "revolute", "base", "arm"))
    _, com, inertia = world_inertias(load_urdf(text), np.zeros(1))[0]
    R = rpy_matrix([0.4, 0.5, 0.6])
    tensor = np.array([[0.1, 0.01, 0.02], [0.01, 0.2, 0.03], [0.02, 0.03, 0.25]])
    assert np.allclose(com, [0.1, 0.2, 0.3], atol=1e-15) and np.allclose(inertia, R @ tensor @ R.T, atol=1e-15)


def test_ignored_elements_are_reported():
    inside = '<axis xyz="0 0 1"/><limits effort="1"/>\n<axis xyz="1 0 0"/>' + LIMIT
    repeated = INERTIAL.replace('<mass value="2"/>', '<mass value="2"/><mass value="3"/>')
    with pytest.warns(URDFWarning) as caught:
        model = one_joint("revolute", inside)
        load_urdf(robot(link("base"), link("arm", repeated + "<inertia/>"), joint("j", "revolute", "base", "arm")))
    first, second = (str(warning.message).splitlines()[1:] for warning in caught)
    assert model.placement_R[0].tolist() == np.eye(3).tolist()
    assert first == [
        "  line 5, <joint name='j'> <limits>: ignored; did you mean <limit>?",
        "  line 6, <joint name='j'> <axis>: ignored; only the first <axis> (line 5) is used",
    ]
    assert second == [
        "  line 3, <link name='arm'> <inertial> <mass>: ignored; only the first <mass> (line 3) is used",
        "  line 4, <link name='arm'> <inertia>: ignored; did you mean <inertial>?",
    ]


def test_origins_with_a_quaternion_of_urdf_1_1():
    text = robot(
        link("base"),
        link("arm", INERTIAL.replace("<origin ", '<origin rpy="0.4 0.5 0.6" ')),
        joint("j", "revolute", "base", "arm", '<origin xyz="0 0 1" rpy="0.4 0.5 0.6"/>' + LIMIT),
    )
    quaternion = "0.11224 0.28853 0.23367 0.92171"  # of rpy = (0.4, 0.5, 0.6), rounded
    model, other = (load_urdf(t) for t in (text, text.replace('rpy="0.4 0.5 0.6"', f'quat_xyzw="{quaternion}"')))
    for key in ("placement_R", "placement_p", "com", "inertia"):
        np.testing.assert_allclose(getattr(other, key), getattr(model, key), atol=2e-5)
    for wrong, said in (("0 0 1 1", "norm 1.414"), ("0 0 1", "has 3 numbers, not 4")):
        with pytest.raises(URDFError, match=f"<joint name='j'> <origin>: .*{said}"):
            load_urdf(text.replace('xyz="0 0 1" rpy="0.4 0.5 0.6"', f'quat_xyzw="{wrong}"'))
    with pytest.raises(URDFError, match="it has rpy and quat_xyzw: remove one of them"):
        load_urdf(text.replace('xyz="0 0 1"', f'xyz="0 0 1" quat_xyzw="{quaternion}"'))


def test_every_link_and_joint_is_a_frame_and_fixed_joints_are_merged():
    text = robot(
        link("base"),
        link("arm"),
        link("tool", ""),
        joint("j", "revolute", "base", "arm"),
        joint("mount", "fixed", "arm", "tool", '<origin xyz="0 0 1" rpy="0 0.5 0"/>'),
    )
    model = load_urdf(text)
    assert model.nb == 1
    names = [(frame.name, frame.kind) for frame in model.frames]
    assert names == [("base", "link"), ("arm", "link"), ("j", "joint"), ("tool", "link"), ("mount", "joint")]
    tool = frame_matrices(model, np.zeros(1))[model.frame_id("tool")]
    assert np.allclose(tool[:3, 3], [0, 0, 1]) and np.allclose(tool[:3, :3], rpy_matrix([0, 0.5, 0]), atol=1e-15)


def test_bodies_come_depth_first_in_the_order_of_the_file():
    names = ("b", "a", "b1", "a1", "b2")
    text = robot(
        link("base"),
        *(link(name) for name in names),
        joint("to_b", "revolute", "base", "b"),
        joint("to_a", "revolute", "base", "a"),
        joint("to_b2", "revolute", "b", "b2"),
        joint("to_a1", "revolute", "a", "a1"),
        joint("to_b1", "revolute", "b", "b1"),
    )
    model = load_urdf(text)
    assert model.body_names == ("b", "b2", "b1", "a", "a1")
    assert model.parent.tolist() == [-1, 0, 0, -1, 3]


def test_files_and_text_give_the_same_model(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text('<?xml version="1.0" encoding="latin-1"?>\n<!-- é -->\n' + MIMIC, encoding="latin-1")
    assert load_urdf(path).digest == load_urdf(str(path)).digest == load_urdf("\n" + MIMIC).digest


def test_long_chains_need_no_recursion():
    names = [f"l{i}" for i in range(1200)]
    joints = [joint(f"j{child}", "fixed", parent, child) for parent, child in pairwise(names)]
    text = robot(*(link(name) for name in names), *joints)
    assert load_urdf(text, base="floating").total_mass == 2400


def test_gravity_is_an_option():
    assert one_joint("revolute").gravity.tolist() == [0, 0, -9.81]
    assert one_joint("revolute", gravity=(0, -1, 0)).gravity.tolist() == [0, -1, 0]


def test_mimic_joints_are_free_by_default():
    model = load_urdf(MIMIC)
    assert model.nv == 4 and model.coupling is None


def test_independent_mimic_joints_are_noted():
    """Those that are locked or follow their source are not."""
    (note,) = load_urdf(MIMIC).notes
    assert note == "joints that follow others in the file (<mimic>) are independent here: b (follows a), c (follows b)"
    (note,) = load_urdf(MIMIC, locked=["b"]).notes
    assert note.endswith("independent here: c (follows b)")
    for options in ({"locked": ["b", "c"]}, {"mimic": "lock"}, {"mimic": "follow"}):
        assert load_urdf(MIMIC, **options).notes == ()


def test_locked_mimic_joints_are_rigid_at_their_offset():
    model, free = load_urdf(MIMIC, mimic="lock"), load_urdf(MIMIC)
    assert model.joint_names == ("a", "d") and model.coupling is None
    locked = frame_matrices(model, np.array([0.3, 0.2]))
    for a, b in zip(locked, frame_matrices(free, np.array([0.3, 0.1, -0.1, 0.2])), strict=True):
        assert np.allclose(a, b, atol=1e-14)


def test_following_mimic_joints_are_coupled_through_chains():
    model = load_urdf(MIMIC, mimic="follow")
    assert (model.nq, model.nv) == (4, 4)  # of the full tree
    coupling = model.coupling
    assert coupling.independent.tolist() == [0, 3] and coupling.source.tolist() == [0, 0, 0, 3]
    assert np.allclose(coupling.expand_q(np.array([0.3, 0.5])), [0.3, 0.7, -0.7, 0.5])
    assert np.array_equal(coupling.matrix, [[1, 0], [2, 0], [-2, 0], [0, 1]])
    with pytest.raises(ValueError, match="cannot lock joints of a model with followers"):
        lock_joints(model, ["a"])


def test_follow_without_mimic_joints_needs_no_coupling():
    assert one_joint("revolute", mimic="follow").coupling is None


def test_snap_is_off_by_default_and_makes_rounded_rotations_exact():
    inside = LIMIT + '<origin rpy="1.5708 0 0"/><axis xyz="0.00001 0 1"/>'
    rounded, snapped = one_joint("revolute", inside), one_joint("revolute", inside, snap=True)
    assert not set(np.abs(rounded.placement_R).ravel()) <= {0.0, 1.0}
    assert set(np.abs(snapped.placement_R).ravel()) == {0.0, 1.0}
    assert one_joint("revolute", inside, snap=1e-6).digest == rounded.digest
    assert one_joint("revolute", inside, snap=1e-3).digest == snapped.digest


@pytest.mark.parametrize("kind", ["fixed", "revolute"])
def test_a_joint_of_the_file_may_be_named_as_that_of_a_floating_base(kind):
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>' if kind == "revolute" else ""
    text = f'''<robot name="r"><link name="base">{BODY}</link><link name="trunk">{BODY}</link>
      <joint name="root_joint" type="{kind}"><parent link="base"/><child link="trunk"/><axis xyz="0 0 1"/>{limit}</joint>
      </robot>'''
    model = load_urdf(text, base="floating")
    assert model.joint_names[0] == "floating_base_joint" and model.floating_base
    assert ("root_joint" in model.joint_names) == (kind == "revolute")
    assert model.dof_names[:6] == ("base_x", "base_y", "base_z", "base_rx", "base_ry", "base_rz")
    taken = text.replace("root_joint", "floating_base_joint")
    assert load_urdf(taken, base="floating").joint_names[0] == "root_joint"


def test_a_floating_joint_of_the_file_is_that_of_the_base():
    text = f"""<robot name="r"><link name="world"/><link name="trunk">{BODY}</link>
      <joint name="free" type="floating"><parent link="world"/><child link="trunk"/></joint></robot>"""
    for base in ("floating", "fixed"):
        model = load_urdf(text, base=base)
        assert model.joint_names == ("free",) and model.body_names == ("trunk",) and model.floating_base


def test_armature_from_the_file_and_from_the_caller():
    inside = LIMIT + '<dynamics armature="0.02"/>'
    assert one_joint("revolute", inside).armature[0] == 0.02
    assert one_joint("revolute", inside, armature=0.5, base="floating").armature.tolist() == [0] * 6 + [0.5]
    assert load_urdf(MIMIC, armature={"d": 0.1}).armature.tolist() == [0, 0, 0, 0.1]
    with pytest.raises(UnknownName, match="no moving joint is named 'e'"):
        load_urdf(MIMIC, armature={"e": 0.1})
    with pytest.raises(ValueError, match="armature of joint 'd' is -1"):
        load_urdf(MIMIC, armature={"d": -1})


def test_rotor_inertia_of_a_transmission_counts_with_the_square_of_its_reduction():
    transmission = """<transmission name="t"><joint name="j"/><actuator name="m">
        <mechanicalReduction>50</mechanicalReduction><rotorInertia>1e-4</rotorInertia></actuator></transmission>"""
    text = robot(link("base"), link("arm"), joint("j", "revolute", "base", "arm"), transmission)
    assert load_urdf(text).armature[0] == pytest.approx(0.25)
    plain = text.replace("<rotorInertia>1e-4</rotorInertia>", "")
    assert load_urdf(plain).armature[0] == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"base": "mobile"}, "base is 'mobile'; choose one of 'fixed', 'floating'"),
        ({"mimic": "ignore"}, "mimic is 'ignore'; choose one of 'free', 'lock', 'follow'"),
    ],
)
def test_wrong_options_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        one_joint("revolute", **option)


POINT_MASS = '<inertial><mass value="1"/><inertia ixx="0" iyy="0" izz="0"/></inertial>'
FLAT = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="3"/></inertial>'
MILLIMETERS = '<inertial><mass value="1"/><inertia ixx="400" iyy="400" izz="400"/></inertial>'
NEGATIVE = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="-1"/></inertial>'
ARM, MOUNT = joint("j", "revolute", "base", "arm"), joint("mount", "fixed", "arm", "tool")
CROSS = joint("j", "revolute", "base", "cross") + joint("k", "revolute", "cross", "arm", LIMIT + '<axis xyz="0 1 0"/>')
BALL = list(
    zip([("base", "a"), ("a", "b"), ("b", "c"), ("c", "arm")], ["1 0 0", "0 1 0", "0 0 1", "1 0 0"], strict=True)
)
UNTIDY = {
    "square millimeters": (
        robot(link("base"), link("arm", MILLIMETERS), ARM),
        r"link 'arm' .* has a radius of gyration of 20 m \(inertia in kg mm\^2\?\); a URDF has kg and kg m\^2",
    ),
    "zero tensor": (
        robot(link("base"), link("arm"), link("tool", POINT_MASS), ARM, MOUNT),
        "link 'tool' .* has a mass and a zero inertia tensor",
    ),
    "triangle": (
        robot(link("base"), link("arm", FLAT), ARM),
        "link 'arm' .*: one principal moment of inertia exceeds the sum",
    ),
    "not positive": (
        robot(link("base"), link("arm", NEGATIVE), ARM),
        "link 'arm' .* negative principal moment",
    ),
    "swapped limits": (
        robot(link("base"), link("arm"), joint("j", "revolute", "base", "arm", '<limit lower="2" upper="1"/>')),
        "joint 'j' .*: the lower limit 2 exceeds the upper 1: taken as exchanged",
    ),
    "degrees": (
        robot(link("base"), link("arm"), joint("j", "revolute", "base", "arm", '<limit lower="-130" upper="130"/>')),
        r"joint 'j' .*: position limits of -130 to 130 rad \(degrees\?\); a URDF has radians",
    ),
    "millimeters": (
        robot(link("base"), link("arm"), joint("j", "prismatic", "base", "arm", '<limit lower="0" upper="400"/>')),
        r"joint 'j' .*: position limits of 0 to 400 m \(millimeters\?\); a URDF has meters",
    ),
    "far joint": (
        robot(link("base"), link("arm"), joint("j", "revolute", "base", "arm", LIMIT + '<origin xyz="0 0 89.2"/>')),
        r"joints more than 20 m from their parent links \(millimeters\?\): j; a URDF has meters",
    ),
    "no mass": (
        robot(link("base"), link("cross", ""), link("arm"), CROSS),
        "link 'cross', moved by joint 'j', has no mass",
    ),
    "no masses": (
        robot(
            *(link(name, "") for name in "abc"),
            link("base"),
            link("arm"),
            *(
                joint(f"j{i}", "revolute", *ends, LIMIT + f'<axis xyz="{axis}"/>')
                for i, (ends, axis) in enumerate(BALL)
            ),
        ),
        "3 links moved by joints have no mass: 'a', 'b', 'c'",
    ),
    "no room": (
        robot(
            link("base"), link("arm"), joint("j", "revolute", "base", "arm", '<limit lower="0" upper="0" effort="0"/>')
        ),
        "joint 'j' .*: both limits are 0, as exporters write where none are given: taken as unlimited; make the joint fixed",
    ),
    "no limits": (
        robot(link("base"), link("arm"), joint("j", "revolute", "base", "arm", "")),
        "joint 'j' is revolute but has no position limits: taken as unlimited",
    ),
}


@pytest.mark.parametrize("case", UNTIDY)
def test_implausible_files_warn_and_are_errors_if_strict(case):
    text, message = UNTIDY[case]
    with pytest.warns(URDFWarning, match=f"(?s)robot 'sample':\n  .*{message}"):
        load_urdf(text)
    with pytest.raises(URDFError, match=f"(?s){message}.*or load it without strict=True"):
        load_urdf(text, strict=True)


def test_one_warning_lists_all_implausible_elements():
    text = robot(
        link("base"),
        link("a", FLAT),
        link("b", FLAT),
        joint("j", "revolute", "base", "a", ""),
        joint("k", "revolute", "a", "b"),
    )
    with pytest.warns(URDFWarning) as caught:
        load_urdf(text)
    assert len(caught) == 1 and len(str(caught[0].message).splitlines()) == 4
    assert caught[0].filename == __file__


def test_frames_without_mass_are_no_reason_to_warn():
    text = robot(
        link("world", ""),
        link("base"),
        link("arm"),
        link("tip", ""),
        joint("w", "fixed", "world", "base"),
        joint("j", "revolute", "base", "arm"),
        joint("t", "fixed", "arm", "tip"),
    )
    assert load_urdf(text, strict=True).nb == 1


def test_links_of_the_world_may_be_implausible():
    text = robot(link("base", NEGATIVE), link("arm"), joint("j", "revolute", "base", "arm"))
    assert load_urdf(text, strict=True).total_mass == 2
