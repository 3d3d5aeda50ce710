"""Preparation covers all functions that a solve calls: the solve traces nothing."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.compiled.runtime import trace_cache
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot
from trajopt.solvers.prepare import prepare
from trajopt.solvers.registry import solver_options


def problem(constrained):
    free = FreeBody(load_robot("double_pendulum"))
    dynamics = to.SampledSystem(make_backend(free, "analytic", engine="compiled"))
    running = [to.control_cost(free.nu, reference=np.zeros(free.nu), weight=np.full(free.nu, 0.05))]
    above = [to.state_bounds(free.manifold, np.full(4, -2.0), np.full(4, 2.0))] if constrained else []
    terminal = [to.state_cost(free.manifold, np.array([0.8, -0.4, 0.0, 0.0]), 20.0)]
    phase = to.Phase(dynamics, np.full(20, 0.05), running, constraints=above)
    return to.OCP((phase,), np.zeros(4), terminal, replay_tolerance=np.inf)  # its time steps are coarse


@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
@pytest.mark.parametrize("solver", ["slq", "ddp", "dms", "sqp", "ipm", "auto"])
def test_a_solve_after_it_traces_nothing(solver, constrained, monkeypatch):
    if solver in ("dms", "auto"):
        pytest.importorskip("cyipopt")
    ocp, options = problem(constrained), solver_options(solver)
    guess = to.constant_guess(ocp)
    prepare(ocp, guess, options)

    def refuse(*_):
        raise AssertionError("the solve traces")

    if solver != "auto":  # which may go on to other solvers
        monkeypatch.setattr("trajopt.stage.compiled.library.taped_functions", refuse)
    monkeypatch.setattr(trace_cache, "_store", refuse)
    found = to.solve(ocp, guess, options, solver=solver)
    assert found.status.success
