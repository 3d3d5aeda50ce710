"""Rotor inertia, damping, friction and springs of joints: from a URDF, from code, by name."""

from __future__ import annotations

import numpy as np
import pytest

from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.model.model_builder import with_joint_properties
from dynamics_backends.rigid_body.urdf.loader import URDFError, load_urdf
from dynamics_backends.systems.bodies.free_body import FreeBody

LINK = """<link name="{0}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>"""
JOINT = """<joint name="{0}_joint" type="{2}"><parent link="{1}"/><child link="{0}"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1"/><dynamics {3}/></joint>"""


def robot(dynamics: str, kind: str = "revolute"):
    parts = ['<link name="base"/>', LINK.format("a"), LINK.format("b")]
    parts += [JOINT.format("a", "base", kind, dynamics), JOINT.format("b", "a", "prismatic", "")]
    return load_urdf(f'<robot name="r">{"".join(parts)}</robot>')


def test_a_urdf_defines_joint_properties():
    model = robot('damping="2" friction="0.5" armature="0.1" spring_stiffness="40" spring_reference="0.2"')
    for key, value in (
        ("damping", 2.0),
        ("friction", 0.5),
        ("armature", 0.1),
        ("stiffness", 40.0),
        ("spring_reference", 0.2),
    ):
        np.testing.assert_array_equal(getattr(model, key), [value, 0.0])


def test_controls_hold_a_sprung_joint():
    """Inverse dynamics without springs minus their forces gives the controls at which the system rests."""
    model = robot('spring_stiffness="40" spring_reference="0.2"')
    q, still = np.array([[0.5, -0.3], [-0.1, 0.2]]), np.zeros((2, 2))
    np.testing.assert_allclose(model.spring_forces(q), [[-12.0, 0.0], [12.0, 0.0]], atol=1e-12)
    np.testing.assert_array_equal(model.spring_forces(q[0]), model.spring_forces(q)[0])
    hold = inverse_dynamics(model, q, still, still) - model.spring_forces(q)
    rates = make_backend(FreeBody(model), "analytic", engine="numpy").f(np.hstack([q, still]), hold)
    np.testing.assert_allclose(rates, 0.0, atol=1e-12)


def test_a_urdf_with_invalid_joint_properties_is_refused():
    with pytest.raises(URDFError, match="spring_stiffness is -1: it must not be negative"):
        robot('spring_stiffness="-1"')
    with pytest.raises(URDFError, match="only revolute and prismatic joints take a spring"):
        robot('spring_stiffness="1"', kind="planar")


def test_numbers_for_all_and_by_name():
    model = robot('damping="2"')
    changed = with_joint_properties(model, damping=3.0, stiffness={"b_joint": 7.0}, armature=None)
    np.testing.assert_array_equal(changed.damping, [3.0, 3.0])
    np.testing.assert_array_equal(changed.stiffness, [0.0, 7.0])
    assert changed.armature is not None and changed.digest != model.digest
    assert with_joint_properties(model, damping=None) is model


def test_errors_name_the_mistake():
    model = robot("")
    with pytest.raises(UnknownName, match="a_joint"):
        with_joint_properties(model, damping={"a_joimt": 1.0})
    with pytest.raises(ValueError, match="the armature of joint 'a_joint' is -1"):
        with_joint_properties(model, armature=-1.0)
    with pytest.raises(TypeError, match="no property 'dampling'"):
        with_joint_properties(model, dampling=1.0)
