"""Interior-point method: textbook programs, optima of other solvers, linear systems, statuses, multipliers, options."""

from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from direct_cases import SparseProgram, mass, sampled, swing_up
from hock_schittkowski import HOCK_SCHITTKOWSKI, Problem, TextbookNLP
from interior_cases import factored, set_trajectory

import trajopt as to
from dynamics_backends.protocol import FunctionMap, Hessians
from trajopt import OCP, Guess, StatusCode, bounded, control_cost, interpolated_guess, state_bounds, state_cost
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.interior.stage_program import StageProgram
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.interior import slot_of, solve_interior
from trajopt.stage.stages import StageValues

REST = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def solve(ocp, guess=None, options=None, **fields):
    return to.solve(ocp, guess, options, solver="ipm", **fields)


# -- textbook programs: one stage whose controls are the variables -------------------------------------------------------


class TextbookStages:
    """Problem with one time step, whose controls are the variables of a nonlinear program; the state has no effect."""

    def __init__(self, nlp):
        self.nlp = nlp

    def values(self, at):
        f, g = self.nlp.evaluate(at.u[0])
        return StageValues(at.x, at.x - at.nodes, np.array([f]), g[None])

    def first(self, at, *, quadratic=True, out=None):
        for own, new in zip(out.values, self.values(at), strict=True):
            own[:] = new
        gradient, J = self.nlp.differentiate(at.u[0])
        for block in (out.B, out.lx, out.gx):
            block[:] = 0.0
        out.A[:], out.lu[:], out.gu[:] = 1.0, gradient, J.toarray()
        return out

    def second(self, at, sigma, lam=None, y=None, out=None):
        m = at.u.shape[1]
        H = self.nlp.hessian(at.u[0], sigma, np.zeros(0) if y is None else y[0]).toarray()
        return Hessians(np.zeros((1, 1, 1)), np.zeros((1, m, 1)), H[None])


def textbook_solution(problem, **options):
    nlp = TextbookNLP(problem)
    m, rows = len(nlp.x_lower), len(nlp.g_lower)
    dynamics = sampled(FunctionMap(lambda x, u, t, p: [0.0 * x[0]], 1, m, second_order=True))
    constraints = []
    if rows:
        own = (lambda x, u, t, p: [0.0 * u[0]] * rows, dynamics.manifold, rows, nlp.g_lower, nlp.g_upper)
        constraints = [to.residual_constraint("rows", *own, nu=m)]
    bounds = {"u_lower": nlp.x_lower, "u_upper": nlp.x_upper, "constraints": constraints}
    ocp = OCP.single_phase(dynamics, np.zeros(1), 1, 1.0, [control_cost(m)], **bounds)
    program = StageProgram(ocp, np.zeros((1, m)), "exact")
    program.stages[0] = TextbookStages(nlp)
    guess = Guess(np.zeros((2, 1)), np.array(problem.start, dtype=float)[None])
    return solve_interior(slot_of(program), guess, IPMOptions(**options), None, None), nlp


@pytest.mark.parametrize("strategy", ["adaptive", "monotone"])
@pytest.mark.parametrize("problem", HOCK_SCHITTKOWSKI, ids=lambda p: p.name)
def test_textbook_programs(problem: Problem, strategy):
    found, nlp = textbook_solution(problem, barrier_strategy=strategy)
    assert found.status.success, (found.status, found.cost, found.us)
    optima = (problem.optimum, *problem.others)
    nearest = min(optima, key=lambda value: abs(value - found.cost))
    assert found.cost == pytest.approx(nearest, rel=max(problem.digits, 1e-7), abs=max(problem.digits, 1e-6))
    _, g = nlp.evaluate(found.us[0])
    assert np.maximum(nlp.g_lower - g, g - nlp.g_upper).max(initial=0.0) <= 1e-7


# -- optima of optimal control problems -----------------------------------------------------------------------------------


def test_least_effort_is_the_least_norm_solution():
    """For x_(k+1) = A x_k + B u_k, a pseudoinverse yields the controls of minimum norm that reach the goal."""
    h, N = 0.1, 10
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([[h * h / 2], [h]])
    reach = np.hstack([np.linalg.matrix_power(A, N - 1 - k) @ B for k in range(N)])
    u = np.linalg.pinv(reach) @ [1.0, 0.0]
    s = solve(mass())
    assert s.status.code == StatusCode.CONVERGED, s.status
    assert s.iterations <= 2
    np.testing.assert_allclose(s.us[:, 0], u, atol=1e-9)
    assert s.cost == pytest.approx(0.5 * h * u @ u, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"barrier_strategy": "monotone"}, {"hessian": "gauss_newton"}], ids=str)
def test_the_optimum_of_another_solver_with_active_bounds(options):
    ocp, guess = swing_up()
    s, other = solve(ocp, guess, options, check=False), to.solve(ocp, guess, solver="sqp", check=False)
    assert s.status.success and other.status.success, (s.status, other.status)
    assert s.cost == pytest.approx(other.cost, rel=1e-7)
    assert np.abs(s.xs[:, 0]).max() == pytest.approx(0.5, abs=1e-6)
    np.testing.assert_allclose(s.us, other.us, atol=1e-4)


def test_reorientation_is_the_optimum_of_another_solver():
    dynamics = sampled(textbook.spinning_body())
    goal = dynamics.manifold.integrate(REST[:, None], np.array([[1.0, -1.0, 0.5, 0.0, 0.0, 0.0]]).T)[:, 0]
    slow = state_bounds(dynamics.manifold, np.r_[[-np.inf] * 4, [-1.3] * 3], np.r_[[np.inf] * 4, [1.3] * 3], "rates")
    at_goal = bounded(state_cost(dynamics.manifold, goal), name="goal")
    fields = {"terminal_constraints": [at_goal], "constraints": [slow]}
    ocp = OCP.single_phase(dynamics, REST, 8, 0.15, [control_cost(3, reference=0.0, weight=0.1)], **fields)
    guess = interpolated_guess(ocp, goal)
    s, other = solve(ocp, guess), to.solve(ocp, guess, solver="sqp")
    assert s.status.success and other.status.success, (s.status, other.status)
    assert s.cost == pytest.approx(other.cost, rel=1e-7)
    np.testing.assert_allclose(s.xs, other.xs, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(s.xs[:, :4], axis=1), 1.0, atol=1e-12)
    assert np.abs(s.xs[1:, 4:]).max() == pytest.approx(1.3, abs=1e-6)
    gap = s.history[-3:]
    assert gap[-1].kkt <= 1e-8 and gap[-2].kkt ** 1.5 <= gap[0].kkt  # fast at the end


def test_phases_of_other_controls_and_equations_along_the_way():
    """Mass driven by two forces, then one, then none after a jump of its speed; it has to pass a position half way."""
    double = FunctionMap(lambda x, u, t, p: [x[1], u[0] + 0.5 * u[1]], 2, 2, second_order=True)
    single = FunctionMap(lambda x, u, t, p: [x[1], u[0] - to.sin(x[0])], 2, 1, second_order=True)
    jump = FunctionMap(lambda x, u, t, p: [0.0 * x[0], -0.5 * x[1]], 2, 0, second_order=True)
    manifold = sampled(double).manifold
    place = to.residual_constraint("place", lambda x, u, t, p: [x[0] + 0.1 * x[0] * x[0]], manifold, 1, 0.4, 0.4)
    sum_of = to.residual_constraint("sum", lambda x, u, t, p: [u[0] + u[1] * u[1]], manifold, 1, -np.inf, 1.5, nu=2)
    equal = to.residual_constraint("equal", lambda x, u, t, p: [u[0] - 2.0 * u[1]], manifold, 1, nu=2)
    cost = (control_cost(1, reference=0.0, weight=1.0), state_cost(manifold, [1.0, 0.0], 0.1))
    phases = (
        to.Phase(sampled(double), np.full(5, 0.2), (control_cost(2),), constraints=(sum_of, equal)),
        to.Phase(sampled(single), np.full(1, 0.2), cost, constraints=(place,)),
        to.Phase(to.ImpactStage(to.make_backend(jump, "forward_ad")), np.zeros(1)),
        to.Phase(sampled(single), np.full(4, 0.2), cost),
    )
    goal = bounded(state_cost(manifold, [1.0, 0.0]), name="goal")
    ocp = OCP(phases, np.zeros(2), terminal_constraints=(goal,), u_lower=[-8.0, -2.0], u_upper=[8.0, 2.0])
    guess = interpolated_guess(ocp, np.array([1.0, 0.0]))
    guess = Guess(guess.xs, np.full_like(guess.us, 0.25))
    s, other = solve(ocp, guess), to.solve(ocp, guess, solver="sqp")
    assert s.status.success and other.status.success, (s.status, other.status)
    assert s.cost == pytest.approx(other.cost, rel=1e-7)
    assert (s.us[5:, 1] == 0.25).all() and s.us[6, 0] == 0.25  # unread controls keep their values
    np.testing.assert_allclose(s.us[:5, 0], 2.0 * s.us[:5, 1], atol=1e-8)
    assert s.xs[5, 0] + 0.1 * s.xs[5, 0] ** 2 == pytest.approx(0.4, abs=1e-8)
    assert set(s.multipliers) == set(other.multipliers)
    for name, value in other.multipliers.items():
        assert s.multipliers[name].shape == value.shape
    start = other.multipliers["bounds on x"][0]
    assert np.abs(start).max() > 0.1
    np.testing.assert_allclose(s.multipliers["bounds on x"][0], start, rtol=1e-5)


def test_controls_that_are_fixed_stay_and_states_that_are_fixed_are_met():
    ocp = mass(limit=20.0)
    lower, upper = np.full((10, 1), -20.0), np.full((10, 1), 20.0)
    lower[3] = upper[3] = 1.5
    manifold = ocp.manifold
    through = state_bounds(manifold, np.array([-np.inf, 0.2]), np.array([np.inf, 0.2]), "speed")
    phase = ocp.phases[0]
    first, last = (replace(phase, dt=phase.dt[k]) for k in (slice(0, 9), slice(9, 10)))
    ocp = replace(ocp, u_lower=lower, u_upper=upper, phases=(first, replace(last, constraints=(through,))))
    s, other = solve(ocp), to.solve(ocp, solver="sqp")
    assert s.status.success, s.status
    assert s.us[3, 0] == 1.5 and s.xs[9, 1] == pytest.approx(0.2, abs=1e-9)
    assert s.cost == pytest.approx(other.cost, rel=1e-8)


# -- multipliers ----------------------------------------------------------------------------------------------------------


def test_multipliers_satisfy_the_optimality_conditions_of_the_sparse_program():
    ocp, guess = swing_up()
    s = solve(ocp, guess)
    p = SparseProgram(ocp, guess)
    w = p.variables(s.xs, s.us)
    y, z = p.from_names(s.multipliers), np.zeros(p.size)
    z[p.ix], z[p.iu] = s.multipliers["bounds on x"], s.multipliers["bounds on u"]
    gradient, J = p.differentiate(w)
    free = p.x_lower != p.x_upper
    assert np.abs(gradient + J.T @ y + z)[free].max() <= 1e-7
    assert (np.where(z > 1e-5, p.x_upper - w, 0.0)[free] <= 1e-5).all()
    assert (np.where(z < -1e-5, w - p.x_lower, 0.0)[free] <= 1e-5).all()


@pytest.mark.parametrize("other", ["ipm", "sqp", "dms"])
def test_warm_starts_cross_between_solvers(other):
    if other == "dms":
        pytest.importorskip("cyipopt")
    ocp, guess = swing_up()
    cold, given = solve(ocp, guess), to.solve(ocp, guess, solver=other)
    start = to.WarmStart(Guess(given.xs, given.us), multipliers=given.multipliers, barrier=1e-8)
    warm = to.solve(ocp, solver="ipm", warm_start=start, check=False)
    assert warm.status.success and warm.iterations <= 3 < cold.iterations
    assert warm.cost == pytest.approx(cold.cost, rel=1e-8)


def test_a_step_is_that_of_the_dense_system():
    """Compute the step at the first iterate from the full system of Waechter and Biegler, eq. 9."""
    from trajopt.solvers.interior.newton import NewtonSystem
    from trajopt.solvers.interior.stage_program import Point

    dynamics = sampled(textbook.cart_pole(), 1)
    circle = to.residual_constraint("c", lambda x, u, t, p: [x[0] * x[1] + u[0]], dynamics.manifold, 1, -3.0, 9.0, nu=1)
    tie = to.residual_constraint("e", lambda x, u, t, p: [x[0] + x[1] * x[1] - 0.1], dynamics.manifold, 1)
    cost = [control_cost(1, reference=0.3, weight=0.5), state_cost(dynamics.manifold, np.full(4, 0.2), 1.5)]
    phase = to.Phase(dynamics, np.full(3, 0.1), tuple(cost), constraints=(circle,))
    ocp = OCP((phase,), np.array([0.1, 0.2, 0.0, 0.1]), u_lower=[-5.0], u_upper=[5.0], terminal_constraints=(tie,))
    rng, mu, tau = np.random.default_rng(0), 0.3, 0.995
    program = StageProgram(ocp, np.zeros((3, 1)), "exact")
    system, p, z = NewtonSystem(program), Point(program), program.multipliers()
    set_trajectory(program, p, ocp.x0 + 0.1 * rng.standard_normal((4, 4)), 0.2 * rng.standard_normal((3, 1)))
    program.first(p)
    p.v[program.s] = rng.uniform(-0.5, 0.5, program.rows)
    z.lam[:], z.y[:] = 0.01 * rng.standard_normal(z.lam.shape), 0.01 * rng.standard_normal(z.y.shape)
    low, high = np.isfinite(program.lower), np.isfinite(program.upper)
    z.zl[low], z.zu[high] = rng.uniform(0.5, 2.0, low.sum()), rng.uniform(0.5, 2.0, high.sum())
    program.second(p, 1.0, z)
    system.condense(p, z, mu, 1.0)
    assert factored(system) and not system.data.reflected
    step = system.solve(p, z, tau, system.empty_step())

    t = SparseProgram(ocp, Guess(p.xs, p.us))  # the same rows and Hessian, in the order of the transcription
    w = t.variables(p.xs, p.us)
    y = np.zeros(t.rows)
    y[t._defect_rows] = z.lam
    rows = np.concatenate([part.rows.ravel() for part in t.parts])
    y[rows[rows >= 0]] = z.y[rows >= 0]
    gradient, J = t.differentiate(w)
    H, J = t.hessian(w, 1.0, y).toarray(), J.toarray()
    free = np.setdiff1d(np.arange(t.size), t.ix[0])
    slack = program.kind == 1
    s = np.flatnonzero(slack)
    nf, ns, nr = len(free), len(s), t.rows
    place = np.zeros(t.size, int)
    place[t.ix], place[t.iu] = np.arange(16).reshape(4, 4), 16 + np.arange(3).reshape(3, 1)
    v = np.r_[place[free], 19 + s]
    count = nf + ns
    K = np.zeros((3 * count + nr, 3 * count + nr))
    right = np.zeros(3 * count + nr)
    K[:nf, :nf] = H[np.ix_(free, free)]
    E = np.zeros((nr, count))
    E[:, :nf] = J[:, free]
    E[rows[s], nf + np.arange(ns)] = -1.0
    K[:count, count : count + nr], K[count : count + nr, :count] = E.T, E
    zl, zu, l, u = (a[v] for a in (z.zl, z.zu, program.lower, program.upper))
    below, above = np.where(np.isfinite(l), p.v[v] - l, 1.0), np.where(np.isfinite(u), u - p.v[v], 1.0)
    i, a, b = np.arange(count), count + nr, 2 * count + nr
    K[i, a + i], K[i, b + i] = -1.0, 1.0
    K[a + i, i], K[a + i, a + i] = zl, below
    K[b + i, i], K[b + i, b + i] = -zu, above
    grad = np.r_[gradient[free], np.zeros(ns)]
    _, g = t.evaluate(w)
    residual = g - t.g_lower
    residual[rows[s]] = g[rows[s]] - p.v[19 + s]
    right[:count] = -(grad + E.T @ y - zl + zu)
    right[count:a] = -residual
    right[a:b] = np.where(np.isfinite(l), mu - zl * below, 0.0)
    right[b:] = np.where(np.isfinite(u), mu - zu * above, 0.0)
    found = np.linalg.solve(K, right)
    np.testing.assert_allclose(step.v[v], found[:count], atol=1e-9)
    np.testing.assert_allclose(step.z.zl[v], found[a:b], atol=1e-8)
    np.testing.assert_allclose(step.z.zu[v], found[b:], atol=1e-8)
    new = y + found[count:a]
    np.testing.assert_allclose(step.z.lam, new[t._defect_rows], atol=1e-8)
    np.testing.assert_allclose(step.z.y[rows >= 0], new[rows[rows >= 0]], atol=1e-8)
    longest = [
        np.min(np.where(d < 0, -tau * q / d, 1.0), initial=1.0)
        for d, q in ((found[:count], below), (-found[:count], above))
    ]
    assert step.alpha == pytest.approx(min(longest), rel=1e-9)


# -- far from the guess ---------------------------------------------------------------------------------------------------


def euler_rates(x, u):
    """Quadrotor with Euler angles (phi, theta, psi) and four thrusts: dx/dt for columns x (12, ...), u (4, ...)."""
    (s1, s2, s3), (c1, c2, c3), w = np.sin(x[3:6]), np.cos(x[3:6]), x[9:12]
    push, I = (u[0] + u[1] + u[2] + u[3]) / 0.8, (0.01, 0.012, 0.02)
    yaw = (s1 * w[1] + c1 * w[2]) / c2
    torque = 0.2 * (u[1] - u[3]), 0.2 * (u[2] - u[0]), 0.05 * (u[0] - u[1] + u[2] - u[3])
    turn = [(torque[i] + (I[i - 2] - I[i - 1]) * w[i - 2] * w[i - 1]) / I[i] for i in range(3)]
    lift = [push * (c1 * s2 * c3 + s1 * s3), push * (c1 * s2 * s3 - s1 * c3), push * c1 * c2 - 9.81]
    return [x[6], x[7], x[8], w[0] + s2 * yaw, c1 * w[1] - s1 * w[2], yaw, *lift, *turn]


@pytest.mark.parametrize("seed", [13, 19, 70, 102])
def test_multipliers_that_grow_without_bound_lead_to_a_restart(seed):
    """Long steps pass the singularity of the Euler angles.

    At the solution, the gradient of the cost of a rollout in NumPy vanishes; it is found by complex steps.
    """
    rng, goal, x0 = np.random.default_rng([7, seed]), np.zeros(12), np.zeros(12)
    goal[:3] = rng.uniform(-2.0, 2.0, 3)
    if seed % 2:
        x0[3:6], x0[6:9] = rng.uniform(-0.6, 0.6, 3), rng.uniform(-1.0, 1.0, 3)
    weight, N, dt = 10.0 ** rng.uniform(-2.0, 0.0), 60, 0.03
    system = FunctionMap(lambda x, u, t, p: euler_rates(x, u), 12, 4)
    manifold = to.Manifold.vector(12)
    costs = [control_cost(4, weight=weight), state_cost(manifold, goal, 0.1)]
    s = solve(OCP.single_phase(sampled(system), x0, N, dt, costs, [state_cost(manifold, goal, 100.0)]), check=False)
    assert s.status.success, s.status

    def cost(us):
        x, value, f = np.repeat(x0[:, None], us.shape[2], axis=1) + 0j, 0.0, lambda x, u: np.array(euler_rates(x, u))
        for u in us:
            error = x - goal[:, None]
            value = value + 0.5 * dt * (0.1 * (error**2).sum(axis=0) + weight * (u**2).sum(axis=0))
            a = f(x, u)
            b = f(x + 0.5 * dt * a, u)
            c = f(x + 0.5 * dt * b, u)
            x = x + dt / 6.0 * (a + 2.0 * b + 2.0 * c + f(x + dt * c, u))
        return value + 50.0 * ((x - goal[:, None]) ** 2).sum(axis=0)

    steps = 1e-20j * np.eye(4 * N).reshape(N, 4, 4 * N)
    found = cost(s.us[:, :, None] + steps)
    np.testing.assert_allclose(found[0].real, s.cost, rtol=1e-6)
    np.testing.assert_allclose(found.imag / 1e-20, 0.0, atol=1e-5)


# -- statuses -------------------------------------------------------------------------------------------------------------


def test_an_unreachable_goal_is_named():
    s = solve(mass(limit=1.0))
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE, s.status
    assert s.status.component == "goal: position at knot 10", s.status
    assert "Relax the named constraint" in s.status.advice


@pytest.mark.parametrize("unit", [1.0, 1e5])
def test_the_unit_of_a_control_does_not_make_a_problem_infeasible(unit):
    """Least distancing in an epidemic, so that at most a twentieth is infected at a time, until a third is left susceptible."""

    def rates(x, u, t, p):
        infected = 0.3 * (1.0 - u[0] / unit) * x[0] * x[1]
        return [-infected, infected - 0.1 * x[1]]

    beds = to.residual_constraint("beds", lambda x, u, t, p: [x[1]], 2, 1, -np.inf, 0.05)
    herd = to.residual_constraint("herd", lambda x, u, t, p: [x[0]], 2, 1, -np.inf, 1.0 / 3.0)
    step = to.SampledSystem(to.FunctionMap(rates, 2, 1, second_order=True), "rk4")
    rows = {"constraints": [beds], "terminal_constraints": [herd], "u_lower": 0.0, "u_upper": 0.8 * unit}
    ocp = to.OCP.single_phase(step, [0.999, 0.001], 100, 2.0, [to.control_cost(1, weight=2.0 * unit**-2)], **rows)
    s = to.solve(ocp, solver="ipm")
    assert s.status.success and s.cost == pytest.approx(24.302448, rel=1e-6), s.status


@pytest.mark.parametrize("unit", [1.0, 1e5])
def test_an_unreachable_goal_is_found_in_any_unit_of_the_control(unit):
    """A mass of 1 kg that moves by 1 m in 0.5 s, with forces up to 1 N."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / unit], 2, 1, second_order=True), "rk4")
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    limits = {"u_lower": -unit, "u_upper": unit}
    effort = [to.control_cost(1, weight=unit**-2)]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.025, effort, terminal_constraints=[goal], **limits)
    assert to.solve(ocp, solver="ipm").status.code is StatusCode.LOCALLY_INFEASIBLE


@pytest.mark.parametrize(("residual", "sides", "dt"), [
    (lambda x, u, t, p: [x[0] * x[0]], (-np.inf, -0.5), 0.05),
    (lambda x, u, t, p: [x[0] * x[0] + x[2] * x[2]], (-np.inf, -0.5), 0.05),
    (lambda x, u, t, p: [to.sin(x[0])], (1.5, np.inf), 0.051),
    (lambda x, u, t, p: [u[0] * u[0]], (-np.inf, -1.0), 0.049),
    (lambda x, u, t, p: [to.sin(x[0])], (1.5, 1.5), 0.05),
], ids=["square", "squares", "sine", "control", "sine at the end"])  # fmt: skip
def test_what_no_motion_can_meet_is_named(residual, sides, dt):
    """Residuals without a zero, whose derivatives vanish at the minimum: the solver does not always find a certificate.

    Restoration takes up to 300 iterations here, and its end depends on rounding.
    """
    body = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "rk4")
    impossible = to.residual_constraint(
        "impossible", residual, body.manifold, 1, *sides, nu=2 if sides[1] == -1.0 else 0
    )
    at_end = {"terminal_constraints": [impossible]} if sides == (1.5, 1.5) else {"constraints": [impossible]}
    goal = [] if "terminal_constraints" in at_end else [to.state_cost(body.manifold, [0.5, 0.2, 0.0, 0.0], 100.0)]
    terms = [to.control_cost(2, weight=1e-2)]
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), 20, dt, terms, goal, **at_end)
    s = to.solve(ocp, solver="ipm")
    assert s.status.code in (StatusCode.LOCALLY_INFEASIBLE, StatusCode.STALLED), s.status
    assert s.status.component.startswith("impossible: f[0] at knot")


def test_an_unreachable_bound_on_a_state_is_named():
    far = state_bounds(sampled(textbook.double_integrator()).manifold, [1.0, -np.inf], [np.inf, np.inf], "far")
    s = solve(mass(limit=1.0, terminal_constraints=[far]))
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE, s.status
    assert s.status.component == "the bound on position at knot 10 (far)"


def test_bounds_that_contradict_each_other_are_named():
    manifold = sampled(textbook.double_integrator()).manifold
    low, high = (state_bounds(manifold, [a, -9.0], [b, 9.0], name) for a, b, name in ((-1, 0, "low"), (0.5, 1, "high")))
    s = solve(mass(constraints=[low, high]), check=False)
    assert s.status.code == StatusCode.INFEASIBLE
    assert "position at knot 1 (high) contradict each other: lower 0.5 > upper 0" in s.status.message


def test_contradicting_equations_are_named():
    """Two contradictory goal positions: dependent rows of the linear system."""
    manifold = sampled(textbook.double_integrator()).manifold
    goals = [bounded(state_cost(manifold, [x, 0.0]), name=name) for x, name in ((1.0, "here"), (2.0, "there"))]
    s = solve(mass(terminal_constraints=goals), check=False)
    assert s.status.code == StatusCode.LOCALLY_INFEASIBLE, s.status
    assert "position at knot 10" in s.status.component


def test_equations_that_say_the_same_do_no_harm():
    goal = bounded(state_cost(sampled(textbook.double_integrator()).manifold, [1.0, 0.0]), name="goal")
    twice = solve(mass(terminal_constraints=[goal, replace(goal, name="again")]))
    assert twice.status.success
    np.testing.assert_allclose(twice.us, solve(mass()).us, atol=1e-9)


def test_limits_of_iterations_and_time():
    ocp, guess = swing_up()
    s = solve(ocp, guess, {"max_iterations": 3})
    assert (s.status.code, s.iterations) == (StatusCode.MAX_ITERATIONS, 3)
    assert "largest violation" in s.status.message
    s = solve(ocp, guess, {"time_limit": 1e-9})
    assert s.status.code == StatusCode.TIME_LIMIT
    assert s.xs.shape == (26, 4)


def test_a_status_waits_for_no_trace(monkeypatch):
    """A status names violated constraints without waiting for a trace, which would delay a replanning loop."""
    made = []

    def noted(*given, **more):
        made.append(Transcription(*given, **more))
        return made[-1]

    monkeypatch.setattr(interior_status, "Transcription", noted)
    ocp, guess = swing_up()
    s = solve(ocp, guess, {"max_iterations": 2})
    assert "largest violation" in s.status.message
    assert len(made) == 1 and not any(part.stages.compiled for part in made[0].parts)


def test_an_interrupt_returns_an_iterate():
    ocp, guess = swing_up()

    def impatient(record):
        if record.iteration == 4:
            raise KeyboardInterrupt

    s = solve(ocp, guess, callback=impatient)
    assert s.status.code == StatusCode.INTERRUPTED
    assert s.iterations == s.history[-1].iteration == 4
    assert np.isfinite(s.xs).all() and np.isfinite(s.us).all()


def test_numbers_that_are_not_finite_are_located():
    broken = FunctionMap(lambda x, u, t, p: [x[1], u[0] / (x[0] - x[0])], 2, 1)
    s = solve(OCP.single_phase(sampled(broken), np.zeros(2), 3, 0.1, [control_cost(1)]))
    assert s.status.code == StatusCode.NON_FINITE
    assert "dynamics of x[0] from knot 0" in s.status.message


def test_steps_into_numbers_that_are_not_finite_are_shortened():
    """Full steps leave the domain of a square root."""
    system = FunctionMap(lambda x, u, t, p: [u[0]], 1, 1, second_order=True)
    deep = to.residual_cost("root", lambda x, u, t, p: [1.0 / to.sqrt(x[0] + 1.0) - 2.5], sampled(system).manifold, 1)
    ocp = OCP.single_phase(sampled(system), [3.0], 8, 0.25, [control_cost(1, reference=0.0, weight=1e-3), deep])
    s = solve(ocp)
    assert s.status.success, s.status
    assert s.cost == pytest.approx(to.solve(ocp, solver="ddp").cost, rel=1e-7)


# -- records and options --------------------------------------------------------------------------------------------------


def test_every_iteration_is_recorded():
    ocp, guess = swing_up()
    seen = []
    s = solve(ocp, guess, callback=seen.append)
    assert tuple(seen) == s.history
    assert [r.iteration for r in seen] == list(range(s.iterations + 1))
    last = seen[-1]
    assert last.stop <= 1.0 and last.step_length == 0.0
    assert all(0.0 < r.step_length <= 1.0 for r in seen[:-1])
    assert last.cost == pytest.approx(s.cost, rel=1e-12)
    assert s.status.kkt <= last.kkt <= 1e-8


def test_options():
    assert to.solver_options("ipm", barrier_strategy="monotone") == IPMOptions(barrier_strategy="monotone")
    bad = {
        "hessian": ("bfgs", "'auto' or 'exact' or 'gauss_newton'"),
        "barrier": (0.0, "a positive number"),
        "max_iterations": (-1, "an integer of at least 0"),
        "time_limit": (0.0, "None or a positive number"),
    }
    for key, (value, message) in bad.items():
        with pytest.raises(ValueError, match=message):
            IPMOptions(**{key: value})
    with pytest.raises(ValueError, match="did you mean 'barrier'"):
        to.solver_options("ipm", barier=1.0)


def test_scaled_costs_have_the_same_solution():
    ocp, guess = swing_up()
    heavy = ocp.updated("control", weight=1e5)
    s, t = solve(ocp, guess, check=False), solve(heavy, guess, check=False)
    assert t.status.success
    assert t.cost == pytest.approx(1e6 * s.cost, rel=1e-6)
    np.testing.assert_allclose(t.multipliers["dynamics"], 1e6 * s.multipliers["dynamics"], rtol=1e-3, atol=1.0)


def slung_load(x, u, t, p):
    """Planar quadrotor (0.8 kg) with a load (0.2 kg) on a massless rod: x, z, attitude, angle of the rod, and their rates.

    u: thrust and moment. The tension follows from the acceleration along the rod.
    """
    mass, load, length, g = 0.8, 0.2, 0.6, 9.81
    s, c = np.sin(x[3]), np.cos(x[3])
    fx, fz = -u[0] * np.sin(x[2]), u[0] * np.cos(x[2])
    tension = load * (mass * length * x[7] ** 2 - fx * s + fz * c) / (mass + load)
    ax, az = (fx + tension * s) / mass, (fz - tension * c) / mass - g
    return [*x[4:], ax, az, u[1] / 0.01, -(ax * c + (az + g) * s) / length]


def test_a_whole_state_is_reached_with_two_controls():
    """Two controls meet the eight terminal equations over four time steps: elimination would divide by their fourth power."""
    step = to.SampledSystem(to.FunctionMap(slung_load, 8, 2), "rk4")
    goal = to.bounded(to.state_cost(8, [3.6, 0.7, *np.zeros(6)]), name="goal")
    costs = [to.control_cost(2, weight=[1e-3, 1e-2], reference=[9.81, 0.0])]
    fixed = to.OCP.single_phase(
        step, np.zeros(8), 60, 0.05, costs, terminal_constraints=[goal], u_lower=[0.0, -0.5], u_upper=[18.0, 0.5]
    )
    free = to.free_time(fixed, (0.5, 10.0), 1.0)
    guess = free.with_durations(to.interpolated_guess(fixed, [3.6, 0.7, *np.zeros(6)]))
    found, other = (to.solve(free.ocp, guess, solver=solver) for solver in ("ipm", "dms"))
    assert found.status.success and found.iterations < 100
    assert np.abs(found.xs[-1, :8] - [3.6, 0.7, *np.zeros(6)]).max() <= 1e-8
    assert found.cost == pytest.approx(other.cost, rel=1e-5)
    np.testing.assert_allclose(
        found.multipliers["terminal goal"], other.multipliers["terminal goal"], rtol=1e-2, atol=1e-3
    )


def container_crane():
    """Transfer of a container with limited swing, which ends on a bound of the velocity (Y. Sakawa, Y. Shindo, Automatica 18,
    1982; numbers of J. Betts, Practical Methods for Optimal Control Using Nonlinear Programming, 2020). The optimum is 0.0375.
    """

    def crane(x, u, t, p):
        swing = -(u[0] + 27.0756 * x[2] + 2.0 * x[4] * x[5]) / x[1]
        return [x[3], x[4], x[5], u[0] + 17.2656 * x[2], u[1], swing]

    start, end = np.array([0.0, 22.0, 0.0, 0.0, -1.0, 0.0]), np.array([10.0, 14.0, 0.0, 2.5, 0.0, 0.0])
    steps = to.SampledSystem(to.make_backend(to.FunctionMap(crane, 6, 2), "forward_ad"), "rk4")
    swing = to.residual_cost("swing", lambda x, u, t, p: [x[2], x[5]], 6, 2)
    limits = np.array([np.inf, np.inf, np.inf, 2.5, 1.0, np.inf])
    goal = to.bounded(to.state_cost(6, end), name="end")
    return to.OCP.single_phase(
        steps,
        start,
        60,
        9.0 / 60,
        [swing, to.control_cost(2, weight=0.01)],
        [],
        constraints=[to.state_bounds(6, -limits, limits)],
        terminal_constraints=[goal],
        u_lower=[-2.83374, -0.80865],
        u_upper=[2.83374, 0.71265],
    ), end


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_a_larger_tolerance_takes_no_more_iterations(tolerance):
    """The barrier falls until the tolerance on the constraints is met too, so that the cost is nearly the same."""
    ocp, end = container_crane()
    guess = to.interpolated_guess(ocp, end)
    exact = to.solve(ocp, guess, solver="ipm")
    rough = to.solve(ocp, guess, {"gradient_tolerance": tolerance}, solver="ipm")
    assert exact.status.success and exact.cost == pytest.approx(0.0375, rel=1e-2)
    assert rough.status.success and rough.iterations <= exact.iterations + 2
    assert rough.cost == pytest.approx(exact.cost, rel=1e-3)


def test_a_violation_that_stays_near_the_limit_of_double_precision_ends_the_solve():
    """Masses on springs, moved by a force on the first one: the last masses can hardly be controlled (condition number 1e8)."""
    n = 24

    def rates(x, u, t, p):
        springs = [4.0 * (x[i] - x[i + 1]) for i in range(n - 1)]
        return [*x[n:], u[0] - springs[0], *(a - b for a, b in zip(springs, [*springs[1:], 0.0], strict=True))]

    chain = to.SampledSystem(to.FunctionMap(rates, 2 * n, 1, second_order=True), "rk4")
    goal = to.bounded(to.state_cost(2 * n, np.r_[np.ones(n), np.zeros(n)]), name="goal")
    ocp = to.OCP.single_phase(chain, np.zeros(2 * n), 100, 0.3, [to.control_cost(1)], terminal_constraints=[goal])
    found = to.solve(ocp, solver="ipm", check=False)
    assert "Double precision allows no further progress" in found.status.message and found.iterations < 30


def test_second_derivatives_that_are_not_finite_are_the_reason_of_the_failure():
    """Drag |v| v at rest: complex steps give finite first derivatives of a norm at zero, and second ones that are NaN."""

    def rates(x, u, t, p):
        return [x[1], u[0] - np.sqrt(x[0] ** 2 + x[1] ** 2) * x[1]]

    dynamics = to.SampledSystem(to.make_backend(FunctionMap(rates, 2, 1), "complex_step"), "rk4")
    goal = state_cost(2, [1.0, 0.0], [10.0, 10.0], "goal")
    found = solve(OCP.single_phase(dynamics, [0.0, 0.0], 40, 0.05, [control_cost(1, weight=1e-2)], [goal]))
    assert found.status.code is StatusCode.NON_FINITE and "an entry of the Hessian" in found.status.message
