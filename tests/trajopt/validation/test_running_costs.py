"""Integral of the running costs along a motion, compared with their rectangle rule."""

import numpy as np
import pytest

import trajopt as to
from trajopt.solvers.solution_checks import checked_afterwards
from trajopt.validation.running_costs import kinked_cost


def _cart(running, free=False):
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    ocp = to.OCP.single_phase(
        to.SampledSystem(cart, "rk4"),
        [0.0, 0.0],
        20,
        0.25,
        running,
        constraints=[to.state_bounds(2, [-np.inf, 0.0], [np.inf, 1.0])],
        terminal_constraints=[to.state_bounds(2, [4.0, 0.0], [4.0, 0.0])],
        u_lower=-2.0,
        u_upper=2.0,
    )
    return to.free_time(ocp, (5.0, 5.0), 0.0).ocp if free else ocp


@pytest.mark.parametrize("free", [False, True])
def test_power_that_the_rectangle_rule_underestimates_is_reported(free):
    """The kinetic energy is zero at both ends, so that the integral of the power u v is zero, and the rule errs by dt^2 u^2 / 2."""
    power = to.objective_term("power", lambda x, u, t, p: [u[0] * x[1]], 2, nu=1)
    found = to.solve(_cart([power], free))
    assert found.status.success and found.cost < -0.1
    error = 0.5 * 0.25**2 * (found.us[-20:] ** 2).sum()
    np.testing.assert_allclose(found.meta["quadrature_error"], error, rtol=1e-6)
    assert abs(found.cost + error) < 1e-6
    assert "by the rectangle rule, which the solution may exploit" in found.report()


def test_batches_and_checks_afterwards_report_it_too():
    ocp = _cart([to.objective_term("power", lambda x, u, t, p: [u[0] * x[1]], 2, nu=1)])
    plain = to.solve(ocp, check=False)
    batch = to.solve_batch(ocp, {"x0": np.zeros((2, 2))}, replay=True)
    starts = to.multi_start(ocp, 2)
    for found in (*batch, starts.best, checked_afterwards(ocp, plain, to.AutoOptions())):
        assert found.status.success and found.report().count("by the rectangle rule") == 1
    assert "rectangle rule" not in plain.report()


def test_costs_that_are_infinite_without_controls_are_not_reported():
    consumed = to.objective_term("utility", lambda x, u, t, p: [-to.exp(-0.1 * x[1]) * to.log(u[0])], 2, nu=1)
    capital = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [0.05 * x[0] - u[0], 1.0], 2, 1), "rk4")
    end = to.state_bounds(2, [1.0, -np.inf], [1.0, np.inf])
    ocp = to.OCP.single_phase(capital, [2.0, 0.0], 20, 1.0, [consumed], terminal_constraints=[end], u_lower=1e-3)
    found = to.solve(ocp, to.constant_guess(ocp, 0.1), solver="ipm")
    assert found.status.success and "rectangle rule" not in found.report()


def test_costs_of_controls_and_of_states_are_not_reported():
    found = to.solve(_cart([to.control_cost(1), to.state_cost(2, [4.0, 0.0], 0.1)]))
    assert found.status.success and "quadrature_error" not in found.meta
    assert "rectangle rule" not in found.report()


def test_the_parts_of_a_term_that_read_only_states_or_prices_by_knot_are_not_reported():
    price = {"price": np.where(np.arange(20) < 10, 1.0, 5.0)[:, None]}
    both = to.objective_term(
        "both", lambda x, u, t, p: [x[1] ** 2 + p["price"][0] * u[0] ** 2], 2, nu=1, parameters=price
    )
    found = to.solve(_cart([both]))
    assert found.status.success and abs(found.meta["quadrature_error"]) < 1e-9
    assert "rectangle rule" not in found.report()


def test_small_errors_are_no_finding():
    mixed = to.objective_term("mixed", lambda x, u, t, p: [u[0] ** 2 + 1e-3 * u[0] * x[1]], 2, nu=1)
    found = to.solve(_cart([mixed]))
    assert found.status.success and 0.0 < found.meta["quadrature_error"] < 0.05 * found.cost
    assert "rectangle rule" not in found.report()


@pytest.mark.parametrize("solver", ["ddp", "dms"])
@pytest.mark.parametrize("cost", [lambda v: abs(v), lambda v: np.maximum(v, 0.0)])
def test_kinks_of_costs_are_named_after_a_failure(solver, cost):
    kinked = to.objective_term("fuel", lambda x, u, t, p: [cost(u[0])], 2, nu=1)
    status = to.solve(_cart([kinked]), solver=solver, options={"max_iterations": 30}).status
    assert not status.success
    assert "The cost 'fuel' has a kink, like abs and max, near u[0] = 0 at knot " in status.advice


def test_kinks_in_states_are_named():
    xs = np.column_stack([np.zeros(21), np.linspace(-1.0, 1.0, 21)])
    for cost in (lambda x: abs(x[1]), lambda x: np.maximum(x[1], -3.0 * x[1])):
        advice = kinked_cost(_cart([to.objective_term("late", lambda x, u, t, p: [cost(x)], 2)]), xs, np.zeros((20, 1)))  # noqa: B023
        assert advice.startswith("The cost 'late' has a kink, like abs and max, near x[1] = 0 at knot 10: ")


def test_kinks_at_weights_and_parameters_by_knot_are_named():
    us, weight = np.linspace(-1.0, 1.0, 20)[:, None], np.r_[np.zeros(15), np.ones(5)][:, None]
    term = to.objective_term(
        "fuel", lambda x, u, t, p: [abs(u[0] - p["wanted"][0])], 2, nu=1, weight=weight, parameters={"wanted": us}
    )
    assert "near u[0] = 0.579 at knot 15: " in kinked_cost(_cart([term]), np.zeros((21, 2)), us)


def test_kinks_without_controls_are_named():
    decay = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [-x[0]], 1, 0), "rk4")
    ocp = to.OCP.single_phase(
        decay, [1.0], 20, 0.1, [to.objective_term("off", lambda x, u, t, p: [abs(x[0] - 0.5)], 1)]
    )
    assert "near x[0] = 0.5 at knot 10: " in kinked_cost(ocp, np.linspace(1.0, 0.0, 21)[:, None], np.zeros((20, 0)))


def test_smooth_costs_have_no_kink():
    for term in (
        to.control_cost(1),
        to.linear_cost(2, control=[1.0]),
        to.objective_term("exp", lambda x, u, t, p: [np.exp(3.0 * u[0])], 2, nu=1),
        to.residual_cost("square of abs", lambda x, u, t, p: [abs(u[0])], 2, 1, nu=1),
        to.state_cost(2, [0.5, 0.0]),
        to.objective_term("near its minimum", lambda x, u, t, p: [(u[0] - 1.995) ** 4 + (x[1] - 1.995) ** 2], 2, nu=1),
        to.objective_term("hinge", lambda x, u, t, p: [np.maximum(x[0], 0.0) ** 2], 2),
    ):
        xs = np.linspace([-1.0, 1.0], [1.0, 2.0], 21)
        assert kinked_cost(_cart([term]), xs, np.linspace(-2.0, 2.0, 20)[:, None]) == ""
