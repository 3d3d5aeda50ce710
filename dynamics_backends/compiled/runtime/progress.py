"""What is being compiled, told while it takes long: one line after a second, and one every few seconds after it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WORTH_A_LINE, AGAIN_AFTER, NOTED_AFTER = 1.0, 5.0, 0.3  # [s]
FORGOTTEN = 5.0
"""[s] after which a note is that of a process that was killed."""
_lock = threading.Lock()
_under_way: dict[int, int] = {}
_finished = 0
_beside: list[Path] = []


@contextmanager
def counted(units: int) -> Iterator[Callable[[], None]]:
    """While a library of so many units is compiled; what is yielded is called after each unit."""
    key = threading.get_ident()
    with _lock:
        _under_way[key] = units

    def done() -> None:
        global _finished
        with _lock:
            _finished += 1
            _under_way[key] -= 1

    try:
        yield done
    finally:
        with _lock:
            del _under_way[key]


@contextmanager
def told(say: Callable[[str], None]) -> Iterator[None]:
    """Say what is compiled, for as long as that takes."""
    began = time.monotonic()

    def line() -> str:
        with _lock:
            left, finished = sum(_under_way.values()), _finished
        return f"compiling for {time.monotonic() - began:.0f} s: {_how_far(finished, left)}"

    with _repeated(lambda: say(line()), WORTH_A_LINE, AGAIN_AFTER):
        yield


def _how_far(finished: int, left: int) -> str:
    what = f"{finished} pieces done, {left} to go" if left else f"{finished} pieces done, writing the next"
    return f"{what}; they are kept for the next time"


# -- in another process -------------------------------------------------------------------------------------------


def restart() -> None:
    """Forget what the process was at that this one is a copy of."""
    global _lock, _finished
    _lock, _finished = threading.Lock(), 0
    _under_way.clear()
    _beside.clear()


def follow(note: Path) -> None:
    """Another process writes there how far it is (:func:`noted`)."""
    _beside.append(note)


@contextmanager
def noted(note: Path) -> Iterator[None]:
    """Write how far this process is, again and again."""

    def write() -> None:
        with _lock:
            left, finished = sum(_under_way.values()), _finished
        with contextlib.suppress(OSError):
            note.write_text(f"{finished} {left}")

    with _repeated(write, NOTED_AFTER, NOTED_AFTER):
        yield


@contextmanager
def told_beside(say: Callable[[str], None]) -> Iterator[None]:
    """Say what other processes compile for this one, while they do."""
    began = time.monotonic()

    def look() -> None:
        found = [numbers for note in _beside if (numbers := _read(note)) is not None]
        if found:
            finished, left = (sum(n) for n in zip(*found, strict=True))
            elapsed = time.monotonic() - began
            say(f"compiling beside the solve, for {elapsed:.0f} s: {_how_far(finished, left)}")

    with _repeated(look, WORTH_A_LINE, AGAIN_AFTER):
        yield


def _read(note: Path) -> tuple[int, int] | None:
    """Pieces done, and to go; None where nobody is at work any more."""
    try:
        if time.time() - note.stat().st_mtime > FORGOTTEN:
            return None
        finished, left = (int(number) for number in note.read_text().split())
    except (OSError, ValueError):
        return None
    return finished, left


@contextmanager
def _repeated(call: Callable[[], None], first: float, again: float) -> Iterator[None]:
    """Call something on a thread of its own after some time, and after each such time again [s]."""
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
