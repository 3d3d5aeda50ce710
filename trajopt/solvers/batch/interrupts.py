"""Ctrl-C handling of batches: an interrupt sets a flag, so that a batch stops early without losing finished solutions.

Before the first problem starts, Ctrl-C raises KeyboardInterrupt as usual. A second Ctrl-C also raises it, unless threads run C
code: they still write to the arrays of the batch.
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
    """Flags. begun: a problem has started. pressed: Ctrl-C came since. running, raising: inside these context managers."""

    begun: bool = False
    pressed: bool = False
    running: bool = False
    raising: bool = False


_states: list[_State] = []
"""State of the batch that the main thread solves; empty if Ctrl-C has a handler other than Python's default."""


def interrupted() -> bool:
    """True in the main thread if :func:`deferred_interrupts` is active there and has recorded a Ctrl-C."""
    return _in_main() and bool(_states) and _states[-1].pressed


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Context manager: Ctrl-C sets a flag instead of raising, once the first problem has begun; so does SIGTERM.

    Both only if their handler is signal.default_int_handler. A second Ctrl-C raises, except in :func:`running`. No effect outside
    the main thread.
    """
    usual = signal.default_int_handler
    own = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is usual] if _in_main() else []
    if not own:
        yield
        return
    _states.append(_State())
    try:
        for number in own:
            signal.signal(number, _record_interrupt)
        yield
    finally:
        for number in own:
            signal.signal(number, usual)
        _states.pop()


@contextmanager
def running() -> Iterator[None]:
    """Context manager for threads that run C code: Ctrl-C never raises inside, not even a second one; marks the batch as begun."""
    with _flag_set("running"):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """Context manager: Ctrl-C raises KeyboardInterrupt immediately, also one recorded before; marks the batch as begun."""
    with _flag_set("raising"):
        if interrupted():
            raise KeyboardInterrupt
        yield


@contextmanager
def _flag_set(name: str) -> Iterator[None]:
    """Context manager that sets a flag of the innermost state, marks it as begun, and restores the flag at the end.

    No effect outside the main thread or without deferred interrupts.
    """
    if not _in_main() or not _states:
        yield
        return
    state, before = _states[-1], getattr(_states[-1], name)
    setattr(state, name, True)
    state.begun = True
    try:
        yield
    finally:
        setattr(state, name, before)


def _record_interrupt(number: int, frame: Any) -> None:
    """Signal handler: set the flag, or raise KeyboardInterrupt while ``raising``, before the first problem, or at a second
    Ctrl-C.
    """
    state = _states[-1]
    if state.raising or not (state.running or (state.begun and not state.pressed)):
        signal.default_int_handler(number, frame)
    state.pressed = True


def _in_main() -> bool:
    """True in the main thread."""
    return threading.current_thread() is threading.main_thread()
