"""A process that gets ready to draw while a problem is solved: it loads matplotlib, which takes as long as to draw.

It is a copy of this one, which has the task, and reads the solution from its file.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from experiments.plots.plotting import plot_solution
from trajopt import Solution
from trajopt.config.task import Task


class Drawer:
    """Ready to draw a solution of a task, once; it ends with this process where nothing is asked of it. Linux only."""

    def __init__(self, task: Task) -> None:
        context = get_context("fork")
        self._pipe, its = context.Pipe()
        self._process = context.Process(target=_serve, args=(task, its, self._pipe), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which draws
            self._process.start()
        its.close()

    def draw(self, file: Path, folder: Path) -> list[Path] | None:
        """Draw the saved solution into a folder; None where that failed, and drawing it here tells why."""
        try:
            self._pipe.send((file, folder))
            return list(self._pipe.recv())
        except (EOFError, OSError):
            return None


def ready_to_draw(task: Task) -> Drawer | None:
    """None where this system has no copies of processes, or no second processor for one."""
    if not sys.platform.startswith("linux") or (os.cpu_count() or 1) == 1:
        return None
    try:
        return Drawer(task)
    except OSError:
        return None


def _serve(task: Task, pipe: Connection, other: Connection) -> None:
    """The life of the copy: Ctrl-C is for the solve, whose best iterate is drawn; a failure shows as the end of the pipe.

    It ends by SIGTERM, with its parent, without the parent's way to save what is there.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    other.close()
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401

        file, folder = pipe.recv()
        pipe.send(plot_solution(Solution.load(file), folder, task))
    except Exception:
        pipe.close()
