"""Motions in three dimensions: poses, times between knots, and the page in a browser."""

import dataclasses
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rigid_body_cases import tree

import trajopt as to
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath
from dynamics_backends.rigid_body.geometry.shapes import Box, HalfSpace, Sphere
from dynamics_backends.rigid_body.model.state import configuration_manifold
from trajopt.view.files import write_page
from trajopt.view.motion import Motion, with_annotations
from trajopt.view.surfaces import appearance, rods
from trajopt.view.viewer import Viewer

sys.path.insert(0, str(Path(__file__).parent))

from browser import CHROMIUM, Browser

ARM = """<robot name="arm">
  <link name="base"><visual><geometry><box size="0.2 0.2 0.1"/></geometry></visual></link>
  <link name="upper"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><cylinder radius="0.05" length="0.4"/></geometry></collision></link>
  <link name="lower"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tip"/>
  <joint name="a" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
  <joint name="b" type="continuous"><parent link="upper"/><child link="lower"/><axis xyz="0 1 0"/><origin xyz="0 0 0.4"/></joint>
  <joint name="c" type="fixed"><parent link="lower"/><child link="tip"/><origin xyz="0 0 0.3"/></joint>
</robot>"""


@pytest.fixture
def arm(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    return to.load_urdf(tmp_path / "arm.urdf")


def swing(model, count=5):
    q = np.linspace(0.0, 1.0, count)[:, None] * np.array([1.0, 0.5])
    return Motion("robot", model, np.linspace(0.0, 0.4, count), q, tracks=("tip",))


def test_poses_are_those_of_the_links():
    model = tree("floating90", 4)
    manifold, rng = configuration_manifold(model), np.random.default_rng(0)
    start = np.repeat(manifold.identity()[:, None], 3, axis=1)
    q = manifold.integrate(start, rng.standard_normal((model.nv, 3))).T
    poses = Motion("robot", model, np.arange(3.0), q).poses()
    for frame in model.frames:
        if frame.body >= 0:
            R, p = frame_placement(model, q, frame.name)
            body_R, body_p = poses.R[:, frame.body], poses.p[:, frame.body]
            np.testing.assert_allclose(body_R @ frame.R, R, atol=1e-12)
            np.testing.assert_allclose(body_p + body_R @ frame.p, p, atol=1e-12)


def test_motions_between_their_knots(arm):
    motion = swing(arm)
    np.testing.assert_allclose(motion.at(motion.times).q, motion.q, atol=1e-14)
    np.testing.assert_allclose(motion.at(np.array([0.05, 9.0])).q, [[0.125, 0.0625], [1.0, 0.5]], atol=1e-14)
    with pytest.raises(ValueError, match="expected"):
        Motion("robot", arm, np.zeros(3), np.zeros((4, 2)))


def test_a_rod_leads_to_a_frame_beyond_the_joints(tmp_path):
    """The wrist has a finger at 5 cm and a tip at 15 cm: rods lead to both."""
    joint = '<joint name="{1}" type="{0}"><parent link="{2}"/><child link="{1}"/><origin xyz="0 0 {3}"/>{4}</joint>'
    mass = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = f'<link name="base"/><link name="wrist">{mass}</link><link name="finger">{mass}</link><link name="tip"/>'
    axis, limit = '<axis xyz="0 1 0"/>', '<limit lower="0" upper="1" effort="1" velocity="1"/>'
    joints = (("revolute", "wrist", "base", 1.0, axis + limit), ("prismatic", "finger", "wrist", -0.05, axis + limit),
              ("fixed", "tip", "wrist", -0.15, ""))  # fmt: skip
    text = f'<robot name="gripper">{links}{"".join(joint.format(*j) for j in joints)}</robot>'
    ends = [np.linalg.norm(end.b) for body, end in rods(to.load_urdf(text), set()) if body == 0]
    np.testing.assert_allclose(ends, [0.05, 0.15])


def test_what_has_no_shape_is_a_rod(arm):
    """The lower link has no shape: a rod extends from its joint to the tip; the base belongs to the world."""
    look = appearance(arm)
    assert sorted({s.body for s in look.surfaces}) == [-1, 0, 1]
    rod = next(s for s in look.surfaces if s.body == 1)
    reach = np.linalg.norm(rod.vertices, axis=1).max()
    assert 0.3 <= reach <= 0.3 * 1.2
    assert {s.body for s in appearance(tree("floating90", 4)).surfaces} <= set(range(4))
    with pytest.raises(ValueError, match="known: 'visual'"):
        appearance(arm, "mesh")


def test_the_path_of_the_tip(arm):
    path = swing(arm).paths()["tip"]
    np.testing.assert_allclose(path[0], [0.0, 0.0, 0.7], atol=1e-12)
    np.testing.assert_allclose(
        path[-1], [0.4 * np.sin(1.0) + 0.3 * np.sin(1.5), 0.0, 0.4 * np.cos(1.0) + 0.3 * np.cos(1.5)], atol=1e-12
    )


def solved(model):
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic", engine="numpy"), "semi_implicit_euler")
    running, terminal = [to.control_cost(2, weight=1e-2)], [to.state_cost(robot.manifold, np.ones(4), 10.0)]
    return to.solve(to.OCP.single_phase(dynamics, np.zeros(4), 10, 0.05, running, terminal, model=model))


def test_a_solution_carries_its_robot_to_the_file_and_back(arm, tmp_path):
    solution = solved(arm)
    assert solution.model is arm
    loaded = to.Solution.load(solution.save(tmp_path / "s.npz"))
    assert loaded.model.digest == arm.digest
    assert loaded.model.source == arm.source


def test_a_solution_without_robot_reports_what_it_lacks():
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"))
    terminal = [to.state_cost(system.manifold, [1.0, 0.0], 10.0)]
    solution = to.solve(to.OCP.single_phase(dynamics, np.zeros(2), 5, 0.1, [to.control_cost(1)], terminal))
    with pytest.raises(ValueError, match=r"give the problem annotations=to.Annotations\(draw=...\), .* or model="):
        to.view(solution)


def test_what_is_no_solution_is_refused(arm, tmp_path):
    """As after swapped arguments."""
    solution = solved(arm)
    for call in (to.write_animation, to.write_video):
        with pytest.raises(TypeError, match="expected a solution, or several, not str 'motion.gif'"):
            call(solution, "motion.gif")


def test_the_page_holds_its_scene_and_asks_no_network(arm, tmp_path):
    pytest.importorskip("viser")
    annotations = to.Annotations(goals=[np.array([0.3, 0.0, 0.3])], spheres=[(np.array([0.4, 0.2, 0.3]), 0.1)])
    page = to.write_animation(tmp_path / "motion.html", solved(arm), annotations=annotations).read_text()
    assert len(page) < 5_000_000
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="?https?:', page)


def test_annotations_near_the_robots_are_in_the_picture(arm):
    """Box corners, ball edges and all places of a moving body are included; a floor and objects kilometers away are cropped."""
    box = Body("box", Box((0.2, 0.4, 0.6)), p=np.array([1.0, 0.0, 0.3]))
    ball = Body("ball", Sphere(0.1), p=np.zeros(3), path=BodyPath((0.0, 1.0), ((0.0, 0.0, 0.0), (0.0, 2.0, 0.0))))
    floor = Body("floor", HalfSpace())
    low, high = np.zeros(3), np.ones(3)
    found = with_annotations(
        low, high, to.Annotations(bodies=[box, ball, floor], goals=[np.array([0.0, -0.5, 0.0])]), 5.0
    )
    np.testing.assert_allclose(found, [[-0.1, -0.5, -0.1], [1.1, 2.1, 1.0]], atol=0.01)
    found = with_annotations(low, high, to.Annotations(spheres=[(np.array([1e3, 0.5, 0.5]), 0.1)]), 5.0)
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.0], [6.0, 1.0, 1.0]])


def test_robots_in_a_row_have_their_own_annotations(arm):
    """Robots are moved apart and back together; the annotations of the second robot are then hidden."""
    pytest.importorskip("viser")
    annotations = to.Annotations(goals=[np.array([0.3, 0.0, 0.3])], spheres=[(np.array([0.4, 0.2, 0.3]), 0.1)])
    other = dataclasses.replace(swing(arm), name="other")
    with Viewer([swing(arm), other], annotations, port=18400) as viewer:

        def places():
            return [np.array(r._root.position) for r in (*viewer.robots.values(), *viewer._around)]

        viewer.arrange(True)
        first, second, around, its_own = places()
        assert np.linalg.norm(second - first) > 0.5 and viewer._around[1]._root.visible
        np.testing.assert_array_equal([around, its_own], [first, second])
        viewer.arrange(False)
        np.testing.assert_array_equal(places(), np.zeros((4, 3)))
        assert not viewer._around[1]._root.visible


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
MOVED = 0.001
"""Mean color change due to a moving robot; a scene at rest changes by at most a tenth of it."""
TURNS = 6
"""Number of slider sweeps; a busy machine may show the first scenes late."""
SLIDER = "document.querySelector('[role=slider]')"


@pytest.mark.slow
@needs_browser
def test_the_slider_of_the_page_moves_the_robot(arm, tmp_path):
    """Keys move the slider in a browser: the scene changes at the end and is restored at the start, without console errors."""
    pytest.importorskip("viser")

    def apart(a, b):  # of what is below the controls
        return np.abs(a - b)[200:].mean()

    def settled(browser):
        """Return an image of a scene, and one from a second before."""
        seen = []

        def is_it(picture):
            time.sleep(0.25)
            seen.append(picture)
            still = len(seen) > 4 and all(np.abs(picture - other)[200:].max() < 0.02 for other in seen[-5:-1])
            return still and picture[200:].std() > 0.02

        return browser.seen(is_it)

    def moved(viewer, browser, key, value):
        """Press a key until the slider is there: a page that is still loading ignores keys."""

        def there():
            browser.press(SLIDER, key)
            time.sleep(0.1)
            return viewer._slider.value == pytest.approx(value)

        browser.until(there)

    with Viewer([swing(arm)], port=18200) as viewer, Browser(tmp_path / "profile") as browser:
        browser.open(viewer.url, f"document.querySelector('canvas') !== null && {SLIDER} !== null")
        before = None
        for _ in range(TURNS):
            moved(viewer, browser, "End", 0.4)
            last = settled(browser)
            moved(viewer, browser, "Home", 0.0)
            first = settled(browser)
            if before is not None and apart(first, last) > MOVED and apart(last, before) < 0.1 * apart(first, last):
                break
            before = last
        else:
            pytest.fail("the scenes at the ends are not twice the same")
        assert browser.errors == []


def with_mesh(folder):
    """Return the arm, with a box from a file instead of its upper link's collision shape."""
    import trimesh

    trimesh.creation.box((0.08, 0.08, 0.4)).export(folder / "box.stl")
    mesh = '<visual><geometry><mesh filename="box.stl"/></geometry></visual>'
    (folder / "meshed.urdf").write_text(re.sub("<collision>.*</collision>", mesh, ARM))
    return to.load_urdf(folder / "meshed.urdf")


@pytest.mark.slow
@needs_browser
def test_the_page_plays_and_its_slider_moves_the_robot(tmp_path):
    """The page works without server and network, with a box, a mesh and a rod: time runs; the paused scene at the end differs
    from the start, and is reproducible; no console errors."""
    pytest.importorskip("viser")
    pytest.importorskip("trimesh")
    page, missing = write_page(tmp_path / "motion.html", [swing(with_mesh(tmp_path))])
    assert missing == () and page.stat().st_size < 5_000_000

    def apart(a, b):  # of what is above the controls
        return np.abs(a - b)[:-50]

    def time_shown(browser):
        return float(browser.evaluate(f"{SLIDER}.getAttribute('aria-valuenow')"))

    def seen_at(browser, fraction):
        """Return an image of the paused scene at a fraction of the time."""

        def there():
            browser.click("document.querySelector('.mantine-Slider-root')", fraction)
            time.sleep(0.05)
            return abs(time_shown(browser) - 0.4 * fraction) < 0.04

        browser.until(there)
        seen = [browser.picture()]

        def still(picture):
            seen.append(picture)
            return apart(*seen[-2:]).max() < 0.02

        return browser.seen(still)

    with Browser(tmp_path / "profile", (400, 450)) as browser:
        browser.without_network()
        browser.open(page.as_uri(), f"document.querySelector('canvas') !== null && {SLIDER} !== null")
        browser.seen(lambda picture: picture[:-50].std() > 0.02)
        began = time_shown(browser)
        browser.until(lambda: time_shown(browser) != began)
        browser.evaluate("document.querySelector('.tabler-icon-player-pause-filled').closest('button').click()")
        before = None
        for _ in range(TURNS):
            last, first = (seen_at(browser, fraction) for fraction in (0.97, 0.03))
            moved = apart(first, last).mean()
            if before is not None and moved > MOVED and apart(last, before).mean() < 0.1 * moved:
                break
            before = last
        else:
            pytest.fail("the scenes at the ends are not twice the same")
        assert browser.errors == [] and browser.asked == []
