"""Ctrl-C, as a signal, at any point of a batch: finished solutions are returned, and arrays of running threads stay valid."""

import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from batch_cases import N, swing, varied

import trajopt as to
from trajopt import Batch, StatusCode
from trajopt.solvers import auto
from trajopt.solvers.batch import interior, newton, processes, shooting, threads
from trajopt.solvers.batch.interrupts import deferred_interrupts, interrupted, raising, running
from trajopt.solvers.methods import driver

SOLVERS = {"slq": shooting.ShootingBatch, "ddp": newton.NewtonBatch, "ipm": interior.InteriorBatch}


@pytest.fixture(autouse=True)
def _raised():
    """Let Ctrl-C raise KeyboardInterrupt, even if these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


def pressing(monkeypatch, owner, name, *, times=1):
    """Press Ctrl-C at the start of the first ``times`` calls of a function; returns the list of its calls."""
    plain, calls = getattr(owner, name), []

    def own(*args, **kwargs):
        calls.append(name)
        if len(calls) <= times:
            press()
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, name, own)
    return calls


def case(solver, n=N):
    ocp = swing(constrained=solver in ("ipm", "auto"))
    values, guess = varied(ocp, n=n)
    return Batch(ocp, values), guess


@pytest.mark.parametrize("solver", SOLVERS)
def test_before_anything_is_begun_it_is_raised(monkeypatch, solver):
    batch, guess = case(solver)
    pressing(monkeypatch, SOLVERS[solver], "__init__")
    with pytest.raises(KeyboardInterrupt):
        to.solve_batch(batch, guess=guess, solver=solver)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("solver", SOLVERS)
def test_in_the_moment_in_which_threads_start_it_ends_them(monkeypatch, solver):
    batch, guess = case(solver, n=200)
    start = threading.Thread.start

    def started(thread):
        start(thread)
        if thread.name.startswith("batch"):
            press()

    monkeypatch.setattr(threading.Thread, "start", started)
    found = to.solve_batch(batch, guess=guess, solver=solver, threads=2, options={"max_iterations": 10**6})
    assert found.stopped
    begun = [s.code is not StatusCode.INTERRUPTED for s in found.status]
    assert np.isfinite(found.cost[begun]).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_while_verdicts_are_found_it_loses_nothing(monkeypatch, solver):
    batch, guess = case(solver)
    pressing(monkeypatch, SOLVERS[solver], "status")
    found = to.solve_batch(batch, guess=guess, solver=solver)
    assert found.stopped and found.success.all()


def test_between_the_attempts_of_the_default_it_keeps_what_was_found(monkeypatch):
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp, size=0.8)
    pressing(monkeypatch, auto, "start_of_next")
    found = to.solve_batch(Batch(ocp, values), guess=guess, options={"max_iterations": 5})
    assert found.stopped and not found.success.all() and np.isfinite(found.cost).all()
    assert [len(s.meta["attempts"]) for s in found] == [1] * N


@pytest.mark.parametrize("times", [1, 2])
def test_in_the_preparation_of_a_second_attempt_it_keeps_the_first(monkeypatch, times):
    ocp = swing(constrained=False, horizon=24)
    values, guess = varied(ocp, size=0.8)
    pressing(monkeypatch, interior.InteriorBatch, "__init__", times=times)
    found = to.solve_batch(Batch(ocp, values), guess=guess, options={"max_iterations": 5})
    assert found.stopped and np.isfinite(found.cost).all()
    assert all(s.meta["attempts"][0]["solver"] == "ddp" for s in found)


def test_problems_of_another_kind_are_not_begun_after_it():
    """One problem, solved first, has a state limit without an interior."""
    ocp = swing(constrained=False)
    limit = to.state_bounds(ocp.manifold, -9.0, 9.0, name="end")
    values, guess = varied(ocp)
    upper = np.full((N, 4), 9.0)
    upper[2, 3] = -9.0
    batch = Batch(replace(ocp, terminal_constraints=(limit,)), values | {"end.upper": upper})

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    found = to.solve_batch(batch, guess=guess, callback=interrupt, solver="auto", threads=1)
    assert found.stopped and np.isfinite(found.xs[2]).all() and np.isnan(np.delete(found.xs, 2, axis=0)).all()
    assert all("before this problem started" in found.messages[i] for i in range(N) if i != 2)


def test_a_solve_one_by_one_ends_at_once(monkeypatch):
    batch, guess = case("ipm")
    solved = pressing(monkeypatch, processes, "solve")
    found = to.solve_batch(batch, guess=guess, options={"time_limit": 100.0}, solver="slq", threads=1)
    assert len(solved) == 1 and {s.code for s in found.status} == {StatusCode.INTERRUPTED}


def test_a_window_whose_slots_never_wait_is_stopped_between_two_requests():
    answered = []

    def endless():
        while True:
            yield "request"

    class Window:
        def ask(self, slot, request):
            answered.append(slot)
            return "answer"

    driver.run_window(Window(), ["one", "two"], lambda slot: endless(), None, lambda: len(answered) >= 5)
    assert answered == ["one"] * 5 + ["two"]  # each has begun


def test_recorded_and_raised_interrupts():
    with deferred_interrupts():
        with pytest.raises(KeyboardInterrupt):
            press()
        with running():
            press()
            press()
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            press()
        with pytest.raises(KeyboardInterrupt), raising():
            pass
    assert not interrupted()
    with deferred_interrupts(), raising(), pytest.raises(KeyboardInterrupt):
        press()


def test_another_thread_and_another_handler_are_left_alone():
    seen = []
    thread = threading.Thread(target=lambda: [deferred_interrupts().__enter__(), seen.append(interrupted())])
    thread.start()
    thread.join()
    assert seen == [False]
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("own"))
    try:
        with deferred_interrupts(), running():
            press()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [False, "own"]


def test_an_exception_of_a_thread_stops_the_other_threads():
    turns = iter(range(2))

    def work(shared):
        """The first thread fails; the second one works until the stop flag is set."""
        if next(turns) == 0:
            raise ZeroDivisionError("of a thread")
        while not shared[threads.STOP]:
            time.sleep(0.01)

    with pytest.raises(ZeroDivisionError, match="of a thread"):
        threads.run_workers(work, 2, None)
