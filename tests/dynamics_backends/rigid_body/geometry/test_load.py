"""Loads of a robot: mass properties of solids by textbook formulas, and the torques due to a load."""

import numpy as np
import pytest

from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.geometry.shapes import Box, Cylinder, HalfSpace, Mesh, Sphere, solid
from dynamics_backends.rigid_body.model.mass_properties import MassProperties
from dynamics_backends.rigid_body.model.model_builder import with_load
from dynamics_backends.rigid_body.urdf.loader import load_urdf

PENDULUM = """<robot name="pendulum"><link name="ground"/><link name="rod"><inertial><origin xyz="0 0 -0.5"/><mass value="2"/>
<inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="revolute"><parent link="ground"/><child link="rod"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" effort="10" velocity="5"/></joint></robot>"""


def test_a_box_filled_evenly():
    x, y, z = 0.2, 0.3, 0.5
    found = solid(Box((x, y, z)), 6.0)
    np.testing.assert_allclose(found.com, 0.0, atol=1e-12)
    expected = 6.0 / 12.0 * np.diag([y * y + z * z, x * x + z * z, x * x + y * y])
    np.testing.assert_allclose(found.inertia, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Sphere(0.1), 0.4 * 0.01 * np.ones(3)),
        (Cylinder(0.1, 0.4), [0.01 / 4 + 0.16 / 12, 0.01 / 4 + 0.16 / 12, 0.01 / 2]),
    ],
)
def test_round_solids_are_nearly_those_of_the_formulas(shape, expected):
    np.testing.assert_allclose(np.diag(solid(shape, 1.0).inertia), expected, rtol=0.05)


def test_a_mesh_off_its_origin():
    box = Box((0.2, 0.3, 0.5)).triangles()
    moved = solid(Mesh(box.vertices + [1.0, -2.0, 0.5], box.faces), 6.0)
    np.testing.assert_allclose(moved.com, [1.0, -2.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(moved.inertia, solid(Box((0.2, 0.3, 0.5)), 6.0).inertia, atol=1e-10)


def test_a_surface_without_volume_carries_no_mass():
    assert solid(HalfSpace(), 0.0).empty
    with pytest.raises(ValueError, match="no volume"):
        solid(HalfSpace(), 1.0)


def test_the_torque_of_a_load():
    """A point mass of 3 kg, 0.8 m below the hinge: gravity torque m g r sin(q), inertia m r^2."""
    bare = load_urdf(PENDULUM, base="fixed")
    loaded = with_load(
        bare, "weight", "rod", np.eye(3), np.array([0.0, 0.0, -0.8]), MassProperties(3.0, np.zeros(3), np.zeros((3, 3)))
    )
    q, zero, one = np.array([[0.4]]), np.zeros((1, 1)), np.ones((1, 1))
    hold = inverse_dynamics(loaded, q, zero, zero) - inverse_dynamics(bare, q, zero, zero)
    assert hold[0, 0] == pytest.approx(3.0 * 9.81 * 0.8 * np.sin(0.4), rel=1e-3)
    both = inverse_dynamics(loaded, q, zero, one) - inverse_dynamics(bare, q, zero, one)
    assert both[0, 0] - hold[0, 0] == pytest.approx(3.0 * 0.8**2)
    frame = loaded.frames[loaded.frame_id("weight")]
    assert frame.body == 0 and loaded.digest != bare.digest


def test_loads_that_cannot_be_are_refused():
    model, none = load_urdf(PENDULUM, base="fixed"), MassProperties(1.0, np.zeros(3), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="ground"):
        with_load(model, "weight", "ground", np.eye(3), np.zeros(3), none)
    with pytest.raises(ValueError, match="another name"):
        with_load(model, "rod", "rod", np.eye(3), np.zeros(3), none)
    with pytest.raises(UnknownName):
        with_load(model, "weight", "rood", np.eye(3), np.zeros(3), none)
