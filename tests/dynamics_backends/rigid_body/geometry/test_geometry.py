"""Shapes of links: their surfaces, the files they come from, and the capsules around them."""

from pathlib import Path

import numpy as np
import pytest

from dynamics_backends.rigid_body.geometry import meshes
from dynamics_backends.rigid_body.geometry.covers import (
    cached_capsules,
    cached_covers,
    covers,
    distances_to_segment,
    fit_capsule,
    rough_covers,
)
from dynamics_backends.rigid_body.geometry.hull import distinct
from dynamics_backends.rigid_body.geometry.link_shapes import link_shapes, urdf_shapes
from dynamics_backends.rigid_body.geometry.meshes import (
    MeshMissing,
    _cached_mesh,
    cached_mesh,
    find_mesh,
    load_mesh,
    simplified,
    simplified_mesh,
    stored,
    welded,
)
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, PlacedShape, Sphere
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from dynamics_backends.rigid_body.urdf.xml_source import URDFError

SHAPES = {
    "sphere": (Sphere(0.3), 4.0 / 3.0 * np.pi * 0.3**3),
    "box": (Box((0.2, 0.4, 0.6)), 0.2 * 0.4 * 0.6),
    "cylinder": (Cylinder(0.2, 0.7), np.pi * 0.2**2 * 0.7),
    "capsule": (Capsule(0.2, 0.5), np.pi * 0.2**2 * (0.5 + 4.0 / 3.0 * 0.2)),
}
LINK = '<link name="{}"><visual>{}<geometry>{}</geometry>{}</visual></link>'
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def enclosed(vertices, faces):
    """The volume inside a closed surface whose faces are counterclockwise from outside, by the divergence theorem."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6.0


@pytest.mark.parametrize("name", SHAPES)
def test_surfaces_enclose_the_volume_of_their_shape(name):
    """Polygons inscribed in circles of 24 edges lose up to 1.7 % of the area, spheres twice."""
    shape, volume = SHAPES[name]
    found = enclosed(*shape.triangles())
    assert (0.96 if name != "box" else 1.0 - 1e-12) * volume <= found <= volume * (1.0 + 1e-12)


# -- capsules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_capsule_covers_every_point(seed):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((60, 3)) * rng.uniform(0.01, 0.5, 3) + rng.standard_normal(3)
    found = fit_capsule(points)
    assert distances_to_segment(points, found.a, found.b).max() <= found.radius * (1.0 + 1e-12)
    center = points.mean(axis=0)
    ball = np.linalg.norm(points - center, axis=1).max()
    assert found.volume <= 4.0 / 3.0 * np.pi * ball**3


@pytest.mark.parametrize("name", SHAPES)
def test_rough_capsules_cover_their_shapes_spheres_and_capsules_exactly(name):
    placed = PlacedShape("a", SHAPES[name][0], rpy_matrix(np.array([0.3, -0.8, 2.0])), np.array([0.5, -0.2, 1.0]))
    (piece,) = rough_covers([placed])
    points, found = placed.triangles().vertices, piece.capsule
    assert distances_to_segment(points, found.a, found.b).max() <= found.radius * (1.0 + 1e-12)
    if name in ("sphere", "capsule"):
        assert found.volume == pytest.approx(SHAPES[name][1])


@pytest.mark.parametrize("covering", [rough_covers, lambda shapes: covers(shapes, 1.0, 1), covers])
@pytest.mark.parametrize("length", [0.05, 0.3, 2.0])
def test_capsules_cover_the_circles_of_cylinders(length, covering):
    """Polygons inscribed in the circles lose 0.9 % of the radius."""
    angles = np.linspace(0.0, 2.0 * np.pi, 1000)
    circle = np.column_stack([0.4 * np.cos(angles), 0.4 * np.sin(angles), np.full(1000, 0.5 * length)])
    R, p = rpy_matrix(np.array([0.3, -0.8, 2.0])), np.array([0.5, -0.2, 1.0])
    points = np.concatenate([circle, circle * [1.0, 1.0, -1.0]]) @ R.T + p
    capsules = [piece.capsule for piece in covering([PlacedShape("a", Cylinder(0.4, length), R, p)])]
    outside = [distances_to_segment(points, c.a, c.b) - c.radius for c in capsules]
    assert np.min(outside, axis=0).max() <= 1e-12


def test_the_capsule_of_a_capsule_is_itself():
    points = Capsule(0.1, 0.6).triangles().vertices @ np.diag([1.0, -1.0, -1.0]) + [1.0, 2.0, 3.0]
    found = fit_capsule(points)
    assert found.volume == pytest.approx(Capsule(0.1, 0.6).volume, rel=0.01)
    np.testing.assert_allclose(0.5 * (found.a + found.b), [1.0, 2.0, 3.0], atol=1e-3)


def test_few_points_have_capsules_too():
    assert fit_capsule(np.ones((3, 3))).radius == 0.0
    pair = fit_capsule(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    assert distances_to_segment(np.array([[1.0, 0.0, 0.0]]), pair.a, pair.b).max() <= pair.radius + 1e-12
    for bad in (np.zeros((0, 3)), np.full((4, 3), np.nan), np.zeros((4, 2))):
        with pytest.raises(ValueError, match="expected \\(n, 3\\) finite"):
            fit_capsule(bad)


# -- URDF ---------------------------------------------------------------------------------------------------------------


def robot(*links):
    return f'<robot name="r"><material name="steel"><color rgba="0.1 0.2 0.3 1"/></material>{"".join(links)}</robot>'


def test_shapes_of_links_with_their_places_and_colors():
    box = LINK.format(
        "a", '<origin xyz="1 2 3" rpy="0 0 1.5707963267948966"/>', '<box size="2 0 0"/>', '<material name="steel"/>'
    )
    placed, missing = urdf_shapes(robot(box, LINK.format("b", "", '<sphere radius="0.5"/>', "")))
    assert missing == ()
    assert [shape.link for shape in placed] == ["a", "b"]
    assert placed[0].color == (0.1, 0.2, 0.3, 1.0)
    assert placed[1].color is None
    low, high = (f(placed[0].triangles().vertices, axis=0) for f in (np.min, np.max))
    np.testing.assert_allclose([low, high], [[1, 1, 3], [1, 3, 3]], atol=1e-12)


def test_wrong_shapes_are_refused_at_their_place():
    with pytest.raises(URDFError, match=r"line 1.*<geometry>.*it contains no known shape: <box>"):
        urdf_shapes(robot(LINK.format("a", "", "<cone/>", "")))


def test_meshes_are_found_by_package_and_missing_ones_named_once(tmp_path):
    pytest.importorskip("trimesh")
    folder = tmp_path / "arm_description" / "urdf"
    folder.mkdir(parents=True)
    (tmp_path / "arm_description" / "a.obj").write_text(TETRAHEDRON)
    mesh = '<mesh filename="package://arm_description/{}" scale="{}"/>'
    links = [
        LINK.format("a", "", mesh.format("a.obj", "2 2 2"), ""),
        LINK.format("m", "", mesh.format("a.obj", "1 1 -1"), ""),
    ]
    links += [LINK.format(name, "", mesh.format("none.stl", "1 1 1"), "") for name in ("b", "c")]
    (folder / "arm.urdf").write_text(robot(*links))
    placed, missing = urdf_shapes(folder / "arm.urdf")
    assert [enclosed(*shape.triangles()) for shape in placed] == pytest.approx([8.0 / 6.0, 1.0 / 6.0])
    assert len(missing) == 1
    assert "none.stl" in missing[0]
    assert "b, c" in missing[0]


def test_meshes_are_cached_until_the_file_changes(tmp_path, monkeypatch):
    pytest.importorskip("trimesh")
    pytest.importorskip("fast_simplification")
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "a.obj"
    path.write_text(TETRAHEDRON)
    first, whole = simplified_mesh(path, 300), cached_mesh(path)
    _cached_mesh.cache_clear()
    monkeypatch.setattr("dynamics_backends.rigid_body.geometry.meshes.load_mesh", lambda _: pytest.fail("read anew"))
    np.testing.assert_array_equal(simplified_mesh(path, 300)[0].vertices, first[0].vertices)
    (again,) = cached_mesh(path)
    np.testing.assert_array_equal(again.vertices, whole[0].vertices)
    np.testing.assert_array_equal(again.faces, whole[0].faces)
    assert again.color == whole[0].color
    path.write_text(TETRAHEDRON + "v 2 2 2\n")
    for read in (cached_mesh, lambda path: simplified_mesh(path, 300)):
        with pytest.raises(pytest.fail.Exception, match="read anew"):
            read(path)


def test_capsules_are_cached_and_computed_again_for_another_shape(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "cache"))
    bar = PlacedShape("a", Box((0.6, 0.1, 0.1)), np.eye(3), np.zeros(3))
    ball = PlacedShape("b", Sphere(0.2), np.eye(3), np.ones(3))
    first, coarse = cached_covers([bar, ball], 0.03, 3), cached_capsules([np.eye(3), np.arange(12.0).reshape(4, 3)])
    for what in ("covers", "fit_capsule"):
        monkeypatch.setattr(
            f"dynamics_backends.rigid_body.geometry.covers.{what}", lambda *_: pytest.fail("searched anew")
        )
    again = cached_covers([bar, ball], 0.03, 3)
    assert [piece.link for piece in again] == [piece.link for piece in first] and len(first) > 2
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.triangles, other.triangles)
        assert one.excess == other.excess and one.capsule.radius == other.capsule.radius
        np.testing.assert_array_equal([one.capsule.a, one.capsule.b], [other.capsule.a, other.capsule.b])
    found = cached_capsules([np.eye(3), np.arange(12.0).reshape(4, 3)])
    assert [capsule.radius for capsule in found] == [capsule.radius for capsule in coarse]
    for shapes, tolerance in (([bar], 0.03), ([bar, ball._replace(p=np.zeros(3))], 0.03), ([bar, ball], 0.02)):
        with pytest.raises(pytest.fail.Exception, match="searched anew"):
            cached_covers(shapes, tolerance, 3)


def test_a_damaged_entry_of_the_cache_is_replaced(tmp_path):
    entry = tmp_path / "cache" / "a.npz"
    assert stored(entry, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    for content in (entry.read_bytes()[:-1], entry.read_bytes()[1:], b"", b"0" * 100):
        entry.write_bytes(content)
        assert stored(entry, lambda: {"a": np.arange(4)})["a"].tolist() == [0, 1, 2, 3]
        assert stored(entry, lambda: pytest.fail("computed anew"))["a"].tolist() == [0, 1, 2, 3]


def test_a_shape_of_one_piece_needs_no_rough_capsule(monkeypatch):
    bar = PlacedShape("a", Box((0.6, 0.1, 0.1)), np.eye(3), np.zeros(3))
    monkeypatch.setattr(
        "dynamics_backends.rigid_body.geometry.covers.rough_capsule", lambda *_: pytest.fail("not needed")
    )
    (piece,) = covers([bar], 0.01, 1)
    assert piece.capsule.radius > 0.0707


def test_distinct_points_are_those_of_numpy():
    points = np.random.default_rng(0).integers(-2, 2, (200, 3)).astype(float)
    expected, index = np.unique(points, axis=0, return_inverse=True)
    found = distinct(points)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], index.reshape(-1))
    assert [len(part) for part in distinct(np.zeros((0, 3)))] == [0, 0]


def soup(vertices, faces):
    """A surface with separate corners for each triangle."""
    return vertices[faces].reshape(-1, 3), np.arange(faces.size).reshape(-1, 3)


def test_coincident_corners_are_merged():
    vertices, faces = Sphere(0.3).triangles()
    joined = welded(*soup(vertices, faces))
    edges = np.sort(joined[1][:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    counts = np.unique(edges, axis=0, return_counts=True)[1]
    assert (counts == 2).all()
    assert enclosed(*joined) == pytest.approx(enclosed(vertices, faces))


def test_a_simplified_surface_stays_closed_whoever_shares_its_corners():
    pytest.importorskip("fast_simplification")
    vertices, faces = Sphere(0.3).triangles()
    fewer = len(faces) // 3
    together, apart = simplified(vertices, faces, fewer), simplified(*soup(vertices, faces), fewer)
    assert len(apart[1]) < 0.5 * len(faces)
    assert enclosed(*apart) == pytest.approx(enclosed(*together), rel=0.05)
    assert enclosed(*apart) == pytest.approx(enclosed(vertices, faces), rel=0.1)


def test_invalid_mesh_files_are_reported(tmp_path):
    pytest.importorskip("trimesh")
    (tmp_path / "a.stl").write_text("not a mesh")
    with pytest.raises(MeshMissing, match="a.stl"):
        load_mesh(tmp_path / "a.stl")
    with pytest.raises(MeshMissing, match="folder that holds 'nobody' as package_dirs, or in .* ROS_PACKAGE_PATH"):
        find_mesh("package://nobody/a.stl", tmp_path)


def test_packages_of_meshes_are_found_in_the_folders_given_to_the_loader(tmp_path, monkeypatch):
    pytest.importorskip("trimesh")
    mesh = '<visual><geometry><mesh filename="package://arm_description/a.obj"/></geometry></visual>'
    urdf = tmp_path / "here" / "arm.urdf"
    package = tmp_path / "elsewhere" / "arm_description"
    for folder in (urdf.parent, package):
        folder.mkdir(parents=True)
    urdf.write_text(f'<robot name="arm"><link name="base">{mesh}</link></robot>')
    (package / "a.obj").write_text(TETRAHEDRON)
    bare, given = load_urdf(urdf), lock_joints(load_urdf(urdf, package_dirs=package.parent), ())
    assert given.digest == bare.digest and given.package_dirs == (str(package.parent),)
    (found,) = link_shapes(given.source, package_dirs=given.package_dirs).placed
    assert len(found.shape.faces) == 4
    assert "arm_description" in link_shapes(bare.source).missing[0]
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(package.parent))
    assert not link_shapes(bare.source).missing
    with pytest.raises(ValueError, match="package_dirs: there is no folder '.*nowhere'"):
        load_urdf(urdf, package_dirs=[tmp_path / "nowhere"])


def test_a_part_of_a_package_that_was_copied_keeps_its_meshes(tmp_path):
    """package://robots/arms/one_description/meshes/a.stl of a URDF in elsewhere/one_description/urdf."""
    folder = tmp_path / "elsewhere" / "one_description" / "urdf"
    mesh = folder.parent / "meshes" / "a.stl"
    for made in (folder, mesh.parent):
        made.mkdir(parents=True)
    mesh.write_text("")
    assert find_mesh("package://robots/arms/one_description/meshes/a.stl", folder) == mesh
    with pytest.raises(MeshMissing):
        find_mesh("package://robots/arms/other_description/meshes/a.stl", folder)


def test_meshes_of_example_robot_data_are_found_where_it_is_installed(tmp_path, monkeypatch):
    mesh = tmp_path / "example-robot-data" / "robots" / "one" / "a.stl"
    mesh.parent.mkdir(parents=True)
    mesh.write_text("")
    monkeypatch.setattr(meshes, "example_robots_folder", lambda: tmp_path / "example-robot-data" / "robots")
    name = "package://example-robot-data/robots/one/a.stl"
    assert find_mesh(name, Path("/nowhere")) == mesh
    monkeypatch.setattr(meshes, "example_robots_folder", lambda: None)
    with pytest.raises(MeshMissing, match="pip install example-robot-data"):
        find_mesh(name, Path("/nowhere"))


def test_of_many_missing_meshes_some_are_named():
    link = '<link name="l{0}"><visual><geometry><mesh filename="package://p/{0}.stl"/></geometry></visual></link>'
    messages = urdf_shapes(f'<robot name="r">{"".join(map(link.format, range(9)))}</robot>').missing
    assert len(messages) == 4 and "p/0.stl" in messages[0] and messages[3].startswith("6 more")


COLLADA = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><unit name="meter" meter="1"/><up_axis>Z_UP</up_axis></asset>
  <library_effects><effect id="painted"><profile_COMMON>
    <newparam sid="sampler"><sampler2D><source>nowhere</source></sampler2D></newparam>
    <technique sid="common"><phong><diffuse><texture texture="sampler" texcoord="UV"/></diffuse></phong></technique>
  </profile_COMMON></effect></library_effects>
  <library_materials><material id="paint"><instance_effect url="#painted"/></material></library_materials>
  <library_geometries><geometry id="triangle"><mesh>
    <source id="points"><float_array id="numbers" count="9">0 0 0 1 0 0 0 1 0</float_array>
      <technique_common><accessor source="#numbers" count="3" stride="3">
        <param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/>
      </accessor></technique_common></source>
    <vertices id="corners"><input semantic="POSITION" source="#points"/></vertices>
    <triangles count="1" material="paint"><input semantic="VERTEX" source="#corners" offset="0"/><p>0 1 2</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="scene"><node id="node"><instance_geometry url="#triangle"><bind_material>
    <technique_common><instance_material symbol="paint" target="#paint"/></technique_common>
  </bind_material></instance_geometry></node></visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#scene"/></scene>
</COLLADA>
"""


def test_a_collada_file_is_read_though_its_picture_is_missing(tmp_path):
    pytest.importorskip("trimesh")
    pytest.importorskip("collada")
    path = tmp_path / "painted.dae"
    path.write_text(COLLADA)
    (part,) = load_mesh(path)
    assert np.array_equal(np.sort(part.vertices, axis=0), [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    assert part.faces.shape == (1, 3) and part.color == pytest.approx((0.5, 0.5, 0.5, 1.0), abs=0.01)
