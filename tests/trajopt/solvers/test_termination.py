"""Why solves end: the sentence of each reason, and the same sentence by every solver."""

import re
from pathlib import Path

import numpy as np
import pytest
import textbook_systems as textbook
from direct_cases import mass, sampled

import trajopt as to
from dynamics_backends.protocol import FunctionMap
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.termination import CrossedBounds, Errors, Measured, NonFinite, WorstConstraint

SOLVERS = ["slq", "ddp", "ipm", "sqp", "dms"]
NUMBER = r"\d\.\de[+-]\d+"
ERROR = rf"(scaled KKT error|gradient|defect|constraint violation) {NUMBER}( (<=|>) {NUMBER})?"
ERRORS = rf"{ERROR}(, {ERROR})*"
WORST = r"(; largest violation: .+, [\d.e+-]+)?"

GOAL = WorstConstraint("goal: x at knot 9", 0.5)
TOLERANCES = Errors(1e-8, 1e-7, 1e-9, 1e-6)
FAR = Measured(7, Errors(1e-2, 3.0, 1e-12, 0.5), TOLERANCES, GOAL)
NEAR = Measured(7, Errors(1e-9, 1e-8, 1e-12, 1e-10), TOLERANCES)
FAR_TOLD = (
    "scaled KKT error 1.0e-02 > 1.0e-08, gradient 3.0e+00 > 1.0e-07, defect 1.0e-12 <= 1.0e-09, "
    "constraint violation 5.0e-01 > 1.0e-06; largest violation: goal: x at knot 9, 0.5."
)


def pendulum(**fields):
    dynamics = sampled(textbook.autonomous_pendulum())
    goal = [to.state_cost(dynamics.manifold, [np.pi, 0.0], 100.0)]
    return to.OCP.single_phase(dynamics, [0.2, 0.0], 20, 0.05, [to.control_cost(1, weight=0.1)], goal, **fields)


def solve(ocp, solver, options=None, callback=None):
    return to.solve(ocp, to.constant_guess(ocp), options, callback, solver, check=False)


# -- sentences ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("status", "code", "message"), [
    (
        termination.max_iterations(7, FAR),
        StatusCode.MAX_ITERATIONS, f"Stopped at max_iterations = 7: {FAR_TOLD}",
    ),
    (
        termination.max_iterations(7, FAR, option="max_outer_iterations"),
        StatusCode.MAX_ITERATIONS, f"Stopped at max_outer_iterations = 7: {FAR_TOLD}",
    ),
    (
        termination.time_limit(0.5, FAR._replace(iterations=1)),
        StatusCode.TIME_LIMIT, f"Stopped at time_limit = 0.5 s after 1 iteration: {FAR_TOLD}",
    ),
    (
        termination.precision_limit(FAR),
        StatusCode.PRECISION_LIMIT, f"Double precision allows no further progress after 7 iterations: {FAR_TOLD}",
    ),
    (
        termination.line_search_failed(termination.NO_STEP_LENGTH, FAR),
        StatusCode.LINE_SEARCH_FAILED, f"No step length was accepted after 7 iterations: {FAR_TOLD}",
    ),
    (
        termination.line_search_failed(termination.no_step_length(3), FAR),
        StatusCode.LINE_SEARCH_FAILED,
        f"No step length was accepted (3 trial points were NaN or infinite) after 7 iterations: {FAR_TOLD}",
    ),
    (
        termination.line_search_failed(termination.no_direction("IPOPT", -9), FAR),
        StatusCode.LINE_SEARCH_FAILED, f"IPOPT found no step (code -9) after 7 iterations: {FAR_TOLD}",
    ),
    (
        termination.overdetermined(FAR),
        StatusCode.STALLED, f"There are more equations than free variables after 7 iterations: {FAR_TOLD}",
    ),
    (
        termination.max_penalty(StatusCode.LINE_SEARCH_FAILED, FAR),
        StatusCode.LINE_SEARCH_FAILED,
        "The penalties reached max_constraint_penalty after 7 iterations, the last inner solve ended with "
        f"line_search_failed: {FAR_TOLD}",
    ),
    (
        termination.converged(NEAR),
        StatusCode.CONVERGED,
        "Converged after 7 iterations: scaled KKT error 1.0e-09 <= 1.0e-08, gradient 1.0e-08 <= 1.0e-07, "
        "defect 1.0e-12 <= 1.0e-09, constraint violation 1.0e-10 <= 1.0e-06.",
    ),
    (
        termination.cost_converged(7, 1e-4, 1e-3, 2e-2),
        StatusCode.COST_CONVERGED,
        "The cost converged after 7 iterations: relative decrease 1.0e-04 < cost_tolerance = 1.0e-03, "
        "scaled KKT error 2.0e-02 > 1.0e-04.",
    ),
    (
        termination.interrupted(7),
        StatusCode.INTERRUPTED, "Interrupted after 7 iterations; returning the best iterate.",
    ),
    (
        termination.interrupted(0),
        StatusCode.INTERRUPTED, "Interrupted before the first step; returning the initial guess.",
    ),
    (
        termination.not_positive_definite(3, 1e10, "gauss_newton"),
        StatusCode.NOT_POSITIVE_DEFINITE, "Quu is not positive definite at knot 3 with the regularization mu = 1e+10.",
    ),
    (
        termination.non_finite(NonFinite("the step of rate", knot=4)),
        StatusCode.NON_FINITE, "NaN or infinity in the step of rate at knot 4.",
    ),
    (
        termination.non_finite_value("u_lower", 4, may_be_infinite=True),
        StatusCode.NON_FINITE, "NaN in u_lower of problem 4.",
    ),
    (
        termination.infeasible(CrossedBounds("x", 1.0, -1.0)),
        StatusCode.INFEASIBLE, "The bounds of x contradict each other: lower 1 > upper -1.",
    ),
    (
        termination.infeasible_nearby(7, GOAL, in_rollout=True),
        StatusCode.LOCALLY_INFEASIBLE,
        "No feasible point nearby after 7 iterations: a stationary point of the constraint violation; "
        "largest violation: goal: x at knot 9, 0.5 in the rollout of the controls (the states have open defects).",
    ),
    (
        termination.unbounded(7, -1e20),
        StatusCode.UNBOUNDED,
        "The objective is unbounded after 7 iterations: it decreased to -1.0e+20 along feasible points.",
    ),
    (
        termination.unstable_integration(3, "rate", 4.0),
        StatusCode.LINE_SEARCH_FAILED, "The integration is unstable: the time step at knot 3 multiplies rate by -4.",
    ),
    (termination.error(ValueError("no")), StatusCode.ERROR, "ValueError: no"),
    (termination.invalid(3, "dt is 0", contradictory=False), StatusCode.ERROR, "Problem 3 is invalid: dt is 0."),
])  # fmt: skip
def test_the_result_stands_first_then_numbers_then_places(status, code, message):
    assert (status.code, status.message) == (code, message)
    if "largest violation" in message:
        assert status.component == GOAL.name and status.advice


def test_numbers_that_did_not_decide_a_convergence_have_no_tolerance():
    status = termination.converged(Measured(9, Errors(1e-9, 1e-3, 0.0), TOLERANCES))
    assert status.message.endswith("1.0e-09 <= 1.0e-08, gradient 1.0e-03, defect 0.0e+00 <= 1.0e-09.")


def test_constraints_within_their_tolerance_are_not_named():
    status = termination.max_iterations(7, FAR._replace(worst=WorstConstraint("goal", 1e-7)))
    assert "goal" not in status.message and status.component is None


def test_success_needs_no_advice():
    assert not termination.precision_limit(NEAR).advice
    assert termination.precision_limit(FAR).advice
    assert not termination.cost_converged(7, 1e-4, 1e-3, 1e-9).advice
    assert termination.cost_converged(7, 1e-4, 1e-3, 1e-2).advice


def test_the_gauss_newton_hessian_is_advised_in_place_of_the_exact_one_alone():
    assert "hessian" in termination.not_positive_definite(3, 1e10, "exact").advice
    assert "hessian" not in termination.not_positive_definite(3, 1e10, "gauss_newton").advice


# -- the same by every solver -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", SOLVERS)
def test_one_iteration(solver):
    found = solve(pendulum(), solver, {"max_iterations": 1})
    assert found.status.code is StatusCode.MAX_ITERATIONS
    assert re.fullmatch(rf"Stopped at max_iterations = 1: {ERRORS}{WORST}\.", found.status.message)
    assert "scaled KKT error" in found.status.message and "gradient" in found.status.message
    assert found.status.advice.startswith(termination.MORE_ITERATIONS)
    assert found.iterations == found.history[-1].iteration == 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_time(solver):
    found = solve(pendulum(), solver, {"time_limit": 1e-9})
    assert found.status.code is StatusCode.TIME_LIMIT
    after = f"{found.iterations} iteration{'' if found.iterations == 1 else 's'}"
    assert re.fullmatch(rf"Stopped at time_limit = 1e-09 s after {after}: {ERRORS}{WORST}\.", found.status.message)
    assert found.status.advice == "Increase time_limit. Start from a better guess."


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_that_stops(solver):
    def stop(record):
        if record.iteration == 2:
            raise KeyboardInterrupt

    found = solve(pendulum(), solver, None, stop)
    assert found.status == termination.interrupted(2)
    assert found.iterations == found.history[-1].iteration == 2


@pytest.mark.parametrize("solver", SOLVERS)
def test_convergence(solver):
    found = solve(pendulum(), solver)
    assert re.fullmatch(rf"Converged after {found.iterations} iterations: {ERRORS}\.", found.status.message)
    assert found.history[-1].iteration == found.iterations


@pytest.mark.parametrize("solver", ["slq", "ipm", "sqp", "dms"])
def test_a_goal_out_of_reach(solver):
    found = solve(mass(limit=1.0), solver)
    assert found.status.code is StatusCode.LOCALLY_INFEASIBLE and found.status.component == "goal: position at knot 10"
    result = r"No feasible point nearby after \d+ iterations: a stationary point of the constraint violation"
    assert re.match(rf"{result}; largest violation: goal: position at knot 10, [\d.]+\b", found.status.message)


def test_bounds_that_contradict_each_other():
    manifold = sampled(textbook.double_integrator()).manifold
    low, high = (to.state_bounds(manifold, [a, -9.0], [b, 9.0], n) for a, b, n in ((-1, 0, "low"), (0.5, 1, "high")))
    ocp = mass(constraints=[low, high])
    expected = termination.infeasible(CrossedBounds("position at knot 1 (high)", 0.5, 0.0))
    assert [solve(ocp, solver).status for solver in ("ipm", "sqp", "dms")] == [expected] * 3


@pytest.mark.parametrize("solvers", [("ilqr", "slq", "ddp"), ("ipm", "sqp", "dms")])
def test_numbers_that_are_not_finite(solvers):
    broken = FunctionMap(lambda x, u, t, p: [x[1], u[0] / (x[0] - x[0])], 2, 1)
    ocp = to.OCP.single_phase(sampled(broken), np.zeros(2), 3, 0.1, [to.control_cost(1)])
    messages = {solve(ocp, solver).status.message for solver in solvers}
    assert len(messages) == 1 and messages.pop().startswith("NaN or infinity in the ")


def test_statuses_are_made_in_one_module():
    """Other modules of the solvers may wrap a status that they were given, and make none."""
    root = Path(termination.__file__).parents[1]
    making = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(rf"(?<!\w){Status.__name__}\((StatusCode|code)", path.read_text())
    }
    assert making == {"solvers/termination.py"}


@pytest.mark.parametrize(
    ("violation", "stationary", "code"),
    [
        (1e-2, True, StatusCode.LOCALLY_INFEASIBLE),
        (1e-2, False, StatusCode.STALLED),
        (6.5e-8, True, StatusCode.STALLED),
        (5e-5, True, StatusCode.STALLED),
    ],
)
def test_infeasibility_requires_a_certificate(violation, stationary, code):
    """Only a stationary point with a violation far above the tolerance is infeasible; others are stalled, with advice."""
    tolerances = termination.Errors(violation=1e-8)
    worst = termination.WorstConstraint("goal: x at knot 9", violation)
    at = termination.Measured(7, termination.Errors(violation=violation), tolerances, worst)
    status = termination.violation_remains(at, stationary=stationary)
    assert status.code is code and status.component == "goal: x at knot 9"
    if code is StatusCode.STALLED:
        assert "contradict" not in status.message and "No feasible" not in status.message
        assert "guess" in status.advice and "goal_tolerance" in status.advice


@pytest.mark.parametrize("stationary", [True, False])
def test_no_constraint_is_blamed_if_only_defects_stay_open(stationary):
    at = Measured(9, Errors(violation=0.7), Errors(violation=1e-8))
    advice = termination.violation_remains(at, stationary=stationary).advice
    assert "named constraint" not in advice and "defects" in advice


def test_descent_needs_a_fall_that_goes_on():
    def first(*costs, **guess):
        descent = termination.Descent(**guess)
        return [descent.is_unbounded(cost) for cost in costs]

    assert first(0.0, -1e9, -2e10, -2e10, -2.1e10) == [False, False, False, False, True]
    assert not any(first(-2e10, -4e10, gradient=10.0)) and not any(first(-2e10, -4e10, objective=10.0))


@pytest.mark.parametrize(
    ("kkt", "first", "gradient", "last", "unbounded"),
    [
        (1.0, 0.0, 0.1, -2e6, True),
        (1e-5, 0.0, 0.1, -2e6, False),
        (1.0, 0.0, 3.0, -2e6, False),
        (1.0, -3.0, 0.1, -2e6, False),
        (1.0, np.inf, 0.1, -2e6, False),
    ],
)
def test_a_failure_far_below_the_guess_seems_unbounded(kkt, first, gradient, last, unbounded):
    failed = termination.max_iterations(5, termination.Measured(5, termination.Errors(kkt), termination.Errors()))
    status = termination.fell_far(failed, first, gradient, last)
    assert (status.code is StatusCode.UNBOUNDED) == unbounded and (unbounded or status is failed)


@pytest.mark.parametrize("solver", ["slq", "ilqr", "gnms", "fddp", "ddp", "ipm", "sqp"])
def test_a_cost_that_falls_without_bound_is_unbounded(solver):
    """Moving away pays quadratically more than forces cost."""
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    away = to.objective_term("away", lambda x, u, t, p: [-100.0 * x[0] * x[0]], cart.manifold, 1)
    step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    found = to.solve(to.OCP.single_phase(step, [-0.1, 0.0], 20, 0.1, [to.control_cost(1), away]), solver=solver)
    assert found.status.code is StatusCode.UNBOUNDED and found.cost < -1e10 and found.iterations < 30
    assert "decreased to -" in found.status.message


@pytest.mark.parametrize("solver", ["ipm", "dms"])
def test_a_goal_out_of_reach_is_named_and_not_the_rest_at_the_end(solver):
    """The force and the time allow a way of 0.25 m; the states stop in time, short of the goal."""
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "rk4")
    goal = to.residual_constraint("goal", lambda x, u, t, p: [x[0] - 3.0], 2, 1)
    rest = to.residual_constraint("rest", lambda x, u, t, p: [x[1]], 2, 1)
    ocp = to.OCP.single_phase(
        step,
        [0.0, 0.0],
        10,
        0.1,
        [to.control_cost(1)],
        terminal_constraints=[goal, rest],
        u_lower=[-1.0],
        u_upper=[1.0],
    )
    status = to.solve(ocp, solver=solver, check=False).status
    assert status.code is to.StatusCode.LOCALLY_INFEASIBLE
    assert status.component.startswith("goal") and "in the rollout" not in status.message


@pytest.mark.parametrize("solver", ["slq", "ilqr"])
def test_a_control_without_curvature_is_named_after_a_failure(solver):
    """Catalyst mixing: the cost is linear in the final state."""

    def mixing(x, u, t, p):
        return [u[0] * (10 * x[1] - x[0]), u[0] * (x[0] - 10 * x[1]) - (1 - u[0]) * x[1]]

    product = to.objective_term("product", lambda x, u, t, p: [x[0] + x[1] - 1], to.vector_space(2))
    dynamics = sampled(FunctionMap(mixing, 2, 1))
    linear = to.OCP.single_phase(dynamics, [1.0, 0.0], 20, 0.05, [], [product], u_lower=0.0, u_upper=1.0)
    status = to.solve(linear, options={"max_iterations": 5}, solver=solver).status
    named = (
        f"The Hessian of the running cost is zero in u[0], and {solver} omits the second derivatives of the dynamics"
    )
    assert named in status.advice and "solver = 'auto', 'ipm' or 'ddp'" in status.advice
    assert "zero in" not in to.solve(linear, options={"max_iterations": 2}, solver="ddp").status.advice
    assert "zero in" not in to.solve(pendulum(), options={"max_iterations": 1}, solver=solver).status.advice
    in_numpy = {"name": "forward_ad", "engine": "numpy"}
    failed = to.solve(pendulum(), options={"max_iterations": 1}, solver=solver, backend=in_numpy)
    assert not failed.status.success and "zero in" not in failed.status.advice


@pytest.mark.parametrize("solver", ["slq", "ipm"])
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_units_of_large_states_are_named_after_a_failure(solver, unit):
    """An orbit around the Earth, in meters or in thousands of kilometers."""
    mu, r0 = 3.986e14 * unit**3, 7e6 * unit

    def orbit(x, u, t, p):
        r3 = (x[0] * x[0] + x[1] * x[1]) ** 1.5
        return [x[2], x[3], u[0] - mu * x[0] / r3, u[1] - mu * x[1] / r3]

    step = to.SampledSystem(
        to.FunctionMap(orbit, 4, 2, second_order=True), "semi_implicit_euler"
    )  # which is not scaled
    goal = to.state_bounds(4, [-np.inf, 1.1 * r0, -np.inf, -np.inf], [np.inf] * 4)
    x0 = [r0, 0.0, 0.0, np.sqrt(mu / r0)]
    ocp = to.OCP.single_phase(step, x0, 10, 100.0, [to.control_cost(2)], terminal_constraints=[goal])
    status = to.solve(ocp, solver=solver, options={"max_iterations": 1}).status
    assert status.code is StatusCode.MAX_ITERATIONS
    assert ("x[0] is as large as 7e+06" in status.advice) == (unit == 1.0)
