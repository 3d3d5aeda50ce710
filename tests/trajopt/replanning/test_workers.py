"""Availability of answers: charged, scripted, and by a thread; clocks."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

from trajopt.replanning import workers
from trajopt.replanning.workers import ScriptedWorker, SimulatedWorker, Spell, ThreadWorker, WallClock

TICK = 0.01


def nothing(value):
    """Prepare nothing."""


@pytest.mark.parametrize(
    ("charged", "known", "free"),
    [((0.0, 0.0), 5, 5), ((0.01, 0.0), 6, 6), ((0.011, 0.0), 7, 7), ((0.004, 0.004), 6, 6), ((0.004, 0.03), 6, 9)],
)
def test_simulated_time_is_charged_in_ticks(charged, known, free):
    worker = SimulatedWorker(TICK, lambda respond, prepare: charged)
    worker.start(lambda: "answer", nothing, 5)
    answered = [k for k in range(5, 12) if (answer := worker.poll(k)) is not None and answer.value == "answer"]
    assert answered == [known]
    assert [worker.idle(k) for k in range(5, 12)] == [k >= free for k in range(5, 12)]
    assert worker.spells()[0][:3] == (5, known, free)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_no_thread_of_the_worker():
    worker = ThreadWorker()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def poll():
        try:
            sender.send(worker.poll(0))
        except RuntimeError as error:
            sender.send(str(error))

    process = context.Process(target=poll)
    process.start()
    process.join(30.0)
    assert "created in another process; create it, and to.MPC, in this one" in receiver.recv()
    worker.close()


def test_a_worker_is_not_idle_before_its_answer_was_taken():
    worker = SimulatedWorker(TICK, lambda respond, prepare: (0.0, 0.0))
    worker.start(lambda: 1, nothing, 0)
    assert not worker.idle(3)
    worker.poll(3)
    assert worker.idle(3)


def test_errors_of_a_solver_are_answers_and_others_are_not():
    worker = SimulatedWorker(TICK, lambda respond, prepare: (0.0, 0.0))

    def fails(error):
        def respond():
            raise error

        return respond

    worker.start(fails(ValueError("no")), nothing, 0)
    answer = worker.poll(0)
    assert answer is not None and answer.value is None and str(answer.error) == "no"
    with pytest.raises(TypeError):
        worker.start(fails(TypeError("a defect")), nothing, 1)


def test_a_failed_preparation_leaves_the_answer():
    worker = SimulatedWorker(TICK, lambda respond, prepare: (0.0, 0.0))

    def prepare(value):
        raise RuntimeError("later")

    worker.start(lambda: 1, prepare, 0)
    answer = worker.poll(0)
    assert answer is not None and (answer.value, answer.error) == (1, None)


def test_a_script_repeats_the_ticks():
    worker = ScriptedWorker([Spell(2, 4, 7, 0.1, 0.2), Spell(8, 8, 9, 0.1, 0.2)])
    assert [worker.idle(k) for k in range(4)] == [False, False, True, False]
    worker.start(lambda: "first", nothing, 2)
    assert [worker.poll(k) is not None for k in (2, 3, 4, 5)] == [False, False, True, False]
    assert worker.idle(8)


def test_a_thread_works_beside_the_caller():
    worker, may_answer, may_end, prepared = ThreadWorker(), threading.Event(), threading.Event(), []

    def respond():
        assert may_answer.wait(5.0)
        return "answer"

    def prepare(value):
        assert may_end.wait(5.0)
        prepared.append(value)

    worker.start(respond, prepare, 0)
    assert worker.poll(1) is None and not worker.idle(1)
    may_answer.set()
    while (answer := worker.poll(2)) is None:
        pass
    assert answer.value == "answer" and not worker.idle(3) and not prepared
    may_end.set()
    worker.close()
    assert worker.idle(4) and prepared == ["answer"]
    assert worker.spells()[0][:3] == (0, 2, 4)


def test_a_thread_stores_the_latest_jobs_only(monkeypatch):
    monkeypatch.setattr(workers, "RECENT", 2)
    worker = ThreadWorker()
    for k in range(3):
        worker.start(lambda: None, nothing, k)
        while worker.poll(k) is None:  # an answer is returned once
            pass
        while not worker.idle(k):
            pass
    worker.close()
    assert [spell.start for spell in worker.spells()] == [1, 2]


def test_a_thread_passes_on_defects():
    worker = ThreadWorker()

    def respond():
        raise TypeError("a defect")

    worker.start(respond, nothing, 0)
    worker.close()
    with pytest.raises(TypeError, match="a defect"):
        worker.poll(1)


def test_the_wall_clock_waits_and_returns_its_delay():
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    clock = WallClock(lambda: now[0], sleep)
    assert clock.wait_until(0.0) == 0.0 and not slept
    assert clock.wait_until(0.25) == 0.0 and slept == [pytest.approx(0.25)]
    now[0] = 101.0
    assert clock.wait_until(0.5) == pytest.approx(0.5) and len(slept) == 1
