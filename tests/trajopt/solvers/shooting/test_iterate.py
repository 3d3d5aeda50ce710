"""Searches along parabolas."""

from collections import Counter

import numpy as np
import pytest
import textbook_systems as textbook
from numpy_lq import NumpyLQ
from shooting_cases import pendulum_swing_up
from shooting_numpy import measured, rolled_out, step_of
from slq_solve import solve

from dynamics_backends.registry import make_backend
from trajopt import OCP, SampledSystem, control_cost, solver_options, state_cost
from trajopt.solvers.shooting import parabola
from trajopt.solvers.shooting.ddp_model import MixedModel
from trajopt.solvers.shooting.parabola import parabola_of
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator

CURVE = {"globalization": "merit", "search": "curve"}


def pendulum():
    system = textbook.pendulum()
    terms = [control_cost(1, weight=0.1), state_cost(system.manifold, [0.3, 0.0], 1.0)]
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "semi_implicit_euler", 2)
    return OCP.single_phase(dynamics, [1.4, 0.2], 6, 0.1, terms, [state_cost(system.manifold, [0.0, 0.0], 10.0)])


def stepped(ocp):
    """A step from a motion without gaps."""
    evaluator, lq_solver = StageEvaluator(ocp), NumpyLQ()
    us = 0.3 * np.cos(np.arange(6.0))[:, None]
    xs, us = rolled_out(np.tile(ocp.x0, (7, 1)), us, Shooting(), evaluator)
    at = measured(xs, us, evaluator.expand(xs, us), evaluator, None)
    lq = at.expansion.lq
    policy = lq_solver.solve_riccati(lq)
    linear, (_, D2) = lq_solver.forward(lq, policy)
    return at, step_of(at, policy, linear, D2), evaluator


def bend_of(at, step, evaluator):
    """The parabola of a step that solves the LQ problem of the iterate."""
    return parabola_of(at.xs, at.us, at.lq.d, step.linear, step.policy.K, at.lq, evaluator)


def test_the_bend_is_that_of_least_squares_in_the_controls():
    """The oracle rolls the motion out under its controls alone, differences it, and solves one dense least-squares problem."""
    at, step, evaluator = stepped(pendulum())
    lq = at.expansion.lq
    N, n = lq.horizon, lq.Q.shape[1]
    still = Direction(np.zeros_like(at.xs), np.zeros_like(at.us), np.zeros((N, 1, n)), np.zeros((N, n)))

    def states(us):
        return evaluator.rollout(at.xs, us, still, np.zeros(1), Shooting()).xs[0]

    h = 1e-3
    J = np.stack([(states(at.us + h * e[:, None]) - states(at.us - h * e[:, None])) / (2 * h) for e in np.eye(N)], -1)
    du = step.linear.du
    second = (states(at.us + h * du) - 2.0 * at.xs + states(at.us - h * du)) / h**2
    W = np.zeros((N, N))
    force = np.zeros(N)
    for k in range(N + 1):
        W += J[k].T @ lq.Q[k] @ J[k]
        force += J[k].T @ lq.Q[k] @ second[k]
    W += np.diag(lq.R[:, 0, 0])
    bend = bend_of(at, step, evaluator)
    ddu = -np.linalg.solve(W, force)
    assert np.abs(ddu).max() > 0.01
    np.testing.assert_allclose(bend.du[:, 0], ddu, rtol=0.05, atol=0.02 * np.abs(ddu).max())
    np.testing.assert_allclose(bend.dx, second + J @ ddu, rtol=0.05, atol=0.02 * np.abs(second).max())


@pytest.mark.parametrize(("probe", "orders"), [(1e-3, 3.0), (parabola.PROBE, None)])
def test_the_parabola_leaves_gaps_of_the_third_order(probe, orders, monkeypatch):
    """Twice the length, eight times the gaps; on the straight line four times. A longer probe adds a little of the second order."""
    monkeypatch.setattr(parabola, "PROBE", probe)
    at, step, evaluator = stepped(pendulum())
    bend = bend_of(at, step, evaluator)
    everywhere = Shooting.every("all", at.us.shape[0], "linear")

    def gaps(bend, alpha):
        direction = Direction(*step.linear, step.policy.K, at.expansion.lq.d, bend)
        return np.abs(evaluator.rollout(at.xs, at.us, direction, np.array([alpha]), everywhere).defects).max()

    assert gaps(None, 0.25) / gaps(None, 0.125) == pytest.approx(4.0, rel=0.1)
    assert gaps(bend, 0.25) < 0.05 * gaps(None, 0.25)
    if orders is not None:
        assert np.log2(gaps(bend, 0.25) / gaps(bend, 0.125)) == pytest.approx(orders, abs=0.05)


@pytest.mark.parametrize("shooting", ["single", "all"])
def test_swing_up_reaches_the_optimum_of_the_line_search(shooting):
    ocp = pendulum_swing_up()
    given = {"shooting": shooting, "gaps": "nonlinear", "gradient_tolerance": 1e-9, "globalization": "merit"}
    line = solve(ocp, None, given, solver="ddp")
    curve = solve(ocp, None, given | CURVE, solver="ddp")
    assert curve.status.success
    assert curve.cost == pytest.approx(line.cost, rel=1e-9)
    assert {r.hessian for r in curve.history} <= {"gauss_newton", "mixed"}


@pytest.mark.parametrize("switch", [0.2, 1.0])
def test_curvature_is_asked_for_once_progress_is_slow(switch, monkeypatch):
    """From the first iteration on with switch = 1."""
    asked, own = [], MixedModel.problem
    monkeypatch.setattr(
        MixedModel,
        "problem",
        lambda model, at, *given: asked.append(at.evaluator.expand(at.xs, at.us).cost) or own(model, at, *given),
    )
    solution = solve(pendulum_swing_up(), None, CURVE | {"shooting": "all", "switch": switch}, solver="ddp")
    slow = next(r for r in solution.history if r.actual_decrease < switch * r.merit)
    assert solution.status.success
    assert asked[0] == slow.cost
    assert (slow.iteration > 0) == (switch < 1.0)


def test_an_iterate_is_expanded_once_by_each_evaluator(monkeypatch):
    expanded, own = Counter(), StageEvaluator.expand

    def counted(evaluator, xs, us):
        expanded[id(evaluator), xs.tobytes(), us.tobytes()] += 1
        return own(evaluator, xs, us)

    monkeypatch.setattr(StageEvaluator, "expand", counted)
    solution = solve(pendulum_swing_up(), None, CURVE | {"shooting": "all"}, solver="ddp")
    assert {r.hessian for r in solution.history} == {"gauss_newton", "mixed"}
    assert set(expanded.values()) == {1}
    assert len(expanded) <= 2.5 * solution.iterations  # most rejected steps are not expanded


def test_box_limits_hold():
    ocp = pendulum_swing_up(horizon=70, limit=4.0)
    solution = solve(ocp, None, CURVE | {"gradient_tolerance": 1e-9}, solver="ddp")
    assert solution.status.success
    assert np.abs(solution.us).max() <= 4.0


def test_a_filter_searches_lines():
    with pytest.raises(ValueError, match="globalization = 'merit'"):
        solver_options("ddp", search="curve")
