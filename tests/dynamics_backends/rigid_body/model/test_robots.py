"""The bundled robots, and those of example-robot-data, against their sources and against Pinocchio."""

import warnings

import numpy as np
import pytest
from kinematics_oracle import frame_matrices, world_inertias

from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body import robots
from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from problems.robots import erd_names, load_robot, robot_names, robot_path

# name -> degrees of freedom, moving mass [kg] of the source
BUNDLED = {
    "cart_pole": (2, 11.0),
    "double_pendulum": (2, 2.0),
    "gen3": (7, 6.4915),
    "hyq": (18, 83.301),
    "iiwa7": (7, 22.11193),
    "irb4600": (6, 415.0),
}
PUBLISHED = ("ur5", "panda", "kinova", "hyq", "anymal", "talos")
STANDING = np.tile([-0.2, 0.723, -1.458], 2), np.tile([-0.2, -0.723, 1.458], 2)  # front and hind legs


def quiet_load(name: str, **options):
    """Load a published robot, whose file may be untidy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        return load_robot(name, **options)


def test_the_list_is_complete():
    assert robot_names() == tuple(sorted(BUNDLED))


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_robots_load_without_warnings(name):
    nv, mass = BUNDLED[name]
    model = load_robot(name, strict=True)
    assert model.nv == nv and model.name == name
    assert model.total_mass == pytest.approx(mass, rel=1e-12)
    assert model.floating_base == (name == "hyq")
    assert robot_path(name).read_text().startswith('<?xml version="1.0"?>\n<!--')


def test_hyq_has_the_tensors_of_its_source_about_the_link_origins():
    """Rows: Ix Iy Iz Ixy Ixz Iyz about the link's origin; the tensor has -Ixy, -Ixz, -Iyz off its diagonal."""
    rows = {
        "trunk": (1.209488, 5.5837, 6.056973, 0.00571, -0.190812, -0.012668),
        "lf_hipassembly": (0.134705, 0.144171, 0.011033, 3.6e-5, 0.022734, 5.1e-5),
        "rf_hipassembly": (0.134705, 0.144171, 0.011033, -3.6e-5, -0.022734, 5.1e-5),
        "lh_hipassembly": (0.134705, 0.144171, 0.011033, -3.6e-5, -0.022734, 5.1e-5),
        "rh_hipassembly": (0.134705, 0.144171, 0.011033, 3.6e-5, 0.022734, 5.1e-5),
        "rf_upperleg": (0.005495, 0.087136, 0.089871, -0.007418, -1.02e-4, -2.1e-5),
        "rh_upperleg": (0.005495, 0.087136, 0.089871, 0.007418, 1.02e-4, -2.1e-5),
        "lh_lowerleg": (4.68e-4, 0.026409, 0.026181, 0, 0, 0),
        "rf_lowerleg": (4.68e-4, 0.026409, 0.026181, 0, 0, 0),
    }
    model = load_robot("hyq")
    for link, (xx, yy, zz, xy, xz, yz) in rows.items():
        b = model.body_id(link)
        mass, com = model.mass[b], model.com[b]
        about_origin = model.inertia[b] + mass * (com @ com * np.eye(3) - np.outer(com, com))
        assert np.allclose(about_origin, [[xx, -xy, -xz], [-xy, yy, -yz], [-xz, -yz, zz]], atol=1e-12), link


def test_hyq_stands_symmetrically_on_its_feet():
    model = load_robot("hyq")
    assert model.joint_names[1:4] == ("lf_haa_joint", "lf_hfe_joint", "lf_kfe_joint")
    assert model.dof_names[6::3] == ("lf_haa_joint", "rf_haa_joint", "lh_haa_joint", "rh_haa_joint")
    assert np.all(model.effort_limit[6:] == 150) and np.all(model.velocity_limit[6:] == 12)
    q = model.neutral()
    q[2], q[7:13], q[13:] = 0.572, *STANDING
    assert np.all((q[7:] >= model.q_lower[7:]) & (q[7:] <= model.q_upper[7:]))
    feet = {leg: frame_matrices(model, q)[model.frame_id(f"{leg}_foot")][:3, 3] for leg in ("lf", "rf", "lh", "rh")}
    assert feet["lf"][2] == pytest.approx(-0.0035, abs=5e-5)  # the height in the published trot
    for leg, signs in {"rf": (1, -1, 1), "lh": (-1, 1, 1), "rh": (-1, -1, 1)}.items():
        assert np.allclose(feet[leg], feet["lf"] * signs, atol=1e-12)
    assert feet["lf"][0] > 0 and feet["lf"][1] > 0


def test_irb4600_carries_its_masses_where_the_source_has_them():
    """The source's frames have z along the axes; here are their placements at zero angles, and its numbers."""
    Rx, Ry = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]]), np.array([[0, 0, 1], [0, 1, 0], [-1, 0, 0]])
    Rz = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])  # Rx by -90 deg, Ry and Rz by +90 deg
    wrist = np.array([1.445, 0, 1.765])  # of the kinematics; 1.446 in the source
    source = [
        (np.eye(3), (0, 0, 0), 120, (0.09, 0, 0.25), (2.52, 2.52, 1.8)),
        (Rx @ Rz.T, (0.175, 0, 0.495), 120, (0.47, 0.04, -0.17), (0.7, 11.25, 11.75)),
        (Rx, (0.175, 0, 1.59), 120, (0.035, -0.133, 0.044), (3.7, 5.03, 5.03)),
        (Rx @ Ry, (0.507, 0, 1.765), 40, (0, 0, 0.5), (2.0, 2.0, 0.482)),
        (Rx, wrist, 10, (0.07, 0, 0), (0.04, 0.04, 0.045)),
        (Ry, wrist + (0.243, 0, 0), 5, (0.081, -0.091, 0.232), (0.014, 0.014, 0.028)),
    ]
    model = load_robot("irb4600")
    ours = world_inertias(model, np.zeros(6))
    for (R, p, mass, com, moments), (m, c, inertia) in zip(source, ours, strict=True):
        assert m == mass and np.allclose(c, p + R @ com, atol=1e-12)
        assert np.allclose(inertia, R @ np.diag(moments) @ R.T, atol=1e-12)
    tool = frame_matrices(model, np.zeros(6))[model.frame_id("ee")]
    assert np.allclose(tool[:3, 3], wrist + [0.443, 0, 0]) and np.allclose(tool[:3, 2], [1, 0, 0])


def test_irb4600_torque_limits_are_a_multiple_of_the_gravity_torque():
    """No sampled gravity torque exceeds the limit over 2.5, up to its rounding, and some come near it."""
    model = load_robot("irb4600")
    qs = model.random_configuration(np.random.default_rng(0), 1000)
    torques = np.array([gravity_torque(model, q) for q in qs])
    ratio = 2.5 * np.abs(torques).max(axis=0) / model.effort_limit
    assert np.all(ratio[1:] < 1.005) and np.all(ratio[1:] > 0.9)
    assert ratio[0] < 1e-10 and model.effort_limit[0] == model.effort_limit[1]


def gravity_torque(model, q: np.ndarray) -> np.ndarray:
    """Return the torques (nv,) that hold a fixed-base arm of revolute joints."""
    frames = frame_matrices(model, q)
    joints = [frames[model.frame_id(name)] for name in model.joint_names]
    bodies = world_inertias(model, q)
    torques = []
    for j, (name, joint) in enumerate(zip(model.joint_names, joints, strict=True)):
        axis = joint[:3, :3] @ model.frames[model.frame_id(name)].R.T[:, 2]  # z of the internal frame
        moment = sum(np.cross(com - joint[:3, 3], mass * model.gravity) for mass, com, _ in bodies[j:])
        torques.append(-axis @ moment)
    return np.array(torques)


def test_pendulums_move_in_the_plane():
    model = load_robot("cart_pole")
    assert model.joint_names == ("slider", "hinge")
    tip = frame_matrices(model, np.array([0.4, 0.3]))[model.frame_id("tip")][:3, 3]
    assert np.allclose(tip, [0.4 + 0.5 * np.sin(0.3), 0, 0.5 * np.cos(0.3)])
    model = load_robot("double_pendulum")
    tip = frame_matrices(model, np.array([0.4, 0.3]))[model.frame_id("tip")][:3, 3]
    assert np.allclose(tip, [-np.sin(0.4) - np.sin(0.7), 0, -np.cos(0.4) - np.cos(0.7)])


@pytest.mark.parametrize(
    ("name", "base"),
    [
        *((name, "fixed") for name in BUNDLED if name != "hyq"),
        *((f"erd:{name}", "fixed") for name in ("ur5", "panda", "kinova")),
        *((name, "floating") for name in ("hyq", "gen3", "erd:panda", "erd:hyq", "erd:anymal", "erd:talos")),
    ],
)
def test_frames_and_inertias_agree_with_pinocchio(name, base):
    pin = pytest.importorskip("pinocchio")
    if name.startswith("erd:") and not erd_names():
        pytest.skip("example-robot-data is not installed")
    model = quiet_load(name, base=base)
    root = (pin.JointModelFreeFlyer(),) if base == "floating" else ()
    theirs = pin.buildModelFromUrdf(str(robot_path(name)), *root)
    data, converter = theirs.createData(), PinocchioConverter(model, theirs)
    assert model.total_mass == pytest.approx(pin.computeTotalMass(theirs), rel=1e-12)
    q = model.random_configuration(np.random.default_rng(0))
    pin.framesForwardKinematics(theirs, data, converter.q_to_pin(q))
    for frame, placement in zip(model.frames, frame_matrices(model, q), strict=True):
        kinds = (pin.FrameType.BODY,) if frame.kind == "link" else (pin.FrameType.JOINT, pin.FrameType.FIXED_JOINT)
        number = next(theirs.getFrameId(frame.name, kind) for kind in kinds if theirs.existFrame(frame.name, kind))
        assert np.allclose(placement, data.oMf[number].homogeneous, atol=1e-12), frame.name
    for joint, (mass, com, inertia) in zip(model.joint_names, world_inertias(model, q), strict=True):
        number = theirs.getJointId(joint)
        there = data.oMi[number].act(theirs.inertias[number])
        assert mass == pytest.approx(there.mass, rel=1e-12)
        assert np.allclose(com, there.lever, atol=1e-12)
        assert np.allclose(inertia, there.inertia, rtol=0, atol=1e-12 * max(1, np.abs(inertia).max())), joint


@pytest.mark.parametrize("name", PUBLISHED)
def test_limits_agree_with_pinocchio(name):
    pin = pytest.importorskip("pinocchio")
    if not erd_names():
        pytest.skip("example-robot-data is not installed")
    model, theirs = quiet_load(f"erd:{name}"), pin.buildModelFromUrdf(str(robot_path(f"erd:{name}")))
    converter = PinocchioConverter(model, theirs)
    effort = converter.v_from_pin(theirs.upperEffortLimit)
    assert np.array_equal(model.effort_limit, np.where(effort == 0, np.inf, effort))
    limited = np.isfinite(model.q_upper)
    columns = [theirs.joints[theirs.getJointId(joint)].idx_q for joint in np.array(model.joint_names)[limited]]
    assert np.array_equal(model.q_upper[limited], theirs.upperPositionLimit[columns])
    assert np.array_equal(model.q_lower[limited], theirs.lowerPositionLimit[columns])
    assert np.array_equal(model.damping, converter.v_from_pin(theirs.damping))


def test_names_of_published_robots():
    if not erd_names():
        pytest.skip("example-robot-data is not installed")
    assert set(PUBLISHED) <= set(erd_names())
    assert robot_path("erd:talos").name == "talos_reduced.urdf"
    assert robot_path("erd:solo12") == robot_path("erd:solo_description/robots/solo12.urdf")
    with pytest.raises(UnknownName, match="no robot of example-robot-data is named 'pandas'; did you mean 'panda'"):
        robot_path("erd:pandas")


def test_unknown_robots_suggest_the_nearest():
    with pytest.raises(UnknownName, match="no bundled robot is named 'iwa7'; did you mean 'iiwa7'"):
        load_robot("iwa7")
    with pytest.raises(UnknownName, match="no bundled robot is named 'ur5'; did you mean 'erd:ur5'"):
        load_robot("ur5")
    with pytest.raises(UnknownName, match="did you mean .*'erd:ur10'"):
        load_robot("ur11")


def test_a_missing_package_is_reported_with_its_install_command(monkeypatch):
    monkeypatch.setattr(robots, "example_robots_folder", lambda: None)
    assert erd_names() == ()
    with pytest.raises(ModuleNotFoundError, match="erd:ur5 needs .* pip install example-robot-data"):
        load_robot("erd:ur5")
