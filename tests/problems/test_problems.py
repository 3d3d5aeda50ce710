"""Problems: construction, errors, and solves."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from dynamics_backends.names import UnknownName
from dynamics_backends.registry import backend_names, make_backend
from problems.arms.obstacle import Obstacle
from problems.robots import ERD_PACKAGE, erd_names, load_robot
from trajopt import validate
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import load_config
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import SettingsError, position_of

CONFIGS = Path(__file__).parents[2] / "problems" / "configs"
GO_TO = PROBLEMS["arm_go_to"]
needs_erd = pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
REACH = {"robot": "iiwa7", "frame": "iiwa_link_ee", "goal_position": (0.3, 0.4, 0.6), "horizon": 10}


GRADIENT_TOLERANCE = 1e-7  # the default of slq, the solver of these configurations


def go_to(**settings):
    return GO_TO.build(GO_TO.Settings(**REACH | settings), make_backend)


def solved(name, *overrides):
    config = load_config(CONFIGS / f"{name}.toml", [*overrides])
    task = build_task(config)
    return task, solve_task(config, task)


SLOW_TO_BUILD = ("panda_bookshelf", "panda_person")  # building these searches for a path


@needs_erd
@pytest.mark.parametrize("name", sorted({path.stem for path in CONFIGS.glob("*.toml")} - {*SLOW_TO_BUILD}))
def test_the_problem_of_every_config_can_be_pickled_with_its_goals(name):
    """A pickled copy reports the same about a motion, and has the same costs."""
    task = build_task(load_config(CONFIGS / f"{name}.toml"))
    copy, guess = pickle.loads(pickle.dumps(task.ocp)), task.start
    assert [goal.name for goal in copy.goals] == [goal.name for goal in task.goals]
    for ours, theirs in zip(task.goals, copy.goals, strict=True):
        for method in ("missed", "report"):
            here, there = (list(getattr(goal, method)(guess.xs, task.ocp.times)) for goal in (ours, theirs))
            assert here == there
    np.testing.assert_array_equal(copy.cost(guess.xs, guess.us), task.ocp.cost(guess.xs, guess.us))


# -- real robots --------------------------------------------------------------------------------------------------


@needs_erd
@pytest.mark.parametrize("name", ["ur5_reach", "panda_reach", "kinova_reach"])
def test_reach_of_a_robot_from_another_package(name):
    task, solution = solved(name)
    assert solution.status.success, solution.status
    assert solution.history[-1].gradient <= GRADIENT_TOLERANCE
    assert solution.history[-1].defect <= 1e-8
    model = task.ocp.model
    end = position_of(model, task.frame, solution.xs[-1, : model.nq])
    assert np.linalg.norm(end - task.goal) < 5e-3
    assert np.abs(solution.xs[-1, model.nq :]).max() < 0.02
    limits = model.effort_limit
    assert (np.abs(solution.us) <= limits + 1e-9).all()


@needs_erd
def test_every_backend_reaches_the_same_cost():
    short = ("problem.horizon=40", "problem.dt=0.015")
    costs = {}
    for backend in backend_names():
        _, solution = solved("ur5_reach", f"backend.name={backend}", *short)
        assert solution.status.success, (backend, solution.status)
        assert solution.history[-1].gradient <= GRADIENT_TOLERANCE
        costs[backend] = solution.cost
    reference = costs["complex_step"]
    assert all(abs(cost - reference) <= 1e-8 * reference for cost in costs.values()), costs


@pytest.mark.parametrize("name", ["gen3_reach", "iiwa7_reach", "irb4600_go_to"])
def test_go_to_of_a_bundled_robot(name):
    task, solution = solved(name)
    assert solution.status.success, solution.status
    assert solution.history[-1].gradient <= GRADIENT_TOLERANCE
    end = position_of(task.ocp.model, task.frame, solution.xs[-1, : task.ocp.model.nq])
    start = position_of(task.ocp.model, task.frame, task.ocp.x0[: task.ocp.model.nq])
    assert np.linalg.norm(end - task.goal) < min(0.01, 0.05 * np.linalg.norm(start - task.goal))


COARSE = ("problem.horizon=30", "problem.dt=0.05", "problem.force_limit=200", "solver.name=slq")  # ilqr takes longer


def test_cart_pole_swings_up():
    _, solution = solved("cart_pole_swing_up", *COARSE)
    assert solution.status.success, solution.status
    assert np.abs(solution.xs[-1]).max() < 0.1
    assert np.abs(solution.us).max() <= 200.0
    assert solution.us.shape[1] == 1


def test_double_pendulum_is_a_valid_problem():
    task = build_task(load_config(CONFIGS / "double_pendulum_swing_up.toml"))
    assert validate(task.ocp, task.guess) == []
    assert task.ocp.control_bounds[1].max() == 15.0


# -- parts of a go-to -------------------------------------------------------------------------------------


def test_cost_at_rest_at_the_goal_is_that_of_the_control():
    q = (0.1, 0.4, 0.0, -1.0, 0.2, 0.5, 0.0)
    task = go_to(goal_position=None, goal_q=q, q0=q, control_reference="gravity", guess="interpolated", dt=0.01)
    solution = solve_short(task)
    assert solution.cost < 1e-12
    assert np.allclose(task.guess.us, task.guess.us[0])


def solve_short(task, **options):
    from trajopt import solve

    return solve(task.ocp, task.guess, options)


def test_joints_by_name_and_locked_joints():
    task = go_to(q0={"iiwa_joint_4": -1.0}, locked_joints={"iiwa_joint_7": 0.3})
    model = task.ocp.model
    assert model.nq == 6
    assert task.ocp.x0[model.q_names.index("iiwa_joint_4")] == -1.0


def test_a_control_weight_for_each_joint():
    weights = GO_TO.Settings.__dataclass_fields__["weights"].default_factory
    limits = go_to(torque_limits=True).ocp.model.effort_limit
    task = go_to(weights=type(weights())(control=tuple(1e-3 / limits**2)), torque_limits=True)
    assert np.array_equal(task.ocp.control_bounds[1][0], limits)
    assert np.allclose(task.ocp.phases[0].terms[0].weight * limits**2, 1e-3)


@pytest.mark.parametrize("guess", ["constant", "quasi_static"])
def test_guesses_stay_at_the_start(guess):
    task = go_to(guess=guess)
    assert np.array_equal(task.guess.xs, np.tile(task.ocp.x0, (11, 1)))


def test_placement_goal():
    task = go_to(goal_rotation=(np.pi, 0.0, 0.3))
    assert task.ocp.terminal[0].residual.n_out == 6
    assert "orientation" in task.outcome(task.ocp.x0)[-1]


def test_optional_running_terms():
    weights = GO_TO.Settings.__dataclass_fields__["weights"].default_factory
    task = go_to(weights=type(weights())(posture=0.1, goal=1.0, joint_limits=2.0))
    names = [term.name for term in task.ocp.phases[0].terms]
    assert names == ["control", "velocity", "posture", "joint limits", "goal"]


# -- invalid settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"frame": "iiwa_link_e"}, UnknownName, "did you mean 'iiwa_link_ee'"),
        ({"q0": {"iiwa_joint4": 1.0}}, UnknownName, "did you mean 'iiwa_joint_4'"),
        ({"locked_joints": ("iiwa_joint7",)}, UnknownName, "did you mean 'iiwa_joint_7'"),
        ({"robot": "iwa7"}, UnknownName, "did you mean 'iiwa7'"),
        ({"robot": "nowhere/arm.urdf"}, FileNotFoundError, "nowhere/arm.urdf"),
        ({"q0": (0.0, 1.0)}, ValueError, "q0 has 2 entries; .* nq = 7"),
        ({"q0": (0.0, float("nan"), 0, 0, 0, 0, 0)}, ValueError, "q0 is nan at iiwa_joint_2"),
        ({"goal_position": (0.3, float("nan"), 0.6)}, SettingsError, "goal_position: expected finite numbers"),
        (
            {"goal_position": None, "frame": None, "goal_q": (9.0, *6 * (0.0,)), "position_limits": True},
            ValueError,
            r"goal_q of 'iiwa_joint_1' is 9 \(degrees\?\), beyond its limit 2.96706, which position_limits = true enforces",
        ),
        ({"horizon": 20, "dt": float("nan")}, SettingsError, "dt: expected "),
        ({"goal_position": None}, SettingsError, "exactly one of goal_q and goal_position"),
        ({"frame": None}, SettingsError, "the key frame too"),
        ({"robot": "cart_pole", "frame": "tip", "torque_limits": True}, ValueError, "no.* for 'slider'"),
    ],
)
def test_bad_settings(settings, error, said):
    with pytest.raises(error, match=said):
        go_to(**settings)


def test_a_joint_space_goal_inside_an_obstacle_gives_a_warning():
    at = position_of(load_robot("iiwa7"), "iiwa_link_ee", np.zeros(7))
    obstacle = Obstacle(center=tuple(at), radius=0.1)
    goal = {"goal_position": None, "frame": None, "goal_q": 7 * (0.0,), "q0": (1.0, 0.5, *5 * (0.0,))}
    (warning,) = go_to(**goal, obstacle=obstacle).warnings
    assert "at goal_q the arm is " in warning and "inside the obstacle: choose another goal" in warning
    assert not go_to(**goal).warnings


def test_a_goal_out_of_reach_gives_a_warning():
    (warning,) = go_to(goal_position=(3.0, 0.0, 0.5)).warnings
    assert "the goal is 2.08 m beyond the reach of iiwa_link_ee" in warning
    assert go_to().warnings == ()
