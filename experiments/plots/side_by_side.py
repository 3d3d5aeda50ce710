"""Pictures drawn at the same time, by copies of this process."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Pictures = Mapping[Path, Callable[[], object]]
"""What draws each file, at most 256; those that take longest first."""


def draw(pictures: Pictures) -> list[Path]:
    """Draw all of them, as many at a time as there are processors; returns the files in their order.

    The first is drawn while matplotlib is loaded, once for all the others.
    """
    work, count = list(pictures.values()), min(os.cpu_count() or 1, len(pictures))
    if count > 1 and sys.platform.startswith("linux"):
        ahead, turns = _turns(1), _turns(len(work) - 1)
        children = [_copy(work[:1], ahead)]
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401

        children += [_copy(work[1:], turns) for _ in range(count - 1)]
        _draw(work[1:], turns)
        failed = [child is not None and os.waitpid(child, 0)[1] != 0 for child in children]
        os.close(ahead)
        os.close(turns)
        if any(failed) or children[0] is None:
            _draw(work, _turns(len(work)))  # whatever went wrong there is raised here
    else:
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
        _draw(work, turns)
        failed = 0
    finally:
        os._exit(failed)
