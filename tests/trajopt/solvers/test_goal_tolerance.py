"""Rounded goals, which contradict other constraints by less than goal_tolerance."""

import numpy as np
import pytest
import textbook_systems as textbook

import trajopt as to
from trajopt.results.status import StatusCode
from trajopt.solvers.goal_tolerance import relaxed_goals

FREE = np.inf


def beyond_a_wall(excess, solver=None, options=None):
    """A mass is to come to rest at a goal behind a wall, by a force; the solution, and that of a goal at the wall."""
    dynamics = to.SampledSystem(to.make_backend(textbook.double_integrator(), "forward_ad"), "rk4")
    states, wall = dynamics.manifold, 0.123456

    def problem(place):
        limit = to.state_bounds(states, [-FREE, -FREE], [wall, FREE], name="wall")
        goal = to.state_bounds(states, [place, 0.0], [place, 0.0], name="goal")
        ends = [limit, goal]
        terms = [to.control_cost(1)]
        return to.OCP.single_phase(dynamics, [0.0, 0.0], 20, 0.1, terms, constraints=[limit], terminal_constraints=ends)

    return problem(wall + excess), problem(wall)


def in_a_plane(off):
    """A double pendulum in a plane, with a goal of its tip beside that plane."""
    model = to.load_robot("double_pendulum")
    dynamics, frame = to.SampledSystem(to.FreeBody(model), "rk4"), model.frames[-1].name
    poses = np.array([to.frame_placement(model, q, frame)[1] for q in ([0.8, 0.5], [0.1, -0.7], [-1.0, 0.3])])
    normal = int(np.argmin(np.ptp(poses, axis=0)))
    goal = poses[0].copy()
    goal[normal] += off
    tip = to.bounded(to.frame_position_cost(model, dynamics.manifold, frame, goal), name="tip")
    rest = to.state_bounds(dynamics.manifold, [-FREE, -FREE, 0.0, 0.0], [FREE, FREE, 0.0, 0.0], name="rest")
    terms = [to.control_cost(2, weight=1e-2)]
    return to.OCP.single_phase(dynamics, np.zeros(4), 20, 0.05, terms, terminal_constraints=[tip, rest])


@pytest.mark.parametrize("solver", [None, "ipm", "dms", "sqp", "ddp"])
def test_a_goal_that_is_rounded_beyond_a_wall_is_met(solver):
    rounded, exact = beyond_a_wall(1e-7)
    found, expected = to.solve(rounded, solver=solver), to.solve(exact, solver="ipm")
    assert found.status.code is StatusCode.CONVERGED, found.status
    assert abs(found.xs[-1, 0] - 0.1234561) <= 1e-6 and abs(found.xs[-1, 1]) <= 1e-6
    assert found.cost == pytest.approx(expected.cost, rel=1e-4)
    batch = to.solve_batch(rounded, {"x0": [[0.0, 0.0], [0.01, 0.0]]}, solver=solver)
    assert [s.code for s in batch.status] == 2 * [StatusCode.CONVERGED]
    assert np.abs(batch.xs[:, -1, 0] - 0.1234561).max() <= 1e-6


@pytest.mark.parametrize("solver", ["ipm", "dms", "sqp"])
@pytest.mark.parametrize("off", [6.5e-8, 4e-7])
def test_a_goal_that_is_rounded_out_of_a_plane_is_met(solver, off):
    found, exact = to.solve(in_a_plane(off), solver=solver), to.solve(in_a_plane(0.0), solver="ipm")
    assert found.status.code is StatusCode.CONVERGED, found.status
    # ipm stops at double precision, with a violation that the checks accept
    assert ("goal_tolerance" in found.meta) == (solver != "ipm")
    assert found.cost == pytest.approx(exact.cost, rel=1e-4)
    batch = to.solve_batch(in_a_plane(off), {"x0": np.zeros((2, 4))}, solver=solver)
    assert batch.success.all(), batch.messages
    assert batch[1].meta.get("goal_tolerance") == found.meta.get("goal_tolerance")


def test_sqp_ends_soon_after_it_stands_still():
    """Its QPs are solved with violations that are above its tolerance, by steps of zero length."""
    history = to.solve(in_a_plane(6.5e-8), solver="sqp").history
    assert sum(0.0 < r.step_norm < 1e-9 and r.constraint_violation > 1e-9 for r in history) <= 4


@pytest.mark.parametrize("solver", ["ipm", "dms", "sqp"])
def test_the_tolerance_is_an_option(solver):
    rounded, _ = beyond_a_wall(1e-4)
    assert to.solve(rounded, solver=solver).status.code is StatusCode.INFEASIBLE
    found = to.solve(rounded, solver=solver, options={"goal_tolerance": 1e-3})
    assert found.status.code is StatusCode.CONVERGED, found.status
    assert found.meta["goal_tolerance"] == 1e-3 and "goal_tolerance = 1e-03" in found.status.message
    assert abs(found.xs[-1, 0] - 0.123556) <= 1e-3
    with pytest.raises(ValueError, match="goal_tolerance"):
        to.solve(rounded, solver=solver, options={"goal_tolerance": -1.0})


def test_a_larger_tolerance_holds_for_small_contradictions_too():
    found = to.solve(in_a_plane(3e-6), solver="ipm", options={"goal_tolerance": 1e-2})
    assert found.status.code is StatusCode.CONVERGED, found.status
    assert found.meta["goal_tolerance"] == 1e-2


def test_goals_without_contradictions_are_met_exactly():
    """The tolerance has no effect where no rows contradict each other."""
    found = to.solve(in_a_plane(0.0), solver="ipm", options={"goal_tolerance": 1e-2})
    assert "goal_tolerance" not in found.meta and np.abs(found.xs[-1, 2:]).max() < 1e-8


def test_inequalities_at_the_end_are_not_relaxed():
    rounded, _ = beyond_a_wall(1e-7)
    relaxed = relaxed_goals(rounded, 1e-6)
    limit, goal = relaxed.terminal_constraints
    np.testing.assert_array_equal(limit.upper, rounded.terminal_constraints[0].upper)
    np.testing.assert_allclose(goal.upper - goal.lower, 2e-6)
    assert relaxed_goals(relaxed, 1e-6) is None
