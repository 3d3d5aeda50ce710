"""Command line: output files, messages and exit codes."""

from __future__ import annotations

import csv
import dataclasses
import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import trajopt as to
from dynamics_backends.machine import library
from dynamics_backends.methods.analytic import Analytic, AnalyticSecondOrder
from experiments.cli import saving
from experiments.cli.main import main
from problems.robots import robot_path
from trajopt import Solution
from trajopt.comparison.compare import COLUMNS, NOTES

CONFIG = """
backend = "analytic"
[problem]
name = "arm_go_to"
robot = "double_pendulum"
frame = "tip"
goal_position = [1.2, 0.0, -1.0]
horizon = 15
dt = 0.04
guess = "quasi_static"
[problem.weights]
control = 1e-2
"""
SOLVED, FAILED, BAD_INPUT = 0, 1, 2


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "reach.toml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(*arguments) -> str:
    """Return the error stream of a run that must have exit code 2 and no traceback."""
    result = run(*arguments)
    assert result.exit_code == BAD_INPUT, result.output
    assert "Traceback" not in result.output
    return result.stderr


# -- solve --------------------------------------------------------------------------------------------------------


def test_solve_writes_solution_settings_and_pictures(config, out):
    result = run("solve", config, "--out", out)
    assert result.exit_code == SOLVED, result.output
    assert "converged" in result.output
    assert "tip ends" in result.output and "replayed on finer dynamics, with its controls held" in result.output
    pictures = {"poses.png", "positions.png", "velocities.png", "controls.png", "end_effector.png", "convergence.png"}
    assert {p.name for p in out.iterdir()} == pictures | {"solution.npz", "config.toml"}
    assert str(out) in result.output
    solution = Solution.load(out / "solution.npz")
    assert solution.status.success and solution.meta["config"]["problem"]["robot"] == "double_pendulum"
    again = run("solve", out / "config.toml", "--out", out / "again", "--set", "output.plots=false")
    assert again.exit_code == SOLVED
    assert Solution.load(out / "again" / "solution.npz").cost == solution.cost


def test_options_of_the_command_line_win(config, out):
    result = run(
        "solve", config, "--out", out, "--backend", "complex_step", "--solver", "fddp", "--verbosity", "0",
        "--set", "problem.horizon=12", "--set", "output.plots=false",
    )  # fmt: skip
    assert result.exit_code == SOLVED, result.output
    assert result.output.startswith("converged")
    solution = Solution.load(out / "solution.npz")
    assert len(solution.us) == 12
    assert solution.meta["backends"] == ["complex_step"] and solution.meta["solver"] == "fddp"


def test_warm_start_needs_fewer_iterations(config, out):
    run("solve", config, "--out", out, "--set", "output.plots=false")
    result = run(
        "solve", config, "--out", out / "warm", "--warm-start", out / "solution.npz", "--set", "output.plots=false"
    )
    assert result.exit_code == SOLVED
    assert Solution.load(out / "warm" / "solution.npz").iterations <= 1


def test_urdf_file_of_the_user(config, out, tmp_path):
    from problems.robots import robot_path

    urdf = tmp_path / "mine.urdf"
    urdf.write_text(
        robot_path("double_pendulum").read_text().replace('name="tip"', 'name="pen"').replace('"tip"', '"pen"')
    )
    assert "no frame is named 'tip'; did you mean 'tip_joint'?" in refused(
        "solve", config, "--urdf", urdf, "--out", out
    )
    result = run("solve", config, "--urdf", urdf, "--set", "problem.frame=pen", "--out", out)
    assert result.exit_code == SOLVED, result.output


def test_not_converged(config, out):
    result = run("solve", config, "--out", out, "--set", "solver.max_iterations=1", "--set", "output.plots=false")
    assert result.exit_code == FAILED
    assert "Stopped at max_iterations = 1" in result.output and "Increase max_iterations" in result.output
    assert (out / "solution.npz").exists()


def test_a_goal_out_of_reach_is_solved_as_well_as_possible(config, out):
    goal = "problem.goal_position=[5.0, 0.0, 0.0]"
    result = run("solve", config, "--out", out, "--set", goal, "--set", "output.plots=false")
    assert "warning: the goal is 3 m beyond the reach of tip" in result.stderr
    ends, _, why = result.stdout.partition(" m from its goal: ")
    assert float(ends.split()[-1]) > 1.0 and why.startswith("the goal is 3 m beyond the reach of tip")
    assert not Solution.load(out / "solution.npz").status.acceptable
    assert result.exit_code == FAILED


def test_a_goal_that_is_missed_though_within_reach_is_reported(config, out):
    """Reasons: too high a weight of torques, or too short a duration, as for the velocity limits."""
    dear = ("--set", "problem.weights.control=100.0")
    result = run("solve", config, "--out", out, "--verbosity", "0", "--set", "output.plots=false", *dear)
    assert result.exit_code == FAILED and "goal_missed: A goal is missed: tip ends" in result.stdout
    assert "holding the arm there costs" in result.stdout and "divide weights.control by 1e" in result.stdout
    short = ("--set", "problem.horizon=5", "--set", "problem.dt=0.01")
    result = run("solve", config, "--out", out, "--verbosity", "0", "--set", "output.plots=false", *short)
    assert result.exit_code == FAILED and "increase weights.terminal_goal" in result.stdout
    assert "search for another optimum with --starts 6" in result.stdout
    slow = Path(config).with_name("slow.urdf")
    text = robot_path("double_pendulum").read_text()
    limit = '<limit lower="-9" upper="9" effort="500" velocity="0.5"/>'
    slow.write_text(text.replace('type="continuous">', f'type="revolute">{limit}'))
    result = run("solve", config, "--urdf", slow, "--out", out, "--verbosity", "0", "--set", "output.plots=false")
    assert "the motion lasts 0.6 s, but at the velocity limits it needs" in result.output


def test_a_configuration_for_replan_names_that_command(config, out):
    Path(config).write_text(CONFIG + "[replan]\nduration = 0.1\n")
    result = run("solve", config, "--out", out, "--verbosity", "0", "--set", "output.plots=false")
    assert result.exit_code == SOLVED, result.output
    assert f"warning: {config} is meant for `trajopt replan`; this solves its problem once" in result.stderr


def test_interruption_before_the_first_step_saves_the_guess(config, out, monkeypatch):
    from trajopt.solvers.methods.shooting import ShootingMethod

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ShootingMethod, "solve", interrupt)
    result = run("solve", config, "--solver", "slq", "--out", out)
    assert result.exit_code == FAILED, result.output
    assert "saved only the initial guess" in result.output
    assert "best" not in result.output and "nan" not in result.output
    assert "nan" not in run("show", out / "solution.npz").output


def test_a_folder_that_cannot_be_written_is_refused_before_solving(config, out, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (f"output.directory='{file}'", f"output.directory='{file / 'deeper'}'"):
        said = refused("solve", config, "--set", folder)
        assert str(file) in said and "choose another --out" in said
    (out / "solution.npz").mkdir(parents=True)
    result = run("solve", config, "--out", out)
    assert result.exit_code == BAD_INPUT and "iter" not in result.stdout
    assert f"{out} cannot store the results (solution.npz is a folder there): choose another --out" in result.stderr
    assert [p.name for p in out.iterdir()] == ["solution.npz"]


def test_warnings_are_printed_once_before_solving(config, out):
    settings = ("problem.robot=iiwa7", "problem.frame=iiwa_link_ee", "problem.q0=[9, 0, 0, 0, 0, 0, 0]")
    options = [part for s in (*settings, "output.plots=false", "solver.max_iterations=1") for part in ("--set", s)]
    result = run("solve", config, "--out", out, *options)
    warning = "warning: x0 is outside its limits"
    assert result.output.count(warning) == 1
    assert result.output.index(warning) < result.output.index("iter")
    result = run("compare", config, "--out", out, *options)
    assert result.stderr.count(warning) == 1


def test_warm_start_from_another_robot_gives_a_warning(config, out):
    run("solve", config, "--out", out, "--set", "output.plots=false")
    saved = Solution.load(out / "solution.npz")
    model = {"name": "other", "digest": "0"}
    path = dataclasses.replace(saved, meta={**saved.meta, "model": model}).save(out / "other.npz")
    result = run("solve", config, "--out", out, "--warm-start", path, "--set", "output.plots=false")
    assert result.exit_code == SOLVED, result.output
    assert result.output.index("is for another robot, other instead of double_pendulum") < result.output.index("iter")


@pytest.mark.filterwarnings("default")
def test_warnings_of_modules_become_lines(config, out, monkeypatch):
    from experiments.cli import main as cli

    def drawer(task, settings):
        for _ in range(2):
            warnings.warn("no cache", UserWarning, stacklevel=1)

    monkeypatch.setattr(cli, "drawer_for", drawer)
    result = run("solve", config, "--out", out, "--set", "output.plots=false")
    assert result.stderr == "warning: no cache\n"


def test_a_broken_pipe_ends_quietly(config, monkeypatch):
    from experiments.cli import main as cli

    def broken(*_):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "problem_of", broken)
    result = run("validate", config)
    assert result.exit_code == FAILED and result.output == ""


def test_interruption_saves_the_best_iterate(config, out, monkeypatch):
    from trajopt import ConsoleTable

    def interrupt(self, record):
        if record.iteration == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(ConsoleTable, "__call__", interrupt)
    result = run("solve", config, "--out", out)
    assert result.exit_code == FAILED
    assert "saved the best iterate" in result.output
    assert Solution.load(out / "solution.npz").status.code == "interrupted"


def test_a_solve_is_saved_if_its_output_pipe_is_closed(config, out, monkeypatch):
    from trajopt import ConsoleTable

    def broken(self, record):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(ConsoleTable, "__call__", broken)
    assert run("solve", config, "--out", out, "--set", "output.plots=false").exit_code == SOLVED
    assert Solution.load(out / "solution.npz").status.success


def test_ctrl_c_after_a_solve_keeps_the_solution(config, out, monkeypatch):
    from experiments.cli import main as cli

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "print_report", interrupted)
    result = run("solve", config, "--out", out)
    assert result.exit_code == FAILED and f"interrupted after the solution was saved in {out}" in result.stderr
    assert Solution.load(out / "solution.npz").status.success


def test_interrupted_starts_save_the_best_finished_one(config, out, monkeypatch):
    import trajopt

    solve_all = trajopt.multi_start

    def interrupted(*given, **more):
        found = solve_all(*given, **more)
        ended, *others = found.solutions.status
        status = (ended, *(dataclasses.replace(s, code=trajopt.StatusCode.INTERRUPTED) for s in others))
        return dataclasses.replace(found, solutions=dataclasses.replace(found.solutions, status=status))

    monkeypatch.setattr(trajopt, "multi_start", interrupted)
    result = run("solve", config, "--out", out, "--starts", "3", "--set", "output.plots=false")
    assert ": 2 interrupted, 1 converged\n" in result.output
    assert "Interrupted: 2 starts unfinished; saved the best finished one." in result.output
    assert Solution.load(out / "solution.npz").status.success and result.exit_code == FAILED


def test_interrupted_starts_without_a_finished_one_save_nothing(config, out, monkeypatch):
    import trajopt

    solve_all = trajopt.multi_start

    def interrupted(*given, **more):
        found = solve_all(*given, **more).solutions
        status = tuple(dataclasses.replace(s, code=trajopt.StatusCode.INTERRUPTED) for s in found.status)
        return trajopt.MultiStart((), dataclasses.replace(found, status=status, cost=np.full(len(status), np.nan)))

    monkeypatch.setattr(trajopt, "multi_start", interrupted)
    result = run("solve", config, "--out", out, "--starts", "3")
    assert result.exit_code == FAILED and "nothing to save" in result.stderr and not (out / "solution.npz").exists()


def test_a_motion_through_its_obstacle_is_no_success(config, out, monkeypatch):
    from problems.arms import arm_go_to
    from trajopt.config.task import Nearness

    monkeypatch.setattr(arm_go_to, "_nearness", lambda *_: Nearness(warnings=("elbow is 20 mm inside the obstacle",)))
    result = run("solve", config, "--out", out, "--set", "output.plots=false")
    assert result.exit_code == FAILED
    assert "A goal is missed: elbow is 20 mm inside the obstacle" in result.stdout
    assert Solution.load(out / "solution.npz").status.code == "goal_missed"


def test_a_plan_that_diverges_in_the_replay_is_reported(config, out, monkeypatch):
    """One replay close to the plan, open loop or with gains, is sufficient."""
    from trajopt.solvers import solution_checks
    from trajopt.validation.replay import Deviation, Replay

    def deviation(plan, ratio):
        return Deviation("by a test", plan.xs, plan.times, ratio, ratio, 1.0, "rad", "q[elbow]", 3)

    for ratios, code in (
        ((np.inf, np.inf), "does_not_hold"),
        ((0.5, np.inf), "converged"),
        ((np.inf, 0.5), "converged"),
        ((0.5,), "converged"),
    ):

        def replayed(ocp, options, plan, holds, ratios=ratios):
            runs = [deviation(plan, ratio) for ratio in ratios]
            return Replay(tuple(runs[: next((i for i, run in enumerate(runs, 1) if holds(run)), len(runs))]))

        monkeypatch.setattr(solution_checks, "replay_of", replayed)
        result = run("solve", config, "--out", out, "--set", "output.plots=false")
        assert result.stdout.count(f"\n{code}: ") == 1, result.output
        assert (result.exit_code == FAILED) == (code == "does_not_hold") == ("make it slower" in result.stdout)


def test_a_start_beyond_its_limits_is_not_advised_a_setting_that_cannot_hold(config, out):
    settings = ("problem.robot=iiwa7", "problem.frame=iiwa_link_ee", "problem.q0=[9, 0, 0, 0, 0, 0, 0]")
    settings += ("output.plots=false", "problem.goal_position=[0.4, 0.2, 0.7]", "problem.horizon=30")
    result = run("solve", config, "--out", out, *[part for s in settings for part in ("--set", s)])
    assert "the initial state already violates it: start within the limit" in result.stderr
    assert "position_limits = true enforces it" not in result.output


def test_sigterm_saves_the_iterate_like_ctrl_c(config, out, monkeypatch):
    from trajopt import ConsoleTable

    def terminated(self, record):
        if record.iteration == 1:
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(ConsoleTable, "__call__", terminated)
    result = run("solve", config, "--out", out)
    assert result.exit_code == FAILED
    assert "saved the best iterate" in result.output
    assert Solution.load(out / "solution.npz").status.code == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_interrupted_step_is_named(config, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("trajopt.config.config.load_config", stopped)
    result = run("solve", config)
    assert (result.exit_code, result.stderr) == (
        FAILED,
        "interrupted while the configuration was read; nothing to save\n",
    )
    result = run("validate", config)
    assert (result.exit_code, result.stderr) == (FAILED, "interrupted: `trajopt validate` did not finish\n")


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("solver.max_iteration=5", "solver.max_iteration: unknown key; did you mean max_iterations?"),
        ("problem.frame=tipp", "did you mean 'tip'"),
        ("problem.locked_joints=['elbo']", "did you mean 'elbow'"),
        ("problem.q0={shoulde = 1.0}", "did you mean 'shoulder'"),
        ("problem.q0=[nan, 0.0]", "q0 is nan at shoulder"),
        ("problem.robot=double_pendulun", "did you mean 'double_pendulum'"),
        ("problem.robot=no/such.urdf", f"there is no URDF file '{Path('no/such.urdf').absolute()}'"),
        ("backend.name=analitic", "did you mean 'analytic'?"),
        ("problem", "expected key=value"),
    ],
)
def test_bad_settings_end_with_a_sentence(config, out, setting, said):
    for command in ("solve", "validate", "check"):
        options = ("--out", out) if command == "solve" else ()
        assert said in refused(command, config, "--set", setting, *options)
    assert not out.exists()


def test_missing_and_foreign_files(config, tmp_path):
    said = refused("solve", tmp_path / "raech.toml")
    assert said == f"error: config file {tmp_path / 'raech.toml'} does not exist; did you mean {config}?\n"
    foreign = tmp_path / "foreign.npz"
    foreign.write_bytes(b"nothing")
    assert "is not a trajopt solution file" in refused("show", foreign)
    said = refused("solve", config, "--warm-start", foreign)
    assert "is not a trajopt solution file; " in said and "pickle" not in said


def test_bundled_files_are_found_by_their_names_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("double_pendulum_swing_up", "double_pendulum_swing_up.toml"):
        result = run("validate", name)
        assert result.exit_code == SOLVED, result.output
    said = refused("validate", "problems/configs/double_pendulum_swing_up.toml")
    assert "did you mean double_pendulum_swing_up, a bundled configuration?" in said
    assert "`trajopt keys` lists the bundled configurations" in refused("validate", "qqqqqqqq")
    Path("double_pendulum_swing_up").write_text("nonsense")  # an existing file has priority
    assert "not valid TOML" in refused("validate", "double_pendulum_swing_up")


def test_keys_are_listed_with_type_default_unit_and_meaning():
    listed = run("keys").output
    for name in ("arm_go_to", "fddp", "replan", "ur5_reach"):
        assert f" {name}" in listed
    output = run("keys", "arm_go_to").output.splitlines()
    assert output[:2] == ["[problem]", 'name = "arm_go_to"'] and "[problem.weights]" in output
    at = output.index("dt: default 0.01; a number")
    assert output[at + 1] == "    length of a time step [s]."
    assert "goal_position: optional; a list of 3 numbers" in output
    assert 'name = "gnms"' in run("keys", "gnms").output and "max_iterations: default" in run("keys", "gnms").output
    assert "did you mean 'arm_go_to'" in refused("keys", "arm_go_too")
    assert output[-1] == "keys for free durations, unless the keys above set them: `trajopt keys time`"


def test_keys_of_a_file_without_a_problem_name_are_refused(tmp_path):
    file = tmp_path / "own.toml"
    for text in ("[solver]\nname = 'ipm'\n", "problem = 1\n", "[problem]\n"):
        file.write_text(text)
        assert "a table [problem] with a name is needed, one of arm_go_to" in refused("keys", str(file))


def test_keys_of_a_configuration_are_those_of_its_problem(config):
    expected = run("keys", "arm_go_to").output
    assert run("keys", "ur5_reach").output == run("keys", config).output == expected
    assert "config file nothing.toml does not exist" in refused("keys", "nothing.toml")


def test_debug_shows_the_traceback(config):
    result = run("solve", config, "--set", "problem.frame=tipp", "--debug")
    assert isinstance(result.exception, KeyError)


def test_a_missing_c_library_is_one_message(config, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "library_file", lambda name: tmp_path / "kernels.so")
    monkeypatch.setattr(library, "_by_ctypes", library._by_ctypes.__wrapped__)
    result = run("solve", config)
    assert result.exit_code == BAD_INPUT and "make kernels" in result.output and "Traceback" not in result.output


# -- other commands -------------------------------------------------------------------------------------------


def test_validate(config):
    result = run("validate", config)
    assert result.exit_code == SOLVED
    assert "15 knots" in result.output and "no errors" in result.output


def test_validate_counts_its_warnings():
    result = run("validate", "ur5_reach", "--set", "problem.goal_position=[3.0, 0.0, 0.5]")
    assert result.exit_code == SOLVED
    count = sum(line.startswith("warning: ") for line in result.output.splitlines())
    assert count and f"no errors, {count} warning" in result.output


def test_check_passes(config):
    result = run("check", config, "--points", "3")
    assert result.exit_code == SOLVED, result.output
    assert "within their tolerances" in result.output


def test_check_names_a_wrong_derivative(config, monkeypatch):
    right = Analytic.jacobians

    def wrong(self, *arguments):
        found = right(self, *arguments)
        found.fx[:, 3, 0] *= 1.1
        return found

    monkeypatch.setattr(Analytic, "jacobians", wrong)
    result = run("check", config)
    assert result.exit_code == FAILED
    assert "worst: d(vdot[elbow]) / d(q[shoulder]), relative error" in result.output
    assert "(analytic against complex_step, dynamics)" in result.output


def test_check_names_a_wrong_second_derivative(config, monkeypatch):
    right = AnalyticSecondOrder.hessian_contraction

    def wrong(self, *arguments):
        first, second = right(self, *arguments)
        second.xx[:, 1, 1] *= 1.1
        return first, second

    monkeypatch.setattr(AnalyticSecondOrder, "hessian_contraction", wrong)
    result = run("check", config, "--points", "2")
    assert result.exit_code == FAILED
    assert "worst: d2 / d(q[elbow]) along a direction, relative error" in result.output
    assert "(analytic against complex_step" in result.output


def compared(out):
    """The rows of the CSV file of a comparison."""
    with (out / "comparison.csv").open() as file:
        return list(csv.DictReader(file))


def test_compare(config, out):
    arguments = ("--backends", "analytic, complex_step", "--solvers", "slq,ilqr", "--out", out)
    result = run("compare", config, *arguments)
    assert result.exit_code == SOLVED, result.output
    rows = compared(out)
    assert tuple(rows[0]) == (*COLUMNS, NOTES)
    assert [(r["solver"], r["backend"]) for r in rows] == [
        ("slq", "analytic"), ("slq", "complex_step"), ("ilqr", "analytic"), ("ilqr", "complex_step"),
    ]  # fmt: skip
    assert [(r["hessian"], r["engine"], r[NOTES]) for r in rows] == 4 * [("gauss_newton", rows[0]["engine"], "")]
    assert {r["integrator"] for r in rows} == {"rk4"}
    assert all(float(r["derivative_error"]) < 1e-12 for r in rows)
    for r in rows:
        parts = [float(r[f"time_{phase}"]) for phase in ("derivatives", "backward", "rollout", "other")]
        assert min(parts) > 0.0
        np.testing.assert_allclose(sum(parts), float(r["time_total"]))
    assert {r["status"] for r in rows} == {"converged"}
    costs = np.array([float(r["final_cost"]) for r in rows])
    assert np.ptp(costs) < 1e-8 * costs[0]
    assert "| row | problem | backend |" in result.output
    assert (out / "comparison.png").exists() and (out / "comparison.md").exists()


def test_compare_hessians(config, out):
    """Each solver uses the Hessians that it supports; options of one solver do not affect another."""
    arguments = (
        "--solvers",
        "slq,sqp",
        "--hessians",
        "gauss_newton,scqp",
        "--out",
        out,
        "--set",
        "solver={name='slq', accept_ratio=0.2}",
    )
    result = run("compare", config, *arguments)
    assert result.exit_code == FAILED, result.output  # one of the combinations cannot run
    rows = compared(out)
    assert [(r["solver"], r["hessian"], r["status"]) for r in rows] == [
        ("slq", "gauss_newton", "converged"), ("slq", "scqp", "not possible"), ("sqp", "gauss_newton", "converged"),
        ("sqp", "scqp", "converged"),
    ]  # fmt: skip
    impossible = rows.pop(1)
    assert (impossible["status"], impossible[NOTES]) == ("not possible", "solver = 'slq' has no hessian = 'scqp'")
    costs = np.array([float(r["final_cost"]) for r in rows])
    assert np.ptp(costs) < 1e-6 * costs[0]
    assert max(float(r["violation"]) for r in rows) < 1e-6
    assert "none of the solvers (auto) has hessian = 'scqp'" in refused(
        "compare", config, "--hessians", "scqp", "--out", out
    )


def test_compare_reports_a_backend_without_second_derivatives(config, out):
    """SQP with ``auto`` then uses another Hessian, DDP cannot run, and ``exact`` uses second derivatives of the system."""
    result = run("compare", config, "--solvers", "sqp,ddp", "--backends", "analytic,forward_difference", "--out", out)
    assert result.exit_code == FAILED, result.output
    rows = compared(out)
    assert [(r["solver"], r["backend"], r["hessian"], r["status"]) for r in rows] == [
        ("sqp", "analytic", "exact", "converged"),
        ("sqp", "forward_difference", "scqp", "converged"),
        ("ddp", "analytic", "exact", "converged"),
        ("ddp", "forward_difference", "exact", "not possible"),
    ]
    lacking = "the backend forward_difference has no second derivatives; choose backend = "
    assert rows[1][NOTES].startswith("sqp ran with hessian scqp: ")
    assert lacking in rows[1][NOTES] and lacking in rows[3][NOTES]
    assert "- row 2: sqp ran with hessian scqp: " in result.output
    arguments = ("--solvers", "sqp", "--hessians", "exact", "--backends", "analytic,forward_difference", "--out", out)
    assert run("compare", config, *arguments).exit_code == SOLVED
    first, second = compared(out)
    assert first["iterations"] == second["iterations"]
    assert second[NOTES].startswith("second derivatives come from the source of the dynamics, not from the backend: ")


def test_compare_reports_the_error_of_differences(config, out):
    run("compare", config, "--backends", "forward_difference,central_difference", "--solvers", "slq", "--out", out)
    forward, central = (float(r["derivative_error"]) for r in compared(out))
    assert 1e-10 < forward < 1e-6 and central < 0.1 * forward


def test_compare_writes_finished_rows_before_it_raises_a_defect(config, out, monkeypatch):
    from trajopt.config import variants as comparison

    solve = comparison.solve_task

    def broken(settings, task):
        if settings.backend.name == "complex_step":
            raise IndexError("a defect")
        return solve(settings, task)

    monkeypatch.setattr(comparison, "solve_task", broken)
    result = run("compare", config, "--backends", "analytic,complex_step,forward_ad", "--out", out)
    assert isinstance(result.exception, IndexError)
    rows = compared(out)
    assert [r["status"] for r in rows] == ["converged", "error", "converged"]
    assert rows[1][NOTES] == "IndexError: a defect"
    assert "- row 2: IndexError: a defect\n" in result.output


def test_compare_writes_finished_rows_after_ctrl_c_between_two_runs(config, out, monkeypatch):
    from experiments.cli import main as commands

    items = commands._with_progress

    def interrupted(runs, total):
        yield next(iter(items(runs, total)))
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_with_progress", interrupted)
    result = run("compare", config, "--backends", "analytic,complex_step", "--out", out)
    assert result.exit_code == FAILED
    assert "Interrupted: 1 of 2 runs finished" in result.output
    assert [r["backend"] for r in compared(out)] == ["analytic"]


def test_compare_keeps_the_finished_runs_after_an_interruption(config, out, monkeypatch):
    from trajopt import StatusCode
    from trajopt.config import variants as comparison

    solve, solved = comparison.solve_task, []

    def interrupted_the_second_time(*arguments):
        solved.append(solve(*arguments))
        status = dataclasses.replace(solved[-1].status, code=StatusCode.INTERRUPTED)
        return solved[-1] if len(solved) == 1 else dataclasses.replace(solved[-1], status=status)

    monkeypatch.setattr(comparison, "solve_task", interrupted_the_second_time)
    result = run("compare", config, "--backends", "analytic,complex_step,forward_ad", "--out", out)
    assert result.exit_code == FAILED
    assert len(solved) == 2
    assert "Interrupted: 1 of 3 runs finished" in result.output
    with (out / "comparison.csv").open() as file:
        assert [r["backend"] for r in csv.DictReader(file)] == ["analytic"]
    assert (out / "comparison.png").exists() and (out / "comparison.md").exists()


def test_compare_refuses_unknown_names(config, out):
    said = refused("compare", config, "--backends", "analytic,complexstep", "--out", out)
    assert "backend: expected one of " in said and "did you mean 'complex_step'?" in said
    assert "did you mean 'fddp'?" in refused("compare", config, "--solvers", "fdp", "--out", out)


def test_robots():
    result = run("robots")
    assert result.exit_code == SOLVED
    assert "irb4600" in result.output and "415.00" in result.output and "floating" in result.output


def test_show_takes_the_names_of_robots():
    result = run("show", "irb4600")
    assert result.exit_code == SOLVED
    assert "'irb4600x' is neither a file nor a known robot" in refused("show", "irb4600x")


def test_show_of_a_folder_names_its_solution(tmp_path):
    assert f"'{tmp_path}' is a folder; give a file in it, as '{tmp_path / 'solution.npz'}'" in refused("show", tmp_path)


def test_show_describes_a_robot_without_joints(tmp_path):
    mass = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    (tmp_path / "drone.urdf").write_text(f'<robot name="drone"><link name="body">{mass}</link></robot>')
    result = run("show", tmp_path / "drone.urdf")
    assert result.output.startswith("drone: 0 bodies") and "--base floating" in result.output
    assert run("show", tmp_path / "drone.urdf", "--base", "floating").output.startswith("drone: 1 bod")


def test_show_prints_limits_and_the_frames_of_a_robot():
    """Joints with the frame of their link are not listed."""
    lines = run("show", "erd:ur5").output.splitlines()
    titles = next(line.split() for line in lines if line.startswith("body"))
    elbow = next(line.split() for line in lines if " elbow_joint " in line)
    assert titles[-2:] == ["velocity", "effort"] and elbow[-2:] == ["3.15", "150"]
    start = next(i for i, line in enumerate(lines) if line.startswith("frame "))
    rows = {line.split()[0]: line.split()[1:] for line in lines[start:]}
    model = to.load_robot("erd:ur5")
    R, p = to.frame_placement(model, model.neutral(), "tool0")
    assert rows["tool0"][:2] == ["link", "wrist_3_link"]
    np.testing.assert_allclose(np.array(rows["tool0"][2:5], float), p, atol=1e-4)
    np.testing.assert_allclose(to.rpy_matrix(np.array(rows["tool0"][5:], float)), R, atol=1e-3)
    assert "elbow_joint" not in rows


def test_validate_lists_the_constraints():
    output = run("validate", "ur5_obstacle").output
    lines = [line.split() for line in output.splitlines()]
    assert ["constraint", "kind", "knots", "size"] in lines
    assert ["control", "bounds", "bounds", "0", "to", "19", "6"] in lines
    assert ["obstacle", "inequality", "1", "to", "20", "10"] in lines
    assert ["goal", "equality", "20", "12"] in lines
    assert "no constraints" in run("validate", "hyq_trot_rigid").output


def test_show_draws_the_shapes_of_a_robot(tmp_path):
    """Visual meshes, collision shapes and capsules, side by side."""
    from PIL import Image

    result = run("show", "irb4600", "--geometry", "--plot", tmp_path)
    assert result.exit_code == SOLVED and "irb4600_geometry.png" in result.output
    (picture,) = tmp_path.iterdir()
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L"), float)
    thirds = np.array_split(pixels, 3, axis=1)
    assert all((third[40:] < 200.0).mean() > 0.02 for third in thirds)  # a robot in each
    assert "add --plot FOLDER" in refused("show", "irb4600", "--geometry")
    assert "applies to robots" in refused("show", picture, "--geometry")
    assert "applies to robots" in refused("show", picture, "--base", "floating")


def test_shapes_are_drawn_for_any_robot_name(tmp_path):
    urdf, folder = tmp_path / "arm.urdf", tmp_path / "drawn"
    inertial = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    joint = '<joint name="turn" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>'
    text = f'<robot name="lab/arm 2"><link name="base"/><link name="arm">{inertial}</link>{joint}</robot>'
    urdf.write_text(text)
    assert "lab/arm 2 has no shapes" in refused("show", urdf, "--geometry", "--plot", folder)
    ball = '<visual><geometry><sphere radius="0.1"/></geometry></visual>'
    urdf.write_text(text.replace("</inertial>", f"</inertial>{ball}{ball.replace('visual', 'collision')}"))
    result = run("show", urdf, "--geometry", "--plot", folder, "--animate")
    assert result.exit_code == SOLVED, result.output
    assert [path.name for path in folder.iterdir()] == ["lab_arm_2_geometry.png"]
    assert "--animate applies to solutions" in result.output


def test_ctrl_c_before_the_first_iteration_reports_that_nothing_is_saved(config, out, monkeypatch):
    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("trajopt.config.load.build_task", stopped)
    result = run("solve", config, "--out", out)
    assert result.exit_code == FAILED
    assert result.stderr.strip() == "interrupted while the problem was set up; nothing to save"


def test_a_long_setup_prints_a_line(config, monkeypatch):
    from experiments.cli import cli_support
    from trajopt.config import load

    printed, make = threading.Event(), load.build_task
    echo = cli_support.click.echo
    monkeypatch.setattr(cli_support, "SLOW", 0.0)
    monkeypatch.setattr(cli_support.click, "echo", lambda *text, **o: (echo(*text, **o), printed.set()))
    monkeypatch.setattr(load, "build_task", lambda settings: printed.wait(10.0) and make(settings))
    assert "setting up the problem" in run("validate", config).stderr


def test_show_and_draw_again(config, out):
    output = run("solve", config, "--out", out, "--set", "output.plots=false").output
    result = run("show", out / "solution.npz", "--plot", out / "pictures")
    assert result.exit_code == SOLVED, result.output
    end = next(line for line in output.splitlines() if "from its goal" in line)
    assert end in result.output and end in run("show", out / "solution.npz").output
    assert "double_pendulum" in result.output and "converged" in result.output
    assert (out / "pictures" / "end_effector.png").exists()


def test_pictures_are_drawn_in_the_background_at_a_terminal_but_not_in_a_notebook(config, out, monkeypatch):
    in_background, at_once = [], []
    monkeypatch.setattr(saving, "_draw_in_background", in_background.append)
    monkeypatch.setattr("experiments.plots.drawer.start_drawer", lambda task: None)  # it looks plot_solution up by name
    monkeypatch.setattr("experiments.plots.plotting.plot_solution", lambda *_: at_once.append(1) or [])
    monkeypatch.setattr(saving, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.delenv(saving.NOTEBOOK, raising=False)
    run("solve", config, "--out", out)
    assert (len(in_background), len(at_once)) == (1, 0)
    monkeypatch.setenv(saving.NOTEBOOK, "1")
    run("solve", config, "--out", out)
    assert (len(in_background), len(at_once)) == (1, 1)


def test_pictures_are_drawn_by_the_plotting_process(config, out, monkeypatch):
    """The process draws the same plots; if it fails, the parent process draws them."""
    here = []
    draw = saving._draw_in_process
    monkeypatch.setattr(saving, "_draw_in_process", lambda *given: here.append(1) or draw(*given))
    first = run("solve", config, "--out", out)
    drawn = {path.name: path.read_bytes() for path in out.glob("*.png")}
    assert first.exit_code == SOLVED and drawn and not here
    monkeypatch.setattr("experiments.plots.drawer.Solution", None)
    second = run("solve", config, "--out", out)
    assert second.exit_code == SOLVED and here == [1]
    assert {path.name: path.read_bytes() for path in out.glob("*.png")}.keys() == drawn.keys()
    assert (out / "poses.png").read_bytes() == drawn["poses.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
def test_the_plotting_process_ends_silently(config, out):
    """The process inherits neither the SIGTERM handler that saves nor the exit of a rejected command."""
    refused = ["--warm-start", str(out.parent / "nothing.npz")]
    for more, code in (([], SOLVED), (refused, 2)):
        command = [
            sys.executable,
            "-m",
            "experiments.cli.main",
            "solve",
            str(config),
            "--out",
            str(out),
            "--verbosity",
            "0",
        ]
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        assert done.returncode == code and "Traceback" not in done.stderr and "Process" not in done.stderr


def test_show_a_solution_without_settings(tmp_path):
    from dynamics_backends.protocol import FunctionMap
    from dynamics_backends.registry import make_backend
    from trajopt import OCP, SampledSystem, control_cost, solve, state_cost

    system = FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    dynamics = SampledSystem(make_backend(system, "forward_ad", engine="numpy"))
    terminal = [state_cost(system.manifold, [1.0, 0.0], 10.0)]
    ocp = OCP.single_phase(dynamics, [0.0, 0.0], 10, 0.1, [control_cost(1)], terminal)
    solution = solve(ocp)
    stretched = dataclasses.replace(solution, times=0.345 * solution.times)
    assert "10 knots, 0.345 s" in run("show", stretched.save(tmp_path / "stretched.npz")).output
    path = solution.save(tmp_path / "solution.npz")
    result = run("show", path, "--plot", tmp_path / "pictures")
    assert "10 knots, 1 s" in result.output
    assert result.exit_code == SOLVED, result.output
    assert "no settings" in result.stderr
    assert {p.name for p in (tmp_path / "pictures").iterdir()} == {"states.png", "controls.png", "convergence.png"}


def test_version():
    result = run("--version")
    assert result.exit_code == SOLVED
    assert result.output.strip() == f"trajopt {to.__version__}"


@pytest.mark.parametrize("name", ["ur5_reach", "hyq_trot_rigid"])
def test_robots_are_solved_without_a_compiler(name, tmp_path):
    """A free robot and one in contact, with an empty cache."""
    command = [sys.executable, "-c", "from experiments.cli.main import main; main()", "solve", name]
    command += ["--set", "output.plots=false", "--out", str(tmp_path / "out")]
    folders = {"TRAJOPT_CACHE_DIR": str(tmp_path / "cache")}
    environment = {**os.environ, **folders, "CC": "/nonexistent/cc", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "NumPy" not in done.stderr and "\nconverged: " in done.stdout
