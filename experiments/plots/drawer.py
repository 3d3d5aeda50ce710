"""Background process that loads matplotlib during a solve, and then plots the solution.

Loading matplotlib takes as long as plotting. The process is a fork that has the task; it reads the solution from its file.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from trajopt import Solution
from trajopt.config.task import Task
from .plotting import plot_solution


class Drawer:
    """Forked process that plots one solution of a task; it exits with its parent. Linux only."""

    def __init__(self, task: Task) -> None:
        context = get_context("fork")
        self._pipe, its = context.Pipe()
        self._process = context.Process(target=_serve, args=(task, its, self._pipe), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # about forking a process with threads; none of them draws
            self._process.start()
        its.close()

    def draw(self, file: Path, folder: Path) -> list[Path] | None:
        """Plot a saved solution into a folder; return the files, or None if plotting failed (plotting here shows the error)."""
        try:
            self._pipe.send((file, folder))
            return list(self._pipe.recv())
        except (EOFError, OSError):
            return None


def start_drawer(task: Task) -> Drawer | None:
    """Start a plotting process; return None without fork or a second processor."""
    if not sys.platform.startswith("linux") or (os.cpu_count() or 1) == 1:
        return None
    try:
        return Drawer(task)
    except OSError:
        return None


def _serve(task: Task, pipe: Connection, other: Connection) -> None:
    """Main function of the plotting process.

    It ignores Ctrl-C, which stops only the solve; the best iterate is then plotted. A failure closes the pipe. SIGTERM ends the
    process without the parent's signal handler.
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
