"""Gaps, broad phase, free space and mesh checks, on a planar arm of two links with known geometry."""

import sys
from importlib.util import find_spec
from itertools import count, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dynamics_backends.rigid_body.geometry.covers import RobotCover, covers
from dynamics_backends.rigid_body.geometry.hull import hull_of
from dynamics_backends.rigid_body.geometry.link_shapes import urdf_shapes
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath, Scene
from dynamics_backends.rigid_body.geometry.shapes import Box, Cylinder, HalfSpace, Mesh, Sphere
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from trajopt.collisions.broad_phase import FACES, CollisionPairs, FilledSlots
from trajopt.collisions.free_space import FreeSpace
from trajopt.collisions.library import FAR, FARTHER, SPREAD, Cores, capsule_gaps, chosen_pairs
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.collisions.mesh_motion import Part, Places
from trajopt.collisions.poses import body_poses
from trajopt.collisions.self_collision import pairs_not_disabled, self_pairs
from trajopt.collisions.true_shapes import geometry_of, hull_around, hull_geometry, pose
from trajopt.guesses.rrt_connect import rrt_connect

needs_coal = pytest.mark.skipif(find_spec("coal") is None, reason="the package coal is not installed")
needs_ompl = pytest.mark.skipif(find_spec("ompl") is None, reason="the package ompl is not installed")
LINK = """<link name="{name}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0.25 0 0"/><geometry><box size="0.5 0.04 0.04"/></geometry></collision></link>"""
JOINT = """<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><origin xyz="{x} 0 0"/>
<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="50" velocity="3"/></joint>"""
ARM = (
    '<robot name="arm"><link name="ground"/>'
    + "".join(LINK.format(name=f"l{i}") for i in range(1, 4))
    + JOINT.format(name="j1", parent="ground", child="l1", x=0)
    + JOINT.format(name="j2", parent="l1", child="l2", x=0.5)
    + JOINT.format(name="j3", parent="l2", child="l3", x=0.5)
    + "</robot>"
)
MODEL = load_urdf(ARM, base="fixed")
SHAPES = urdf_shapes(ARM, "collision").placed
ROBOT = RobotCover.from_pieces(MODEL, covers(SHAPES, 0.01, 3))
POST = Body("post", Cylinder(0.05, 1.0), p=np.array([0.9, 0.4, 0.0]))
WALL = Body("wall", Box((0.1, 0.6, 1.0)), p=np.array([-0.9, 0.0, 0.0]))
STONE = Body(
    "stone",
    Mesh(*Box((0.3, 0.2, 0.25)).triangles()),
    Rotation.from_rotvec([0.4, 1.0, 0.2]).as_matrix(),
    [0.2, 0.9, 0.1],
)
"""A convex mesh."""
SCENE = Scene((POST, WALL))
PAIRS = CollisionPairs(ROBOT, SCENE)


def configurations(count=40):
    return np.random.default_rng(0).uniform(-2.5, 2.5, (count, 3))


def test_poses_of_bodies():
    q = np.array([[0.3, -0.5, 1.0]])
    poses = body_poses(MODEL, q)
    elbow = 0.5 * np.array([np.cos(0.3), np.sin(0.3), 0.0])
    np.testing.assert_allclose(poses[1][1][0], elbow, atol=1e-12)
    wrist = elbow + 0.5 * np.array([np.cos(-0.2), np.sin(-0.2), 0.0])
    np.testing.assert_allclose(poses[2][1][0], wrist, atol=1e-12)


@pytest.mark.parametrize("count", [2, 4])
def test_configurations_of_another_robot_are_refused(count):
    with pytest.raises(ValueError, match=rf"configurations of arm are \(M, 3\), not \(5, {count}\)"):
        PAIRS.gaps(np.zeros((5, count)), np.zeros(5))


def edges(h, x, y):
    """Return the edges of the triangle (-h, 0, 0), (h, 0, 0), (x, y, 0)."""
    a, b, c = np.array([[-h, 0.0, 0.0], [h, 0.0, 0.0], [x, y, 0.0]])
    return (a, b), (b, c), (c, a)


def squared_from_triangle(P, h, x, y):
    """Return the squared distance (n,) of points (n, 3) from a triangle."""
    (a, b), (c, _) = edges(h, x, y)[::2]
    second, third = np.linalg.lstsq(np.stack([b - a, c - a], axis=1), (P - a).T, rcond=None)[0]
    inside = (second > 0.0) & (third > 0.0) & (second + third < 1.0)
    found = np.where(inside, P[:, 2] ** 2, np.inf)
    for start, end in edges(h, x, y):
        t = np.clip((P - start) @ (end - start) / ((end - start) @ (end - start)), 0.0, 1.0)
        found = np.minimum(found, ((P - start - t[:, None] * (end - start)) ** 2).sum(axis=1))
    return found


def gap_by_search(kind, size, p, d):
    """Return D (distances.py) of a segment from p to p + d by nested samples, or its depth over faces and edges."""
    squared = {
        "box": lambda P: (np.maximum(np.abs(P) - size, 0.0) ** 2).sum(axis=1),
        "cylinder": lambda P: (
            np.maximum(np.hypot(P[:, 0], P[:, 1]) - size[0], 0.0) ** 2 + np.maximum(np.abs(P[:, 2]) - size[1], 0.0) ** 2
        ),
        "triangle": lambda P: squared_from_triangle(P, *size),
    }[kind]
    low, high = 0.0, 1.0
    for _ in range(9):
        t = np.linspace(low, high, 41)
        values = squared(p + t[:, None] * d) - 0.01 * (d @ d) * t * (1.0 - t)
        low, high = t[max(values.argmin() - 1, 0)], t[min(values.argmin() + 1, 40)]
    if values.min() > 1e-6:
        return np.sqrt(values.min())
    ends = np.stack([p, p + d])
    if kind == "box":
        return np.max([(sign * ends[:, i]).min() - size[i] for i in range(3) for sign in (1.0, -1.0)])
    if kind == "cylinder":
        t = np.clip(-(p[:2] @ d[:2]) / (d[:2] @ d[:2]), 0.0, 1.0)
        return max(np.hypot(*(p + t * d)[:2]) - size[0], ends[:, 2].min() - size[1], -ends[:, 2].max() - size[1])
    out = [ends[:, 2].min()]
    for start, end in edges(*size):
        normal = np.cross(end - start, [0.0, 0.0, 1.0])
        out.append(((ends - start) @ normal).min() / np.linalg.norm(normal))
    return max(out)


def test_gaps_are_those_of_a_search_along_the_segment():
    """Random capsules and cores of all kinds, outside and inside, near and far."""
    rng, reach, (M, P, O) = np.random.default_rng(7), 0.3, (29, 4, 9)
    A = rng.uniform(-0.5, 0.5, (M, P, 3))
    B = A + rng.uniform(-0.5, 0.5, (M, P, 3))
    kind, radii = np.arange(O) % 3, rng.uniform(0.0, 0.1, P)
    turns = Rotation.random(M * O, rng=4).as_matrix().reshape(M, O, 3, 3)
    places = (0.5 * (A + B))[:, np.arange(O) % P] + rng.uniform(-0.15, 0.15, (M, O, 3))
    sizes = rng.uniform(0.05, 0.3, (O, 3))
    sizes[kind == 2, 1] = sizes[kind == 2, 0] * rng.uniform(
        -0.9, 0.9, O // 3
    )  # the third corner is above the longest edge
    cores = Cores(turns, places, sizes, rng.uniform(0.0, 0.05, O), kind, np.full(O, -1))
    counts = rng.uniform(size=(P, O)) < 0.9
    found, near, inside = capsule_gaps(A, B, radii, cores, counts, reach), 0, np.zeros(3, dtype=int)
    assert np.isinf(found[:, ~counts]).all() and np.isfinite(found[:, counts]).all()
    for m, i, o in np.argwhere(np.broadcast_to(counts, (M, P, O))):
        p, d = turns[m, o].T @ (A[m, i] - places[m, o]), turns[m, o].T @ (B[m, i] - A[m, i])
        D = gap_by_search(["box", "cylinder", "triangle"][kind[o]], sizes[o], p, d)
        gap, thick = found[m, i, o], radii[i] + cores.radius[o]
        inside[kind[o]] += D < 0.0
        if D - thick < reach - 0.02:
            near += D > 0.0
            assert gap == pytest.approx(D - thick, abs=1e-9)
        else:
            assert reach - 0.02 <= gap <= np.sqrt(D**2 + 0.01 * (d @ d) / 4.0) - thick  # D is less than the distance
    assert near > 300 and (inside > 10).all() and np.isfinite(found).sum() - near > 300


@needs_coal
def test_a_convex_mesh_is_as_far_as_its_true_shape():
    """Compare the nearest face and arm capsule with coal's hull of the mesh and capsules."""
    coal, qs = pytest.importorskip("coal"), configurations(12)
    pairs = CollisionPairs(ROBOT, Scene((STONE,)), reach=5.0)
    gaps = pairs.gaps(qs, np.zeros(12)).min(axis=2)
    hull, placed = geometry_of(STONE.shape), coal.Transform3s(STONE.R, STONE.p)
    A, B = ROBOT.ends(body_poses(MODEL, qs))
    for k, i in np.ndindex(gaps.shape):
        along = B[k, i] - A[k, i]
        length = float(np.linalg.norm(along))
        turn = Rotation.align_vectors([along / length], [[0.0, 0.0, 1.0]])[0].as_matrix()
        capsule, result = coal.Capsule(float(ROBOT.radii[i]), length), coal.DistanceResult()
        coal.distance(
            capsule, coal.Transform3s(turn, 0.5 * (A[k, i] + B[k, i])), hull, placed, coal.DistanceRequest(), result
        )
        if result.min_distance > 0.05:
            short = 0.01 * length**2 / (8.0 * (result.min_distance + ROBOT.radii[i]))
            assert -1e-6 < result.min_distance - gaps[k, i] < short + 1e-6


def beside_others(shape, x):
    """Return a stone and a bar far away, and a body whose center is on its x axis."""
    turn = Rotation.from_rotvec([0.1, -0.2, 0.7]).as_matrix()
    far, bar = Body("far", STONE.shape, p=[9.0, 0.0, 0.0]), Body("bar", Box((0.1, 0.1, 0.1)), p=[0.0, 9.0, 0.0])
    return CollisionPairs(ROBOT, Scene((far, bar, Body("body", shape, turn, turn @ [x, 0.0, 0.0]))))


def test_inside_of_a_convex_mesh_is_as_deep_as_inside_of_a_box():
    """The arm is at least 0.7 m from all faces, and from the ball within them; a plate is between or across its links."""
    qs, times = configurations(), np.zeros(40)
    shape = Box((14.0, 4.4, 4.4))
    box, mesh = (beside_others(s, 4.5) for s in (shape, Mesh(*shape.triangles())))
    deep = box.smallest_gaps(qs, times)
    assert deep.max() < -mesh.reach
    np.testing.assert_allclose(mesh.smallest_gaps(qs, times), deep, atol=1e-9)
    assert FreeSpace(mesh, exact=False).touches(qs[:1])
    assert (mesh.coarse_gaps(qs, times).min(axis=2) < 0.0).all()
    plate = Box((1.5, 0.2, 1.0))
    box, mesh = (beside_others(s, 0.2).gaps(qs, times) for s in (plate, Mesh(*plate.triangles())))
    of_box, of_mesh = box[:, :, -1], mesh[:, :, -13:].min(axis=2)
    assert (of_box < 0.0).any() and (of_box > 0.0).any()
    np.testing.assert_array_equal(of_mesh < 0.0, of_box < 0.0)


def test_faces_of_hulls_get_slots_of_links_near_the_base():
    """The first link, 0.02 m to its side, is 0.03 m from a convex mesh."""
    beside = Body("beside", Mesh(*Box((0.2, 0.1, 0.2)).triangles()), p=np.array([0.25, 0.1, 0.0]))
    pairs = CollisionPairs(ROBOT, Scene((beside,)))
    slots = pairs.slots()
    near = pairs.chosen(slots, np.array([[0.0, -1.5, 0.0]]), np.zeros(1)).near
    kinds = [slots[i].kind for i in near.slot if slots[i].link == 0]
    assert kinds.count("triangle") == FACES
    assert {slot.link for slot in slots if slot.kind == "triangle"} == {0, 1, 2}


def test_near_pairs_get_slots_with_contact_bounds():
    qs = configurations()
    slots = PAIRS.slots()
    chosen = PAIRS.chosen(slots, qs, np.zeros(len(qs)), margin=0.01)
    gaps = [PAIRS.gaps(qs, np.zeros(len(qs))), PAIRS.coarse_gaps(qs, np.zeros(len(qs)))]
    covers, fine = (ROBOT, ROBOT.coarse), len(ROBOT.radii)
    assert set(chosen.near.piece >= fine) == {True, False}
    for found in map(FilledSlots._make, zip(*chosen.near, strict=True)):
        kind = "cylinder" if found.core == 0 else "box"
        which, piece = divmod(found.piece, fine)
        assert slots[found.slot].kind == kind
        assert slots[found.slot].link == covers[which].bodies[piece]
        assert found.gap == gaps[which][found.knot, piece, found.core] < PAIRS.reach
        assert chosen.lower[found.knot, found.slot] == pytest.approx(covers[which].radii[piece] + 0.01)
        assert (
            gaps[1][found.knot, ROBOT.coarse.bodies.tolist().index(slots[found.slot].link), found.core] > 0.05
        ) == which
    assert np.isinf(chosen.lower).sum() == chosen.lower.size - len(chosen.near.slot)


def test_bodies_that_were_near_elsewhere_get_slots_too():
    far, near = np.array([[1.5, 0.0, 0.0]]), np.array([[0.4, 0.0, 0.0]])
    slots = PAIRS.slots()
    assert 0 not in PAIRS.chosen(slots, far, np.zeros(1)).near.core
    assert 0 in PAIRS.chosen(slots, far, np.zeros(1), also=[near]).near.core


def test_the_robots_own_pairs():
    """The first and third link may collide; neighbors are not checked."""
    found = self_pairs(ROBOT)
    assert found.pairs == ((0, 2),)
    assert "l1 and l2" in found.left_out


def test_a_base_that_does_not_move_has_its_name():
    base = '<link name="pedestal"><collision><geometry><sphere radius="0.05"/></geometry></collision></link>'
    text = ARM.replace('<link name="ground"/>', base).replace('link="ground"', 'link="pedestal"')
    robot = RobotCover.from_pieces(
        load_urdf(text, base="fixed"), covers(urdf_shapes(text, "collision").placed, 0.01, 3)
    )
    assert "neighbors: pedestal and l1" in self_pairs(robot).left_out


def test_own_pairs_have_gaps():
    folded, straight = np.array([[0.0, 2.9, 2.9]]), np.zeros((1, 3))
    pairs = CollisionPairs(ROBOT, Scene(), ((0, 2),))
    assert pairs.smallest_gaps(folded, np.zeros(1))[0] < 0.0 < pairs.smallest_gaps(straight, np.zeros(1))[0]


@needs_coal
def test_geometries_of_links_are_made_for_compared_pairs_only(monkeypatch):
    made = []
    module = "trajopt.collisions.mesh_motion"
    monkeypatch.setattr(f"{module}.geometry_of", lambda shape: made.append(shape) or geometry_of(shape))
    check = MeshCheck(MODEL, SHAPES, Scene())
    assert not made
    check.is_deeper(1, 0, 0, check.places(np.zeros((1, MODEL.nq))), 0.0)
    assert made == [check.parts[1].shape, check.parts[0].shape]


@needs_coal
def test_the_check_finds_the_smallest_distance_its_bodies_and_its_time():
    qs = np.stack([np.linspace(0.0, 1.2, 400), np.zeros(400), np.zeros(400)], axis=1)
    times = np.linspace(0.0, 1.0, 400)
    check = MeshCheck(MODEL, SHAPES, SCENE)
    found = check.along(qs, times)
    single = [check.nearest(q, t).distance for q, t in zip(qs[::8], times[::8], strict=True)]
    assert found.distance < 0.0 and found.distance <= min(single) + 1e-9
    assert (found.link, found.body) == ("l2", "post")
    assert found.time == pytest.approx(np.arctan2(0.4, 0.9) / 1.2, abs=0.05)
    assert "deep" in str(found)


def test_coarse_capsules_hold_all_that_a_link_carries():
    coarse = ROBOT.coarse
    assert coarse.bodies.tolist() == [0, 1, 2]
    for body, a, b, radius in zip(coarse.bodies, coarse.a, coarse.b, coarse.radii, strict=True):
        for i in np.flatnonzero(ROBOT.bodies == body):
            t = np.clip((ROBOT.corners[i] - a) @ (b - a) / max(float((b - a) @ (b - a)), 1e-12), 0.0, 1.0)
            assert np.linalg.norm(ROBOT.corners[i] - a - t[:, None] * (b - a), axis=1).max() <= radius + 1e-9


@needs_coal
def test_collisions_are_reported_for_each_time():
    qs = np.stack([np.linspace(0.0, 1.2, 400), np.zeros(400), np.zeros(400)], axis=1)
    check = MeshCheck(MODEL, SHAPES, SCENE)
    least, near = check.below(qs, np.linspace(0.0, 1.0, 400), 0.05)
    single = np.array([check.nearest(q).distance for q in qs])
    assert least.distance == pytest.approx(single.min(), abs=1e-9)
    outside = (single > 0.0) & (single < 0.05)  # depths of triangles are less accurate
    np.testing.assert_allclose(near[outside], single[outside], atol=1e-6)
    assert np.isinf(near[single >= 0.05]).all() and (near[single <= 0.0] <= 0.0).all()


def apart(shapes, poses):
    """Return the distance of two coal shapes at poses (R, p)."""
    coal = pytest.importorskip("coal")
    at = [coal.Transform3s(R, p) for R, p in poses]
    return coal.distance(shapes[0], at[0], shapes[1], at[1], coal.DistanceRequest(), coal.DistanceResult())


def distances_by_hand(qs, times, path):
    """Return the smallest distance (M,) of three bars of 0.5 m, 0.04 m wide, from a moving stone, and of bar 1 from bar 3."""
    coal = pytest.importorskip("coal")
    bar, stone = coal.Box(0.5, 0.04, 0.04), coal.Box(0.3, 0.2, 0.25)
    found = []
    for q, t in zip(qs, times, strict=True):
        places, tip, angles = [], np.zeros(3), np.cumsum(q)
        for angle in angles:
            along = np.array([np.cos(angle), np.sin(angle), 0.0])
            places.append((Rotation.from_rotvec([0.0, 0.0, angle]).as_matrix(), tip + 0.25 * along))
            tip = tip + 0.5 * along
        there = STONE.R, STONE.p + t * np.array(path)
        found.append(min([*(apart((bar, stone), (at, there)) for at in places), apart((bar, bar), places[::2])]))
    return np.array(found)


@needs_coal
@pytest.mark.parametrize("seed", range(3))
def test_a_few_distances_find_the_minimum_of_all(seed, monkeypatch):
    """A random smooth motion of an arm with self-collision pairs, beside a moving stone."""
    rng, times, path = np.random.default_rng(seed), np.linspace(0.0, 1.0, 600), (0.3, -0.2, 0.05)
    waves = rng.uniform(-0.8, 0.8, (4, 3))
    qs = rng.uniform(-1.0, 1.0, 3) + sum(np.sin((n + 1) * times)[:, None] * waves[n] for n in range(4))
    moving = Body("stone", STONE.shape, STONE.R, STONE.p, BodyPath((0.0, 1.0), ((0.0, 0.0, 0.0), path)))
    check, looks = MeshCheck(MODEL, SHAPES, Scene((moving,)), ((0, 2),)), count()
    plain = MeshCheck.distance
    monkeypatch.setattr(MeshCheck, "distance", lambda *given: (next(looks), plain(*given))[1])
    truth = distances_by_hand(qs, times, path)
    asked = float(np.quantile(truth, 0.02))
    found, near = check.below(qs, times, asked)
    assert found.distance == pytest.approx(truth.min(), abs=2e-5)
    inside = (truth < asked - 2e-5) & (truth > 0.0)
    np.testing.assert_allclose(near[inside], truth[inside], atol=2e-5)
    assert np.isinf(near[truth > asked + 2e-5]).all()
    assert next(looks) < 100  # of 2400 distances


def from_gaps(gaps):
    """Return the distance of aligned boxes from their gaps (3,), or the smallest overlap."""
    return float(np.linalg.norm(np.maximum(gaps, 0.0))) if max(gaps) > 0.0 else float(max(gaps))


@needs_coal
def test_bounds_are_those_by_hand():
    """Static, moving and unbounded bodies, near and far, and a self-collision pair, for three bars of 0.5 m, 0.04 m wide."""
    rng, times, path = np.random.default_rng(5), np.linspace(0.0, 1.0, 260), np.array([0.3, -0.2, 0.05])
    qs = rng.uniform(-1.0, 1.0, 3) + np.sin(times[:, None] * rng.uniform(-3.0, 3.0, 3))
    moving = Body("stone", STONE.shape, STONE.R, STONE.p, BodyPath((0.0, 1.0), ((0.0, 0.0, 0.0), tuple(path))))
    floor = Body("floor", HalfSpace(), p=np.array([0.0, 0.0, -0.1]))
    check = MeshCheck(MODEL, SHAPES, Scene((*SCENE.bodies, moving, floor)), ((0, 2),))
    at = check.places(qs, times)
    found = check._bounds(at)
    angles = np.cumsum(qs, axis=1)
    along = np.stack([np.cos(angles), np.sin(angles), 0.0 * angles], axis=2)
    centers = np.cumsum(0.5 * along, axis=1) - 0.25 * along
    radius = np.linalg.norm([0.25, 0.02, 0.02])
    corners = [np.array(c) for c in ([0.05, 0.05, 0.5], [0.05, 0.3, 0.5], [0.15, 0.1, 0.125])]
    boxes = [*((-c, c) for c in corners), (np.full(3, -np.inf), np.array([np.inf, np.inf, 0.0]))]
    expected = []
    for k in range(260):
        for i in range(3):
            for body, (low, high) in zip(check.scene.bodies, boxes, strict=True):
                local = body.R.T @ (centers[k, i] - body.p - times[k] * path * (body is moving))
                expected.append(from_gaps(np.maximum(low - local, local - high)) - radius)
        expected.append(np.linalg.norm(centers[k, 2] - centers[k, 0]) - 2.0 * radius)
    np.testing.assert_allclose(found.T, np.reshape(expected, (260, 13)), atol=1e-12)
    distances = [[check.distance(i, o, k, at)[0] for k in range(0, 260, 10)] for i, o in check.pairs]
    assert (found[:, ::10] <= np.array(distances) + 1e-6).all() and (np.array(distances) < 0.0).any()


@needs_coal
@pytest.mark.parametrize("has_normal", [True, False])
@pytest.mark.parametrize("second", ["rests", "moves by itself", "is carried"])
def test_raised_bounds_hold_along_a_motion(second, has_normal):
    """A box moves past another; the bound is exact for translations along the normal, or toward each other if it is unknown."""
    coal = pytest.importorskip("coal")
    times, k, half, size = np.linspace(0.0, 1.0, 61), 20, np.array([0.2, 0.1, 0.05]), np.array([0.1, 0.3, 0.2])
    turns = Rotation.from_rotvec(times[:, None] * [0.4, -0.3, 0.5]).as_matrix()
    places = [0.45, 0.02, 0.03] + 0.2 * np.sin(times[:, None] * [3.0, 2.0, -4.0])
    shift = 0.15 * np.sin(times[:, None] * [-2.0, 3.0, 1.0]) if second == "moves by itself" else np.zeros((61, 3))
    frame = (
        Rotation.from_rotvec(times[:, None] * [-0.3, 0.2, 0.6]).as_matrix(),
        0.1 * np.sin(times[:, None] * [1, -2, 3]),
    )
    if second == "is carried":
        base, carried = 1, frame
    else:
        base, carried = -1, (np.broadcast_to(np.eye(3), (61, 3, 3)), np.zeros((61, 3)))
    part, two = Part("", 0, np.eye(3), np.zeros(3), Box(tuple(2.0 * half))), coal.Box(*2.0 * size)

    def raised(turns, places, shift):
        poses = {0: (turns, places), base: carried}
        distances, result = [], coal.DistanceResult()
        for m in range(61):
            at = ((turns[m], places[m]), (carried[0][m], carried[1][m] + shift[m]))
            distances.append(apart((part.geometry, two), at))
            if m == k:
                ends = [coal.Transform3s(*pose) for pose in at]
                coal.distance(part.geometry, ends[0], two, ends[1], coal.DistanceRequest(), result)
        lower, other = np.full(61, -1.0), shift if second == "moves by itself" else None
        normal = np.array(result.normal) if has_normal else None
        Places(poses, np.zeros((0, 61, 3))).raise_bounds(
            lower, distances[k], k, slice(5, 50), (part, 0), normal, base, other
        )
        return lower, np.array(distances), np.array(result.normal)

    lower, distances, normal = raised(turns, places, shift)
    assert distances[k] > 0.02 and lower[k] == pytest.approx(distances[k], abs=1e-12)
    assert (lower[5:50] <= distances[5:50] + 1e-6).all() and (lower[5:50] > -1.0).any()
    assert (lower[:5] == -1.0).all() and (lower[50:] == -1.0).all()
    if second != "is carried":
        away, fraction = 0.02 * np.sin(5.0 * (times - times[k]))[:, None] * normal, 1.0 if second == "rests" else 0.5
        still = np.broadcast_to(turns[k], turns.shape)
        lower, distances, _ = raised(still, places[k] - fraction * away, shift[k] + (1.0 - fraction) * away)
        exact = distances if has_normal else distances[k] - np.abs(distances - distances[k])
        np.testing.assert_allclose(lower[5:50], exact[5:50], atol=1e-6)


@needs_coal
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_non_finite_configurations_have_no_distances(wrong):
    """A motion with non-finite configurations that is inside a wall elsewhere is not collision-free."""
    check, qs, times = MeshCheck(MODEL, SHAPES, SCENE, ((0, 2),)), configurations(60), np.linspace(0.0, 1.0, 60)
    assert check.along(qs, times).distance < -0.01
    qs[12, 1] = wrong
    with pytest.raises(ValueError, match=r"configuration at 0\.203 s is not finite"):
        check.along(qs, times)
    assert not check.is_clear(qs)
    nothing = qs[:0]
    assert check.is_clear(nothing) and check.along(nothing, times[:0]).distance == np.inf


@needs_coal
def test_a_path_without_contact_is_clear():
    check = MeshCheck(MODEL, SHAPES, SCENE)
    turns = np.column_stack([np.linspace(0.0, 1.2, 300), np.zeros((300, 2))])
    clear = np.array([check.nearest(q).distance > 0.0 for q in turns])
    assert clear.any() and not clear.all()
    assert check.is_clear(turns[: int(clear.argmin())]) and not check.is_clear(turns)
    assert MeshCheck(MODEL, SHAPES, Scene()).is_clear(turns)
    assert not check.is_clear(np.full_like(turns[:2], np.nan))


def test_an_srdf_disables_pairs():
    found = pairs_not_disabled(ROBOT, [("l1", "l2", "Adjacent"), ("l2", "l3", "Adjacent")])
    assert found.pairs == ((0, 2),) and "l1 and l2" in found.left_out
    folded = np.array([[0.0, 2.9, 2.9]])
    pairs = CollisionPairs(ROBOT, Scene(), ((0, 2),), disabled=frozenset([frozenset(("l1", "l3"))]))
    assert np.isinf(pairs.smallest_gaps(folded, np.zeros(1))[0])


@needs_coal
def test_bodies_without_an_end_are_checked_as_others():
    """The arm is 0.48 m above the floor, and its boxes extend 0.02 m down."""
    floor = Body("floor", HalfSpace(), p=np.array([0.0, 0.0, -0.5]))
    found = MeshCheck(MODEL, SHAPES, Scene((POST, floor))).along(
        np.tile([-2.0, 0.0, 0.0], (9, 1)), np.linspace(0, 1, 9)
    )
    assert found.body == "floor" and found.distance == pytest.approx(0.48, abs=1e-6)


@needs_coal
def test_the_check_agrees_with_geometry_by_hand():
    """With the arm along x, its side is 0.02 m from its axis; a ball 0.3 m above it has a radius of 0.1 m."""
    ball = Scene((Body("ball", Sphere(0.1), p=np.array([0.75, 0.3, 0.0])),))
    found = MeshCheck(MODEL, SHAPES, ball).nearest(np.zeros(3))
    assert found.distance == pytest.approx(0.3 - 0.1 - 0.02, abs=1e-6)
    assert found.body == "ball"


@needs_coal
def test_the_check_follows_bodies_that_move():
    path = BodyPath((0.0, 1.0), ((0.0, 0.0, 0.0), (0.0, -0.5, 0.0)))
    scene = Scene((Body("ball", Sphere(0.1), p=np.array([0.75, 0.6, 0.0]), path=path),))
    still = np.zeros((101, 3))
    found = MeshCheck(MODEL, SHAPES, scene).along(still, np.linspace(0.0, 1.0, 101))
    assert found.time == 1.0 and found.distance == pytest.approx(-0.02, abs=1e-6)


@needs_coal
def test_true_shapes_decide_where_capsules_overlap():
    """A capsule around a square bar exceeds its flat sides."""
    beside = Scene((Body("wall", Box((1.0, 0.1, 1.0)), p=np.array([0.25, 0.02 + 0.05 + 0.002, 0.0])),))
    pairs = CollisionPairs(ROBOT, beside)
    q = np.array([[0.0, -1.5, 0.0]])
    assert FreeSpace(pairs, exact=False).touches(q)
    assert not FreeSpace(pairs, exact=True).touches(q)
    assert FreeSpace(pairs, 0.003, exact=True).touches(q)


@needs_ompl
def test_rrt_connect_avoids_the_obstacle_and_shortcuts_shorten_the_path(monkeypatch):
    space, asked = FreeSpace(PAIRS, 0.04), FreeSpace(PAIRS)
    start, goal = np.array([-0.3, 0.0, 0.0]), np.array([1.3, 0.0, 0.0])
    assert space.line_touches(start, goal, 0.04)
    lengths = []
    for short_cuts in (1, 100):
        monkeypatch.setattr("trajopt.guesses.rrt_connect.SHORT_CUTS", short_cuts)
        where = space.touches, space.line_touches, start, goal, MODEL.q_lower, MODEL.q_upper
        paths = [rrt_connect(*where, seed=seed) for seed in range(5)]
        for path in paths:
            np.testing.assert_array_equal(path[[0, -1]], [start, goal])
            assert not any(asked.line_touches(a, b, 0.02) for a, b in pairwise(path))
        lengths.append(np.mean([length(path) for path in paths]))
    assert lengths[1] < lengths[0]


@needs_ompl
def test_the_time_limit_of_the_planner_is_processor_time(monkeypatch):
    """With a clock that advances by a second per reading, a limit of half a second is over at once."""
    space, clock = FreeSpace(PAIRS, 0.04), count()
    monkeypatch.setattr("trajopt.guesses.rrt_connect.time", SimpleNamespace(thread_time=lambda: float(next(clock))))
    start, goal = np.array([-0.3, 0.0, 0.0]), np.array([1.3, 0.0, 0.0])
    asked = space.touches, space.line_touches, start, goal, MODEL.q_lower, MODEL.q_upper
    assert rrt_connect(*asked, time_limit=0.5) is None
    assert rrt_connect(*asked, time_limit=1e6) is not None


@needs_ompl
def test_the_planner_ends_immediately_if_the_goal_collides():
    """ompl would sleep, without using processor time, while it waits for a free goal."""
    ends = np.zeros(2), np.ones(2)

    def found(touches):
        return rrt_connect(
            touches, lambda a, b, step: False, *ends, -2.0 * np.ones(2), 2.0 * np.ones(2), time_limit=1e3
        )

    for end in ends:
        assert found(lambda q, end=end: bool(np.allclose(q, end))) is None
    assert found(lambda q: False) is not None


def length(path):
    return np.linalg.norm(np.diff(path, axis=0), axis=1).sum()


@needs_coal
def test_a_mesh_with_a_notch_is_not_its_hull():
    """Two boxes that form an L have all corners on their convex hull, but a ball fits in the notch."""
    coal, parts = pytest.importorskip("coal"), [Box((0.3, 0.2, 0.1)).triangles(), Box((0.1, 0.2, 0.3)).triangles()]
    vertices = np.concatenate([parts[0].vertices, parts[1].vertices + [0.2, 0.0, 0.1]])
    faces = np.concatenate([parts[0].faces, parts[1].faces + len(parts[0].vertices)])
    at, result = coal.Transform3s(np.eye(3), np.array([0.1, 0.0, 0.1])), coal.DistanceResult()
    mesh = geometry_of(Mesh(vertices, faces))
    coal.distance(coal.Sphere(0.02), at, mesh, coal.Transform3s(np.eye(3), np.zeros(3)), coal.DistanceRequest(), result)
    assert result.min_distance == pytest.approx(0.03, abs=1e-6)


def panel(thickness, window=0.3):
    """Return a square of 1 m with a square window of half edge ``window`` [m]: corners (16, 3), triangles (32, 3)."""
    signs = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    rings = np.concatenate([0.5 * signs, window * signs])
    corners = np.concatenate([np.column_stack([rings, np.full(8, z)]) for z in (0.0, thickness)])
    strips = ((0, 4), (8, 0), (12, 8), (4, 12))
    quads = [(a + k, a + (k + 1) % 4, b + (k + 1) % 4, b + k) for a, b in strips for k in range(4)]
    return corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])


@needs_coal
@pytest.mark.parametrize("thickness", [0.02, 0.002, 0.001])
def test_plans_and_checks_agree_on_convex_meshes(thickness):
    """A thin panel with a window is not its hull; a square plate of the same thickness is."""
    coal = pytest.importorskip("coal")
    assert hull_of(*panel(thickness), 0.01) is None
    assert not isinstance(geometry_of(Mesh(*panel(thickness))), coal.ConvexBase)
    plate = Box((1.0, 1.0, thickness)).triangles()
    assert hull_of(*plate, 0.01) is not None
    assert isinstance(geometry_of(Mesh(*plate)), coal.ConvexBase)


@needs_coal
@pytest.mark.parametrize("asked", [-np.inf, 0.3])
def test_the_inside_of_the_hull_of_a_mesh_is_checked_with_the_mesh(asked):
    """The arm reaches through the 0.6 m window of a panel, inside the panel's hull; its sides are 0.02 m from its axis."""
    window = Body("window", Mesh(*panel(0.1)), Rotation.from_euler("y", 90, degrees=True).as_matrix(), [0.9, 0.0, 0.0])
    qs, times = np.zeros((30, 3)), np.linspace(0.0, 1.0, 30)
    qs[:, 0] = np.linspace(0.0, 0.02, 30)
    check = MeshCheck(MODEL, SHAPES, Scene((window,)))
    assert check.hulls[0] is not None
    found, near = check.below(qs, times, asked)
    by_mesh = MeshCheck(MODEL, SHAPES, Scene((window,)))
    by_mesh.hulls = [None]
    plain, near_by_mesh = by_mesh.below(qs, times, asked)
    assert found == plain and 0.25 < found.distance < 0.28
    np.testing.assert_array_equal(near, near_by_mesh)


@needs_coal
def test_a_flat_mesh_has_no_hull():
    """The distance of a sheet is that of its triangles."""
    sheet = Mesh(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([[0, 1, 2]]))
    assert hull_around(sheet) is None and hull_around(Sphere(0.1)) is None
    check = MeshCheck(MODEL, SHAPES, Scene((Body("sheet", sheet, p=np.array([0.2, -0.2, 0.1])),)))
    assert check.nearest(np.zeros(3)).distance == pytest.approx(0.08, abs=1e-6)


def test_a_missing_extra_is_named(monkeypatch):
    """Check and planner raise an error that names the package to install."""
    for name, begun in {
        "coal": lambda: MeshCheck(MODEL, SHAPES, SCENE),
        "ompl": lambda: rrt_connect(lambda q: False, lambda a, b, h: False, *np.zeros((2, 3)), -np.ones(3), np.ones(3)),
    }.items():
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ModuleNotFoundError, match=rf"{name}: pip install 'urdf-trajopt\[scene\]'"):
            begun()


def test_a_cylinder_near_the_first_link_gets_a_slot():
    """The first joint swings its 0.5 m link toward a post that the other links do not approach."""
    post = Body("post", Cylinder(0.03, 1.0), p=np.array([0.3, 0.3, 0.0]))
    pairs = CollisionPairs(ROBOT, Scene((post,)))
    chosen = pairs.chosen(pairs.slots(), np.array([[0.6, -2.0, 0.0]]), np.zeros(1))
    first = int(ROBOT.bodies[ROBOT.bodies >= 0].min())
    assert first in ROBOT.bodies[chosen.near.piece[chosen.near.piece < len(ROBOT.bodies)]]


@needs_coal
def test_a_convex_mesh_that_coal_makes_no_hull_of_keeps_its_triangles():
    """The tip of a cone with 300 faces has more neighbors than coal's hulls support."""
    n = 300
    angles, i = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False), np.arange(n)
    rim = np.column_stack([0.1 * np.cos(angles), 0.1 * np.sin(angles), np.zeros(n)])
    around = np.column_stack([i, (i + 1) % n, np.full(n, n)])
    faces = np.concatenate([around, np.column_stack([around[:, 1], around[:, 0], np.full(n, n + 1)])])
    cone = Mesh(np.concatenate([rim, [[0.0, 0.0, 0.1], [0.0, 0.0, 0.0]]]), faces)
    assert hull_around(cone) is None
    assert (geometry_of(cone).num_vertices, geometry_of(cone).num_tris) == (n + 2, 2 * n)
    check = MeshCheck(MODEL, SHAPES, Scene((Body("cone", cone, p=np.array([0.2, 0.0, -0.2])),)))
    assert check.nearest(np.zeros(3)).distance == pytest.approx(0.08, abs=1e-3)


# -- assignment of pairs to slots, compared with a direct implementation ------------------------------------------------


REACH = 0.5
PIECE, CORE = np.array([1, 3, 4]), np.array([0, 2, 5, 6])


def by_words(gaps, coarse, slots):
    """Return (piece, core) of each slot at one configuration: gaps (pieces, cores), coarse (cores,) or None."""
    costs = []
    for j, column in enumerate(gaps.T):
        least = min(column) if coarse is None else min(*column, coarse[j])
        if coarse is not None and coarse[j] > FAR:
            costs.append((least, len(column), j, least))
            continue
        step = SPREAD + FARTHER * np.clip(min(column), 0.0, REACH)
        for rank, i in enumerate(sorted(range(len(column)), key=lambda i, column=column: column[i])):
            costs.append((column[i] + rank * step if slots > 1 else column[i], i, j, column[i]))
    best = sorted(cost for cost in costs if cost[-1] < REACH)[:slots]
    return {(slot, i, j) for slot, (_, i, j, _) in enumerate(best)}


@pytest.mark.parametrize("slots", [1, 2, 5, 20])
@pytest.mark.parametrize("has_coarse", [True, False])
def test_each_body_gets_a_slot_first(slots, has_coarse):
    rng = np.random.default_rng(slots)
    gaps = rng.uniform(-0.1, 0.9, (30, 6, 7))
    coarse = gaps.min(axis=1, keepdims=True).repeat(2, axis=1) - rng.uniform(0.0, 0.3, (30, 2, 7))
    knot, *found = chosen_pairs(gaps, coarse if has_coarse else None, 1, PIECE, CORE, slots, REACH)
    for m in range(30):
        pairs = set(zip(*(values[knot == m].tolist() for values in found), strict=True))
        assert pairs == by_words(gaps[m][np.ix_(PIECE, CORE)], coarse[m, 1, CORE] if has_coarse else None, slots)
    assert slots > 12 or len(knot) > 20


def test_the_hull_of_points_with_points_inside_is_solid():
    """A ball in the middle of a cube overlaps it by half the cube's edge plus the ball's radius."""
    coal = pytest.importorskip("coal")
    corners = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    inside = np.random.default_rng(0).uniform(-0.5, 0.5, (20, 3))
    hull = hull_geometry(np.vstack([inside, corners]))
    rest = pose(np.eye(3), np.zeros(3))
    apart = coal.distance(coal.Sphere(0.2), rest, hull, rest, coal.DistanceRequest(), coal.DistanceResult())
    assert apart == pytest.approx(-1.2, abs=1e-3)
