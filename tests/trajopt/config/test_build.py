"""Solution times and time limits for sequences of solves."""

import time
from dataclasses import replace

import numpy as np
import pytest
from shooting_cases import pendulum_swing_up

import trajopt as to
from trajopt.config.build import build_task, over_easier, solve_with_refinement, with_time_before
from trajopt.config.config import read_config
from trajopt.config.task import Refined
from trajopt.solvers import time_limits
from trajopt.solvers.refinement import Again

pytestmark = pytest.mark.numpy


def test_the_time_of_earlier_solves_counts_by_phase():
    first, second, last = (
        to.solve(pendulum_swing_up(10), solver="slq", options={"max_iterations": n}, check=False) for n in (1, 2, 3)
    )
    assert with_time_before(last, []) is last
    found = with_time_before(with_time_before(last, [second]), [first])
    seconds = sum(s.meta["solve_time"] for s in (first, second, last))
    assert found.meta["solve_time"] == pytest.approx(seconds)
    assert sum(found.time_total.values()) == pytest.approx(seconds)
    for phase in found.time_total:
        np.testing.assert_allclose(found.time_total[phase], sum(s.time_total[phase] for s in (first, second, last)))
    assert found.history == last.history


class Clock:
    """A clock that stops unless it is set."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    return clock


def _config(limit):
    chosen = {"problem": {"name": "cart_pole", "horizon": 5}, "solver": {"name": "slq", "time_limit": limit}}
    return read_config(chosen, "test")


def test_relaxed_problems_share_one_time_limit(clock):
    ocp = pendulum_swing_up(10)
    limits = []

    def later(record):
        clock.now += 1.0

    def last(start):
        limits.append(time_limits.start_of_solve())
        return to.solve(ocp, start, {"time_limit": 50.0}, solver="slq", check=False)

    start = to.constant_guess(ocp)
    found = over_easier(_config(50.0), [ocp], start, last, later, check=False)
    iterations = found.meta["easier"][0]["iterations"]
    assert 1 <= iterations < 45 and found.status.code is not to.StatusCode.TIME_LIMIT
    clock.now = 0.0
    found = over_easier(_config(iterations + 0.5), [ocp], start, last, later, check=False)
    assert found.status.code is to.StatusCode.TIME_LIMIT and "easier" not in found.meta and len(limits) == 1
    assert "relaxed problem 1 of 1 used it up" in found.status.message


def test_solves_of_a_sequence_count_from_its_start_and_those_in_callbacks_from_theirs(clock):
    with time_limits.timed_sequence() as began:
        clock.now = 3.0
        with time_limits.timed_solve():
            assert time_limits.start_of_solve() == began == 0.0
            with time_limits.timed_solve():
                assert time_limits.start_of_solve() == 3.0
        with time_limits.timed_sequence() as inner:
            assert inner == 0.0
    with time_limits.timed_solve():
        assert time_limits.start_of_solve() == 3.0


def test_rounds_of_a_refined_task_share_one_time_limit(clock):
    ocp = pendulum_swing_up(10)
    start = to.constant_guess(ocp)

    def not_yet(solution):
        clock.now += 4.0
        return Refined(False, "a sphere overlaps the shelf", Again(ocp, start))

    task = replace(build_task(_config(9.9)), ocp=ocp, refined=not_yet)
    found = solve_with_refinement(_config(9.9), task, start, check=False)
    assert found.status.code is to.StatusCode.TIME_LIMIT and found.meta["rounds"] == 3
    assert found.status.message.endswith("the check of solve 3 found: a sphere overlaps the shelf.")
