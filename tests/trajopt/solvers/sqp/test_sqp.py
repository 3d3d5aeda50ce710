"""SQP on textbook problems, degenerate, infeasible and unbounded ones; real-time iterations; optimal control."""

import numpy as np
import pytest
import textbook_systems as textbook
from hock_schittkowski import ALL, NW_EXAMPLE_19_1, Problem, Taylor, TextbookNLP, full, rosenbrock, squares
from slq_solve import solve

import trajopt as to
from dynamics_backends.registry import make_backend
from trajopt import (
    OCP,
    SampledSystem,
    SQPOptions,
    StatusCode,
    bounded,
    control_cost,
    residual_constraint,
    state_bounds,
    state_cost,
)
from trajopt.guesses.guesses import Guess, WarmStart, constant_guess
from trajopt.replanning.real_time_sqp import RealTimeSQP
from trajopt.results.records import Journal
from trajopt.solvers.sqp.sqp import solve_nlp
from trajopt.solvers.sqp.sqp_acceptance import Step
from trajopt.solvers.sqp.sqp_iterate import iterate_at, trial
from trajopt.solvers.sqp.sqp_line_search import LineSearch

ACCURACY = 1e-8
SETTINGS = [
    {},
    {"qp_solver": "osqp"},
    {"qp_solver": "daqp"},
]


def _solve(problem, w=None, callback=None, **options):
    nlp = TextbookNLP(problem)
    start = np.array(problem.start if w is None else w, dtype=float)
    return solve_nlp(nlp, start, SQPOptions(**{"kkt_tolerance": 1e-12, **options}), callback)


def _kkt(solution):
    """Stationarity, violation, and multipliers on sides that are not active, from the definitions."""
    nlp, w = solution.nlp, solution.w
    gradient, J = nlp.differentiate(w)
    _, g = nlp.evaluate(w)
    y, z = solution.multipliers, solution.bound_multipliers
    stationarity = np.abs(gradient + y @ J + z).max()
    values, both = np.r_[g, w], np.r_[y, z]
    lower, upper = np.r_[nlp.g_lower, nlp.x_lower], np.r_[nlp.g_upper, nlp.x_upper]
    violation = max(0.0, (lower - values).max(), (values - upper).max())
    slack = np.where(both > 0, upper - values, values - lower)
    wrong = np.abs(both * np.minimum(np.abs(slack), 1.0)).max()
    return stationarity / max(1.0, np.abs(both).max()), violation, wrong / max(1.0, np.abs(both).max())


def test_taylor_numbers_against_complex_step():
    rng = np.random.default_rng(0)
    x, d = rng.uniform(0.5, 1.5, 3), rng.standard_normal(3)

    def function(v):
        return v[0] ** 3 * v[1] / v[2] - (2.0 - v[1]) ** 2 * v[0] + 1.0 / v[2]

    taylor = function(Taylor.variables(x))
    slope = function(x + 1e-30j * d).imag / 1e-30
    assert taylor.gradient @ d == pytest.approx(slope, rel=1e-13)
    forward, backward = (function(Taylor.variables(x + s * 1e-5 * d)).gradient for s in (1, -1))
    np.testing.assert_allclose(taylor.hessian @ d, (forward - backward) / 2e-5, rtol=1e-7)


# -- textbook problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", SETTINGS, ids=lambda o: "-".join(o.values()) or "default")
@pytest.mark.parametrize("problem", ALL, ids=lambda p: p.name)
def test_textbook_problems(problem, options):
    solution = _solve(problem, **options)
    assert solution.status.code is StatusCode.CONVERGED
    values = (problem.optimum, *problem.others)
    assert min(abs(solution.objective - v) / max(1.0, abs(v)) for v in values) < 2e-8  # some are known to 9 digits
    assert max(_kkt(solution)) < ACCURACY


FLAT = ("HS1", "HS30")
"""Problems with little or no curvature along the constraints: a gradient of 1e-8 does not determine the minimizer to 1e-8."""


@pytest.mark.parametrize("problem", [p for p in ALL if p.x is not None and p.name not in FLAT], ids=lambda p: p.name)
def test_known_minimizers(problem):
    np.testing.assert_allclose(_solve(problem).w, problem.x, rtol=0, atol=ACCURACY)


def test_known_multiplier():
    """Nocedal & Wright, example 12.1: lambda = -1/2 for f - lambda c, so y = 1/2."""
    solution = _solve(next(p for p in ALL if p.name == "NW example 12.1"))
    np.testing.assert_allclose(solution.multipliers, 0.5, atol=ACCURACY)


def test_convergence_is_quadratic():
    """The residual of HS78, whose Hessian is indefinite away from its constraints."""
    stops = [r.gradient + r.constraint_violation for r in _solve(next(p for p in ALL if p.name == "HS78")).history]
    assert stops[-1] < 10.0 * stops[-2] ** 2 + 1e-12
    assert stops[-2] < 10.0 * stops[-3] ** 2


def test_full_steps_from_near_the_solution():
    problem = next(p for p in ALL if p.name == "HS71")
    solution = _solve(problem, w=[1.0, 4.7, 3.8, 1.4])
    assert solution.status.success
    assert all(r.step_length == 1.0 for r in solution.history[:-1])


def test_warm_start_with_multipliers():
    problem = next(p for p in ALL if p.name == "HS71")
    first, nlp = _solve(problem), TextbookNLP(problem)
    again = solve_nlp(nlp, first.w, multipliers=(first.multipliers, first.bound_multipliers))
    assert again.iterations == 0
    assert _solve(problem, w=first.w).iterations > 0


# -- convex over nonlinear ----------------------------------------------------------------------------------------------


class CircleFit(TextbookNLP):
    """min |r(w)|^2 with r = (w1 - 2, w2 - w1^2), subject to w1^2 + w2^2 <= 2: a convex function of w itself."""

    def __init__(self):
        super().__init__(
            Problem(
                "fit",
                (0.5, 0.5),
                lambda x: (x[0] - 2) ** 2 + (x[1] - x[0] ** 2) ** 2,
                0.0,
                inequalities=lambda x: [2 - squares(x)],
            )
        )
        self.g_lower, self.g_upper = np.array([-np.inf]), np.array([2.0])

    def _all(self, w):
        f, _ = super()._all(w)
        return f, [squares(Taylor.variables(w))]

    def convex_hessian(self, w, sigma, multipliers):
        J = np.array([[1.0, 0.0], [-2.0 * w[0], 1.0]])
        return full(2.0 * sigma * J.T @ J + 2.0 * max(0.0, multipliers[0]) * np.eye(2))


def test_scqp_and_gauss_newton_find_the_newton_solution():
    start = np.array([0.5, 0.5])
    found = {h: solve_nlp(CircleFit(), start, SQPOptions(hessian=h)) for h in ("exact", "gauss_newton", "scqp")}
    for solution in found.values():
        assert solution.status.success
        np.testing.assert_allclose(solution.w, found["exact"].w, rtol=0, atol=1e-7)
    assert found["exact"].multipliers[0] > 0.1
    assert found["scqp"].iterations < found["gauss_newton"].iterations


def test_missing_convex_hessian_names_the_remedy():
    with pytest.raises(ValueError, match="hessian = 'exact'"):
        _solve(ALL[0], hessian="scqp")


# -- degenerate, infeasible, unbounded ----------------------------------------------------------------------------------


def test_redundant_constraints():
    """An equality twice, and an inequality that repeats a bound: no unique multipliers."""
    problem = Problem(
        "redundant",
        (2, 1),
        lambda x: squares(x),
        0.58,
        lambda x: [x[0] + x[1] - 1, 2 * (x[0] + x[1]) - 2],
        lambda x: [x[0] - 0.7],
        lower=(0.7, -10),
    )
    solution = _solve(problem)
    assert solution.status.success
    np.testing.assert_allclose(solution.w, [0.7, 0.3], rtol=0, atol=ACCURACY)
    assert max(_kkt(solution)) < ACCURACY


def test_contradictory_constraints_name_the_worst():
    problem = Problem("apart", (0.3, 0.7), squares, 0.0, inequalities=lambda x: [x[0] - 3.0, -x[0] + 1.0, x[1] - 0.1])
    status = _solve(problem).status
    assert status.code is StatusCode.LOCALLY_INFEASIBLE
    assert not status.success
    assert status.component in ("inequality 1", "inequality 2")
    assert status.component in status.message


def test_smooth_infeasible_problem():
    """1 + x^2 = 0 has its least violation at x = 0."""
    problem = Problem("complex root", (2.0, 1.0), lambda x: squares(x), 0.0, lambda x: [1 + x[0] ** 2])
    solution = _solve(problem)
    assert solution.status.code is StatusCode.LOCALLY_INFEASIBLE
    assert solution.status.component == "equality 1"
    assert abs(solution.w[0]) < 1e-2


def test_stationary_point_of_the_violation():
    solution = _solve(NW_EXAMPLE_19_1)
    assert solution.status.code is StatusCode.LOCALLY_INFEASIBLE
    np.testing.assert_allclose(solution.w[0], -1.0, atol=1e-3)
    right = _solve(NW_EXAMPLE_19_1, w=[2.0, 3.0, 1.0])
    assert right.status.success
    np.testing.assert_allclose(right.w, NW_EXAMPLE_19_1.x, rtol=0, atol=ACCURACY)


def test_elastic_mode_passes_through_an_inconsistent_linearization():
    """x^2 >= 1 and x <= 2 from x = 0.1: linearized rows require x > 5, so elastic steps precede plain ones."""
    problem = Problem("elastic", (0.1, 0.0), squares, 1.0, inequalities=lambda x: [x[0] ** 2 - 1], upper=(2, 10))
    solution = _solve(problem)
    assert solution.status.success
    np.testing.assert_allclose(solution.w, [1.0, 0.0], rtol=0, atol=ACCURACY)


def test_crossed_bounds_are_found_at_the_door():
    nlp = TextbookNLP(ALL[0])
    nlp.x_lower[1], nlp.x_upper[1] = 2.0, 1.0
    status = solve_nlp(nlp, np.zeros(2)).status
    assert status.code is StatusCode.INFEASIBLE
    assert status.component == "x2"


@pytest.mark.parametrize(
    ("method", "change", "named"),
    [
        ("evaluate", lambda found: (found[0], found[1][:-1]), r"g of the program has shape \(1,\); expected \(2,\)"),
        ("differentiate", lambda found: (found[0][:-1], found[1]), r"gradient .* \(2,\); expected \(3,\)"),
        (
            "differentiate",
            lambda found: (found[0], found[1].T),
            r"jacobian .* \(3, 2\); expected \(2, 3\) for 3 variables",
        ),
        ("hessian", lambda found: found[:2], r"hessian .* \(2, 3\); expected \(3, 3\)"),
    ],
)
def test_values_of_a_program_have_the_documented_shapes(method, change, named):
    problem = Problem("plain", (1.0, 2.0, 3.0), squares, -np.inf, equalities=lambda x: [x[0] - x[1], x[1] + x[2]])
    nlp = TextbookNLP(problem)
    assert solve_nlp(nlp, np.ones(3)).status.success
    own = getattr(nlp, method)
    setattr(nlp, method, lambda *given: change(own(*given)))
    with pytest.raises(ValueError, match=named):
        solve_nlp(nlp, np.ones(3))


def test_bounds_of_a_program_have_the_documented_shapes():
    nlp = TextbookNLP(ALL[0])
    nlp.x_upper = np.ones(5)
    with pytest.raises(ValueError, match=r"x_upper of the program has shape \(5,\); expected \(2,\)"):
        solve_nlp(nlp, np.zeros(2))


@pytest.mark.parametrize("function", [lambda x: x[0] + x[1] ** 2, lambda x: x[1] ** 2 - x[0] ** 2])
def test_unbounded_objective(function):
    status = _solve(Problem("falls", (1.0, 1.0), function, -np.inf), max_iterations=300).status
    assert status.code is StatusCode.UNBOUNDED
    assert "bounds" in status.advice


# -- ends ---------------------------------------------------------------------------------------------------------------


def test_iteration_limit_and_table():
    solution = _solve(ALL[0], max_iterations=3)
    assert solution.status.code is StatusCode.MAX_ITERATIONS
    assert solution.iterations == 3
    assert [r.iteration for r in solution.history] == [0, 1, 2, 3]
    assert all(b.cost <= a.cost for a, b in zip(solution.history, solution.history[1:], strict=False))


def test_time_limit():
    assert _solve(ALL[0], time_limit=1e-9).status.code is StatusCode.TIME_LIMIT


def test_interrupt_returns_the_best_iterate():
    def stop(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    solution = _solve(ALL[0], callback=stop)
    assert solution.status.code is StatusCode.INTERRUPTED
    assert solution.objective == solution.history[3].cost
    assert np.isfinite(solution.w).all()


class Cliff(TextbookNLP):
    """Rosenbrock's function, NaN beyond x1 > 0.5 where asked."""

    def __init__(self, values=True, derivatives=False, everywhere=False):
        super().__init__(Problem("cliff", (-1.2, 1.0), rosenbrock, 0.0, upper=(0.4, np.inf)))
        self.x_upper[:] = np.inf
        self.values, self.derivatives, self.everywhere = values, derivatives, everywhere

    def evaluate(self, w):
        f, g = super().evaluate(w)
        return (np.nan if self.everywhere or (self.values and w[0] > 0.5) else f), g

    def differentiate(self, w):
        gradient, J = super().differentiate(w)
        return (gradient * np.nan if self.derivatives and w[0] > 0.5 else gradient), J


@pytest.mark.parametrize("kind", [{"values": True}, {"values": False, "derivatives": True}])
def test_steps_into_nan_are_shortened(kind):
    """Iterates approach the boundary of NaN without crossing it, and the status reports NaN."""
    solution = solve_nlp(Cliff(**kind), np.array([-1.2, 1.0]), SQPOptions(max_iterations=60))
    assert 0.0 < solution.w[0] <= 0.5
    assert not solution.status.success
    assert np.isfinite(solution.objective)


def test_nan_at_the_start_is_named():
    status = solve_nlp(Cliff(everywhere=True), np.array([-1.2, 1.0])).status
    assert status.code is StatusCode.NON_FINITE
    assert status.component == "the objective"


def test_wrong_size_of_the_guess():
    with pytest.raises(ValueError, match="2 variables"):
        solve_nlp(TextbookNLP(ALL[0]), np.zeros(3))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hessian", "bfgs"),
        ("qp_solver", "simplex"),
        ("max_iterations", -1),
        ("time_limit", 0.0),
        ("gradient_tolerance", 0.0),
        ("max_backtracks", 101),
        ("hold", "second_order"),
        ("elastic_weight", 0.0),
    ],
)
def test_options_are_checked(key, value):
    with pytest.raises(ValueError, match=key):
        SQPOptions(**{key: value})


# -- optimal control ----------------------------------------------------------------------------------------------------


def _pendulum(horizon=8, constraints=(), x0=(2.8, 0.0), **fields):
    system = textbook.autonomous_pendulum()
    return OCP.single_phase(
        SampledSystem(make_backend(system, "forward_ad"), "rk4"),
        list(x0),
        horizon,
        0.1,
        [control_cost(1, weight=0.1)],
        [state_cost(system.manifold, [np.pi, 0.0], 100.0)],
        constraints=constraints,
        **fields,
    )


@pytest.mark.parametrize("qp_solver", ["interior_point", "osqp", "daqp"])
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_optimal_control_with_bounds_is_that_of_slq(qp_solver, hessian):
    ocp = _pendulum(u_lower=[-3.0], u_upper=[3.0])
    reference = solve(ocp, solver="slq")
    solution = solve(ocp, options={"qp_solver": qp_solver, "hessian": hessian}, solver="sqp")
    assert reference.status.success and solution.status.success
    assert solution.cost == pytest.approx(reference.cost, rel=1e-8)
    assert (reference.us == 3.0).all() and (solution.us == 3.0).all()
    assert solution.multipliers["dynamics"].shape == (8, 2)


def test_state_bounds_are_met():
    manifold = textbook.autonomous_pendulum().manifold
    limit = state_bounds(manifold, [-np.inf, -2.0], [np.inf, 2.0])
    solution = solve(_pendulum(30, [limit], x0=(0.2, 0.0)), solver="sqp", check=False)  # at the knots alone
    assert solution.status.success
    assert solution.xs[:, 1].max() == pytest.approx(2.0, abs=1e-8)
    other = solve(_pendulum(30, [limit], x0=(0.2, 0.0)), options={"qp_solver": "daqp"}, solver="sqp")
    assert other.cost == pytest.approx(solution.cost, rel=1e-8)


def test_unreachable_goal_is_infeasible_and_names_it():
    manifold = textbook.autonomous_pendulum().manifold
    goal = bounded(state_cost(manifold, [np.pi, 0.0], 1.0), name="goal")
    ocp = _pendulum(10, terminal_constraints=[goal], u_lower=[-0.1], u_upper=[0.1])
    status = solve(ocp, options={"max_iterations": 60}, solver="sqp").status
    assert status.code is StatusCode.LOCALLY_INFEASIBLE
    assert "goal" in status.component


def test_qp_solvers_agree_with_a_terminal_equality():
    manifold = textbook.autonomous_pendulum().manifold
    goal = bounded(state_cost(manifold, [np.pi, 0.0], 1.0), name="goal")
    ocp = _pendulum(10, terminal_constraints=[goal])
    found, expected = (solve(ocp, options={"qp_solver": name}, solver="sqp") for name in ("interior_point", "daqp"))
    assert found.status.success and expected.status.success
    assert found.cost == pytest.approx(expected.cost, rel=1e-9)
    np.testing.assert_allclose(found.xs[-1], [np.pi, 0.0], atol=1e-9)


@pytest.mark.parametrize("gain", [1.0, 1e-6, 1e-9])
def test_a_goal_in_any_unit_of_the_control_is_reached(gain):
    """A double integrator with x'' = gain u; the controls of least norm by a pseudoinverse."""
    N, distance = 30, 1e3 * gain
    weak = to.FunctionMap(lambda x, u, t, p: [x[1], gain * u[0]], 2, 1)
    dynamics = SampledSystem(make_backend(weak, "forward_ad"), "rk4")
    goal = to.residual_constraint(
        "goal", lambda x, u, t, p: [(x[0] - distance) / distance, x[1] / distance], weak.manifold, 2
    )
    ocp = OCP.single_phase(dynamics, np.zeros(2), N, 1.0, [control_cost(1)], terminal_constraints=[goal])
    found = solve(ocp, solver="sqp")
    reach = np.array([[N - k - 0.5, 1.0] for k in range(N)]).T
    expected = np.linalg.pinv(reach) @ [1e3, 0.0]
    assert found.status.success
    np.testing.assert_allclose(found.us[:, 0], expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_the_longest_flight_of_a_hang_glider():
    """Problem of the COPS collection (E. Dolan, J. Moré, T. Munson 2004), whose optimum is 1,248 m."""

    def flight(x, u, t, p):
        distance = (x[0] / 100.0 - 2.5) ** 2
        sinking = x[3] - 2.5 * (1.0 - distance) * np.exp(-distance)
        v = np.sqrt(x[2] ** 2 + sinking**2)
        lift, drag = (0.5 * 1.13 * 14.0 * c * v for c in (u[0], 0.034 + 0.069662 * u[0] ** 2))
        return [x[2], x[3], (-lift * sinking - drag * x[2]) / 100.0, (lift * x[2] - drag * sinking) / 100.0 - 9.81]

    space, speed, N = to.Manifold.vector(4), (13.2275675, -1.28750052), 100
    ends = [to.state_bounds(space, [-np.inf, 900.0, *speed], [np.inf, 900.0, *speed])]
    dynamics = SampledSystem(make_backend(to.FunctionMap(flight, space, 1), "forward_ad"), "rk4")
    range_cost = to.objective_term("range", lambda x, u, t, p: [-0.01 * x[0]], space)
    ocp = OCP.single_phase(
        dynamics, [0.0, 1e3, *speed], N, 1.0, [], [range_cost], terminal_constraints=ends, u_lower=0.0, u_upper=1.4
    )
    free, way = to.free_time(ocp, (10.0, 300.0), price=0.0), np.linspace(0.0, 1.0, N + 1)
    guess = np.column_stack([1250.0 * way, 1e3 - 100.0 * way, *np.tile(np.array(speed)[:, None], N + 1)])
    found = solve(free.ocp, free.with_durations(to.Guess(guess, np.full((N, 1), 0.7))), solver="sqp", check=False)
    assert found.status.success
    assert found.xs[-1, 0] == pytest.approx(1248.0, abs=0.5)


@pytest.mark.parametrize(
    ("one", "same"), [({"hessian": "scqp"}, {"hessian": "gauss_newton"}), ({}, {"hessian": "exact"})]
)
def test_without_compositions_scqp_is_gauss_newton_and_the_default_is_exact(one, same):
    ocp = _pendulum(u_lower=[-3.0], u_upper=[3.0])
    histories = [[r.cost for r in solve(ocp, options=options, solver="sqp").history] for options in (one, same)]
    assert histories[0] == histories[1]


def test_swing_up_between_limits_of_state_and_power():
    """Far from the solution its Hessian is indefinite, and steps are cut short: multipliers must not run away."""
    manifold = textbook.autonomous_pendulum().manifold
    limit = state_bounds(manifold, [-np.inf, -3.0], [np.inf, 3.0])
    power = residual_constraint("power", lambda x, u, t, p: [x[1] * u[0]], manifold, 1, -6.0, 6.0, nu=1)
    options = {"hessian": "exact", "max_iterations": 30}
    solution = solve(_pendulum(20, [limit, power], x0=(0.2, 0.0)), options=options, solver="sqp", check=False)
    assert solution.status.success
    assert np.abs(solution.xs[:-1, 1] * solution.us[:, 0]).max() < 6.0 + 1e-7


def test_multipliers_go_as_far_as_the_variables():
    """HS9, whose first step from its usual start is cut short: the same share of the (regularized) Newton step in both."""
    problem = next(p for p in ALL if p.name == "HS9")
    one = _solve(problem, max_iterations=1)
    alpha, delta = one.history[0].step_length, one.history[0].regularization
    nlp, start = TextbookNLP(problem), np.array(problem.start, dtype=float)
    gradient, J = nlp.differentiate(start)
    H, J = nlp.hessian(start, 1.0, np.zeros(1)).toarray() + delta * np.eye(2), J.toarray()
    K = np.block([[H, J.T], [J, np.zeros((1, 1))]])
    whole = np.linalg.solve(K, np.concatenate([-gradient, nlp.g_lower - nlp.evaluate(start)[1]]))
    assert alpha == 0.5
    np.testing.assert_allclose(one.w, start + alpha * whole[:2], rtol=1e-7)
    np.testing.assert_allclose(one.multipliers, alpha * whole[2:], rtol=1e-7)


@pytest.mark.parametrize(
    ("size", "start", "kept"), [(1.0, [2.0, 2.0], True), (1e3, [2.0, 2.0], False), (1e3, [1.0, 1.0], True)]
)
def test_multipliers_that_are_worse_than_none_start_again_at_zero(size, start, kept):
    """Only at infeasible points: x1 x2 = 1 with the objective x1^2 + x2^2."""
    program = Problem("hyperbola", start, lambda x: x[0] * x[0] + x[1] * x[1], 2.0, lambda x: [x[0] * x[1] - 1.0])
    nlp, options = TextbookNLP(program), SQPOptions(hessian="exact")
    w, y, z = np.array(start), np.array([size]), np.zeros(2)
    at = iterate_at(nlp, trial(nlp, w), y, z, options)
    step = Step(np.zeros(2), y, z, 0.0, 0.0)
    new = LineSearch(options, Journal(None))._derived(at, step, trial(nlp, w), 0.5)
    np.testing.assert_array_equal(new.y, y if kept else [0.0])
    gradient = 2.0 * w + new.y * w[::-1]
    assert new.gradient == pytest.approx(np.abs(gradient).max())


def _step(planner, ocp, guess, x0=None):
    """Solution of a real-time iteration about a guess, from the state x0 or that of the problem."""
    planner.prepare(ocp, WarmStart(guess))
    return planner.respond(ocp.x0 if x0 is None else x0)


@pytest.mark.parametrize("qp_solver", ["interior_point", "osqp"])
def test_real_time_iterations_converge_to_the_solution(qp_solver):
    ocp = _pendulum(u_lower=[-30.0], u_upper=[30.0])
    planner, guess = RealTimeSQP(SQPOptions(hessian="gauss_newton", qp_solver=qp_solver)), constant_guess(ocp)
    for _ in range(25):
        found = _step(planner, ocp, guess)
        assert found.status.code is StatusCode.MAX_ITERATIONS
        guess = Guess(found.xs, found.us)
    reference = solve(ocp, solver="sqp")
    np.testing.assert_allclose(guess.xs, reference.xs, rtol=0, atol=1e-6)


def test_feedback_follows_the_initial_state_to_first_order():
    ocp = _pendulum(u_lower=[-30.0], u_upper=[30.0])
    planner, guess = RealTimeSQP(SQPOptions(hessian="exact")), constant_guess(ocp)
    for _ in range(25):
        found = _step(planner, ocp, guess)
        guess = Guess(found.xs, found.us)
    errors = []
    for size in (0.02, 0.01):
        there = np.asarray(ocp.x0) + [size, -size]
        first = _step(planner, ocp, guess, there).us[0]
        exact = solve(_pendulum(u_lower=[-30.0], u_upper=[30.0], x0=there), solver="sqp").us[0]
        errors.append(np.abs(first - exact).max())
    assert errors[1] < 0.35 * errors[0]


@pytest.mark.parametrize("x0", [[0.0], [0.0, np.nan]])
def test_feedback_needs_a_finite_state(x0):
    ocp = _pendulum()
    with pytest.raises(ValueError, match="expected 2 finite numbers"):
        _step(RealTimeSQP(), ocp, constant_guess(ocp), x0)
