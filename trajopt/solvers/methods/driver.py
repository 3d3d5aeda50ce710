"""Drivers of methods: pass each request of a method to an answer function and send the answer back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

Method = Generator[Any, Any, Any]


def never() -> bool:
    """Return False: the default stop condition, which never stops a run."""
    return False


def run_alone(method: Method, answer: Callable[[Any], Any], stopped: Callable[[], bool] = never) -> Any:
    """Run a method on one problem and answer its requests with ``answer``.

    ``stopped`` is checked before each request. Returns the result of the method, or None if ``stopped`` returned True.
    """
    reply = None
    try:
        while not stopped():
            reply = answer(method.send(reply))
    except StopIteration as ended:
        return ended.value
    return None


class Wait:
    """Placeholder answer: the request is pending and is answered together with those of other problems."""


WAIT = Wait()


def run_window(
    window: Any,
    slots: list[Any],
    start: Callable[[Any], Method | None],
    end: Callable[[Any, Any], None],
    stopped: Callable[[], bool] = never,
) -> None:
    """Run methods on problems, one per slot at a time, until all have ended or the run is stopped.

    window: ``ask(slot, request)`` returns the answer for a slot, or WAIT, for at most one pending request of each slot; ``serve()``
    answers pending requests together, and returns pairs of slot and answer, an empty list if none is pending.
    start: loads the next problem into a slot and returns its method, or None if no problem remains. end: called with the slot and
    the result of its method, or the exception that the method or ``window.ask`` raised; not called for methods that still run
    when ``stopped`` returns True. ``stopped`` is checked before each request except the first of a method, so that
    all methods have begun.
    """
    running: dict[Any, Method] = {}
    ready: deque[tuple[Any, Any]] = deque()

    def begin(slot: Any) -> None:
        """Start the next problem in a slot and mark the slot as ready; does nothing if no problem remains."""
        method = start(slot)
        if method is not None:
            running[slot] = method
            ready.append((slot, None))

    for slot in slots:
        begin(slot)
    while running:
        while ready:
            slot, reply = ready.popleft()
            method = running[slot]
            try:
                while reply is not WAIT:
                    if reply is not None and stopped():
                        break
                    reply = window.ask(slot, method.send(reply))
            except StopIteration as ended:
                result = ended.value
            except Exception as error:  # raised by a user-defined method
                result = error
            else:
                continue
            del running[slot]
            end(slot, result)
            begin(slot)
        if stopped():
            return
        ready.extend(window.serve())


ProgressCallback = Callable[[int], None] | None


class Answers(NamedTuple):
    """Answers in the order of the requests, None for those without one; stopped: True if Ctrl-C was pressed meanwhile."""

    each: Iterable[Any]
    stopped: bool


def run_together(
    methods: Sequence[Method],
    answer: Callable[[list[int], list[Any], ProgressCallback], Answers],
    kind: Callable[[int, Any], Hashable],
    on_finished: ProgressCallback,
    interrupted: Callable[[], bool] = never,
) -> tuple[list[Any], bool]:
    """Run methods until all have ended, and answer requests of the same kind together, the kind with the fewest requests first.

    Returns the results of the methods, and True if Ctrl-C was pressed. After Ctrl-C every request is answered with None; a
    KeyboardInterrupt during the first call of ``answer`` is raised instead.

    answer: called with indices of methods, their requests (of one kind), and a progress callback that takes the number of
    finished requests; returns the answers. kind: key of a method's request. on_finished: progress callback, called with the
    number of methods that have ended, plus the finished requests while ``answer`` runs; may raise KeyboardInterrupt. interrupted:
    True after Ctrl-C.
    """
    results: dict[int, Any] = {}
    waiting: dict[int, Any] = {}
    begun = stopped = False

    def advance(i: int, reply: Any) -> None:
        """Send an answer to method i, and store its next request, or its result if it ended."""
        try:
            waiting[i] = methods[i].send(reply)
        except StopIteration as ended:
            results[i] = ended.value
            waiting.pop(i, None)

    def answered(numbers: list[int]) -> Answers:
        """Return the answers of the pending requests of methods ``numbers``.

        Returns None for each if Ctrl-C interrupts a call of ``answer`` after the first one, whatever exception that call then
        raises. Other exceptions are raised.
        """
        ended = len(results)
        report = None if on_finished is None else lambda done: on_finished(ended + done)
        try:
            return answer(numbers, [waiting[i] for i in numbers], report)
        except (Exception, KeyboardInterrupt) as error:  # an interrupted call may raise another exception
            if not (begun and (interrupted() or isinstance(error, KeyboardInterrupt))):
                raise
            return Answers([None] * len(numbers), True)

    for i in range(len(methods)):
        advance(i, None)
    while waiting:
        kinds: dict[Hashable, list[int]] = {}
        for i, request in waiting.items():
            kinds.setdefault(kind(i, request), []).append(i)
        numbers = min(kinds.values(), key=len)  # the smallest group first, so that late methods catch up
        stopped = stopped or (begun and interrupted())
        replies = Answers([None] * len(numbers), True) if stopped else answered(numbers)
        begun, stopped = True, replies.stopped or interrupted()
        for i, reply in zip(numbers, replies.each, strict=True):
            advance(i, reply)
        if on_finished is not None and not stopped:
            try:
                on_finished(len(results))
            except KeyboardInterrupt:
                stopped = True
    return [results[i] for i in range(len(methods))], stopped or interrupted()
