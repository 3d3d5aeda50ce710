"""Progress lines of compilation: one line after a second, then one every few seconds.

Without a listener, as in a script, the line is logged as a warning, at most once per :data:`LOGGED_AGAIN`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WORTH_A_LINE, AGAIN_AFTER, NOTED_AFTER = 1.0, 5.0, 0.3  # [s]
LOGGED_AGAIN = 30.0  # [s]
STALE_AFTER = 5.0
"""[s] Age after which a progress file is attributed to a killed process."""
_LOG = logging.getLogger(__name__)
_lock = threading.Lock()
_under_way: dict[int, int] = {}
_finished = 0
_listening = 0
_logged = -LOGGED_AGAIN
_busy_since = _idle_since = -LOGGED_AGAIN
"""Begin of the first of consecutive compilations, and end of the last one [s]."""
_beside: list[Path] = []


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
def told(say: Callable[[str], None]) -> Iterator[None]:
    """Pass progress lines of this process to ``say`` while the context is active."""
    began = time.monotonic()
    with _listened(), _repeated(lambda: say(_line(began)), WORTH_A_LINE, AGAIN_AFTER):
        yield


@contextmanager
def _listened() -> Iterator[None]:
    """Suppress logging while the context is active."""
    global _listening
    with _lock:
        _listening += 1
    try:
        yield
    finally:
        with _lock:
            _listening -= 1


def _how_far(finished: int, left: int) -> str:
    what = f"{finished} parts done, {left} to go" if left else f"{finished} parts done, generating the next"
    return f"{what}; cached for later runs"


# -- background processes -----------------------------------------------------------------------------------------


def restart() -> None:
    """Reset the progress that a forked process inherits from its parent."""
    global _lock, _finished, _listening
    _lock, _finished, _listening = threading.Lock(), 0, 0
    _under_way.clear()
    _beside.clear()


def follow(note: Path) -> None:
    """Register the progress file of a background process (:func:`noted`)."""
    _beside.append(note)


@contextmanager
def noted(note: Path) -> Iterator[None]:
    """Write the progress of this process to a file periodically while the context is active."""

    def write() -> None:
        with _lock:
            left, finished = sum(_under_way.values()), _finished
        with contextlib.suppress(OSError):
            note.write_text(f"{finished} {left}")

    with _listened(), _repeated(write, NOTED_AFTER, NOTED_AFTER):
        yield


@contextmanager
def told_beside(say: Callable[[str], None]) -> Iterator[None]:
    """Pass progress lines of background processes to ``say`` while the context is active."""
    began = time.monotonic()

    def look() -> None:
        found = [numbers for note in _beside if (numbers := _read(note)) is not None]
        if found:
            finished, left = (sum(n) for n in zip(*found, strict=True))
            elapsed = time.monotonic() - began
            say(f"compiling in the background ({elapsed:.0f} s): {_how_far(finished, left)}")

    with _repeated(look, WORTH_A_LINE, AGAIN_AFTER):
        yield


def _read(note: Path) -> tuple[int, int] | None:
    """Units finished and units left, from a progress file; None if its process has ended."""
    try:
        if time.time() - note.stat().st_mtime > STALE_AFTER:
            return None
        finished, left = (int(number) for number in note.read_text().split())
    except (OSError, ValueError):
        return None
    return finished, left


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
