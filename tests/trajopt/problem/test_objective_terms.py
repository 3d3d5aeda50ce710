"""Objective terms, quadrature and discrete dynamics: derivatives, and optima known in closed form, by every solver."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.protocol import MissingCapability

N, DT = 20, 0.1


def along(x, u, t, p):
    """Not convex; reads everything."""
    return to.sin(x[0]) * x[2] + u[1] * x[1] ** 2 + t * u[0] * p["gain"][0]


@pytest.mark.parametrize("manifold", [to.Manifold([to.SO3, to.vector_space(1)]), to.vector_space(4), 4])
def test_an_expansion_is_that_of_differences(manifold):
    space, rng = to.as_manifold(manifold), np.random.default_rng(3)
    term = to.objective_term("own", along, manifold, 1.5, nu=2, parameters={"gain": [0.7]})
    x = space.integrate(space.identity()[:, None], rng.standard_normal((space.ndx, 1)))[:, 0]
    u, t, scale, step = rng.standard_normal(2), 0.3, 0.25, 1e-4
    n = space.ndx

    def value(w):
        moved = space.integrate(x[:, None], w[:n, None])[:, 0]
        return scale * 1.5 * along(moved, u + w[n:], t, {"gain": [0.7]})

    e = to.quadratize(term, x[None], u[None], t, scale, "gauss_newton")
    eye = step * np.eye(n + 2)
    gradient = [(value(d) - value(-d)) / (2 * step) for d in eye]
    hessian = [[(value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * step**2) for b in eye] for a in eye]
    np.testing.assert_allclose(e.value, value(np.zeros(n + 2)), rtol=1e-14)
    np.testing.assert_allclose(np.r_[e.lx[0], e.lu[0]], gradient, atol=1e-7)
    whole = np.block([[e.lxx[0], e.lux[0].T], [e.lux[0], e.luu[0]]])
    np.testing.assert_allclose(whole, hessian, atol=1e-6)


def cart(engine: str, nu: int = 1):
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - u[1] if nu == 2 else u[0]], 2, nu, second_order=True)
    return to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp", "ipm", "sqp", "dms"])
def test_a_mayer_term_is_maximized(engine, solver):
    """max x(T) - 1/2 int u^2 of a double integrator: u = T - t at the middle of each step."""
    far = to.objective_term("minus the way", lambda x, u, t, p: -x[0], 2)
    ocp = to.OCP.single_phase(cart(engine), [0.0, 0.0], N, DT, [to.control_cost(1)], [far])
    found = to.solve(ocp, solver=solver)
    best = N * DT - DT * (np.arange(N) + 0.5)
    assert found.status.success
    np.testing.assert_allclose(found.us[:, 0], best, atol=1e-6)
    assert found.cost == pytest.approx(-0.5 * DT * (best**2).sum())


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["ddp", "ipm", "sqp"])
def test_fuel_has_a_linear_cost(engine, solver):
    """The least fuel to move and to stop: full thrust, coasting, full braking, with a linear program as the oracle."""
    fuel = to.linear_cost(2, control=[1.0, 1.0], name="fuel")
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    step = cart(engine, 2)
    ocp = to.OCP.single_phase(
        step, [0.0, 0.0], N, DT, [fuel], (), u_lower=0.0, u_upper=2.0, terminal_constraints=[goal]
    )
    from scipy.optimize import linprog

    middle = N * DT - DT * (np.arange(N) + 0.5)
    rows = DT * np.array([middle, np.ones(N)])
    expected = linprog(np.full(2 * N, DT), A_eq=np.hstack([rows, -rows]), b_eq=[1.0, 0.0], bounds=(0.0, 2.0))
    found = to.solve(ocp, solver=solver)
    assert found.status.success
    assert found.cost == pytest.approx(expected.fun, rel=1e-3)


def test_weights_are_changed_between_solves():
    price = to.linear_cost(to.vector_space(2), [0.0, 1.0], [2.0], weight=3.0)
    x, u = np.array([[4.0, 5.0]]), np.array([[7.0]])
    assert to.quadratize(price, x, u, 0.0).value == pytest.approx([3.0 * (5.0 + 14.0)])
    assert to.quadratize(price.updated(control=[0.0]), x, u, 0.0).value == pytest.approx([15.0])
    with pytest.raises(ValueError, match="give the slope in the state, in the control, or both"):
        to.linear_cost(2)
    with pytest.raises(
        ValueError, match=r"control is a number; give one slope for each entry, such as control = \[1\]"
    ):
        to.linear_cost(2, control=1.0)
    with pytest.raises(ValueError, match=r"state has 3 entries; expected \(nx = 2,\)"):
        to.linear_cost(2, state=[1.0, 2.0, 3.0])


def test_a_square_and_an_objective_are_different_structures():
    def square(x, u, t, p):
        return [x[0]]

    kinds = [to.residual_cost("x", square, 2, 1), to.objective_term("x", square, 2)]
    assert kinds[0].squared and not kinds[1].squared and "functions" in repr(kinds[1])
    ocps = [to.OCP.single_phase(cart("numpy"), [1.0, 0.0], 3, DT, [to.control_cost(1), kind]) for kind in kinds]
    with pytest.raises(ValueError, match="squared of 'x'"):
        to.solve_batch(ocps, solver="slq")


def test_derivatives_of_objectives_are_checked():
    term = to.objective_term("own", lambda x, u, t, p: to.exp(0.1 * x[0]) * u[0], 2, nu=1)
    ocp = to.OCP.single_phase(cart("numpy"), [0.5, 0.2], 5, DT, [to.control_cost(1), term])
    with pytest.raises(TypeError, match="the problem is a str; expected a trajopt.OCP"):
        to.check_derivatives("ur5")
    checks = [check for check in to.check_derivatives(ocp) if "own" in check.what]
    assert len(checks) >= 3 and all(check.passed for check in checks)


def test_a_manifold_is_named():
    with pytest.raises(TypeError, match="manifold is a str; expected a trajopt.Manifold, a group"):
        to.as_manifold("plane")


# -- quadrature ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_the_trapezoidal_rule_is_of_second_order(ratio):
    """The integral of 1/2 x^2 + x and of 1/2 u^2 along x = exp(-t), u = -1 held, in closed form; unequal steps alternate."""
    errors = []
    for knots in (20, 40):
        dt = np.tile([1.0, ratio], knots // 2) / (knots / 2 * (1.0 + ratio))
        square, whole = to.state_cost(1, [0.0]), to.objective_term("x", lambda x, u, t, p: x[0], 1)
        dynamics = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [-x[0] + 0.0 * u[0]], 1, 1), "rk4")
        terms = [square, whole, to.control_cost(1)]
        ocp = to.OCP.single_phase(dynamics, [1.0], knots, dt, terms, quadrature="trapezoidal")
        assert [term.name for term in ocp.terminal] == ["state", "x"]
        cost = ocp.cost(np.exp(-ocp.times)[:, None], np.full((knots, 1), -1.0))
        exact = 0.25 * (1.0 - np.exp(-2.0)) + (1.0 - np.exp(-1.0)) + 0.5
        errors.append(abs(float(cost) - exact))
    assert errors[0] < 2e-3 and errors[1] == pytest.approx(0.25 * errors[0], rel=0.03)


@pytest.mark.parametrize("by_knot", [False, True])
def test_weights_and_references_of_the_trapezoidal_rule_are_changed_by_name(by_knot):
    rows = np.linspace([0.0, 0.0], [-1.0, 0.5], N)

    def posed(reference, weight):
        terms = [to.control_cost(1), to.state_cost(2, reference, weight)]
        return to.OCP.single_phase(cart("compiled"), [0.0, 0.0], N, DT, terms, quadrature="trapezoidal")

    reference, weight = (rows, np.tile([5.0, 0.1], (N, 1))) if by_knot else ([-1.0, 0.0], [5.0, 0.1])
    first = posed(np.zeros((N, 2)), np.ones((N, 2))) if by_knot else posed([1.0, 0.0], [3.0, 0.1])
    found, expected = first.updated("state", reference=reference, weight=weight), posed(reference, weight)
    solutions = [to.solve(ocp, solver="slq") for ocp in (found, expected)]
    assert solutions[0].cost == pytest.approx(solutions[1].cost, rel=1e-12)
    np.testing.assert_allclose(solutions[0].us, solutions[1].us, atol=1e-10)


def test_a_quadrature_is_named_and_needs_given_time_steps():
    given = cart("numpy"), [0.0, 0.0], N, DT, [to.state_cost(2, [1.0, 0.0])]
    with pytest.raises(ValueError, match="quadrature = 'simpson'; expected one of rectangle, trapezoidal"):
        to.OCP.single_phase(*given, quadrature="simpson")
    with pytest.raises(MissingCapability, match="use quadrature = 'rectangle' with a free duration"):
        to.free_time(to.OCP.single_phase(*given, quadrature="trapezoidal"))


# -- discrete dynamics --------------------------------------------------------------------------------------------------


def swing(x, u, t, p):
    return [x[0] + DT * x[1], x[1] + DT * (u[0] - np.sin(x[0]))]


@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp", "ipm", "sqp", "dms"])
def test_discrete_dynamics_are_solved_as_they_are(solver):
    """Discrete dynamics equal to Euler steps of the differential equation have the same optimum."""
    cost, goal = [to.control_cost(1)], [to.state_cost(2, [np.pi, 0.0], 1e3)]
    rates = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - np.sin(x[0])], 2, 1)
    given = [0.0, 0.0], 2 * N, DT, cost, goal
    expected = to.solve(to.OCP.single_phase(to.SampledSystem(rates, "euler"), *given), solver="ddp", check=False)
    found = to.solve(to.OCP.single_phase(to.discrete_dynamics(swing, 2, 1), *given), solver=solver)
    assert found.status.success and found.cost == pytest.approx(expected.cost, rel=1e-6)
    assert found.meta["replay"] == {"left_out": "its time steps cannot be divided"}


def test_backends_of_discrete_dynamics_are_selected_by_name():
    ocp = to.OCP.single_phase(to.discrete_dynamics(swing, 2, 1), [0.0, 0.0], N, DT, [to.control_cost(1)])
    same = to.solve(ocp, solver="slq", backend="complex_step")
    assert same.meta["backends"] == ["complex_step"] and ocp.phases[0].weights.tolist() == [DT] * N
    assert all(check.passed for check in to.check_derivatives(ocp))


def test_discrete_dynamics_report_unsupported_operations():
    with pytest.raises(TypeError, match="expected an integer, since discrete dynamics have vector states"):
        to.discrete_dynamics(swing, to.SO3, 1)
    branching = to.discrete_dynamics(lambda x, u, t, p: [x[1], u[0] if x[0] > 0 else -u[0]], 2, 1)
    findings = to.validate(to.OCP.single_phase(branching, [1.0, 0.0], N, DT, [to.control_cost(1)]))
    assert any("lambda" in finding.message and "test_objective_terms" in finding.message for finding in findings)
    short = to.OCP.single_phase(
        to.discrete_dynamics(lambda x, u, t, p: [x[0]], 2, 1), [0.0, 0.0], N, DT, [to.control_cost(1)]
    )
    with pytest.raises(to.InvalidProblem, match="returned 1 rows; expected n_out = 2"):
        to.solve(short)
    ocp = to.OCP.single_phase(to.discrete_dynamics(swing, 2, 1), [0.0, 0.0], N, DT, [to.control_cost(1)])
    with pytest.raises(MissingCapability, match="for a free duration pass xdot"):
        to.free_time(ocp)
