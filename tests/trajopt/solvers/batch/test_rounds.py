"""Constrained batches with SLQ, its variants and DDP: inner solves in lanes; each solution equals that of a single solve."""

from dataclasses import replace

import numpy as np
import pytest
from batch_cases import GOAL, N, check_each, swing, varied, varied_constraints
from contact_cases import hop
from swing_ups import bundled_swing_up

import trajopt as to
from trajopt import Batch, Guess, StatusCode
from trajopt.solvers.batch import threads
from trajopt.solvers.batch.slot_batch import SlotBatch


@pytest.mark.parametrize("solver", ["slq", "ilqr", "gnms", "fddp", "ddp"])
def test_each_is_the_single_solve(solver):
    """Problems differ in x0, bounds and parameters of constraints, goals and control limits."""
    ocp = swing(constrained=True)
    values, guess = varied_constraints(ocp, n=17)
    batch = Batch(ocp, values)
    options = {"max_iterations": 600}
    found = to.solve_batch(batch, guess=guess, options=options, solver=solver, gains=True, threads=1)
    assert found.meta["how"] == ("1 thread" if solver == "ddp" else "lanes")
    assert found.meta["rounds"] > 3 and not found.meta.get("referred")
    assert found.success.all()
    check_each(found, batch, guess, options, solver, atol=1e-7, rel=1e-9)
    assert np.abs(found.xs[:, -1] - values["reach.lower"]).max() < 1e-6
    assert (found.xs[:, :-1, 2:] - values["speed.lower"][:, None]).min() > -1e-6
    members = to.solve_batch([batch[i] for i in range(17)], guess=guess, options=options, solver=solver, threads=1)
    np.testing.assert_allclose(members.xs, found.xs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("options, code", [
    ({"max_iterations": 12}, StatusCode.MAX_ITERATIONS),
    ({"max_outer_iterations": 2}, StatusCode.MAX_ITERATIONS),
    ({"max_constraint_penalty": 10.0}, StatusCode.STALLED),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("solver", ["slq", "ddp"])
def test_failures_are_reported_as_in_single_solves(solver, options, code):
    """With few iterations or fixed penalties, the status names the most violated constraint."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp)
    batch = Batch(ocp, values)
    found = to.solve_batch(batch, guess=guess, options=options, solver=solver, threads=1)
    check_each(found, batch, guess, options, solver, atol=1e-7, rel=1e-9)
    failed = np.flatnonzero(~found.success)
    assert len(failed) and {found.status[i].code for i in failed} == {code}
    for i in failed:
        assert "largest violation" in found.messages[i]
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), options, solver=solver, check=False)
        assert found.status[i].component == single.status.component is not None


@pytest.mark.parametrize("solver", ["slq", "ddp"])
def test_an_unsolvable_problem_does_not_stop_the_others(solver):
    """Cases: a goal out of reach at the speed limit, and x0 with NaN."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp, size=0.02)
    values["x0"][2] = np.nan
    goals = np.tile(GOAL, (N, 1))
    goals[0, 0] = 30.0
    batch = Batch(ocp, {**values, "reach.lower": goals, "reach.upper": goals})
    options = {"max_iterations": 2000, "max_constraint_penalty": 1e4}
    found = to.solve_batch(batch, guess=guess, options=options, solver=solver)
    assert found.success.tolist() == [False, True, False, True, True, True]
    assert "in x0 of problem 2." in found.messages[2]
    assert found.status[0].component is not None


def test_problems_with_other_equations_have_rounds_of_their_own():
    """Problems that differ in equal bounds need different compiled code."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp)
    lower, upper = np.tile(GOAL, (N, 1)), np.tile(GOAL, (N, 1))
    lower[[0, 4], 1] -= 0.01
    batch = Batch(ocp, {**values, "reach.lower": lower, "reach.upper": upper})
    found = to.solve_batch(batch, guess=guess, solver="fddp")
    assert found.meta["how"] == "lanes" and found.success.all()
    check_each(found, batch, guess, {}, "fddp", atol=1e-7)


@pytest.mark.parametrize("solver", ["ilqr", "fddp"])
def test_a_rollout_leads_away_from_where_a_constraint_is_not_finite(solver):
    """Single shooting rolls out the controls of the guess and ignores its states."""
    ocp = swing(constrained=True)
    pole = to.residual_constraint("pole", lambda x, u, t, p: [1.0 / (x[0] - 0.1)], ocp.manifold, 1, -20.0, 1e6)
    phase = ocp.phases[0]
    ocp = replace(ocp, phases=(replace(phase, constraints=(*phase.constraints, pole)),))
    values, guess = varied(ocp)
    guess.xs[2:4, 1:, 0] = 0.1
    batch = Batch(ocp, values)
    found = to.solve_batch(batch, guess=guess, solver=solver)
    finite = [s.code is not StatusCode.NON_FINITE for s in found.status]
    assert found.meta["how"] == "lanes" and finite == [solver == "ilqr" or i not in (2, 3) for i in range(N)]
    check_each(found, batch, guess, {}, solver, atol=1e-6, rel=1e-8)


def test_a_second_start_is_one_of_an_inner_solve(monkeypatch):
    """Double pendulums at rest restart with nonlinear gaps to swing up; the other problem continues with linear gaps."""
    ocp, hanging = bundled_swing_up()
    up = np.r_[ocp.terminal[0].parameters["reference"]]
    goal = to.state_bounds(ocp.manifold, up, up, name="up")
    ocp = replace(ocp, terminal_constraints=(goal,))
    easy = to.solve(ocp, hanging, {"max_iterations": 600}, solver="ddp")
    guesses = [hanging, Guess(easy.xs, easy.us), hanging]
    found = to.solve_batch(ocp, {"x0": np.tile(ocp.x0, (3, 1))}, guesses, {"max_iterations": 600}, solver="slq")
    single = to.solve(ocp, hanging, {"max_iterations": 600}, solver="slq")
    assert found.meta["how"] == "lanes" and found.success.all() and single.status.success
    assert (found.iterations[[0, 2]] == single.iterations).all()
    assert found.cost[[0, 2]] == pytest.approx(single.cost, rel=1e-9)


def test_a_limit_of_time_is_of_each_problem():
    ocp = swing(constrained=True)
    values, guess = varied(ocp)
    found = to.solve_batch(ocp, values, guess, {"time_limit": 60.0}, solver="fddp")
    assert found.meta["how"] == "one after the other" and found.success.all()


def test_contact_phases():
    """Constraints in two phases; one of them reads contact forces, which are controls."""
    ocp = hop("compiled")
    low = to.residual_constraint("low", lambda x, u, t, p: [x[0]], ocp.manifold, 1, -np.inf, float(ocp.x0[0]) + 0.05)
    weak = to.residual_constraint(
        "weak", lambda x, u, t, p: [u[0]], ocp.manifold, 1, -60.0, 60.0, nu=ocp.phases[0].dynamics.nu
    )
    phases = list(ocp.phases)
    phases[0] = to.Phase(phases[0].dynamics, phases[0].dt, phases[0].terms, constraints=(low, weak))
    ocp = to.OCP(tuple(phases), ocp.x0, ocp.terminal)
    x0 = np.tile(ocp.x0, (4, 1))
    x0[:, 0] += np.linspace(-0.01, 0.01, 4)
    options = {"max_iterations": 6}
    found = to.solve_batch(ocp, {"x0": x0}, None, options, solver="fddp", check=False)
    assert found.meta["how"] == "lanes"
    guess = Guess(np.repeat(x0[:, None], ocp.horizon + 1, axis=1), np.zeros((4, ocp.horizon, ocp.nu)))
    check_each(found, Batch(ocp, {"x0": x0}), guess, options, "fddp", atol=1e-7, rel=1e-9)


def test_ctrl_c_returns_the_finished_solutions(monkeypatch):
    """Problems that met their constraints before Ctrl-C are solved; the others report their violation."""
    monkeypatch.setattr(threads, "POLL", 1e-4)
    ocp = swing(constrained=True)
    values, guess = varied(ocp, n=40)
    goals = np.tile(GOAL, (40, 1))
    goals[::2, 0] = 30.0  # out of reach at the speed limit, which takes more rounds to find
    values |= {"reach.lower": goals, "reach.upper": goals}
    rounds = []

    def interrupt(done, total):
        rounds.append(done)
        if done > 0:
            raise KeyboardInterrupt

    found = to.solve_batch(ocp, values, guess, {"max_iterations": 600}, interrupt, solver="fddp", threads=1)
    codes = [s.code for s in found.status]
    assert rounds[0] == 0 and codes[1::2].count(StatusCode.CONVERGED) == rounds[-1] > 0
    left = [i for i, code in enumerate(codes) if code is StatusCode.INTERRUPTED]
    assert len(left) == 40 - rounds[-1]
    assert np.isfinite(found.xs).all() and (found.iterations > 0).all()
    assert all("returning the best iterate" in found.messages[i] for i in left)


@pytest.mark.parametrize("call", [0, 2, 5])
@pytest.mark.parametrize("solver", ["slq", "ddp"])
def test_ctrl_c_once_is_not_lost(monkeypatch, solver, call):
    """Ctrl-C stops a batch at any time, even after all inner solves of a round have finished."""
    monkeypatch.setattr(threads, "POLL", 60.0)  # progress is reported after rounds only, however long they take
    ocp = swing(constrained=True)
    values, guess = varied(ocp, n=6)
    calls = []

    def interrupt(done, total):
        calls.append(done)
        if len(calls) == call + 1:
            raise KeyboardInterrupt

    found = to.solve_batch(ocp, values, guess, {"max_iterations": 600}, interrupt, solver=solver, gains=True, threads=1)
    assert len(calls) == call + 1 and {s.code for s in found.status} == {StatusCode.INTERRUPTED}
    assert np.isfinite(found.cost).all() and np.abs(found.K).max(axis=(1, 2, 3)).min() > 0.0


def test_ctrl_c_before_a_problem_of_a_round_has_begun_is_not_lost(monkeypatch):
    ocp = swing(constrained=True)
    values, guess = varied(ocp, n=6)
    take, batches = SlotBatch._take, []

    def stopped_later(batch, slot, stop):
        if batch not in batches:
            batches.append(batch)
        stop[threads.STOP] |= len(batches) > 1
        return take(batch, slot, stop)

    monkeypatch.setattr(SlotBatch, "_take", stopped_later)
    found = to.solve_batch(ocp, values, guess, {"max_iterations": 600}, solver="slq", gains=True, threads=1)
    assert len(batches) == 2 and {s.code for s in found.status} == {StatusCode.INTERRUPTED}
    assert np.isfinite(found.cost).all() and np.abs(found.K).max(axis=(1, 2, 3)).min() > 0.0


def test_costs_do_not_lose_digits_to_large_penalties():
    ocp = swing(constrained=True)
    values, guess = varied(ocp, size=0.02)
    goals = np.tile(GOAL, (N, 1))
    goals[::2, 0] = 3.0
    batch, options = Batch(ocp, {**values, "reach.lower": goals, "reach.upper": goals}), {"max_iterations": 2000}
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq")
    assert not found.success[::2].any() and found.success[1::2].all()
    for i in range(N):
        assert found.cost[i] == pytest.approx(batch[i].cost(found.xs[i], found.us[i]), rel=1e-11)


def test_ctrl_c_at_once():
    def interrupt(done, total):
        raise KeyboardInterrupt

    ocp = swing(constrained=True)
    values, guess = varied(ocp, n=400)
    found = to.solve_batch(ocp, values, guess, {"max_iterations": 10**6}, interrupt, solver="slq", threads=1)
    assert {s.code for s in found.status} == {StatusCode.INTERRUPTED}
