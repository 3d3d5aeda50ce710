"""Images drawn without a window: the nearest surface is visible, edges stay sharp, videos move."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath
from dynamics_backends.rigid_body.geometry.shapes import Box, HalfSpace, Sphere
from trajopt.problem.annotations import Annotations
from trajopt.view.motion import Motion
from trajopt.view.picture import FINER, GOAL, Moment, Studio, round_length
from trajopt.view.raster import Camera, Layer, Solid, blend, corner_normals, render

ARM = """<robot name="arm">
  <link name="base"><visual><geometry><box size="0.2 0.2 0.1"/></geometry></visual></link>
  <link name="upper"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><box size="0.04 0.04 0.6"/></geometry><material name="red"><color rgba="1 0 0 1"/></material></visual></link>
  <joint name="a" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
</robot>"""
ALONG_Z = Camera(np.eye(3), np.zeros(2), 1.0, 40, 30)
"""One pixel per meter; right is x, up is y, and the camera is above."""


@pytest.fixture
def arm(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    return to.load_urdf(tmp_path / "arm.urdf")


def triangles(corners, colors):
    corners = np.asarray(corners, float)
    faces = np.arange(3 * len(corners)).reshape(-1, 3)
    normals = np.tile([0.0, 0.0, 1.0], (len(corners), 3, 1))
    return Solid(corners.reshape(-1, 3), faces, normals, np.asarray(colors, float))


def inside(corner, x, y):
    """True if points lie in the projection of one triangle (3, 3): on one side of all edges."""
    sides = []
    for i in range(3):
        (ax, ay, _), (bx, by, _) = corner[i], corner[(i + 1) % 3]
        sides.append((bx - ax) * (y - ay) - (by - ay) * (x - ax))
    return (np.array(sides) > 0).all(axis=0) | (np.array(sides) < 0).all(axis=0)


def test_the_nearest_triangle_is_seen():
    """At each pixel, the highest of all triangles that contain its center is visible; compared pixel by pixel."""
    rng = np.random.default_rng(3)
    corners = rng.uniform([-25.0, -20.0, -5.0], [25.0, 20.0, 5.0], (60, 3, 3))
    colors = np.zeros((60, 3))
    layer = render([triangles(corners, colors)], ALONG_Z)
    x, y = np.meshgrid(np.arange(40) + 0.5 - 20.0, 15.0 - np.arange(30) - 0.5)
    best = np.full(x.shape, -np.inf)
    for corner in corners:
        normal = np.cross(corner[1] - corner[0], corner[2] - corner[0])
        height = corner[0, 2] - ((x - corner[0, 0]) * normal[0] + (y - corner[0, 1]) * normal[1]) / normal[2]
        best = np.where(inside(corner, x, y), np.maximum(best, height), best)
    assert np.isinf(best).any() and np.isfinite(best).any()
    np.testing.assert_allclose(layer.nearness, best, atol=2e-4)


def test_surfaces_that_face_the_lamp_are_brighter():
    solid = triangles([[[-9, -9, 0], [9, -9, 0], [0, 9, 0]]], [[0.5, 0.5, 0.5]])
    turned = solid._replace(normals=np.tile([0.9, -0.3, 0.3], (1, 3, 1)))
    assert render([solid], ALONG_Z).color[15, 20, 0] > render([turned], ALONG_Z).color[15, 20, 0]
    flipped = solid._replace(normals=-solid.normals)  # files may have inward normals
    np.testing.assert_array_equal(render([flipped], ALONG_Z).color, render([solid], ALONG_Z).color)


def test_edges_stay_and_round_surfaces_are_smooth():
    cube = corner_normals(*Box((1.0, 1.0, 1.0)).triangles())
    assert set(np.abs(np.round(cube, 12)).reshape(-1, 3).sum(axis=1)) == {1.0}  # along an axis, each of them
    vertices, faces = Sphere(1.0).triangles()
    outward = np.einsum("nij,nij->ni", corner_normals(vertices, faces), vertices[faces])
    assert outward.min() > 0.98


def test_surfaces_look_the_same_with_both_orientations():
    """Files do not agree about the order of the corners of a triangle."""
    vertices, faces = Sphere(8.0).triangles()
    colors = np.full((len(faces), 3), 0.5)
    one, other = (
        render([Solid(vertices, f, corner_normals(vertices, f), colors)], ALONG_Z) for f in (faces, faces[:, ::-1])
    )
    np.testing.assert_allclose(other.nearness, one.nearness, atol=1e-4)
    np.testing.assert_allclose(other.color, one.color, atol=1e-3)


def test_transparent_layers_are_blended_where_they_are_nearer():
    shape = (1, 3)
    below = Layer(np.zeros((*shape, 3)), np.array([[0.0, 2.0, -np.inf]]))
    above = Layer(np.ones((*shape, 3)), np.array([[1.0, 1.0, -np.inf]]))
    np.testing.assert_allclose(blend(below, above, 0.25).color[0, :, 0], [0.25, 0.0, 0.0])


def swing(model):
    return Motion("robot", model, np.array([0.0, 0.5, 1.0]), np.array([[0.0], [0.5], [1.2]]))


def test_a_picture_shows_the_robot_where_it_is(arm):
    """The red link turns: its pixels are around the projection of its center; the goal's dot is at the goal."""
    goal = np.array([0.3, 0.2, 0.5])
    studio = Studio([swing(arm)], Annotations(goals=[goal]), width=300)
    for i, angle in enumerate((0.0, 0.5, 1.2)):
        picture = np.asarray(studio.picture([Moment(0, i)]), dtype=float)
        assert picture.shape[1] == 300
        red = np.argwhere((picture[:, :, 0] > 100) & (picture[:, :, 0] > 2.0 * picture[:, :, 2]))
        middle = studio.camera.projected(np.zeros(3))[:2] / FINER
        tip = studio.camera.projected(0.3 * np.array([np.sin(angle), 0.0, np.cos(angle)]))[:2] / FINER
        assert np.linalg.norm(red[:, ::-1] - tip, axis=1).min() < 4.0
        assert np.linalg.norm(red.mean(axis=0)[::-1] - middle) < 20.0
        column, row = np.round(studio.camera.projected(goal)[:2] / FINER).astype(int)
        np.testing.assert_allclose(picture[row, column], [42, 138, 74], atol=8)


def test_ghosts_are_transparent(arm):
    """The red link of a ghost is paler than that of the robot, and the ghost hides nothing of the robot behind it."""
    robot = swing(arm)
    studio = Studio([robot, replace(robot, opacity=0.25)], width=200)
    alone, both = (np.asarray(studio.picture(m), float) for m in ([Moment(0, 2)], [Moment(0, 2), Moment(1, 0)]))
    column, row = np.round(studio.camera.projected(np.array([0.0, 0.0, 0.2]))[:2] / FINER).astype(int)
    solid = np.asarray(studio.picture([Moment(0, 0)]), float)[row, column]
    assert solid[1] < 150.0 < both[row, column, 1] < alone[row, column, 1] == 255.0


def test_bodies_of_a_scene_move_in_a_picture(arm):
    ball = Body("ball", Sphere(0.1), p=np.array([0.0, -0.4, 0.2]), path=BodyPath((0.0, 1.0), ((0, 0, 0), (0, 0.8, 0))))
    studio = Studio([swing(arm)], Annotations(bodies=[ball]), width=200)
    first, last = (np.asarray(studio.picture([Moment(0, i)]), float) for i in (0, 2))
    column, row = np.round(studio.camera.projected(np.array([0.0, -0.4, 0.2]))[:2] / FINER).astype(int)
    assert first[row, column, 2] < last[row, column, 2]  # orange there at first, later not


def test_a_scene_is_in_the_picture_and_a_floor_is_its_ground(arm):
    """All corners of a shelf are visible; an unbounded floor only sets the height of the grid."""
    shelf = Body("shelf", Box((0.4, 1.6, 0.8)), p=np.array([0.9, 0.3, 0.4]))
    floor = Body("floor", HalfSpace(), p=np.array([0.0, 0.0, -0.1]))
    alone, framed, grounded = (
        Studio([swing(arm)], Annotations(bodies=bodies), width=200) for bodies in ((), (shelf,), (shelf, floor))
    )
    corners = shelf.shape.triangles().vertices + shelf.p
    for studio, whole in ((alone, False), (framed, True)):
        seen = studio.camera.projected(corners)[:, :2]
        assert (seen.min() >= 0 and seen.max() <= studio.camera.width) == whole
    np.testing.assert_array_equal(grounded.camera.projected(corners), framed.camera.projected(corners))
    assert len(framed._floor) == 0  # the arm reaches below the default ground
    assert set(grounded._floor[..., 2].ravel()) == {-0.1}


def test_a_film_moves(arm, tmp_path):
    from PIL import Image, ImageChops

    from trajopt.view.files import write_film

    path, missing = write_film(tmp_path / "swing.gif", [swing(arm)], width=120)
    with Image.open(path) as film:
        assert film.n_frames == 26 and missing == ()
        first = film.convert("RGB")
        film.seek(25)
        assert ImageChops.difference(first, film.convert("RGB")).getbbox() is not None
    with pytest.raises(ValueError, match="is not a video file: the name must end in"):
        write_film(tmp_path / "swing.avi", [swing(arm)])


def test_a_goal_that_moves_keeps_its_color_in_a_film(arm, tmp_path):
    """The palette of a GIF includes a color of few pixels among thousands."""
    from PIL import Image

    from trajopt.view.files import write_film

    goal = Body(
        "goal", Sphere(0.01), p=np.array([0.3, -0.3, 0.2]), path=BodyPath((0.0, 1.0), ((0, 0, 0), (0, 0.6, 0.2)))
    )
    path, _ = write_film(tmp_path / "goal.gif", [swing(arm)], Annotations(targets=[goal]), width=160)
    found = []
    with Image.open(path) as film:
        for i in (0, 25):
            film.seek(i)
            picture = np.asarray(film.convert("RGB"), int)
            found.append(np.argwhere(np.abs(picture - GOAL).max(axis=2) == 0))
    assert all(30 < len(pixels) < 250 for pixels in found)
    assert np.linalg.norm(found[0].mean(axis=0) - found[1].mean(axis=0)) > 20.0


def test_a_film_for_players(arm, tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    from trajopt.view.files import write_film

    path, _ = write_film(tmp_path / "swing.mp4", [swing(arm)], width=120)
    assert path.read_bytes()[4:8] == b"ftyp"


def test_lengths_of_a_grid_are_round():
    assert [round_length(x) for x in (0.99, 1.0, 4.9, 5.0, 0.025)] == pytest.approx([0.5, 1.0, 2.0, 5.0, 0.02])
