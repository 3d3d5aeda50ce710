"""Inequalities between the knots: measured against closed forms, removed by margins, checked by a motion of its own."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from trajopt.stage.evaluation import StageEvaluator
from trajopt.validation.between_knots import between_knots, may_be_violated, tightened

A, DT = 2.0, 0.2


def mass(engine: str, n: int = 1):
    """A point mass in n directions: within a time step the motion is a parabola."""
    rates = to.FunctionMap(lambda x, u, t, p: [*x[n : 2 * n], *u], 2 * n, n, second_order=True)
    return to.SampledSystem(to.make_backend(rates, "forward_ad", engine=engine), "rk4")


@pytest.mark.parametrize("engine", ["numpy", pytest.param("compiled", marks=pytest.mark.needs_compiler)])
def test_a_ball_thrown_between_the_knots_is_seen(engine):
    """It is at the limit at both knots, and a dt^2 / 8 beyond it between them."""
    limit = to.state_bounds(2, [-np.inf, -np.inf], [1.0, np.inf], "height")
    ocp = to.OCP.single_phase(mass(engine), [1.0, 0.5 * A * DT], 1, DT, [to.control_cost(1)], constraints=[limit])
    xs, us = np.array([[1.0, 0.5 * A * DT], [1.0, -0.5 * A * DT]]), np.array([[-A]])
    found = between_knots(ocp, xs, us, StageEvaluator(ocp, engine="auto"))
    assert found.amount == pytest.approx(A * DT**2 / 8) and found.ratio == pytest.approx(1e3 * found.amount)
    assert (found.knot, found.time) == (0, pytest.approx(0.5 * DT))
    assert found.sentence() == "constraint height: x[0] is violated by 0.01 between knots 0 and 1, at t = 0.1 s"
    lower, upper = tightened(ocp, found, 1.5).phases[0].constraints[0].bounds(1)
    assert upper[0, 0] == pytest.approx(1.0 - 1.5 * found.amount) and lower[0, 0] == -np.inf


def around(engine: str, horizon: int = 12):
    """From one side of a disc to the other, by the velocity in the plane: between the knots the motion is straight."""
    rates = to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2)
    dynamics = to.SampledSystem(to.make_backend(rates, "forward_ad", engine=engine), "rk4")
    away = to.residual_constraint("disc", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2], 2, 1, 0.25, np.inf)
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    given = dynamics, [-1.0, 0.1], horizon, 2.0 / horizon, [to.control_cost(2)]
    return to.OCP.single_phase(*given, constraints=[away], terminal_constraints=[goal])


def nearest(s: to.Solution) -> float:
    """The least distance of the motion from the middle of the disc, along straight lines."""
    share = np.linspace(0.0, 1.0, 51)[:, None, None]
    return float(np.linalg.norm((1.0 - share) * s.xs[:-1] + share * s.xs[1:], axis=2).min())


@pytest.mark.parametrize("engine", ["numpy", pytest.param("compiled", marks=pytest.mark.needs_compiler)])
@pytest.mark.parametrize("solver", ["ipm", "sqp", "ddp", "auto"])
def test_margins_remove_violations_between_the_knots(solver, engine):
    ocp = around(engine)
    assert may_be_violated(ocp)
    plain = to.solve(ocp, solver=solver)
    assert plain.status.code == "violated_between_knots" and nearest(plain) < 0.495
    assert "between_knots = true" in plain.status.advice and plain.meta["between_knots"]["ratio"] > 5.0
    calls = []
    kept = to.solve(ocp, None, {"between_knots": True}, calls.append, solver=solver)
    assert kept.status.success and kept.meta["margins"] >= 1
    assert nearest(kept) > 0.5 - 1.5e-3 and kept.cost < 1.2 * plain.cost
    assert kept.iterations > plain.iterations
    assert [r.iteration for r in kept.history] == [r.iteration for r in calls] == list(range(len(calls)))
    assert f"the last of {kept.meta['margins'] + 1} solves, with margins" in kept.report()


def test_equations_and_problems_without_inequalities_are_not_watched():
    ocp = around("numpy")
    assert not may_be_violated(ocp.unconstrained())
    found = to.solve(ocp.unconstrained(), solver="slq")
    assert "between_knots" not in found.meta
    with pytest.raises(ValueError, match="between_knots = 'yes'; expected true or false"):
        to.solver_options("ipm", between_knots="yes")
