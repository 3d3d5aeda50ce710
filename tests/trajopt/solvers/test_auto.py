"""Solver "auto": choice of methods, further attempts after failures, and their report."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import shooting_cases as cases

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.names import UnknownName
from trajopt.results.status import StatusCode
from trajopt.solvers import auto as module, auto_starts
from trajopt.solvers.registry import SOLVERS

pytest.importorskip("cyipopt")


def bounded(ocp, speed):
    """The pendulum's swing-up with a limit of its speed."""
    limit = to.state_bounds(ocp.manifold, [-np.inf, -speed], [np.inf, speed], "speed")
    return to.OCP(
        (to.Phase(ocp.phases[0].dynamics, ocp.dt, ocp.phases[0].terms, constraints=(limit,)),), ocp.x0, ocp.terminal
    )


def tried(solution):
    return [(a["solver"], a["status"]) for a in solution.meta["attempts"]]


def test_it_is_the_default_and_tells_its_method():
    ocp = cases.crane()
    solution = to.solve(ocp)
    assert solution.status.success and solution.meta["solver"] == "auto"
    ((name, _),) = tried(solution)
    assert solution.status.message.startswith(f"{name}: ")
    np.testing.assert_allclose(solution.cost, to.solve(ocp, solver=name).cost, rtol=1e-9)


def test_options_of_a_method_choose_that_method():
    assert to.solve(cases.crane(), options=to.SLQOptions(max_iterations=3)).meta["solver"] == "slq"
    assert to.solve(cases.crane(), options={"shooting": "single", "max_iterations": 3}).meta["solver"] == "slq"
    assert to.solve(cases.crane(), options={"max_iterations": 3}).meta["solver"] == "auto"
    with pytest.raises(UnknownName, match="solver 'auto'.*'shotting'"):
        to.solve(cases.crane(), options={"shotting": "single"})


def test_inactive_limits_are_dropped_and_active_limits_remain():
    ocp = cases.pendulum_swing_up()
    fastest = np.abs(to.solve(ocp, solver="slq").xs[:, 1]).max()
    loose = to.solve(bounded(ocp, 2.0 * fastest))
    assert loose.status.success and len(tried(loose)) == 1 and "satisfies the state limits" in loose.status.message
    tight = to.solve(bounded(ocp, 0.8 * fastest))
    assert tight.status.success and [name for name, _ in tried(tight)] == ["ddp", "ipm"]
    assert "second attempt" in tight.status.message and "violated state limits" in tight.status.message
    assert np.abs(tight.xs[:, 1]).max() <= 0.8 * fastest + 1e-6
    assert tight.cost == pytest.approx(to.solve(bounded(ocp, 0.8 * fastest), solver="dms").cost, rel=1e-6)
    assert to.limit_violations(bounded(ocp, 0.8 * fastest), tight.xs, tight.us) == []


@pytest.mark.parametrize(("limit", "code"), [(0.05, StatusCode.TIME_LIMIT), (None, StatusCode.INTERRUPTED)])
def test_a_stop_after_a_solve_that_violates_omitted_limits_is_no_success(limit, code):
    ocp = cases.pendulum_swing_up()
    free = to.solve(ocp, solver="ddp", check=False)
    tight = bounded(ocp, 0.8 * np.abs(free.xs[:, 1]).max())
    options = to.AutoOptions(time_limit=limit)
    turns = module.in_turn(module.attempts(tight), lambda: tight, to.constant_guess(tight), options)
    with pytest.raises(StopIteration) as ended:
        assert next(turns).attempt.relaxed
        if limit is not None:
            time.sleep(limit)
        turns.send(free)
        turns.send(None)
    status = ended.value.value.status
    assert status.code is code and not status.success
    assert "violates the state limits, which were omitted" in status.message


def test_other_constraints_are_given_to_a_direct_method_at_once():
    ocp = cases.pendulum_swing_up()
    end = to.state_bounds(ocp.manifold, [np.pi, 0.0], [np.pi, 0.0], "upright")
    solution = to.solve(to.OCP(ocp.phases, ocp.x0, terminal_constraints=(end,)))
    assert tried(solution) == [("ipm", "converged")]
    np.testing.assert_allclose(solution.xs[-1], [np.pi, 0.0], atol=1e-7)


def test_a_failed_attempt_is_followed_by_another_one_unless_that_is_switched_off():
    ocp = cases.pendulum_swing_up()
    solution = to.solve(ocp, options={"max_iterations": 4, "starts": 1})
    names = [name for name, _ in tried(solution)]
    assert names[:2] == ["ddp", "ipm"] and solution.iterations == sum(
        a["iterations"] for a in solution.meta["attempts"]
    )
    assert "ddp ended with max_iterations" in solution.status.message
    ordinal = ("second", "third", "fourth")[len(names) - 2]
    assert f"{names[-1]}: " in solution.status.message and f"This was the {ordinal} attempt" in solution.status.message
    alone = to.solve(ocp, options={"max_iterations": 4, "fallback": False, "starts": 1})
    assert len(tried(alone)) == 1 and not alone.status.success


def test_the_third_attempt_is_told_as_such(monkeypatch):
    ocp = cases.crane()

    def lost(ocp, warm, options, callback=None):
        found = dms(ocp, warm, to.solver_options("dms", max_iterations=1), callback)
        return to.Solution(**{**vars(found), "status": to.Status(StatusCode.MAX_ITERATIONS, "lost")})

    dms = SOLVERS["dms"][0]
    for name in ("ddp", "ipm"):
        monkeypatch.setitem(SOLVERS, name, (lost, *SOLVERS[name][1:]))
    solution = to.solve(ocp)
    assert [name for name, _ in tried(solution)] == ["ddp", "ipm", "dms"]
    assert solution.status.message.startswith("dms: ")
    assert (
        "This was the third attempt: ddp ended with max_iterations, ipm ended with max_iterations."
        in solution.status.message
    )


def test_if_all_attempts_fail_the_best_motion_is_returned(monkeypatch):
    """The first attempt keeps the dynamics, the others leave gaps, or cost more."""
    ocp = cases.crane()
    good = to.solve(ocp, solver="ddp")
    assert good.status.success

    def ends(xs, us, cost, code=StatusCode.MAX_ITERATIONS):
        failed = to.Status(code, "lost")
        found = dataclasses.replace(good, xs=xs, us=us, cost=cost, status=failed)
        return lambda *_: found

    made = {
        "ddp": ends(good.xs, good.us, good.cost),
        "ipm": ends(good.xs + 1e-3, good.us, 0.1 * good.cost),
        "dms": ends(good.xs, good.us, 2.0 * good.cost, StatusCode.STALLED),
    }
    for name, run in made.items():
        monkeypatch.setitem(SOLVERS, name, (run, *SOLVERS[name][1:]))
    solution = to.solve(ocp, options={"starts": 1})
    assert solution.cost == good.cost and len(solution.meta["attempts"]) == 3
    sentence = "This was the first attempt, the best one: ipm ended with max_iterations, dms ended with stalled."
    assert "ddp: lost" in solution.status.message and sentence in solution.status.message
    assert solution.status.code is StatusCode.CONVERGED  # by the checks, independent of the status of the solver


def test_a_feasible_last_attempt_at_its_limit_continues(monkeypatch):
    ocp = cases.crane()
    calls = []

    def cut(ocp, warm, options, callback=None):
        calls.append((warm.guess, options.max_iterations))
        found = dms(ocp, warm, dataclasses.replace(options, max_iterations=len(calls) + 4), callback)
        return dataclasses.replace(found, status=to.Status(StatusCode.MAX_ITERATIONS, "cut"))

    dms, limits = SOLVERS["dms"][0], [to.DMSOptions().max_iterations, module.LAST_ITERATIONS]
    last = list(module.attempts(ocp))[2:]
    monkeypatch.setattr(auto_starts, "attempts", lambda *_, **__: last)
    monkeypatch.setitem(SOLVERS, "dms", (cut, *SOLVERS["dms"][1:]))
    monkeypatch.setattr(module, "is_feasible", lambda *_: True)
    to.solve(ocp, options={"starts": 1}, check=False)
    assert [limit for _, limit in calls] == limits and not np.array_equal(calls[0][0].xs, calls[1][0].xs)


def test_an_attempt_that_went_astray_leaves_the_next_one_the_guess(monkeypatch):
    ocp = cases.crane()
    guess = to.constant_guess(ocp)
    starts = []

    def lost(ocp, warm, options, callback=None):
        found = dms(ocp, warm, to.solver_options("dms", max_iterations=1), callback)
        return to.Solution(
            **{**vars(found), "status": to.Status(StatusCode.LINE_SEARCH_FAILED, "lost"), "xs": found.xs + 1.0}
        )

    def watched(ocp, warm, options, callback=None):
        starts.append(warm.guess)
        return dms(ocp, warm, to.solver_options("dms"), callback)

    dms = SOLVERS["dms"][0]
    monkeypatch.setitem(SOLVERS, "ddp", (lost, *SOLVERS["ddp"][1:]))
    monkeypatch.setitem(SOLVERS, "ipm", (watched, *SOLVERS["ipm"][1:]))
    solution = to.solve(ocp, guess)
    assert solution.status.success
    np.testing.assert_array_equal(starts[-1].xs, guess.xs)


@pytest.mark.parametrize("far", [0.0, 1e4])
def test_an_attempt_far_from_feasible_leaves_the_next_one_the_guess(monkeypatch, far):
    """A second attempt of the last method follows from the guess, unless it began there."""
    ocp = cases.crane()
    guess = to.constant_guess(ocp)
    starts = []

    def lost(ocp, warm, options, callback=None):
        found = dms(ocp, warm, to.solver_options("dms", max_iterations=0), callback)
        xs = np.vstack([found.xs[:1], found.xs[1:] + 1e-3 + far])
        return dataclasses.replace(found, xs=xs, status=to.Status(StatusCode.MAX_ITERATIONS, "lost"))

    def watched(ocp, warm, options, callback=None):
        starts.append(warm.guess)
        return lost(ocp, warm, options, callback)

    dms = SOLVERS["dms"][0]
    for name in ("ddp", "ipm"):
        monkeypatch.setitem(SOLVERS, name, (lost, *SOLVERS[name][1:]))
    monkeypatch.setitem(SOLVERS, "dms", (watched, *SOLVERS["dms"][1:]))
    to.solve(ocp, guess, {"starts": 1})
    assert [np.array_equal(start.xs, guess.xs) for start in starts] == ([True] if far else [False, True])


@pytest.mark.parametrize(("ipopt", "expected"), [(True, ["ipm", "dms", "dms"]), (False, ["ipm", "sqp", "sqp"])])
def test_the_direct_methods_are_two_of_those_that_the_machine_can_run(monkeypatch, ipopt, expected):
    ocp = cases.pendulum_swing_up()
    end = to.state_bounds(ocp.manifold, [np.pi, 0.0], [np.pi, 0.0], "upright")
    held = to.OCP(ocp.phases, ocp.x0, terminal_constraints=(end,))
    monkeypatch.setattr(module, "find_spec", lambda name: True if ipopt else None)
    assert [a.solver for a in module.attempts(held)] == expected


@pytest.mark.parametrize("solver", ["ddp", "auto"])
@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_linear_cost_without_bounds_is_unbounded(solver, at_the_end):
    """No other attempt follows; with bounds on the controls the solve ends at the corner, whose cost is known."""
    mass = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(mass, "forward_ad"), "euler")
    running = [] if at_the_end else [to.linear_cost(mass.manifold, control=[1.0])]
    terminal = [to.linear_cost(mass.manifold, [1.0])] if at_the_end else []
    free, bounded = (
        to.OCP.single_phase(step, [0.0], 30, 0.1, running, terminal, **limits)
        for limits in ({}, {"u_lower": -1.0, "u_upper": 1.0})
    )
    found = to.solve(free, solver=solver)
    assert found.status.code == "unbounded" and len(found.meta.get("attempts", [0])) == 1
    assert found.cost < -1e10 and found.iterations < 50
    corner = to.solve(bounded, solver=solver)
    assert corner.status.success and corner.cost == pytest.approx(-3.0, rel=1e-6)


def head_on():
    """A point mass with a disc exactly between its start and its goal, and the straight line between them."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2)
    away = to.residual_constraint("disc", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2], 4, 1, lower=0.25)
    goal = np.array([1.0, 0.0, 0.0, 0.0])
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(mass, "forward_ad"), "rk4"),
        -goal,
        40,
        0.05,
        [to.control_cost(2, weight=0.1)],
        constraints=[away],
        terminal_constraints=[to.bounded(to.state_cost(4, goal), name="goal")],
    )
    return ocp, to.interpolated_guess(ocp, goal)


def test_a_straight_guess_through_an_obstacle_gives_way_to_a_start_at_rest():
    ocp, guess = head_on()
    alone = to.solve(ocp, guess, options={"starts": 1})
    found = to.solve(ocp, guess)
    assert not alone.status.success and found.status.success
    assert "began from x0 at rest" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp).cost, rel=1e-6)


def test_an_interrupt_in_another_start_ends_the_solve():
    ocp, guess = head_on()
    last, records = len(to.solve(ocp, guess, options={"starts": 1}).history) + 3, []

    def stop(record):
        records.append(record)
        if len(records) > last:
            raise KeyboardInterrupt

    found = to.solve(ocp, guess, callback=stop)
    assert found.status.code is StatusCode.INTERRUPTED and len(records) == last + 1
    assert [r.iteration for r in found.history[: last - 3]] == [r.iteration for r in records[: last - 3]]


def test_a_guess_at_a_saddle_point_is_left():
    """Both sides of x = 0 are cheaper, and the gradient there is zero; at rest at a minimum the guess stays."""
    cart = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    force, bounds = to.control_cost(1, weight=0.01), {"u_lower": -3.0, "u_upper": 3.0}
    wells = to.objective_term("two wells", lambda x, u, t, p: (x[0] ** 2 - 1.0) ** 2, 2)
    found = to.solve(to.OCP.single_phase(cart, [0.0, 0.0], 20, 0.1, [force], [wells], **bounds))
    assert found.status.success and found.cost < 0.01 and "saddle point" in found.status.message
    rest = to.solve(to.OCP.single_phase(cart, [0.0, 0.0], 20, 0.1, [force], [to.state_cost(2, [0.0, 0.0])], **bounds))
    assert rest.status.success and rest.cost == 0.0 and "saddle" not in rest.status.message


@pytest.mark.parametrize("control", [0.0, 0.1])
def test_a_saddle_point_in_the_states_is_left(control):
    """The cost of x^2 - 1 has no gradient at x = 0, where the cost of the controls draws a guess with controls, too."""
    cart = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    well = to.residual_cost("well", lambda x, u, t, p: [x[0] ** 2 - 1.0], 2, 1, 10.0)
    ocp = to.OCP.single_phase(cart, [0.0, 0.0], 20, 0.1, [to.control_cost(1, weight=0.01)], [well])
    found = to.solve(ocp, to.constant_guess(ocp, control))
    assert found.status.success and found.cost < 0.01 and "saddle point" in found.status.message


def test_a_guess_that_is_a_solution_is_solved_once():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    ocp = to.OCP.single_phase(step, [1.0, 0.0], 20, 0.1, [to.control_cost(1), to.state_cost(2, [0.0, 0.0])])
    first, records = to.solve(ocp), []
    again = to.solve(ocp, first, callback=records.append)
    assert again.status.success and len(again.meta["attempts"]) == 1
    assert len(records) == len(again.history) <= 2


def test_a_symmetric_motion_of_one_control_is_left():
    """A hill on the straight way: the force across it is zero on the ridge, from which the cost falls to both sides."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
    hill = to.objective_term("hill", lambda x, u, t, p: 3.0 * sm.exp(-((x[0] - 2.0) ** 2) - x[1] ** 2), 4)
    goal = to.residual_constraint("goal", lambda x, u, t, p: [x[0] - 4.0, x[1], x[2], x[3]], 4, 4)
    step, costs = to.SampledSystem(mass, "rk4"), [to.control_cost(2, weight=0.01), hill]
    ocp = to.OCP.single_phase(step, np.zeros(4), 20, 0.2, costs, terminal_constraints=[goal])
    records = []
    found = to.solve(ocp, to.interpolated_guess(ocp, np.array([4.0, 0.0, 0.0, 0.0])), callback=records.append)
    assert found.status.success and found.cost < 0.3 and "saddle point" in found.status.message
    assert len(records) == len(found.history) > found.iterations


@pytest.mark.parametrize(("bound", "code"), [(np.inf, StatusCode.UNBOUNDED), (100.0, StatusCode.CONVERGED)])
def test_a_maximum_on_the_constraints_is_left(bound, code):
    """The shortest controls that reach the goal are stationary, and the most expensive ones, as the cost is -u^2."""
    cart = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    cost = to.objective_term("minus u squared", lambda x, u, t, p: [-(u[0] ** 2)], 2, nu=1)
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    limits = {"u_lower": -bound, "u_upper": bound}
    ocp = to.OCP.single_phase(cart, [0.0, 0.0], 20, 0.1, [cost], terminal_constraints=[goal], **limits)
    found = to.solve(ocp)
    assert found.status.code is code and found.cost < -15000.0
    alone = to.solve(ocp, solver="ipm")
    assert alone.cost > -2.0 and any("indefinite" in finding for finding in alone.meta["findings"])


@pytest.mark.parametrize(("weight", "saddle"), [(0.0, False), (-1.0, True)])
def test_a_control_without_effect_is_no_saddle_point(weight, saddle):
    cart = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 2, second_order=True), "rk4")
    costs = [to.control_cost(2, weight=[1.0, 0.0])]
    costs.append(to.objective_term("other", lambda x, u, t, p: [weight * u[1] ** 2], 2, nu=2))
    goal = to.state_cost(2, [0.0, 0.0], 10.0)
    found = to.solve(to.OCP.single_phase(cart, [1.0, 0.0], 20, 0.1, costs, [goal]), solver="ipm")
    assert found.status.success and any("indefinite" in finding for finding in found.meta["findings"]) == saddle


def test_a_maximum_without_bounds_is_unbounded():
    cart = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    gain = to.objective_term("gain", lambda x, u, t, p: [-(u[0] ** 2)], 2, nu=1)
    found = to.solve(to.OCP.single_phase(cart, [0.0, 0.0], 20, 0.1, [gain], []))
    assert found.status.code is StatusCode.UNBOUNDED


@pytest.mark.parametrize("x0", [[1.0, 1.0], [-1.43, -1.21], [1.82, 1.82]])
def test_a_mass_that_moves_away_from_its_goal_stops_there_in_minimum_time(x0):
    """By A. E. Bryson, Y. C. Ho (1975), section 3.9: full force in one direction, then in the other."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    goal = to.bounded(to.state_cost(mass.manifold, [0.0, 0.0]), name="goal")
    fixed = to.OCP.single_phase(
        to.SampledSystem(mass, "rk4"), x0, 40, 3.0 / 40, u_lower=-1.0, u_upper=1.0, terminal_constraints=[goal]
    )
    found = to.solve(to.free_time(fixed, (0.1, 30.0)).ocp)
    q, v = np.abs(x0)
    assert found.status.success and found.duration == pytest.approx(v + 2.0 * np.sqrt(q + 0.5 * v**2), rel=1e-3)
    held = [a["held"] for a in found.meta["attempts"] if a["held"]]
    assert ((3.0,) in held and len(set(held)) == len(held)) or len(tried(found)) == 1


def test_records_of_all_attempts_are_numbered_without_a_break():
    ocp = cases.pendulum_swing_up()
    fastest = np.abs(to.solve(ocp, solver="slq").xs[:, 1]).max()
    seen = []
    found = to.solve(bounded(ocp, 0.8 * fastest), callback=lambda r: seen.append(r.iteration))
    assert len(tried(found)) == 2
    assert [r.iteration for r in found.history] == seen == list(range(len(found.history)))


def test_an_interrupted_solve_is_not_replayed():
    def interrupt(record):
        raise KeyboardInterrupt

    found = to.solve(cases.crane(), callback=interrupt)
    assert found.status.code is StatusCode.INTERRUPTED
    assert found.meta["replay"] == {"left_out": "the solve was interrupted"}


@pytest.mark.parametrize("ipopt", [True, False])
def test_the_last_attempt_differentiates_the_source_of_a_backend_without_second_derivatives(monkeypatch, ipopt):
    """Zermelo's problem, whose cost has no Gauss-Newton Hessian in the controls."""
    river = to.FunctionMap(lambda x, u, t, p: [np.cos(u[0]) - x[1], np.sin(u[0])], 2, 1)
    end = to.residual_cost("end", lambda x, u, t, p: [x[0], x[1]], to.vector_space(2), 2, 10.0)
    step = to.SampledSystem(to.make_backend(river, "forward_difference"), "rk4")
    ocp = to.OCP.single_phase(step, [3.66, -1.86], 50, 0.1, [], [end])
    monkeypatch.setattr(module, "find_spec", lambda name: True if ipopt else None)
    *_, last = module.attempts(ocp)
    assert (last.solver, last.needs["hessian"] if not ipopt else "") == (("dms", "") if ipopt else ("sqp", "exact"))
    if ipopt:
        solution = to.solve(ocp, options={"max_iterations": 60})
        assert solution.status.success and solution.cost == pytest.approx(1.3071819, abs=1e-6)
        assert "until then auto first uses hessian = 'gauss_newton'" in str(solution.meta["findings"])
