"""Competing starts of ``auto``: which guesses compete, which one wins, and what is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import trajopt as to
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.competing_starts import choose_start, may_compete, random_motion
from trajopt.solvers.registry import SOLVERS

KNOTS, DT, START, PENALTY, TILT = 40, 0.05, 0.2, 100.0, 0.3


def mass(position=START, knots=KNOTS):
    """Point mass on a line that shall end at rest at -1 or 1, of which -1 is cheaper; the first position is nearer to 1."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "semi_implicit_euler")
    ends = to.residual_cost(
        "ends", lambda x, u, t, p: [x[0] * x[0] - 1.0, TILT * (x[0] + 1.0), x[1]], system.manifold, 3, PENALTY
    )
    return to.OCP.single_phase(step, [position, 0.0], knots, DT, [to.control_cost(1)], [ends])


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
    assert "The solve began from the best of 4 starts on 10 knots, random motion" in best.status.message
    assert best.status.success and len(best.meta["attempts"]) == 1
    np.testing.assert_array_equal(best.us, to.solve(mass()).us)  # the random motions are the same in each solve


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
    assert not may_compete(mass(knots=20), to.constant_guess(mass(knots=20)))
    free = to.free_time(ocp, (1.0, 3.0))
    assert not may_compete(free.ocp, free.with_durations(still))
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


def test_a_random_motion_begins_at_x0():
    ocp = mass()
    moved = random_motion(ocp, to.constant_guess(ocp), np.random.default_rng(1))
    np.testing.assert_array_equal(moved.xs[0], ocp.x0)
    assert np.abs(moved.xs[-1, 0] - START) > 0.01 and not moved.xs[:, 1].any()


def scripted(costs, code=StatusCode.CONVERGED):
    """Rough solves that converge in ten iterations to these costs."""
    left, solution = list(costs), to.solve(mass(), solver="ddp", check=False)

    def solve(ocp, guess):
        N = ocp.horizon
        status = Status(code, "The end.")
        return replace(solution, xs=guess.xs, us=guess.us[:N], cost=left.pop(0), iterations=10, status=status)

    return solve


@pytest.mark.parametrize(
    ("costs", "winner"), [((1.0, 2.0, 3.0), 0), ((1.0, 0.9999, 2.0), 0), ((1.0, 2.0, 0.5), 2), ((np.nan, 3.0, 2.0), 2)]
)
def test_the_cheapest_start_wins_and_the_guess_among_equals(costs, winner):
    ocp = mass()
    choice = choose_start(ocp, to.constant_guess(ocp), 3, scripted(costs), lambda: True)
    assert len(choice.starts) == 3 and (choice.message == "") == (winner == 0)
    if winner:
        assert f"random motion {winner} (objective {costs[winner]:.4g})" in choice.message
    assert np.ptp(choice.guess.xs[:, 0]) == pytest.approx(np.ptp(choice.starts[winner].found.xs[:, 0]))


def test_no_feasible_start_leaves_the_guess():
    ocp = mass()
    guess = to.constant_guess(ocp)
    assert choose_start(ocp, guess, 2, scripted([np.nan, np.inf]), lambda: True).guess is guess


def test_half_of_a_time_limit_is_left_to_the_solve():
    """Without time the guess is the only start."""
    ocp = mass()
    choice = choose_start(ocp, to.constant_guess(ocp), 4, scripted([1.0]), lambda: False)
    assert [s.name for s in choice.starts] == ["guess"] and choice.message == ""
    assert to.solve(ocp, options={"time_limit": 60.0}).status.success


def test_an_interrupted_competition_ends_the_solve(monkeypatch):
    ddp, calls = SOLVERS["ddp"], []

    def interrupted(ocp, warm, options, callback):
        calls.append(ocp.horizon)
        found = ddp[0](ocp, warm, options, callback)
        return replace(found, status=Status(StatusCode.INTERRUPTED, "By hand."))

    monkeypatch.setitem(SOLVERS, "ddp", (interrupted, *ddp[1:]))
    found = to.solve(mass())
    assert found.status.code == "interrupted" and calls == [KNOTS // 4] and found.iterations == 0


def test_a_solve_that_fails_from_the_best_start_is_repeated_from_the_guess(monkeypatch):
    lost = Status(StatusCode.LINE_SEARCH_FAILED, "lost")
    guesses: list[to.Guess] = []
    records: list[to.IterationRecord] = []

    def failing(method):
        def run(ocp, warm, options, callback):
            found = method(ocp, warm, options, callback)
            if ocp.horizon < KNOTS:
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

    guesses.clear()
    alone = to.solve(mass(), options={"fallback": False})
    assert len(guesses) == 1 and np.ptp(guesses[0].xs, axis=0).any() and len(alone.meta["attempts"]) == 1


def test_the_number_of_starts_is_checked():
    with pytest.raises(ValueError, match="starts = 0"):
        to.AutoOptions(starts=0)
