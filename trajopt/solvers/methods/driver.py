"""Drivers of methods: they pass each request of a method to what answers it, and send the answer back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

Method = Generator[Any, Any, Any]


def never() -> bool:
    """Nothing stops a run."""
    return False


def run_alone(method: Method, answer: Callable[[Any], Any], stopped: Callable[[], bool] = never) -> Any:
    """Run a method on one problem, of which ``answer`` answers the requests; returns what the method returns, None where it
    was stopped.
    """
    reply = None
    try:
        while not stopped():
            reply = answer(method.send(reply))
    except StopIteration as ended:
        return ended.value
    return None


class Wait:
    """The answer to a request that is answered together with those of other problems."""


WAIT = Wait()


class Window(Protocol):
    """Slots of several problems, whose requests are answered together."""

    def ask(self, slot: Any, request: Any) -> Any:
        """The answer for a slot, or WAIT; a slot waits for one answer at a time."""
        ...

    def serve(self) -> list[tuple[Any, Any]]:
        """Answer requests that wait: some slots with their answers, none where nothing waits."""
        ...


def run_window(
    window: Window,
    slots: list[Any],
    start: Callable[[Any], Method | None],
    end: Callable[[Any, Any], None],
    stopped: Callable[[], bool] = never,
) -> None:
    """Run methods on problems, as many at a time as there are slots, until all have ended or the run is stopped.

    start: gives a slot its next problem and returns its method, None if there is none. end: called with the slot and what its
    method returned.
    """
    running: dict[Any, Method] = {}
    ready: deque[tuple[Any, Any]] = deque()

    def begin(slot: Any) -> None:
        method = start(slot)
        if method is not None:
            running[slot] = method
            ready.append((slot, None))

    for slot in slots:
        begin(slot)
    while running and not stopped():
        while ready:
            slot, reply = ready.popleft()
            method = running[slot]
            try:
                while reply is not WAIT:
                    reply = window.ask(slot, method.send(reply))
            except StopIteration as ended:
                result = ended.value
            except Exception as error:  # of a user's method
                result = error
            else:
                continue
            del running[slot]
            end(slot, result)
            begin(slot)
        ready.extend(window.serve())


Told = Callable[[int], None] | None


class Answers(NamedTuple):
    """Answers in the order of the requests; stopped: True if Ctrl-C came while they were found."""

    each: Iterable[Any]
    stopped: bool


def run_together(
    methods: Sequence[Method],
    answer: Callable[[list[int], list[Any], Told], Answers],
    kind: Callable[[int, Any], Hashable],
    told: Told,
    interrupted: Callable[[], bool] = never,
) -> tuple[list[Any], bool]:
    """Run methods until all have ended, and answer their requests together where they are alike.

    Returns the results of the methods, and True if Ctrl-C came; from then on requests are answered by None.

    answer: finds the answers for some methods, by their numbers and requests, which are of one kind; what it is given beside them
    is to be called with how many of these are done. told: called with how many methods have ended or are done; may raise
    KeyboardInterrupt. Ctrl-C raises KeyboardInterrupt before the first answer.
    """
    results: dict[int, Any] = {}
    waiting: dict[int, Any] = {}
    begun = stopped = False

    def go_on(i: int, reply: Any) -> None:
        try:
            waiting[i] = methods[i].send(reply)
        except StopIteration as ended:
            results[i] = ended.value
            waiting.pop(i, None)

    def answered(numbers: list[int]) -> Answers:
        ended = len(results)
        tell = None if told is None else lambda done: told(ended + done)
        try:
            return answer(numbers, [waiting[i] for i in numbers], tell)
        except (Exception, KeyboardInterrupt) as error:  # a compiler that is interrupted, too, raises another one
            if not (begun and (interrupted() or isinstance(error, KeyboardInterrupt))):
                raise
            return Answers([None] * len(numbers), True)

    for i in range(len(methods)):
        go_on(i, None)
    while waiting:
        kinds: dict[Hashable, list[int]] = {}
        for i, request in waiting.items():
            kinds.setdefault(kind(i, request), []).append(i)
        numbers = min(kinds.values(), key=len)  # those that are behind catch up
        stopped = stopped or (begun and interrupted())
        replies = Answers([None] * len(numbers), True) if stopped else answered(numbers)
        begun, stopped = True, replies.stopped or interrupted()
        for i, reply in zip(numbers, replies.each, strict=True):
            go_on(i, reply)
        if told is not None and not stopped:
            try:
                told(len(results))
            except KeyboardInterrupt:
                stopped = True
    return [results[i] for i in range(len(methods))], stopped or interrupted()
