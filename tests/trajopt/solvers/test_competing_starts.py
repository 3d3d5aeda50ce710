"""Competing starts of ``auto``: which guesses compete, which one wins, and what is reported."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from two_goals import DT, KNOTS, PENALTY, START, TILT, mass

import trajopt as to
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.competing_starts import (
    AGREEMENT,
    ALL_ITERATIONS,
    FACTORS,
    HOPELESS,
    LEAST_KNOTS,
    UNANIMOUS,
    Cutoff,
    choose_starts,
    is_at_rest,
    may_compete,
    random_motions,
    solver_threads,
)
from trajopt.solvers.destinations import DRAWN
from trajopt.solvers.registry import SOLVERS


def optima():
    """The smallest objectives near 1 and -1: the final state is linear in the controls, whose least norm is closed."""
    a, b = np.array([[1.0, DT], [0.0, 1.0]]), np.array([DT * DT, DT])
    reach = np.column_stack([np.linalg.matrix_power(a, KNOTS - 1 - k) @ b for k in range(KNOTS)])
    gram = np.linalg.inv(reach @ reach.T)

    def objective(end):
        away = end - [START, 0.0]
        rows = end[0] ** 2 - 1.0, TILT * (end[0] + 1.0), end[1]
        return 0.5 * DT * away @ gram @ away + 0.5 * PENALTY * np.square(rows).sum()

    return [minimize(objective, [end, 0.0], tol=1e-12).fun for end in (1.0, -1.0)]


def test_the_cheaper_optimum_is_found_from_a_guess_that_stands_still():
    near, far = optima()
    alone, best = (to.solve(mass(), options={"starts": count}) for count in (1, 4))
    assert far < 0.1 * near
    np.testing.assert_allclose([alone.cost, best.cost], [near, far], rtol=1e-7)
    assert "starts" not in alone.meta and [s["start"] for s in best.meta["starts"]][:2] == ["guess", "random motion 1"]
    assert "The solve began from one of the best of 4 starts on 10 knots, random motion" in best.status.message
    assert best.status.success and len(best.meta["attempts"]) == 1
    assert "4 starts competed on a coarse time grid in" in best.report() and "competed" not in alone.report()
    again = to.solve(mass(), options={"starts": 4})  # the random motions are the same in each solve
    np.testing.assert_array_equal(best.us, again.us)


def test_a_symmetric_start_passes_an_obstacle():
    """The straight line leads through the center of a circle; no gradient points to either side."""
    system = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "semi_implicit_euler")
    states = system.manifold
    circle = to.residual_constraint(
        "circle", lambda x, u, t, p: [(x[0] - 1.0) ** 2 + x[1] ** 2], states, 1, 0.09, np.inf
    )
    goal = to.state_cost(states, [2.0, 0.0, 0.0, 0.0], 1e3)
    ocp = to.OCP.single_phase(step, np.zeros(4), 40, DT, [to.control_cost(2)], [goal], constraints=[circle])
    found = to.solve(ocp)
    assert found.status.success and "the guess led to" in found.status.message
    assert np.abs(found.xs[-1] - [2.0, 0.0, 0.0, 0.0]).max() < 0.02
    assert np.hypot(found.xs[:, 0] - 1.0, found.xs[:, 1]).min() > 0.3 - 1e-6


def test_which_guesses_compete():
    ocp = mass()
    still = to.constant_guess(ocp)
    assert may_compete(ocp, still) and may_compete(ocp, to.constant_guess(ocp, 1.0))
    assert not may_compete(ocp, to.interpolated_guess(ocp, [1.0, 0.0]))
    assert not may_compete(ocp, to.Guess(still.xs, np.linspace(0.0, 1.0, KNOTS)[:, None]))
    assert not may_compete(mass(knots=19), to.constant_guess(mass(knots=19)))
    free = to.free_time(ocp, (1.0, 3.0))
    assert may_compete(free.ocp, free.with_durations(still)) and may_compete(free.ocp, to.constant_guess(free.ocp))
    assert not may_compete(free.ocp, free.with_durations(to.interpolated_guess(ocp, [1.0, 0.0])))
    odd = to.residual_cost("odd", lambda x, u, t, p: [float(x[0])], 2, 1)  # evaluated knot by knot in Python
    slow = replace(ocp, phases=(replace(ocp.phases[0], terms=(*ocp.phases[0].terms, odd)),))
    assert not may_compete(slow, to.constant_guess(slow))
    for method, competes in (("central_difference", False), ("forward_difference", True)):  # Hessian in NumPy; none
        dynamics = to.SampledSystem(to.make_backend(ocp.phases[0].dynamics.system, method), "semi_implicit_euler")
        other = replace(ocp, phases=(replace(ocp.phases[0], dynamics=dynamics),))
        assert may_compete(other, still) is competes
    moving = to.solve(ocp, to.interpolated_guess(ocp, [1.0, 0.0]))
    np.testing.assert_allclose(moving.cost, optima()[0], rtol=1e-7)
    assert "starts" not in moving.meta


def test_loops_and_batches_use_the_guess_alone():
    ocp, near = mass(), optima()[0]
    loop = to.solve(ocp, check=False)
    batch = to.solve_batch(ocp, {"x0": [[START, 0.0], [START, 0.0]]})
    np.testing.assert_allclose([loop.cost, *batch.cost], near, rtol=1e-7)


def test_a_linear_quadratic_problem_is_solved_from_its_guess():
    goal = to.state_cost(mass().manifold, [1.0, 0.0], 100.0)
    found = to.solve(replace(mass(), terminal=(goal,)))
    assert found.status.success and found.iterations <= 2 and "starts" not in found.meta


def test_random_motions_begin_at_x0_and_end_near_minima_of_the_terminal_cost():
    """The minima of the terminal cost at zero velocity are the roots of its derivative 2 x (x^2 - 1) + TILT^2 (x + 1)."""
    ocp = mass()
    motions = random_motions(ocp, to.constant_guess(ocp), np.random.default_rng(1))
    moved = [next(motions) for _ in range(DRAWN)]
    roots = np.roots([2.0, 0.0, TILT**2 - 2.0, TILT**2])
    minima = roots[3.0 * 2.0 * roots**2 - 2.0 + TILT**2 > 0.0]
    assert len(minima) == 2
    assert all((m.xs[0] == ocp.x0).all() and not m.xs[:, 1].any() for m in moved)
    distances = np.abs(np.array([m.xs[-1, 0] for m in moved])[:, None] - minima)
    assert distances.min(axis=1).max() < 0.01 and len(set(distances.argmin(axis=1))) == 2


@pytest.mark.parametrize("bound", [False, True])
def test_random_motions_end_where_the_terminal_constraints_hold(bound):
    system = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "semi_implicit_euler")
    states, free = system.manifold, np.full(3, np.inf)
    ring = to.residual_constraint("ring", lambda x, u, t, p: [x[0] * x[0] + x[1] * x[1]], states, 1, 4.0, 4.0)
    goal = to.state_bounds(states, [0.7, *-free], [0.7, *free]) if bound else ring
    ocp = to.OCP.single_phase(step, np.zeros(4), 40, DT, [to.control_cost(2)], terminal_constraints=[goal])
    motions = random_motions(ocp, to.constant_guess(ocp), np.random.default_rng(1))
    ends = np.array([next(motions).xs[-1] for _ in range(6)])
    assert np.abs(ends[:, 0] - 0.7 if bound else np.hypot(ends[:, 0], ends[:, 1]) - 2.0).max() < 0.01
    assert np.ptp(ends[:, 1]) > 0.5 and not ends[:, 2:].any()


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("TRAJOPT_THREADS", "1")


def scripted(costs, code=StatusCode.CONVERGED):
    """Rough solves that converge in ten iterations to these costs, in the order of the calls."""
    left, solution = list(costs), to.solve(mass(), solver="ddp", check=False)

    def solve(ocp, guess, cutoff):
        N = ocp.horizon
        status = Status(code, "The end.")
        return replace(solution, xs=guess.xs, us=guess.us[:N], cost=left.pop(0), iterations=10, status=status)

    return solve


@pytest.mark.parametrize(
    ("costs", "order"),
    [
        ((1.0, 2.0, 3.0), [0]),
        ((1.0, 0.9999, 2.0), [0]),
        ((1.0, 2.0, 0.5), [2]),
        ((np.nan, 3.0, 2.0), [2]),
        ((1.0, 0.9, 1.25), [1, 0]),
        ((1.0, 1.15, 1.1), [0, 2, 1]),
    ],
)
def test_the_cheapest_starts_win_and_the_guess_among_equals(costs, order, one_thread):
    ocp = mass()
    given = to.constant_guess(ocp)
    choice = choose_starts(ocp, given, 3, scripted(costs), lambda: True)
    assert len(choice.starts) == 3 and len(choice.guesses) == len(order)
    for (guess, message), winner in zip(choice.guesses, order, strict=True):
        assert (
            message == "" if winner == 0 else f"random motion {winner} (objective {costs[winner]:.4g} there)" in message
        )
        assert np.ptp(guess.xs[:, 0]) == pytest.approx(np.ptp(choice.starts[winner].found.xs[:, 0]))


def test_the_competition_ends_when_several_starts_agree(one_thread):
    ocp, same = mass(), [1.0 + 1e-4 * i for i in range(AGREEMENT)]
    others = [3.0, 4.0]
    for costs in (
        same[:UNANIMOUS],
        [*others, *same],
        [*same[: UNANIMOUS - 1], *others, *same[UNANIMOUS - 1 :]],
        [4.0, 5.0, 4.0, *others, *same],
    ):
        choice = choose_starts(ocp, to.constant_guess(ocp), 30, scripted([*costs, 0.1]), lambda: True)
        assert [s.objective for s in choice.starts] == costs


def test_the_competition_ends_after_many_iterations(one_thread):
    """All starts differ, and each takes ten iterations."""
    ocp, costs = mass(), [float(2**i) for i in range(ALL_ITERATIONS // 10 + 20)]
    choice = choose_starts(ocp, to.constant_guess(ocp), len(costs), scripted(costs), lambda: True)
    assert len(choice.starts) == ALL_ITERATIONS // 10
    none = len(costs) * [np.nan]  # no motion is feasible
    assert len(choose_starts(ocp, to.constant_guess(ocp), len(costs), scripted(none), lambda: True).starts) == HOPELESS


def test_a_solve_that_will_not_be_the_cheapest_is_stopped():
    record = to.IterationRecord(0, 0.0, 0.0, 1.0, 1.0)
    for costs, defect, stops in (
        ((9.0, 5.0, 4.9, 4.89), 0.0, 3),
        ((9.0, 5.0, 4.9, 4.89), 2.0, None),
        ((9.0, 5.0, 2.0, 1.5), 0.0, None),
    ):
        cutoff = Cutoff(1.0)
        stopped = None
        for i, cost in enumerate(costs):
            try:
                cutoff(replace(record, iteration=i, cost=cost, defect=defect))
            except KeyboardInterrupt:
                stopped = i
        assert stopped == stops and cutoff.stopped == (stops is not None)
    near, far = optima()
    for bound in (far, near):
        cutoff = Cutoff(bound)
        found = to.solve(mass(), to.interpolated_guess(mass(), [1.0, 0.0]), {}, cutoff, "ddp", check=False)
        assert cutoff.stopped == (bound < near) == (found.status.code is StatusCode.INTERRUPTED)


def test_the_number_of_threads_changes_no_result(monkeypatch):
    def starts(threads):
        monkeypatch.setenv("TRAJOPT_THREADS", threads)
        found = to.solve(mass())
        return found.cost, found.meta["starts"]

    assert starts("4") == starts("1")


def test_threads_stop_when_the_competition_ends(monkeypatch):
    """The guess leads to the end at once; the others run until they are stopped."""
    monkeypatch.setenv("TRAJOPT_THREADS", "3")
    ocp, ended, record = mass(), [], to.IterationRecord(1, 1.0, 1.0, 1.0, 1.0)
    given = to.constant_guess(ocp)

    def endless(coarse, guess, cutoff):
        while True:
            try:
                cutoff(record)
            except KeyboardInterrupt:
                ended.append(guess)
                raise

    with pytest.raises(ZeroDivisionError), solver_threads(ocp, endless) as begin:
        begin(given, np.inf)
        begin(given, np.inf)
        raise ZeroDivisionError
    assert len(ended) == 2


def test_ctrl_c_ends_a_competition_on_threads(monkeypatch):
    monkeypatch.setenv("TRAJOPT_THREADS", "2")
    rough, waiting = scripted([1.0]), threading.Event()

    def solve(ocp, guess, cutoff):
        if is_at_rest(ocp, guess):
            return rough(ocp, guess, cutoff)
        if not waiting.is_set():
            waiting.set()
            os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(1e-3)
            cutoff(to.IterationRecord(1, 1.0, 1.0, 1.0, 1.0))

    choice = choose_starts(mass(), to.constant_guess(mass()), 9, solve, lambda: True)
    assert choice.interrupted and waiting.is_set()


def test_no_feasible_start_leaves_the_guess(one_thread):
    ocp = mass()
    guess = to.constant_guess(ocp)
    choice = choose_starts(ocp, guess, 2, scripted([np.nan, np.inf]), lambda: True)
    assert choice.guesses == () and len(choice.starts) == 2


def test_half_of_a_time_limit_is_left_to_the_solve():
    """Without time the guess is the only start."""
    ocp = mass()
    choice = choose_starts(ocp, to.constant_guess(ocp), 4, scripted([1.0]), lambda: False)
    assert [s.name for s in choice.starts] == ["guess"] and choice.guesses[0][1] == ""
    assert to.solve(ocp, options={"time_limit": 60.0}).status.success


def test_the_cheapest_of_several_solutions_is_returned(monkeypatch):
    """On the coarse grid the second start looks cheaper than it is."""
    ddp = SOLVERS["ddp"][0]

    def misled(ocp, warm, options, callback):
        found = ddp(ocp, warm, options, callback)
        near = ocp.horizon < KNOTS and found.xs[-1, 0] > 0.0
        return replace(found, cost=optima()[1] * 0.9) if near else found

    monkeypatch.setitem(SOLVERS, "ddp", (misled, *SOLVERS["ddp"][1:]))
    records: list[to.IterationRecord] = []
    found = to.solve(mass(), None, None, records.append)
    assert found.status.success and "random motion" in found.status.message
    np.testing.assert_allclose(found.cost, optima()[1], rtol=1e-7)
    assert tuple(records) == found.history and len(found.history) > found.iterations


@pytest.mark.parametrize(("share", "grids"), [(0.5, {LEAST_KNOTS, KNOTS // FACTORS[1]}), (0.9, {LEAST_KNOTS})])
def test_a_finer_grid_follows_if_coarse_motions_cost_much_less_than_possible(share, grids, monkeypatch):
    """As motions that jump over an obstacle between the knots of a coarse grid."""
    ddp, coarse = SOLVERS["ddp"][0], set()

    def cheap(ocp, warm, options, callback):
        found = ddp(ocp, warm, options, callback)
        if ocp.horizon < KNOTS:
            coarse.add(ocp.horizon)
        return replace(found, cost=share * found.cost) if ocp.horizon == LEAST_KNOTS else found

    monkeypatch.setitem(SOLVERS, "ddp", (cheap, *SOLVERS["ddp"][1:]))
    found = to.solve(mass())
    assert coarse == grids and found.status.success
    np.testing.assert_allclose(found.cost, optima()[1], rtol=1e-7)


def test_starts_without_an_optimum_use_other_methods_once(monkeypatch):
    """As with costs that have kinks, whose solves are feasible and use all their iterations."""
    calls = []

    def endless(name):
        solver = SOLVERS[name][0]

        def solve(ocp, warm, options, callback):
            found = solver(ocp, warm, options, callback)
            if ocp.horizon < KNOTS:
                return found
            calls.append((name, found.cost))
            return replace(found, status=Status(StatusCode.MAX_ITERATIONS, "Endless."))

        return solve

    for name in ("ddp", "ipm", "dms"):
        monkeypatch.setitem(SOLVERS, name, (endless(name), *SOLVERS[name][1:]))
    monkeypatch.setattr("trajopt.solvers.competing_starts.NEAR", np.inf)
    found = to.solve(mass())
    assert [name for name, _ in calls[:4]] == ["ddp", "ipm", "dms", "dms"]
    assert len(calls) > 4 and {name for name, _ in calls[4:]} == {"ddp"}
    assert found.cost == min(cost for _, cost in calls)


def test_an_interrupted_competition_ends_the_solve(monkeypatch):
    ddp, calls = SOLVERS["ddp"], []

    def interrupted(ocp, warm, options, callback):
        calls.append(ocp.horizon)
        found = ddp[0](ocp, warm, options, callback)
        return replace(found, status=Status(StatusCode.INTERRUPTED, "By hand."))

    monkeypatch.setitem(SOLVERS, "ddp", (interrupted, *ddp[1:]))
    found = to.solve(mass())
    assert found.status.code == "interrupted" and calls == [LEAST_KNOTS] and found.iterations == 0
    assert "after 0 of them; returning the initial guess" in found.status.message


def test_an_interrupted_competition_returns_its_best_motion(monkeypatch, one_thread):
    ddp, calls = SOLVERS["ddp"], []

    def interrupted(ocp, warm, options, callback):
        calls.append(ddp[0](ocp, warm, options, callback))
        stopped = replace(calls[-1], status=Status(StatusCode.INTERRUPTED, "By hand."))
        return stopped if len(calls) == 4 else calls[-1]

    monkeypatch.setitem(SOLVERS, "ddp", (interrupted, *ddp[1:]))
    found = to.solve(mass())
    assert "after 3 of them; returning the best motion of that grid" in found.status.message
    best = min(calls[:3], key=lambda s: s.cost)
    np.testing.assert_allclose(found.xs[-1], best.xs[-1], rtol=1e-12)


def test_an_interrupted_second_competition_keeps_what_was_found(monkeypatch):
    """All solves on the grid of the problem fail; the first one on the finer of the coarse grids is interrupted."""
    records = list[to.IterationRecord]()
    codes = {KNOTS: StatusCode.LINE_SEARCH_FAILED, KNOTS // FACTORS[1]: StatusCode.INTERRUPTED}

    def ended_by_hand(method):
        def run(ocp, warm, options, callback):
            found = method(ocp, warm, options, callback)
            code = codes.get(ocp.horizon)
            return found if code is None else replace(found, status=Status(code, "By hand."))

        return run

    for name in ("ddp", "ipm", "dms", "sqp"):
        monkeypatch.setitem(SOLVERS, name, (ended_by_hand(SOLVERS[name][0]), *SOLVERS[name][1:]))
    found = to.solve(mass(), None, None, records.append)
    assert found.status.code == "interrupted" and "returning the best iterate" in found.status.message
    assert found.iterations > 0 and tuple(records) == found.history
    assert np.ptp(found.xs, axis=0).any()


def test_a_solve_that_fails_from_the_best_start_is_repeated_from_the_guess(monkeypatch):
    lost = Status(StatusCode.LINE_SEARCH_FAILED, "lost")
    guesses: list[to.Guess] = []
    records: list[to.IterationRecord] = []
    coarse: set[int] = set()

    def failing(method):
        def run(ocp, warm, options, callback):
            found = method(ocp, warm, options, callback)
            if ocp.horizon < KNOTS:
                coarse.add(ocp.horizon)
                return found
            guesses.append(warm.guess)
            return replace(found, status=lost) if np.ptp(warm.guess.xs, axis=0).any() else found

        return run

    for name in ("ddp", "ipm", "dms", "sqp"):
        monkeypatch.setitem(SOLVERS, name, (failing(SOLVERS[name][0]), *SOLVERS[name][1:]))
    found = to.solve(mass(), None, None, records.append)
    assert found.status.success and "best of" not in found.status.message
    assert not np.ptp(guesses[-1].xs, axis=0).any() and len(found.meta["attempts"]) == 1
    np.testing.assert_allclose(found.cost, optima()[0], rtol=1e-7)
    assert tuple(records) == found.history and len(found.history) > found.iterations
    assert coarse == {LEAST_KNOTS, KNOTS // FACTORS[1]}

    guesses.clear(), coarse.clear()
    alone = to.solve(mass(), options={"fallback": False})
    assert len(guesses) == 1 and np.ptp(guesses[0].xs, axis=0).any() and len(alone.meta["attempts"]) == 1
    assert coarse == {LEAST_KNOTS}


def test_the_number_of_starts_is_checked():
    with pytest.raises(ValueError, match="starts = 0"):
        to.AutoOptions(starts=0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_the_states_does_not_matter(order):
    """A point that moves at will around a disc on its way; the shortest path consists of two tangents and an arc."""
    along, across = order
    point = to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2)
    disc = to.residual_constraint("disc", lambda x, u, t, p: [(x[along] - 1.0) ** 2 + x[across] ** 2], 2, 1, lower=0.25)
    goal = np.zeros(2)
    goal[along] = 2.0
    terminal = [to.bounded(to.state_cost(2, goal))]
    ocp = to.OCP.single_phase(
        to.SampledSystem(point, "rk4"),
        np.zeros(2),
        60,
        1 / 60,
        [to.control_cost(2)],
        constraints=[disc],
        terminal_constraints=terminal,
    )
    shortest = 2.0 * np.sqrt(0.75) + 0.5 * np.pi / 3.0
    found = to.solve(ocp)
    assert found.status.success
    np.testing.assert_allclose(found.cost, 0.5 * shortest**2, rtol=2e-3)


def test_guesses_at_rest_compete_with_free_durations():
    """A spin from the pole to near the other one: at rest, the gradient of the height in the controls is zero."""
    spin = to.FunctionMap(lambda x, u, t, p: [-u[1] * x[2], u[0] * x[2], u[1] * x[0] - u[0] * x[1]], 3, 2)
    low = to.residual_constraint("low", lambda x, u, t, p: [x[2] + 0.99], 3, 1)
    step, x0, T = to.SampledSystem(spin, "rk4"), np.array([0.0, 0.0, 1.0]), 4.0
    fixed = to.OCP.single_phase(
        step, x0, 60, T / 60, [to.control_cost(2, weight=1e-2)], terminal_constraints=[low], u_lower=-1.0, u_upper=1.0
    )
    free = to.free_time(fixed, (0.2, 10.0))
    guess = free.with_durations(to.constant_guess(fixed))
    assert may_compete(free.ocp, guess)
    found = to.solve(free.ocp, guess)
    assert found.status.success and len(found.meta["starts"]) > 1
    angle = np.arccos(-0.99)  # at full speed of both controls, sqrt(2) rad/s, unless their price is higher
    assert found.times[-1] == pytest.approx(angle / np.sqrt(2.0), rel=0.05)


@pytest.mark.parametrize(
    ("limit", "value"), [("ALL_WORK", 1.0), ("ALL_STEPS", 1.0), ("ALL_ENTRIES", 1.0), ("WIDE", 1e-6)]
)
def test_large_problems_end_the_competition_early(limit, value, monkeypatch):
    assert len(to.solve(mass()).meta["starts"]) > 4
    monkeypatch.setattr(f"trajopt.solvers.competing_starts.{limit}", value)
    assert len(to.solve(mass()).meta["starts"]) == 1


def test_starts_whose_costs_vanish_agree():
    """The initial value and the rate of a decay fit its data exactly."""
    decay = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [-x[1] * x[0], 0.0], 2, 0), "rk4")
    data = {"data": 1.5 * np.exp(-0.7 * np.linspace(0.0, 5.0, 51))[:50, None]}
    deviation = to.residual_cost("deviation", lambda x, u, t, p: [x[0] - p["data"][0]], 2, 1, parameters=data)
    free = to.ImpactStage(to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2))
    fit = to.OCP((to.Phase(free, [0.0]), to.Phase(decay, np.full(50, 0.1), [deviation])), [1.0, 0.1])
    found = to.solve(fit)
    np.testing.assert_allclose(found.xs[1], [1.5, 0.7], atol=1e-3)
    assert found.status.success and len(found.meta["starts"]) <= 24
