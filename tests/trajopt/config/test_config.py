"""Configuration files: accepted values, and error messages."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from trajopt.config.build import with_iteration_limit
from trajopt.config.config import ConfigError, load_config, parsed_override, read_config, set_value
from trajopt.config.registry import PROBLEMS
from trajopt.config.schema import to_toml
from trajopt.solvers.options import AutoOptions, IPMOptions

CONFIGS = sorted((Path(__file__).parents[3] / "problems" / "configs").glob("*.toml"))
GO_TO = {"name": "arm_go_to", "robot": "iiwa7", "frame": "iiwa_link_ee", "goal_position": [0.3, 0.4, 0.6]}


def issues_of(values: dict) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_config(values)
    return caught.value.issues


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_bundled_configs_are_valid_and_survive_writing(path):
    config = load_config(path)
    again = read_config(tomllib.loads(to_toml(config.as_dict())), str(path))
    assert again == config


def test_there_is_a_config_for_every_problem():
    assert {load_config(path).problem_name for path in CONFIGS} == set(PROBLEMS)


def test_defaults_are_those_of_the_dataclasses():
    config = read_config({"problem": GO_TO})
    assert config.problem == PROBLEMS["arm_go_to"].Settings(
        robot="iiwa7", frame="iiwa_link_ee", goal_position=(0.3, 0.4, 0.6)
    )
    assert (config.solver_name, config.backend.name) == ("auto", "analytic")


@pytest.mark.parametrize(
    "form",
    [
        {"backend": "complex_step", "engine": "numpy"},
        {"backend": {"name": "complex_step", "engine": "numpy"}},
        {"backend": {"name": "complex_step"}, "engine": "numpy"},
    ],
)
def test_both_forms_of_the_backend(form):
    backend = read_config({"problem": GO_TO, **form}).backend
    assert (backend.name, backend.engine) == ("complex_step", "numpy")


def test_a_robot_for_a_problem_with_its_own_is_reported():
    with pytest.raises(ConfigError, match="problem.robot: unknown key; this problem has a robot of its own"):
        read_config({"problem": {"name": "cart_pole", "robot": "own.urdf"}})


@pytest.mark.parametrize(
    ("table", "key", "value", "said"),
    [
        ("solver", "max_iteration", 5, "solver.max_iteration: unknown key; did you mean max_iterations?"),
        ("solver", "options", {"max_iter": 5}, "solver.options: unknown table; move its keys into [solver]"),
        ("problem", "backend", "analytic", "problem.backend: unknown key; write backend = ... above all tables"),
        ("problem", "horizn", 5, "problem.horizn: unknown key; did you mean horizon?"),
        ("problem", "weights", {"veloctiy": 1.0}, "problem.weights.veloctiy: unknown key; did you mean velocity?"),
        ("output", "plot", True, "output.plot: unknown key; did you mean plots?"),
        ("problem", "dt", "fast", "problem.dt: expected a number, got 'fast'"),
        ("problem", "dt", True, "problem.dt: expected a number, got True"),
        ("problem", "dt", -0.1, "problem.dt: expected a positive number of seconds, got -0.1"),
        ("problem", "dt", float("nan"), "problem.dt: expected a positive number of seconds, got nan"),
        ("problem", "dt", float("inf"), "problem.dt: expected a positive number of seconds, finite when multiplied by"),
        ("problem", "dt", 1e308, "problem.dt: expected a positive number of seconds, finite when multiplied by"),
        ("problem", "horizon", 1.5, "problem.horizon: expected an integer, got 1.5"),
        ("problem", "goal_position", [1.0, 2.0], "problem.goal_position: expected a list of 3 numbers, got [1.0, 2.0]"),
        ("problem", "integrator", "rk5", "expected 'semi_implicit_euler' or 'euler' or 'rk4', got 'rk5'"),
        ("problem", "weights", {"control": -1.0}, "problem.weights.control: expected finite numbers of at least 0"),
        ("problem", "weights", 3, "problem.weights: expected a table, got 3"),
        ("problem", "q0", {"joint": "far"}, "or a table of numbers by name, got {'joint': 'far'}"),
        ("problem", "goal_q", [0.0] * 7, "exactly one of goal_q and goal_position"),
        ("problem", "guess", "interpolated", "problem.guess: expected goal_q to be set too"),
        ("solver", "max_iterations", -1, "solver.max_iterations = -1; expected"),
        ("solver", "fallback", "some", "solver.fallback: expected true or false, got 'some'"),
        ("slq", "shooting", "some", "solver.shooting: expected an integer or 'single' or 'all', got 'some'"),
        ("solver", "name", "ilqg", "did you mean 'ilqr'?"),
        ("backend", "name", "analytical", "did you mean 'analytic'?"),
        ("problem", "horizon", 10**9, "problem.horizon: expected at least 1 and at most 100000, got 1000000000"),
        ("backend", "engine", "nunpy", "did you mean 'numpy'?"),
        (
            "backend",
            "step",
            1e-6,
            "backend.step: expected a positive step of at most 0.1, with finite differences only, got 1e-06",
        ),
        ("problem", "name", "arm_goto", "did you mean 'arm_go_to'?"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(table, key, value, said):
    values = {"problem": dict(GO_TO), "solver": {}, "backend": {}, "output": {}}
    if table == "slq":
        values["solver"]["name"], table = "slq", "solver"
    values[table][key] = value
    (issue,) = issues_of(values)
    assert said in issue


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"name": "cart_pole", "substeps": 10**9}, "problem.substeps: expected at least 1 and, .* at most 10000, got"),
        ({"name": "cart_pole", "horizon": 100_000, "substeps": 101}, "problem.substeps: .* at most 100, got 101"),
        ({"name": "scheduled_gait", "substeps": 10**9}, "problem.substeps: .* at most 10000, got"),
        ({"name": "lifting", "substeps": 10**9}, "problem.substeps: .* at most 10000, got"),
        ({"name": "multi_pendulum", "bodies": 10**9}, "problem.bodies: expected from 1 to 1000, got 1000000000"),
        ({"name": "free_gait", "velocity": float("inf")}, "problem.velocity: expected a finite number, got inf"),
        ({"name": "free_gait", "base": {"scale": float("inf")}}, "problem.base.scale: expected finite numbers"),
        ({"name": "quadruped_gait", "goal": [float("inf"), 0.0]}, "problem.goal: expected finite numbers"),
    ],
)
def test_numbers_without_end_are_refused(problem, message):
    with pytest.raises(ConfigError, match=message):
        read_config({"problem": problem})


def test_a_key_of_an_earlier_version_is_reported_with_the_remedy():
    with pytest.raises(ConfigError, match="problem.sized_for: removed: .* remove this key"):
        read_config({"problem": {"name": "free_gait", "sized_for": "hyq"}})


def test_a_limit_of_iterations_that_is_given_holds_in_repeated_solves():
    assert with_iteration_limit(IPMOptions(), 40).max_iterations == 40
    assert with_iteration_limit(IPMOptions(max_iterations=1000), 40).max_iterations == 1000
    assert with_iteration_limit(IPMOptions(max_iterations=5), 40).max_iterations == 5
    assert with_iteration_limit(AutoOptions(), 40) == AutoOptions()


def test_limits_may_be_infinite():
    assert read_config({"problem": {"name": "cart_pole", "force_limit": float("inf")}}).problem.force_limit == float(
        "inf"
    )


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            {"name": "scheduled_gait", "cycles": 10**9},
            "cycles: expected at least 1, with at most 100000",
        ),
        (
            {"name": "scheduled_gait", "dt": 1e-9},
            "cycles: expected at least 1, with at most 100000",
        ),
        (
            {"name": "scheduled_gait", "swing": 1e9},
            "cycles: expected at least 1, with at most 100000",
        ),
        ({"name": "receding_gait", "cycles": 10**9}, "cycles: expected at least 1 and at most 100000, got 1000000000"),
        ({"name": "lifting", "knots": 10**9}, "knots: expected at least 2 and at most 100000, got 1000000000"),
        ({"name": "scheduled_gait", "swings": [[0, 1]]}, "swings: expected a list of lists of strings, got [[0, 1]]"),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_allocated(problem, said):
    (issue,) = issues_of({"problem": problem})
    assert said in issue


def test_all_mistakes_are_reported_together():
    values = {
        "problem": GO_TO | {"dt": -1.0, "horizon": 0},
        "solver": {"max_iteration": 3, "gaps": "none"},
        "bakend": "analytic",
    }
    issues = issues_of(values)
    assert len(issues) == 5
    assert "bakend: unknown key; did you mean backend?" in issues


def test_a_missing_problem():
    assert "problem.name: missing" in issues_of({})[0]


@pytest.mark.parametrize("value", [3, "arm_go_to"])
def test_a_problem_that_is_no_table(value):
    (issue,) = issues_of({"problem": value})
    assert issue.startswith("problem: expected a table") and issue.endswith(f"got {value!r}")


def test_settings_that_contradict_each_other_are_named_without_their_values():
    (issue,) = issues_of({"problem": GO_TO | {"goal_q": [0.0] * 7}})
    assert "exactly one of goal_q and goal_position" in issue and "got" not in issue


def test_a_missing_file_is_reported_with_similar_names(tmp_path):
    (tmp_path / "reach.toml").write_text("")
    with pytest.raises(FileNotFoundError) as caught:
        load_config(tmp_path / "raech.toml")
    missing, near = tmp_path / "raech.toml", tmp_path / "reach.toml"
    assert str(caught.value) == f"config file {missing} does not exist; did you mean {near}?"
    with pytest.raises(FileNotFoundError, match="is a folder, not a config file"):
        load_config(tmp_path)
    with pytest.raises(FileNotFoundError, match="folder .* does not exist"):
        load_config(tmp_path / "nowhere" / "reach.toml")


def test_an_option_that_contradicts_the_solver():
    issues = issues_of({"problem": GO_TO, "solver": {"name": "gnms", "shooting": "single"}})
    assert "requires shooting = 'all'" in issues[0]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("problem.dt=0.5", ("problem", "dt"), 0.5),
        ("problem.dt=.5", ("problem", "dt"), 0.5),
        (
            "problem.body=[{mesh='a1.stl', scale=[.5, 2., 1.e-1]}]",
            ("problem", "body"),
            [{"mesh": "a1.stl", "scale": [0.5, 2.0, 0.1]}],
        ),
        ("problem.robot=./a.1.urdf", ("problem", "robot"), "./a.1.urdf"),
        ("problem.goal_position=[1, 2.5, 3]", ("problem", "goal_position"), [1, 2.5, 3]),
        ("solver.name=fddp", ("solver", "name"), "fddp"),
        ("solver.name='fddp'", ("solver", "name"), "fddp"),
        ("output.plots = false", ("output", "plots"), False),
        ("backend.engine=numpy", ("backend", "engine"), "numpy"),
    ],
)
def test_overrides(text, key, value):
    values: dict = {"problem": {"dt": 1.0}, "backend": "analytic"}
    set_value(values, *parsed_override(text))
    assert values[key[0]][key[1]] == value


def test_override_of_an_option_of_a_solver_that_is_a_name_alone():
    values = {"problem": {"name": "cart_pole"}, "solver": "slq"}
    set_value(values, *parsed_override("solver.max_iterations=5"))
    assert values["solver"] == {"name": "slq", "max_iterations": 5}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_any_solver_can_replace_the_one_in_a_file(path):
    """Options of the file's solver are carried over to the new solver if it has them."""
    own = load_config(path)
    for name in ("slq", "gnms", "fddp", "ddp", "ipm", "sqp", "dms", "auto"):
        other = load_config(path, [f"solver.name={name}"])
        assert other.solver_name == name
        assert other.problem == own.problem
        if hasattr(other.solver_options, "constraint_tolerance") and hasattr(
            own.solver_options, "constraint_tolerance"
        ):
            tolerance = own.solver_options.constraint_tolerance
            assert other.solver_options.constraint_tolerance in (
                tolerance,
                type(other.solver_options)().constraint_tolerance,
            )


def test_options_that_another_solver_lacks_are_reported(tmp_path):
    path, messages = tmp_path / "a.toml", []
    table = '[solver]\nname = "fddp"\nmax_iterations = 7\ncost_tolerance = 1e-3\n'
    path.write_text(table + '[problem]\nname = "arm_go_to"\nrobot = "iiwa7"\ngoal_q = [0, 0, 0, 0, 0, 0, 0]\n')
    other = load_config(path, ['solver.name="ipm"', "solver.hessian=gauss_newton"], messages.append)
    assert messages == ["ignored options of fddp that ipm does not have: cost_tolerance"]
    assert (other.solver_options.max_iterations, other.solver_options.hessian) == (7, "gauss_newton")
    load_config(path, ['solver.name="ddp"'], messages.append)  # ddp has all options
    assert len(messages) == 1
    for wrong in (["solver.name=ipm", "solver.cost_tolerance=1e-3"], ["solver.cost_tolerancy=1e-3"]):
        with pytest.raises(ConfigError, match=r"solver.cost_tolerance?y?: unknown key"):
            load_config(path, wrong)
    path.write_text(
        path.read_text().replace("max_iterations", "max_iterationen")
    )  # an unknown option is still reported
    with pytest.raises(ConfigError, match=r"solver.max_iterationen: unknown key"):
        load_config(path, ["solver.name=ipm"])


def test_override_of_a_one_line_backend_keeps_the_other_part():
    values: dict = {"backend": "complex_step"}
    set_value(values, *parsed_override("backend.engine=numpy"))
    assert values == {"backend": {"name": "complex_step", "engine": "numpy"}}
    set_value(values, *parsed_override("backend=analytic"))
    assert values == {"backend": {"name": "analytic", "engine": "numpy"}}


@pytest.mark.parametrize("text", ["problem.dt", "=3", "engine.x=1"])
def test_bad_overrides(text):
    with pytest.raises(ConfigError):
        set_value({"engine": "numpy"}, *parsed_override(text))


def test_invalid_toml_names_the_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("[problem\nname = 3\n")
    with pytest.raises(ConfigError, match="not valid TOML in line 1: .*; write key = value"):
        load_config(path)
    path.write_text('a = 1\nb = "open')
    with pytest.raises(ConfigError, match="not valid TOML in line 2: "):
        load_config(path)


def test_urdf_paths_are_relative_to_the_config_and_saved_absolute(tmp_path, monkeypatch):
    """Paths in overrides are relative to the working directory, and saved as absolute paths."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "arm.toml"
    path.write_text('[problem]\nname = "arm_go_to"\nrobot = "arms/arm.urdf"\ngoal_q = "zero"\n')
    assert load_config(path).problem.robot == str(tmp_path / "arms/arm.urdf")
    assert load_config(path, ["problem.robot=here.urdf"]).problem.robot == str(tmp_path / "here.urdf")
    assert load_config(path, ["problem.package_dirs=['meshes']"]).problem.package_dirs == (str(tmp_path / "meshes"),)


def test_a_robot_beside_a_config_that_is_given_by_a_relative_path_keeps_its_numbers(tmp_path, monkeypatch):
    """The numbers of a file are scaled for another robot only, such as one that an override names."""
    shutil.copy(CONFIGS[0].parents[1] / "robots" / "hyq.urdf", tmp_path / "dog.urdf")
    joints = [0.0, 0.75, -1.5] * 4
    (tmp_path / "trot.toml").write_text(
        f'[problem]\nname = "scheduled_gait"\nrobot = "dog.urdf"\ngait = "trot"\njoints = {joints}\n'
    )
    monkeypatch.chdir(tmp_path)
    for path in (Path("trot.toml"), tmp_path / "trot.toml"):
        assert load_config(path).problem.joints == tuple(joints)


@pytest.mark.parametrize("key", ["problem.goal_position[0]", "problem.goal_position.0", "problem.obstacle[0].radius"])
def test_entries_of_lists_are_no_keys(key):
    with pytest.raises(ConfigError, match="as a whole, not one of its entries"):
        load_config("iiwa7_reach", [f"{key}=0.2"])
