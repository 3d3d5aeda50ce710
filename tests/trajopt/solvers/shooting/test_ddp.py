"""DDP: Newton's step, both curvatures, indefinite Quu, box limits, gaps, order of convergence."""

import numpy as np
import pytest
import textbook_systems as textbook
from numpy_lq import convex_lq, definite_shift, forward, solve_riccati
from rigid_body_cases import foreign
from shooting_cases import (
    PROBLEMS,
    SETTINGS,
    check_optimum,
    crane,
    order_of_one_iteration,
    pendulum_swing_up,
    polished,
    rolled_out,
    sampled,
)
from shooting_numpy import measured
from slq_solve import solve

from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.exact_methods import contracted_hessian
from dynamics_backends.protocol import Batch, FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt import (
    OCP,
    Guess,
    Phase,
    SampledSystem,
    constant_guess,
    control_cost,
    residual_cost,
    solver_options,
    state_cost,
)
from trajopt.lq.lq import LQProblem
from trajopt.solvers.shooting.ddp_model import Damping, NewtonModel, PlainModel, TrueModel
from trajopt.solvers.window.shooting import solve_shooting
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.integrators import step_rows
from trajopt.validation.validation import InvalidProblem

CURVATURES = ("newton", "true")
UNDAMPED = Damping(0.0, "control", None)
each_curvature = pytest.mark.parametrize("curvature", CURVATURES)


def iterate(ocp, xs, us):
    evaluator = StageEvaluator(ocp, "exact")
    return measured(xs, us, evaluator.expand(xs, us), evaluator, None)


def model(ocp_iterate, curvature):
    return {"newton": NewtonModel, "true": TrueModel}[curvature](ocp_iterate.evaluator, ocp_iterate.evaluator)


# -- Newton's method ------------------------------------------------------------------------------------------------------


def small_attitude_slew():
    system = textbook.spinning_body()
    start = system.manifold.identity()
    turned = system.manifold.integrate(start[:, None], np.array([0.5, -0.3, 0.8, 0, 0, 0])[:, None])[:, 0]
    x0 = np.r_[start[:4], 0.3, -0.2, 0.1]
    terms = [control_cost(3, weight=0.5), state_cost(system.manifold, turned, 0.2)]
    return OCP.single_phase(sampled(system), x0, 4, 0.2, terms, [state_cost(system.manifold, turned, 5.0)])


def small_pendulum():
    system = textbook.pendulum()
    terms = [control_cost(1, weight=0.1), state_cost(system.manifold, [0.3, 0.0], 1.0)]
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "semi_implicit_euler", 2)
    return OCP.single_phase(dynamics, [0.4, 0.2], 6, 0.1, terms, [state_cost(system.manifold, [0.0, 0.0], 10.0)])


def derivatives_of_the_total_cost(ocp, us):
    """Gradient (N nu,) and Hessian of the cost in all controls, by a complex step over dual numbers through the roll-out."""
    N, nu, step = ocp.horizon, ocp.nu, ocp.phases[0].dynamics

    def cost(u, _, t, p):
        at, total = np.repeat(ocp.x0[:, None], u.shape[1], axis=1), 0.0
        for k in range(N + 1):
            terms = ocp.phases[0].terms if k < N else ocp.terminal
            own = u[k * nu : (k + 1) * nu]
            for term in terms:
                given = {key: np.repeat(v[:, None], u.shape[1], axis=1) for key, v in term.parameters.items()}
                state = at if term.residual.manifold.nx else at[:0]
                r = term.residual(state, own[: term.residual.nu], 0.0, given)
                weight = 0.5 * (ocp.dt[0] if k < N else 1.0) * np.broadcast_to(term.weight, term.residual.n_out)
                total = total + sum(weight[i] * r[i] * r[i] for i in range(term.residual.n_out))
            if k < N:
                at = step_rows(step.system, step.scheme, step.substeps, at, own, ocp.times[k], ocp.dt[k], {})
        return [total]

    map = FunctionMap(cost, N * nu, 0, 1)
    given = us.reshape(1, -1), np.zeros((1, 0))
    gradient = make_backend(map, "forward_ad").jacobians(*given).fx[0, 0]
    return gradient, contracted_hessian(map, Batch.of(map, *given), np.ones((1, 1)))[0]


@pytest.mark.numpy  # the oracle counts its controls while it runs, which symbols cannot
@pytest.mark.parametrize("make", [small_pendulum, small_attitude_slew])
def test_the_newton_step_is_that_of_the_cost_in_all_controls(make):
    ocp = make()
    us = 0.3 * np.random.default_rng(0).standard_normal((ocp.horizon, ocp.nu))
    at = iterate(ocp, *rolled_out(ocp, us))
    gradient, H = derivatives_of_the_total_cost(ocp, us)
    np.testing.assert_allclose(at.reduced.ravel(), gradient, rtol=0, atol=1e-12 * np.abs(gradient).max())
    lq = model(at, "newton").problem(at, UNDAMPED).lq
    du = forward(lq, solve_riccati(lq)).du
    expected = -np.linalg.solve(H, gradient)
    np.testing.assert_allclose(du.ravel(), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    plain = PlainModel("exact", at.evaluator).problem(at, UNDAMPED).lq
    assert np.abs(forward(plain, solve_riccati(plain)).du.ravel() - expected).max() > 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_both_curvatures_agree_at_a_solution_and_nowhere_else(problem):
    ocp = PROBLEMS[problem]()
    bounds = ocp.control_bounds
    solution = polished(ocp, "ilqr", solver="ddp")
    for us, same in ((solution.us, True), (0.8 * solution.us, False)):
        at = iterate(ocp, *rolled_out(ocp, us))
        damping = UNDAMPED if bounds is None else Damping(0.0, "control", (bounds[0] - at.us, bounds[1] - at.us))
        newton, true = (model(at, c).problem(at, damping).lq for c in CURVATURES)
        curvature = np.abs(newton.Q - at.expansion.lq.Q).max()
        difference = np.abs(newton.Q - true.Q).max()
        assert (difference < 1e-6 * curvature) == same, (difference, curvature)


# -- optima ---------------------------------------------------------------------------------------------------------------


@each_curvature
@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_settings_reach_the_optimum(problem, curvature):
    """Each starts near the solution, off the dynamics and from other controls."""
    ocp = PROBLEMS[problem]()
    first = polished(ocp, "gnms", constant_guess(ocp))
    rng = np.random.default_rng(2)
    steps = 0.02 * rng.standard_normal((ocp.horizon + 1, ocp.manifold.ndx))
    infeasible = ocp.manifold.integrate(first.xs.T, steps.T).T
    guess = Guess(infeasible, first.us + 0.02 * rng.standard_normal(first.us.shape))
    for name in SETTINGS if curvature == "newton" else ("ilqr", "every 7, nonlinear", "gnms"):
        solution = polished(ocp, name, guess, solver="ddp", curvature=curvature)
        assert solution.status.success, (name, str(solution.status))
        assert solution.iterations <= 8
        assert solution.cost == pytest.approx(first.cost, rel=1e-9)
        np.testing.assert_allclose(solution.us, first.us, rtol=0, atol=1e-5)
        assert solution.history[-2].hessian == curvature
    check_optimum(ocp, solution)


@each_curvature
@pytest.mark.parametrize("shooting", ["single", "all"])
def test_swing_up_from_rest_in_fewer_iterations_than_slq(shooting, curvature):
    ocp = pendulum_swing_up()
    plain = solve(ocp, None, {"shooting": shooting, "gradient_tolerance": 1e-9})
    curved = solve(ocp, None, {"shooting": shooting, "gradient_tolerance": 1e-9, "curvature": curvature}, solver="ddp")
    assert curved.status.success
    assert curved.iterations < plain.iterations / 3
    assert curved.cost == pytest.approx(plain.cost, rel=1e-9)
    assert curvature in {r.hessian for r in curved.history} <= {"gauss_newton", "mixed", curvature}


@each_curvature
def test_box_limits_hold(curvature):
    ocp = pendulum_swing_up(horizon=70, limit=4.0)
    solution = solve(ocp, None, {"curvature": curvature, "gradient_tolerance": 1e-9}, solver="ddp")
    assert solution.status.success
    assert max(r.constraint_violation for r in solution.history) == 0.0
    clamped = np.abs(solution.us[:, 0]) == 4.0
    assert 10 < clamped.sum() < 30
    assert not solution.K[clamped].any() and solution.K[~clamped].any(axis=(1, 2)).all()
    check_optimum(ocp, solution)


def test_phases_have_their_own_curvature():
    """A thruster whose force is quadratic in its control, a coasting phase, and the thruster again with other gains."""
    manifold = Manifold.vector(2, ("position", "speed"))

    def driven(x, u, t, p):
        return [x[1], p["gain"][0] * (u[0] + 0.3 * u[0] * u[0]) - 0.1 * x[1] * x[1]]

    engine = FunctionMap(driven, manifold, 1, second_order=True)
    coasting = FunctionMap(lambda x, u, t, p: [x[1], -0.5 * x[1] * x[1]], manifold, 0, second_order=True)
    term = control_cost(1, weight=0.1)
    phases = (
        Phase(sampled(engine), np.full(6, 0.1), (term,), {"gain": [1.0]}),
        Phase(sampled(coasting), np.full(4, 0.05), ()),
        Phase(sampled(engine), np.full(5, 0.1), (term,), {"gain": np.linspace(2.0, 3.0, 5)[:, None]}),
    )
    ocp = OCP(phases, np.zeros(2), (state_cost(manifold, [1.0, 0.0], 100.0),))
    plain, curved = (
        solve(ocp, constant_guess(ocp, 0.2), {"gradient_tolerance": 1e-10}, solver=s) for s in ("slq", "ddp")
    )
    assert curved.status.success and curved.iterations < plain.iterations
    used = np.r_[0:6, 10:15]
    np.testing.assert_allclose(curved.us[used], plain.us[used], rtol=0, atol=1e-7)


# -- indefinite Quu -------------------------------------------------------------------------------------------------------


def test_eigenvalues_become_positive_and_positive_ones_stay():
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((4, 4)))

    def with_eigenvalues(values):
        return (vectors * values) @ vectors.T

    assert definite_shift(with_eigenvalues([1.0, 2.0, 3.0, 1e-3])) is None
    H = with_eigenvalues([5.0, -2.0, 0.0, 1.0])
    np.testing.assert_allclose(H + definite_shift(H), with_eigenvalues([5.0, 2.0, 5e-6, 1.0]), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(definite_shift(np.zeros((2, 2))), np.eye(2))


@pytest.mark.parametrize("where", ["control", "state"])
@pytest.mark.parametrize("bounded", [False, True])
def test_an_indefinite_problem_becomes_one_with_a_direction_of_descent(bounded, where):
    rng = np.random.default_rng(1)
    N, n, m = 6, 3, 2
    Q, R = rng.standard_normal((N + 1, n, n)), rng.standard_normal((N, m, m))
    lq = LQProblem(
        np.eye(n) + 0.3 * rng.standard_normal((N, n, n)),
        rng.standard_normal((N, n, m)),
        np.zeros((N, n)),
        Q + Q.transpose(0, 2, 1),
        rng.standard_normal((N + 1, n)),
        rng.standard_normal((N, m, n)),
        R + R.transpose(0, 2, 1),
        rng.standard_normal((N, m)),
        np.zeros(n),
    )
    bounds = (np.full((N, m), -0.3), np.full((N, m), 0.4)) if bounded else None
    for mu in (0.0, 0.1):
        assert solve_riccati(lq, mu, where).failed_at is not None
        convex = convex_lq(lq, Damping(mu, where, bounds))
        policy = solve_riccati(convex, mu, where, bounds)
        assert policy.failed_at is None
        step = forward(convex, policy, bounds)
        assert np.sum(lq.q * step.dx) + np.sum(lq.r * step.du) < 0.0
        for changed, given in zip(convex, lq, strict=True):
            assert changed is convex.R or np.array_equal(changed, given)


def hill(horizon=20):
    """A mass that is drawn to a circle about the origin starts near its unstable center: the cost is concave there."""
    system = FunctionMap(
        lambda x, u, t, p: [x[2], x[3], u[0] * x[0] - u[1], u[1] * x[1] + u[0]], 4, 2, second_order=True
    )
    ring = residual_cost("ring", lambda x, u, t, p: [x[0] * x[0] + x[1] * x[1] - 1.0], system.manifold, 1, [5.0])
    slow = residual_cost("slow", lambda x, u, t, p: [x[2], x[3]], system.manifold, 2, 0.1)
    return OCP.single_phase(
        sampled(system), [0.1, 0.05, 0.0, 0.0], horizon, 0.1, [control_cost(2, weight=1e-2), ring, slow], [ring]
    )


@pytest.mark.parametrize("where", ["control", "state"])
@each_curvature
def test_an_indefinite_start_without_gauss_newton_steps(curvature, where):
    ocp = hill()
    options = solver_options("ddp", regularize=where, switch=1.0, shooting="single")
    start = iterate(ocp, *rolled_out(ocp, np.zeros((ocp.horizon, ocp.nu))))
    own = model(start, curvature)
    assert solve_riccati(own.problem(start, UNDAMPED).lq).failed_at is not None
    solution = solve_shooting(ocp, constant_guess(ocp), options, None, start.evaluator, (own,))
    assert solution.status.success, str(solution.status)
    assert {r.hessian for r in solution.history} == {curvature}
    check_optimum(ocp, solution)
    costs = [r.cost for r in solution.history]
    assert all(np.diff(costs) < 1e-9)
    plain = solve(ocp, Guess(solution.xs, solution.us), {"shooting": "single"})
    assert plain.cost == pytest.approx(solution.cost, rel=1e-9)


@each_curvature
def test_gauss_newton_steps_help_where_curvature_spoils_them(curvature):
    ocp = hill()
    solution = solve(ocp, None, {"curvature": curvature, "switch": 1.0}, solver="ddp")
    assert solution.status.success
    used = [r.hessian for r in solution.history]
    assert "gauss_newton" in used and used[-2] == curvature


# -- gaps -----------------------------------------------------------------------------------------------------------------


@each_curvature
@pytest.mark.parametrize("gaps", ["linear", "nonlinear"])
def test_a_turn_from_states_that_do_not_follow_each_other(gaps, curvature):
    ocp = PROBLEMS["attitude"]()
    rng = np.random.default_rng(4)
    steps = 0.3 * rng.standard_normal((ocp.manifold.ndx, ocp.horizon + 1))
    xs = ocp.manifold.integrate(np.tile(ocp.x0[:, None], ocp.horizon + 1), steps).T
    options = {"gaps": gaps, "gradient_tolerance": 1e-9, "curvature": curvature}
    solution = solve(ocp, Guess(xs, np.zeros((ocp.horizon, 3))), options, solver="ddp")
    assert solution.status.success and solution.history[0].defect > 0.3
    assert solution.iterations <= 12
    check_optimum(ocp, solution)


def test_curvature_of_open_gaps_is_the_slope_of_the_expansion():
    """The Hessian of lam' (F(x (+) dx, u + du) (-) node), by central differences of A and B carried to the charts."""
    ocp = PROBLEMS["attitude"]()
    rng, N, n = np.random.default_rng(3), ocp.horizon, ocp.manifold.ndx
    start = np.tile(ocp.manifold.identity()[:, None], N + 1)
    xs = ocp.manifold.integrate(start, rng.uniform(-0.7, 0.7, (n, N + 1))).T
    us, lam = rng.standard_normal((N, 3)), rng.standard_normal((N, n))
    evaluator, h = StageEvaluator(ocp), 1e-4

    def gradient(step):
        moved = ocp.manifold.integrate(xs[:-1].T, np.tile(step[:n, None], N)).T
        x_next, A, B = ocp.phases[0].dynamics.linearize(moved, us + step[n:], ocp.times[:-1], ocp.dt)
        d = ocp.manifold.difference(xs[1:].T, x_next.T).T
        carry = ocp.manifold.d_difference(d)[1]
        chart = ocp.manifold.d_integrate(np.tile(step[:n], (N, 1)))[1]
        return (lam[:, None] @ carry @ np.concatenate([A @ chart, B], axis=2))[:, 0]

    columns = [(gradient(h * e) - gradient(-h * e)) / (2.0 * h) for e in np.eye(n + 3)]
    expected, H = np.stack(columns, axis=2), evaluator.curvature(xs, us, lam)
    assert np.abs(evaluator.expand(xs, us).lq.d).max() > 0.5
    for ours, theirs in zip(H, (expected[:, :n, :n], expected[:, n:, :n], expected[:, n:, n:]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-7)


# -- order of convergence -------------------------------------------------------------------------------------------------


def ur5_reach(engine="numpy"):
    model = foreign("ur5")
    system = FreeBody(model)
    goal = np.r_[model.random_configuration(np.random.default_rng(1), 1)[0], np.zeros(6)]
    start = np.r_[goal[:6] - 0.5, np.zeros(6)]
    dynamics = SampledSystem(make_backend(system, "analytic", engine=engine), "semi_implicit_euler")
    terms = [control_cost(6, weight=1e-2), state_cost(system.manifold, goal, 0.1)]
    return OCP.single_phase(dynamics, start, 10, 0.05, terms, [state_cost(system.manifold, goal, 10.0)])


@pytest.mark.parametrize("problem", ["pendulum", "crane", "attitude", "ur5 reach"])
def test_ddp_converges_quadratically_and_slq_linearly(problem):
    ocp = ur5_reach() if problem == "ur5 reach" else PROBLEMS[problem]()
    solution = solve(ocp, None, {"gradient_tolerance": 1e-11, "shooting": "single"}, solver="ddp")
    assert solution.history[-1].gradient < 1e-9
    for curvature in CURVATURES if problem in ("pendulum", "crane") else ("newton",):
        order = order_of_one_iteration(ocp, solution, "ddp", curvature=curvature, switch=1.0)
        assert 1.8 < order < 2.3, (curvature, order)
    assert 0.8 < order_of_one_iteration(ocp, solution, "slq") < 1.2


# -- engines --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 8.0])
@each_curvature
def test_compiled_code_takes_the_same_steps(curvature, limit):
    histories = []
    for engine in ("numpy", "compiled"):
        ocp = ur5_reach(engine)
        bounds = {} if limit is None else {"u_lower": np.full(6, -limit), "u_upper": np.full(6, limit)}
        ocp = OCP(ocp.phases, ocp.x0, ocp.terminal, **bounds)
        histories.append(solve(ocp, None, {"curvature": curvature, "max_iterations": 4}, solver="ddp").history)
    for ours, theirs in zip(*histories, strict=True):
        assert ours.hessian == theirs.hessian
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-7)
        assert ours.gradient == pytest.approx(theirs.gradient, rel=1e-4, abs=1e-9)


# -- the door -------------------------------------------------------------------------------------------------------------


def test_options_are_checked():
    assert solver_options("ddp").hessian == "exact"
    with pytest.raises(ValueError, match="curvature = 'gauss'; expected 'newton' or 'true'"):
        solver_options("ddp", curvature="gauss")
    with pytest.raises(ValueError, match=r"switch = 2; expected in \[0, 1\]"):
        solver_options("ddp", switch=2)
    with pytest.raises(ValueError, match="max_iterations = -1"):
        solver_options("ddp", max_iterations=-1)
    with pytest.raises(ValueError, match="no option of solver 'slq' is named 'curvature'"):
        solver_options("slq", curvature="true")


def test_time_steps_without_second_derivatives_are_refused_at_the_door():
    with pytest.raises(InvalidProblem, match="backend forward_difference has no second derivatives; choose backend"):
        solve(pendulum_swing_up(backend="forward_difference"), solver="ddp")

    class Drift:
        """Time step with first derivatives only."""

        takes_time, sampling, contract = True, None, None

        def __init__(self, inner):
            self.manifold, self.nu, self.control_names = inner.manifold, inner.nu, inner.control_names
            self.step, self.linearize = inner.step, inner.linearize

    ocp = crane()
    phase = ocp.phases[0]
    ocp = OCP((Phase(Drift(phase.dynamics), phase.dt, phase.terms),), ocp.x0, ocp.terminal)
    assert solve(ocp).status.success
    with pytest.raises(InvalidProblem, match="Drift has no second derivatives .* choose solver = 'slq'"):
        solve(ocp, solver="ddp")
