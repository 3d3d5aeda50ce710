"""Viewer scenes of tasks and runs, and panels of small plots."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rigid_body_cases import tree

import trajopt as to
from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from experiments.plots.canvas import BLUE
from experiments.plots.plotting import _panels
from experiments.plots.sheet import Curve, Graph, draw_sheet, ticks
from experiments.view.scenes import can_be_drawn, task_scene
from trajopt.config.task import Task
from trajopt.replanning.loop import Now
from trajopt.replanning.run_log import RunLog


@pytest.fixture(scope="module")
def task():
    """Arm of three links without shapes that moves to a goal past a ball."""
    model = tree("fixed5", 3)
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic", engine="numpy"), "semi_implicit_euler")
    n = model.nv
    x0 = np.zeros(2 * n)
    ocp = to.OCP.single_phase(
        dynamics, x0, 5, 0.1, [to.control_cost(n)], [to.state_cost(robot.manifold, np.ones(2 * n))], model=model
    )
    ball = Body("ball", Sphere(0.1), p=np.array([0.5, 0.0, 0.5]))
    return Task(ocp, to.constant_guess(ocp), goal=np.array([0.3, 0.0, 0.2]), scene=Scene((ball,)))


@pytest.fixture(scope="module")
def solution(task):
    return to.solve(task.ocp, solver="slq")


def test_goal_scene_and_guess_of_a_task_are_shown(task, solution):
    shown = task_scene(solution, task, guess=task.guess)
    assert [motion.name for motion in shown.motions] == ["solution", "guess"]
    assert shown.motions[0].opacity == 1.0 > shown.motions[1].opacity
    assert shown.annotations.bodies == task.scene.bodies
    np.testing.assert_array_equal(shown.annotations.goals, [task.goal])
    assert can_be_drawn(task.ocp.model) and not can_be_drawn(None)


def test_a_solve_is_watched(task):
    """Iterates are shown in order, ending with the solution; a slider selects them."""
    pytest.importorskip("viser")
    from experiments.view.scenes import watch_task

    with watch_task(task, task.guess) as watch:
        solution = to.solve(task.ocp, solver="slq", callback=watch)
        last = task_scene(solution, task).motions[0]
        watch.finish(last)
        assert len(watch.iterates) == len(solution.history) + 1
        np.testing.assert_array_equal(watch.iterates[0].q, np.zeros_like(last.q))
        shown = watch.viewer.robots["iterate"].motion
        np.testing.assert_allclose(shown.q[-1], solution.xs[-1, : last.q.shape[1]], atol=1e-12)


def test_a_script_that_waits_sees_the_last_iterate_and_a_slider_for_the_others(task, monkeypatch):
    pytest.importorskip("viser")
    chosen = []
    with to.watch(task.ocp, task.guess) as watch:
        monkeypatch.setattr(watch.viewer, "add_choice", lambda title, name, motions: chosen.extend(motions))
        solution = to.solve(task.ocp, solver="slq", callback=watch)
        watch.viewer.close()
        watch.wait()
        last = watch.viewer.robots["iterate"].motion.q[-1]
        watch.wait()
    np.testing.assert_allclose(last, solution.xs[-1, : len(last)], atol=1e-12)  # between knots a + (b - a)
    assert len(chosen) == len(solution.history)


def test_only_some_of_many_iterates_are_stored(task, monkeypatch):
    pytest.importorskip("viser")
    import importlib

    module = importlib.import_module("trajopt.view.watch")  # the name view of the package is a function
    from experiments.view.scenes import watch_task

    monkeypatch.setattr(module, "MAX_ITERATES", 8)
    with watch_task(task, task.guess) as watch:
        for i in range(40):
            xs = np.full_like(task.guess.xs, 0.01 * i)
            watch(SimpleNamespace(iterate=lambda xs=xs: (xs, task.guess.us)))
        first = [round(motion.q[0, 0] / 0.01) for motion in watch.iterates]
    assert len(first) <= 9 and first[0] == 0
    assert len(set(np.diff(first))) == 1 and first[-1] >= 30


def test_a_run_is_shown_while_it_runs_and_afterwards(task, solution):
    pytest.importorskip("viser")
    from experiments.view.live import LiveRun, run_scene

    n = task.ocp.model.nq
    live = LiveRun(task, solution, port=18400)
    try:
        x, goal = np.full(2 * n, 0.2), np.array([0.1, 0.2, 0.3])
        live(Now(0.1, x, to.Plan.from_solution(solution, 0.1), {"goal": goal}))
        plant, plan = live._robots
        np.testing.assert_array_equal(plant.motion.q, [x[:n]])
        np.testing.assert_array_equal(plan.motion.q, solution.xs[:, :n])
        np.testing.assert_allclose(live._objects["goal"].position, goal)
    finally:
        live.close()
    times = 0.01 * np.arange(31)
    xs, moving = np.linspace(0, 1, 31)[:, None] * np.ones(2 * n), np.linspace([0, 0, 0], [0.3, 0, 0], 31)
    log = RunLog(0.01, times, xs, xs, xs, xs[:, :n], times, {"goal": moving}, [], [], [])
    shown = run_scene(task, solution, log)
    [goal] = shown.annotations.targets
    np.testing.assert_allclose(
        goal.places(np.array([0.0, 0.15, 0.3])), [[0, 0, 0], [0.15, 0, 0], [0.3, 0, 0]], atol=1e-12
    )
    np.testing.assert_array_equal(shown.motions[0].q, xs[:, :n])
    assert shown.annotations.goals == ()  # it moves
    settings = {"problem": {"obstacle": {"radius": 0.3}}, "replan": {"obstacle": {"term": "goal"}}}
    avoided = run_scene(task, solution, log, settings)  # the same, were it an obstacle
    assert avoided.annotations.bodies[-1].shape.radius == 0.3 and not avoided.annotations.targets
    np.testing.assert_array_equal(avoided.annotations.goals, [task.goal])


# -- panels --------------------------------------------------------------------------------------------------


def test_accelerations_are_drawn_as_such_and_the_torques_that_they_take():
    """Floating robot: quaternion entries have no unit, and the plotted torques reproduce the accelerations."""
    model = tree("floating90", 2)
    n, rng, times = model.nv, np.random.default_rng(0), np.linspace(0.0, 1.0, 4)
    q = np.tile(model.neutral(), (4, 1))
    xs, us = np.hstack([q, rng.standard_normal((4, n))]), rng.standard_normal((3, n))
    names = [f"a[{name}]" for name in model.dof_names]
    solution = SimpleNamespace(xs=xs, us=us, times=times, meta={"control_names": names})
    task = SimpleNamespace(ocp=SimpleNamespace(model=model, control_bounds=None, control_names=names))
    panels = _panels(solution, task)
    assert [p.unit for p in panels["positions"][1][:7]] == ["m"] * 3 + [""] * 4
    title, accelerations = panels["controls"]
    assert title == "Joint accelerations" and {p.unit for p in accelerations} == {"m/s^2", "rad/s^2"}
    np.testing.assert_array_equal([p.values[:3] for p in accelerations], solution.us.T)
    torques = np.stack([p.values[:3] for p in panels["torques"][1]], axis=1)
    found = to.forward_dynamics(model, q[:3], solution.xs[:3, model.nq :], torques)
    np.testing.assert_allclose(found, solution.us, atol=1e-9)


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-3.2e-4, 7e-5), (0.9999, 1.0001), (-2e6, 5e6), (12.0, 12.5)])
def test_ticks_are_round_and_within(low, high):
    found = ticks(low, high, 5)
    assert 2 <= len(found) <= 6
    assert low - 1e-9 * (high - low) <= found[0] and found[-1] <= high + 1e-9 * (high - low)
    step = found[1] - found[0]
    assert min(abs(step / 10.0 ** np.floor(np.log10(step) + 1e-9) - k) for k in (1, 2, 5)) < 1e-6


def test_a_panel_shows_its_curve_where_it_belongs(tmp_path):
    """The left of two panels rises, the right one is piecewise constant and falls; checked by pixel colors."""
    from matplotlib.image import imread

    times = np.linspace(0.0, 1.0, 11)
    graphs = [
        Graph("rises", "m", [Curve(times, times, BLUE)], 0.0, 1.0, rules=[0.5], note="limits 0 … 1", alarming=True),
        Graph("falls", "", [Curve(times, 1.0 - times, BLUE, held=True)], 0.0, 1.0),
    ]
    picture = imread(draw_sheet(tmp_path / "two.png", "Two", graphs, 2, 6.6, 2.7))[:, :, :3]
    rows, columns = np.nonzero((picture[:, :, 2] > 0.5) & (picture[:, :, 0] < 0.2))
    half = picture.shape[1] / 2
    left, right = columns < half, columns >= half
    assert np.corrcoef(rows[left], columns[left])[0, 1] < -0.99
    assert np.corrcoef(rows[right], columns[right])[0, 1] > 0.95
    assert ((picture[:, :, 0] > 0.6) & (picture[:, :, 2] < 0.3))[:, : int(half)].any()  # the dashed line, and the note


def test_the_command_writes_a_picture_and_a_film(solution, tmp_path):
    from click.testing import CliRunner
    from PIL import Image

    from experiments.cli.main import main

    saved = solution.save(tmp_path / "solution.npz")
    result = CliRunner().invoke(
        main, ["view", str(saved), "--screenshot", str(tmp_path / "a.png"), "--video", str(tmp_path / "a.gif")]
    )
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "a.png") as picture, Image.open(tmp_path / "a.gif") as film:
        assert picture.width == 1050 and film.n_frames > 5
        alone = np.asarray(picture)
    other = replace(solution, xs=0.5 * solution.xs).save(tmp_path / "other.npz")
    result = CliRunner().invoke(main, ["view", str(saved), str(other), "--screenshot", str(tmp_path / "b.png")])
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "b.png") as picture:
        below = slice(60, None)  # the title differs too
        both = np.asarray(picture)
        assert both.shape != alone.shape or (both[below] != alone[below]).any(axis=2).sum() > 500
    wrong = CliRunner().invoke(main, ["view", str(saved), "--video", str(tmp_path / "a.avi")])
    assert wrong.exit_code == 2 and "is not a video file: the name must end in .gif or .mp4" in wrong.stderr
    wrong = CliRunner().invoke(main, ["view", str(saved), "--screenshot", str(tmp_path / "a.xyz")])
    assert wrong.exit_code == 2 and "the file name must end in .png or .jpg" in wrong.stderr
    wrong = CliRunner().invoke(main, ["view", str(saved), "--page", str(tmp_path / "a.pdf")])
    assert wrong.exit_code == 2 and "the file name must end in .html or .htm" in wrong.stderr
    wrong = CliRunner().invoke(main, ["replan", "nowhere.toml", "--video", str(tmp_path / "a.avi")])
    assert wrong.exit_code == 2 and "is not a video file" in wrong.stderr  # before any other check


def test_the_window_takes_a_token_and_warns_of_a_host(solution, tmp_path, monkeypatch):
    pytest.importorskip("viser")
    from click.testing import CliRunner

    from experiments.cli.main import main
    from trajopt.view.viewer import Viewer

    monkeypatch.setattr(Viewer, "wait", lambda self: None)
    saved = str(solution.save(tmp_path / "solution.npz"))
    result = CliRunner().invoke(main, ["view", saved, "--port", "18410"])
    assert result.exit_code == 0 and "token" not in result.output and "host" not in result.stderr, result.output
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = CliRunner().invoke(main, ["view", saved, "--port", "18420", "--host", "0.0.0.0", "--token", "random"])
    assert result.exit_code == 0 and "/?token=" in result.stdout, result.output
    assert "warning: host 0.0.0.0: anyone who knows the token" in result.stderr
    result = CliRunner().invoke(main, ["view", saved, "--token", "a b"])
    assert result.exit_code == 2 and "a token consists of letters" in result.stderr


def test_a_solution_of_a_script_shows_its_goals_and_obstacles(solution, tmp_path):
    """A solution without problem settings is shown without a warning."""
    from experiments.view.scenes import solutions_scene

    ball = Body("ball", Sphere(0.1))
    own = replace(solution, annotations=to.Annotations(goals=[np.ones(3)], bodies=[ball]))
    found = solutions_scene([to.Solution.load(own.save(tmp_path / "own.npz"))])
    assert found.warnings == () and [body.name for body in found.annotations.bodies] == ["ball"]
    np.testing.assert_array_equal(found.annotations.goals, [np.ones(3)])
