"""What runs methods: it passes their requests on, and the answers back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol

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
