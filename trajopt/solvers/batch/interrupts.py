"""Ctrl-C while a batch is solved: where something is there to be lost it is noted, and the work ends where it can.

Before the first problem is begun it raises KeyboardInterrupt, as elsewhere; so does a second one that comes while Python is at work
behind the first. While threads run C nothing is raised: what they write to must stay.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class _State:
    """begun: whether there is something to lose; pressed: whether Ctrl-C came since. running, raising: see below."""

    begun: bool = False
    pressed: bool = False
    running: bool = False
    raising: bool = False


_now: list[_State] = []
"""The state of the batch that the main thread solves; none where Ctrl-C does something else than to raise KeyboardInterrupt."""


def interrupted() -> bool:
    """True after Ctrl-C."""
    return _in_main() and bool(_now) and _now[-1].pressed


@contextmanager
def noted() -> Iterator[None]:
    """Inside, Ctrl-C is noted from the first :func:`running` on.

    Where Ctrl-C does not raise KeyboardInterrupt, or only in another thread, nothing changes.
    """
    usual = signal.default_int_handler
    own = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is usual] if _in_main() else []
    if not own:
        yield
        return
    _now.append(_State())
    try:
        for number in own:
            signal.signal(number, _note)
        yield
    finally:
        for number in own:
            signal.signal(number, usual)
        _now.pop()


@contextmanager
def running() -> Iterator[None]:
    """While threads run C: Ctrl-C raises nothing."""
    with _set("running"):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt at once, also one that was noted before."""
    with _set("raising"):
        if interrupted():
            raise KeyboardInterrupt
        yield


@contextmanager
def _set(name: str) -> Iterator[None]:
    if not _in_main() or not _now:
        yield
        return
    state, before = _now[-1], getattr(_now[-1], name)
    setattr(state, name, True)
    state.begun = True
    try:
        yield
    finally:
        setattr(state, name, before)


def _note(number: int, frame: Any) -> None:
    state = _now[-1]
    if state.raising or not (state.running or (state.begun and not state.pressed)):
        signal.default_int_handler(number, frame)
    state.pressed = True


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()
