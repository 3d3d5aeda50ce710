"""Constraints of the shooting solvers: the penalized problem, optima found otherwise, statuses, warm starts."""

import numpy as np
import pytest
import textbook_systems as textbook
from slq_solve import solve

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from trajopt import (
    OCP,
    Guess,
    SampledSystem,
    StatusCode,
    bounded,
    constant_guess,
    control_cost,
    quadratize,
    residual_constraint,
    solver_options,
    state_bounds,
    state_cost,
)
from trajopt.solvers.ddp import ddp
from trajopt.solvers.options import DDPOptions, SLQOptions
from trajopt.solvers.shooting.augmented_lagrangian import solve_constrained
from trajopt.solvers.shooting.penalized import augmented, worst_violation
from trajopt.solvers.slq import slq

H, N = 0.1, 10


def sampled(system, substeps=1):
    return SampledSystem(make_backend(system, "forward_ad"), "rk4", substeps)


def mass(limit=None, **fields):
    """A mass from rest to rest, one meter in one second, with least effort."""
    dynamics = sampled(textbook.double_integrator())
    goal = bounded(state_cost(dynamics.manifold, [1.0, 0.0]), name="goal")
    bounds = {} if limit is None else {"u_lower": [-limit], "u_upper": [limit]}
    return OCP.single_phase(
        dynamics,
        np.zeros(2),
        N,
        H,
        **({"running": [control_cost(1)], "terminal_constraints": [goal]} | bounds | fields),
    )


def reach():
    """x_N = reach u for the mass."""
    A, B = np.array([[1.0, H], [0.0, 1.0]]), np.array([[H * H / 2], [H]])
    return np.hstack([np.linalg.matrix_power(A, N - 1 - k) @ B for k in range(N)])


@pytest.mark.parametrize("solver", ["slq", "ilqr", "gnms", "fddp", "ddp"])
def test_least_effort_and_its_multiplier(solver):
    """minimize H/2 |u|^2 subject to R u = c: H u + R'y = 0, so y = -H (R R')^-1 c."""
    R, c = reach(), np.array([1.0, 0.0])
    s = solve(mass(), solver=solver)
    assert s.status.code == StatusCode.CONVERGED, s.status
    np.testing.assert_allclose(s.us[:, 0], np.linalg.pinv(R) @ c, atol=1e-4)
    np.testing.assert_allclose(s.xs[-1], c, atol=1e-6)
    y = -H * np.linalg.solve(R @ R.T, c)
    np.testing.assert_allclose(s.multipliers["terminal goal"][0], y, rtol=1e-4)
    assert s.cost == pytest.approx(0.5 * H * np.sum(s.us**2), rel=1e-12)


def test_an_inequality_of_the_path_is_active_with_the_right_sign():
    """A speed limit of 1.2 m/s: the best profile touches it, with a positive multiplier, and nothing elsewhere."""
    manifold = sampled(textbook.double_integrator()).manifold
    slow = state_bounds(manifold, [-np.inf, -np.inf], [np.inf, 1.2], "slow")
    s = solve(mass(constraints=[slow]))
    assert s.status.success, s.status
    assert s.xs[:, 1].max() == pytest.approx(1.2, abs=1e-6)
    y = s.multipliers["slow"][:, 0]
    active = s.xs[:-1, 1] > 1.2 - 1e-5
    assert active.any() and not active.all()
    assert (y[active] >= 0.0).all() and y.max() > 1.0 and (y[~active] == 0.0).all()
    R = reach()
    speeds = np.hstack([np.tril(np.ones((N, N))) * H])[:-1]  # v_k = H sum u, k = 1 .. N - 1
    gradient = H * s.us[:, 0] + speeds.T @ y[1:] + R.T @ s.multipliers["terminal goal"][0]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


def swing_up():
    dynamics = sampled(textbook.cart_pole(), 2)
    goal, free = np.array([0.0, np.pi, 0.0, 0.0]), np.full(3, np.inf)
    track = state_bounds(dynamics.manifold, np.r_[-0.5, -free], np.r_[0.5, free], "track")
    fields = {
        "constraints": [track],
        "terminal_constraints": [bounded(state_cost(dynamics.manifold, goal), name="goal")],
    }
    ocp = OCP.single_phase(
        dynamics,
        np.zeros(4),
        25,
        0.06,
        [control_cost(1, reference=0.0, weight=0.1)],
        u_lower=[-20.0],
        u_upper=[20.0],
        **fields,
    )
    return ocp


@pytest.mark.parametrize("solver", ["slq", "ddp"])
def test_the_same_optimum_as_direct_multiple_shooting(solver):
    pytest.importorskip("cyipopt")
    ocp = swing_up()
    goal = np.array([0.0, np.pi, 0.0, 0.0])
    guess = Guess(np.linspace(0.0, 1.0, 26)[:, None] * goal, np.zeros((25, 1)))
    direct = solve(ocp, guess, solver="dms", check=False)  # the track is exceeded between these long time steps
    shooting = solve(ocp, guess, {"max_iterations": 600}, solver=solver, check=False)
    assert direct.status.success and shooting.status.success, shooting.status
    assert shooting.cost == pytest.approx(direct.cost, rel=1e-5)
    np.testing.assert_allclose(shooting.xs, direct.xs, atol=1e-4)
    assert np.abs(shooting.xs[:-1, 0]).max() <= 0.5 + 1e-6
    y, z = shooting.multipliers["track"][1:, 0], direct.multipliers["bounds on x"][1:-1, 0]
    np.testing.assert_allclose(y, z, atol=2e-3 * np.abs(z).max())


def penalized_problem(ocp):
    """The problem without constraints of an inner solve with the penalty 1."""
    return augmented(ocp, 1.0)


def test_the_gradient_of_the_penalty_is_that_of_the_next_multiplier():
    """d/dx rho/2 |z - P(z)|^2 = J'y with y = rho (z - P(z)), inside, outside and on an equality."""
    manifold = sampled(textbook.double_integrator()).manifold

    def curved(x, u, t, p):
        return [x[0] * x[1], x[0] - x[1], x[1]]

    c = residual_constraint("c", curved, manifold, 3, [-np.inf, -1.0, 0.5], [0.3, 1.0, 0.5])
    ocp = mass(terminal_constraints=[c])
    x = np.array([[0.9, 0.8]])
    term = penalized_problem(ocp).terminal[0]
    g, (lower, upper) = np.array([0.72, 0.1, 0.8]), (b[0] for b in c.bounds(1))
    y = g - np.clip(g, lower, upper)
    J = np.array([[0.8, 0.9], [1.0, -1.0], [0.0, 1.0]])
    np.testing.assert_allclose(quadratize(term, x, np.zeros((1, 0)), 0.0).lx[0], J.T @ y, atol=1e-14)


def test_a_constraint_names_its_parameters_as_it_likes():
    """Also like those of the penalty."""
    manifold = sampled(textbook.double_integrator()).manifold

    def moved(x, u, t, p):
        return [x[0] + p["shift"][0] + p["lower"][0]]

    c = residual_constraint("c", moved, manifold, 1, 0.0, 0.0, parameters={"shift": [0.3], "lower": [0.1]})
    term = penalized_problem(mass(terminal_constraints=[c])).terminal[0]
    found = quadratize(term, np.array([[0.2, 0.0]]), np.zeros((1, 0)), 0.0)
    np.testing.assert_allclose(found.value, 0.5 * 0.6**2, rtol=1e-14)


def test_the_inner_problem_has_no_constraints_and_the_same_structure_for_new_values():
    ocp = mass(constraints=[state_bounds(sampled(textbook.double_integrator()).manifold, -3.0, 3.0)])
    first, second = penalized_problem(ocp), penalized_problem(ocp.updated("state bounds", upper=2.0))
    assert first.constraints() == []
    for a, b in zip(first.terms(), second.terms(), strict=True):
        assert a.residual is b.residual
    assert not first.phases[0].terms[-1].weight[0].any()  # x0 is given


def test_an_unreachable_goal_is_named():
    s = solve(mass(limit=1.0))
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE
    assert s.status.component == "goal: position at knot 10", s.status


@pytest.mark.parametrize("weight", [1e8, 1e10])
def test_the_largest_penalty_grows_with_the_cost(weight):
    """The problem is linear-quadratic and feasible; a penalty limit below the cost is no proof of the contrary."""
    problem = mass(running=[control_cost(1, weight=weight)])
    found = solve(problem)
    assert found.status.success
    np.testing.assert_allclose(found.cost / weight, solve(mass(running=[control_cost(1)])).cost, rtol=1e-5)
    limited = solve(problem, options={"max_constraint_penalty": 10.0 / weight, "constraint_penalty": 10.0 / weight})
    assert limited.status.code == StatusCode.STALLED and "without proof" in limited.status.message


def test_too_few_updates_are_reported_with_the_constraint():
    s = solve(mass(), options={"max_outer_iterations": 1})
    assert s.status.code == StatusCode.MAX_ITERATIONS
    assert "largest violation: goal: position at knot 10" in s.status.message
    assert worst_violation(mass(), s.xs, s.us).violation > 1e-6


def test_iterations_of_all_inner_solves_are_one_account():
    seen = []
    s = solve(mass(), callback=seen.append)
    assert tuple(seen[:-1]) == s.history[:-1]
    assert [r.iteration for r in seen] == [r.iteration for r in s.history] == list(range(s.iterations + 1))
    assert seen[0].constraint_violation == pytest.approx(1.0)
    assert seen[-1].constraint_violation <= 1e-3


def test_limits_and_interrupts_end_the_outer_loop():
    s = solve(mass(), options={"max_iterations": 2})
    assert s.status.code == StatusCode.MAX_ITERATIONS
    assert s.iterations == 2 and len(s.history) == 3

    def impatient(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    s = solve(swing_up(), callback=impatient)
    assert s.status.code == StatusCode.INTERRUPTED
    assert np.isfinite(s.cost)


def test_an_interrupt_at_the_last_record_leaves_the_solution():
    records = len(solve(mass()).history)

    def at_the_end(record):
        if record.iteration == records - 1:
            raise KeyboardInterrupt

    s = solve(mass(), callback=at_the_end)
    assert s.status.code == StatusCode.INTERRUPTED and len(s.history) == records
    assert s.history[-1].constraint_violation <= 1e-3


def test_the_last_record_is_of_the_point_returned():
    s = solve(mass())
    assert s.history[-1].cost == s.cost
    worst = worst_violation(mass(), s.xs, s.us)
    assert s.history[-1].constraint_violation == (0.0 if worst is None else worst.violation)
    assert s.iterations == len(s.history) - 1


def test_a_limit_of_iterations_names_the_violated_constraint():
    status = solve(mass(limit=1.0), options={"max_iterations": 5}).status
    assert status.code == StatusCode.MAX_ITERATIONS
    assert "max_iterations = 5:" in status.message
    assert status.component == "goal: position at knot 10"


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 9, 14, 17])
@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp"])
def test_iterations_of_all_inner_solves_keep_their_limit(solver, limit):
    s = solve(mass(), options={"max_iterations": limit}, solver=solver)
    assert s.iterations <= limit and s.us.any() == (limit > 0)
    assert s.status.success or (
        s.status.code == StatusCode.MAX_ITERATIONS and f"max_iterations = {limit}:" in s.status.message
    )


def test_a_roll_out_leads_away_from_where_a_constraint_is_not_finite():
    """Single shooting rolls the controls of the guess out, whose states count for nothing."""
    manifold = sampled(textbook.double_integrator()).manifold
    pole = residual_constraint("pole", lambda x, u, t, p: [1.0 / (x[0] - 0.1)], manifold, 1, -20.0, 1e6)
    guess = Guess(np.tile([0.1, 0.0], (N + 1, 1)), np.ones((N, 1)))
    with np.errstate(all="ignore"):
        s, other = (solve(mass(constraints=[pole]), guess, solver=name) for name in ("ilqr", "fddp"))
    assert s.status.code != StatusCode.NON_FINITE and s.iterations > 1
    assert other.status.code == StatusCode.NON_FINITE and other.iterations == 0


def test_a_constraint_that_is_not_finite_is_named():
    manifold = sampled(textbook.double_integrator()).manifold
    pole = residual_constraint("pole", lambda x, u, t, p: [1.0 / (x[0] - x[0])], manifold, 1, -1.0, 1.0)
    with np.errstate(all="ignore"):
        status = solve(mass(constraints=[pole])).status
    assert status.code == StatusCode.NON_FINITE
    assert status.component == "pole: f[0] at knot 1"


def test_multipliers_of_an_earlier_solution_save_iterations():
    ocp, options = mass(), SLQOptions()
    cold = solve(ocp)
    guess = Guess(cold.xs, cold.us)
    warm = solve_constrained(ocp, guess, options, None, slq, cold.multipliers)
    plain = solve_constrained(ocp, constant_guess(ocp), options, None, slq)
    assert warm.status.success
    assert warm.iterations < plain.iterations
    assert warm.cost == pytest.approx(cold.cost, rel=1e-6)


def test_inner_solves_with_control_bounds_start_near_the_last_one():
    """Two controls of opposite sign, of which one is on its bound at every knot."""
    push = FunctionMap(lambda x, u, t, p: [u[0] - u[1]], 1, 2)
    goal = residual_constraint("goal", lambda x, u, t, p: [x[0] - 1.0], Manifold.vector(1), 1)
    ocp = OCP.single_phase(sampled(push), [0.0], 20, 0.1, [control_cost(2)], terminal_constraints=[goal], u_lower=0.0)
    found = solve(ocp, solver="ddp")
    again = solve_constrained(ocp, Guess(found.xs, found.us), DDPOptions(), None, ddp, found.multipliers)
    for solution, most in ((found, 35), (again, 25)):
        assert solution.status.code is StatusCode.CONVERGED and solution.iterations <= most
        np.testing.assert_allclose(solution.cost, 0.25, atol=1e-6)


def test_options_are_checked():
    for key, value in (("constraint_tolerance", 0.0), ("constraint_penalty", -1.0), ("max_outer_iterations", 0)):
        with pytest.raises(ValueError, match=key):
            solver_options("slq", **{key: value})
