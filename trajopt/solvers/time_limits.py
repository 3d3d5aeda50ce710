"""Time limits of solves: they count from the call on, with tracing and compiling, and interrupt an iteration that does not end.

A method tests its limit between iterations. An iteration that goes on for GRACE seconds behind the limit, as with functions
evaluated in Python, gets a KeyboardInterrupt, as by Ctrl-C: the solver returns its best iterate. Where that takes as long as the
limit, another one ends it. In the main thread the compiler is stopped too; other calls of C end first.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST_TIME = 1e-3
"""Minimum time limit of a further solve [s]."""
ENOUGH_TIME = 0.1
"""Share of the time limit that has to be left for another solve."""
GRACE = 1.0
"""Seconds that an iteration may take behind the limit."""
_start: ContextVar[float | None] = ContextVar("start_of_solve", default=None)
_sequence: ContextVar[float | None] = ContextVar("start_of_sequence", default=None)


@contextmanager
def timed_sequence() -> Iterator[float]:
    """Time limits of consecutive solves count from here, or from the start of an enclosing sequence; yields that time [s]."""
    start = _sequence.get()
    start = time.perf_counter() if start is None else start
    token = _sequence.set(start)
    try:
        yield start
    finally:
        _sequence.reset(token)


@contextmanager
def timed_solve() -> Iterator[None]:
    """The time limit of a solve, with all its attempts, counts from here, or from the start of its :func:`timed_sequence`."""
    start = _sequence.get()
    token = _start.set(time.perf_counter() if start is None else start)
    outside = _sequence.set(None)  # solves in callbacks count from their own start
    try:
        yield
    finally:
        _sequence.reset(outside)
        _start.reset(token)


def start_of_solve() -> float:
    """Start time [s] of the solve that is running; the present time outside of :func:`timed_solve`."""
    start = _start.get()
    return time.perf_counter() if start is None else start


def enough_time(limit: float | None, began: float) -> bool:
    """True if enough of a time limit [s] is left for another solve, since then."""
    return limit is None or time.perf_counter() - began <= (1.0 - ENOUGH_TIME) * limit


def remaining(limit: float | None, began: float) -> float | None:
    """The limit of a further solve [s], of a solve that began then: what is left of it, at least LEAST_TIME; None without one.

    Inside of :func:`timed_solve` it is the limit itself, since all methods count from the same start.
    """
    if limit is None or began == _start.get():
        return limit
    return max(LEAST_TIME, limit - (time.perf_counter() - began))


class Watchdog:
    """Interrupts the thread that makes it, after a time and again after another [s]; ``expired``: whether it has."""

    def __init__(self, seconds: float, again: float) -> None:
        self.expired, self._again = False, again
        self._thread, self._lock, self._active = threading.get_ident(), threading.Lock(), True
        self._start(seconds)

    def _start(self, seconds: float) -> None:
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._interrupt)
        self._timer.daemon = True
        self._timer.start()

    def _interrupt(self) -> None:
        with self._lock:
            if self._active:
                self.expired = True
                _raise_in(self._thread, KeyboardInterrupt)
                self._start(self._again)

    def stop(self) -> None:
        """Interrupt no more. An interrupt may come while it waits for the lock; then it is called again."""
        self._active = False
        with self._lock:
            self._timer.cancel()
        if self.expired:  # and not raised yet
            _raise_in(self._thread, None)


@contextmanager
def interrupting(limit: float | None) -> Iterator[Watchdog | None]:
    """Inside, KeyboardInterrupt is raised GRACE seconds behind a limit [s] that counts from :func:`start_of_solve`; it ends the
    block and goes no further. None without a limit.
    """
    if limit is None:
        yield None
        return
    left = limit - (time.perf_counter() - start_of_solve())
    watchdog = Watchdog(max(left, 0.0) + GRACE, max(limit, GRACE))
    try:
        try:
            yield watchdog
        finally:
            watchdog.stop()
    except KeyboardInterrupt:
        watchdog.stop()
        if not watchdog.expired:
            raise


def _raise_in(thread: int, exception: type[KeyboardInterrupt] | None) -> None:
    """Let a thread raise an exception at its next instruction; None: none that it has not raised yet.

    In the main thread it is that of Ctrl-C, where its handler is Python's, which also ends the wait for a compiler.
    """
    main = thread == threading.main_thread().ident and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if exception is not None and main and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGINT)
        return
    given = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
