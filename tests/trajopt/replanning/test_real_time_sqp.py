"""The real-time iteration of SQP: exact where the problem is a QP, with its constraints; on manifolds; its failures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replanning_cases import KNOTS, WatchedPlant, loop, off_the_optimum, problem, spin

import trajopt as to
from trajopt.guesses.guesses import WarmStart
from trajopt.replanning.converged_planner import ConvergedPlanner
from trajopt.replanning.real_time import RealTimeSQP
from trajopt.replanning.workers import Timing
from trajopt.results.status import StatusCode
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import SQPOptions

WALL = 0.8


def walled(limit=None):
    """The goal at 1 lies behind a wall."""
    ocp = problem(limit=limit)
    phase = ocp.phases[0]
    wall = to.state_bounds(ocp.manifold, [-np.inf, -np.inf], [WALL, np.inf])
    return replace(ocp, phases=(replace(phase, constraints=(wall,)),), terminal_constraints=(wall,))


def still(ocp):
    """A warm start at rest."""
    return WarmStart(to.constant_guess(ocp), np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)), {})


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.parametrize("limit", [None, 4.0])
def test_a_quadratic_program_is_solved_in_one_iteration(hessian, limit):
    ocp, x0 = walled(limit), np.array([-0.2, 0.5])
    planner = RealTimeSQP(SQPOptions(hessian=hessian))
    planner.prepare(ocp, still(ocp))
    found = planner.respond(x0)
    exact = to.solve(replace(ocp, x0=x0), solver="sqp")
    assert found.status.code == StatusCode.MAX_ITERATIONS and exact.status.success
    np.testing.assert_allclose(found.xs, exact.xs, atol=1e-6)
    np.testing.assert_allclose(found.us, exact.us, atol=1e-5)
    assert found.xs[:, 0].max() == pytest.approx(WALL, abs=1e-6)
    assert found.cost == pytest.approx(exact.cost, rel=1e-6)


def test_repeated_iterations_converge_on_a_manifold():
    assert off_the_optimum(RealTimeSQP(), spin(0.5, 8, 0.15), 8) < 1e-5


def test_contradictory_constraints_are_a_failed_solve():
    ocp = walled(limit=0.1)  # too weak to stop before the wall
    planner = RealTimeSQP()
    planner.prepare(ocp, still(ocp))
    assert planner.respond(np.array([0.7, 3.0])).status.code == StatusCode.INFEASIBLE
    with pytest.raises(RuntimeError, match="prepare before"):
        RealTimeSQP().respond(np.zeros(2))


@pytest.mark.parametrize("planner", [RealTimeSQP(), ConvergedPlanner("sqp", {"hessian": "gauss_newton"})])
def test_the_loop_stops_at_the_wall(planner):
    ocp = walled()
    plant = WatchedPlant()
    timing = Timing(tick=0.05, period=0.05, prepare_early=isinstance(planner, RealTimeSQP))
    log = loop(planner, plant, ocp=ocp, timing=timing).run(2.0)
    assert all(solve.success for solve in log.solves)
    assert abs(log.xs[-1, 0] - WALL) < 1e-3
    assert log.xs[:, 0].max() < WALL + 1e-3


def test_solutions_without_gains_get_them():
    ocp = problem()
    planner = ConvergedPlanner("sqp", {"hessian": "gauss_newton"})
    planner.prepare(ocp, still(ocp))
    found, exact = planner.respond(ocp.x0), to.solve(ocp)
    np.testing.assert_allclose(found.K, exact.K, atol=1e-6)
    flat = replace(ocp, terminal=(), phases=(replace(ocp.phases[0], terms=ocp.phases[0].terms[:2]),))
    assert not tracking_gains(flat, *still(flat).guess).any()  # nothing weighs the controls: no gains
    assert len(found.K) == KNOTS
