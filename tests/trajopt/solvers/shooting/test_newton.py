"""Newton's method on all states: barrier, filter, optimality error, and arms that were not used for tuning."""

from dataclasses import replace

import numpy as np
import pytest
from newton_numpy import Barrier, interior
from numpy_lq import stationarity
from shooting_cases import check_optimum, pendulum_swing_up
from shooting_numpy import scaled

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from trajopt import (
    OCP,
    Guess,
    SampledSystem,
    StatusCode,
    control_cost,
    objective_term,
    residual_cost,
    solve,
    solve_batch,
    state_cost,
    validate,
)
from trajopt.lq.lq import LQProblem
from trajopt.results.status import Status
from trajopt.solvers.methods.method import End, Size
from trajopt.solvers.methods.newton import FAR, PLAIN, WIDE, WIDE_SHARE, Newton
from trajopt.solvers.methods.requests import FRACTIONS, Direction, Point, Step, Trial
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.rules.barrier import first_weight
from trajopt.solvers.rules.line_search import Filter
from trajopt.solvers.rules.regularization import FIRST_SHIFT, raised_shift
from trajopt.solvers.shooting.shooting_diagnosis import no_step
from trajopt.solvers.termination import Errors, Measured
from trajopt.stage.evaluators import evaluator_for


def random_lq(rng, N=6, n=3, m=2):
    A, B = rng.normal(size=(N, n, n)), rng.normal(size=(N, n, m))
    Q, R = np.tile(np.eye(n), (N + 1, 1, 1)), np.tile(np.eye(m), (N, 1, 1))
    return LQProblem(
        A,
        B,
        np.zeros((N, n)),
        Q,
        rng.normal(size=(N + 1, n)),
        np.zeros((N, m, n)),
        R,
        rng.normal(size=(N, m)),
        np.zeros(n),
    )


def test_costates_under_feedback_leave_the_gradient_of_the_lagrangian():
    rng = np.random.default_rng(0)
    lq, K = random_lq(rng), rng.normal(size=(6, 2, 3))
    found = stationarity(lq, K)
    lam = found.costates
    for k in range(6):
        in_u = lq.r[k] + lq.B[k].T @ lam[k + 1]
        in_x = lq.q[k] + lq.A[k].T @ lam[k + 1] - lam[k]
        assert found.gradient[k] == pytest.approx(in_u, abs=1e-9)
        assert in_x == pytest.approx(-K[k].T @ in_u, abs=1e-8)  # the remainder vanishes with the gradient


def test_the_measure_knows_no_units():
    rng = np.random.default_rng(1)
    lq = random_lq(rng)
    found = stationarity(lq)
    units = np.array([1e-3, 50.0])  # of the controls; and a cost in another unit
    other = lq._replace(B=lq.B * units, r=1e4 * lq.r * units, q=1e4 * lq.q)
    turned = stationarity(other)
    assert scaled(turned, turned.gradient) == pytest.approx(scaled(found, found.gradient), rel=1e-12)


def test_rounding_errors_of_a_control_that_hardly_matters_are_measured_by_the_others():
    lq = random_lq(np.random.default_rng(2))
    scale = np.array([1.0, 1e-15])
    found = stationarity(lq._replace(B=lq.B * scale, r=lq.r * scale))
    assert found.size[1] == pytest.approx(2.0**-26 * found.size[0], rel=1e-12)
    assert np.abs(scaled(found, found.gradient))[:, 1].max() < 1e-6


def test_a_control_that_ends_at_zero_holds_no_solve_up():
    """At the optimum all terms of its gradient vanish, so the remainder is rounding error."""

    def motion(x, u, t, p):
        return [x[2], x[3], u[0] - 0.3 * sm.sin(x[0]), u[1] - 0.2 * x[3]]

    system = FunctionMap(motion, 4, 2, second_order=True)
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    terms = [control_cost(2, weight=1e-3)], [state_cost(system.manifold, np.zeros(4), 10.0)]
    limits = {"u_lower": [-1e3, -1e3], "u_upper": [1e3, 1e3]}
    ocp = OCP.single_phase(dynamics, [1.0, 0.0, 0.0, 0.0], 50, 0.05, *terms, **limits)
    found = solve(ocp, Guess(np.zeros((51, 4)), np.full((50, 2), 0.5)), solver="ddp")
    assert found.status.code is StatusCode.CONVERGED
    assert found.iterations <= 6  # 15, and no success, where it is measured by its own rounding errors
    assert np.abs(found.us[:, 1]).max() < 1e-6


def test_the_barrier_is_the_integral_of_its_gradient_and_free_sides_add_nothing():
    lower, upper = np.array([[-1.0, -np.inf]]), np.array([[2.0, 3.0]])
    us, step = np.array([[0.5, 1.0]]), np.array([[0.3, -0.7]])
    barrier = Barrier.at_controls((lower, upper), us, 0.35)
    lq = random_lq(np.random.default_rng(2), N=1)
    slope = np.sum((barrier.imposed(lq, us).r - lq.r) * step)
    h = 1e-6
    difference = barrier.logs(us + h * step) - barrier.logs(us - h * step)
    assert slope == pytest.approx(0.35 * difference / (2 * h), rel=1e-7)
    assert np.isinf(barrier.logs(np.array([[2.5, 0.0]])))
    assert np.isfinite(barrier.logs(np.array([[0.0, -1e6]])))


def test_steps_of_the_barrier_stay_inside_and_guesses_are_moved_there():
    bounds = (np.full((3, 1), -1.0), np.full((3, 1), 1.0))
    us = interior(np.array([[-5.0], [0.0], [1.0]]), bounds)
    barrier = Barrier.at_controls(bounds, us, first_weight(1.0, us.size))
    du = np.array([[4.0], [-3.0], [9.0]])
    alpha = barrier.longest(us, du)
    assert 0.0 < alpha < 1.0
    assert np.isfinite(barrier.logs(us + alpha * du))


def test_the_filter_refuses_what_an_earlier_iterate_dominates():
    rule = Filter(1.0)
    assert rule.accepts((2.0, 10.0), (1.0, 12.0), -1.0)  # defects decrease at any cost
    rule.add((2.0, 10.0))
    assert not rule.accepts((1.0, 12.0), (2.0, 11.0), -1.0)
    assert rule.accepts((0.0, 10.0), (0.0, 9.0), -1.0)
    assert not rule.accepts((0.0, 10.0), (0.0, 10.1), -1.0)


@pytest.mark.parametrize("limit", [2.5, 4.0, 8.0])
def test_bounds_hold_to_the_last_bit_and_the_rest_is_an_optimum(limit):
    ocp = pendulum_swing_up(horizon=70, limit=limit)
    solution = solve(ocp, None, {"gradient_tolerance": 1e-9}, solver="ddp")
    assert solution.status.success
    assert np.abs(solution.us).max() <= limit
    check_optimum(ocp, solution)


@pytest.mark.parametrize("weight", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("horizon", [20, 100])
def test_the_barrier_has_a_weight_although_the_cost_of_the_guess_is_zero(horizon, weight):
    """Farthest position in 2 s with |u| <= 1: the optimum is u = 1."""
    mass = SampledSystem(make_backend(FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "forward_ad"), "rk4")
    far = objective_term("far", lambda x, u, t, p: [-x[0]], Manifold.vector(2), weight)
    ocp = OCP.single_phase(mass, [0.0, 0.0], horizon, 2.0 / horizon, [], [far], u_lower=-1.0, u_upper=1.0)
    solution, batch = solve(ocp, solver="ddp"), solve_batch(ocp, {"x0": np.zeros((2, 2))}, solver="ddp")
    for status in (solution.status, *batch.status):
        assert status.code is StatusCode.CONVERGED and "precision" not in status.message
    assert solution.iterations <= 10
    np.testing.assert_allclose([solution.cost, *batch.cost], -2.0 * weight, rtol=1e-6)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, None), (None, 20.0), (-30.0, 30.0)])
@pytest.mark.parametrize("solver", ["ddp", "auto"])
def test_a_cost_that_vanishes_at_the_optimum_takes_few_iterations(solver, lower, upper):
    """Forces that follow a reference exactly within their bounds: errors relative to the cost never became small."""
    mass = SampledSystem(make_backend(FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "forward_ad"), "rk4")
    follow = control_cost(1, reference=1.0 + np.sin(np.arange(20.0))[:, None])
    ocp = OCP.single_phase(mass, [0.0, 0.0], 20, 0.05, [follow], u_lower=lower, u_upper=upper)
    solution = solve(ocp, solver=solver)
    batch = solve_batch(ocp, {"x0": np.zeros((2, 2))}, solver=solver)
    for status in (solution.status, *batch.status, solve(ocp, solver=solver, check=False).status):
        assert status.code is StatusCode.CONVERGED
    assert max(solution.iterations, *batch.iterations) <= 30
    assert solution.cost <= 1e-12


def test_a_yield_is_as_large_from_a_guess_without_any():
    """Batch reactor of Ray with a temperature-like control in [0, 5]; the guess u = 0 yields nothing."""
    reactor = FunctionMap(lambda x, u, t, p: [-(u[0] + 0.5 * u[0] * u[0]) * x[0], u[0] * x[0]], 2, 1)
    product = objective_term("yield", lambda x, u, t, p: [-x[1]], Manifold.vector(2))
    step = SampledSystem(make_backend(reactor, "forward_ad"), "rk4")
    ocp = OCP.single_phase(step, [1.0, 0.0], 50, 0.02, [], [product], u_lower=0.0, u_upper=5.0)
    solution = solve(ocp, solver="ddp")
    assert solution.status.code is StatusCode.CONVERGED and solution.iterations < 30
    np.testing.assert_allclose(solution.cost, -0.5734988, atol=1e-6)


def test_steps_at_rounding_level_far_from_an_optimum_are_a_failure():
    method = method_at(1.0)
    method.rounding.exhausted = lambda *_: True
    assert method._judge(method.at._replace(cost=2.0), 0.0) is End.NO_STEP


def double_pendulum():
    """From rest below to upright in 5 s, by a torque in the second joint alone."""

    def motion(x, u, t, p):
        a, b, va, vb = (x[i] for i in range(4))
        m11, m12, m22 = 3.0 + 2.0 * sm.cos(b), 1.0 + sm.cos(b), 0.0 * b + 1.0
        h, g = sm.sin(b), 9.81
        f1 = h * vb * (2.0 * va + vb) - g * (2.0 * sm.sin(a) + sm.sin(a + b))
        f2 = u[0] - h * va * va - g * sm.sin(a + b)
        det = m11 * m22 - m12 * m12
        return sm.stack([va, vb, (m22 * f1 - m12 * f2) / det, (m11 * f2 - m12 * f1) / det])

    names = ("a", "b", "da", "db")
    system = FunctionMap(motion, Manifold.vector(4, names), 1, second_order=True)
    upright = [np.pi, 0.0, 0.0, 0.0]
    return OCP.single_phase(
        SampledSystem(make_backend(system, "forward_ad"), "rk4"),
        np.zeros(4),
        100,
        0.05,
        [control_cost(1, weight=1e-2), state_cost(system.manifold, upright, 1e-2)],
        [state_cost(system.manifold, upright, 1e3)],
    )


def test_the_double_pendulum_leaves_a_guess_of_zeros():
    solution = solve(double_pendulum(), None, {"max_iterations": 300}, solver="ddp")
    assert solution.status.success
    assert solution.xs[-1] == pytest.approx([np.pi, 0.0, 0.0, 0.0], abs=0.05)


def method_at(scaled_gradient, widest=0):
    """The method at a point whose gradient is this share of the size of its terms."""
    method = Newton(Size(widest, 2, bounded=False), DDPOptions(max_backtracks=3), 10)
    method.at = Point(5.0, 1.0, scaled_gradient, 0.0, 0.0, 1.0, np.inf, -np.inf, 0.0, 1.0)
    return method


def direction(fraction, cost):
    """A step that promises to lower the cost by 1, and its full length."""
    return Direction(fraction, -1.0, 1.0, 1.0, Trial(cost, 0.0, 0.0))


def step_of(method, answer):
    """The step that the method finds with these answers, and its requests."""
    search, reply, asked = method._step(), None, []
    try:
        while True:
            asked.append(search.send(reply))
            reply = answer(asked[-1])
    except StopIteration as ended:
        return ended.value, asked


def test_short_steps_are_taken_without_damping():
    """A step that is accepted at an eighth of its length stays as it is, however often that happens."""

    def answer(request):
        if isinstance(request, Step):
            assert request.delta == 0.0
            return direction(len(FRACTIONS) - 1, 9.0)
        return [Trial(9.0 if request.first + i < 3 else 4.8, 0.0, 0.0) for i in range(request.max_trials)]

    method = method_at(1.0, widest=len(FRACTIONS) - 1)
    assert [step_of(method, answer)[0].alpha for _ in range(8)] == [0.125] * 8
    assert method.last_delta == 0.0


@pytest.mark.parametrize("length", [1.0, 0.125])
def test_curvature_that_was_of_no_use_is_asked_for_again_later_or_near_a_solution(length):
    """Full steps without curvature leave it out for a while; short ones do not."""
    last = len(FRACTIONS) - 1

    def first_fraction(method):
        def answer(request):
            if isinstance(request, Step):
                return direction(last, 4.0 if length == 1.0 else 9.0)
            return [Trial(9.0 if request.first + i < 3 else 4.8, 0.0, 0.0) for i in range(request.max_trials)]

        return step_of(method, answer)[1][0].first

    method = method_at(2.0 * FAR)
    if length < 1.0:
        assert [first_fraction(method) for _ in range(2)] == [0, 0]
        return
    assert [first_fraction(method) for _ in range(PLAIN + 2)] == [0, *[last] * PLAIN, 0]
    method.at = method.at._replace(scaled=0.5 * FAR)
    assert first_fraction(method) == 0


def test_the_filter_keeps_only_what_no_other_pair_dominates():
    rule = Filter(1.0)
    for pair in [(2.0, 10.0), (1.0, 12.0), (3.0, 11.0), (0.5, 9.0)]:
        rule.add(pair)
    assert rule.pairs == [(0.5, 9.0)]
    rule.add((0.1, 20.0))
    assert rule.pairs == [(0.5, 9.0), (0.1, 20.0)]


def test_a_promise_beyond_the_largest_number_is_no_error():
    assert Filter(1.0).decides_by_cost((1e-5, 1.0), -1e300)
    assert Filter(1.0).decides_by_cost((1e-5, 1.0), -np.inf)


def test_the_filter_limits_defects():
    """Steps of a swing-up open large defects; the filter rejects defects above its limit."""
    solution = solve(double_pendulum(), None, {"max_iterations": 300}, solver="ddp")
    assert max(record.defect for record in solution.history) <= WIDE

    narrow = Filter(2.0, largest=5.0)
    assert not narrow.accepts((1.0, 1.0), (11.0, 0.0), -1.0)
    assert narrow.accepts((1.0, 1.0), (9.0, 0.0), -1.0)


def test_later_defects_stay_below_a_fraction_of_the_travel():
    """If defects are as large as the travel, the limit is their sum; else it is WIDE_SHARE of the travel."""
    method = method_at(1.0)
    method.begun, method.filter = True, Filter(2.0, WIDE)
    for travel, gaps, largest in ((80.0, 1.0, 80.0 * WIDE_SHARE), (8.0, 6.0, 6.0)):
        method._arrive(method.at._replace(travel=travel, theta=gaps))
        assert not method.filter.matched((largest, 0.0))
        assert method.filter.matched((1.01 * largest, -np.inf))


def test_damping_starts_below_the_last_one_that_served():
    assert raised_shift(0.0, 0.0, 0.0) == FIRST_SHIFT
    assert raised_shift(0.0, 1e-9, 0.0) == pytest.approx(1e-9 / 3.0)


LIFT_OPTIMUM = 81.45045678417
"""Optimal cost of the lift below in N and N m, by single shooting in NumPy with complex-step gradients and SciPy's BFGS."""


def lift(cost_unit, force_unit):
    """A carriage of 20 kg on a vertical rail, with an arm of 9 kg: the drive holds 284 N in a cost of newtons."""
    mass, arm, length, g = 20.0, 9.0, 0.9, 9.81
    moment, inertia = 0.5 * arm * length, arm * length**2 / 3.0

    def f(x, u, t, p):
        c, force = moment * sm.cos(x[1]), u[0] * force_unit - (mass + arm) * g + moment * sm.sin(x[1]) * x[3] * x[3]
        torque, det = u[1] - g * c, (mass + arm) * inertia - c * c
        return [x[2], x[3], (inertia * force - c * torque) / det, ((mass + arm) * torque - c * force) / det]

    def hand(x, u, t, p):
        return [length * sm.cos(x[1]) - 0.417, x[0] + length * sm.sin(x[1]) - 1.439]

    manifold, start = Manifold.vector(4), np.array([0.5, -0.97, 0.0, 0.0])
    terms = [
        control_cost(2, reference=np.zeros(2), weight=1e-3 * cost_unit * np.array([force_unit**2, 1.0])),
        state_cost(manifold, np.zeros(4), cost_unit * np.array([0.0, 0.0, 0.1, 0.1])),
    ]
    terminal = [
        residual_cost("goal", hand, manifold, 2, weight=1e3 * cost_unit),
        state_cost(manifold, np.zeros(4), cost_unit * np.array([0.0, 0.0, 10.0, 10.0])),
    ]
    system = SampledSystem(make_backend(FunctionMap(f, manifold, 2), "forward_ad"), "rk4")
    ocp = OCP.single_phase(system, start, 40, 0.05, terms, terminal, name="lift")
    hold = np.array([(mass + arm) * g / force_unit, g * moment * np.cos(start[1])])
    return ocp, Guess(np.tile(start, (41, 1)), np.tile(hold, (40, 1)))


@pytest.mark.parametrize(("cost_unit", "force_unit"), [(1.0, 1.0), (1e-3, 1.0), (1e3, 1.0), (1.0, 284.0)])
def test_units_of_cost_and_controls_change_neither_the_optimum_nor_the_effort(cost_unit, force_unit):
    """Wide gaps pay here, since a motion that falls saves the force that holds it; damping is small where the cost is."""
    solution = solve(*lift(cost_unit, force_unit), solver="ddp")
    assert solution.status.success
    assert solution.cost / cost_unit == pytest.approx(LIFT_OPTIMUM, rel=1e-6)
    assert solution.iterations <= 20


def test_an_end_at_once_keeps_a_record():
    ocp = pendulum_swing_up()
    xs = np.zeros((ocp.horizon + 1, 2))
    for solver in ("ddp", "slq"):
        refused = solve(ocp, Guess(xs, np.full((ocp.horizon, 1), 1e200)), {"shooting": "all"}, solver=solver)
        assert refused.status.code is StatusCode.NON_FINITE
        assert len(refused.history) == 1


def test_rounding_and_small_changes_are_success_only_near_an_optimum():
    for code, enough in ((StatusCode.PRECISION_LIMIT, 1e-6), (StatusCode.COST_CONVERGED, 1e-4)):
        assert Status(code, "", kkt=0.9 * enough).success
        assert not Status(code, "", kkt=1.1 * enough).success
    assert not Status(StatusCode.MAX_ITERATIONS, "", kkt=0.0).success


def damped_axis(rate, dt):
    def motion(x, u, t, p):
        return sm.stack([x[1], u[0] - rate * x[1] * (1.0 + x[1] * x[1]) - sm.sin(x[0])])

    system = FunctionMap(motion, Manifold.vector(2, ("angle", "rate")), 1, second_order=True)
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "semi_implicit_euler")
    terms = [control_cost(1, weight=1e-6)], [state_cost(system.manifold, [1.0, 0.0], 10.0)]
    return OCP.single_phase(dynamics, [0.5, 0.0], 100, dt, *terms)


def test_an_unstable_integration_is_named_instead_of_the_search():
    ocp = damped_axis(150.0, 0.1)
    lq = evaluator_for(ocp).expand(np.tile(ocp.x0, (101, 1)), np.zeros((100, 1))).lq
    status = no_step(ocp, lq, Measured(3, Errors(gradient=1.0), Errors()))
    assert not status.success
    assert "integration is unstable" in status.message
    assert status.component == "rate"


def test_unstable_integration_does_not_disturb_the_search():
    """Open-loop costates grow beyond 10^90; costates under feedback lead to the optimum of DDP, with a warning."""
    ocp = replace(damped_axis(150.0, 0.1), replay_tolerance=np.inf)
    found = [solve(ocp, None, {"max_iterations": 20}, solver=solver) for solver in ("slq", "fddp", "ilqr", "ddp")]
    assert all(s.status.success for s in found)
    assert [s.cost for s in found] == pytest.approx([found[-1].cost] * 4, rel=1e-9)
    assert any("time step is too long" in finding.message for finding in validate(ocp))


def test_a_guess_that_falls_is_held_by_feedback():
    def motion(x, u, t, p):
        return sm.stack([x[1], u[0] + 20.0 * x[0] * (1.0 + x[0] * x[0])])  # runs away from every motion but rest

    system = FunctionMap(motion, Manifold.vector(2, ("angle", "rate")), 1, second_order=True)
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "semi_implicit_euler")
    terms = [control_cost(1, weight=1e-2), state_cost(system.manifold, [0.0, 0.0], 1.0)]
    ocp = OCP.single_phase(dynamics, [0.05, 0.0], 200, 0.05, terms, [state_cost(system.manifold, [0.1, 0.0], 10.0)])
    solution = solve(ocp, Guess(np.zeros((201, 2)), np.zeros((200, 1))), {"max_iterations": 3}, solver="ilqr")
    assert solution.history[0].cost < 1.0
