"""Constraints of point-to-point motions of an arm: settings, errors, and equal optima of all solvers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from problems.arms.arm import Arm
from problems.arms.arm_go_to import Obstacle
from problems.arms.arm_guess import Sphere
from problems.robots import ERD_PACKAGE, erd_names
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import ConfigError, load_config, read_config
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import SettingsError, position_of
from trajopt.problem.constraints import chosen_coordinates
from trajopt.stage.compiled import taped_functions

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
GO_TO = PROBLEMS["arm_go_to"]
NUMPY = partial(make_backend, engine="numpy")
SPHERE = {"center": (0.3, 0.4, 0.6), "radius": 0.1}
FREE = {"torque_limits": False, "position_limits": False, "velocity_limits": False}
REACH = {"robot": "iiwa7", "horizon": 5, "frame": "iiwa_link_ee"} | FREE
needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")


def built(**settings):
    return GO_TO.build(GO_TO.Settings(**REACH | settings), NUMPY).ocp


def names(constraints):
    return [c.name for c in constraints]


def test_a_goal_in_joint_space_as_a_constraint():
    goal = tuple(0.1 * np.arange(7))
    obstacle = Obstacle(**SPHERE)
    ocp = built(goal_q=goal, terminal="constraint", obstacle=obstacle, position_limits=True, velocity_limits=True)
    assert names(ocp.phases[0].constraints) == ["joint limits", "velocity limits", "obstacle"]
    assert names(ocp.terminal_constraints) == ["goal", "obstacle"]
    held = ocp.terminal_constraints[0]
    assert chosen_coordinates(held) == tuple(range(14))
    np.testing.assert_array_equal(held.lower, [*goal, *np.zeros(7)])
    np.testing.assert_array_equal(held.upper, held.lower)
    assert ocp.terminal == ()


def test_a_goal_of_the_frame_as_a_constraint():
    ocp = built(goal_position=(0.3, 0.2, 0.7), terminal="constraint", position_limits=True)
    assert names(ocp.terminal_constraints) == ["goal", "rest", "joint limits"]
    assert chosen_coordinates(ocp.terminal_constraints[1]) == tuple(range(7, 14))
    assert not ocp.terminal_constraints[0].lower.any()


def test_disabled_limits_are_no_constraints():
    ocp = built(goal_position=(0.3, 0.2, 0.7))
    assert ocp.constraints() == []
    assert ocp.control_bounds is None
    assert len(ocp.terminal) == 2


def test_limits_of_the_robot_are_enforced_by_default():
    ocp = built(goal_position=(0.3, 0.2, 0.7), **dict.fromkeys(FREE))
    assert names(ocp.phases[0].constraints) == ["joint limits", "velocity limits"]
    np.testing.assert_array_equal(ocp.control_bounds[1][0], ocp.model.effort_limit)
    bounded = built(goal_position=(0.3, 0.2, 0.7), **FREE | {"position_limits": True})
    limits = ocp.phases[0].constraints[0], bounded.phases[0].constraints[0]
    np.testing.assert_array_equal(limits[0].upper, limits[1].upper)


def test_limits_violated_at_the_start_are_omitted_by_default():
    q0 = (0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    ocp = built(goal_position=(0.3, 0.2, 0.7), q0=q0, **dict.fromkeys(FREE))
    assert chosen_coordinates(ocp.phases[0].constraints[0]) == (0, 2, 3, 4, 5, 6)


def test_a_list_of_spheres_and_a_guess_clear_of_them():
    spheres = (Obstacle(**SPHERE), Obstacle(center=(0.3, -0.4, 0.6), radius=0.1, weight=10.0))
    settings = GO_TO.Settings(**REACH | {"horizon": 20, "goal_position": (0.1, 0.5, 0.6), "obstacle": spheres})
    task = GO_TO.build(settings, NUMPY)
    assert names(task.ocp.phases[0].constraints) == ["obstacle 1"]
    assert [t.name for t in task.ocp.phases[0].terms][-1] == "obstacle 2"
    for o in spheres:
        sphere = Sphere.around_obstacle(Arm.from_model(task.ocp.model, "zero", None, "iiwa_link_ee"), o)
        assert sphere.clearance(task.ocp.model, task.guess.xs[:, :7]).min() >= 0.0


def test_the_guess_ends_at_the_goal_and_satisfies_the_dynamics():
    settings = {"horizon": 100, "goal_position": (0.3, 0.2, 0.7), "integrator": "semi_implicit_euler"}
    task = GO_TO.build(GO_TO.Settings(**REACH | settings), NUMPY)
    guess, dynamics = task.guess, task.ocp.phases[0].dynamics
    np.testing.assert_allclose(
        position_of(task.ocp.model, "iiwa_link_ee", guess.xs[-1, :7]), (0.3, 0.2, 0.7), atol=1e-5
    )
    np.testing.assert_allclose(guess.xs[-1, 7:], 0.0, atol=1e-12)
    x_next = dynamics.step(guess.xs[:-1], guess.us, task.ocp.times[:-1], task.ocp.dt)
    np.testing.assert_allclose(x_next[:, 7:], guess.xs[1:, 7:], atol=1e-9)
    costs = [to.StageEvaluator(task.ocp).cost(g.xs[None], g.us[None])[0] for g in (guess, *task.other_guesses)]
    assert len(costs) > 1 and costs == sorted(costs)


DOUBTS = {
    "beyond reach": ({"goal_position": (0.0, 0.9, 1.4)}, "the goal is 465 mm beyond the reach of iiwa_link_ee"),
    "beyond limits": (
        {"robot": "double_pendulum", "frame": "tip", "goal_position": (0.0, 0.0, 3.0)},
        "beyond the reach of tip",
    ),
    "orientation": (
        {
            "robot": "double_pendulum",
            "frame": "tip",
            "goal_position": (1.0, 0.0, -1.0),
            "goal_rotation": (1.0, 0.0, 0.0),
        },
        "reaches the goal position, but not its orientation",
    ),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_goals_out_of_reach_are_reported(case):
    settings, message = DOUBTS[case]
    (warning,) = GO_TO.build(GO_TO.Settings(**REACH | settings), NUMPY).warnings
    assert re.search(message, warning), warning


def test_a_goal_within_reach_is_reported_with_its_manipulability():
    task = GO_TO.build(GO_TO.Settings(**REACH | {"goal_position": (0.3, 0.2, 0.7)}), NUMPY)
    assert task.warnings == () and "goal within reach of iiwa_link_ee" in task.notes[0]


def test_mistakes_in_the_table_of_the_obstacle():
    with pytest.raises(SettingsError, match="radius: expected a positive length"):
        Obstacle(**SPHERE | {"radius": 0.0})
    problem = {"name": "arm_go_to", "robot": "iiwa7", "goal_q": "zero"}
    wrong = {
        "problem.obstacle.radius: expected a positive length [m], got -1.0": SPHERE | {"radius": -1.0},
        "problem.obstacle.radius: expected a number, got 'big'": SPHERE | {"radius": "big"},
        "problem.obstacle.centre: unknown key; did you mean center?": SPHERE | {"centre": 1.0},
        "problem.obstacle.center: missing": {"radius": 0.1},
        "problem.obstacle: expected a table or a list of tables, got 3": 3,
        "problem.obstacle[1].radius: missing": [SPHERE, {"center": [0.1, 0.2, 0.3]}],
        "problem.obstacle[0].radius: expected a positive length [m], got -1.0": [SPHERE | {"radius": -1.0}],
    }
    for message, table in wrong.items():
        with pytest.raises(ConfigError) as error:
            read_config({"problem": problem | {"obstacle": table}})
        assert any(message in issue for issue in error.value.issues), error.value.issues


def test_configurations_survive_being_written_out():
    config = load_config(CONFIGS / "irb4600_obstacle.toml", ["solver.max_iterations=17"])
    again = read_config(config.as_dict(), config.source)
    assert again.problem == config.problem and again.solver_options == config.solver_options
    assert again.problem.obstacle.radius == 0.25 and again.solver_options.max_iterations == 17


def solved(name, *overrides):
    config = load_config(CONFIGS / f"{name}.toml", overrides)
    task = build_task(config)
    return task, solve_task(config, task)


def clearance(task, solution, center, radius):
    """Return the smallest distance of the frame from the sphere's surface, from the second node on."""
    q = solution.xs[1:, : task.ocp.model.nq]
    return np.linalg.norm(position_of(task.ocp.model, task.frame, q) - center, axis=1).min() - radius


def test_a_guess_around_the_sphere():
    """The guess ends at the goal and clears the sphere; without a sphere it is the straight path."""
    config = load_config(CONFIGS / "irb4600_obstacle.toml").problem

    def guessed(**changes):
        task = GO_TO.build(replace(config, **changes), NUMPY)
        return task, task.guess.xs[:, :6]

    task, around = guessed()
    _, straight = guessed(guess="interpolated")
    sphere = np.array(config.obstacle.center)
    tip = position_of(task.ocp.model, "ee", around)
    assert np.linalg.norm(tip - sphere, axis=1).min() >= config.obstacle.radius
    assert np.linalg.norm(position_of(task.ocp.model, "ee", straight) - sphere, axis=1).min() < 0.06
    np.testing.assert_allclose(around[[0, -1]], straight[[0, -1]], atol=1e-12)
    assert 0.05 < np.linalg.norm(around - straight, axis=1).max() < 0.2
    far = replace(config.obstacle, center=(0.0, 0.0, 5.0))
    np.testing.assert_array_equal(guessed(obstacle=far)[1], straight)


@pytest.mark.slow  # two robots' dynamics are compiled
def test_the_swing_of_the_large_arm_with_and_without_a_sphere():
    pytest.importorskip("cyipopt")
    _, free = solved("irb4600_dms")
    task, around = solved("irb4600_obstacle")
    for solution in (free, around):
        assert solution.status.success, solution.status
        np.testing.assert_allclose(solution.xs[-1], task.ocp.terminal_constraints[0].lower, atol=1e-9)
        assert solution.history[-1].gradient <= 1e-6
        assert solution.history[-1].constraint_violation <= 1e-6
    obstacle = load_config(CONFIGS / "irb4600_obstacle.toml").problem.obstacle
    where = position_of(task.ocp.model, task.frame, free.xs[10, :6])
    np.testing.assert_allclose(where, obstacle.center, atol=1e-6)  # the sphere is on the free motion at half time
    assert clearance(task, free, obstacle.center, obstacle.radius) < -0.2
    assert clearance(task, around, obstacle.center, obstacle.radius) >= -1e-9
    assert around.cost > free.cost


@needs_erd
@pytest.mark.slow
def test_one_optimum_by_direct_multiple_shooting_and_by_slq():
    pytest.importorskip("cyipopt")
    task, direct = solved("ur5_obstacle")
    assert direct.status.success and direct.iterations <= 20, direct.status
    _, shooting = solved("ur5_obstacle", "solver=slq")
    assert shooting.status.success, shooting.status
    assert shooting.cost == pytest.approx(direct.cost, rel=1e-5)
    np.testing.assert_allclose(shooting.xs, direct.xs, atol=1e-4)
    for solution in (direct, shooting):
        obstacle = load_config(CONFIGS / "ur5_obstacle.toml").problem.obstacle
        assert clearance(task, solution, obstacle.center, obstacle.radius) >= -1e-6


@pytest.mark.parametrize("solver", ["dms", "slq"])
def test_preparation_traces_all_functions_of_a_solve(solver, monkeypatch, tmp_path):
    """A later solve traces nothing; no other test uses this number of points on the links."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path))  # an empty cache, without traces of earlier runs
    traced, write = [], taped_functions._encoded

    def noted(functions):
        traced.extend(functions)
        return write(functions)

    monkeypatch.setattr(taped_functions, "_encoded", noted)
    spacing = {"dms": 0.11, "slq": 0.13}[solver]
    changes = [f"problem.obstacle.spacing={spacing}", f"solver={solver}", "engine=compiled"]
    config = load_config(CONFIGS / "irb4600_obstacle.toml", ["problem.horizon=3", *changes])
    task = build_task(config)
    make_ready(config, task)
    assert traced
    traced.clear()
    solve_task(config, task)
    assert not traced
