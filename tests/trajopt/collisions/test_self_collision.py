"""Self-collision along a motion, as part of the limit report."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from trajopt.collisions import self_collision
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.collisions.self_collision import check_self_collision

INERTIA = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
BAR = '<collision><origin xyz="0 0 0.2"/><geometry><cylinder radius="0.03" length="0.4"/></geometry></collision>'


def file(shape=BAR, last=BAR):
    """Three bars of 0.4 m in a plane, at joints about y."""
    links = "".join(
        f'<link name="{n}">{INERTIA}{s}</link>' for n, s in (("one", shape), ("two", shape), ("three", last))
    )
    joint = '<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><axis xyz="0 1 0"/><origin xyz="0 0 {}"/>'
    limit = '<limit lower="-3.1" upper="3.1" velocity="9" effort="99"/></joint>'
    ends = (("a", "base", "one", 0), ("b", "one", "two", 0.42), ("c", "two", "three", 0.42))
    return f'<robot name="bars"><link name="base"/>{links}{"".join(joint.format(*e) + limit for e in ends)}</robot>'


@pytest.fixture
def load(tmp_path):
    def loaded(text):
        path = tmp_path / f"bars{len(list(tmp_path.iterdir()))}.urdf"
        path.write_text(text)
        return to.load_urdf(path)

    return loaded


CLEAR = np.linspace([0.0, 0.0, 0.0], [0.5, 1.0, 1.0], 11)
ROLLED = np.linspace([0.0, 0.0, 0.0], [0.0, 2.5, 2.5], 11)
"""The third bar ends across the first one."""


def with_limits(model, qs):
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic", engine="numpy"))
    xs = np.hstack([qs, np.zeros_like(qs)])
    return to.OCP.single_phase(dynamics, xs[0], len(qs) - 1, 0.1, model=model), xs, np.zeros((len(qs) - 1, 3))


def test_links_that_overlap_are_found_with_their_knots(load):
    pytest.importorskip("coal")
    model = load(file())
    assert check_self_collision(model, CLEAR) == ((), "")
    (found,) = check_self_collision(model, ROLLED).collisions
    assert found.links == ("one", "three") and found.depth > 0.01
    times = [k for k in range(11) if check_self_collision(model, ROLLED[k : k + 1]).collisions]
    assert found.knot in times and found.knots == len(times) > 0 and 0 not in times


def test_meshes_in_package_folders_given_to_the_loader_are_found(tmp_path):
    pytest.importorskip("coal")
    trimesh = pytest.importorskip("trimesh")
    package = tmp_path / "elsewhere" / "bars_description"
    package.mkdir(parents=True)
    bar = trimesh.creation.cylinder(0.03, 0.4, transform=trimesh.transformations.translation_matrix([0.0, 0.0, 0.2]))
    bar.export(package / "bar.stl")
    path = tmp_path / "bars.urdf"
    path.write_text(
        file(*2 * ['<collision><geometry><mesh filename="package://bars_description/bar.stl"/></geometry></collision>'])
    )
    model = to.load_urdf(path, package_dirs=package.parent)
    assert check_self_collision(model, CLEAR) == ((), "")
    (found,) = check_self_collision(model, ROLLED).collisions
    assert found.links == ("one", "three") and found.depth > 0.01


def test_the_limit_report_contains_self_collision(load):
    pytest.importorskip("coal")
    model = load(file())
    ocp, xs, us = with_limits(model, CLEAR)
    assert to.limit_violations(ocp, xs, us) == []
    assert to.self_collision_note(ocp, xs) == "no self-collision at the knots"
    ocp, xs, us = with_limits(model, ROLLED)
    (broken,) = to.limit_violations(ocp, xs, us)
    assert broken.kind == "self-collision" and not broken.enforced and not broken.at_start
    assert broken.sentence().startswith("self-collision: one and three overlap by")
    assert "knot" in broken.sentence() and "arm_in_scene" in broken.sentence()
    assert to.self_collision_note(ocp, xs) == ""


@pytest.mark.parametrize(
    "goal, message", [(0.0, "no self-collision at the knots"), (ROLLED[-1], "one and three overlap by")]
)
def test_the_report_of_a_script_contains_self_collision(load, tmp_path, goal, message):
    """The report also works for a saved solution; the solve's metadata is unchanged."""
    pytest.importorskip("coal")
    ocp, xs, us = with_limits(load(file()), CLEAR)
    ends = to.state_cost(ocp.manifold, np.r_[np.broadcast_to(goal, 3), np.zeros(3)], 1e4)
    solution = to.solve(replace(ocp, terminal=(ends,)), to.Guess(xs, us), {"max_iterations": 30})
    assert message in solution.report() and "was not checked" not in solution.report()
    assert to.Solution.load(solution.save(tmp_path / "bent.npz")).report() == solution.report()
    if message.startswith("one"):
        assert "all limits are satisfied" not in solution.report()


def test_a_start_in_self_collision_is_reported_as_given(load):
    pytest.importorskip("coal")
    ocp, xs, us = with_limits(load(file()), np.tile(ROLLED[-1], (3, 1)))
    (broken,) = to.limit_violations(ocp, xs, us)
    assert broken.at_start and "the initial state already overlaps" in broken.sentence()


def test_unchecked_parts_are_reported_with_the_reason(load):
    ocp, xs, us = with_limits(load(file("", "")), ROLLED)
    assert to.limit_violations(ocp, xs, us) == []
    note = to.self_collision_note(ocp, xs)
    assert note.startswith("self-collision was not checked: ") and "no collision shapes" in note
    mesh = '<collision><geometry><mesh filename="nowhere.stl"/></geometry></collision>'
    ocp, xs, us = with_limits(load(file(last=mesh)), ROLLED)
    assert "nowhere.stl" in to.self_collision_note(ocp, xs)
    ocp, xs, us = with_limits(to.chain(3), ROLLED)
    assert "made without a file" in to.self_collision_note(ocp, xs)
    assert to.self_collision_note(ocp, np.full_like(xs, np.nan)) == ""


def test_without_coal_capsules_that_are_clear_suffice(load, monkeypatch):
    monkeypatch.setattr(self_collision, "find_spec", lambda name: None)
    model = load(file())
    assert check_self_collision(model, CLEAR) == ((), "")
    found = check_self_collision(model, ROLLED)
    assert not found.collisions and "one and three overlap; the package coal" in found.unchecked


def test_links_that_overlap_in_every_posture_are_ignored(load):
    """A hood on the third link extends around its joint into the first link."""
    pytest.importorskip("coal")
    hood = '<collision><geometry><sphere radius="0.5"/></geometry></collision>'
    assert check_self_collision(load(file(last=hood)), ROLLED) == ((), "")


def two_boxes(path, size):
    """Write a mesh of two boxes on one axis, the second one wider, so not convex; return it and the boxes as shapes of a link."""
    trimesh = pytest.importorskip("trimesh")
    parts = [((0.06, 0.06, size), size / 2.0), ((0.12, 0.12, 0.04), size - 0.02)]
    boxes = [trimesh.creation.box(extents).apply_translation([0.0, 0.0, z]) for extents, z in parts]
    trimesh.util.concatenate(boxes).export(path)
    shape = '<collision><origin xyz="0 0 {}"/><geometry><box size="{} {} {}"/></geometry></collision>'
    mesh = f'<collision><geometry><mesh filename="{path}"/></geometry></collision>'
    return mesh, "".join(shape.format(z, *extents) for extents, z in parts)


def test_meshes_that_are_not_convex_overlap_as_the_boxes_they_consist_of(load, tmp_path):
    pytest.importorskip("coal")
    mesh, boxes = two_boxes(tmp_path / "bar.stl", 0.4)
    by_mesh, by_boxes = (check_self_collision(load(file(shape, shape)), ROLLED) for shape in (mesh, boxes))
    (found,), (expected,) = by_mesh.collisions, by_boxes.collisions
    assert found.links == expected.links and found.knots == expected.knots > 1
    assert expected.depth <= found.depth < 1.5 * expected.depth


def test_depths_are_computed_of_the_deepest_overlaps_only(load, tmp_path, monkeypatch):
    """The depth of two meshes takes several hundred collision checks, a comparison with a depth 26."""
    pytest.importorskip("coal")
    depths, depth = [], MeshCheck.depth
    monkeypatch.setattr(MeshCheck, "depth", lambda *args: depths.append(depth(*args)) or depths[-1])
    mesh, _ = two_boxes(tmp_path / "bar.stl", 0.4)
    model = load(file(mesh, mesh))
    (found,) = check_self_collision(model, np.linspace(ROLLED[0], ROLLED[-1], 201)).collisions
    assert found.depth == max(depths) and depths == sorted(set(depths))
    assert len(depths) < 0.1 * found.knots


def test_a_changed_file_is_read_again(tmp_path):
    pytest.importorskip("coal")
    path = tmp_path / "bars.urdf"
    path.write_text(file())
    assert check_self_collision(to.load_urdf(path), ROLLED).collisions
    path.write_text(file("", ""))
    assert check_self_collision(to.load_urdf(path), ROLLED).unchecked


def test_the_parent_of_a_body_with_two_joints_is_its_neighbor(tmp_path):
    pytest.importorskip("mujoco")
    joint = '<joint name="{}" type="{}" axis="0 0 1"/>'
    for joints in (joint.format("hoist", "slide"), joint.format("hoist", "slide") + joint.format("twist", "hinge")):
        file = tmp_path / f"crane{len(joints)}.xml"
        file.write_text(
            '<mujoco><worldbody><body name="rope"><joint name="swing" axis="0 1 0"/><geom type="capsule" '
            f'fromto="0 0 0 0 0 -.5" size=".02"/><body name="load" pos="0 0 -.5">{joints}'
            '<geom type="box" pos="0 0 -.05" size=".1 .05 .05"/></body></body></worldbody></mujoco>'
        )
        model = to.load_robot(file)
        lifted = np.array([0.3, 0.05, 0.2])[None, : model.nq]
        assert check_self_collision(model, lifted) == ((), "")
