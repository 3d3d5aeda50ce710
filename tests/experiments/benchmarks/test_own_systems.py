"""User-defined dynamics of the benchmark: solutions are feasible in CasADi's program and have the same cost."""

import casadi as ca
import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.benchmark_own_dynamics import casadi_program
from experiments.benchmarks.own_systems import SYSTEMS

OFF = {"quadrotor": 1e-5}
"""Tolerance of defects: RK4 on the group differs from RK4 on four numbers with the same rate."""


@pytest.mark.filterwarnings("ignore::FutureWarning")  # NumPy functions called with symbols
@pytest.mark.parametrize("name", ["van_der_pol", "goddard", "robot_arm", "quadrotor"])
def test_the_default_solution_is_feasible_and_optimal_in_casadis_program(name):
    system = SYSTEMS[name]()
    ocp, guess = system.problem("forward_ad")
    solution = to.solve(ocp, guess)
    assert solution.status.success and solution.iterations < 60
    assert solution.meta["engines"] == ["compiled"] and "not_compiled" not in solution.meta
    free = int(system.durations is not None)
    xs, us = solution.xs[free:, : system.states.nx], solution.us[free:, : system.nu]
    w = np.concatenate([xs.ravel(), us.ravel(), [solution.duration]])
    nlp, given, duration = casadi_program(ca, system)
    f, g = ca.Function("program", [nlp["x"]], [nlp["f"], nlp["g"]])(w)
    assert float(duration(w)) == pytest.approx(solution.duration)
    assert float(f) == pytest.approx(solution.cost, rel=1e-9)
    assert np.abs(np.asarray(g)).max() < OFF.get(name, 1e-8)
    assert (w >= given["lbx"] - 1e-7).all() and (w <= given["ubx"] + 1e-7).all()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # NumPy functions called with symbols
def test_sqp_converges_with_a_weakly_active_bound():
    """At the end of Goddard's singular arc the thrust is 2e-8 above its bound, with a multiplier of 6e-5."""
    ocp, guess = SYSTEMS["goddard"]().problem("forward_ad")
    found, best = to.solve(ocp, guess, solver="sqp"), to.solve(ocp, guess)
    assert found.status.code == to.StatusCode.CONVERGED and found.iterations < 60
    assert found.cost == pytest.approx(best.cost, rel=1e-6)
