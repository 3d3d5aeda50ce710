"""Shapes of systems without a robot model, and goals and obstacles stored in solutions."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from rigid_body_cases import tree

import trajopt as to
from trajopt.problem.annotations import annotations_from_data, annotations_to_data, problem_annotations
from trajopt.view.motion import ShapeMotion
from trajopt.view.picture import Moment, Studio
from trajopt.view.view import motions

LENGTH = 0.5


def draw(x):
    """A pendulum of one rod and a ball, x = (angle from below, rate)."""
    tip = LENGTH * np.array([np.sin(x[0]), 0.0, -np.cos(x[0])])
    return [to.rod("rod", np.zeros(3), tip, 0.02), to.Body("bob", to.Sphere(0.06), p=tip)]


def pendulum(**fields):
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * to.sin(x[0])], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"))
    terminal = [to.state_cost(system.manifold, [1.0, 0.0], 100.0)]
    return to.OCP.single_phase(dynamics, np.zeros(2), 10, 0.05, [to.control_cost(1, weight=0.01)], terminal, **fields)


@pytest.fixture(scope="module")
def solution():
    return to.solve(pendulum(annotations=to.Annotations(draw=draw, goals=[np.array([0.4, 0.0, -0.3])])), solver="slq")


def tips(xs):
    return LENGTH * np.stack([np.sin(xs[:, 0]), 0.0 * xs[:, 0], -np.cos(xs[:, 0])], axis=1)


def test_a_solution_shows_the_shapes_of_its_problem(solution):
    (motion,) = motions(solution)
    assert isinstance(motion, ShapeMotion) and motion.body_names == ("rod", "bob") and motion.title == "ocp"
    np.testing.assert_allclose(motion.poses().p[:, 1], tips(solution.xs), atol=1e-12)
    np.testing.assert_allclose(motion.poses().p[:, 0], 0.5 * tips(solution.xs), atol=1e-9)
    np.testing.assert_allclose(motion.poses().R[:, 0, :, 2], tips(solution.xs) / LENGTH, atol=1e-9)  # along the rod


def test_the_file_has_the_shapes_without_the_function(solution, tmp_path):
    loaded = to.Solution.load(solution.save(tmp_path / "s.npz"))
    assert isinstance(loaded.annotations.draw, to.Drawn)
    (before,), (after,) = motions(solution), motions(loaded)
    np.testing.assert_allclose(after.poses().p, before.poses().p, atol=1e-12)
    np.testing.assert_allclose(after.poses().R, before.poses().R, atol=1e-12)
    assert [body.shape for body in after.drawn.bodies] == [body.shape for body in before.drawn.bodies]
    np.testing.assert_array_equal(loaded.annotations.goals, solution.annotations.goals)


def test_several_files_show_their_own_motions(solution, tmp_path):
    other = to.Solution.load(
        to.solve(pendulum(annotations=to.Annotations(draw=draw)), options={"max_iterations": 1}).save(
            tmp_path / "o.npz"
        )
    )
    loaded = to.Solution.load(solution.save(tmp_path / "s.npz"))
    first, second = motions([loaded, other])
    assert first.opacity == 1.0 > second.opacity
    np.testing.assert_allclose(second.poses().p[:, 1], tips(other.xs), atol=1e-12)


def test_shapes_between_their_knots():
    angles = np.array([[0.0, 0.0], [1.0, 0.0]])
    motion = ShapeMotion("m", to.Drawn.from_function(draw, angles), np.array([0.0, 2.0]))
    turned = motion.at(np.array([-1.0, 1.0, 3.0])).poses()
    along = turned.R[:, 0, :, 2]
    np.testing.assert_allclose(along, tips(np.array([[0.0], [0.5], [1.0]])) / LENGTH, atol=1e-9)
    with pytest.raises(ValueError, match="2 poses at 3 times"):
        ShapeMotion("m", motion.drawn, np.zeros(3))
    with pytest.raises(to.UnknownName, match="bob"):
        ShapeMotion("m", motion.drawn, motion.times, tracks=("bobb",))


def test_a_picture_shows_the_shapes_where_they_are(solution):
    """The images at start and end differ at the bob, and both show the goal."""
    (motion,) = motions(solution, tracks=["bob"])
    studio = Studio([motion], solution.annotations, width=300)
    first, last = (np.asarray(studio.picture([Moment(0, i)])).astype(int) for i in (0, len(motion.times) - 1))
    x, y = (studio.camera.projected(tips(solution.xs)[0])[:2] / 1.5).astype(int)
    assert np.abs(first - last)[y - 8, x].sum() > 50  # above the line of its path
    assert (np.abs(last - np.array([42, 138, 74])).sum(axis=2) < 30).sum() > 20


def test_a_page_and_the_command_show_the_shapes(solution, tmp_path):
    from experiments.cli.main import main

    saved = solution.save(tmp_path / "s.npz")
    result = CliRunner().invoke(main, ["view", str(saved), "--screenshot", str(tmp_path / "a.png")])
    assert result.exit_code == 0 and result.stderr == "", result.output
    pytest.importorskip("viser")
    assert to.write_animation(tmp_path / "a.html", solution).stat().st_size < 5_000_000
    with to.view(solution, tracks=["bob"], port=18300) as viewer:
        assert set(viewer.robots) == {"solution"}


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (lambda x: [], ValueError, "draws? returns no bodies"),
        (lambda x: [np.zeros(3)], TypeError, "draw returns a ndarray"),
        (lambda x: [to.Body(f"at {x[0]}", to.Sphere(0.1))], ValueError, "other bodies at state 1"),
        (lambda x: [to.Body("ball", to.Sphere(0.1 + x[0]))], ValueError, "the shape of 'ball' changes at state 1"),
        (lambda x: [to.rod("rod", x, x, 0.1)], ValueError, "give two distinct points"),
    ],
)
def test_what_draw_may_not_return(wrong, error, message):
    with pytest.raises(error, match=message):
        to.Drawn.from_function(wrong, np.arange(6.0).reshape(2, 3))


def test_a_draw_function_that_fails_loses_no_solution(tmp_path):
    solution = to.solve(pendulum(annotations=to.Annotations(draw=lambda x: 1 / 0)), solver="slq")
    with pytest.warns(UserWarning, match="draw failed .ZeroDivisionError"):
        saved = solution.save(tmp_path / "s.npz")
    loaded = to.Solution.load(saved)
    np.testing.assert_array_equal(loaded.xs, solution.xs)
    assert loaded.annotations.draw is None


# -- goals and obstacles ------------------------------------------------------------------------------------------------


def arm(**fields):
    model = tree("fixed5", 3)
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic", engine="numpy"))
    frame, N = model.frames[-1].name, 4
    moving = np.linspace([0.5, 0.0, 0.0], [0.5, 1.0, 0.0], N)
    points = to.link_points(model, frame, 0.2)
    ball = to.sphere_obstacle(model, robot.manifold, points, [0.7, 0.0, 0.7], 0.1)
    soft = to.softened(to.sphere_obstacle(model, robot.manifold, points, moving, 0.2, "person"), 10.0)
    running = [to.control_cost(3), soft, to.frame_position_cost(model, robot.manifold, frame, moving, 0.1, "follow")]
    terminal = [
        to.frame_position_cost(model, robot.manifold, frame, [0.3, 0.1, 0.2], 10.0),
        to.frame_placement_cost(model, robot.manifold, frame, [0.3, 0.1, 0.2], np.eye(3), 10.0),
        to.frame_position_cost(model, robot.manifold, frame, [9.0, 9.0, 9.0], 0.0, "without weight"),
    ]
    return to.OCP.single_phase(
        dynamics, np.zeros(6), N, 0.1, running, terminal, constraints=[ball], model=model, **fields
    )


def test_goals_and_spheres_of_terms_and_constraints_are_shown():
    found = problem_annotations(arm())
    np.testing.assert_array_equal(found.goals, [[0.3, 0.1, 0.2]])
    ((center, radius),) = found.spheres
    np.testing.assert_array_equal(center, [0.7, 0.0, 0.7])
    assert radius == 0.1
    (person,), (target,) = found.bodies, found.targets
    assert person.name == "person" and person.shape.radius == 0.2
    np.testing.assert_allclose(person.places(np.array([0.0, 0.15, 9.0])), [[0.5, 0, 0], [0.5, 0.5, 0], [0.5, 1, 0]])
    np.testing.assert_allclose(target.places(np.array(0.3)), [0.5, 1.0, 0.0])


def test_annotations_of_the_problem_come_first():
    box = to.Body("box", to.Box((1.0, 1.0, 1.0)))
    found = problem_annotations(arm(annotations=to.Annotations(bodies=[box])))
    assert list(found.bodies) == [box] and not found.spheres
    np.testing.assert_array_equal(found.goals, [[0.3, 0.1, 0.2]])


EVERY_SHAPE = (
    to.Sphere(0.1),
    to.Box((0.1, 0.2, 0.3)),
    to.Cylinder(0.1, 0.3),
    to.Capsule(0.1, 0.3),
    to.HalfSpace(),
    to.Mesh(np.eye(4)[:, :3], np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])),
)


def test_obstacles_of_every_shape_go_to_a_file_and_back():
    """User-defined shapes are saved as triangles; nothing is pickled."""

    class Wedge:
        def triangles(self):
            return EVERY_SHAPE[-1].triangles()

    path = to.BodyPath((0.0, 1.0), ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)))
    R = to.rpy_matrix((0.1, 0.2, 0.3))
    bodies = [to.Body(str(i), shape, R, np.ones(3), path) for i, shape in enumerate((*EVERY_SHAPE, Wedge()))]
    annotations = to.Annotations([np.ones(3)], [(np.zeros(3), 0.3)], bodies, bodies[:1], {"line": np.eye(3)})
    data = json.loads(json.dumps(annotations_to_data(annotations, np.zeros((1, 1)))))
    back = annotations_from_data(data)
    for before, after in zip(bodies, back.bodies, strict=True):
        assert before.name == after.name and before.path == after.path
        np.testing.assert_array_equal(before.R, after.R)
        for a, b in zip(before.shape.triangles(), after.shape.triangles(), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(back.curves["line"], np.eye(3))
    for wrong in ({**data, "goals": [[0.0]]}, {**data, "bodies": [{**data["bodies"][0], "shape": {"type": "blob"}}]}):
        with pytest.raises(ValueError):
            annotations_from_data(wrong)


@pytest.mark.parametrize("shape", EVERY_SHAPE, ids=lambda shape: type(shape).__name__)
def test_an_obstacle_of_every_shape_is_in_the_picture(shape):
    (motion,) = motions(to.solve(pendulum(annotations=to.Annotations(draw=draw)), options={"max_iterations": 1}))
    R = to.rpy_matrix((np.pi / 2, 0.0, 0.0))  # a half-space as a wall
    body = to.Body("obstacle", shape, R, [0.0, 0.6, 0.0])
    pictures = [
        np.asarray(Studio([motion], to.Annotations(bodies=b), width=200).picture([Moment(0, 0)])) for b in ((), (body,))
    ]
    orange = [((p[..., 0].astype(int) - p[..., 2]) > 40).sum() for p in pictures]
    assert orange[0] == 0 and orange[1] > 50


# -- who may look --------------------------------------------------------------------------------------------------------


def answer(port, path="/", **headers):
    """Status, headers and text of a request with these headers."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        with connection.getresponse() as response:
            text = "" if response.status == 101 else response.read().decode(errors="replace")
            return response.status, dict(response.getheaders()), text
    finally:
        connection.close()


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec_WebSocket_Protocol": "viser-v1.1.1",
}


def test_a_request_by_another_name_or_from_another_page_is_refused(solution):
    """DNS rebinding, and a WebSocket that a foreign page opens."""
    pytest.importorskip("viser")
    with to.view(solution, port=18310) as viewer:
        port = viewer.server.get_port()
        for good in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            assert answer(port, Host=good)[0] == 200
        for bad in (f"evil.example:{port}", "192.0.2.1", "", "[", f"localhost.evil.example:{port}"):
            status, _, text = answer(port, Host=bad)
            assert status == 403 and "does not belong to this view" in text
        own = f"127.0.0.1:{port}"
        assert answer(port, Host=own, Origin=f"http://{own}", **UPGRADE)[0] == 101
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            assert answer(port, Host=own, Origin=origin, **UPGRADE)[0] == 403


def test_a_token_is_asked_for_and_remembered_by_a_cookie(solution):
    pytest.importorskip("viser")
    with to.view(solution, port=18320, token="secret-1") as viewer:
        port = viewer.server.get_port()
        assert viewer.url.endswith("/?token=secret-1")
        own = f"127.0.0.1:{port}"
        for path in ("/", "/?token=wrong", "/?token="):
            status, _, text = answer(port, path, Host=own)
            assert status == 403 and "needs its token" in text
        assert answer(port, Host=own, Origin=f"http://{own}", **UPGRADE)[0] == 403
        status, headers, _ = answer(port, "/?token=secret-1", Host=own)
        assert status == 303 and headers["Location"] == "/"
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite" in cookie
        known = cookie.partition(";")[0]
        assert answer(port, Host=own, Cookie=known)[0] == 200
        assert answer(port, Host=own, Origin=f"http://{own}", Cookie=known, **UPGRADE)[0] == 101
    with pytest.raises(ValueError, match="a token consists of letters"):
        to.view(solution, token="a; Path=/evil")


def test_a_host_that_others_reach_is_warned_of(solution, monkeypatch):
    pytest.importorskip("viser")
    with pytest.warns(UserWarning, match="host 0.0.0.0: anyone can see the view .* give a token"):
        viewer = to.view(solution, host="0.0.0.0", port=18330)
    with viewer:
        port = viewer.server.get_port()
        assert answer(port, Host=f"192.0.2.7:{port}")[0] == 200  # by an address of this machine
        assert answer(port, Host="evil.example")[0] == 403
