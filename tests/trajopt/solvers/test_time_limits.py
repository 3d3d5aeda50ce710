"""Time limits of solves: they count from the call on, and end iterations that go on for too long."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from trajopt.results.status import StatusCode
from trajopt.solvers import auto, time_limits
from trajopt.solvers.methods.method import Size
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.options import AutoOptions, DDPOptions


def slow_pendulum(constrained=False):
    """A pendulum whose dynamics are evaluated knot by knot, and take minutes an iteration."""

    def f(x, u, t, p):
        time.sleep(5e-3)
        return [x[1], u[0] - np.sin(float(x[0]))]

    manifold = to.Manifold.vector(2)
    dynamics = to.SampledSystem(to.make_backend(to.FunctionMap(f, manifold, 1), "forward_ad"), "rk4")
    bounds = [to.state_bounds(manifold, [-5.0, -5.0], [5.0, 5.0])] if constrained else []
    goal = [to.state_cost(manifold, [0.0, 0.0], 10.0)]
    return to.OCP.single_phase(dynamics, [1.0, 0.0], 400, 0.01, [to.control_cost(1)], goal, constraints=bounds)


@pytest.mark.parametrize("solver", ["slq", "sqp"])
def test_an_iteration_that_does_not_end_is_interrupted(solver, monkeypatch):
    monkeypatch.setattr(time_limits, "GRACE", 0.1)
    ocp = slow_pendulum()
    solution = to.solve(ocp, None, {"time_limit": 0.2}, solver=solver, check=False)
    assert solution.status.code is StatusCode.TIME_LIMIT
    assert solution.status.message.startswith("Stopped at time_limit = 0.2 s before the first step")
    np.testing.assert_array_equal(solution.xs, np.tile(ocp.x0, (401, 1)))


def test_a_solve_in_another_thread_is_interrupted_too(monkeypatch):
    monkeypatch.setattr(time_limits, "GRACE", 0.1)
    found = []
    solve = threading.Thread(
        target=lambda: found.append(to.solve(slow_pendulum(), None, {"time_limit": 0.2}, solver="slq", check=False))
    )
    solve.start()
    solve.join()
    assert found[0].status.code is StatusCode.TIME_LIMIT


def test_checks_end_with_the_limit_too(monkeypatch):
    monkeypatch.setattr(time_limits, "GRACE", 0.1)
    solution = to.solve(slow_pendulum(), None, {"time_limit": 0.2}, solver="slq")
    assert solution.status.code is StatusCode.TIME_LIMIT and "no time for the checks" in solution.status.message
    assert solution.meta["replay"] == {"left_out": "time_limit = 0.2 s left no time for it"}


def test_an_interrupt_while_a_watchdog_is_stopped_ends_it_all_the_same(monkeypatch):
    raised, cancel = [], threading.Timer.cancel

    def interrupted(timer):
        if not raised:
            raised.append(True)
            watchdogs[0].expired = True
            raise KeyboardInterrupt
        cancel(timer)

    monkeypatch.setattr(threading.Timer, "cancel", interrupted)
    monkeypatch.setattr(time_limits, "_raise_in", lambda *_: None)
    watchdogs = []
    with time_limits.interrupting(10.0) as watchdog:
        watchdogs.append(watchdog)
    watchdog._interrupt()
    assert raised and not watchdog._active and watchdog._timer.finished.is_set()


def test_nothing_is_interrupted_behind_a_solve():
    with time_limits.interrupting(1e-3) as watchdog:
        pass
    watchdog._interrupt()
    assert not watchdog.expired
    with time_limits.interrupting(None) as none:
        assert none is None


def test_a_limit_counts_from_the_call_on():
    with time_limits.timed_solve():
        began = time_limits.start_of_solve()
        time.sleep(2e-3)  # as a compiler does
        method = Newton(Size(0, 1, False), DDPOptions(), 10)
        assert method.began == began
        with time_limits.timed_solve():  # another solve within
            assert Newton(Size(0, 1, False), DDPOptions(), 10).began > began
        assert time_limits.remaining(10.0, began) == 10.0  # of which a second start counts from the same call
    assert time_limits.remaining(10.0, began) < 10.0
    assert time_limits.remaining(1e-9, began) == time_limits.MIN_TIME


def test_no_attempt_starts_shortly_before_the_limit():
    """The first attempt took 95 % of the limit: no second attempt starts, and the status is that of the first."""
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1), "forward_ad"), "euler"),
        [0.0], 3, 0.1, [to.control_cost(1)],
    )  # fmt: skip
    first = to.solve(ocp, None, {"max_iterations": 0}, solver="slq", check=False)
    failed = to.Status(StatusCode.LINE_SEARCH_FAILED, "No step length was accepted.")
    plan = [auto.Attempt("ddp", ocp, {}), auto.Attempt("ipm", ocp, {})]
    turns = auto.in_turn(plan, lambda: ocp, to.constant_guess(ocp), AutoOptions(time_limit=0.2))
    asked = next(turns)
    assert asked.time_limit == pytest.approx(0.2, abs=0.1)
    time.sleep(0.19)
    with pytest.raises(StopIteration) as ended:
        turns.send(replace(first, status=failed))
    status = ended.value.value.status
    assert status.code is StatusCode.LINE_SEARCH_FAILED
    assert "time_limit = 0.2 s left no time for another attempt" in status.message


@pytest.mark.parametrize("in_python", [True, False])
@pytest.mark.parametrize("solver", ["ipm", "dms", "sqp", "ddp", "slq"])
def test_gains_are_computed_after_the_limit_only_in_compiled_problems(solver, in_python):
    """An expansion in Python may take longer than the limit, and an interrupt within it lost the iterate."""

    def f(x, u, t, p):
        return [x[1], u[0] - (np.sin(float(x[0])) if in_python else np.sin(x[0]))]

    step = to.SampledSystem(to.make_backend(to.FunctionMap(f, 2, 1), "forward_ad"), "rk4")
    goal = [to.state_cost(to.Manifold.vector(2), [0.0, 0.0], 10.0)]
    ocp = to.OCP.single_phase(step, [1.0, 0.0], 10, 0.1, [to.control_cost(1)], goal)

    def stop(record):
        if record.iteration == 1:
            time_limits._start.set(time.perf_counter() - 100.0)
            raise KeyboardInterrupt

    solution = to.solve(ocp, None, {"time_limit": 50.0}, stop, solver)
    assert solution.status.code is StatusCode.INTERRUPTED and np.ptp(solution.xs[:, 0]) > 0.0
    assert solution.K.any() == (not in_python)
