"""Errors of a URDF name the file, line, element and a remedy."""

import re
import warnings

import numpy as np
import pytest

from dynamics_backends.rigid_body.batched import forward_dynamics
from dynamics_backends.rigid_body.urdf.loader import URDFError, URDFWarning, load_urdf

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
LIMIT = '<limit lower="-1" upper="1"/>'


def arm(inertial: str = INERTIAL, inside: str = LIMIT, kind: str = "revolute", ends: str = "", more: str = "") -> str:
    """Return a robot of one joint; the joint starts in line 4."""
    ends = ends or '<parent link="base"/><child link="arm"/>'
    return f"""<robot name="r">
<link name="base"/>
<link name="arm">{inertial}</link>
<joint name="elbow" type="{kind}">{ends}
{inside}
</joint>
{more}
</robot>"""


def links(*names: str) -> str:
    return "".join(f'<link name="{name}">{INERTIAL}</link>\n' for name in names)


def joint(name: str, parent: str, child: str) -> str:
    return f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/></joint>\n'


def robot(*parts: str) -> str:
    return "<robot>\n" + "".join(parts) + "</robot>"


ENTITY = '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n<robot name="&b;"/>'
EXTERNAL = '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/hostname">]>\n<robot name="&a;"/>'
ZERO = '<inertial><mass value="0"/><inertia ixx="0" iyy="0" izz="0"/></inertial>'
MASS_ON_AXIS = '<inertial><mass value="5"/></inertial>'
ROD_ON_AXIS = '<inertial><mass value="1"/><inertia ixx="0" iyy="1" izz="1"/></inertial>'
MIMIC_LOOP = arm(inside=LIMIT + '<mimic joint="elbow"/>')

CASES = {
    # the XML itself
    "entities": (
        ENTITY,
        "line 1: entity declarations and external references are refused.*remove the DOCTYPE",
    ),
    "external": (EXTERNAL, "line 1: entity declarations and external references are refused"),
    "ill-formed": ("<robot><link></robot>", "not well-formed XML: mismatched tag: line 1.*correct it there"),
    "commas": (arm(inside='<origin xyz="0,0,1"/>'), "has 1 numbers, not 3; separate them by spaces"),
    "deep": ("<robot>" + "<a>" * 300 + "</a>" * 300 + "</robot>", "nested more than 200 deep"),
    "part of an MJCF": ("<mujocoinclude/>", "this is a part of an MJCF: load the file that includes it"),
    "SDF": ("<sdf/>", "line 1, <sdf>: this is an SDF, which is not read here: convert it to a URDF or MJCF"),
    "another root": ("<model/>", "line 1, <model>: the root element of a URDF is <robot>"),
    "xacro": (
        '<robot xmlns:xacro="http://www.ros.org/wiki/xacro">\n<xacro:include filename="a"/></robot>',
        r"line 2.*this is a xacro file: run `xacro robot.urdf > robot_expanded.urdf` and load the file",
    ),
    "xacro expression": (arm(inside='<origin xyz="0 0 ${length}"/>'), "<origin>: this is a xacro file: run `xacro "),
    "no link": ("<robot/>", "the robot has no <link>"),
    # names and types
    "nameless link": (robot("<link/>"), "line 2, <link>: the attribute 'name' is missing or empty: add it"),
    "link twice": (robot(links("a", "a")), "line 3, <link name='a'>: the name 'a' is already used in line 2"),
    "joint twice": (
        robot(links("a", "b", "c"), joint("j", "a", "b"), joint("j", "a", "c")),
        "line 6, <joint name='j'>: the name 'j' is already used in line 5: rename",
    ),
    "unknown type": (
        arm(kind="revolut"),
        "line 4, <joint name='elbow'>: unknown joint type 'revolut'; did you mean 'revolute'\\? Known:"
        " revolute, continuous, prismatic, fixed, floating, planar",
    ),
    "ball joint": (
        arm(kind="spherical"),
        "unknown joint type 'spherical'; write three revolute joints at one point, or an MJCF, which has ball joints. Known:",
    ),
    "no type": (arm(kind=""), "the attribute 'type' is missing or empty"),
    # numbers
    "nan": (
        arm(INERTIAL.replace('mass value="1"', 'mass value="nan"')),
        "line 3, <link name='arm'> <inertial> <mass>: value is 'nan': give a finite number",
    ),
    "inf": (arm(INERTIAL.replace('izz="1"', 'izz="inf"')), "<inertia>: izz is 'inf': give a finite number"),
    "nan limit": (arm(inside='<limit lower="nan"/>'), "line 5.*<limit>: lower is 'nan'"),
    "no number": (arm(INERTIAL.replace('izz="1"', 'izz="1,0"')), "izz is '1,0', which is not a number"),
    "underscore": (
        arm(INERTIAL.replace('mass value="1"', 'mass value="1_000"')),
        "line 3.*<mass>: value is '1_000', which is not a number: write digits 0 to 9",
    ),
    "other digits": (
        arm(inside='<limit upper="\u0661"/>'),
        "line 5.*<limit>: upper is '\u0661', which is not a number",
    ),
    "wide digits": (
        arm(inside='<origin xyz="0 \uff11 0"/>'),
        "line 5.*<origin>: xyz is '\uff11', which is not a number",
    ),
    "other space": (arm(inside='<origin xyz="0\u00a00 0 0"/>'), "line 5.*<origin>: xyz is .*which is not a number"),
    "far": (
        arm(inside='<origin xyz="1e29 0 0"/>'),
        "line 5.*<origin>: xyz is '1e29': give a number of at most 1e\\+06",
    ),
    "many turns": (arm(inside='<origin rpy="0 0 1e7"/>'), "line 5.*<origin>: rpy is '1e7': give a number of at most"),
    "heavy": (
        arm(INERTIAL.replace('value="1"', 'value="1e13"')),
        "<mass>: value is '1e13': give a number of at most 1e",
    ),
    "two of three": (arm(inside='<origin xyz="1 2"/>'), "line 5.*<origin>: xyz='1 2' has 2 numbers, not 3"),
    "bad rpy": (arm(inside='<origin rpy="1 2 pi"/>'), "rpy is 'pi', which is not a number"),
    "no mass": (arm("<inertial/>"), "<inertial>: <mass> is missing: add it"),
    "no mass value": (arm("<inertial><mass/></inertial>"), "<mass>: the attribute 'value' is missing"),
    "no ixx": (arm(INERTIAL.replace('ixx="1"', "")), "<inertia>: the attribute 'ixx' is missing or empty"),
    "zero axis": (
        arm(inside=LIMIT + '<axis xyz="0 0 0"/>'),
        "line 5.*<axis>: the axis is zero: give a direction",
    ),
    "effort": (
        arm(inside='<limit lower="0" upper="1" effort="-3"/>'),
        "effort is -3: give a positive limit, or 0",
    ),
    "damping": (
        arm(inside=LIMIT + '<dynamics damping="-1"/>'),
        "<dynamics>: damping is -1: it must not be neg",
    ),
    # the tree
    "no parent": (
        arm(ends='<child link="arm"/>'),
        "line 4, <joint name='elbow'>: <parent> is missing: add it",
    ),
    "no child": (arm(ends='<parent link="base"/>'), "<child> is missing: add it"),
    "empty child": (
        arm(ends='<parent link="base"/><child/>'),
        "<child>: the attribute 'link' is missing or empty",
    ),
    "unknown link": (
        arm(ends='<parent link="bas"/><child link="arm"/>'),
        "line 4, <joint name='elbow'> <parent>: there is no link named 'bas'; did you mean 'base'",
    ),
    "far unknown link": (arm(ends='<parent link="xyz"/><child link="arm"/>'), "named 'xyz'; add this <link>"),
    "two parents": (
        robot(links("a", "b", "c"), joint("j", "a", "c"), joint("k", "b", "c")),
        "line 6, <joint name='k'>: link 'c' is also the child of joint 'j' \\(line 5\\); a URDF is a tree",
    ),
    "two roots": (
        robot(links("a", "b", "c"), joint("j", "a", "b")),
        "line 4, <link name='c'>: the robot has 2 root links, 'a' \\(line 2\\), 'c' \\(line 4\\): join them",
    ),
    "no root": (
        robot(links("a", "b"), joint("j", "a", "b"), joint("k", "b", "a")),
        "there is no root link: the links 'a' -> 'b' -> 'a' form a cycle: remove one of the joints",
    ),
    "cycle beside the tree": (
        robot(links("base", "a", "b"), joint("j", "a", "b"), joint("k", "b", "a")),
        "<joint name='k'>: the links 'a' -> 'b' -> 'a' form a cycle",
    ),
    "own parent": (robot(links("base", "a"), joint("j", "a", "a")), "the links 'a' -> 'a' form a cycle"),
    # inertias that make the mass matrix singular or indefinite
    "negative mass": (
        arm(INERTIAL.replace('mass value="1"', 'mass value="-1"')),
        "<mass>: the mass is -1: give one that is not",
    ),
    "negative tensor": (arm(INERTIAL.replace('ixx="1"', 'ixx="-1"')), "moves an unphysical inertia"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_files_are_refused_with_the_place_and_a_remedy(case):
    text, message = CASES[case]
    with pytest.raises(URDFError, match=f"(?s)^URDF text.*{message}"):
        load_urdf(text)


MIMICS = {
    "itself": (MIMIC_LOOP, "line 4, <joint name='elbow'>: the joints 'elbow' -> 'elbow' mimic each other"),
    "unknown": (
        arm(inside=LIMIT + '<mimic joint="elbo"/>'),
        "<mimic>: there is no joint named 'elbo'; did you mean",
    ),
    "no source": (arm(inside=LIMIT + "<mimic/>"), "<mimic>: the attribute 'joint' is missing"),
    "of a fixed joint": (
        arm(
            inside=LIMIT + '<mimic joint="mount"/>',
            more='<link name="t"/>\n<joint name="mount" type="fixed"><parent link="arm"/><child link="t"/></joint>',
        ),
        "joint 'mount' is fixed, and only joints with one degree of freedom follow or are followed",
    ),
    "floating": (
        arm(inside='<mimic joint="elbow"/>', kind="floating"),
        "joint 'elbow' is floating, and only",
    ),
}


@pytest.mark.parametrize("mode", ["lock", "follow"])
@pytest.mark.parametrize("case", MIMICS)
def test_wrong_mimic_joints_are_refused(case, mode):
    text, message = MIMICS[case]
    with pytest.raises(URDFError, match=message):
        load_urdf(text, mimic=mode)


def test_an_armature_makes_a_joint_without_inertia_regular():
    with pytest.raises(URDFError, match="(?s)joint 'elbow' moves no inertia.*strict=True"):
        load_urdf(arm(ROD_ON_AXIS), strict=True)
    assert load_urdf(arm(ROD_ON_AXIS), armature={"elbow": 2e-3}).armature[0] == 2e-3


OBLIQUE = '<origin xyz="0.3 0.1 0.2" rpy="0.3 0.5 0.7"/>'
IDLE = {
    "nothing moved": (arm(ZERO), ["elbow"]),
    "mass on the axis": (arm(MASS_ON_AXIS), ["elbow"]),
    "rod on the axis, after other joints": (
        robot(
            links("base", "a", "b"),
            f'<link name="c">{ROD_ON_AXIS}</link>',
            *(
                joint(*given).replace("</joint>", f"{OBLIQUE}</joint>")
                for given in (("j", "base", "a"), ("k", "a", "b"), ("l", "b", "c"))
            ),
        ),
        ["l"],
    ),
    "massless link on one axis": (
        robot(links("base"), '<link name="a"/>', links("b"), joint("j", "base", "a"), joint("k", "a", "b")),
        ["j"],
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_massless_joints_get_a_rotor_with_a_warning_unless_locked(case):
    text, idle = IDLE[case]
    with pytest.warns(URDFWarning, match=f"joint '{idle[0]}' moves.*a rotor inertia of 0.001 is assumed"):
        model = load_urdf(text)
    assert [model.joint_names[b] for b in np.flatnonzero(model.armature)] == idle
    n = model.nv
    assert np.isfinite(forward_dynamics(model, np.full(n, 0.3), np.full(n, 0.2), np.ones(n))).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", URDFWarning)
        assert load_urdf(text, locked=dict.fromkeys(idle, 0.1)).nv == n - 1


LATE = {
    "declaration on line 2": "\n" + '<?xml version="1.0"?>' + "\n",
    "declaration after a comment": "<!-- made by hand -->\n" + '<?xml version="1.0" encoding="utf-8"?>' + "\n",
    "no declaration": "",
}


@pytest.mark.parametrize("case", LATE)
def test_late_declarations_and_undeclared_prefixes_are_accepted(case, tmp_path):
    text = arm().replace("<robot ", "<robot drake:version='1' ", 1)
    text = text.replace("</robot>", "<drake:ignored><a:b c:d='1'/></drake:ignored></robot>")
    path = tmp_path / "late.urdf"
    path.write_text(LATE[case] + text)
    assert load_urdf(path).joint_names == load_urdf(arm()).joint_names
    path.write_text(LATE[case] + text.replace("revolute", "revolving"))
    line = next(i for i, row in enumerate(path.read_text().splitlines(), 1) if "revolving" in row)
    with pytest.raises(URDFError, match=f"late.urdf, line {line}, .*unknown joint type"):
        load_urdf(path)


def test_a_floating_base_needs_a_root_link_with_mass():
    with pytest.raises(URDFError, match="subtree of 1 kg.*of the links, such as 'base', load with base='fixed'"):
        load_urdf(arm(), base="floating")


def test_followers_may_be_massless():
    follower = '<joint name="follower" type="revolute"><parent link="arm"/><child link="f"/>'
    text = arm(more=f'<link name="f"/>{follower}{LIMIT}<mimic joint="elbow"/></joint>')
    with pytest.warns(URDFWarning, match="joint 'follower' moves"):
        load_urdf(text)
    with pytest.warns(URDFWarning, match="link 'f', moved by joint 'follower', has no mass"):
        assert load_urdf(text, mimic="follow").coupling is not None
    assert load_urdf(text, mimic="lock").nv == 1


def test_a_joint_that_mimics_itself_is_independent_with_a_warning():
    with pytest.warns(URDFWarning, match=r"joint 'elbow' \(line 5\) mimics itself; remove the <mimic>"):
        assert load_urdf(MIMIC_LOOP).notes == ()


def test_a_joint_that_mimics_an_unknown_joint_is_independent_with_a_warning():
    with pytest.warns(
        URDFWarning, match=r"joint 'elbow' \(line 5\) mimics 'elbo', which is no joint.*did you mean 'elbow'"
    ):
        assert load_urdf(arm(inside=LIMIT + '<mimic joint="elbo"/>')).nv == 1


def test_missing_files_suggest_their_neighbors(tmp_path):
    (tmp_path / "panda.urdf").write_text("<robot/>")
    with pytest.raises(URDFError, match=r"cannot read the URDF .*no such file. did you mean 'panda.urdf'\?"):
        load_urdf(tmp_path / "pandas.urdf")
    with pytest.raises(URDFError, match="no such file. URDF files there: panda.urdf"):
        load_urdf(tmp_path / "x")
    with pytest.raises(URDFError, match="the folder .* does not exist"):
        load_urdf(tmp_path / "none" / "panda.urdf")
    with pytest.raises(URDFError, match="cannot read the URDF .*: Is a directory"):
        load_urdf(tmp_path)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "broken.urdf"
    path.write_text(arm(kind="hinge"))
    with pytest.raises(URDFError, match=r"^broken.urdf, line 4, <joint name='elbow'>: unknown joint type"):
        load_urdf(path)
    path.write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(URDFError, match="not well-formed XML"):
        load_urdf(path)
    path.write_bytes("<robot name='b\xe4r'/>".encode("latin-1"))
    with pytest.raises(
        URDFError, match="line 1, column 14; its text is not UTF-8: save it as such, or name its encoding"
    ):
        load_urdf(path)
    path.write_bytes(b"")
    with pytest.raises(URDFError, match="no element found.*; it is empty"):
        load_urdf(path)


def test_damaged_files_raise_urdf_errors_only():
    """Most are refused, with the place and a remedy; those that still load make a robot of finite numbers."""
    rng = np.random.default_rng(0)
    refused = []
    for _ in range(300):
        text = np.array(list(arm()))
        count = rng.integers(1, 3)
        text[rng.integers(1, text.size, count)] = rng.choice(list('<"/ a0-.e12'), count)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", URDFWarning)
                model = load_urdf("".join(text))
        except URDFError as error:
            refused.append(str(error))
        else:
            assert model.nv <= 1 and np.isfinite(model.total_mass)
    assert 100 < len(refused) < 300
    assert len({message.split(":")[1] for message in refused}) > 10
    assert all(re.search(r"line \d+|not well-formed XML|<\w+", message) for message in refused)


def test_long_values_are_cut_in_messages():
    for text in (
        arm(inside=f'<origin xyz="{"1 " * 2_000_000}"/>'),
        arm(inside=f'<limit lower="{"x" * 4_000_000}"/>'),
        robot(f'<link name="{"a" * 4_000_000}"><inertial/></link>'),
        robot(links(*(f"link_{i}" for i in range(5000)))),
    ):
        with pytest.raises(URDFError) as caught:
            load_urdf(text)
        assert len(str(caught.value)) < 9000


def test_huge_and_endless_files_are_refused(tmp_path):
    file = tmp_path / "big.urdf"
    file.write_bytes(b"<robot>" + b" " * (16 << 20))
    with pytest.raises(URDFError, match="cannot read the URDF.*larger than 16 MiB"):
        load_urdf(file)
    with pytest.raises(URDFError, match="cannot read the URDF"):
        load_urdf(tmp_path / "a\0b.urdf")


def test_a_long_text_in_many_pieces_is_read_in_linear_time():
    assert load_urdf(arm(more="<a>" + "x\n" * 500_000 + "</a>")).nv == 1
