"""Parallel drawing of plots in forked processes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Pictures = Mapping[Path, Callable[[], object]]
"""File -> drawing function; at most 256 files, slowest first."""


def draw(pictures: Pictures) -> list[Path]:
    """Draw all plots in parallel, one process per processor; return the files in order.

    The first plot is drawn in a process that forks before this one loads matplotlib for all others.
    """
    work, count = list(pictures.values()), min(os.cpu_count() or 1, len(pictures))
    if count > 1 and sys.platform.startswith("linux"):
        first_queue, queue = _queue(1), _queue(len(work) - 1)
        children = [_fork(work[:1], first_queue)]
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401

        children += [_fork(work[1:], queue) for _ in range(count - 1)]
        _draw(work[1:], queue)
        failed = [child is not None and os.waitpid(child, 0)[1] != 0 for child in children]
        os.close(first_queue)
        os.close(queue)
        if any(failed) or children[0] is None:
            _draw(work, _queue(len(work)))  # repeat here, which raises the error
    else:
        for picture in work:
            picture()
    return list(pictures)


def _queue(count: int) -> int:
    """Return a pipe of plot numbers, one byte each; a process reads its next plot from it."""
    reader, writer = os.pipe()
    os.write(writer, bytes(range(count)))
    os.close(writer)
    return reader


def _draw(work: Sequence[Callable[[], object]], queue: int) -> None:
    while item := os.read(queue, 1):
        work[item[0]]()


def _fork(work: Sequence[Callable[[], object]], queue: int) -> int | None:
    """Fork a process that draws plots of the queue; return its id, or None if the fork failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # about forking a process with threads; none of them draws
            child = os.fork()
    except OSError:
        return None
    if child:
        return child
    failed = 1
    try:
        _draw(work, queue)
        failed = 0
    finally:
        os._exit(failed)
