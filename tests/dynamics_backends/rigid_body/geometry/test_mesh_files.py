"""Mesh files: read as another reader reads them, and cut where a robot has more triangles than are drawn."""

import numpy as np
import pytest

from dynamics_backends.rigid_body.geometry.mesh_files.collada import read_collada
from dynamics_backends.rigid_body.geometry.mesh_files.parts import NotRead
from dynamics_backends.rigid_body.geometry.mesh_files.stl import read_stl
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from dynamics_backends.rigid_body.geometry.urdf_shapes import urdf_shapes

SCENE = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><unit name="meter" meter="1"/><up_axis>Z_UP</up_axis></asset>
  <library_effects><effect id="e"><profile_COMMON><technique sid="common"><lambert>
    <diffuse><color>0.2 0.4 0.8 1</color></diffuse><transparent><color>1 1 1 0.6</color></transparent>
  </lambert></technique></profile_COMMON></effect></library_effects>
  <library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
  <library_geometries><geometry id="g"><mesh>
    <source id="s"><float_array id="n" count="15">0 0 0 1 0 0 1 2 0 0 1 0 0.5 0.5 3</float_array>
      <technique_common><accessor source="#n" count="5" stride="3">
        <param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/>
      </accessor></technique_common></source>
    <source id="o"><float_array id="k" count="3">0 0 1</float_array>
      <technique_common><accessor source="#k" count="1" stride="3">
        <param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/>
      </accessor></technique_common></source>
    <vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
    <polylist count="2" material="paint"><input semantic="VERTEX" source="#v" offset="0"/>
      <input semantic="NORMAL" source="#o" offset="1"/><vcount>4 3</vcount><p>0 0 1 0 2 0 3 0  0 0 1 0 4 0</p></polylist>
    <triangles count="1"><input semantic="VERTEX" source="#v" offset="0"/><p>2 3 4</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="scene">
    <node id="a"><translate>1 2 3</translate><rotate>0 0 1 30</rotate><scale>2 1 0.5</scale>
      <node id="b"><matrix>0 -1 0 0.1 1 0 0 0.2 0 0 1 0.3 0 0 0 1</matrix>
        <instance_geometry url="#g"><bind_material><technique_common><instance_material symbol="paint" target="#m"/>
        </technique_common></bind_material></instance_geometry></node></node>
    <node id="c"><scale>-1 1 1</scale><instance_geometry url="#g"/></node>
  </visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#scene"/></scene>
</COLLADA>
"""


def by_another_reader(path):
    """Corners (n, 3, 3) and color of each part, by trimesh."""
    trimesh = pytest.importorskip("trimesh")
    pieces = trimesh.load_scene(path, process=False).dump()
    return [(np.asarray(piece.triangles), piece) for piece in pieces]


def test_a_collada_scene_is_read_as_another_reader_does(tmp_path):
    """Nested nodes with all kinds of transforms, polygons, a mirrored use, colors with opacity."""
    pytest.importorskip("collada")
    path = tmp_path / "scene.dae"
    path.write_text(SCENE)
    ours, theirs = read_collada(path), by_another_reader(path)
    assert len(ours) == len(theirs) == 4
    for part, (corners, piece) in zip(ours, theirs, strict=True):
        ordered, expected = (
            sorted(np.roll(t, -np.lexsort(t.T)[0], axis=0).round(5).tolist() for t in c)
            for c in (part.vertices[part.faces], corners)
        )
        np.testing.assert_allclose(ordered, expected, atol=2e-5)
        if part.color is not None:
            np.testing.assert_allclose(part.color, piece.visual.material.main_color / 255.0, atol=3e-3)
    assert [part.color is None for part in ours] == [False, True, True, True]


@pytest.mark.parametrize(
    ("old", "new"), [("0 0 1 0 4 0<", "0 0 1 0 9 0<"), ("<color>0.2", "<texture/><color x"), ('url="#g"', 'url="#h"')]
)
def test_what_the_reader_of_collada_does_not_know_is_left_to_others(tmp_path, old, new):
    path = tmp_path / "scene.dae"
    path.write_text(SCENE.replace(old, new))
    with pytest.raises(NotRead):
        read_collada(path)


@pytest.mark.parametrize("kind", ["stl", "stl_ascii"])
def test_an_stl_file_is_read_as_another_writes_it(tmp_path, kind):
    trimesh = pytest.importorskip("trimesh")
    vertices, faces = Sphere(0.3).triangles()
    path = tmp_path / "ball.stl"
    trimesh.Trimesh(vertices, faces, process=False).export(path, file_type=kind)
    (part,) = read_stl(path)
    np.testing.assert_allclose(part.vertices[part.faces], vertices[faces], atol=1e-6)


def test_large_meshes_keep_a_larger_share_of_the_triangles(tmp_path, monkeypatch):
    """Two files, one nine times as large as the other: so are their shares of what the robot may have."""
    asked = {}

    def cut(path, triangles):
        asked[path.name] = triangles
        return ()

    monkeypatch.setattr("dynamics_backends.rigid_body.geometry.urdf_shapes.simplified_mesh", cut)
    for name, size in (("a.stl", 9_000), ("b.stl", 1_000)):
        (tmp_path / name).write_bytes(bytes(size))
    mesh = '<link name="{0}"><visual><geometry><mesh filename="{0}.stl"/></geometry></visual></link>'
    (tmp_path / "r.urdf").write_text(f'<robot name="r">{mesh.format("a")}{mesh.format("b")}</robot>')
    urdf_shapes(tmp_path / "r.urdf", triangles=10_000)
    assert asked == {"a.stl": 9_000, "b.stl": 1_000}
