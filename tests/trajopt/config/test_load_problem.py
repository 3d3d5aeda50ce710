"""Problems in a script: loaded by task name, from a file, or from a solution; tasks as documented functions."""

import inspect
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import trajopt as to
from trajopt.config.config import load_config
from trajopt.config.registry import PROBLEMS, bundled_names

QUIET = {"verbosity": 0}


def test_a_bundled_task_equals_the_task_of_the_command_line():
    problem = to.load_problem("ur5_reach", dt=0.02, solver="sqp", backend="forward_ad", engine="numpy")
    config = load_config("ur5_reach", ["problem.dt=0.02", "solver.name=sqp", "backend=forward_ad", "engine=numpy"])
    assert problem.config == config
    assert (problem.name, problem.solver, problem.options) == ("ur5_reach", "sqp", config.solver_options)
    assert problem.settings.dt == 0.02 and problem.ocp.phases[0].dt[0] == 0.02
    assert problem.ocp.phases[0].dynamics.backend.name == "forward_ad"
    assert problem.guess.us.shape == (problem.ocp.horizon, 6)


def test_a_task_is_shown_in_one_line():
    shown = repr(to.load_problem("cart_pole_balance").task)
    assert shown.startswith("Task(OCP('cart_pole'") and len(shown) < 200


def test_changes_are_plain_values_of_python():
    goal = np.array([0.3, 0.1, 0.9])
    changes = {"weights": {"velocity": np.float64(0.5)}, "goal_position": goal, "robot": Path("iiwa7")}
    problem = to.load_problem("iiwa7_reach", **changes, solver={"name": "slq", "max_iterations": 7})
    written = to.load_problem("iiwa7_reach").settings
    assert problem.settings.goal_position == tuple(goal)
    assert problem.settings.weights == replace(written.weights, velocity=0.5)  # other weights are those of the file
    assert (problem.solver, problem.options.max_iterations) == ("slq", 7)
    weights = replace(written.weights, velocity=0.5)  # a dataclass can replace a table
    assert to.load_problem("iiwa7_reach", weights=weights).settings.weights == weights
    assert to.load_problem("iiwa7_reach", dt=None).settings.dt == PROBLEMS["arm_go_to"].Settings.dt


def test_a_solver_keeps_the_options_of_the_file_that_it_has():
    written = to.load_problem("cart_pole_swing_up")
    by_name = to.load_problem("cart_pole_swing_up", solver="ddp")
    assert by_name.config == to.load_problem("cart_pole_swing_up", solver={"name": "ddp"}).config
    assert by_name.config == load_config("cart_pole_swing_up", ["solver=ddp"])
    assert written.solver != "ddp" == by_name.solver


def test_the_engine_may_be_in_either_place_of_a_file(tmp_path):
    for text in ('engine = "auto"\nbackend = "analytic"\n', '[backend]\nengine = "auto"\n'):
        (tmp_path / "a.toml").write_text(text + '[problem]\nname = "cart_pole"\n')
        assert to.load_problem(tmp_path / "a.toml", engine="numpy").config.backend.engine == "numpy"


def test_a_solve_prints_what_the_command_prints(capsys, tmp_path):
    from click.testing import CliRunner

    from experiments.cli.main import main

    problem = to.load_problem("double_pendulum_swing_up", output={"verbosity": 1})
    solution = problem.solve()
    printed = capsys.readouterr().out.splitlines()
    out = ["--out", str(tmp_path), "--set", "output.plots=false"]
    done = CliRunner().invoke(main, ["solve", "double_pendulum_swing_up", "--verbosity", "1", *out])
    saved = to.Solution.load(tmp_path / "solution.npz")
    without_time = [
        [line for line in text if " s (derivatives" not in line] for text in (printed, done.output.splitlines())
    ]
    assert without_time[1][: len(without_time[0])] == without_time[0] and len(printed) > solution.iterations
    assert (
        np.array_equal(saved.xs, solution.xs) and saved.meta["config"]["problem"] == solution.meta["config"]["problem"]
    )


def test_a_solve_may_be_silent_and_start_elsewhere(capsys):
    problem = to.load_problem("cart_pole_swing_up", solver="slq")
    solution = problem.solve(report=False)
    records = []
    again = problem.solve((solution.xs, solution.us), records.append, report=False)
    assert again.iterations == 0 and len(records) == 1 and again.status.success
    assert capsys.readouterr().out == ""


def test_relaxed_problems_and_limits_are_those_of_the_task():
    """LoadedProblem.solve includes relaxed problems and refinement, which `to.solve` omits."""
    problem = to.load_problem("hyq_trot_stepped", horizon=30, solver={"max_iterations": 1}, engine="numpy")
    solution = problem.solve(report=False)
    assert len(solution.meta["easier"]) == len(problem.task.easier) >= 1
    assert "limits" in solution.meta


def test_a_solution_names_its_problem(tmp_path):
    found = to.load_problem("cart_pole_swing_up", horizon=80, solver="slq").solve(report=False)
    found.save(tmp_path / "a.npz")
    again = to.load_problem(to.Solution.load(tmp_path / "a.npz"))
    assert again.ocp.horizon == 80 and again.solver == "slq"
    assert again.solve(again.guess, report=False).cost == found.cost
    assert to.load_problem(found, horizon=90).ocp.horizon == 90
    with pytest.raises(ValueError, match="the solution contains no settings; solve with"):
        to.load_problem(to.solve(again.ocp, again.guess, solver="slq"))


def test_a_changed_robot_gives_a_warning():
    found = to.load_problem("cart_pole_swing_up", solver="slq").solve(report=False)
    other = replace(found, meta={**found.meta, "model": {"name": "cart_pole", "digest": "other"}})
    with pytest.warns(UserWarning, match="the robot model has changed") as caught:
        to.load_problem(other)
    assert caught[0].filename == __file__


def test_all_mistakes_are_named_together():
    with pytest.raises(to.ConfigError) as caught:
        to.load_problem("cart_pole_swing_up", horizn=3, force_limit=-1.0, solver="slqq", backend={"names": "analytic"})
    text = str(caught.value)
    assert "problem.horizn: unknown key; did you mean horizon?" in text
    assert "did you mean 'slq'?" in text and "backend.names: unknown key; did you mean name?" in text
    with pytest.raises(to.ConfigError, match=r"problem.force_limit: expected a positive number, got -1.0"):
        to.load_problem("cart_pole_swing_up", force_limit=-1.0)
    with pytest.raises(TypeError, match="name is a int; expected the name of a task"):
        to.load_problem(3)
    with pytest.raises(FileNotFoundError, match="did you mean hyq_trot, a bundled configuration"):
        to.load_problem("hyq_trott")


def test_every_task_is_a_documented_function():
    tasks = to.tasks()
    assert set(tasks) == {*bundled_names(), *PROBLEMS}
    for name, function in tasks.items():
        parameters = inspect.signature(function).parameters
        assert function.__name__ == name and len(parameters) > 10
        for key, parameter in parameters.items():
            if key != "tables":
                assert f"\n{key}: " in function.__doc__, (name, key)
                assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert repr(tasks).count(f"\n{name} ") == 1 or repr(tasks).startswith(f"{name} ")


def test_a_function_has_the_defaults_of_its_file():
    gait = to.tasks()["hyq_trot"]
    parameters = inspect.signature(gait).parameters
    assert parameters["substeps"].default == to.load_problem("hyq_trot").settings.substeps
    assert parameters["yaw"].default == PROBLEMS["quadruped_gait"].Settings.yaw
    assert 'robot: a string; default "hyq"' in gait.__doc__
    assert "length of a time step [s]" in gait.__doc__
    assert "running.attitude: " in gait.__doc__  # key of a nested table
    swing_up = to.tasks()["cart_pole"](horizon=20, solver="ddp")  # a problem with its own defaults
    assert swing_up.config == to.load_problem("cart_pole", horizon=20, solver="ddp").config
    with pytest.raises(to.UnknownName, match="did you mean 'hyq_trot'"):
        to.tasks()["hyq_trott"]


@dataclass(frozen=True, kw_only=True)
class Settings(to.Sampling):
    """Braking of a mass. push: initial velocity [m/s]."""

    horizon: int = 20
    dt: float = 0.1
    push: float = 1.0


def build(settings, backend):
    """A mass comes to rest where it started."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    ocp = to.OCP.single_phase(
        settings.sampled(backend(mass)),
        [0.0, settings.push],
        settings.horizon,
        settings.dt,
        [to.control_cost(1)],
        [to.state_cost(mass.manifold, np.zeros(2), 1e4)],
    )
    return to.Task(ocp, to.constant_guess(ocp))


class Braking:
    """A mass that is braked.

    It starts with a velocity.
    """

    Settings, build = Settings, staticmethod(build)


def test_a_problem_of_a_script(tmp_path):
    to.register_problem("braking", Braking)
    try:
        (tmp_path / "soft.toml").write_text('backend = "forward_ad"\n[problem]\nname = "braking"\npush = 0.5\n')
        problem = to.load_problem(tmp_path / "soft.toml", horizon=30)
        assert (problem.ocp.horizon, problem.ocp.x0[1]) == (30, 0.5)
        assert problem.solve(report=False).status.success
        assert "braking" in to.tasks() and "A mass that is braked." in repr(to.tasks())
        assert "push: a number; default 1.0\n    initial velocity [m/s]." in to.tasks()["braking"].__doc__
        assert to.load_problem("braking", backend="forward_ad", push=2.0).ocp.x0[1] == 2.0
    finally:
        del PROBLEMS["braking"]
    with pytest.raises(TypeError, match=r"Settings, a frozen dataclass, and build\(settings, backend\)"):
        to.register_problem("empty", object())
