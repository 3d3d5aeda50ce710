"""Interior-point and DDP batches, one problem at a time on each thread: each solution equals that of a single solve."""

from dataclasses import replace

import numpy as np
import pytest
from batch_cases import GOAL, N, check_each, swing, varied

import trajopt as to
from trajopt import Batch, Guess, StatusCode
from trajopt.solvers.batch import threads


def test_unsolvable_problems_are_reported_as_in_single_solves_and_do_not_stop_the_others():
    """Cases: a goal out of reach at the speed limit, x0 with NaN, and a problem with a different row structure."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp, size=0.02)
    values["x0"][2] = np.nan
    goals = np.tile(GOAL, (N, 1))
    goals[0, 0] = 30.0
    lower, upper = goals.copy(), goals.copy()
    lower[4, 1] -= 0.01
    batch = Batch(ocp, {**values, "reach.lower": lower, "reach.upper": upper})
    found = to.solve_batch(batch, guess=guess, solver="ipm")
    assert found.status[0].code is StatusCode.LOCALLY_INFEASIBLE and "in x0 of problem 2." in found.messages[2]
    assert found.meta["referred"] == [0, 4]
    assert found.success[[1, 3, 4, 5]].all()
    few = [0, 1, 4]
    check_each(
        to.solve_batch(batch.subset(few), guess=Guess(guess.xs[few], guess.us[few]), solver="ipm"),
        batch.subset(few), Guess(guess.xs[few], guess.us[few]), None, "ipm",
    )  # fmt: skip


def test_the_first_problem_does_not_decide_about_the_others():
    """The first problem has a different row structure, and is solved alone."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp)
    lower = np.tile(GOAL, (N, 1))
    lower[0, 1] -= 0.01
    batch = Batch(ocp, {**values, "reach.lower": lower, "reach.upper": np.tile(GOAL, (N, 1))})
    found = to.solve_batch(batch, guess=guess, solver="ipm")
    assert found.meta["referred"] == [0]
    check_each(found, batch, guess, None, "ipm")


@pytest.mark.parametrize("changes", [
    {},
    {"hessian": "gauss_newton"},
    {"max_iterations": 3},
    {"cost_tolerance": 1e-3},
    {"gradient_tolerance": 1e-30, "kkt_tolerance": 1e-30},
], ids=str)  # fmt: skip
def test_each_of_ddp_is_the_single_solve(changes):
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp, size=0.8)
    batch = Batch(ocp, {**values, "goal.weight": np.geomspace(10.0, 1e4, N), "way.reference": GOAL + values["x0"]})
    found = to.solve_batch(batch, guess=guess, options=changes, solver="ddp", gains=True, threads=2)
    assert found.meta["how"] == "2 threads"
    if "gradient_tolerance" in changes:  # at rounding level, paths differ in the last digits
        assert {s.code for s in found.status} == {StatusCode.CONVERGED}
        assert all("Double precision allows no further progress" in s.message for s in found.status)
        return
    check_each(found, batch, guess, changes, "ddp")


@pytest.mark.parametrize("changes", [{}, {"max_iterations": 4}, {"cost_tolerance": 1e-3}], ids=str)
def test_each_of_ddp_within_bounds_is_the_single_solve(changes):
    """Each problem has different control limits, with one side free; controls end on their active bounds."""
    ocp = replace(swing(constrained=False, horizon=24), u_lower=[-10.0, -np.inf], u_upper=[10.0, 4.0])
    values, guess = varied(ocp, size=0.3)
    limits = np.c_[6.0 + np.arange(N), np.full(N, 3.0)]
    batch = Batch(ocp, {**values, "u_upper": limits})
    found = to.solve_batch(batch, guess=guess, options=changes, solver="ddp", gains=True, threads=2)
    assert found.meta["how"] == "2 threads" and (found.us <= limits[:, None]).all()
    assert (found.us == limits[:, None]).any() == ("max_iterations" not in changes)
    check_each(
        found, batch, guess, changes, "ddp", 1e-8, 1e-9
    )  # gains near a bound are those of its barrier, and large


def test_a_start_that_is_not_finite_leaves_ddp_to_say_so():
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp)
    guess.xs[1] = 1e200
    found = to.solve_batch(ocp, values, guess, solver="ddp")
    single = to.solve(replace(ocp, x0=values["x0"][1]), Guess(guess.xs[1], guess.us[1]), solver="ddp", check=False)
    assert str(found.status[1]) == str(single.status) and np.isnan(found.cost[1])
    np.testing.assert_array_equal(found.xs[1], single.xs)
    assert np.delete(found.success, 1).all()


@pytest.mark.parametrize("solver", ["ipm", "ddp"])
def test_ctrl_c_returns_the_finished_solutions(monkeypatch, solver):
    monkeypatch.setattr(threads, "POLL", 1e-4)
    ocp = swing(constrained=solver == "ipm")
    values, guess = varied(ocp, 600)

    def interrupt(done, total):
        if done >= 1:
            raise KeyboardInterrupt

    found = to.solve_batch(ocp, values, guess, {"max_iterations": 10**6}, interrupt, solver=solver, threads=1)
    begun = np.isfinite(found.cost)
    assert begun.any() and not begun.all() and np.isfinite(found.xs[begun]).all()
    assert {s.code for s in found.status} <= {StatusCode.CONVERGED, StatusCode.INTERRUPTED}
    assert all("before this problem started" in found.messages[i] for i in np.flatnonzero(~begun))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("solver", ["ipm", "ddp"])
def test_a_phase_that_is_not_compiled_leaves_the_batch_to_single_solves(solver, order):
    body = to.FreeBody(to.load_robot("double_pendulum"))
    terms, goal = [to.control_cost(2, weight=1e-2)], to.state_cost(body.manifold, GOAL, 100.0, name="goal")
    phases = [
        to.Phase(
            to.SampledSystem(to.make_backend(body, "analytic", engine=engine), "semi_implicit_euler"),
            np.full(4, 0.05),
            tuple(terms),
        )
        for engine in ("numpy", "compiled")[::order]
    ]
    ocp = to.OCP(x0=np.zeros(4), phases=tuple(phases), terminal=(goal,))
    found = to.solve_batch(ocp, {"x0": 0.1 * np.eye(2, 4)}, solver=solver)
    for i in range(2):
        single = to.solve(replace(ocp, x0=0.1 * np.eye(2, 4)[i]), solver=solver, check=False)
        assert found.status[i].code == single.status.code == StatusCode.CONVERGED
        np.testing.assert_allclose(found.xs[i], single.xs, atol=1e-8)


@pytest.mark.parametrize("side", ["u_lower", "u_upper"])
@pytest.mark.parametrize("solver", ["ipm", "ddp", "slq"])
def test_one_side_of_the_limits_may_vary_alone(solver, side):
    """Also of a problem that has no limits."""
    limited, free = swing(constrained=solver == "ipm"), swing(constrained=False)
    values, guess = varied(limited)
    sign = 1.0 if side == "u_upper" else -1.0
    limits = {side: sign * np.geomspace(1.0, 40.0, N)[:, None] * np.ones(2)}
    found = to.solve_batch(Batch(limited, {**values, **limits}), guess=guess, solver=solver)
    check_each(found, Batch(limited, {**values, **limits}), guess, None, solver, atol=1e-6, rel=1e-8)
    assert len(np.unique(found.cost.round(6))) == N
    found = to.solve_batch(Batch(free, {**values, **limits}), guess=guess, solver=solver)
    check_each(found, Batch(free, {**values, **limits}), guess, None, solver, atol=1e-6, rel=1e-8)


# -- the default solver --------------------------------------------------------------------------------------------------


def tried(meta):
    return [(a["solver"], a["status"], a["iterations"], a["breaks them"]) for a in meta["attempts"]]


def check_attempts(batch, guess, options, expected):
    """Each goes through the attempts of a single solve; expected: the solvers that any was given to, in their order."""
    found = to.solve_batch(batch, guess=guess, options=options, threads=2)
    assert found.meta["solver"] == "auto" and found.meta["how"] == "2 threads"
    check_each(found, batch, guess, options, "auto", atol=1e-7, rel=1e-9)
    names = [[a[0] for a in tried(solution.meta)] for solution in found]
    assert max(names, key=len) == expected
    for i, solution in enumerate(found):
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), options, check=False)
        assert tried(solution.meta) == tried(single.meta)
        assert ("attempt" in solution.status.message) == (len(names[i]) > 1)
    return found, names


def test_the_default_gives_constraints_to_the_interior_point():
    ocp = swing(constrained=True)
    values, guess = varied(ocp)
    check_attempts(Batch(ocp, values), guess, {}, ["ipm"])


def test_the_default_retries_unsolved_problems():
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp, size=0.8)
    batch = Batch(ocp, {**values, "goal.weight": np.geomspace(10.0, 1e4, N)})
    done = []
    check_attempts(batch, guess, {"max_iterations": 5}, ["ddp", "ipm", "dms"])
    to.solve_batch(
        batch, guess=guess, options={"max_iterations": 5}, callback=lambda *arguments: done.append(arguments)
    )
    assert done[-1] == (N, N)
    found, _ = check_attempts(batch, guess, {"max_iterations": 5, "fallback": False}, ["ddp"])
    assert not found.success.all()


def test_ctrl_c_when_all_solves_of_an_attempt_are_through_ends_the_default():
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp, size=0.8)

    def interrupt(done, total):
        if done == total:
            raise KeyboardInterrupt

    found = to.solve_batch(Batch(ocp, values), guess=guess, options={"max_iterations": 5}, callback=interrupt)
    assert found.stopped and not found.success.all() and np.isfinite(found.cost).all()
    assert [len(solution.meta["attempts"]) for solution in found] == [1] * N


def test_the_default_keeps_limits_that_solutions_without_them_break():
    """In some problems of the batch the speed binds."""
    ocp = swing(constrained=False)
    fast = [to.state_bounds(ocp.manifold, [-np.inf, -np.inf, -9.0, -9.0], [np.inf, np.inf, 9.0, 9.0], name="speed")]
    ocp = to.OCP((replace(ocp.phases[0], constraints=tuple(fast)),), ocp.x0, ocp.terminal)
    values, guess = varied(ocp)
    free = to.solve_batch(Batch(ocp, values), guess=guess, solver="auto")
    speeds = np.abs(free.xs[:, :, 2:]).max(axis=(1, 2))
    limits = np.repeat((speeds * np.where(np.arange(N) % 2, 0.8, 1.2))[:, None], 2, axis=1)
    batch = Batch(ocp, {**values, "speed.lower": -limits, "speed.upper": limits})
    _, names = check_attempts(batch, guess, {}, ["ddp", "ipm"])
    assert names == [["ddp"], ["ddp", "ipm"]] * (N // 2)
    members = Batch.from_problems([batch[i] for i in range(N)])
    assert [[a[0] for a in tried(s.meta)] for s in to.solve_batch(members, guess=guess)] == names


def test_problems_may_ask_for_different_attempts():
    """A limit without room is an equation, with which no problem without it helps."""
    ocp = swing(constrained=False)
    limit = to.state_bounds(ocp.manifold, GOAL - 5.0, GOAL + 5.0, name="end")
    ocp = to.OCP(ocp.phases, ocp.x0, ocp.terminal, terminal_constraints=(limit,))
    values, guess = varied(ocp, n=2)
    lower, upper = (GOAL + side * np.array([[5.0] * 4, [5.0] * 3 + [0.0]]) for side in (-1.0, 1.0))
    batch = Batch(ocp, {**values, "end.lower": lower, "end.upper": upper})
    found = to.solve_batch(batch, guess=guess, threads=1)
    assert found.meta["how"] == "1 thread" and found.success.all()
    assert [s.message.split(":")[0] for s in found.status] == ["ddp", "ipm"]
    check_each(found, batch, guess, None, "auto")


def test_a_limit_of_time_is_one_for_all_attempts_of_a_problem():
    values, guess = varied(ocp := swing(constrained=False))
    found = to.solve_batch(ocp, values, guess, {"time_limit": 60.0}, threads=1)
    assert found.meta["how"] == "one after the other" and found.success.all()
