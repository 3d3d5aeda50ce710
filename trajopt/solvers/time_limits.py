"""Time limits of solves: they start with the call, include tracing, and interrupt a long iteration.

A method tests its limit between iterations. An iteration that continues for GRACE seconds after the limit, for example with
functions evaluated in Python, receives a KeyboardInterrupt like Ctrl-C, and the solver returns its best iterate. If that takes as
long as the limit, and at least GRACE, another interrupt follows. C calls finish first.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MIN_TIME = 1e-3
"""Minimum time limit of a further solve [s]."""
ENOUGH_TIME = 0.1
"""Minimum fraction of the time limit for another solve to start."""
GRACE = 1.0
"""Time [s] that an iteration may continue after the limit."""
_start: ContextVar[float | None] = ContextVar("start_of_solve", default=None)
_sequence: ContextVar[float | None] = ContextVar("start_of_sequence", default=None)


@contextmanager
def timed_sequence() -> Iterator[float]:
    """Let the time limits of consecutive solves start here, or with an enclosing sequence; yields the start time [s]."""
    start = _sequence.get()
    start = time.perf_counter() if start is None else start
    token = _sequence.set(start)
    try:
        yield start
    finally:
        _sequence.reset(token)


@contextmanager
def timed_solve() -> Iterator[None]:
    """Let the time limit of a solve with all its attempts start here, or where the enclosing :func:`timed_sequence` started."""
    start = _sequence.get()
    token = _start.set(time.perf_counter() if start is None else start)
    outside = _sequence.set(None)  # solves in callbacks count from their own start
    try:
        yield
    finally:
        _sequence.reset(outside)
        _start.reset(token)


def start_of_solve() -> float:
    """Return the start time [s] of the current solve; outside of :func:`timed_solve` the current time."""
    start = _start.get()
    return time.perf_counter() if start is None else start


def enough_time(limit: float | None, began: float) -> bool:
    """Return True if at least the fraction ENOUGH_TIME of a limit [s] that started at ``began`` is left, or there is no limit."""
    return limit is None or time.perf_counter() - began <= (1.0 - ENOUGH_TIME) * limit


def has_passed(limit: float | None) -> bool:
    """Return True if a time limit [s] of the current solve has passed."""
    return limit is not None and time.perf_counter() - start_of_solve() >= limit


def remaining(limit: float | None, began: float) -> float | None:
    """Return the time limit [s] of a further solve: the remaining time, at least MIN_TIME; None without a limit.

    began: start time [s]. If it is the start of the current :func:`timed_solve`, the limit itself is returned, because all
    methods there count from that start.
    """
    if limit is None or began == _start.get():
        return limit
    return max(MIN_TIME, limit - (time.perf_counter() - began))


class Watchdog:
    """Timer that raises KeyboardInterrupt in the creating thread after ``seconds``, then every ``again`` [s].

    expired: True after the first interrupt.
    """

    def __init__(self, seconds: float, again: float) -> None:
        self.expired, self._again = False, again
        self._thread, self._lock, self._active = threading.get_ident(), threading.Lock(), True
        self._start(seconds)

    def _start(self, seconds: float) -> None:
        """Start a timer that interrupts after ``seconds``."""
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._interrupt)
        self._timer.daemon = True
        self._timer.start()

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the watched thread and start the timer of the next one; does nothing once stopped."""
        with self._lock:
            if self._active:
                self.expired = True
                _raise_in(self._thread, KeyboardInterrupt)
                self._start(self._again)

    def stop(self) -> None:
        """Stop the timer and cancel an interrupt that was not raised yet.

        If an interrupt arrives during this call, repeat the call.
        """
        self._active = False
        with self._lock:
            self._timer.cancel()
        if self.expired:  # cancel an interrupt that was not raised yet
            _raise_in(self._thread, None)


@contextmanager
def interrupting(limit: float | None) -> Iterator[Watchdog | None]:
    """Raise KeyboardInterrupt in the block GRACE seconds after a time limit [s], and then repeatedly; it ends the block silently.

    The limit counts from :func:`start_of_solve`. Other KeyboardInterrupts (Ctrl-C) are raised. Yields the watchdog, or None without
    a limit.
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
    """Raise an exception in a thread at its next instruction; None: cancel an exception that is not raised yet.

    In the main thread with Python's handler of SIGINT, the signal is sent, where the system can, which also ends waiting calls.
    """
    main = thread == threading.main_thread().ident and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if exception is not None and main and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGINT)
        return
    given = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
