"""Animations of motions, plots of walking robots, and images of robots."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from contact_cases import FEET, STANCE, hyq
from PIL import Image

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.soft_contact import SoftContact
from experiments.analysis.gait_analysis import GaitReport, contact_forces, contacts
from experiments.plots import plotting, robot_picture
from experiments.plots.animation import positions, skeleton, write_animation
from experiments.plots.gait_plots import plot_base, plot_gait, plot_legs
from problems.robots import load_robot
from trajopt.config.task import Task, position_of
from trajopt.results.status import Status, StatusCode


def motion(system, x0, knots=30, dt=0.01, **fields):
    """A task and a made-up motion of it: the base moves forward, joints as in x0."""
    dynamics = to.SampledSystem(make_backend(system), "rk4")
    ocp = to.OCP.single_phase(dynamics, x0, knots, dt, [to.control_cost(system.nu)], model=system.model, name="test")
    xs = np.tile(x0, (knots + 1, 1))
    xs[:, 0] += 0.3 * ocp.times
    us, K = np.zeros((knots, system.nu)), np.zeros((knots, system.nu, ocp.manifold.ndx))
    solution = to.Solution(xs, us, K, us, Status(StatusCode.CONVERGED, ""), 0.0, 0, (), ocp.times)
    return Task(ocp, to.constant_guess(ocp), **fields), solution


@pytest.fixture(scope="module")
def standing():
    model = hyq()
    x0 = np.r_[0.0, 0.0, 0.58, 0.0, 0.0, 0.0, 1.0, STANCE, np.zeros(model.nv)]
    return motion(SoftContact(model, FEET), x0, feet=FEET)


@pytest.fixture(scope="module")
def arm():
    model = load_robot("double_pendulum")
    return motion(FreeBody(model), np.array([0.4, 0.3, 0.0, 0.0]), frame="tip", goal=np.array([0.0, 0.0, 2.0]))


class Tags(HTMLParser):
    """Parser that records unclosed elements and external resources."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded = [], []

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "input", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def scene_in(page):
    return json.loads(re.search(r"const scene = (.*);\n", page)[1])


@pytest.mark.parametrize("case", ["standing", "arm"])
def test_the_page_is_complete_and_self_contained(case, request, tmp_path):
    task, solution = request.getfixturevalue(case)
    page = write_animation(tmp_path / "a.html", solution, task).read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.loaded == []
    assert "http" not in page and "@" not in page.split("const scene")[1].split("\n")[0]
    scene = scene_in(page)
    times, count = scene["times"], len(scene["points"][0])
    assert times[0] == 0.0 and times[-1] == pytest.approx(solution.times[-1], abs=1e-4)
    assert np.diff(times).min() >= 0.0199 and all(len(p) == count for p in scene["points"])
    assert len(scene["points"]) == len(times)
    used = (
        [i for line in scene["lines"] for i in line] + [i for plate in scene["plates"] for i in plate] + scene["ends"]
    )
    assert 3 * (max(used) + 1) <= count and scene["trail"] < count // 3
    assert len(scene["touching"]) == (len(times) if task.feet else 0)
    assert all(len(f["values"]) == 3 * len(times) for f in scene["forces"])


def test_the_script_runs(standing, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    task, solution = standing
    page = write_animation(tmp_path / "a.html", solution, task).read_text(encoding="utf-8")
    script = tmp_path / "a.js"
    script.write_text(re.search(r"<script>(.*)</script>", page, re.S)[1], encoding="utf-8")
    subprocess.run([node, "--check", str(script)], check=True, capture_output=True)


def test_a_name_cannot_end_the_script(arm, tmp_path):
    task, solution = arm
    named = replace(task, ocp=replace(task.ocp, name="</script><b>"))
    page = write_animation(tmp_path / "a.html", solution, named).read_text(encoding="utf-8")
    assert page.count("</script>") == 1 and "&lt;/script&gt;" in page


def test_the_figure_of_a_quadruped(standing):
    task, solution = standing
    model = task.ocp.model
    figure = skeleton(model, FEET)
    (plate,) = figure.plates
    hips = [model.body_id(f"{leg}_hipassembly") for leg in ("lf", "rf", "rh", "lh")]
    turned = [hips[i:] + hips[:i] for i in range(4)]
    assert plate in turned or plate[::-1] in turned  # neighbors are neighbors
    assert list(figure.ends) == list(FEET)
    q = solution.xs[:3, : model.nq]
    found = positions(model, figure.places, q)
    for foot, i in figure.ends.items():
        assert np.allclose(found[:, i], position_of(model, foot, q), atol=1e-12)


def test_the_figure_of_an_arm_begins_at_its_mount(arm):
    task, _ = arm
    model = task.ocp.model
    figure = skeleton(model, ("tip",))
    roots = [i for i, (body, _) in enumerate(figure.places) if body == -1]
    assert len(roots) == 1 and (roots[0], 0) in figure.lines
    assert not figure.plates and set(figure.ends) == {"tip"}


def test_an_animation_needs_a_robot(tmp_path):
    ocp = SimpleNamespace(model=None, name="oscillator")
    with pytest.raises(ValueError, match="oscillator has no robot"):
        write_animation(tmp_path / "a.html", None, SimpleNamespace(ocp=ocp))


# -- pictures of robots that walk ---------------------------------------------------------------------------------


def test_contacts_follow_the_forces(standing):
    task, solution = standing
    forces = contact_forces(task.ocp, solution.xs, solution.us)
    assert set(forces) == set(FEET) and all(f.shape == (30, 3) for f in forces.values())
    assert contacts(task.ocp, FEET, solution.xs, solution.us, 0.03).all()
    high = solution.xs.copy()
    high[10:, 2] += 0.2
    touching = contacts(task.ocp, FEET, high, solution.us, 0.03)
    assert touching[:10].all() and not touching[10:].any()


def test_contacts_without_forces_follow_the_heights(standing):
    task, solution = standing
    free = Task(motion(FreeBody(task.ocp.model), solution.xs[0])[0].ocp, task.guess, feet=FEET)
    assert contact_forces(free.ocp, solution.xs, solution.us) == {}
    assert contacts(free.ocp, FEET, solution.xs, solution.us, 0.03).all()
    assert not contacts(free.ocp, FEET, solution.xs, solution.us, 0.001).any()


def test_pictures_of_legs(standing, tmp_path):
    task, solution = standing
    written = plot_legs(solution, tmp_path, task)
    assert {p.name for p in written} == {"base.png", "gait.png", "contact_forces.png"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)


def test_names_of_feet_fit(tmp_path):
    """The left edge of a gait diagram is empty, even with long names."""
    from PIL import Image

    feet = ("LEFT_FRONT_FOOT_CONTACT", "F")
    report = GaitReport(feet, np.full(2, 0.5), np.nan, np.full(2, np.nan))
    times, touching = np.linspace(0.0, 1.0, 11), np.ones((10, 2), dtype=bool)
    path = plot_gait(tmp_path / "gait.png", times, np.zeros((11, 2)), touching, report)
    assert (np.asarray(Image.open(path).convert("L"))[200:, :4] == 255).all()


def test_titles_and_legends_with_long_names_fit(tmp_path):
    """The rows of pixels at the edges of pictures are empty, where texts were cut off."""
    feet = [f"a_quadruped_with_long_names_{foot}_foot_contact_frame" for foot in FEET]
    solution, positions = SimpleNamespace(xs=np.zeros((3, 37))), np.random.default_rng(0).random((3, 4, 3))
    base = plot_base(tmp_path / "base.png", solution, positions, np.ones((2, 4), bool), feet)
    panels = [plotting.Panel(name, "rad", np.arange(3.0), np.arange(3.0), -9.0, 9.0) for name in 4 * feet]
    sheet = plotting.plot_panels(tmp_path / "positions.png", "Positions", panels)
    for path in (base, sheet):
        pixels = np.asarray(Image.open(path).convert("L"))
        assert (pixels[:, :2] == 255).all() and (pixels[:, -2:] == 255).all()
    titled = robot_picture._with_title(Image.new("RGB", (800, 40), "white"), " ".join(feet))
    assert titled.height > 40 + 2 * robot_picture.FONT and (np.asarray(titled)[:, -5:] == 255).all()


# -- images of robots ---------------------------------------------------------------------------------------------------


def test_shapes_are_drawn_within_the_limits_of_joints(tmp_path, monkeypatch):
    """HyQ's neutral posture, with straight knees, violates its joint limits."""
    drawn = []

    class Studio:
        missing = ()

        def __init__(self, motions, **_):
            drawn.append(motions[0].q[0])

        def picture(self, moments):
            return Image.new("RGB", (60, 40))

    monkeypatch.setattr(robot_picture, "Studio", Studio)
    model = load_robot("hyq")
    robot_picture.draw_shapes(tmp_path / "hyq.png", model)
    assert len(drawn) == 3 and (tmp_path / "hyq.png").exists()
    neutral = model.neutral()
    for q in drawn:
        assert (model.q_lower <= q).all() and (q <= model.q_upper).all()
        inside = (model.q_lower <= neutral) & (neutral <= model.q_upper)
        np.testing.assert_array_equal(q[inside], neutral[inside])
