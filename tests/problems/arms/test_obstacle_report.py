"""Reported distances of links from obstacles, for spheres beside a cylinder with a known surface."""

from dataclasses import replace

import numpy as np
import pytest

from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import Box, Sphere
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from problems.arms.obstacle import Obstacle
from problems.arms.obstacle_report import links_from, nearness, nearness_of_bodies

SHAPE = '<collision><origin xyz="0 0 0.5"/><geometry><cylinder radius="0.05" length="1.0"/></geometry></collision>'
URDF = """<robot name="pole"><link name="base"/>
<joint name="hinge" type="revolute"><parent link="base"/><child link="pole"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" effort="10" velocity="5"/></joint>
<link name="pole"><inertial><mass value="1"/><origin xyz="0 0 0.5"/>
<inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/>
</inertial>{shape}</link>
<joint name="end" type="fixed"><parent link="pole"/><child link="tip"/><origin xyz="0 0 1"/></joint><link name="tip"/></robot>"""
QS = np.array([[-1.5], [0.0], [0.0], [1.5]])
"""The pole is upright in the second and third configuration."""


def report_of(tmp_path, obstacle, shape=SHAPE):
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(shape=shape))
    model = load_urdf(path, base="fixed")
    return nearness(model, {"obstacle": obstacle}, {"obstacle": obstacle.axes(model, "tip")}, QS)


def test_a_link_that_is_inside_is_named_with_its_depth(tmp_path):
    pytest.importorskip("coal")
    obstacle = Obstacle(
        center=(0.13, 0.0, 0.5), radius=0.1, margin=0.01
    )  # the axis is 30 mm away, the surface 20 mm inside
    found = report_of(tmp_path, obstacle)
    assert "link axes 30 mm away" in found.sentences[0] and "20 mm inside (pole)" in found.sentences[0]
    (warning,) = found.warnings
    assert warning.startswith("pole is 20 mm inside the obstacle at knot ")
    assert "margin in its table from 0.01 to at least 0.055" in warning and "arm_in_scene" in warning


def test_a_link_between_two_points_is_inside(tmp_path):
    """A sphere between two points, 0.5 m apart, is 30 mm deep at the axis: the points need another spacing, and a margin."""
    pytest.importorskip("coal")
    obstacle = Obstacle(center=(0.07, 0.0, 0.75), radius=0.1, spacing=0.5)
    (warning,) = report_of(tmp_path, obstacle).warnings
    assert (
        warning.startswith("pole is 80 mm inside") and "set spacing = 0.0775 and margin = 0.055 in its table" in warning
    )
    (bare,) = report_of(tmp_path, obstacle, shape="").warnings
    assert bare.startswith("the link axes are 30 mm inside") and "set spacing = 0.05 in its table" in bare


@pytest.mark.parametrize(("radius", "margin"), [(0.02, 0.0), (0.1, 0.0), (0.001, 0.05), (1.0, 0.0)])
def test_the_default_spacing_keeps_the_lines_between_points_outside(tmp_path, radius, margin):
    """The line between two points that touch the sphere, widened by the margin, enters it by at most 3.2 % of its radius."""
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(shape=""))
    obstacle = Obstacle(center=(0.0, 0.0, 0.0), radius=radius, margin=margin)
    along = [float(np.linalg.norm(point.offset)) for point in obstacle.points(load_urdf(path, base="fixed"), "tip")]
    half = 0.5 * np.diff(along).max(initial=0.0)
    assert 0.0 < half < 0.101 and np.sqrt((radius + margin) ** 2 - half**2) >= 0.968 * (radius + margin)


def test_a_link_beyond_all_points_is_reported_with_its_frame(tmp_path):
    """The hand turns at the end of the pole, and only points of the pole are constrained."""
    pytest.importorskip("coal")
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    hand = f'<link name="tip">{inertial}<collision><geometry><sphere radius="0.2"/></geometry></collision></link>'
    path = tmp_path / "pole.urdf"
    text = URDF.format(shape=SHAPE).replace('<link name="tip"/>', hand)
    path.write_text(text.replace('name="end" type="fixed"', 'name="end" type="continuous"'))
    model = load_urdf(path, base="fixed")
    obstacle = Obstacle(center=(0.25, 0.0, 1.0), radius=0.1)
    axes = {"obstacle": [end for end in obstacle.axes(model, "tip") if end.body == 0]}
    (warning,) = nearness(model, {"obstacle": obstacle}, axes, np.c_[QS, 0.0 * QS]).warnings
    assert warning.startswith("tip is 50 mm inside") and 'frame = "tip" in the table' in warning
    assert "increase margin" not in warning
    (asked,) = nearness(model, {"obstacle": replace(obstacle, frame="tip")}, axes, np.c_[QS, 0.0 * QS]).warnings
    assert "increase margin in its table from 0 to at least 0.21" in asked and "frame =" not in asked


def test_a_link_that_stays_clear_gives_no_warning(tmp_path):
    pytest.importorskip("coal")
    found = report_of(tmp_path, Obstacle(center=(0.2, 0.0, 0.5), radius=0.1))
    assert (
        "link axes 100 mm away" in found.sentences[0]
        and "50 mm away (pole)" in found.sentences[0]
        and not found.warnings
    )


def test_capsules_decide_without_true_shapes(tmp_path):
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(shape=SHAPE))
    near, far = (
        Body(name, Sphere(0.1), np.eye(3), np.array([x, 0.0, 0.5])) for name, x in (("ball", 0.13), ("far", 0.3))
    )
    found = links_from(load_urdf(path, base="fixed"), Scene((far, near)), QS, exact=False)
    assert -0.02 - 0.02 <= found.distance <= -0.02 + 1e-9  # capsules exceed the shape by at most their tolerance
    assert (found.link, found.body, found.what) == ("pole", "ball", "capsules around the links") and found.knot in (
        1,
        2,
    )


@pytest.mark.parametrize(
    ("weight", "remedy"), [(1e4, "surroundings.weight = 10000 is too small"), (np.inf, "cannot be maintained")]
)
def test_bodies_around_an_arm_are_reported_with_the_link_that_is_inside(tmp_path, weight, remedy):
    pytest.importorskip("coal")
    path = tmp_path / "pole.urdf"
    path.write_text(URDF.format(shape=SHAPE))
    model = load_urdf(path, base="fixed")
    bodies = [Body("crate", Box((0.2, 0.2, 0.2)), np.eye(3), np.array([x, 0.0, 0.5])) for x in (0.13, 0.2)]
    found = nearness_of_bodies(model, Scene((bodies[0],)), weight, QS)
    assert found.sentences == (
        "surroundings: smallest distance at the knots: the shapes of the links 20 mm inside (pole and crate)",
    )
    (warning,) = found.warnings
    assert warning.startswith("pole is 20 mm inside crate at knot ") and remedy in warning
    clear = nearness_of_bodies(model, Scene((bodies[1],)), weight, QS)
    assert clear == (
        ("surroundings: smallest distance at the knots: the shapes of the links 50 mm away (pole and crate)",),
        (),
    )


def test_a_robot_without_shapes_is_reported(tmp_path):
    found = report_of(tmp_path, Obstacle(center=(0.13, 0.0, 0.5), radius=0.1), shape="")
    assert len(found.sentences) == 2 and not found.warnings
    assert "thickness of the links is not checked" in found.sentences[1]
