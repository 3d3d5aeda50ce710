"""Direct multiple shooting with IPOPT: optima known otherwise, statuses, records, multipliers, options."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import textbook_systems as textbook
from direct_cases import SparseProgram, mass, sampled, swing_up
from slq_solve import solve

import trajopt as to
from dynamics_backends.protocol import FunctionMap
from trajopt import (
    OCP,
    Guess,
    Solution,
    StatusCode,
    constant_guess,
    control_cost,
    interpolated_guess,
    solver_options,
    state_bounds,
    state_cost,
)
from trajopt.solvers.direct.dms import dms
from trajopt.solvers.nlp.ipopt import MissingIpopt, Multipliers, solve_ipopt
from trajopt.solvers.options import DMSOptions

pytest.importorskip("cyipopt")
REST = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


# -- optima -------------------------------------------------------------------------------------------------------------


def test_least_effort_is_the_least_norm_solution():
    """With x_(k+1) = A x_k + B u_k the controls of least norm that reach the goal are a pseudoinverse away."""
    h, N = 0.1, 10
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([[h * h / 2], [h]])
    reach = np.hstack([np.linalg.matrix_power(A, N - 1 - k) @ B for k in range(N)])
    u = np.linalg.pinv(reach) @ [1.0, 0.0]
    s = solve(mass(), solver="dms")
    assert s.status.code == StatusCode.CONVERGED, s.status
    np.testing.assert_allclose(s.us[:, 0], u, atol=1e-9)
    assert s.cost == pytest.approx(0.5 * h * u @ u, rel=1e-9)
    np.testing.assert_allclose(s.xs[-1], [1.0, 0.0], atol=1e-12)


def test_an_active_bound_is_met():
    ocp, guess = swing_up()
    s = solve(ocp, guess, solver="dms", check=False)
    assert s.status.success, s.status
    assert np.abs(s.xs[:-1, 0]).max() <= 0.5 and np.abs(s.us).max() <= 20.0
    assert np.abs(s.xs[:, 0]).max() == pytest.approx(0.5, abs=1e-6)
    simulated = [ocp.x0]
    for u, dt in zip(s.us, ocp.dt, strict=True):
        simulated.append(ocp.phases[0].dynamics.step(simulated[-1][None], u[None], 0.0, dt)[0])
    np.testing.assert_allclose(np.array(simulated), s.xs, atol=1e-6)


def test_hessians_and_barriers_agree_on_the_optimum():
    ocp, guess = swing_up()
    names = ("exact", "gauss_newton", "limited_memory")
    costs = [solve(ocp, guess, {"hessian": name}, solver="dms").cost for name in names]
    costs.append(solve(ocp, guess, {"barrier_strategy": "adaptive", "barrier": 0.01}, solver="dms").cost)
    np.testing.assert_allclose(costs, costs[0], rtol=1e-7)


@pytest.mark.parametrize("horizon", [4, 9])
def test_least_effort_with_linear_controls(horizon):
    """The controls at the nodes that minimize the trapezoidal sum of u^2/2: weighted least squares on hat functions.

    A force f(t) moves the mass by int (1 - t) f dt and speeds it up by int f dt; Simpson's rule is exact for both.
    """
    h, t = 1.0 / horizon, np.linspace(0.0, 1.0, horizon + 1)
    reach = np.zeros((2, horizon + 1))
    for k in range(horizon):
        left, middle, right = t[k], 0.5 * (t[k] + t[k + 1]), t[k + 1]
        for node, shape in ((k, (1.0, 0.5, 0.0)), (k + 1, (0.0, 0.5, 1.0))):
            moments = [[(1.0 - s) * v, v] for s, v in zip((left, middle, right), shape, strict=True)]
            reach[:, node] += h / 6.0 * np.array([1.0, 4.0, 1.0]) @ np.array(moments)
    weight = h * np.r_[0.5, np.ones(horizon - 1), 0.5]
    u = np.linalg.pinv(reach / np.sqrt(weight)) @ [1.0, 0.0] / np.sqrt(weight)
    s = solve(mass(horizon=horizon), options={"hold": "first_order"}, solver="dms")
    assert s.status.success, s.status
    np.testing.assert_allclose(s.us[:, 0], u[:-1], atol=1e-8)
    assert s.cost == pytest.approx(0.5 * weight @ u**2, rel=1e-9)


def test_reorientation_is_the_optimum_of_another_solver():
    dynamics = sampled(textbook.spinning_body())
    goal = dynamics.manifold.integrate(REST[:, None], np.array([[1.0, -1.0, 0.5, 0.0, 0.0, 0.0]]).T)[:, 0]
    ocp = OCP.single_phase(
        dynamics,
        REST,
        8,
        0.1,
        [control_cost(3, reference=0.0, weight=0.1)],
        [state_cost(dynamics.manifold, goal, 50.0)],
    )
    guess = interpolated_guess(ocp, goal)
    direct, shooting = solve(ocp, guess, solver="dms"), solve(ocp, guess, solver="gnms")
    assert direct.status.success and shooting.status.success
    assert direct.cost == pytest.approx(shooting.cost, rel=1e-9)
    np.testing.assert_allclose(direct.xs, shooting.xs, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(direct.xs[:, :4], axis=1), 1.0, atol=1e-12)


def test_multipliers_satisfy_the_optimality_conditions():
    ocp, guess = swing_up()
    p = SparseProgram(ocp, guess)
    found = solve_ipopt(p, p.variables(*guess))
    gradient, J = p.differentiate(found.w)
    residual = gradient + found.multipliers @ J + found.bound_multipliers
    fixed = p.x_lower == p.x_upper
    assert np.abs(residual[~fixed]).max() <= 1e-7
    above, below = p.x_upper - found.w, found.w - p.x_lower
    assert (np.where(found.bound_multipliers > 1e-5, above, 0.0)[~fixed] <= 1e-5).all()
    assert (np.where(found.bound_multipliers < -1e-5, below, 0.0)[~fixed] <= 1e-5).all()


def test_a_warm_start_takes_fewer_iterations():
    ocp, guess = swing_up()
    p = SparseProgram(ocp, guess)
    cold = solve_ipopt(p, p.variables(*guess))
    warm = Multipliers(cold.multipliers, cold.bound_multipliers)
    again = solve_ipopt(p, cold.w, DMSOptions(barrier=1e-8), warm=warm)
    assert again.status.success
    assert again.iterations <= 3 < cold.iterations
    solution = solve(ocp, guess, solver="dms")
    named = dms(ocp, Guess(solution.xs, solution.us), DMSOptions(barrier=1e-8), multipliers=solution.multipliers)
    estimated = dms(ocp, Guess(solution.xs, solution.us), DMSOptions(barrier=1e-6))
    assert named.iterations <= 3 and estimated.iterations <= 3
    np.testing.assert_allclose([named.cost, estimated.cost], solution.cost, rtol=1e-8)


def test_gains_bring_a_disturbed_motion_to_the_goal():
    ocp, guess = swing_up(2.0)
    s = solve(ocp, guess, solver="dms")
    ends = []
    for K in (s.K, 0.0 * s.K):
        x = s.xs[0] + [0.0, 0.05, 0.0, 0.0]
        for u, gain, reference, dt in zip(s.us, K, s.xs, ocp.dt, strict=False):
            x = ocp.phases[0].dynamics.step(x[None], (u + gain @ (x - reference))[None], 0.0, dt)[0]
        ends.append(np.abs(x - s.xs[-1]).max())
    assert ends[0] <= 0.02 * ends[1]


# -- statuses -----------------------------------------------------------------------------------------------------------


def test_an_unreachable_goal_is_named():
    s = solve(mass(limit=1.0), solver="dms")
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE
    assert s.status.component == "goal: position at knot 10", s.status
    assert "Relax the named constraint" in s.status.advice


def test_an_unreachable_bound_on_a_state_is_named():
    far = state_bounds(sampled(textbook.double_integrator()).manifold, [1.0, -np.inf], [np.inf, np.inf], "far")
    s = solve(mass(limit=1.0, terminal_constraints=[far]), solver="dms")
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE
    assert s.status.component == "the bound on position at knot 10 (far)"


def test_bounds_that_contradict_each_other_are_named():
    manifold = sampled(textbook.double_integrator()).manifold
    low, high = (state_bounds(manifold, [a, -9.0], [b, 9.0], name) for a, b, name in ((-1, 0, "low"), (0.5, 1, "high")))
    s = solve(mass(constraints=[low, high]), solver="dms", check=False)
    assert s.status.code == StatusCode.INFEASIBLE
    assert "position at knot 1 (high) contradict each other: lower 0.5 > upper 0" in s.status.message


def test_limits_of_iterations_and_time():
    ocp, guess = swing_up()
    s = solve(ocp, guess, {"max_iterations": 3}, solver="dms")
    assert (s.status.code, s.iterations) == (StatusCode.MAX_ITERATIONS, 3)
    assert "largest violation: dynamics of" in s.status.message
    s = solve(ocp, guess, {"time_limit": 1e-9}, solver="dms")
    assert s.status.code == StatusCode.TIME_LIMIT
    assert s.xs.shape == (26, 4)


def test_an_interrupt_returns_the_best_iterate():
    ocp, guess = swing_up()
    violations = []

    def impatient(record):
        violations.append(record.constraint_violation)
        if record.iteration == 4:
            raise KeyboardInterrupt

    s = solve(ocp, guess, callback=impatient, solver="dms")
    assert s.status.code == StatusCode.INTERRUPTED
    p = SparseProgram(ocp, guess)
    _, g = p.evaluate(p.variables(s.xs, s.us))
    assert np.maximum(p.g_lower - g, g - p.g_upper).max() <= min(violations) + 1e-12


def test_numbers_that_are_not_finite_are_located():
    broken = FunctionMap(lambda x, u, t, p: [x[1], u[0] / (x[0] - x[0])], 2, 1)
    s = solve(OCP.single_phase(sampled(broken), np.zeros(2), 3, 0.1, [control_cost(1)]), solver="dms")
    assert s.status.code == StatusCode.NON_FINITE
    assert "dynamics of x[0] from knot 0" in s.status.message


def test_derivatives_that_are_not_finite_are_located():
    root = FunctionMap(lambda x, u, t, p: [u[0] - np.sqrt(x[0])], 1, 1)  # infinite slope at the states of the guess
    ocp = OCP.single_phase(to.SampledSystem(root, "euler"), [1.0], 3, 0.1, [control_cost(1)])
    s = solve(ocp, Guess(np.array([[1.0], [1.0], [0.0], [1.0]]), np.zeros((3, 1))), solver="dms")
    assert s.status.code == StatusCode.NON_FINITE
    assert "a derivative of dynamics of x[0] from knot 2" in s.status.message
    assert "to.state_bounds" in s.status.advice


NOTHING = np.zeros(0, int), np.zeros(0, int)


def test_a_cost_without_end_is_unbounded():
    class Falling:
        x_lower, x_upper = np.full(1, -np.inf), np.full(1, np.inf)
        g_lower = g_upper = np.zeros(0)
        x_names, g_names = ("w",), ()

        def evaluate(self, w):
            return float(w[0]), np.zeros(0)

        def patterns(self):
            return NOTHING, NOTHING

        def differentiate(self, w):
            return np.ones(1), sp.csc_matrix((0, 1))

        def hessian(self, w, sigma, multipliers):
            return sp.csc_matrix((1, 1))

    assert solve_ipopt(Falling(), np.zeros(1)).status.code == StatusCode.UNBOUNDED


def test_more_equations_than_variables_are_named():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    rows = [to.residual_constraint(name, lambda x, u, t, p: [u[0] - 2.0], 2, 1, nu=1) for name in ("a", "b")]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)], constraints=rows)
    status = to.solve(ocp, solver="dms").status
    assert status.code == "stalled" and "more equations than free variables" in status.message
    assert "Remove an equality" in status.advice and status.component == "a: f[0] at knot 0"


def test_without_cyipopt_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyipopt", None)
    with pytest.raises(MissingIpopt, match=r"python tools/install_cyipopt\.py"):
        solve(mass(), solver="dms")


# -- records, options, file ---------------------------------------------------------------------------------------------


def test_every_iteration_is_recorded():
    ocp, guess = swing_up()
    seen = []
    s = solve(ocp, guess, callback=seen.append, solver="dms")
    assert tuple(seen) == s.history
    assert [r.iteration for r in seen] == list(range(s.iterations + 1))
    first, last = seen[0], seen[-1]
    p = SparseProgram(ocp, guess)
    gaps = p.evaluate(p.variables(*guess))[1][: p.N * p.n]
    assert first.defect == pytest.approx(np.abs(gaps).max(), rel=0.2)  # IPOPT moves the guess off its bounds
    assert last.stop <= 1.0 and last.step_length == 0.0
    assert all(0.0 < r.step_length <= 1.0 for r in seen[:-1])
    assert last.cost == pytest.approx(s.cost, rel=1e-12)
    assert all(r.times["derivatives"] > 0.0 for r in seen[1:-1])


def test_a_problem_without_constraints_or_guess():
    dynamics = sampled(textbook.double_integrator())
    ocp = OCP.single_phase(dynamics, [1.0, 0.0], 5, 0.1, [control_cost(1), state_cost(dynamics.manifold, np.zeros(2))])
    direct, shooting = solve(ocp, solver="dms"), solve(ocp, solver="slq")
    assert direct.cost == pytest.approx(shooting.cost, rel=1e-10)


def test_options():
    options = solver_options("dms", hold="first_order", ipopt={"mumps_scaling": 8})
    assert options == DMSOptions(hold="first_order", ipopt={"mumps_scaling": 8})
    bad = {
        "hold": ("third_order", "expected 'zero_order' or 'first_order'"),
        "hessian": ("bfgs", "'exact' or 'gauss_newton' or 'limited_memory'"),
        "barrier": (0.0, "a positive number"),
        "max_iterations": (-1, "an integer of at least 0"),
        "time_limit": (0.0, "None or a positive number"),
    }
    for key, (value, message) in bad.items():
        with pytest.raises(ValueError, match=message):
            DMSOptions(**{key: value})
    with pytest.raises(ValueError, match="did you mean 'barrier'"):
        solver_options("dms", barier=1.0)
    with pytest.raises(ValueError, match="IPOPT does not accept color = 1"):
        solve(mass(), options={"ipopt": {"color": 1}}, solver="dms")


def test_multipliers_are_saved(tmp_path):
    s = solve(mass(limit=20.0), solver="dms")
    loaded = Solution.load(s.save(tmp_path / "solution.npz"))
    assert set(loaded.multipliers) == {"dynamics", "terminal goal", "bounds on x", "bounds on u"}
    for name, value in s.multipliers.items():
        np.testing.assert_array_equal(loaded.multipliers[name], value)
    np.testing.assert_array_equal(loaded.K, s.K)


def test_guesses_off_the_dynamics_and_the_bounds_are_welcome():
    ocp = mass(limit=7.0)
    rng = np.random.default_rng(0)
    wild = Guess(rng.standard_normal((11, 2)), 50.0 * rng.standard_normal((10, 1)))
    costs = [solve(ocp, guess, solver="dms").cost for guess in (wild, constant_guess(ocp))]
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"max_iter": 2}, "max_iterations", "max_iterations = 2"),
        ({"linear_solver": "ma57"}, "error", "IPOPT ended before it began, with the return code -12"),
    ],
)
def test_options_of_ipopt_are_named_in_the_status(given, code, named):
    ocp, guess = swing_up()
    found = solve(ocp, guess, {"ipopt": given}, solver="dms")
    assert found.status.code == code and named in found.status.message


def test_iterates_that_diverge_do_not_show_an_unbounded_objective():
    """The largest area under a curve of given length: bounded, but from a straight line IPOPT's iterates exceed 1e20."""
    curve = to.FunctionMap(lambda x, u, t, p: [u[0], np.sqrt(1.0 + u[0] ** 2)], 2, 1)
    area = to.objective_term("area", lambda x, u, t, p: [-x[0]], curve.manifold, 1e3)
    length = to.residual_constraint("length", lambda x, u, t, p: [x[0], x[1] - np.pi / 3], curve.manifold, 2)
    ocp = to.OCP.single_phase(
        to.SampledSystem(curve, "rk4"), [0.0, 0.0], 80, 1 / 80, [area], terminal_constraints=[length]
    )
    found = to.solve(ocp, solver="dms")
    assert found.status.code == "stalled" and "The iterates diverged" in found.status.message


def test_a_rollout_that_overflows_names_no_cause():
    """It would be infinite; no warnings of NumPy either."""
    unstable = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[0] * x[0] + u[0]], 1, 1), "rk4")
    below = to.state_bounds(1, -1.0, 3.0)
    ocp = to.OCP.single_phase(
        unstable, [2.0], 10, 0.5, [to.control_cost(1)], constraints=[below], u_lower=-1.0, u_upper=1.0
    )
    found = to.solve(ocp, solver="dms", check=False)
    assert found.status.code.value == "locally_infeasible" and "in the rollout" not in found.status.message
