"""Scaled KKT error of programs: agreement with shooting, invariance to units, and statuses."""

import numpy as np
import pytest
import textbook_systems as textbook
from shooting_numpy import optimality

from dynamics_backends.registry import make_backend
from trajopt import OCP, SampledSystem, control_cost, solve, state_cost
from trajopt.problem.guess import Guess
from trajopt.results.status import SOLVED, StatusCode
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.nlp.scaled_kkt import scaled_kkt
from trajopt.stage.evaluation import StageEvaluator


def _pendulum(scale=1.0):
    """A swing-up whose cost is multiplied by a scale."""
    system = textbook.autonomous_pendulum()
    return OCP.single_phase(
        SampledSystem(make_backend(system, "forward_ad"), "rk4"),
        [0.2, 0.0],
        20,
        0.1,
        [control_cost(1, weight=0.1 * scale)],
        [state_cost(system.manifold, [np.pi, 0.0], 100.0 * scale)],
    )


def _simulated(ocp, us):
    """A guess without gaps."""
    program = Transcription(ocp, Guess(np.zeros((ocp.horizon + 1, 2)), us))
    w = program.variables(np.zeros((ocp.horizon + 1, 2)), us)
    return program, program.simulated(w)


def _measured(program, w, y, z):
    f, g = program.evaluate(w)
    gradient, J = program.differentiate(w)
    by_blocks = scaled_kkt(program, w, f, g, gradient, J, y, z)
    assert by_blocks == pytest.approx(scaled_kkt(program, w, f, g, gradient, J.assembled, y, z), rel=1e-12)
    return by_blocks


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_with_the_costates_it_is_the_measure_of_shooting_for_any_unit_of_the_cost(scale):
    us = np.random.default_rng(0).standard_normal((20, 1))
    ocp = _pendulum(scale)
    program, w = _simulated(ocp, us)
    gradient, J = program.differentiate(w)
    states = program.ix[1:].ravel()
    y = np.linalg.solve(J.assembled.toarray()[:, states].T, -gradient[states])
    z = np.zeros(program.size)
    z[program.ix[0]] = -(gradient + y @ J)[program.ix[0]]
    lq = StageEvaluator(ocp).expand(*program.trajectory(w)).lq
    found = _measured(program, w, y, z)
    assert found == pytest.approx(optimality(lq, us, None)[0], rel=1e-9)
    assert 1e-2 < found < 1.0 + 1e-12


@pytest.mark.parametrize("solver", ["sqp", "dms"])
def test_records_and_status_tell_it(solver):
    if solver == "dms":
        pytest.importorskip("cyipopt")
    solution = solve(_pendulum(), solver=solver)
    assert solution.status.success
    assert solution.status.kkt <= 1e-7
    assert solution.history[0].kkt > 1e-3
    assert solution.history[-1].kkt == pytest.approx(solution.status.kkt, abs=1e-7)


def test_it_ends_a_solve_where_the_gradient_cannot():
    """A cost in so small a unit that its gradient is below any tolerance of absolute size only at the limit of rounding."""
    ocp = _pendulum(1e6)
    solution = solve(ocp, options={"gradient_tolerance": 1e-12}, solver="sqp", check=False)  # not scaled
    assert solution.status.code is StatusCode.CONVERGED
    assert solution.history[-1].stop > 1.0
    assert solution.status.kkt <= 1e-8


def test_an_end_of_ipopt_at_a_solution_is_a_success():
    """With a tolerance below double precision, the point is a solution for every return code of IPOPT."""
    pytest.importorskip("cyipopt")
    solution = solve(_pendulum(1e4), options={"gradient_tolerance": 1e-30}, solver="dms")
    assert solution.status.kkt <= SOLVED
    assert solution.status.code is StatusCode.CONVERGED
    assert solution.history[-1].stop > 1.0  # IPOPT's own test has not passed


def test_limits_of_ipopt_may_be_whole_numbers():
    pytest.importorskip("cyipopt")
    assert solve(_pendulum(), options={"time_limit": 60, "gradient_tolerance": 1}, solver="dms").status.success
