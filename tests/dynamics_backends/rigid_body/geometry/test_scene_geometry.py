"""Capsules that cover shapes, and the cores of bodies in a scene."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from dynamics_backends.rigid_body.geometry.covers import covers, distances_to_segment
from dynamics_backends.rigid_body.geometry.hull import hull_of
from dynamics_backends.rigid_body.geometry.scene import HALF_SPACE_SIZE, Body, BodyPath, Scene
from dynamics_backends.rigid_body.geometry.shapes import Box, Capsule, Cylinder, HalfSpace, Mesh, PlacedShape, Sphere

LINK = PlacedShape("link", Box((0.4, 0.1, 0.06)), np.eye(3), np.array([0.1, 0.0, 0.0]))


def on_surface(triangles, count=4000):
    """Points spread over triangles (m, 3, 3)."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([1.0, 1.0, 1.0], count)
    return np.einsum("ki,kij->kj", weights, triangles[rng.integers(len(triangles), size=count)])


@pytest.mark.parametrize("most", [1, 2, 5])
def test_capsules_cover_the_whole_surface(most):
    vertices, faces = LINK.triangles()
    pieces = covers([LINK], 1e-3, most)
    assert len(pieces) == most
    points = np.concatenate([vertices, on_surface(vertices[faces])])
    clear = [distances_to_segment(points, p.capsule.a, p.capsule.b) - p.capsule.radius for p in pieces]
    assert np.min(clear, axis=0).max() < 1e-9


def test_more_pieces_stand_out_less_until_the_tolerance_is_met():
    excess = [max(p.excess for p in covers([LINK], 1e-3, most)) for most in (1, 6)]
    assert excess[1] < 0.8 * excess[0]
    assert len(covers([LINK], 1.0, 6)) == 1


def test_a_sphere_and_a_capsule_cover_themselves():
    shapes = [
        PlacedShape("a", Sphere(0.1), np.eye(3), np.ones(3)),
        PlacedShape("b", Capsule(0.1, 0.4), np.eye(3), np.zeros(3)),
    ]
    ball, rod = covers(shapes, 1e-3, 9)
    assert ball.capsule.radius == rod.capsule.radius == 0.1
    np.testing.assert_allclose([rod.capsule.a[2], rod.capsule.b[2]], [-0.2, 0.2])


def test_covers_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="tolerance"):
        covers([LINK], 0.0, 3)


def convex(count=14, seed=0):
    points = np.random.default_rng(seed).normal(size=(count, 3))
    points *= [0.1, 0.2, 0.3] / np.linalg.norm(points, axis=1)[:, None]
    return points, ConvexHull(points)


def test_a_convex_mesh_is_the_faces_of_its_hull():
    points, hull = convex()
    *faces, ball = Body("stone", Mesh(points, hull.simplices)).cores()
    assert len(faces) == len(hull.simplices) and {f.kind for f in faces} == {"triangle"} and ball.kind == "box"
    for face in faces:
        h, x, y = face.size
        corners = np.array([[-h, 0.0, 0.0], [h, 0.0, 0.0], [x, y, 0.0]]) @ face.R.T + face.p
        assert np.linalg.norm(points[:, None] - corners, axis=2).min(axis=0).max() < 1e-12
        assert ((points - face.p) @ face.R[:, 2]).max() < 1e-12  # the normal points out
        assert np.linalg.det(face.R) == pytest.approx(1.0) and y > 0.0
    depth = -(hull.equations[:, :3] @ ball.p + hull.equations[:, 3])
    assert ball.radius == pytest.approx(depth.min()) and ball.radius > 0.0


def test_the_radius_of_a_simplified_hull_covers_omitted_corners():
    box = hull_of(*Box((0.4, 0.3, 0.2)).triangles(), 0.01)
    assert box.radius == 0.0 and len(box.faces) == 12
    round_one, hull = convex(400)
    assert hull_of(round_one, hull.simplices, 0.001) is None
    found = hull_of(round_one, hull.simplices, 0.05)
    assert len(found.faces) == 64 and 0.0 < found.radius < 0.05
    normals = np.array([face.R[:, 2] for face in found.faces])
    places = np.array([face.p for face in found.faces])
    assert (round_one @ normals.T - (normals * places).sum(axis=1)).max() < found.radius + 1e-12


def test_cores():
    (sphere,) = Body("s", Sphere(0.2)).cores()
    (cylinder,) = Body("c", Cylinder(0.1, 0.4)).cores()
    (floor,) = Body("f", HalfSpace()).cores()
    assert sphere.size == (0.0, 0.0, 0.0) and sphere.radius == 0.2
    assert cylinder.kind == "cylinder" and cylinder.size[:2] == (0.1, 0.2)
    assert floor.p[2] + floor.size[2] == 0.0 and floor.size[0] == HALF_SPACE_SIZE


def test_a_mesh_becomes_capsules_that_cover_it():
    """Two boxes in the form of an L are not convex."""
    parts = [Box((0.3, 0.2, 0.1)).triangles(), Box((0.1, 0.2, 0.3)).triangles()]
    vertices = np.concatenate([parts[0].vertices, parts[1].vertices + [0.2, 0.0, 0.1]])
    faces = np.concatenate([parts[0].faces, parts[1].faces + len(parts[0].vertices)])
    cores = Body("m", Mesh(vertices, faces)).cores()
    ends = [(c.p - c.size[2] * c.R[:, 2], c.p + c.size[2] * c.R[:, 2], c.radius) for c in cores]
    clear = [distances_to_segment(on_surface(vertices[faces]), a, b) - r for a, b, r in ends]
    assert len(cores) > 1 and np.min(clear, axis=0).max() < 1e-9


def test_bodies_move_along_their_path():
    path = BodyPath((1.0, 2.0), ((0.0, 0.0, 0.0), (0.0, 2.0, 0.0)))
    body = Body("person", Capsule(0.3, 1.2), p=np.array([1.0, 0.0, 0.9]), path=path)
    np.testing.assert_allclose(body.places(np.array([0.0, 1.5, 9.0]))[:, 1], [0.0, 1.0, 2.0])
    assert Scene((body,)).moves and not Scene((Body("b", Sphere(1.0)),)).moves


def test_bodies_need_unique_names_and_rotations():
    with pytest.raises(ValueError, match="two bodies of the scene are called 'a'"):
        Scene((Body("a", Sphere(1.0)), Body("a", Sphere(2.0))))
    with pytest.raises(ValueError, match="not a rotation matrix"):
        Body("a", Sphere(1.0), R=2.0 * np.eye(3))
    with pytest.raises(ValueError, match="increasing times"):
        Body("a", Sphere(1.0), path=BodyPath((1.0, 1.0), ((0.0, 0.0, 0.0),) * 2))
