"""Cart-pendulum, multi-pendulum, four-bar linkage and lifting: models built in code, and their problems."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.batched import forward_dynamics, inverse_dynamics, mass_matrix
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from problems.arms import lifting
from problems.robots import ERD_PACKAGE, erd_names
from problems.robots.human import FOOT_MASS, SEGMENTS, sagittal_human
from problems.robots.textbook import four_bar_angles, multi_pendulum as chain
from problems.textbook import cart_pendulum, four_bar, multi_pendulum
from trajopt.config.build import build_task
from trajopt.config.config import load_config, read_config
from trajopt.config.schema import to_toml
from trajopt.config.task import position_of

CONFIGS = Path(__file__).parents[2] / "problems" / "configs"

NUMPY = partial(make_backend, engine="numpy")


def downhill(task, iterations=3, **options) -> float:
    """Return the remaining fraction of the merit after a few iterations."""
    solution = to.solve(task.ocp, task.guess, {"max_iterations": iterations, **options})
    assert np.isfinite(solution.cost)
    return solution.history[-1].merit / solution.history[0].merit


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_config_is_read_back_as_it_is_written(path):
    """The configuration saved with results gives the same settings, and contains everything from the file."""
    config, given = load_config(path), tomllib.loads(path.read_text(encoding="utf-8"))
    again = read_config(tomllib.loads(to_toml(config.as_dict())), config.source)
    assert again == config
    settings = config.as_dict()
    for table in ("problem", "solver"):
        values = {"name": given[table]} if isinstance(given.get(table), str) else given.get(table, {})
        assert [key for key, value in values.items() if not _holds(settings[table].get(key), value)] == []


def _holds(settings, value) -> bool:
    """True if settings hold a value of a file, tables by their keys."""
    if isinstance(value, dict) and isinstance(settings, dict):
        return all(_holds(settings.get(key), inner) for key, inner in value.items())
    if isinstance(value, list) and all(isinstance(v, dict) for v in value):
        return len(settings) == len(value) and all(map(_holds, settings, value))
    return settings == value or str(settings).endswith(str(value))  # paths of robots are relative to the file


@pytest.mark.parametrize(
    "name",
    [
        "cart_pendulum", "cart_pendulum_constrained", "multi_pendulum", "multi_pendulum_branches", "four_bar", "lifting",
        "hyq_trot_rigid", "hyq_walk", "hyq_pace", "hyq_bound",
    ],
)  # fmt: skip
def test_every_config_builds_a_valid_problem(name):
    task = build_task(load_config(CONFIGS / f"{name}.toml", ["engine=numpy"]))
    assert to.validate(task.ocp, task.guess) == []
    assert task.outcome(task.ocp.x0)


# -- cart-pendulum ------------------------------------------------------------------------------------------------


def test_the_constrained_cart_moves_as_the_minimal_one():
    free, railed = (
        cart_pendulum.build(cart_pendulum.Settings(constrained=c, horizon=8), NUMPY).ocp for c in (False, True)
    )
    rng = np.random.default_rng(3)
    x, u = rng.uniform(-2.0, 2.0, (5, 4)), rng.uniform(-50.0, 50.0, (5, 1))
    wide = np.zeros((5, 8))
    wide[:, [0, 3, 4, 7]] = x
    small = free.phases[0].dynamics.backend.f(x, u)
    large = railed.phases[0].dynamics.backend.f(wide, u)
    assert np.allclose(large[:, [0, 3, 4, 7]], small, rtol=1e-9, atol=1e-9)
    assert np.abs(large[:, [1, 2, 5, 6]]).max() < 1e-9


def test_both_cart_pendulums_have_the_same_optimum():
    costs = []
    for constrained in (False, True):
        settings = cart_pendulum.Settings(constrained=constrained, horizon=15, dt=0.04, q0=(0.0, 0.2), force_limit=1e4)
        task = cart_pendulum.build(settings, NUMPY)
        solution = to.solve(task.ocp, task.guess, {"max_iterations": 20, "gradient_tolerance": 1e-4})
        assert solution.status.success, solution.status
        costs.append(solution.cost)
        assert "upright" in task.outcome(solution.xs[-1])[0]
    assert costs[0] == pytest.approx(costs[1], rel=1e-7)


# -- multi-pendulum -----------------------------------------------------------------------------------------------


def test_a_chain_of_the_paper():
    model = chain(10)
    assert model.nv == 10 and model.total_mass == 10.0
    upright = position_of(model, "tip1", np.zeros(10))
    assert np.allclose(upright, [0.0, 11.0, 0.0])
    M = mass_matrix(model, np.zeros(10))
    # upright, link j at height j over hinge 1: sum of m (i - k)(j - k) over links k >= max, and unit inertias
    k = np.arange(10)
    expected = [[sum((b - i) * (b - j) + 1.0 for b in k if b >= max(i, j)) for j in k] for i in k]
    assert np.allclose(M, expected)


def test_branches_are_dynamically_independent():
    model = chain(6, 2, 3.0)
    M = mass_matrix(model, np.linspace(0.0, 1.0, 6))
    assert not M[:3, 3:].any() and np.allclose(M[:3, :3], mass_matrix(chain(3), np.linspace(0.0, 1.0, 6)[:3]))
    with pytest.raises(ValueError, match="branches = 4 with 3 bodies; expected at least one"):
        chain(3, 4)


def test_the_cost_of_the_multi_pendulum_decreases():
    settings = multi_pendulum.Settings(bodies=4, branches=2, horizon=15, dt=0.05, velocity_weight=1e-3, swing=0.5)
    task = multi_pendulum.build(settings, NUMPY)
    assert downhill(task) < 0.1
    assert "upright" in task.outcome(task.ocp.x0)[0]


# -- four-bar -----------------------------------------------------------------------------------------------------


def test_the_linkage_closes_at_every_angle_of_its_crank():
    task = four_bar.build(four_bar.Settings(horizon=12), NUMPY)
    assert four_bar.loop_error(task.ocp.model, task.guess.xs[:, :3]).max() < 1e-12
    with pytest.raises(ValueError, match="does not close at .*: coupler = 0.45 m and rocker = 0.4 m"):
        four_bar_angles(2.0, 0.2, 0.45, 0.4, 0.0)


def test_the_crank_turns_and_the_loop_stays_closed():
    settings = four_bar.Settings(horizon=30, dt=0.01, turn=1.0)
    task = four_bar.build(settings, NUMPY)
    solution = to.solve(task.ocp, task.guess, {"max_iterations": 30})
    assert solution.status.success, solution.status
    assert abs(solution.xs[-1, 0] - (settings.crank_angle + 1.0)) < 1e-2
    assert four_bar.loop_error(task.ocp.model, solution.xs[:, :3]).max() < 1e-4
    assert "loop is open" in task.outcome(solution.xs[-1])[1]


# -- lifting ------------------------------------------------------------------------------------------------------


def test_the_human_weighs_as_much_as_its_segments():
    model = sagittal_human(15.0)
    assert model.total_mass == pytest.approx(sum(s.mass for s in SEGMENTS) + 15.0)
    assert model.joint_names == ("ankle", "knee", "hip", "lumbar", "neck", "shoulder", "elbow", "wrist")
    standing = sagittal_human(15.0, ground_wrench=True)
    assert standing.total_mass == pytest.approx(model.total_mass + FOOT_MASS)
    assert position_of(model, "crown", np.zeros(8))[2] == pytest.approx(1.8124)
    with pytest.raises(ValueError, match="load = -1"):
        sagittal_human(-1.0)


def test_bending_forward_is_positive():
    model = sagittal_human()
    for joint, sign in (("ankle", 1), ("hip", 1), ("lumbar", 1), ("shoulder", -1), ("elbow", -1), ("wrist", -1)):
        q = np.zeros(8)
        q[model.q_names.index(joint)] = 0.3 * sign
        end = "hands" if sign < 0 else "crown"
        assert position_of(model, end, q)[0] > 0.02, joint
    assert position_of(model, "toe", q)[0] == pytest.approx(0.2)


def test_the_center_of_pressure_is_that_of_feet_held_by_a_constraint():
    """A third way to compute the ground wrench: free feet with a frame constraint."""
    bolted, standing = sagittal_human(5.0), sagittal_human(5.0, ground_wrench=True)
    rng = np.random.default_rng(5)
    q, v, u = 0.3 * rng.standard_normal((3, 8))
    u *= 100.0
    x = np.r_[q, v][:, None]
    at, force = lifting.center_of_pressure(bolted, standing, x, u[:, None])
    held = Holonomic(standing, [FrameContact("foot")], actuated=list(bolted.joint_names))
    wide = np.r_[np.zeros(3), q, np.zeros(3), v][:, None]
    (wrench,) = held.outputs(wide, u[:, None], np.zeros(1), {}).values()
    assert force == pytest.approx(wrench[2], rel=1e-6)
    assert at == pytest.approx(-wrench[4] / wrench[2], rel=1e-6)


def test_accelerations_and_pressure_include_damping():
    model, standing = sagittal_human(), sagittal_human(ground_wrench=True)
    q, v, u = np.full(8, 0.1), np.full(8, 0.5), np.zeros(8)
    a = forward_dynamics(model, q, v, u - model.damping * v)
    still = np.zeros(3)
    tau = inverse_dynamics(standing, np.r_[still, q], np.r_[still, v], np.r_[still, a])
    at, force = lifting.center_of_pressure(model, standing, np.r_[q, v][:, None], u[:, None])
    assert force == pytest.approx(tau[1]) and at == pytest.approx(-tau[2] / tau[1])
    assert np.allclose(FreeBody(model)(np.r_[q, v][:, None], u[:, None], 0.0, {})[8:, 0], a)


def short_lifting(**values):
    """Return a lifting problem with few coarse knots, at heights reached by a slight bow."""
    few = {
        "knots": 3,
        "substeps": 8,
        "pick": (0.25, 0.7),
        "place": (0.3, 1.0),
        "bending": (0.2, 0.6),
        "lifting": (0.2, 0.6),
    }
    return lifting.build(lifting.Settings(**{**few, **values}), NUMPY)  # type: ignore[arg-type]


def test_lifting_has_two_phases_with_another_load():
    ocp = short_lifting(load=15.0).ocp
    assert [phase.knots for phase in ocp.phases] == [1, 3, 3]
    masses = [phase.dynamics.system.map.model.total_mass for phase in ocp.phases[1:]]
    assert masses[1] - masses[0] == pytest.approx(15.0)
    assert [phase.dynamics.system.place for phase in ocp.phases[1:]] == [16, 17]
    lower, upper = ocp.control_bounds
    assert np.array_equal(upper[0, :2], [0.6, 0.6]) and np.array_equal(lower[0, :2], [0.2, 0.2])
    assert np.array_equal(upper[1], ocp.model.effort_limit)
    hands = next(c for c in ocp.phases[2].constraints if c.name == "hands")
    assert np.array_equal(hands.lower[0], [0.25, 0.7]) and np.isinf(hands.lower[1:]).all()
    with pytest.raises(ValueError, match="load"):
        lifting.Settings(load=-1.0)
    with pytest.raises(ValueError, match="bending: expected a shortest and a longest duration"):
        lifting.Settings(bending=(1.0, 0.5))


def test_the_guess_of_lifting_reaches_the_box():
    task = short_lifting()
    at = position_of(task.ocp.model, "hands", task.guess.xs[[4, 7], :8])
    assert np.allclose(at[:, [0, 2]], [[0.25, 0.7], [0.3, 1.0]], atol=1e-4)
    assert np.array_equal(task.guess.us[0, :2], task.guess.xs[0, -2:])


def test_the_ground_carries_the_standing_human_between_heel_and_toe():
    ocp = short_lifting().ocp
    ground = next(c for c in ocp.phases[1].constraints if c.name == "ground's force")
    model, x = ocp.model, np.tile(ocp.x0, (2, 1)).T
    hold = inverse_dynamics(model, ocp.x0[:8], np.zeros(8), np.zeros(8))
    levers = np.asarray(ground.residual(x, np.tile(hold, (2, 1)).T, np.zeros(2), {}))
    assert np.allclose(levers.sum(axis=0), 1.0)  # relative to weight times foot length
    assert (levers > 0.1).all()


def test_the_clock_of_lifting_uses_both_durations():
    task = short_lifting()
    xs = task.guess.xs.copy()
    xs[:, -2:] = 0.3, 0.5
    assert np.allclose(task.clock(xs), [0.0, 0.0, 0.1, 0.2, 0.3, 0.3 + 0.5 / 3, 0.3 + 1.0 / 3, 0.8])
    assert "bending takes 0.300 s, lifting 5 kg 0.500 s" in task.outcome(xs[-1])


@pytest.mark.skipif(not erd_names(), reason=f"{ERD_PACKAGE} is not installed")
def test_another_quadruped_trots_by_its_names_alone():
    task = build_task(load_config(CONFIGS / "anymal_trot.toml", ["engine=numpy"]))
    assert task.ocp.model.name == "anymal" and task.feet[0] == "LF_FOOT"
    assert not [f for f in to.validate(task.ocp, task.guess) if f.severity == "error"]
    heights = [position_of(task.ocp.model, foot, task.ocp.x0[: task.ocp.model.nq])[2] for foot in task.feet]
    assert np.abs(heights).max() < 1e-3


def test_points_of_the_world_stay_where_they_are():
    model, q = sagittal_human(), np.full(8, 0.3)
    toe = next(frame for frame in model.frames if frame.name == "toe")
    assert toe.body == -1
    (at,) = point_positions(model, q[:, None], [(toe.body, toe.p)])
    np.testing.assert_array_equal(np.ravel(at), toe.p)
