"""What is being compiled, told while it takes long: one line after a second, and one every few seconds after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WORTH_A_LINE, AGAIN_AFTER = 1.0, 5.0  # [s]
_lock = threading.Lock()
_under_way: dict[int, int] = {}
_finished = 0


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
    over, began = threading.Event(), time.monotonic()

    def watch() -> None:
        wait = WORTH_A_LINE
        while not over.wait(wait):
            with _lock:
                left, finished = sum(_under_way.values()), _finished
            elapsed = time.monotonic() - began
            what = f"{finished} pieces done, {left} to go" if left else f"{finished} pieces done, writing the next"
            say(f"compiling for {elapsed:.0f} s: {what}; they are kept for the next time")
            wait = AGAIN_AFTER

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
