"""The model, its builder, rotation of axes, locking of joints, couplings and fingerprints."""

import pickle
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from kinematics_oracle import body_matrices, frame_matrices, world_inertias
from scipy.spatial.transform import Rotation

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.mass_properties import MassProperties, composite
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Frame, Model, UnknownName
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder, lock_joints
from dynamics_backends.rigid_body.model.sample_models import chain, random_tree
from dynamics_backends.rigid_body.robots import load_robot
from dynamics_backends.rigid_body.spatial.rotations import (
    rotation_matrix,
    rpy_angles,
    rpy_matrix,
    snap_rotation,
    turn_to_z,
)
from dynamics_backends.systems.bodies.free_body import FreeBody

EXACT_AXES = [sign * axis for axis in np.eye(3) for sign in (1.0, -1.0)]


def mixed_model() -> Model:
    """Return one body of each joint type: floating, spherical and revolute in a row, two more at the base."""
    builder = ModelBuilder("mixed")
    builder.add_body("trunk", None, JointSpec("floating", name="root"), mass=10.0, inertia=np.eye(3))
    builder.add_body("ball", "trunk", "spherical", mass=1.0, inertia=np.eye(3))
    builder.add_body(
        "arm", "ball", JointSpec("revolute", name="elbow", q_lower=-1.0, q_upper=2.0), mass=1.0, com=(1, 0, 0)
    )
    builder.add_body("screw", "trunk", JointSpec("helical", pitch=0.1), mass=1.0, inertia=np.eye(3))
    builder.add_body("puck", "trunk", "planar", mass=1.0, inertia=np.eye(3))
    builder.add_body("slide", "puck", JointSpec("prismatic", q_lower=-0.5), mass=1.0)
    return builder.build()


def test_index_sets_of_a_mixed_tree():
    model = mixed_model()
    assert (model.nb, model.nq, model.nv) == (6, 7 + 4 + 1 + 1 + 3 + 1, 6 + 3 + 1 + 1 + 3 + 1)
    assert model.q_index.tolist() == [0, 7, 11, 12, 13, 16]
    assert model.v_index.tolist() == [0, 6, 9, 10, 11, 14]
    assert model.parent.tolist() == [-1, 0, 1, 0, 0, 4]
    assert model.depth.tolist() == [0, 1, 2, 1, 1, 2]
    assert model.dof_body.tolist() == [0] * 6 + [1] * 3 + [2, 3] + [4] * 3 + [5]
    assert model.dof_parent.tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 5, 11, 12, 13]
    assert model.ancestors(2) == list(range(10))
    assert model.ancestors(5) == [*range(6), *range(11, 15)]
    assert model.dofs(4) == range(11, 14)


def test_ancestors_agree_with_the_expanded_parents():
    for seed in range(5):
        model = random_tree(seed, 12)
        for b in range(model.nb):
            path, d = [], model.dofs(b)[-1]
            while d >= 0:
                path.append(d)
                d = int(model.dof_parent[d])
            assert model.ancestors(b) == path[::-1]


def test_names_of_coordinates():
    model = mixed_model()
    assert model.dof_names[:7] == (
        "base_x",
        "base_y",
        "base_z",
        "base_rx",
        "base_ry",
        "base_rz",
        "ball_joint_rx",
    )
    assert model.dof_names[9:] == (
        *("elbow", "screw_joint", "puck_joint_x", "puck_joint_y", "puck_joint_rz", "slide_joint"),
    )
    assert model.q_names[3:11] == (
        *("base_qx", "base_qy", "base_qz", "base_qw"),
        *("ball_joint_qx", "ball_joint_qy", "ball_joint_qz", "ball_joint_qw"),
    )
    assert len(set(model.dof_names)) == model.nv and len(set(model.q_names)) == model.nq


def test_coordinates_of_a_base_have_other_names_if_a_joint_uses_them():
    model = mixed_model()
    joints = ("base_x" if name == "elbow" else name for name in model.joint_names)
    renamed = replace(model, joint_names=tuple(joints))
    assert renamed.dof_names[0] == f"{model.joint_names[0]}_x" and "base_x" in renamed.dof_names
    assert len(set(renamed.dof_names)) == model.nv and len(set(renamed.q_names)) == model.nq


def test_floating_base_and_actuation():
    model = mixed_model()
    assert model.floating_base
    assert model.actuated.tolist() == [False] * 6 + [True] * 9
    fixed = chain(3)
    assert not fixed.floating_base and fixed.actuated.all()
    assert not ModelBuilder("empty").build().floating_base


def test_neutral_has_unit_quaternions():
    q = mixed_model().neutral()
    assert np.flatnonzero(q).tolist() == [6, 10] and q[[6, 10]].tolist() == [1.0, 1.0]


def test_random_configurations_respect_limits_and_quaternions():
    model = mixed_model()
    q = model.random_configuration(np.random.default_rng(3), 200)
    assert q.shape == (200, model.nq)
    assert model.random_configuration(np.random.default_rng(3)).shape == (model.nq,)
    for first in (3, 7):
        assert np.allclose(np.linalg.norm(q[:, first : first + 4], axis=1), 1, atol=1e-15)
    assert np.all((q >= model.q_lower) & (q <= model.q_upper))
    assert q[:, 11].min() < -0.9 and q[:, 11].max() > 1.9  # the elbow: all of [-1, 2]
    assert np.abs(q[:, 12]).max() > 3  # the screw: +-pi
    assert q[:, 16].min() >= -0.5 and q[:, 16].max() <= 1.5  # the slide: a lower limit only, and 2 m


@pytest.mark.parametrize("axis", EXACT_AXES, ids=str)
def test_coordinate_axes_turn_by_exact_permutations(axis):
    T = turn_to_z(axis)
    assert np.array_equal(T @ axis, [0, 0, 1])
    assert set(np.abs(T).ravel()) <= {0.0, 1.0}
    assert np.linalg.det(T) == pytest.approx(1)
    if axis.sum() > 0:
        assert T.min() == 0  # the cyclic ones have no sign


def test_any_axis_turns_to_z_by_a_rotation():
    for axis in np.random.default_rng(0).standard_normal((20, 3)):
        T = turn_to_z(axis)
        assert np.allclose(T @ axis, [0, 0, np.linalg.norm(axis)], atol=1e-14)
        assert np.allclose(T @ T.T, np.eye(3), atol=1e-15) and np.linalg.det(T) > 0


@pytest.mark.parametrize("axis", [*EXACT_AXES, np.array([1.0, 2.0, -3.0])], ids=str)
def test_joint_axes_act_in_the_links_own_axes(axis):
    builder = ModelBuilder()
    builder.add_body(
        "link", joint=JointSpec(axis=axis), xyz=(1, 2, 3), rpy=(0.1, 0.2, 0.3), mass=1.0, com=(0.1, 0.2, 0.3)
    )
    builder.add_frame("tip", "link", xyz=(0.5, 0, 0), rpy=(0, 0.4, 0))
    model = builder.build()
    tip = frame_matrices(model, np.array([0.7]))[model.frame_id("tip")]
    R = rpy_matrix([0.1, 0.2, 0.3]) @ Rotation.from_rotvec(0.7 * axis / np.linalg.norm(axis)).as_matrix()
    assert np.allclose(tip[:3, 3], [1, 2, 3] + R @ [0.5, 0, 0], atol=1e-14)
    assert np.allclose(tip[:3, :3], R @ rpy_matrix([0, 0.4, 0]), atol=1e-14)
    com = world_inertias(model, np.array([0.7]))[0][1]
    assert np.allclose(com, [1, 2, 3] + R @ [0.1, 0.2, 0.3], atol=1e-14)


def test_rpy_is_the_urdfs():
    rpy = [0.3, -0.4, 0.5]
    assert np.allclose(rpy_matrix(rpy), Rotation.from_euler("xyz", rpy).as_matrix(), atol=1e-15)


def test_orientations_in_three_forms_are_the_same_rotation():
    rotations = Rotation.random(20, random_state=0)
    for form in (rotations.as_matrix(), rotations.as_quat(), rpy_angles(rotations.as_matrix())):
        assert np.allclose(rotation_matrix(form), rotations.as_matrix(), atol=1e-12)
        assert np.allclose(rotation_matrix(form[3]), rotations.as_matrix()[3], atol=1e-12)
    rounded = rotation_matrix(np.round(rotations.as_quat(), 4))
    assert np.allclose(rounded @ np.swapaxes(rounded, 1, 2), np.eye(3), atol=1e-14)
    rounded = rotation_matrix(np.round(rotations.as_matrix(), 4))
    assert np.allclose(rounded @ np.swapaxes(rounded, 1, 2), np.eye(3), atol=1e-14)


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ([3.1416, 0.0, 0.0], [[1, 0, 0], [0, -1, 0], [0, 0, -1]]),
        ([3.14159265, 0.0, 0.0], [[1, 0, 0], [0, -1, 0], [0, 0, -1]]),
        ([0.7071, 0.7071, 0.0, 0.0], [[0, 1, 0], [1, 0, 0], [0, 0, -1]]),
    ],
)
def test_rounded_orientations_along_the_axes_are_exact(given, exact):
    assert np.array_equal(rotation_matrix(given), exact)
    computed = np.array(given) + 1e-13  # no rounded numbers
    assert np.array_equal(rotation_matrix(computed), exact) is False


@pytest.mark.parametrize("pitch", [0.5 * np.pi, -0.5 * np.pi])
def test_roll_pitch_yaw_of_a_pitch_of_a_quarter_turn(pitch):
    R = rpy_matrix([0.4, pitch, -0.9])
    assert np.allclose(rpy_matrix(rpy_angles(R)), R, atol=1e-12)
    assert rpy_angles(R)[0] == 0.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.0, 0.0, 0.0, 2.0], "a quaternion x, y, z, w of norm 2; divide it by its norm"),
        ([180.0, 0.0, 90.0], r"roll, pitch, yaw are in radians, within \+-2 pi \(degrees\?\)"),
        (2.0 * np.eye(3), "the goal is not a rotation .R'R - 1 reaches 3.0e.00.: orthonormalize it"),
        (-np.eye(3), "it mirrors .determinant -1."),
        ([0.0, np.nan, 0.0], "the goal is .*: give finite numbers"),
        ([0.0, 1.0], r"has shape \(2,\); expected roll, pitch, yaw \(3,\), a quaternion x, y, z, w \(4,\), or"),
    ],
)
def test_invalid_orientations_are_rejected(given, message):
    with pytest.raises(ValueError, match=message):
        rotation_matrix(given, "the goal")


def test_snapping_makes_nearly_exact_rotations_exact():
    quarter = snap_rotation(rpy_matrix([1.5708, 0, 3.1416]))
    assert set(np.abs(quarter).ravel()) == {0.0, 1.0}
    mixed = snap_rotation(rpy_matrix([1.5708, 0, 0]) @ rpy_matrix([0, 0, 0.3]))
    assert (mixed == 0).sum() == 4 and np.abs(mixed).max() == 1
    assert np.allclose(mixed @ mixed.T, np.eye(3), atol=1e-16)
    assert np.allclose(mixed, rpy_matrix([np.pi / 2, 0, 0]) @ rpy_matrix([0, 0, 0.3]), atol=1e-5)
    general = rpy_matrix([0.3, 0.4, 0.5])
    assert np.array_equal(snap_rotation(general), general)


@pytest.mark.parametrize("before", EXACT_AXES, ids=str)
@pytest.mark.parametrize("after", EXACT_AXES, ids=str)
def test_snapping_keeps_rotations_about_any_axis(before, after):
    exact = turn_to_z(after) @ rpy_matrix([0, 0, 0.3]) @ turn_to_z(before)
    noise = rpy_matrix([3e-6, -2e-6, 1e-6])
    snapped = snap_rotation(noise @ exact)
    assert np.allclose(snapped, exact, atol=1e-5) and np.linalg.det(snapped) == pytest.approx(1)
    assert np.allclose(snapped @ snapped.T, np.eye(3), atol=1e-15) and (snapped == 0).sum() == 4


def test_fixed_links_are_merged_and_keep_their_frames():
    tensor = np.diag([0.1, 0.2, 0.25])
    builder = ModelBuilder()
    builder.add_body("stand", joint="fixed", mass=50.0, xyz=(0, 0, 1))
    builder.add_body("arm", "stand", JointSpec(axis=(1, 0, 0)), mass=2.0, com=(0, 0, 0.5), inertia=tensor)
    builder.add_body("tool", "arm", JointSpec("fixed", name="flange"), xyz=(0, 0, 1), rpy=(0.3, 0, 0), mass=1.0)
    builder.add_body("finger", "tool", JointSpec("prismatic", axis=(0, 1, 0)), xyz=(0, 0.1, 0), mass=0.1)
    model = builder.build()
    assert model.body_names == ("arm", "finger") and model.parent.tolist() == [-1, 0]
    assert [(f.name, f.kind, f.body) for f in model.frames][:5] == [
        ("stand", "link", -1),
        ("arm", "link", 0),
        ("arm_joint", "joint", 0),
        ("tool", "link", 0),
        ("flange", "joint", 0),
    ]
    mass, com, inertia = world_inertias(model, model.neutral())[0]
    assert mass == 3.0 and np.allclose(com, [0, 0, 1 + (2 * 0.5 + 1) / 3])
    reduced = 2 * 1 / 3 * 0.5**2  # two masses 0.5 m apart
    assert np.allclose(inertia, tensor + np.diag([reduced, reduced, 0]), atol=1e-15)
    finger = frame_matrices(model, np.array([0.0, 0.2]))[model.frame_id("finger")]
    assert np.allclose(finger[:3, 3], [0, 0, 2] + rpy_matrix([0.3, 0, 0]) @ [0, 0.3, 0])


def test_a_body_of_one_link_keeps_its_numbers_exactly():
    tensor = np.array([[0.1, 0.01, 0.02], [0.01, 0.2, 0.03], [0.02, 0.03, 0.25]]) / 3
    builder = ModelBuilder()
    builder.add_body("arm", joint=JointSpec(axis=(1, 0, 0)), mass=1 / 3, com=(0.1, 0.2, 0.3), inertia=tensor)
    model = builder.build()
    cycle = [1, 2, 0]  # x y z of the internal frame are y z x of the link
    assert model.mass[0] == 1 / 3 and model.com[0].tolist() == [0.2, 0.3, 0.1]
    assert np.array_equal(model.inertia[0], tensor[np.ix_(cycle, cycle)])


def test_masses_that_cancel_are_refused():
    part = MassProperties(1.0, np.array([1.0, 0, 0]), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="cancel to zero: correct their <mass>"):
        composite([part, MassProperties(-1.0, np.zeros(3), np.zeros((3, 3)))])


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "helical"])
def test_locked_joints_keep_all_frames_and_the_total_inertia(kind):
    model = random_tree(11, 8, joints=("revolute", "prismatic", "helical", kind))
    locked_names = {model.joint_names[0]: 0.4, model.joint_names[3]: -0.7, model.joint_names[7]: 0.2}
    locked = lock_joints(model, locked_names)
    remaining = [b for b, name in enumerate(model.joint_names) if name not in locked_names]
    assert locked.joint_names == tuple(model.joint_names[b] for b in remaining) and locked.nq == model.nq - 3
    q = model.random_configuration(np.random.default_rng(0))
    for name, value in locked_names.items():
        q[model.q_index[model.joint_id(name)]] = value
    q_locked = q[[int(model.q_index[b]) for b in remaining]]
    for a, b in zip(frame_matrices(model, q), frame_matrices(locked, q_locked), strict=True):
        assert np.allclose(a, b, atol=1e-13)
    fixed_to_world = model.total_mass - locked.total_mass
    assert fixed_to_world >= model.mass[0] - 1e-12  # body 0 belongs to the world now
    assert [f.kind for f in locked.frames] == [f.kind for f in model.frames]


def test_joints_are_locked_by_patterns():
    model = load_robot("iiwa7")
    locked = lock_joints(model, {"iiwa_joint_[567]": 0.2, "iiwa_joint_7": 0.5})  # a name counts before a pattern
    by_names = lock_joints(model, {"iiwa_joint_5": 0.2, "iiwa_joint_6": 0.2, "iiwa_joint_7": 0.5})
    assert locked.joint_names == by_names.joint_names == model.joint_names[:4]
    for a, b in zip(locked.frames, by_names.frames, strict=True):
        assert a.name == b.name and np.array_equal(a.p, b.p) and np.array_equal(a.R, b.R)


def test_a_pattern_does_not_lock_a_floating_base():
    assert lock_joints(load_robot("hyq"), "*").joint_names == ("root_joint",)


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("iiwa_jont_[67]", "did you mean 'iiwa_joint_"),
        ("*jont*", "did you mean 'iiwa_joint_"),
        ("*finger*", "available"),
    ],
)
def test_a_pattern_that_matches_no_joint_is_refused(pattern, near):
    with pytest.raises(UnknownName, match=re.escape(f"no joint matches the pattern {pattern!r}")) as caught:
        lock_joints(load_robot("iiwa7"), [pattern])
    assert near in str(caught.value)


def test_locking_moves_the_mass_to_the_parent():
    model = random_tree(5, 6, joints=("revolute",), floating_base=True)
    locked = lock_joints(model, [model.joint_names[3]])
    q_locked = locked.random_configuration(np.random.default_rng(1))
    q = np.insert(q_locked, model.q_index[3], 0.0)
    moment = [sum(m * c for m, c, _ in world_inertias(*pair)) for pair in ((model, q), (locked, q_locked))]
    assert locked.total_mass == pytest.approx(model.total_mass, rel=1e-14)
    assert np.allclose(*moment, atol=1e-13)


def test_only_simple_joints_of_plain_models_can_lock():
    model = mixed_model()
    with pytest.raises(ValueError, match="'ball_joint' is spherical: it locks where it is neutral only"):
        lock_joints(model, {"ball_joint": 0.1})
    rigid = lock_joints(model, ["ball_joint"])
    assert rigid.nv == model.nv - 3
    q = model.random_configuration(np.random.default_rng(0))
    b = model.joint_id("ball_joint")
    q[model.q_index[b] :][:4] = 0, 0, 0, 1
    remaining = np.delete(q, range(int(model.q_index[b]), int(model.q_index[b]) + 4))
    for frame in model.frames:
        for ours, theirs in zip(
            frame_placement(rigid, remaining, frame.name), frame_placement(model, q, frame.name), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-14)
    with pytest.raises(UnknownName, match="no joint is named 'elbo'; did you mean 'elbow'"):
        lock_joints(model, {"elbo": 0.1})
    assert lock_joints(model, "elbow").nv == model.nv - 1


def test_frames_by_name_prefer_links():
    builder = ModelBuilder()
    builder.add_body("wheel", joint=JointSpec(name="wheel"), mass=1.0)
    model = builder.build().with_frame("contact", "wheel", p=(0, 0, -0.3))
    assert model.frames[model.frame_id("wheel")].kind == "link"
    assert model.frames[model.frame_id("contact")].kind == "user"
    turned = model.with_frame("sensor", "contact", R=rpy_matrix([0, 0, np.pi / 2]), p=(0.1, 0, 0))
    assert np.allclose(turned.frames[-1].p, [0.1, 0, -0.3])
    with pytest.raises(ValueError, match="already has a frame named 'contact'"):
        model.with_frame("contact", "wheel")


def test_a_model_is_shown_in_one_line():
    model = load_robot("hyq")
    assert repr(model) == "Model('hyq': 13 bodies, nq = 19, nv = 18, 83.3 kg, floating base)"
    assert repr(model.frames[model.frame_id("lf_foot")]) == "Frame('lf_foot': link, body 3)"
    assert (
        repr(make_backend(FreeBody(model), engine="numpy")) == "Backend('analytic', FreeBody('hyq'), engine = 'numpy')"
    )


def test_unknown_names_suggest_the_nearest():
    model = mixed_model()
    with pytest.raises(UnknownName) as caught:
        model.frame_id("trunc")
    assert str(caught.value).startswith("no frame is named 'trunc'; did you mean 'trunk'? Available: trunk, root")
    assert str(caught.value).endswith("(12 in all)")
    with pytest.raises(UnknownName, match="no joint is named 'Elbow'; did you mean 'elbow'"):
        model.joint_id("Elbow")
    with pytest.raises(KeyError, match="no body is named 'xyzzy'; available"):
        model.body_id("xyzzy")


def test_the_model_is_immutable():
    model = mixed_model()
    with pytest.raises(AttributeError):
        model.mass = np.zeros(6)
    with pytest.raises(ValueError, match="read-only"):
        model.mass[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        model.frames[0].p[0] = 1
    own = np.ones(6)
    changed = model.replace(mass=own)
    own[0] = 7
    assert changed.mass[0] == 1 and model.mass[0] == 10
    assert model.with_gravity((0, 0, 0)).gravity.tolist() == [0, 0, 0]


def test_pickling_gives_the_same_read_only_model():
    model = mixed_model()
    copy = pickle.loads(pickle.dumps(model))
    assert copy.digest == model.digest and copy.dof_names == model.dof_names
    assert not copy.mass.flags.writeable and not copy.frames[0].R.flags.writeable


def test_the_digest_depends_on_content_only():
    model = random_tree(1, 5)
    assert model.digest == random_tree(1, 5).digest != random_tree(2, 5).digest
    assert model.replace(name="other").digest != model.digest
    assert model.replace(damping=model.damping + 1e-300).digest != model.digest
    assert model.replace(damping=-model.damping).digest == model.digest  # -0.0 is 0.0
    assert model.with_frame("tip", "body0").digest != model.digest
    code = "from dynamics_backends.rigid_body.model.sample_models import random_tree; print(random_tree(1, 5).digest)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == model.digest


def test_describe_lists_every_body():
    lines = mixed_model().describe().splitlines()
    assert lines[0] == "mixed: 6 bodies, nq 17, nv 15, 15 kg"
    assert lines[1].split() == [
        "body",
        "joint",
        "type",
        "parent",
        "mass",
        "[kg]",
        "lower",
        "upper",
        "velocity",
        "effort",
    ]
    assert lines[4].split() == ["arm", "elbow", "revolute", "ball", "1", "-1", "2", "inf", "inf"]
    assert len(lines) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mass": np.ones(5)}, r"Model.mass has shape \(5,\), expected \(6,\)"),
        ({"mass": np.full(6, np.nan)}, "Model.mass contains NaN or infinity"),
        ({"q_lower": np.full(17, np.nan)}, "Model.q_lower contains NaN"),
        ({"parent": [-1, 0, 2, 0, 0, 4]}, r"parent\[2\] is 2: number the bodies so that"),
        ({"parent": [-1, 0]}, r"Model.parent has shape \(2,\)"),
        ({"body_names": ("a",) * 6}, "two bodies of the model are named 'a': rename"),
        ({"body_names": ("a",)}, "must have one entry for each body"),
        ({"joint_types": ("hinge",) * 6}, "unknown type 'hinge'; known: revolute, prismatic"),
        ({"placement_R": np.full((6, 3, 3), 0.5)}, "Model.placement_R is not a rotation"),
        ({"frames": [Frame("x", 9, np.eye(3), np.zeros(3))]}, r"body outside of -1..5"),
        ({"q_upper": np.full(17, -2.0)}, "the lower position limit of"),
    ],
)
def test_wrong_models_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        mixed_model().replace(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"joint": "hinge"}, "unknown type 'hinge'; known: .*floating, fixed"),
        ({"joint": JointSpec(axis=(0, 0, 0))}, "three finite numbers, not all zero"),
        ({"inertia": [[1, 2, 0], [0, 1, 0], [0, 0, 1]]}, "tensor is not symmetric"),
        ({"com": (0, 0)}, "com needs 3 numbers"),
        ({"joint": JointSpec("spherical", q_lower=0.0)}, "takes no position limits"),
        ({"joint": JointSpec("planar", damping=[1, 2])}, "damping needs one number, or 3"),
        ({"parent": "arn"}, "no parent link is named 'arn'; did you mean 'arm'"),
        ({"name": "arm"}, "already is a link named 'arm'"),
    ],
)
def test_wrong_links_are_refused(options, message):
    builder = ModelBuilder()
    builder.add_body("arm", mass=1.0)
    with pytest.raises((ValueError, UnknownName), match=message):
        builder.add_body(**{"name": "hand", "parent": "arm", "mass": 1.0} | options)


def test_wrong_frames_are_refused():
    builder = ModelBuilder()
    builder.add_frame("here")
    with pytest.raises(ValueError, match="already is a user frame named 'here'"):
        builder.add_frame("here")
    with pytest.raises(ValueError, match="frame 'x': kind is"):
        builder.add_frame("x", kind="site")
    with pytest.raises(ValueError, match="frame 'y' is not a rotation"):
        builder.add_frame("y", R=2 * np.eye(3))


def test_every_joint_type_has_its_sizes():
    for kind, (nq, nv) in JOINT_TYPES.items():
        model = chain(1, kind)
        assert (model.nq, model.nv) == (nq, nv) and model.neutral().size == nq
        neutral = body_matrices(model, model.neutral())[0]
        assert np.array_equal(neutral[:3, :3], model.placement_R[0])


def test_coupling_expands_configurations_and_velocities():
    # seven entries of a floating joint, then the joints a, b = 2 a + 0.1, c, d = -a
    source = np.array([0, 1, 2, 3, 4, 5, 6, 6, 8, 6])
    multiplier = np.array([1.0] * 7 + [2, 1, -1])
    offset = np.array([0.0] * 7 + [0.1, 0, 0])
    coordinate = np.array([-1] * 6 + [7, 8, 9, 10])
    coupling = Coupling(source, multiplier, offset, coordinate, 11)
    assert coupling.independent.tolist() == [*range(7), 8] and coupling.followers.tolist() == [7, 9]
    q_red = np.arange(18.0).reshape(2, 9)
    q = coupling.expand_q(q_red)
    assert np.array_equal(q[:, :8], q_red[:, :8]) and np.array_equal(q[:, 9], q_red[:, 8])
    assert np.allclose(q[:, 8], 2 * q_red[:, 7] + 0.1) and np.array_equal(q[:, 10], -q_red[:, 7])
    assert coupling.matrix.shape == (10, 8)
    v = coupling.matrix @ np.arange(8.0)
    assert v.tolist() == [0, 1, 2, 3, 4, 5, 6, 12, 7, -6]
    assert coupling.expand_q(1j * q_red).dtype == complex
    assert np.array_equal(pickle.loads(pickle.dumps(coupling)).matrix, coupling.matrix)


def test_unresolved_couplings_are_refused():
    ones, zeros, columns = np.ones(3), np.zeros(3), np.arange(3)
    with pytest.raises(ValueError, match="resolve chains"):
        Coupling(np.array([0, 0, 1]), ones, zeros, columns, 3)
    with pytest.raises(ValueError, match="one degree of freedom"):
        Coupling(np.array([0, 0, 2]), ones, zeros, np.array([0, -1, 1]), 3)
