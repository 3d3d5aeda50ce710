"""Stances of third-party robots: feet found from the tree, postures by inverse kinematics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.legged.gaits.falls import falls
from problems.legged.robot.base_state import base_state_cost
from problems.legged.robot.legs import hips, lowest_ends
from problems.legged.robot.stance import CROUCH, Stance, bolted
from problems.legged.robot.walker import LeggedRobot
from problems.robots import ERD_PACKAGE, erd_names, load_robot, robot_path
from trajopt.config.task import position_of, positions_of

needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
FEET = {
    "hyq": ("lf_foot", "rf_foot", "lh_foot", "rh_foot"),
    "erd:anymal": ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
    "erd:anymal_c": ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
    "erd:anymal-kinova": ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
    "erd:solo": ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT"),
    "erd:solo12": ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT"),
    "erd:quadruped": ("FL_contact", "FR_contact", "BL_contact", "BR_contact"),
    "erd:a1": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:b1": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:b1-z1": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:go1": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:go2": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:laikago": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "erd:centauro": ("wheel_1", "wheel_2", "wheel_3", "wheel_4"),
}
"""Feet named by hand from the files: left front, right front, left hind, right hind."""
STANCE = (-0.2, 0.723, -1.458, -0.2, 0.723, -1.458, -0.2, -0.723, 1.458, -0.2, -0.723, 1.458)

pytestmark = pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")


def stance(name: str) -> Stance:
    return Stance.from_model(load_robot(name, base="floating"))


@needs_erd
@pytest.mark.parametrize("name", FEET)
def test_a_quadruped_is_found_on_its_feet_symmetric_and_within_its_limits(name):
    found = stance(name)
    assert found.feet == FEET[name]
    model, joints = found.model, found.posture()
    q = found.configuration(joints)
    assert (joints >= model.q_lower[7:]).all() and (joints <= model.q_upper[7:]).all()
    at = np.stack([position_of(model, foot, q) for foot in found.feet])
    assert np.abs(at[:, 2]).max() < 2e-3 * found.leg_length
    assert (at[:2, 0] > 0.1 * found.leg_length).all() and (at[2:, 0] < 0).all()  # the robot faces along x
    assert (at[[0, 2], 1] > 0).all() and (at[[1, 3], 1] < 0).all()
    assert np.allclose(at[[0, 2]], at[[1, 3]] * [1.0, -1.0, 1.0], atol=5e-3 * found.leg_length)
    knees = [model.body_names[leg.knee] for leg in found.legs]
    knee = np.stack([position_of(model, k, q) for k in knees])
    assert np.allclose(knee[[0, 2]], knee[[1, 3]] * [1.0, -1.0, 1.0], atol=1e-2 * found.leg_length)
    places = found.places(joints)
    assert np.allclose(places[:, [0, 2]], [0.0, -CROUCH], atol=1e-3)


@needs_erd
@pytest.mark.parametrize("name", ["erd:talos", "erd:g1", "erd:bolt"])
def test_a_biped_stands_on_level_feet_left_before_right(name):
    found = stance(name)
    q = found.configuration(found.posture())
    left, right = (position_of(found.model, foot, q) for foot in found.feet)
    assert left[1] > 0 > right[1]
    assert np.allclose(left * [1.0, -1.0, 1.0], right, atol=1e-3)


ON_THE_FLOOR = (
    "<link name='base_footprint'/><joint name='up' type='fixed'><parent link='base_footprint'/><child link='{root}'/>"
)
ON_THE_FLOOR += "<origin xyz='0 0 {height}'/></joint>"


@pytest.mark.parametrize("above", [-0.3, 0.0, 0.1])
def test_feet_are_found_where_the_frame_of_the_base_lies_on_the_floor_or_above_the_robot(above):
    """Robot with another position of the root link: at the feet, or above the hips."""
    found = stance("hyq")
    q = found.configuration(found.posture())
    height = float(q[2]) + above if above >= 0.0 else above
    text = robot_path("hyq").read_text(encoding="utf-8")
    text = text.replace("</robot>", ON_THE_FLOOR.format(root=found.model.body_names[0], height=height) + "</robot>")
    other = Stance.from_model(load_urdf(text, base="floating"))
    assert other.feet == found.feet
    np.testing.assert_allclose(other.posture(), found.posture(), atol=1e-6)
    lowered = other.configuration(other.posture())
    assert lowered[2] == pytest.approx(q[2] - height)
    xs = np.tile(np.concatenate([lowered, np.zeros(other.model.nv)]), (2, 1))
    assert falls(other.model, other.feet, xs, np.arange(2.0)) == []
    xs[1, 7:19] = [0.0, 1.5, -2.9] * 2 + [0.0, -1.5, 2.9] * 2
    assert len(falls(other.model, other.feet, xs, np.arange(2.0))) == 1


def test_the_cost_of_the_base_is_the_same_where_its_frame_lies_on_the_floor():
    """Equal motions of HyQ and of HyQ with another frame of the same base, 0.55 m below and 0.1 m behind its hips."""
    shift, rng = np.array([-0.1, 0.0, -0.55]), np.random.default_rng(4)
    root = stance("hyq").model.body_names[0]
    base = f"<link name='floor'/><joint name='up' type='fixed'><parent link='floor'/><child link='{root}'/>"
    text = robot_path("hyq").read_text(encoding="utf-8")
    text = text.replace("</robot>", base + "<origin xyz='0.1 0 0.55'/></joint></robot>")
    model, other = stance("hyq").model, load_urdf(text, base="floating")
    R, attitude, reference = Rotation.random(random_state=rng), 0.3 * rng.normal(size=3), rng.normal(size=3)
    joints, (v, w), moving = rng.normal(size=12), rng.normal(size=(2, 3)), rng.normal(size=12)
    p, ahead = rng.normal(size=3), Rotation.from_euler("XYZ", attitude).apply(shift)

    def residual(model, p, v, reference):
        x = np.concatenate([p, R.as_quat(), joints, v, w, moving])[:, None]
        options = {
            "hips": hips(model, FEET["hyq"]),
            "attitude": attitude,
            "position": reference,
            "velocity": (0.4, 0.1, 0.0),
        }
        term = base_state_cost(model, FreeBody(model).manifold, np.ones(36), np.zeros(12), "base", **options)
        parameters = {key: np.asarray(value)[:, None] for key, value in term.parameters.items()}
        return np.array(term.residual(x, np.zeros((12, 1)), np.zeros(1), parameters))[:, 0]

    expected = residual(model, p, v, reference)
    np.testing.assert_allclose(
        residual(other, p + R.apply(shift), v + np.cross(w, shift), reference + ahead), expected, atol=1e-12
    )
    np.testing.assert_allclose(expected[3:6], p - reference, atol=1e-15)


def test_knees_point_to_the_middle_where_the_limits_leave_the_choice():
    found = stance("hyq")
    model = found.model
    free = model.replace(q_lower=np.full(model.nq, -np.inf), q_upper=np.full(model.nq, np.inf))
    assert np.allclose(Stance.from_model(free).posture(), found.posture(), atol=1e-6)


def test_a_posture_is_found_again_from_its_places():
    found = stance("hyq")
    assert np.allclose(found.posture(found.places(np.array(STANCE))), STANCE, atol=1e-5)


def test_a_place_out_of_reach_is_refused():
    with pytest.raises(ValueError, match=r"lf_foot of hyq cannot be at \[0.0, 0.0, -1.2\] leg lengths of 0.68 m"):
        stance("hyq").posture(np.tile([0.0, 0.0, -1.2], (4, 1)))


def test_unknown_feet_are_refused_by_name():
    model = load_robot("hyq")
    with pytest.raises(UnknownName, match="did you mean 'lf_foot'"):
        Stance.from_model(model, ("lf_fooot",))
    with pytest.raises(ValueError, match="no joint moves trunk"):
        Stance.from_model(model, ("trunk", "lf_foot"))
    with pytest.raises(ValueError, match="has a fixed base"):
        Stance.from_model(load_robot("hyq", base="fixed"))


@needs_erd
def test_a_robot_on_one_leg_needs_named_feet():
    with pytest.raises(ValueError, match="only finger_tip_link does; name the feet"):
        lowest_ends(load_robot("erd:finger_edu", base="floating"))


@pytest.mark.parametrize(("out", "feet"), [(0.3, "lf rf lh rh"), (0.0, "lh lf rh rf")])
def test_a_robot_on_sprawling_legs_faces_along_x(out, feet):
    """Hips turn about z, then twice about x; a robot whose legs hang straight down instead bends them forward along y."""
    builder, rod = to.ModelBuilder("spider"), 0.01 * np.eye(3)
    builder.add_body("trunk", joint=to.JointSpec("floating", "base"), mass=10.0, inertia=np.eye(3))
    for name, x, side in (("lf", 0.2, 1), ("rf", 0.2, -1), ("lh", -0.2, 1), ("rh", -0.2, -1)):
        chain = (("hip", "trunk", (0, 0, 1), (x, 0.1 * side, 0)), ("thigh", f"{name}_hip", (1, 0, 0), (0, 0, 0)))
        chain = (*chain, ("shank", f"{name}_thigh", (1, 0, 0), (0, out * side, -0.1)))
        for part, above, axis, at in chain:
            joint = to.JointSpec("revolute", f"{name}_{part}_joint", axis=axis)
            builder.add_body(f"{name}_{part}", above, joint, xyz=at, mass=0.5, inertia=rod)
        builder.add_frame(name, f"{name}_shank", xyz=(0, 0, -0.3))
    model = builder.build()
    stance = Stance.from_model(model, feet.split())
    assert np.degrees(stance.heading) == pytest.approx(0.0 if out else 90.0)
    places = positions_of(model, feet.split(), stance.configuration(stance.posture()))
    assert places[0, 0] > places[2, 0] and places[0, 1] > places[1, 1]


SHAPE = '<collision><origin xyz="0 0 -0.2"/><geometry><sphere radius="0.02"/></geometry></collision>'
WHEEL = '<collision><geometry><cylinder radius="0.1" length="0.05"/></geometry></collision>'


def without_foot_links(tmp_path, shape, knee="0 0 -0.25"):
    """A quadruped whose legs end with a joint at ``knee`` [m], seen from the hip, and a body with a shape."""
    inertial = (
        '<inertial><mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>'
    )
    parts = [f'<link name="trunk">{inertial}</link>']
    for name, x, y in (("lf", 0.3, 0.1), ("rf", 0.3, -0.1), ("lh", -0.3, 0.1), ("rh", -0.3, -0.1)):
        above = "trunk"
        for part, at, axis in (
            ("hip", f"{x} {y} 0", "1 0 0"),
            ("thigh", "0 0 0", "0 1 0"),
            ("shank", knee, "0 1 0"),
        ):
            link = f"{name}_{part}"
            parts.append(f'<link name="{link}">{inertial}{shape if part == "shank" else ""}</link>')
            parts.append(
                f'<joint name="{link}_joint" type="revolute"><parent link="{above}"/><child link="{link}"/><origin xyz="{at}"/>'
                f'<axis xyz="{axis}"/><limit lower="-2" upper="2" effort="50" velocity="20"/></joint>'
            )
            above = link
    path = tmp_path / "quadruped.urdf"
    path.write_text(f'<robot name="quadruped">{"".join(parts)}</robot>')
    return load_robot(str(path), base="floating")


@pytest.mark.parametrize("knee", ["-0.25 0 0", "-0.25 0 -1e-3"])
def test_legs_that_are_level_in_the_neutral_configuration_are_found(knee, tmp_path):
    model = without_foot_links(tmp_path, "", knee=knee)
    assert lowest_ends(model) == ("lf_shank", "rf_shank", "lh_shank", "rh_shank")


@pytest.mark.parametrize(("tilt", "what"), [(0.3, "lf_foot, lh_foot of hyq are beside"), (0.0, "in four quarters")])
def test_the_feet_of_a_file_whose_y_axis_is_vertical_are_refused(tilt, what):
    """HyQ, turned from z up to y up: if its legs lean to the left, the left feet alone reach below the origin."""
    model = load_robot("hyq")
    turn = rpy_matrix([-0.5 * np.pi, 0.0, 0.0])
    R, p = model.placement_R.copy(), model.placement_p.copy()
    first = [b for b in range(1, model.nb) if model.parent[b] == 0]
    R[first] = turn @ rpy_matrix([tilt, 0.0, 0.0]) @ R[first]
    p[first] = p[first] @ turn.T
    turned = model.replace(placement_R=R, placement_p=p)
    with pytest.raises(ValueError, match=rf'{what} .*y axis .* to trunk with <origin rpy="1.5708 0 0"/>; else'):
        lowest_ends(turned)


def test_legs_without_a_foot_link_end_at_their_shapes(tmp_path):
    found = Stance.from_model(without_foot_links(tmp_path, SHAPE))
    assert found.feet == tuple(f"{leg}_shank tip" for leg in ("lf", "rf", "lh", "rh"))
    assert found.leg_length == pytest.approx(0.47, abs=1e-3)
    q = found.configuration(found.posture())
    assert np.allclose([position_of(found.model, foot, q)[2] for foot in found.feet], 0.0, atol=1e-6)


def test_the_tip_of_a_leg_that_points_outward_is_its_end(tmp_path):
    bar = '<collision><origin xyz="0.1 0 0"/><geometry><box size="0.2 0.02 0.02"/></geometry></collision>'
    found = Stance.from_model(without_foot_links(tmp_path, bar))
    tip = found.model.frames[found.model.frame_id(found.feet[0])]
    assert np.linalg.norm(tip.p) == pytest.approx(0.19, abs=0.015)


def test_a_wheel_is_a_foot_at_its_joint(tmp_path):
    assert Stance.from_model(without_foot_links(tmp_path, WHEEL)).feet[0] == "lf_shank"


def test_legs_without_foot_links_and_shapes_need_named_feet(tmp_path):
    model = without_foot_links(tmp_path, "")
    with pytest.raises(ValueError, match="lf_shank of quadruped is at the last joint of its leg, .* name the feet"):
        Stance.from_model(model)
    assert Stance.from_model(model, ("lf_shank", "rf_shank", "lh_shank", "rh_shank")).leg_length == pytest.approx(0.25)


def test_a_bolted_robot_moves_as_the_floating_one_does_with_its_base_held():
    model, rng = load_robot("hyq"), np.random.default_rng(3)
    joints = rng.uniform(-1.0, 1.0, 12)
    q = np.concatenate([np.zeros(6), [1.0], joints])
    for foot in FEET["hyq"]:
        assert np.allclose(position_of(bolted(model), foot, joints), position_of(model, foot, q), atol=1e-14)


@needs_erd
def test_a_posture_is_taken_by_name_from_the_srdf():
    named = LeggedRobot(robot="erd:hyq", joints="standing").stand()
    values = dict(zip(named.model.q_names[7:], named.joints, strict=True))
    assert values["lf_kfe_joint"] == pytest.approx(-values["lh_kfe_joint"]) and values["lf_kfe_joint"] != 0.0
    with pytest.raises(UnknownName, match="standing"):
        LeggedRobot(robot="erd:hyq", joints="stending").stand()
    with pytest.raises(ValueError, match="no SRDF belongs to"):
        LeggedRobot(robot="hyq", joints="standing").stand()


def test_feet_at_different_heights_are_reported():
    joints = [0.0, 0.9, -1.6, 0.0, 0.75, -1.5, 0.0, -0.75, 1.5, 0.0, -0.75, 1.5]
    with pytest.warns(UserWarning, match=r"differ in height .* lf_foot \+21 mm, .* change problem.joints"):
        to.load_problem("hyq_trot_rigid", joints=joints)
    assert not to.load_problem("hyq_trot_rigid").task.warnings
