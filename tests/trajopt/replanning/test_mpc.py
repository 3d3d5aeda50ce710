"""Model-predictive control in a user-defined loop."""

from __future__ import annotations

import copy
import pickle
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from replanning_cases import DT, KNOTS, mass, problem, spin

import trajopt as to
from experiments.replan.faults import Failing
from trajopt.replanning import converged_planner
from trajopt.replanning.plan import RecedingHorizon, ResampledHorizon, ShrinkingHorizon
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.sampled_plant import SampledPlant
from trajopt.results.status import Status, StatusCode
from trajopt.step import time_dependence

PERIOD = 0.05


def exact(x, u, h=PERIOD):
    """The mass under a held control."""
    return np.array([x[0] + h * x[1] + 0.5 * h * h * u[0], x[1] + h * u[0]])


def run(mpc, steps, x=(0.0, 0.0), start=0.0, delay=0.0):
    """States of the mass under the controls, each of which acts ``delay`` after its measurement."""
    x, before, found = np.array(x), np.zeros(1), []
    for k in range(steps):
        u = mpc.step(x, start + k * PERIOD)
        x = exact(exact(x, before, delay), u, PERIOD - delay)
        before = u
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize("solver", ["real_time", "slq", "ipm", RealTimeSLQ()])
def test_the_goal_is_reached_from_any_time_on(solver):
    mpc = to.MPC(problem(), solver, period=PERIOD)
    xs = run(mpc, 60, start=12345.6)
    assert abs(xs[-1, 0] - 1.0) < 1e-3 and abs(xs[-1, 1]) < 1e-2
    assert mpc.statistics()["solves"] == 60 and mpc.statistics()["failed"] == 0 and not mpc.statistics()["events"]
    assert mpc.plan.start == pytest.approx(12345.6 + 59 * PERIOD)


def test_time_stamps_of_1970_on_omit_no_solve():
    """Floats near 1.8e9 are 0.2 us apart, so that steps come early or late by that."""
    mpc = to.MPC(problem(), period=0.01)
    for k in range(50):
        mpc.step(np.zeros(2), 1_764_600_000.7 + 0.01 * k)
    assert mpc.statistics()["solves"] == 50


def test_the_first_control_is_that_of_the_optimum():
    """The problem is linear-quadratic: one iteration solves it, but for its regularization."""
    ocp, x = problem(), np.array([0.3, -0.2])
    u = to.MPC(ocp, period=PERIOD).step(x, 0.0)
    best = to.solve(to.OCP(ocp.phases, x, ocp.terminal), solver="slq")
    np.testing.assert_allclose(u, best.us[0], rtol=1e-5)


def test_real_time_iterations_satisfy_constraints():
    ocp = problem()
    (phase,) = ocp.phases
    slow = to.state_bounds(ocp.manifold, [-np.inf, -0.4], [np.inf, 0.4])
    ocp = to.OCP([to.Phase(phase.dynamics, phase.dt, phase.terms, {}, (slow,))], ocp.x0, ocp.terminal)
    xs = run(to.MPC(ocp, period=PERIOD), 80)
    assert abs(xs[-1, 0] - 1.0) < 0.01 and np.abs(xs[:, 1]).max() == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("rows", [(1,), (KNOTS, 1), (KNOTS + 1, 1)])
def test_values_hold_from_the_next_step_on(rows):
    mpc = to.MPC(problem(), period=PERIOD)
    run(mpc, 10)
    mpc.set("goal", np.full(rows, -0.5))
    assert run(mpc, 60, start=10 * PERIOD)[-1, 0] == pytest.approx(-0.5, abs=1e-3)
    changed = problem(goal=-0.5).updated("speed", weight=[0.0, 9.0])
    mpc.set("speed", weight=[0.0, 9.0])
    x = np.array([0.2, 0.1])
    u = mpc.step(x, 80 * PERIOD)
    np.testing.assert_allclose(u, to.solve(to.OCP(changed.phases, x, changed.terminal), solver="slq").us[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "values", "changes", "said"),
    [
        ("gaol", [1.0], {}, "is named 'gaol'; known: goal"),
        ("u_lower", [1.0], {}, r"horizon=lambda t: dataclasses.replace\(ocp, u_lower=...\)"),
        ("goal", [1.0, 2.0], {}, "has 1 numbers; got 2"),
        ("goal", np.zeros((7, 1)), {}, r"goal has shape \(7, 1\); expected"),
        ("goal", [np.nan], {}, "goal is not finite"),
        ("goal", "far", {}, "'goal': goal = 'far'; expected numbers"),
        ("goal", None, {"gaol": [1.0]}, "no parameter"),
        ("goal", None, {}, "'goal': no value is given"),
        ("gaol", None, {}, "no cost term or constraint is named 'gaol'"),
        ("dynamics", [1.0], {}, "the dynamics have no parameters"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_change_nothing(name, values, changes, said):
    mpc, untouched = to.MPC(problem(), period=PERIOD), to.MPC(problem(), period=PERIOD)
    with pytest.raises(ValueError, match=said):
        mpc.set(name, values, **changes)
    np.testing.assert_array_equal(run(mpc, 3), run(untouched, 3))


@pytest.mark.parametrize("solver", ["real_time", "slq", "ipm"])
def test_a_load_is_carried_once_the_dynamics_have_its_mass(solver):
    """The control costs nothing at 10 N, which hold a mass of 1 kg; with 2 kg the model of 1 kg lets the mass sag."""
    lift = to.FunctionMap(lambda x, u, t, p: [x[1], (10.0 + u[0]) / p["mass"][0] - 10.0], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(lift, "forward_ad"), "semi_implicit_euler")
    running = [to.state_cost(lift.manifold, [0.0, 0.0], [100.0, 1.0]), to.control_cost(1, weight=1e-4)]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, PERIOD, running, parameters={"mass": 1.0})
    mpc, plant, x, heights = (
        to.MPC(ocp, solver, period=PERIOD),
        to.Simulator(step, {"mass": np.array([2.0])}),
        np.zeros(2),
        [],
    )
    for k in range(120):
        if k == 60:
            mpc.set("dynamics", mass=2.0)
        x = plant.advance(x, mpc.step(x, k * PERIOD)[None], PERIOD)
        heights.append(x[0])
    assert abs(heights[59]) > 5e-3 and abs(heights[-1]) < 0.1 * abs(heights[59])
    with pytest.raises(ValueError, match="the dynamics have no parameter 'weight'; they have: mass"):
        mpc.set("dynamics", weight=1.0)


@pytest.mark.parametrize("name", ["xs", "us", "K"])
def test_an_initial_plan_is_finite(name):
    good = to.solve(problem())
    bad = replace(good, **{name: np.full_like(getattr(good, name), np.nan)})
    for plan in (bad, to.Plan.from_solution(bad, 0.0)):
        with pytest.raises(ValueError, match=f"initial_plan: {name} is not finite; leave it out"):
            to.MPC(problem(), period=PERIOD, initial_plan=plan)


def pendulum(**changes):
    """Two pendulums at rest, of a robot with some changes."""
    model = to.load_robot("double_pendulum").replace(**changes)
    dynamics = to.SampledSystem(to.make_backend(to.FreeBody(model), "analytic"), "semi_implicit_euler")
    return to.OCP.single_phase(dynamics, np.zeros(4), 3, DT, [to.control_cost(2)], model=model)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "larger"}, "with the robot double_pendulum instead of larger"),
        (
            {"joint_names": ("hip", "knee"), "circular": ("hip", "knee")},
            r"with the states q\[shoulder\], .* instead of q\[hip\], q\[knee\]",
        ),
    ],
)
def test_an_initial_plan_is_of_the_same_robot(change, said, tmp_path):
    one, other = pendulum(), pendulum(**change)
    first = to.solve(one)
    first.save(tmp_path / "first.npz")
    loaded, heavy = to.Solution.load(tmp_path / "first.npz"), pendulum(mass=1.1 * one.model.mass)
    for plan in (first, loaded, to.Plan.from_solution(first, 0.0, one)):
        with pytest.raises(ValueError, match=f"initial_plan is of another problem, {said}.*: solve this problem"):
            to.MPC(other, initial_plan=plan)
        to.MPC(heavy, initial_plan=plan)
    with pytest.raises(TypeError, match=r"initial_plan is a Guess; expected a plan or a solution"):
        to.MPC(one, initial_plan=to.constant_guess(one))


def test_an_initial_plan_may_be_of_the_last_phases():
    """Their controls may have other names, as when contacts change."""

    def phase(name):
        system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, control_names=(name,))
        return to.Phase(to.SampledSystem(system, "rk4"), np.full(5, DT), (to.control_cost(1),))

    ocp = to.OCP((phase("push"), phase("pull")), np.zeros(2), terminal=(to.state_cost(2, [1.0, 0.0]),))
    last = to.ShrinkingHorizon(ocp)(5 * DT)
    for other in (last, replace(last, phases=(phase("lift"),))):
        plan = to.Plan.from_solution(to.solve(other), 5 * DT, other)
        if other is last:
            to.MPC(ocp, initial_plan=plan)
            continue
        with pytest.raises(ValueError, match="with the controls lift instead of push"):
            to.MPC(ocp, initial_plan=plan)


def test_the_age_of_the_last_measurement_is_known():
    mpc, x = to.MPC(problem(), period=PERIOD, delay=0.02), np.zeros(2)
    ages = [mpc.measurement_age]
    for k, measured in enumerate([None, x, x, None, np.full(2, np.nan), x]):
        mpc.step(measured, 100.0 + k * PERIOD)
        ages.append(mpc.measurement_age)
    np.testing.assert_allclose(ages, [np.inf, np.inf, 0.0, 0.0, PERIOD, 2 * PERIOD, 0.0], atol=1e-9)


def test_solves_that_end_before_an_iteration_fail():
    ocp = replace(problem(), x0=np.array([-0.3, 0.8]))
    with pytest.raises(ValueError, match="no first plan from x0: max_iterations before the first iteration"):
        to.MPC(ocp, "slq", options={"max_iterations": 0}, period=PERIOD)
    mpc = to.MPC(ocp, "slq", options={"time_limit": 1e-9}, period=PERIOD)  # the first solve has no time limit
    xs = run(mpc, 20, x=ocp.x0)
    assert mpc.statistics()["failed"] >= 19 and abs(xs[-1, 0] - 1.0) < 0.05  # the first plan solves the first problem
    assert "time_limit before the first iteration" in mpc.statistics()["latest events"]["failed solve"]


def test_bounds_that_no_value_satisfies_are_refused():
    ocp = problem()
    (phase,) = ocp.phases
    slow = to.state_bounds(ocp.manifold, [-np.inf, -0.4], [np.inf, 0.4], "limit")
    mpc = to.MPC(to.OCP([to.Phase(phase.dynamics, phase.dt, phase.terms, {}, (slow,))], ocp.x0, ocp.terminal))
    with pytest.raises(ValueError, match="'limit': a lower bound is above the upper one; set both in one call"):
        mpc.set("limit", lower=[1.0])
    for bounds in ({"lower": [np.inf], "upper": [np.inf]}, {"lower": [-np.inf], "upper": [-np.inf]}):
        with pytest.raises(
            ValueError, match="'limit': a lower bound of inf, or an upper one of -inf, excludes every value"
        ):
            mpc.set("limit", **bounds)
    mpc.set("limit", lower=[1.0], upper=[2.0])


def test_a_delay_is_compensated():
    """With a perfect model the plan starts at the state of the plant at t + delay, and the plant follows it."""
    mpc, x, before = to.MPC(problem(), period=PERIOD, delay=0.02), np.zeros(2), np.zeros(1)
    for k in range(20):
        u = mpc.step(x, k * PERIOD)
        acting = exact(x, before, 0.02)
        np.testing.assert_allclose(mpc.plan.xs[0], acting, atol=1e-9)
        x, before = exact(acting, u, PERIOD - 0.02), u


def driven():
    """Problem of a mass under a force that depends on the time, xdot = (v, u + 2 sin 3t), and its discrete map."""
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] + 2.0 * to.sin(3.0 * t)], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(cart, "forward_ad"), "rk4")
    goal = to.state_cost(cart.manifold, [1.0, 0.0], 10.0, "goal")
    return to.OCP.single_phase(
        dynamics, [0.0, 0.0], 20, 0.05, [to.control_cost(1, weight=1e-3), goal], [goal]
    ), dynamics


def driven_exactly(x, u, t, h):
    """The mass of :func:`driven` after h, by the integral of its equation."""
    speed = x[1] + h * u[0] - 2.0 / 3.0 * (np.cos(3.0 * (t + h)) - np.cos(3.0 * t))
    swing = -2.0 / 9.0 * (np.sin(3.0 * (t + h)) - np.sin(3.0 * t)) + 2.0 / 3.0 * h * np.cos(3.0 * t)
    return np.array([x[0] + h * x[1] + 0.5 * h * h * u[0] + swing, speed])


@pytest.mark.parametrize("origin", [0.0, 12.3])
def test_dynamics_that_read_the_time_get_that_of_the_loop(origin):
    ocp, dynamics = driven()
    mpc, x, before, plant = to.MPC(ocp, period=PERIOD, delay=0.02), np.zeros(2), np.zeros(1), to.Simulator(dynamics)
    for k in range(60):
        t = origin + k * PERIOD
        u = mpc.step(x, t)
        acting = driven_exactly(x, before, t, 0.02) if k else x  # before the first control the state stands still
        np.testing.assert_allclose(mpc.plan.xs[0], acting, atol=1e-6)
        np.testing.assert_allclose(mpc.plan.xs[1], driven_exactly(acting, u, t + 0.02, PERIOD), atol=1e-6)
        x = driven_exactly(acting, u, t + 0.02, PERIOD - 0.02)
        np.testing.assert_allclose(plant.advance(acting, u[None], PERIOD - 0.02, t=t + 0.02), x, atol=1e-6)
        before = u


def test_values_by_knot_shrink_with_the_horizon():
    """Each remaining problem gets the rows of the goal at its times."""
    ocp, goals = problem(), np.linspace(0.0, 1.0, KNOTS + 1)[:, None]
    mpc = to.MPC(ocp, horizon=ShrinkingHorizon(ocp), period=DT, initial_plan=to.solve(ocp, solver="slq"))
    mpc.set("goal", goals)
    for k in range(KNOTS // 2):
        mpc.step(ocp.x0, k * DT)
        solved = mpc.plan.problem
        np.testing.assert_array_equal(solved.phases[0].terms[0].parameters["goal"], goals[k:-1])
        np.testing.assert_array_equal(solved.terminal[0].parameters["goal"], goals[-1])
    assert mpc.statistics()["failed"] == 0


def test_after_a_pause_solves_are_due_once_a_period():
    mpc = to.MPC(problem(), period=PERIOD, tick=PERIOD / 5)
    for k in (*range(10), *range(300, 320)):  # the loop pauses for 58 periods
        mpc.step(np.zeros(2), k * PERIOD / 5)
    assert mpc.statistics()["solves"] == 2 + 4


def test_a_clock_that_jitters_loses_no_plan():
    mpc, rng = to.MPC(problem(), period=PERIOD), np.random.default_rng(0)
    for k in range(60):
        mpc.step(np.zeros(2), 1.0 + k * PERIOD + 1e-5 * rng.standard_normal())
    assert mpc.statistics()["solves"] >= 59


@pytest.mark.parametrize(
    ("lost", "events"),
    [
        (None, {"no measurement": 1}),
        ([np.nan, 0.0], {"bad measurement": 2}),
        (np.ma.masked_array([3.0, 0.0], [True, False]), {"bad measurement": 2}),
    ],
)
def test_a_lost_measurement_is_predicted(lost, events):
    """Steps without a measurement are one event for each gap, as in a replanning loop."""
    whole, holed, x = to.MPC(problem(), period=PERIOD), to.MPC(problem(), period=PERIOD), np.zeros(2)
    for k in range(12):
        u = whole.step(x)
        np.testing.assert_allclose(holed.step(lost if k in (4, 5) else x), u, atol=1e-8)
        x = exact(x, u)
    assert holed.statistics()["events"] == events


def test_a_quaternion_of_zero_is_a_bad_measurement():
    ocp = spin(0.5, 10, PERIOD)
    mpc, x, bad = to.MPC(ocp, period=PERIOD), ocp.x0, ocp.x0.copy()
    bad[:4] = 0.0
    for measured in (bad, x, bad, x * (1.0 + 1e-4)):
        assert np.isfinite(mpc.step(measured)).all()
    assert mpc.statistics()["events"] == {"bad measurement": 2} and mpc.statistics()["failed"] == 0


def test_bounds_on_controls_change_by_the_horizon():
    ocp, limit = problem(), np.array([2.0])
    mpc = to.MPC(ocp, period=PERIOD, horizon=lambda t: replace(ocp, u_lower=-limit, u_upper=limit))
    assert mpc.step(np.zeros(2)) == pytest.approx(2.0)
    limit = np.array([0.5])
    assert mpc.step(np.zeros(2)) == pytest.approx(0.5)


def test_a_horizon_that_observes_gets_the_estimated_states_at_the_times_of_the_caller():
    class Following(RecedingHorizon):
        def observe(self, t, x):
            seen.append((t, x[0]))

    seen, mpc = [], to.MPC(problem(), period=PERIOD, horizon=Following(problem()))
    run(mpc, 3, x=(0.3, 0.0), start=100.0)
    np.testing.assert_allclose([t for t, _ in seen], 100.0 + PERIOD * np.arange(3))
    assert seen[0][1] == 0.3 and len({x for _, x in seen}) == 3


def test_failed_plans_leave_the_last_one_in_force():
    mpc = to.MPC(problem(), Failing(RealTimeSLQ(), 3), period=PERIOD)
    assert run(mpc, 60)[-1, 0] == pytest.approx(1.0, abs=1e-3)
    assert mpc.statistics()["failed"] == mpc.statistics()["events"]["failed solve"] >= 19


@pytest.mark.parametrize("solver", ["slq", "ipm"])
def test_ctrl_c_during_a_solve_ends_the_step(solver, monkeypatch):
    """Solvers return their iterate after Ctrl-C; the loop must not go on."""
    mpc = to.MPC(problem(), solver, period=PERIOD)

    def interrupted(*args, **kwargs):
        return replace(solve(*args, **kwargs), status=Status(StatusCode.INTERRUPTED, "Interrupted."))

    solve = converged_planner.solve
    monkeypatch.setattr(converged_planner, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mpc.step(np.zeros(2))
    monkeypatch.undo()
    assert run(mpc, 60, start=PERIOD)[-1, 0] == pytest.approx(1.0, abs=1e-2)
    monkeypatch.setattr("trajopt.replanning.mpc.solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        to.MPC(problem(), solver, period=PERIOD)


class Late:
    """A planner whose responses take time."""

    def __init__(self):
        self.planner, self.late = RealTimeSLQ(), False

    def prepare(self, ocp, warm):
        self.planner.prepare(ocp, warm)

    def respond(self, x0):
        if self.late:
            time.sleep(0.03)
        return self.planner.respond(x0)


def test_plans_beyond_the_deadline_are_dropped():
    planner = Late()
    mpc = to.MPC(problem(), planner, period=PERIOD, deadline=0.02)
    mpc.step(np.zeros(2))
    first, planner.late = mpc.plan, True
    for _ in range(4):
        u = mpc.step(np.array([0.5, 0.0]))
        assert np.isfinite(u).all() and mpc.plan.start == first.start
    assert mpc.statistics()["late"] >= 1


def test_a_thread_plans_beside_the_steps():
    with closing(to.ThreadWorker()) as worker:
        mpc = to.MPC(problem(), period=PERIOD, worker=worker)
        x = np.zeros(2)
        for k in range(60):
            x = exact(x, mpc.step(x, k * PERIOD))
            time.sleep(0.002)
    assert abs(x[0] - 1.0) < 0.02


def test_a_horizon_that_shrinks_ends_at_its_goal():
    mpc = to.MPC(problem(), period=PERIOD, horizon=ShrinkingHorizon(problem()))
    xs = run(mpc, KNOTS)
    assert abs(xs[-1, 0] - 1.0) < 0.1
    assert mpc.statistics()["events"]["horizon ended"] == 1


def test_ticks_of_discrete_dynamics_are_their_time_steps():
    step = to.discrete_dynamics(lambda x, u, t, p: [0.9 * x[0] + 0.1 * u[0]], 1, 1)
    costs = [to.control_cost(1, weight=0.01), to.state_cost(1, [0.5], 1.0)]
    ocp = to.OCP.single_phase(step, [1.0], 20, 0.1, costs)
    for tick in (0.05, 0.2):
        with pytest.raises(
            ValueError, match=f"tick = {tick} s, but discrete dynamics advance by .*, 0.1 s, in each tick"
        ):
            to.MPC(ocp, period=0.2, tick=tick)
    with pytest.raises(ValueError, match=r"delay = 0.05 s; expected a multiple of the time step .*, 0.1 s"):
        to.MPC(ocp, period=0.1, delay=0.05)
    with closing(to.ThreadWorker()) as worker, pytest.raises(ValueError, match=r"lead = 0.15 s; expected a multiple"):
        to.MPC(ocp, period=0.15, tick=0.1, worker=worker)
    with pytest.raises(ValueError, match="discrete dynamics cannot be resampled"):
        ResampledHorizon(ocp)
    plan = to.Plan.from_solution(to.solve(ocp), 0.0)
    with pytest.raises(ValueError, match=r"tick = 0.05 s, but discrete dynamics"):
        timing = to.Timing(tick=0.05, period=0.1)
        to.ReplanningLoop(RecedingHorizon(ocp), RealTimeSLQ(), SampledPlant(step, ocp.x0, 0.1), plan, timing)
    mpc = to.MPC(ocp, period=0.1, delay=0.2)
    x, acting = (
        ocp.x0,
        [np.zeros(1)] * 2,
    )  # the model is exact: plans start at the state two steps after the measurement
    for k in range(6):
        u = mpc.step(x, 0.1 * k)
        if k >= 2:
            np.testing.assert_allclose(mpc.plan.xs[0], 0.9 * (0.9 * x + 0.1 * acting[0]) + 0.1 * acting[1], atol=1e-12)
        x, acting = 0.9 * x + 0.1 * acting[0], [acting[1], u]


@pytest.mark.parametrize("t", [np.inf, np.nan, "soon", 1j, [0.1, 0.2]])
def test_a_time_that_is_not_a_finite_number_changes_nothing(t):
    mpc = to.MPC(problem(), period=PERIOD)
    for _ in range(2):
        with pytest.raises(ValueError, match="t = .*; expected a finite number of seconds"):
            mpc.step(np.zeros(2), t)
        mpc.step(np.zeros(2))
    assert not mpc.statistics()["events"] and mpc.plan.start == PERIOD


@pytest.mark.parametrize("x", [["a", 0.0], [None, 0.0], [1j, 0.0], [[0.0], [0.0, 1.0]], "ab"])
def test_a_state_without_numbers_changes_nothing(x):
    mpc = to.MPC(problem(), period=PERIOD)
    with pytest.raises(ValueError, match="expected nx = 2 real numbers, NaN for unknown ones"):
        mpc.step(x, 5.0)
    np.testing.assert_array_equal(mpc.step([0, 0], 1.0), to.MPC(problem(), period=PERIOD).step(np.zeros(2), 1.0))


@pytest.mark.parametrize("key", ["delay", "period", "tick", "deadline"])
def test_settings_without_a_number_of_seconds_are_refused(key):
    expected = "a number of seconds of at least 0" if key == "delay" else "a positive number of seconds"
    for value in ("a", 1j, [0.1, 0.2], np.nan) if key == "deadline" else ("a", 1j, [0.1, 0.2], np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{key} = .*; expected {expected}"):
            to.MPC(problem(), **{"period": PERIOD, key: value})
    with pytest.raises(ValueError, match=r"period = -1.0; expected a positive number"):
        to.MPC(problem(), period=-1.0)


def test_what_cannot_be_used_is_refused():
    mpc = to.MPC(problem(), period=PERIOD)
    with pytest.raises(ValueError, match=r"x has shape \(3,\); expected \(nx = 2,\)"):
        mpc.step(np.zeros(3), 2.0)
    mpc.step(np.zeros(2), 1.0)  # the refused step has not moved the time
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="pass the problem, and create to.MPC where it is used"):
            use(mpc)
    with pytest.raises(ValueError, match="before the last step"):
        mpc.step(np.zeros(2), 0.5)
    with pytest.raises(ValueError, match=r"period = 50.0 s is longer than a plan, .* s: replan more often"):
        to.MPC(problem(), period=50.0)
    with pytest.raises(ValueError, match="delay = -0.1"):
        to.MPC(problem(), delay=-0.1)
    with pytest.raises(TypeError, match="the planner is a int; expected an object with prepare and respond"):
        to.MPC(problem(), solver=3)
    with pytest.raises(TypeError, match=r"worker = 'thread'; expected an object such as trajopt.ThreadWorker"):
        to.MPC(problem(), worker="thread")
    with pytest.raises(TypeError, match="expected a function of time, such as trajopt.ShrinkingHorizon"):
        to.MPC(problem(), horizon=ShrinkingHorizon)
    with pytest.raises(to.UnknownName, match="did you mean 'real_time'"):
        to.MPC(problem(), solver="realtime")
    with pytest.raises(to.UnknownName, match="did you mean 'hessian'"):
        to.MPC(problem(), options={"hesian": "exact"})
    with pytest.raises(ValueError, match="hessian = 'newton'; expected 'gauss_newton' or 'exact'"):
        to.MPC(problem(), options={"hessian": "newton"})
    with pytest.raises(TypeError, match="options is a SQPOptions; RealTimeSLQ, for no constraints, takes a mapping"):
        to.MPC(problem(), options=to.SQPOptions())
    with pytest.raises(TypeError, match="the planner is the class RealTimeSLQ; expected an object"):
        to.MPC(problem(), solver=RealTimeSLQ)
    with pytest.raises(TypeError, match="the problem is a Solution, not a trajopt.OCP"):
        to.MPC(to.solve(problem()))


def test_options_of_real_time_sqp_may_be_a_mapping():
    ocp = problem()
    slow = to.state_bounds(ocp.manifold, [-np.inf, -0.4], [np.inf, 0.4])
    ocp = replace(ocp, phases=(replace(ocp.phases[0], constraints=(slow,)),))
    x, options = np.array([0.2, 0.3]), {"hessian": "gauss_newton", "hold": "first_order"}
    u = to.MPC(ocp, options={"hold": "first_order"}, period=PERIOD).step(x, 0.0)
    np.testing.assert_array_equal(u, to.MPC(ocp, options=to.SQPOptions(**options), period=PERIOD).step(x, 0.0))
    with pytest.raises(to.UnknownName, match="did you mean 'hold'"):
        to.MPC(ocp, options={"holds": "first_order"})


def test_a_compiled_problem_is_followed_when_its_values_change():
    """New values are loaded into the existing evaluator; controls equal those of a new planner."""
    dynamics, manifold = mass(), mass().manifold
    goal = to.state_cost(manifold, [1.0, 0.0], 20.0, "goal")
    ocp = to.OCP.single_phase(dynamics, np.zeros(2), KNOTS, DT, [to.control_cost(1, weight=0.01), goal], [goal])
    mpc = to.MPC(ocp, period=PERIOD)
    for k, at in enumerate((1.0, -0.5, 2.0)):
        mpc.set("goal", [at, 0.0])
        x = np.array([0.1 * k, 0.0])
        fresh = ocp.updated("goal", reference=[at, 0.0])
        best = to.solve(to.OCP(fresh.phases, x, fresh.terminal), solver="slq")
        np.testing.assert_allclose(mpc.step(x), best.us[0], rtol=1e-5)


@pytest.mark.parametrize("solver", ["real_time", "ipm"])
def test_the_end_of_a_motion_is_held(solver):
    """A pendulum is lifted to the side and stays there after the end of the horizon, by the torque against gravity."""
    pendulum = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * np.sin(x[0])], 2, 1)
    dynamics = to.SampledSystem(to.make_backend(pendulum, "forward_ad"), "rk4")
    end = to.state_cost(2, [0.5 * np.pi, 0.0], 1e4)
    ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 30, 0.05, [to.control_cost(1, weight=1e-2)], [end])
    mpc = to.MPC(ocp, solver, period=0.05, horizon=to.ShrinkingHorizon(ocp))
    plant, x = to.Simulator(dynamics), ocp.x0
    for k in range(60):
        u = mpc.step(x, 0.05 * k)
        x = plant.advance(x, u[None], 0.05)
    assert abs(x[0] - 0.5 * np.pi) < 0.02 and abs(x[1]) < 0.02
    assert u[0] == pytest.approx(9.81, rel=0.02)
    after = to.setpoint(ocp, to.Plan.from_solution(to.solve(ocp), 0.0), 3.0)
    assert after.u[0] == pytest.approx(9.81, rel=1e-3)


def test_no_step_evaluates_the_dynamics_in_numpy(monkeypatch):
    """The NumPy evaluations that find out whether dynamics read the time take 0.2 s for a quadruped."""
    mpc = to.MPC(problem(), period=PERIOD, delay=0.02)

    def forbidden(*_):
        raise AssertionError("evaluated in a step")

    monkeypatch.setattr(time_dependence, "_reads_time", forbidden)
    assert np.isfinite([mpc.step([0.1, 0.0]), mpc.step(None), mpc.step([0.1, 0.0])]).all()
    to.MPC(mpc.plan.problem, period=PERIOD)  # nor does another controller
