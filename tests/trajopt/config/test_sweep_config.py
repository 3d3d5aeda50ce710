"""Studies of configurations: rows equal results of `trajopt solve`; the command, its table and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.cli.main import main
from experiments.plots.sweep_plots import places
from experiments.sweep.run import FromConfig, with_variations
from trajopt import Sweep
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import ConfigError, load_config, read_config
from trajopt.config.variants import with_solver
from trajopt.solvers.batch.solve_batch import solve_batch
from trajopt.sweeps import rows

pytest.importorskip("zarr")

CONFIG = """
[problem]
name = "arm_go_to"
robot = "double_pendulum"
goal_q = [0.4, -0.2]
horizon = 8
dt = 0.05
[solver]
name = "slq"
max_iterations = 30
[sweep]
n = 4
seed = 2
vary.problem.goal_q = "uniform([-0.5, -0.5], [0.5, 0.5])"
"""
SOLVED, FAILED, BAD_INPUT = 0, 1, 2
CROSSED = "solver.name=each(slq, ddp)"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "reach.toml"
    path.write_text(CONFIG)
    return path


def run(config, out, *arguments):
    return CliRunner().invoke(main, ["sweep", str(config), "--out", str(out), "--workers", "0", *map(str, arguments)])


def test_rows_equal_solves(config, tmp_path):
    out = tmp_path / "out"
    result = run(config, out, "--vary", CROSSED)
    assert result.exit_code == SOLVED, result.output
    assert "4 of 4 rows solved" in result.output
    assert {p.name for p in out.iterdir()} >= {"sweep.zarr", "config.toml", "sweep.png"}
    found = Sweep(out)
    goals, solvers = found.values("problem.goal_q"), list(found.values("solver.name"))
    assert solvers == ["slq", "ddp"] * 2 and (goals[0] == goals[1]).all() and (goals[1] != goals[2]).any()
    assert found.study["seed"] == 2 and found.study["problem"]["solver"]["max_iterations"] == 30
    settings = with_solver(load_config(config, [f"problem.goal_q={goals[3].tolist()}"]), "ddp")
    single = solve_task(settings, build_task(settings))
    np.testing.assert_array_equal(found.trajectories().xs[3], single.xs)
    assert found.group["cost"][3] == single.cost


def test_a_row_that_misses_its_goal_is_no_success(config, tmp_path):
    """A missed goal is a failure in a study, as for `trajopt solve`."""
    loose = "problem.weights.terminal_goal=1e-6"
    result = run(config, tmp_path / "out", "--set", loose, "--set", "output.plots=false")
    assert "0 of 4 rows solved" in result.output
    table = Sweep(tmp_path / "out").scalars()
    assert set(table["status"]) == {"goal_missed"} and not table["success"].any()
    assert all("from its goal" in reason for reason in table["reason"])


def test_rows_of_one_structure_are_solved_together_and_each_is_the_single_solve(config, tmp_path, monkeypatch):
    """Rows are solved in lanes; the result of a row does not depend on the other rows."""
    sizes = []
    monkeypatch.setattr(
        rows, "solve_batch", lambda ocps, *a, **k: (sizes.append(len(ocps)), solve_batch(ocps, *a, **k))[1]
    )
    settings = ("--set", "engine=compiled", "--set", "output.plots=false", "--n", 3)
    assert run(config, tmp_path / "together", *settings).exit_code == SOLVED
    assert sizes == [3]
    assert run(config, tmp_path / "alone", *settings, "--shard", 1).exit_code == SOLVED
    together, alone = (Sweep(tmp_path / name) for name in ("together", "alone"))
    np.testing.assert_allclose(together.trajectories().xs, alone.trajectories().xs, rtol=1e-9, atol=1e-9)
    goal = together.values("problem.goal_q")[2].tolist()
    single = load_config(config, ["engine=compiled", f"problem.goal_q={goal}"])
    solution = solve_task(single, build_task(single))
    np.testing.assert_allclose(together.trajectories().us[2], solution.us, rtol=1e-9, atol=1e-9)
    assert together.group["solve_time"][:].min() > 0


def test_a_study_without_solved_rows_fails(config, tmp_path):
    result = run(config, tmp_path / "out", "--n", 2, "--set", "solver.max_iterations=0", "--set", "output.plots=false")
    assert result.exit_code == FAILED and "0 of 2 rows solved" in result.output
    assert "written to" in result.output and len(Sweep(tmp_path / "out").scalars()) == 2


def test_the_command_line_adds_to_the_table_and_a_saved_config_repeats_it(config, tmp_path):
    settings = with_variations(load_config(config), vary={"problem.dt": "0.05, 0.1"}, n=2, seed=None)
    assert settings.sweep.n == 2 and settings.sweep.seed == 2
    assert list(settings.sweep.vary) == ["problem.goal_q", "problem.dt"]
    assert read_config(settings.as_dict()).sweep == settings.sweep
    first = run(config, tmp_path / "a", "--n", 2, "--set", "output.plots=false")
    repeated = run(config, tmp_path / "a", "--n", 2, "--set", "output.plots=false")
    assert "already solved" not in first.output
    assert "all 2 rows were already solved" in repeated.output
    again = run(tmp_path / "a" / "config.toml", tmp_path / "b")
    assert first.exit_code == again.exit_code == SOLVED
    found = [Sweep(tmp_path / name).trajectories().xs for name in "ab"]
    np.testing.assert_array_equal(*found)


def test_fewer_requested_rows_delete_none(config, tmp_path):
    out, plain = tmp_path / "out", ("--set", "output.plots=false")
    assert run(config, out, *plain).exit_code == SOLVED
    result = run(config, out, "--n", 2, *plain)
    assert result.exit_code == SOLVED and "4 of 4 rows solved" in result.output
    assert "all 2 rows were already solved\nthe dataset has 4 rows; --n 2 does not remove any" in result.output
    assert load_config(out / "config.toml").sweep.n == Sweep(out).n == 4
    group = Sweep(out).group
    import zarr

    zarr.open_group(group.store.root, mode="r+")["mark"][1:] = 0
    result = run(config, out, "--n", 2, *plain)
    assert "1 rows were already solved, 1 now" in result.output
    assert (
        "does not remove any, 2 of them not solved yet: use --n 4" in result.output
        and "2 of 2 rows solved" in result.output
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vary", "problem.gaol_q=uniform(0, 1)"], "problem.gaol_q: unknown key; did you mean goal_q?"),
        (["--vary", "problem.dt=unifrom(0, 1)"], "did you mean 'uniform'"),
        (["--vary", "problem.dt=uniform(2, 1)"], "lower end first"),
        (["--vary", "problem.dt=uniform(0.005"], "the bracket is not closed"),
        (["--vary", "problem.dt=0.1,0.2", "--vary", "problem.dt=0.3"], "--vary problem.dt is given twice"),
        (["--vary", "problem.dt"], "expected KEY=HOW"),
        (["--scheduler", "tcp://127.0.0.1:1"], "remove one of the two options"),
        (["--set", "sweep.vary.problem.dt=uniform(1)"], "sweep.vary.problem.dt: "),
        (["--set", "sweep.m=3"], "sweep.m: unknown key"),
        (
            ["--vary", "sweep.n=1,2"],
            "sweep.vary.sweep.n: does not change the rows of a study: vary keys of problem, solver or backend",
        ),
        (["--vary", "output.directory=a,b"], "sweep.vary.output.directory: does not change the rows of a study"),
        (["--set", "sweep.vary.replan.rate=[1, 2]"], "sweep.vary.replan.rate: does not change the rows of a study"),
        (["--vary", "probelm.dt=0.1,0.2"], "probelm: unknown key; did you mean problem?"),
        (["--vary", "engine=numpy,compiled"], "vary backend.engine instead"),
        (["--vary", "solver.name=slq,dpp"], "sweep.vary.solver.name: expected one of"),
        (["--vary", "solver.name=slq,dpp"], "(did you mean 'ddp'?), got 'dpp'"),
        (["--vary", "backend=each(analitic)"], "(did you mean 'analytic'?), got 'analitic'"),
        (["--vary", "problem.name=arm_goto"], "(did you mean 'arm_go_to'?), got 'arm_goto'"),
        (["--vary", "solver.name=integers(1, 2)"], "integers(1, 2) samples numbers, not names"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(config, tmp_path, arguments, message):
    result = run(config, tmp_path / "out", *arguments)
    assert result.exit_code == BAD_INPUT and message in result.stderr and "Traceback" not in result.output


def test_the_folder_of_a_solve_is_refused(config, tmp_path):
    (tmp_path / "solution.npz").write_bytes(b"")
    result = run(config, tmp_path)
    assert result.exit_code == BAD_INPUT and "would overwrite its config.toml" in result.stderr


@pytest.mark.parametrize(
    ("film", "message"), [("x.avi", ".gif or .mp4"), ("reach.toml/x.gif", "choose another --video")]
)
def test_an_unwritable_video_is_refused_before_the_solve(config, tmp_path, film, message):
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["solve", str(config), "--out", str(out), "--video", str(tmp_path / film)])
    assert result.exit_code == BAD_INPUT and message in result.stderr and not (out / "solution.npz").exists()


def test_a_study_without_variations_is_refused(config):
    values = load_config(config).as_dict()
    del values["sweep"]
    with pytest.raises(ConfigError, match="no key is varied; use --vary"):
        with_variations(read_config(values))


def test_another_config_cannot_resume_in_the_same_folder(config, tmp_path):
    assert run(config, tmp_path / "out", "--n", 1).exit_code == SOLVED
    result = run(config, tmp_path / "out", "--n", 1, "--set", "problem.dt=0.06")
    assert result.exit_code == BAD_INPUT and "differs in problem.dt: choose another folder" in result.stderr


def test_an_interrupted_study_names_the_command_that_resumes_it(config, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.sweep.run.sweep", interrupted)
    result = run(config, tmp_path / "out")
    assert result.exit_code == FAILED and "run the same command to resume" in result.output


def test_a_user_defined_robot_is_identified_by_its_content(config, tmp_path):
    from problems.robots import robot_path

    urdf = tmp_path / "own.urdf"
    urdf.write_text(robot_path("double_pendulum").read_text())
    settings = load_config(config, ['problem.robot="own.urdf"']).as_dict()
    settings["problem"]["robot"] = str(urdf)
    before = FromConfig.from_config(read_config(settings)).identity
    urdf.write_text(urdf.read_text() + "<!-- heavier -->")
    assert FromConfig.from_config(read_config(settings)).identity != before


def test_values_are_grouped_by_texts_by_few_numbers_and_by_bins():
    at, labels, group = places(np.array(["b", "a", "b"]))
    assert labels == ["a", "b"] and list(group) == [1, 0, 1] and len(at) == 2
    assert places(np.array([0.1, 0.2, 0.1]))[1] == ["0.1", "0.2"]
    at, labels, group = places(
        np.append(np.arange(0.05, 1.0, 0.1).repeat(3) + np.tile([-0.04, 0.0, 0.04], 10), [0.0, 1.0])
    )
    assert labels == [] and np.bincount(group).tolist() == [4] + [3] * 8 + [4]
    np.testing.assert_allclose(at, np.arange(0.05, 1.0, 0.1))
