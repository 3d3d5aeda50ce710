"""Consecutive solves: more substeps until the replay succeeds, coarse time grids if a solve with free durations fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.first_try import minimum_time
from trajopt import StatusCode
from trajopt.config.build import build_task, solve_with_refinement
from trajopt.config.config import read_config
from trajopt.config.task import Refined
from trajopt.guesses.time_grids import coarser
from trajopt.solvers import auto as module, auto_starts
from trajopt.solvers.refinement import DOUBLINGS, Again, consecutive_solves
from trajopt.solvers.registry import SOLVERS


def pendulum(scheme: str, horizon: int = 20) -> to.OCP:
    """A pendulum swings up within two seconds, by long steps."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * np.sin(x[0])], 2, 1, second_order=True)
    goal = to.bounded(to.state_cost(2, [np.pi, 0.0]), name="upright")
    return to.OCP.single_phase(
        to.SampledSystem(to.make_backend(system, "forward_ad"), scheme),
        [0.0, 0.0], horizon, 2.0 / horizon, [to.control_cost(1, weight=0.1)],
        terminal_constraints=[goal], u_lower=-12.0, u_upper=12.0,
    )  # fmt: skip


def test_substeps_are_doubled_until_the_replay_agrees():
    ocp = pendulum("semi_implicit_euler", 20)
    plain = to.solve(ocp, solver="ipm")
    calls = []
    found = to.solve(ocp, None, None, calls.append)
    assert plain.status.code == "does_not_hold" and found.status.success, found.status
    factor = found.meta["substeps"]
    assert factor in (2, 4, 8) and f"{factor} times as many substeps" in found.status.message
    assert found.problem.phases[0].dynamics.substeps == factor and ocp.phases[0].dynamics.substeps == 1
    assert [r.iteration for r in found.history] == [r.iteration for r in calls] == list(range(len(calls)))
    assert off_plan(found) < 0.7 * off_plan(plain)


def off_plan(solution) -> float:
    """The largest deviation [rad] from a plan under its controls held for 0.1 s each, by many small steps."""
    angle = rate = off = 0.0
    for (u,), planned in zip(solution.us, solution.xs[1:, 0], strict=True):
        for _ in range(2_000):
            rate += 5e-5 * (u - 9.81 * np.sin(angle))
            angle += 5e-5 * rate
        off = max(off, abs(angle - planned))
    return off


def test_more_substeps_and_then_margins_between_the_knots():
    """The pendulum swings back before it rises; the bound there is met at the knots."""
    ocp = pendulum("semi_implicit_euler", 10)
    back = to.residual_constraint("back", lambda x, u, t, p: [x[0]], ocp.manifold, 1, lower=-0.5, upper=np.inf)
    ocp = replace(ocp, phases=(replace(ocp.phases[0], constraints=(back,)),))
    assert to.solve(ocp, solver="ipm").status.code == "does_not_hold"
    found = to.solve(ocp)
    assert found.status.success and found.meta["substeps"] > 1 and found.meta["margins"] == 1, found.status
    assert "with margins" in found.status.message and "as many substeps" in found.status.message
    assert found.meta["replay"]["open"]["ratio"] <= 1.0 and found.meta["between_knots"]["ratio"] <= 1.0


def test_a_solution_whose_replay_never_agrees_is_the_first_one():
    ocp = replace(pendulum("euler", 12), replay_tolerance=1e-9)
    found = to.solve(ocp)
    assert found.status.code == "does_not_hold" and found.meta["substeps"] == 1
    assert found.problem.phases[0].dynamics.substeps == 1
    assert f"The replay also fails with {2**DOUBLINGS} times as many substeps." in found.status.message
    first = to.solve(ocp, solver="ipm")
    np.testing.assert_allclose(found.xs, first.xs, atol=1e-6)
    assert found.iterations > first.iterations


def test_a_slower_motion_is_advised_if_no_replay_agrees():
    found = to.solve(replace(pendulum("semi_implicit_euler", 30), replay_tolerance=1e-9))
    assert f"The replay also fails with {2**DOUBLINGS} times as many substeps." in found.status.message
    assert found.status.advice.startswith("Small errors grow along this motion: make it slower")


def test_solvers_that_are_named_are_not_followed_by_others():
    assert "substeps" not in to.solve(pendulum("semi_implicit_euler", 20), solver="ipm").meta


def test_ctrl_c_between_solves_keeps_the_solution_before():
    ocp = pendulum("semi_implicit_euler", 20)
    plain = to.solve(ocp, solver="ipm")

    def stop(record):
        if record.iteration > plain.iterations + 1:
            raise KeyboardInterrupt

    found = to.solve(ocp, None, {"starts": 1}, stop)
    assert found.status.code == "interrupted"
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-9)


def test_a_check_asks_for_one_solve_after_another():
    asked = []
    ocp = pendulum("rk4")
    first = to.solve(ocp, solver="ipm", check=False)

    def check(solution):
        asked.append(solution)
        return None if len(asked) == 3 else Again(ocp, to.Guess(solution.xs, solution.us))

    found = consecutive_solves(
        first, check, lambda again: to.solve(ocp, warm_start=again.warm, solver="ipm", check=False)
    )
    assert asked == found and found[0] is first and len(found) == 3
    assert again_barrier(found) < first.meta["options"]["barrier"]


def again_barrier(found):
    return Again(found[0].problem, to.Guess(found[0].xs, found[0].us)).warm.barrier


# -- coarse to fine -----------------------------------------------------------------------------------------------------
def fastest() -> to.OCP:
    """A cart in the shortest time to a place, by a bounded force, on 40 knots."""
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    fixed = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(cart, "forward_ad"), "rk4"),
        [0.0, 0.0], 40, 0.05, [to.control_cost(1, weight=1e-3)],
        terminal_constraints=[to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")], u_lower=-1.0, u_upper=1.0,
    )  # fmt: skip
    return to.free_time(fixed, (0.5, 6.0)).ocp


def failing(monkeypatch, first: int) -> list[int]:
    """Let the first solves of every method fail, without random motions; returns the knots of all solves."""
    knots, run = [], SOLVERS["ipm"][0]
    monkeypatch.setattr(auto_starts, "may_compete", lambda ocp, guess: False)
    monkeypatch.setattr(module, "find_spec", lambda name: name)  # dms is the second method, installed or not

    def watched(ocp, warm, options, callback=None):
        knots.append(ocp.horizon)
        found = run(ocp, warm, options, callback)
        if len(knots) <= first:
            found = replace(found, status=to.Status(to.StatusCode.LOCALLY_INFEASIBLE, "lost"), xs=found.xs + 1.0)
        return found

    for name in ("ipm", "dms"):
        monkeypatch.setitem(SOLVERS, name, (watched, *SOLVERS[name][1:]))
    return knots


def test_where_a_free_duration_is_not_found_a_coarse_grid_starts_the_fine_one(monkeypatch):
    knots = failing(monkeypatch, 1)
    found = to.solve(fastest())
    assert found.status.success and found.duration == pytest.approx(2.0, rel=0.01), found.status
    assert knots == [41, 11, 21, 41, 41] and [a["knots"] for a in found.meta["attempts"]] == knots
    assert (
        "ipm ended with locally_infeasible, ipm converged on 11 knots, ipm converged on 21 knots"
        in found.status.message
    )
    assert found.cost == min(
        a["cost"] for a in found.meta["attempts"] if a["knots"] == 41 and a["status"] == "converged"
    )
    assert found.xs.shape == (42, 3) and "attempt 2: ipm on 11 knots, converged, " in found.report()


def test_the_grids_of_attempts(monkeypatch):
    knots = failing(monkeypatch, 5)
    found = to.solve(fastest())
    assert knots == [41, 11, 21, 21, 21, 21, 41, 41, 41] and found.status.success
    held = [a["held"] for a in found.meta["attempts"]]
    assert held == [(), (), (), (2.0,), (4.0,), (6.0,), (), (), ()]  # until one is feasible; 6 s is the upper bound
    knots = failing(monkeypatch, 9)
    assert to.solve(fastest()).meta["attempts"][-1]["solver"] == "dms" and knots == [41, 11, *[21] * 5, 41, 41, 41]
    knots = failing(monkeypatch, 15)
    lost = to.solve(fastest())
    assert [a["held"] for a in lost.meta["attempts"][3:7]] == [(2.0,), (4.0,), (6.0,), (1.0,)]
    assert len(lost.meta["attempts"]) == 14 and not lost.status.success and lost.xs.shape == (42, 3)
    assert (
        knots[7:] == [41] * 7
        and "Solves from a random motion to the goal found no feasible motion" in lost.status.message
    )
    fixed = pendulum("rk4", 40)
    assert [a.solver for a in module.attempts(fixed)] == ["ipm", "dms", "dms"]  # coarse grids are for free durations
    assert [a.solver for a in module.attempts(fastest(), coarse=False)] == ["ipm", "dms", "dms"]


def test_a_solve_that_is_stopped_on_a_coarse_grid_returns_the_fine_motion(monkeypatch):
    knots = failing(monkeypatch, 1)

    def stop(record):
        if len(knots) == 2:
            raise KeyboardInterrupt

    found = to.solve(fastest(), callback=stop)
    assert found.status.code == "interrupted" and found.xs.shape == (42, 3) and knots == [41, 11]


def test_coarse_steps_are_as_accurate(monkeypatch):
    ocp = fastest()
    assert [p.knots for p in coarser(ocp, 4).phases] == [1, 10] and coarser(ocp, 4).phases[1].dynamics.substeps == 4


# -- refined tasks ------------------------------------------------------------------------------------------------------
def test_margins_hold_in_tasks_that_are_solved_again():
    """The advice of a violation between the knots is true there too."""
    rates = to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2)
    dynamics = to.SampledSystem(to.make_backend(rates, "forward_ad"), "rk4")
    away = to.residual_constraint("disc", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2], 2, 1, 0.25, np.inf)
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    ocp = to.OCP.single_phase(
        dynamics, [-1.0, 0.1], 12, 2.0 / 12, [to.control_cost(2)], constraints=[away], terminal_constraints=[goal]
    )
    task = replace(build_task(read_config({"problem": {"name": "cart_pole", "horizon": 5}}, "test")), ocp=ocp)
    found = {}
    for key, margins in (("without", False), ("with", True)):
        looks = [Refined(False, "", Again(ocp, to.constant_guess(ocp))), Refined(True, "it stands")]
        own = replace(task, refined=lambda solution, looks=looks: looks.pop(0))
        solver = {"name": "ipm", "between_knots": margins}
        config = read_config({"problem": {"name": "cart_pole", "horizon": 5}, "solver": solver}, "test")
        found[key] = solve_with_refinement(config, own, to.constant_guess(ocp))
    assert found["without"].status.code == "violated_between_knots"
    assert "between_knots = true" in found["without"].status.advice
    assert found["with"].status.success, found["with"].status
    assert found["with"].meta["rounds"] == 2 and found["with"].meta["margins"] >= 1


def test_margins_that_do_not_help_leave_the_first_motion():
    """A hoist lifts 20 t in minimum time at its limit of power, which the held force exceeds while the speed rises."""
    lift = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 2e4 - 9.81], 2, 1, second_order=True)
    power = to.residual_constraint("power", lambda x, u, t, p: [u[0] * x[1]], 2, 1, upper=1.5e6, lower=-np.inf, nu=1)
    speed = to.state_bounds(lift.manifold, [-np.inf, -1.0], [np.inf, 15.0])
    top = to.residual_constraint("top", lambda x, u, t, p: [x[0] - 200.0, x[1]], 2, 2)
    base = to.OCP.single_phase(
        to.SampledSystem(lift, "rk4"),
        [0.0, 0.0],
        60,
        0.5,
        constraints=[power, speed],
        terminal_constraints=[top],
        u_lower=1e5,
        u_upper=3e5,
    )
    free = to.free_time(base, (5.0, 60.0))
    guess = free.with_durations(to.constant_guess(base, 1.96e5))
    found = to.solve(free.ocp, guess, {"between_knots": True}, solver="sqp")
    assert found.status.code is StatusCode.VIOLATED_BETWEEN_KNOTS and "do not help" in found.status.message
    assert found.cost == pytest.approx(to.solve(free.ocp, guess, solver="sqp").cost, rel=1e-9)
    assert found.cost < 28.0


def test_a_chaotic_motion_gives_way_to_one_that_holds():
    """Swing-ups of an acrobot: that from the straight guess lasts long, and every replay leaves it."""
    ocp, guess = next(i for i in minimum_time.instances(0) if i.name == "acrobot, 12 Nm").build()
    found = to.solve(ocp, guess)
    assert found.status.success, found.status
