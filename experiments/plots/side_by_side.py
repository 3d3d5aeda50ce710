"""Pictures drawn at the same time, by copies of this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MMAP_THRESHOLD, TRIM_THRESHOLD, LARGEST = -3, -1, 1 << 30
"""Of glibc's mallopt: its names, and a size [bytes] above all arrays."""
Pictures = Mapping[Path, Callable[[], object]]
"""What draws each file, at most 256; those that take longest first."""


def draw(pictures: Pictures) -> list[Path]:
    """Draw all of them, as many at a time as there are processors; returns the files in their order."""
    work, count = list(pictures.values()), min(os.cpu_count() or 1, len(pictures))
    done = False
    if count > 1 and sys.platform.startswith("linux"):
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont  # noqa: F401  once for all

        turns = _turns(len(work))
        copies = [_copy(work, turns) for _ in range(count)]
        os.close(turns)
        drawn = [copy is not None and os.waitpid(copy, 0)[1] == 0 for copy in copies]
        done = all(drawn)
    if not done:  # whatever went wrong in a copy is raised here
        for picture in work:
            picture()
    return list(pictures)


def _turns(count: int) -> int:
    """Where processes read, one byte each, which picture is next."""
    reader, writer = os.pipe()
    os.write(writer, bytes(range(count)))
    os.close(writer)
    return reader


def _draw(work: Sequence[Callable[[], object]], turns: int) -> None:
    while turn := os.read(turns, 1):
        work[turn[0]]()


def _copy(work: Sequence[Callable[[], object]], turns: int) -> int | None:
    """The process that does some work; None where there is no room for one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which draws
            child = os.fork()
    except OSError:
        return None
    if child:
        return child
    failed = 1
    try:
        _keep_memory()
        _draw(work, turns)
        failed = 0
    finally:
        os._exit(failed)


def _keep_memory() -> None:
    """Keep what is freed: to get large arrays anew from the system takes a quarter of a picture's time."""
    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such settings
        settings = ctypes.CDLL(None).mallopt
        settings(MMAP_THRESHOLD, LARGEST)
        settings(TRIM_THRESHOLD, LARGEST)
