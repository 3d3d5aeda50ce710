"""Progress lines of compilation: one line after a second, then one every few seconds.

Without a listener, as in a script, the line is logged as a warning, at most once per :data:`LOGGED_AGAIN`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WORTH_A_LINE, AGAIN_AFTER = 1.0, 5.0  # [s]
LOGGED_AGAIN = 30.0  # [s]
_LOG = logging.getLogger(__name__)
_lock = threading.Lock()
_under_way: dict[int, int] = {}
_finished = 0
_listening = 0
_logged = -LOGGED_AGAIN
_busy_since = _idle_since = -LOGGED_AGAIN
"""Begin of the first of consecutive compilations, and end of the last one [s]."""


@contextmanager
def counted(units: int) -> Iterator[Callable[[], None]]:
    """Register the compilation of a library with this many units; yields a function to call after each unit."""
    global _busy_since, _idle_since
    key, now = threading.get_ident(), time.monotonic()
    with _lock:
        if not _under_way and now - _idle_since > WORTH_A_LINE:
            _busy_since = now
        _under_way[key], began = units, _busy_since

    def done() -> None:
        global _finished
        with _lock:
            _finished += 1
            _under_way[key] -= 1

    try:
        with _repeated(_log(began), max(0.0, WORTH_A_LINE - (now - began)), LOGGED_AGAIN):
            yield done
    finally:
        with _lock:
            del _under_way[key]
            _idle_since = time.monotonic()


def _log(began: float) -> Callable[[], None]:
    """Return a function that logs a progress line, unless a listener is active or a line was logged recently."""

    def log() -> None:
        global _logged
        now = time.monotonic()
        with _lock:
            due = not _listening and now - _logged >= LOGGED_AGAIN
            _logged = now if due else _logged
        if due:
            _LOG.warning("%s", _line(began))

    return log


def _line(began: float) -> str:
    with _lock:
        left, finished = sum(_under_way.values()), _finished
    return f"compiling ({time.monotonic() - began:.0f} s): {_how_far(finished, left)}"


@contextmanager
def reported(say: Callable[[str], None]) -> Iterator[None]:
    """Pass progress lines of this process to ``say`` while the context is active."""
    global _listening
    began = time.monotonic()
    with _lock:
        _listening += 1
    try:
        with _repeated(lambda: say(_line(began)), WORTH_A_LINE, AGAIN_AFTER):
            yield
    finally:
        with _lock:
            _listening -= 1


def _how_far(finished: int, left: int) -> str:
    what = f"{finished} parts done, {left} to go" if left else f"{finished} parts done, generating the next"
    return f"{what}; cached for later runs"


@contextmanager
def _repeated(call: Callable[[], None], first: float, again: float) -> Iterator[None]:
    """Call a function on a separate thread after ``first`` seconds, then every ``again`` seconds."""
    over = threading.Event()

    def watch() -> None:
        wait = first
        while not over.wait(wait):
            call()
            wait = again

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
