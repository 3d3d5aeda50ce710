"""The replanning loop: nominal runs, each simulated fault, and deadlines."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from replanning_cases import DT, KNOTS, PERIOD, TICK, WatchedPlant, goal_object, loop, mass, problem

import trajopt as to
from experiments.replan.faults import Failing, Slowed
from trajopt.guesses.guesses import WarmStart
from trajopt.replanning.converged_planner import ConvergedPlanner
from trajopt.replanning.measurements import Measurement, Sensor
from trajopt.replanning.plan import ResampledHorizon, ShrinkingHorizon
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.run_log import EventKind
from trajopt.replanning.sampled_plant import Push, SampledPlant
from trajopt.replanning.workers import SimulatedWorker, Timing

EARLY = Timing(tick=TICK, period=PERIOD, prepare_early=True)


class Counting:
    """A planner that records its problems."""

    def __init__(self, planner=None):
        self.planner = planner or RealTimeSLQ()
        self.prepared, self.states, self.calls = [], [], []

    def prepare(self, ocp, warm):
        self.prepared.append((ocp, warm))
        self.calls.append("prepare")
        self.planner.prepare(ocp, warm)

    def respond(self, x0):
        self.states.append(np.array(x0))
        self.calls.append("respond")
        return self.planner.respond(x0)


@pytest.mark.parametrize(
    "planner", [RealTimeSLQ(), RealTimeSLQ(search=False), ConvergedPlanner("ilqr"), ConvergedPlanner()]
)
@pytest.mark.parametrize(
    "timing",
    [EARLY, replace(EARLY, prepare_early=False), replace(EARLY, lead=2 * TICK), replace(EARLY, period=3 * TICK)],
    ids=["early", "not early", "with a lead", "between knots"],
)
def test_a_nominal_run_reaches_the_goal_without_events(planner, timing):
    log = loop(planner, timing=timing, charge=timing.lead).run(2.5)
    assert abs(log.xs[-1, 0] - 1.0) < 0.02 and abs(log.xs[-1, 1]) < 0.05
    assert not log.events
    assert len(log.solves) == pytest.approx(2.5 / timing.period, abs=1)
    # The plan of a perfect model is what happens, but for the geodesic between knots.
    assert np.abs(log.xs - log.references)[:, 0].max() < 0.02


def test_a_real_time_iteration_is_prepared_before_the_state_is_known():
    planner = Counting()
    loop(planner, timing=EARLY).run(4 * PERIOD)
    assert planner.calls == ["prepare", *["respond", "prepare"] * 4]
    planner = Counting()
    loop(planner, timing=replace(EARLY, prepare_early=False)).run(4 * PERIOD)
    assert planner.calls == ["prepare", "respond"] * 4


def test_time_steps_that_shrink_stay_longer_than_half_a_tick():
    """Gains of shorter ones, held for a tick, made an arm diverge before its goal."""
    ocp = problem()
    log = loop(horizon=ResampledHorizon(ocp), ocp=ocp).run(1.0)
    assert [solve.start for solve in log.solves] == pytest.approx(
        np.arange(19) * PERIOD
    )  # until 20 steps of 5 ms remain
    assert log.count(EventKind.HORIZON_ENDED) == 1


def test_a_prepared_problem_is_that_of_its_plan():
    """A horizon may take milliseconds, and may have changed since the preparation."""
    asked = []

    def horizon(t):
        asked.append(problem())
        return asked[-1]

    run = loop(horizon=horizon, timing=Timing(tick=TICK, period=PERIOD, lead=PERIOD, prepare_early=True))
    log = run.run(1.0)
    assert len(asked) == len(log.solves) + 2  # the first problem of the loop, and the one that is prepared at the end
    assert run.plan.problem is asked[-3]


@pytest.mark.parametrize("lead", [3 * TICK, PERIOD, 2.4 * PERIOD, 4 * PERIOD])
def test_plans_start_from_the_predicted_state(lead):
    """The prediction over the lead uses all plans executed in that time, and equals the motion of the plant."""
    planner, objects = Counting(), [goal_object(lambda t: [np.sin(3 * t)])]
    log = loop(planner, timing=Timing(tick=TICK, period=PERIOD, lead=lead), charge=TICK, objects=objects).run(1.0)
    starts = [solve.start for solve in log.solves]
    assert len(starts) > 10
    for start, x0 in zip(starts, planner.states, strict=False):
        k = round((start + lead) / TICK)
        if k < len(log.xs):
            np.testing.assert_allclose(x0, log.xs[k], atol=1e-9)


class Numbered:
    """A planner whose n-th plan is the control n, whatever the state."""

    def __init__(self):
        self.plan, self.count = to.solve(problem()), 0

    def prepare(self, ocp, warm):
        pass

    def respond(self, x0):
        self.count += 1
        us = np.full_like(self.plan.us, self.count)
        return replace(self.plan, us=us, K=np.zeros_like(self.plan.K))


@pytest.mark.parametrize("lead", [0.0, 3 * TICK, PERIOD, 2.4 * PERIOD, 4 * PERIOD])
def test_each_plan_is_followed_from_its_time_on(lead):
    log = loop(Numbered(), timing=Timing(tick=TICK, period=PERIOD, lead=lead), charge=min(lead, TICK)).run(1.0)
    plans = 1 + (np.arange(100) - round(lead / TICK)) // round(PERIOD / TICK)
    followed = plans >= 1
    np.testing.assert_array_equal(log.us[followed, 0], plans[followed])
    assert not log.events


def test_a_plan_replaces_those_that_would_begin_later():
    """After a slow solve the second one has its lead; the third has none, and its plan is known before the second would begin."""
    charges = iter([7 * TICK, TICK, 0.0, 0.0, 0.0])
    worker = SimulatedWorker(TICK, lambda respond, prepare: (next(charges), 0.0))
    log = loop(Numbered(), worker=worker).run(0.3)
    np.testing.assert_array_equal(log.us[7:, 0], [1] * 9 + [3] * 4 + [4] * 5 + [5] * 5)


@pytest.mark.parametrize("knots", [1, 2, 5])
def test_replanning_does_not_change_an_optimal_motion(knots):
    """With an exact model and a horizon that shrinks, replanning changes nothing (Bellman's principle)."""
    ocp = problem()
    timing = Timing(tick=DT, period=knots * DT)
    duration = ocp.times[-1] - 2 * DT
    log = loop(ConvergedPlanner("ilqr"), ocp=ocp, horizon=ShrinkingHorizon(ocp), timing=timing).run(duration)
    alone = loop(ocp=ocp, horizon=ShrinkingHorizon(ocp), timing=replace(timing, period=100.0)).run(duration)
    assert len(log.solves) == pytest.approx(duration / timing.period, abs=1)
    np.testing.assert_allclose(log.xs, alone.xs, atol=1e-9)


def test_predicted_goals_reach_each_knot():
    planner = Counting()
    loop(planner, timing=EARLY, objects=[goal_object(lambda t: [0.5 * t])]).run(0.5)
    ocp, _ = planner.prepared[-1]
    start = 0.5  # of the plan that is being prepared: the last tick's solve was at 0.45
    times = start + ocp.times
    np.testing.assert_allclose(ocp.phases[0].terms[0].parameters["goal"][:, 0], 0.5 * times[:-1], atol=1e-12)
    np.testing.assert_allclose(ocp.terminal[0].parameters["goal"], [0.5 * times[-1]], atol=1e-12)


# -- faults -------------------------------------------------------------------------------------------------------------


def test_lost_and_corrupted_measurements():
    estimator = Sensor(problem().manifold, dropped=[(0.2, 0.5)], corrupted=[(0.8, 0.9)])
    plant = WatchedPlant()
    log = loop(plant=plant, estimator=estimator).run(2.5)
    assert log.count(EventKind.NO_MEASUREMENT) == 1
    assert log.count(EventKind.BAD_MEASUREMENT) == 10
    assert np.isfinite(plant.given).all()
    np.testing.assert_allclose(log.estimates, log.xs, atol=1e-9)  # the model is exact: nothing is lost
    assert abs(log.xs[-1, 0] - 1.0) < 0.02


def test_a_slow_and_late_sensor_is_no_fault():
    estimator = Sensor(problem().manifold, 2 * TICK, delay=3 * TICK)
    log = loop(estimator=estimator).run(2.5)
    assert not log.events
    assert abs(log.xs[-1, 0] - 1.0) < 0.02


def test_a_time_stamp_in_the_future_does_not_shut_out_later_measurements():
    class Ahead(Sensor):
        def measure(self, t, truth):
            found = super().measure(t, truth)
            return Measurement(1e3, found.value) if abs(t - 0.5) < 0.5 * TICK else found

    plant = WatchedPlant(pushes=[Push(0.6, 0.1, np.array([3.0]))])
    log = loop(plant=plant, estimator=Ahead(problem().manifold)).run(1.0)
    np.testing.assert_allclose(log.estimates, log.xs, atol=1e-9)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_failed_solves(every):
    plant = WatchedPlant()
    log = loop(Failing(RealTimeSLQ(), every), plant, timing=EARLY).run(2.0)
    failed = log.count(EventKind.FAILED_SOLVE)
    assert failed == sum(not solve.success for solve in log.solves) == len(log.solves) // every
    assert np.isfinite(plant.given).all()
    assert abs(log.xs[-1, 0] - 1.0) < 0.05  # the first plan alone ends there
    said = {event.message for event in log.events}
    assert any("simulated failure" in message for message in said)
    assert failed < 2 or any("us of the solution is not finite" in message for message in said)


def test_a_failed_preparation_is_repeated_in_the_response():
    class Touchy(Counting):
        def prepare(self, ocp, warm):
            super().prepare(ocp, warm)
            if len(self.prepared) % 4 == 0:
                raise ValueError("not now")

    planner = Touchy()
    log = loop(planner, timing=EARLY).run(1.5)
    assert not log.count(EventKind.FAILED_SOLVE)  # the next solve prepares itself
    assert planner.calls.count("respond") == len(log.solves) == 30
    late = Touchy()
    log = loop(late, timing=replace(EARLY, prepare_early=False)).run(1.5)
    assert log.count(EventKind.FAILED_SOLVE) == len(log.solves) // 4 == 7
    assert all("ValueError: not now" in event.message for event in log.events)


def test_a_goal_that_jumps():
    log = loop(objects=[goal_object(lambda t: [1.0 if t < 1.0 else -2.0])]).run(3.5)
    assert abs(log.xs[round(1.0 / TICK) - 1, 0] - 1.0) < 0.1
    assert abs(log.xs[-1, 0] + 2.0) < 0.02


def test_a_planner_ten_times_too_slow():
    plant = WatchedPlant()
    log = loop(plant=plant, charge=10 * PERIOD, timing=EARLY).run(3.0)
    assert len(log.solves) == 5 and log.count(EventKind.LATE_PLAN) == 5
    assert log.count(EventKind.SKIPPED) == round(3.0 / PERIOD) - 6
    assert abs(log.xs[-1, 0] - 1.0) < 0.02
    pushed = loop(plant=WatchedPlant(pushes=[Push(0.5, 0.1, np.array([5.0]))]), charge=10 * PERIOD).run(3.0)
    assert abs(pushed.xs[-1, 0] - 1.0) < 0.05  # by the gains of late plans


def test_wrong_dynamics_and_pushes():
    log = loop(plant=WatchedPlant(forces=[[0.8]], pushes=[Push(1.5, 0.2, np.array([-4.0]))])).run(4.0)
    k = round(1.75 / TICK)
    assert abs(log.xs[k, 0] - 1.0) > 0.02  # it was pushed away
    assert abs(log.xs[-1, 0] - 1.0) < 0.01


def test_bounds_hold_for_any_feedback():
    plant = WatchedPlant(pushes=[Push(0.2, 0.1, np.array([-20.0]))])
    log = loop(plant=plant, ocp=problem(limit=3.0)).run(2.0)
    assert np.abs(log.us).max() <= 3.0
    assert np.abs(log.us).max() == pytest.approx(3.0)


@pytest.mark.parametrize("timing", [Timing(tick=TICK, period=p, lead=a) for p in (PERIOD, 9.0) for a in (0.0, 0.3)])
@pytest.mark.parametrize("limits", [(1.0, 8.0), (10.0, 5.0)])
def test_bounds_are_those_of_the_time_at_which_a_control_is_given(timing, limits):
    """One until 0.5 s, another from then on, whatever problem is planned meanwhile; pushes ask for more of both."""
    rows = np.repeat(limits, KNOTS // 2)[:, None]
    ocp = replace(problem(), u_lower=-rows, u_upper=rows)
    plant = WatchedPlant(pushes=[Push(0.3, 0.1, np.array([-60.0])), Push(0.7, 0.1, np.array([-60.0]))])
    log = loop(ConvergedPlanner("slq"), plant, ocp=ocp, horizon=ShrinkingHorizon(ocp), timing=timing).run(KNOTS * DT)
    sizes = np.abs(log.us[:, 0])
    assert (sizes[25:50].max(), sizes[50:].max()) == limits


@pytest.mark.parametrize("factor", [np.nan, np.inf, -1e9])
def test_a_plant_that_diverges_ends_the_run(factor):
    class Broken(WatchedPlant):
        def state(self):
            return super().state() * (factor if len(self.given) > 5 else 1.0)

    log = loop(plant=Broken()).run(1.0)
    assert len(log.times) == 6
    assert [event.kind for event in log.events] == [EventKind.PLANT_DIVERGED]


def test_an_interrupt_keeps_what_there_is():
    def stop(t):
        if t > 0.3:
            raise KeyboardInterrupt

    log = loop(on_tick=stop).run(2.0)
    assert len(log.times) == 32
    assert [event.kind for event in log.events] == [EventKind.INTERRUPTED]


def test_a_reason_to_stop_ends_the_run_and_is_an_event():
    plant = WatchedPlant()
    log = loop(plant=plant, until=lambda t, x: "enough" if len(plant.given) > 5 else "").run(1.0)
    assert len(log.times) == 6
    assert [(event.kind, event.message) for event in log.events] == [(EventKind.STOPPED, "enough")]


def test_the_end_of_the_horizon_is_reported_once():
    ocp = problem()
    log = loop(horizon=ShrinkingHorizon(ocp)).run(2.0)
    assert log.count(EventKind.HORIZON_ENDED) == 1
    assert len(log.solves) == KNOTS - 1
    assert np.isfinite(log.xs).all()


# -- deadlines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charge", "deadline", "late"),
    [(TICK, None, False), (3 * TICK, None, True), (TICK, 2 * TICK, False), (3 * TICK, 2 * TICK, True)],
)
def test_a_plan_is_late_where_it_misses_its_deadline(charge, deadline, late):
    timing = Timing(tick=TICK, period=PERIOD, lead=2 * TICK, deadline=deadline)
    log = loop(timing=timing, charge=charge).run(1.0)
    assert bool(log.count(EventKind.LATE_PLAN)) is late
    for solve in log.solves:
        assert solve.known == pytest.approx(solve.start + charge)


def test_late_plans_may_be_left_unused():
    """Under a push, the first plan's feedback alone leads elsewhere than plans that are used."""
    pushes = [Push(0.2, 0.3, np.array([3.0]))]
    timing = Timing(tick=TICK, period=PERIOD, deadline=TICK)

    def run(timing, **options):
        return loop(plant=WatchedPlant(pushes=pushes), timing=timing, **options).run(1.5)

    dropped = run(replace(timing, drop_late=True), charge=2 * TICK)
    used = run(timing, charge=2 * TICK)
    alone = run(replace(timing, period=100.0))
    np.testing.assert_allclose(dropped.xs, alone.xs, atol=1e-12)
    assert np.abs(used.xs - alone.xs).max() > 1e-3
    assert dropped.count(EventKind.LATE_PLAN) == used.count(EventKind.LATE_PLAN) > 10


def test_a_plan_known_early_waits_for_its_time():
    timing = Timing(tick=TICK, period=100.0, lead=5 * TICK)
    ocp = problem()
    log = loop(timing=timing, charge=TICK, objects=[goal_object(lambda t: [-1.0])], ocp=ocp).run(0.2)
    before = loop(timing=timing, charge=TICK, ocp=ocp).run(0.2)
    same = (log.us == before.us).all(axis=1)
    assert same[:5].all() and not same[5:].any()


# -- mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tick": 0.0}, "tick = 0.0; expected a positive number"),
        ({"period": -1.0}, "period = -1.0; expected a positive number"),
        ({"tick": 0.1, "period": 0.05}, "shorter than tick"),
        ({"lead": -0.1}, "lead = -0.1"),
        ({"deadline": 0.0}, "deadline = 0.0"),
        ({"tick": "a"}, "tick = 'a'; expected a positive number of seconds"),
        ({"lead": np.nan}, "lead = nan; expected a number of seconds of at least 0"),
    ],
)
def test_bad_times_are_refused(values, said):
    with pytest.raises(ValueError, match=said):
        Timing(**values)


@pytest.mark.parametrize(
    ("solver", "options", "said"),
    [
        ("slqq", None, "no solver is named 'slqq'; did you mean 'slq'"),
        ("slq", {"max_iteration": 3}, "max_iterations"),
        ("gnms", {"shooting": "single"}, "requires shooting = 'all'"),
        ("ddp", {"max_iterations": -1}, "max_iterations"),
    ],
)
def test_an_unknown_solver_or_option_is_refused_before_the_run(solver, options, said):
    with pytest.raises(ValueError, match=said):
        ConvergedPlanner(solver, options)


def test_a_solver_gets_its_options():
    planner, ocp = ConvergedPlanner("slq", {"max_iterations": 1, "shooting": "single"}), problem()
    planner.prepare(ocp, WarmStart(to.constant_guess(ocp)))
    options = planner.respond(ocp.x0).meta["options"]
    assert (options["max_iterations"], options["shooting"]) == (1, "single")


def test_a_horizon_must_have_a_first_problem():
    with pytest.raises(ValueError, match="no problem at the start"):
        loop(horizon=lambda t: None)


def test_a_run_of_no_ticks_is_refused():
    with pytest.raises(ValueError, match="no ticks"):
        loop().run(0.0)


def test_a_plant_rejects_non_finite_controls():
    with pytest.raises(ValueError, match="not finite"):
        WatchedPlant().step(np.array([np.nan]), TICK)


def test_a_slowed_planner_takes_its_time(monkeypatch):
    slept = []
    seconds = iter([0.0, 0.25])
    monkeypatch.setattr("experiments.replan.faults.time.perf_counter", lambda: next(seconds))
    monkeypatch.setattr("experiments.replan.faults.time.sleep", slept.append)
    planner = Slowed(Counting(type("Still", (), {"respond": lambda self, x0: "plan"})()), 10.0)
    assert planner.respond(np.zeros(2)) == "plan" and slept == [2.25]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step": 0.0}, "step = 0.0; expected a positive number of seconds"),
        ({"x0": [0.0]}, r"x0 has shape \(1,\); expected \(nx,\) = \(2,\) numbers"),
        ({"limit": [1.0, 2.0]}, r"limit = \[1.0, 2.0\]; expected a number of at least 0, or \(nu = 1,\) of them"),
        ({"limit": np.nan}, "limit = nan; expected a number of at least 0"),
        ({"forces": np.eye(2)}, r"forces has shape \(2, 2\); expected \(nf, nu\), with nf = 1 inputs"),
        ({"pushes": [Push(0.1, 0.1, [1.0, 2.0])]}, r"force of a push has shape \(2,\); expected \(nf,\) = \(1,\)"),
        ({"pushes": [Push(0.1, -0.1, [1.0])]}, "duration of a push = -0.1; expected a number of seconds of at least 0"),
    ],
)
def test_plants_refuse_what_does_not_fit(changes, said):
    with pytest.raises(ValueError, match=said):
        SampledPlant(**{"dynamics": mass(), "x0": np.zeros(2), "step": 0.01} | changes)


def test_an_estimator_that_returns_a_state_is_refused():
    states = SimpleNamespace(patience=0.0, measure=lambda t, truth: truth)
    with pytest.raises(TypeError, match=r"the estimator returned a ndarray; expected a trajopt\.Measurement, or None"):
        loop(estimator=states).run(0.1)


def test_logs_are_printed_on_one_line():
    assert re.fullmatch(
        r"RunLog\(2 ticks of [0-9.]+ s, [0-9]+ solves, 0 failed, 0 events\)", repr(loop().run(2 * TICK))
    )


def test_a_duration_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="duration = nan; expected a finite number of seconds"):
        loop().run(np.nan)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"horizon": problem()}, TypeError, r"horizon is a OCP; expected a function of time, such as trajopt.Receding"),
        ({"initial_plan": to.solve(problem())}, TypeError, r"initial_plan is a Solution; .*Plan.from_solution"),
        ({"planner": "slq"}, TypeError, r"the planner is a str; expected an object with prepare and respond"),
        ({"planner": RealTimeSLQ}, TypeError, r"the planner is the class RealTimeSLQ; expected an object"),
        (
            {"plant": SimpleNamespace(state=lambda: np.zeros(3), step=lambda u, dt: None)},
            ValueError,
            r"state of the plant has shape \(3,\); expected \(nx = 2",
        ),
        ({"timing": 0.02}, TypeError, "timing is a float; expected a trajopt.Timing"),
        ({"estimator": "ekf"}, TypeError, "the estimator is a str; expected an object with patience and measure"),
        ({"plant": "mujoco"}, TypeError, "the plant is a str; expected an object with state and step"),
        ({"objects": [replace(goal_object(), name="gaol")]}, ValueError, "is named 'gaol'; known: goal"),
        (
            {"objects": [replace(goal_object(), parameter="place")]},
            ValueError,
            "has no parameter 'place'; it has: goal",
        ),
        ({"objects": [goal_object(lambda t: [1.0, 2.0])]}, ValueError, "the parameter 'goal' has 1 numbers; got 2"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_run(changes, error, said):
    """Without this check, each solve of a run with such an object fails, and the loop tracks its first plan."""
    first = to.Plan.from_solution(to.solve(problem()), 0.0)
    fitting = {
        "horizon": to.RecedingHorizon(problem()),
        "planner": RealTimeSLQ(),
        "plant": WatchedPlant(),
        "initial_plan": first,
        "timing": Timing(tick=TICK, period=PERIOD),
    }
    with pytest.raises(error, match=said):
        to.ReplanningLoop(**(fitting | changes))
