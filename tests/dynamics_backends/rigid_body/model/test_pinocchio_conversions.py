"""Conversion of configurations and velocities to Pinocchio's conventions and back."""

import numpy as np
import pytest
from kinematics_oracle import frame_matrices

from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from problems.robots import erd_names, load_robot, robot_path

pin = pytest.importorskip("pinocchio")

INERTIAL = """<inertial><origin xyz="0.1 0 0"/><mass value="1"/>
  <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>"""
# Pinocchio sorts "zeta" after "alpha"; the file has it first. One joint of each type that a URDF knows.
MIXED = f"""<robot name="mixed">
<link name="base">{INERTIAL}</link>
{"".join(f'<link name="l{i}">{INERTIAL}</link>' for i in range(6))}
<joint name="zeta" type="continuous"><parent link="base"/><child link="l0"/><axis xyz="-1 0 0"/></joint>
<joint name="alpha" type="prismatic"><parent link="base"/><child link="l1"/><axis xyz="0 2 1"/>
  <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<joint name="mu" type="planar"><parent link="l0"/><child link="l2"/>
  <origin rpy="0.1 0.2 0.3"/><axis xyz="0 0 1"/></joint>
<joint name="beta" type="revolute"><parent link="l2"/><child link="l3"/><axis xyz="0 -1 0"/>
  <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<joint name="omega" type="floating"><parent link="base"/><child link="l4"/>
  <origin xyz="1 2 3" rpy="0 0.5 0"/></joint>
<joint name="gamma" type="continuous"><parent link="l4"/><child link="l5"/><axis xyz="1 1 0"/></joint>
</robot>"""


def pair(name: str, base: str):
    """Return the model of this name, Pinocchio's, and the converter between them."""
    root = (pin.JointModelFreeFlyer(),) if base == "floating" else ()
    if name == "mixed":
        model, pin_model = load_urdf(MIXED, base=base), pin.buildModelFromXML(MIXED, *root)
    else:
        model, pin_model = load_robot(name, base=base), pin.buildModelFromUrdf(str(robot_path(name)), *root)
    return model, pin_model, PinocchioConverter(model, pin_model)


CASES = [
    ("mixed", "fixed"),
    ("mixed", "floating"),
    ("gen3", "fixed"),
    ("hyq", "floating"),
    ("cart_pole", "fixed"),
]


@pytest.mark.parametrize(("name", "base"), CASES)
def test_conversions_are_inverse_to_each_other(name, base):
    model, pin_model, converter = pair(name, base)
    rng = np.random.default_rng(0)
    q, v = model.random_configuration(rng, 20), rng.standard_normal((20, model.nv))
    assert converter.q_to_pin(q).shape == (20, pin_model.nq)
    assert np.allclose(converter.q_from_pin(converter.q_to_pin(q)), q, atol=1e-15)
    assert np.array_equal(converter.v_from_pin(converter.v_to_pin(v)), v)
    pin_q = np.array([pin.integrate(pin_model, pin.neutral(pin_model), w) for w in rng.standard_normal((20, model.nv))])
    pin_v = rng.standard_normal((20, pin_model.nv))
    assert np.allclose(converter.q_to_pin(converter.q_from_pin(pin_q)), pin_q, atol=1e-15)
    assert np.array_equal(converter.v_to_pin(converter.v_from_pin(pin_v)), pin_v)
    assert np.allclose(converter.q_to_pin(q[0]), converter.q_to_pin(q)[0])


@pytest.mark.parametrize(("name", "base"), CASES)
def test_converted_configurations_place_all_frames_alike(name, base):
    model, pin_model, converter = pair(name, base)
    data = pin_model.createData()
    for q in model.random_configuration(np.random.default_rng(1), 5):
        pin.framesForwardKinematics(pin_model, data, converter.q_to_pin(q))
        for frame, placement in zip(model.frames, frame_matrices(model, q), strict=True):
            if frame.kind == "link":
                theirs = data.oMf[pin_model.getFrameId(frame.name, pin.FrameType.BODY)].homogeneous
                assert np.allclose(placement, theirs, atol=1e-13), frame.name


@pytest.mark.parametrize(("name", "base"), CASES)
def test_converted_velocities_move_frames_alike(name, base):
    """The motion of every frame in a small time, along v by Pinocchio, is the change of placement here."""
    model, pin_model, converter = pair(name, base)
    rng, dt = np.random.default_rng(2), 1e-6
    q, v = model.random_configuration(rng), rng.standard_normal(model.nv)
    data, pin_v = pin_model.createData(), converter.v_to_pin(v)
    ends = [pin.integrate(pin_model, converter.q_to_pin(q), sign * dt / 2 * pin_v) for sign in (-1, 1)]
    before, after = (frame_matrices(model, converter.q_from_pin(end)) for end in ends)
    pin.forwardKinematics(pin_model, data, converter.q_to_pin(q), pin_v)
    for frame, start, end in zip(model.frames, before, after, strict=True):
        if frame.kind == "link":
            number = pin_model.getFrameId(frame.name, pin.FrameType.BODY)
            pin.updateFramePlacement(pin_model, data, number)
            twist = pin.getFrameVelocity(pin_model, data, number, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
            assert np.allclose((end - start)[:3, 3] / dt, twist.linear, atol=1e-8), frame.name
            spin = (end - start)[:3, :3] / dt @ ((start + end)[:3, :3] / 2).T
            assert np.allclose(spin, pin.skew(twist.angular), atol=1e-8), frame.name


def test_joint_order_and_circles():
    _, pin_model, converter = pair("mixed", "fixed")
    assert pin_model.names[1] == "alpha"
    q = np.zeros(1 + 3 + 1 + 1 + 7 + 1)
    q[0] = 0.3  # zeta, the first joint of the file
    pin_q = converter.q_to_pin(q)
    first = pin_model.joints[pin_model.getJointId("zeta")].idx_q
    assert first > 0 and np.allclose(pin_q[first : first + 2], [np.cos(0.3), np.sin(0.3)])


def test_continuous_joints_of_a_published_arm():
    if not erd_names():
        pytest.skip("example-robot-data is not installed")
    model, pin_model, converter = pair("erd:kinova", "fixed")
    assert (model.nq, model.nv, pin_model.nq, pin_model.nv) == (6, 6, 9, 6)
    turned = np.full((1, 6), 2.5 + 2 * np.pi)
    back = converter.q_from_pin(converter.q_to_pin(turned))
    free = np.isinf(model.q_upper)
    assert np.allclose(back[0, free], 2.5) and np.array_equal(back[0, ~free], turned[0, ~free])


def test_different_models_are_refused():
    model, pin_model, _ = pair("gen3", "fixed")
    with pytest.raises(ValueError, match=r"only here \['Actuator7'\], only in Pinocchio \[\].*the same base"):
        PinocchioConverter(model, pin.buildReducedModel(pin_model, [7], pin.neutral(pin_model)))
    with pytest.raises(ValueError, match="only here .'root_joint'."):
        PinocchioConverter(load_robot("gen3", base="floating"), pin_model)
    other = load_urdf(MIXED.replace('name="beta" type="revolute"', 'name="beta" type="floating"'))
    with pytest.raises(ValueError, match="joint 'beta' is floating here, with nq 7 and nv 6, and JointModelRevolute"):
        PinocchioConverter(other, pin.buildModelFromXML(MIXED))


def test_wrong_sizes_are_refused():
    _, _, converter = pair("gen3", "fixed")
    with pytest.raises(ValueError, match=r"q has shape \(2, 11\), expected \(..., 7\)"):
        converter.q_to_pin(np.zeros((2, 11)))
    with pytest.raises(ValueError, match=r"Pinocchio's q has shape \(7,\), expected \(..., 11\)"):
        converter.q_from_pin(np.zeros(7))
