"""Plans in absolute time: interpolation on manifolds, shifts, shrinking horizons, values by knot."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from replanning_cases import DT, KNOTS, numbered_plan, problem, with_jumps
from scipy.spatial.transform import Rotation, Slerp
from textbook_systems import spinning_body

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.scalar import sin
from trajopt.problem.ocp import OCP
from trajopt.replanning.plan import (
    Plan,
    RecedingHorizon,
    ResampledHorizon,
    ShrinkingHorizon,
    fault_of,
    remaining,
    warm_start,
)
from trajopt.replanning.setpoints import _references
from trajopt.results.status import Status, StatusCode


@pytest.fixture
def turning():
    """A plan of an attitude and an angular velocity on an uneven time grid from 2 s on, and its manifold."""
    manifold = spinning_body().manifold
    rng = np.random.default_rng(3)
    quaternions = Rotation.random(4, rng=rng).as_quat()
    xs = np.concatenate([quaternions, rng.standard_normal((4, 3))], axis=1)
    us, K = rng.standard_normal((3, 3)), rng.standard_normal((3, 3, 6))
    return Plan(2.0, np.array([0.0, 0.1, 0.3, 0.35]), xs, us, K), manifold


@pytest.mark.parametrize("t", [2.0, 2.04, 2.1, 2.17, 2.29, 2.349])
def test_states_between_knots_lie_on_geodesics(turning, t):
    plan, manifold = turning
    x = plan.reference(t, manifold)
    expected = Slerp(2.0 + plan.times, Rotation.from_quat(plan.xs[:, :4]))(t)
    assert (Rotation.from_quat(x[:4]) * expected.inv()).magnitude() < 1e-12
    for i in range(4, 7):
        assert x[i] == pytest.approx(np.interp(t - 2.0, plan.times, plan.xs[:, i]), abs=1e-14)


@pytest.mark.parametrize(
    ("times", "t", "held"),
    [
        ([0.0, 0.1, 0.2, 0.2], 2.2, 1),  # at the end, behind the impact it ends with
        ([0.0, 0.1, 0.2, 0.2], 9.0, 1),
        ([0.0, 0.1, 0.1, 0.2], 2.1, 2),  # the stage behind an impact on the way
        ([0.0, 0.0, 0.1, 0.2], 1.0, 1),  # before an impact it begins with
    ],
)
def test_the_control_of_an_impact_is_never_held(turning, times, t, held):
    plan, manifold = turning
    plan = replace(plan, times=np.array(times))
    assert plan.knot(t) == held
    assert plan.knots(np.array([t])) == [held]
    x = plan.reference(t, manifold)
    (streamed,) = _references(plan, plan.knots(np.array([t])), np.array([t]), manifold)
    np.testing.assert_allclose(manifold.difference(x, streamed), 0.0, atol=1e-14)
    np.testing.assert_array_equal(plan.control(t, x, manifold), plan.us[held])
    if t >= plan.end:  # the state is that behind the impact all the same
        np.testing.assert_allclose(manifold.difference(x, plan.xs[-1]), 0.0, atol=1e-14)


def test_a_plan_stays_at_its_ends(turning):
    plan, manifold = turning
    assert plan.end == pytest.approx(2.35)
    for t, end in ((1.0, plan.xs[0]), (9.0, plan.xs[-1])):
        x = plan.reference(t, manifold)
        assert np.abs(manifold.difference(x[:, None], end[:, None])).max() < 1e-14


def test_a_plan_that_stays_in_force_does_not_grow(turning):
    """A controller may ask it for hours, a thousand times a second."""
    plan, manifold = turning
    plan.reference(2.0, manifold)
    before = len(pickle.dumps(plan))
    for t in np.linspace(2.0, 2.35, 50):
        plan.reference(float(t), manifold)
    assert len(pickle.dumps(plan)) == before


@pytest.mark.parametrize(("t", "knot"), [(1.9, 0), (2.0, 0), (2.0999, 0), (2.1, 1), (2.3, 2), (2.35, 2), (5.0, 2)])
def test_controls_and_gains_are_held(turning, t, knot):
    plan, manifold = turning
    assert plan.knot(t) == knot
    on_plan = plan.reference(t, manifold)
    np.testing.assert_allclose(plan.control(t, on_plan, manifold), plan.us[knot], atol=1e-12)
    dx = 1e-3 * np.arange(6.0)
    beside = manifold.integrate(on_plan[:, None], dx[:, None])[:, 0]
    np.testing.assert_allclose(plan.control(t, beside, manifold), plan.us[knot] + plan.K[knot] @ dx, atol=1e-12)


def test_a_warm_start_is_the_plan_on_another_grid():
    ocp = problem()
    N = KNOTS
    xs, us = np.column_stack([np.arange(N + 1.0), np.zeros(N + 1)]), np.arange(float(N))[:, None]
    K = np.arange(float(N))[:, None, None] * np.ones((1, 1, 2))
    rows = {"dynamics": xs[:-1], "bounds on x": xs, "once": np.ones((1, 3))}
    warm = warm_start(Plan(1.0, ocp.times, xs, us, K, rows), ocp, 1.0 + 2.5 * DT)
    np.testing.assert_allclose(warm.guess.xs[:, 0], np.minimum(np.arange(N + 1.0) + 2.5, N), atol=1e-9)
    held = np.minimum(np.arange(N) + 2, N - 1)
    np.testing.assert_array_equal(warm.guess.us[:, 0], held)
    np.testing.assert_array_equal(warm.K[:, 0, 0], held)
    np.testing.assert_array_equal(warm.multipliers["dynamics"][:, 0], held)
    np.testing.assert_array_equal(warm.multipliers["bounds on x"][:, 0], [*held, N])
    np.testing.assert_array_equal(warm.multipliers["once"], rows["once"])


JUMPING = [
    ("steps", "jump", "steps"),
    ("steps", "jump"),
    ("jump", "steps"),
    ("jump", "jump", "steps", "jump", "jump", "jump", "steps", "jump", "jump"),
]
"""Phases of problems whose states jump."""


@pytest.mark.parametrize("kinds", JUMPING, ids="-".join)
def test_a_warm_start_keeps_stages_without_duration_apart(kinds):
    ocp = with_jumps(kinds)
    warm = warm_start(numbered_plan(ocp, start=1.0), ocp, 1.0)
    knots = np.arange(ocp.horizon)
    np.testing.assert_allclose(warm.guess.xs[:, 1], [*knots, ocp.horizon], rtol=0, atol=1e-12)
    for rows in (warm.guess.us, warm.K[:, 0], warm.multipliers["dynamics"]):
        np.testing.assert_array_equal(rows[:, 0], knots)


@pytest.mark.parametrize("kinds", JUMPING, ids="-".join)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_warm_start_of_the_remaining_problem_is_the_rest_of_the_plan(kinds, steps):
    ocp = with_jumps(kinds)
    rest = remaining(ocp, steps * DT)
    warm, knots = warm_start(numbered_plan(ocp), rest, steps * DT), np.arange(ocp.horizon - rest.horizon, ocp.horizon)
    np.testing.assert_allclose(warm.guess.xs[:, 0], [*knots, ocp.horizon], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(warm.guess.us[:, 0], knots)
    np.testing.assert_array_equal(warm.K[:, 0, 0], knots)


def test_a_stage_without_duration_that_a_plan_does_not_have_takes_its_state_there():
    plan, ocp = numbered_plan(with_jumps(["steps", "steps"])), with_jumps(["steps", "jump", "steps"])
    guess = warm_start(plan, ocp, 0.0).guess
    np.testing.assert_allclose(guess.xs[:, 0], [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10], rtol=0, atol=1e-12)
    guess = warm_start(numbered_plan(ocp), plan.problem, 0.0).guess
    np.testing.assert_allclose(guess.xs[:, 0], [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], rtol=0, atol=1e-12)


def test_a_plan_that_ends_with_a_jump_stays_behind_it():
    plan = numbered_plan(with_jumps(["steps", "jump"]))
    for t, expected in ((4.5 * DT, 4.5), (5.0 * DT, 6.0), (9.0 * DT, 6.0)):
        np.testing.assert_allclose(plan.reference(t, plan.problem.manifold), expected, atol=1e-9)


def test_a_shrinking_horizon_ends_when_the_problem_does():
    ocp = problem()
    end = ocp.times[-1]
    horizon = ShrinkingHorizon(ocp)
    assert horizon(0.0) is ocp
    for t in (0.2 * DT, 0.7 * DT, 3.0 * DT, 7.4 * DT, 7.6 * DT):
        rest = horizon(t)
        assert rest is not None and rest.times[-1] == pytest.approx(end - t)
        assert rest.dt.min() >= 0.5 * DT - 1e-12 and rest.dt.max() <= 1.5 * DT + 1e-12
    assert horizon(3.0 * DT).horizon == KNOTS - 3
    assert horizon(end - 1.2 * DT) is None and horizon(end + 1.0) is None
    assert RecedingHorizon(ocp)(end + 1.0) is ocp


def test_a_regridded_horizon_keeps_its_knots():
    ocp = problem(limit=2.0).updated("goal", goal=np.arange(KNOTS + 1.0)[:, None])
    ocp = replace(ocp, u_lower=-1.0 - np.arange(float(KNOTS))[:, None])
    regridded, total = ResampledHorizon(ocp, min_time=0.3), KNOTS * DT
    assert regridded(0.0) is ocp and regridded(total - 0.29) is None
    rest = regridded(0.4)
    np.testing.assert_allclose(rest.dt, (total - 0.4) / KNOTS)
    held = np.searchsorted(ocp.times, 0.4 + rest.times[:-1] + 1e-9, side="right") - 1
    goal = next(term for term in rest.phases[0].terms if term.name == "goal")
    np.testing.assert_array_equal(goal.parameters["goal"][:, 0], held)
    np.testing.assert_array_equal(rest.u_lower[:, 0], -1.0 - held)
    with pytest.raises(ValueError, match="several phases"):
        ResampledHorizon(replace(ocp, phases=ocp.phases * 2))


def test_a_shrinking_horizon_may_end_early():
    assert ShrinkingHorizon(problem(), min_time=0.5)(KNOTS * DT - 0.4) is None


def test_a_receding_horizon_may_move_its_references():
    moved = RecedingHorizon(problem(), lambda ocp, t: ocp.updated("goal", goal=[t]))(0.7)
    assert moved.terminal[0].parameters["goal"] == 0.7


def test_what_remains_keeps_the_rows_of_its_knots():
    ocp = problem()
    rows = np.arange(KNOTS + 1.0)[:, None]
    lower = -np.arange(1.0, KNOTS + 1.0)[:, None]
    bounded = OCP(ocp.updated("goal", goal=rows).phases, ocp.x0, ocp.terminal, lower, -lower)
    rest = remaining(bounded, 4.0 * DT)
    assert rest is not None
    np.testing.assert_array_equal(rest.phases[0].terms[0].parameters["goal"], rows[4:-1])
    np.testing.assert_array_equal(rest.u_lower, lower[4:])


def test_what_remains_of_several_phases():
    ocp = problem()
    both = OCP((*ocp.phases, *problem(knots=5).phases), ocp.x0, ocp.terminal)
    rest = remaining(both, ocp.times[-1] + DT)
    assert rest is not None and [phase.knots for phase in rest.phases] == [4]
    rest = remaining(both, 2.0 * DT)
    assert rest is not None and [phase.knots for phase in rest.phases] == [KNOTS - 2, 5]


def test_a_plan_of_the_remaining_problem_is_the_rest_of_the_plan():
    """Bellman's principle: from a state of the optimal motion, the rest of it is optimal."""
    ocp = problem()
    whole = to.solve(ocp)
    rest = remaining(ocp, 6.0 * DT)
    assert rest is not None
    again = to.solve(OCP(rest.phases, whole.xs[6], rest.terminal))
    np.testing.assert_allclose(again.xs, whole.xs[6:], atol=1e-9)


def along_a_sine(engine="numpy", **options):
    """A mass, drawn by sin(2 t), along sin(3 t) for 2 s: its dynamics and cost read t."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] + sin(2.0 * t)], 2, 1)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")
    along = to.residual_cost("along", lambda x, u, t, p: [x[0] - sin(3.0 * t)], system.manifold, 1, 100.0)
    terms = [to.control_cost(1, weight=1e-3), along]
    return to.OCP.single_phase(dynamics, np.zeros(2), 40, 0.05, terms, [along], **options)


@pytest.mark.parametrize(
    "rest_of", [remaining, lambda ocp, t: ResampledHorizon(ocp)(t)], ids=["remaining", "regridded"]
)
def test_terms_of_the_remaining_problem_read_the_continued_time(rest_of):
    rest = rest_of(along_a_sine(), 0.5)
    rest = rest_of(rest, 0.3)
    xs = np.stack([np.sin(3.0 * (0.8 + rest.times)), np.zeros(len(rest.times))], axis=1)
    assert rest.cost(xs, np.zeros((rest.horizon, 1))) < 1e-25
    assert rest.times[0] == 0.0 and rest.times[-1] == pytest.approx(1.2)


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp", "ipm", "sqp"])
def test_a_plan_of_the_remaining_problem_reads_the_continued_time(solver, engine):
    """Bellman's principle, in a problem whose dynamics, cost and constraint read t."""
    ocp = along_a_sine(engine)
    if solver in ("ipm", "sqp"):
        below = to.residual_constraint("below", lambda x, u, t, p: [x[0] - 0.5 * t], ocp.manifold, 1, -np.inf, 0.2)
        ocp = replace(ocp, phases=(replace(ocp.phases[0], constraints=(below,)),), terminal_constraints=(below,))
    whole = to.solve(ocp, solver=solver)
    assert not ocp.constraints() or (0.2 + 0.5 * ocp.times - whole.xs[:, 0])[13:].min() < 1e-6
    rest = replace(remaining(ocp, 0.6), x0=whole.xs[12])
    again = to.solve(rest, solver=solver)
    assert whole.status.success and again.status.success
    np.testing.assert_allclose(again.xs, whole.xs[12:], atol=1e-6)
    assert again.cost == pytest.approx(rest.cost(again.xs, again.us), rel=1e-9)


def test_problems_of_a_batch_begin_at_times_of_their_own():
    ocps = [along_a_sine("compiled", start=start) for start in (0.0, 0.3, 1.1)]
    found = to.solve_batch(ocps, solver="slq")
    for ocp, xs in zip(ocps, found.xs, strict=True):
        np.testing.assert_allclose(xs, to.solve(ocp, solver="slq").xs, atol=1e-9)
    assert np.abs(np.diff(found.xs, axis=0)).max(axis=(1, 2)).min() > 0.1


def test_values_reach_every_knot_and_the_end():
    rows = np.arange(KNOTS + 1.0)[:, None]
    changed = problem().updated("goal", goal=rows)
    np.testing.assert_array_equal(changed.phases[0].terms[0].parameters["goal"], rows[:-1])
    np.testing.assert_array_equal(changed.terminal[0].parameters["goal"], rows[-1])


@pytest.mark.parametrize(
    ("name", "parameter", "said"), [("gaol", "goal", "is named"), ("goal", "gaol", "no parameter")]
)
def test_values_of_nothing_are_refused(name, parameter, said):
    with pytest.raises(ValueError, match=said):
        problem().updated(name, **{parameter: np.zeros((KNOTS + 1, 1))})


def test_values_of_another_size_are_refused():
    with pytest.raises(ValueError, match="has 1 numbers; got 2"):
        problem().updated("goal", goal=np.zeros((KNOTS + 1, 2)))
    with pytest.raises(
        ValueError, match=r"'goal': goal has shape \(7, 1\); expected \(n,\), \(N = 20, n\) or \(N \+ 1, n\)"
    ):
        problem().updated("goal", goal=np.zeros((7, 1)))


def test_a_row_is_for_all_knots_and_rows_of_the_knots_end_with_the_last():
    rows = np.arange(1.0 * KNOTS)[:, None]
    one, many = (problem().updated("goal", goal=v) for v in (np.array([3.0]), rows))
    assert one.phases[0].terms[0].parameters["goal"].tolist() == [3.0] == one.terminal[0].parameters["goal"].tolist()
    np.testing.assert_array_equal(many.phases[0].terms[0].parameters["goal"], rows)
    assert many.terminal[0].parameters["goal"].tolist() == [KNOTS - 1.0]


def test_unusable_plans_have_a_fault():
    good = to.solve(problem())
    assert fault_of(good) is None
    assert fault_of(replace(good, status=Status(StatusCode.TIME_LIMIT, "Stopped."))) is None
    assert fault_of(replace(good, status=Status(StatusCode.INFEASIBLE, "No way."))) == "infeasible: No way."
    unbegun = replace(good, iterations=0, status=Status(StatusCode.MAX_ITERATIONS, "Stopped."))
    assert fault_of(unbegun).startswith("max_iterations before the first iteration: the solution is the guess")
    for name in ("xs", "us", "K"):
        bad = getattr(good, name).copy()
        bad.flat[3] = np.inf
        assert fault_of(replace(good, **{name: bad})) == f"{name} of the solution is not finite"


def test_a_simulator_names_wrong_arguments():
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / p["mass"][0]], 2, 1)
    simulator = to.Simulator(to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler"), {"mass": np.array([2.0])})
    np.testing.assert_allclose(simulator.advance([0, 0], [[4]], 0.1), [0.0, 0.2])  # lists of integers
    np.testing.assert_allclose(simulator.advance(np.zeros(2), np.array([[4.0]]), 0.1), [0.0, 0.2])
    with pytest.raises(ValueError, match=r"us has shape \(\); expected"):
        simulator.advance(np.zeros(2), 4.0, 0.1)
    with pytest.raises(ValueError, match=r"x has shape \(3,\); expected \(nx = 2,\)"):
        simulator.advance(np.zeros(3), np.array([[4.0]]), 0.1)
    with pytest.raises(ValueError, match=r"us has shape \(1, 3\); expected \(n, nu = 1\)"):
        simulator.advance(np.zeros(2), np.zeros((1, 3)), 0.1)
    for h in (0.0, -0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"expected a positive, finite time step"):
            simulator.advance(np.zeros(2), np.array([[4.0]]), h)


@pytest.mark.parametrize(
    "force",
    [
        lambda t, wind: np.where(t > 1.0, -4.0, 0.0),
        lambda t, wind: wind * np.sin(5.0 * t),
        lambda t, wind: wind * np.where(t > 1.0, 1.0, 0.0),
    ],
)
def test_a_simulator_finds_that_dynamics_read_the_time(force):
    """A force that begins later, or is zero with the parameters of the first call, which may also fail."""
    rates = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] + force(t, p["wind"][0])], 2, 1)
    step = to.SampledSystem(to.make_backend(rates, "forward_ad", engine="numpy"), "rk4")
    simulator, x, us = to.Simulator(step), np.array([0.1, 0.2]), np.zeros((4, 1))
    with pytest.raises(Exception, match="wind"):
        simulator.advance(x, us, 0.1, {"wnd": np.zeros(1)})
    for wind, t in ((0.0, 0.0), (1.0, 0.0), (1.0, 2.0)):
        there = simulator.advance(x, us, 0.1, {"wind": np.array([wind])}, t)
        other = to.Simulator(step).advance(x, us, 0.1, {"wind": np.array([wind])}, t)
        np.testing.assert_array_equal(there, other)
    assert abs(there - simulator.advance(x, us, 0.1, {"wind": np.ones(1)}, 0.0)).max() > 1e-3


def test_a_simulator_caches_one_evaluator_for_steps_of_any_length():
    """Predictions over the irregular steps of a real loop; each length traced the problem again."""
    simulator, u = to.Simulator(problem().phases[0].dynamics), np.array([[2.0]])
    for h in (0.01, 0.02, 0.0137, 0.01):
        np.testing.assert_allclose(simulator.advance(np.zeros(2), u, h), [h * h, 2.0 * h], atol=1e-15)
    assert len(simulator._ready) == 1


def test_a_plan_that_ends_far_away_holds_its_last_control():
    """No control holds its last state, at which the dynamics are not finite."""
    cubic = to.FunctionMap(lambda x, u, t, p: [x[1], x[0] * x[0] * x[0] * u[0]], 2, 1)
    dynamics = to.SampledSystem(make_backend(cubic, "forward_ad"), "rk4")
    ocp = OCP.single_phase(dynamics, np.zeros(2), KNOTS, DT, [to.control_cost(1)])
    far = replace(numbered_plan(ocp), xs=np.full((KNOTS + 1, 2), 1e200))
    with np.errstate(over="ignore"):
        assert far.feed_forward(far.end + 1.0, KNOTS - 1) == far.us[-1]
