"""Thread pool of a batch, with progress reports and a stop flag for Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.batch.interrupts import interrupted, running
from trajopt.solvers.methods.driver import ProgressCallback

POLL = 0.1
"""Time [s] between progress checks."""


class Ran(NamedTuple):
    """Number of threads that ran, and True if the work was stopped early."""

    threads: int
    stopped: bool

    @property
    def how(self) -> str:
        """Description of the threads, such as "4 threads"."""
        return f"{self.threads} thread{'s' * (self.threads > 1)}"


def lanes_at_work(threads: int, stages: Sequence[Any]) -> dict[str, float]:
    """Return the number of threads, and the fraction of lanes that hold a knot in the expansions of the phases."""
    knots = [len(s.plain.t) for s in stages]
    blocks = [-(-count // s.library.lanes) * s.library.lanes for s, count in zip(stages, knots, strict=True)]
    return {"threads": threads, "expansions": sum(knots) / sum(blocks)}


ENDED, STOP = range(2)
"""Indices into the integers that threads share: number of finished problems, stop flag."""


def run_workers(work: Callable[[Array], None], threads: int, on_finished: ProgressCallback) -> Ran:
    """Run ``work(shared)`` on each thread, where ``shared`` holds the integers of ``ENDED`` and ``STOP``; reports progress."""
    shared = np.zeros(2, np.int64)
    with running(), ThreadPoolExecutor(threads, thread_name_prefix="batch") as pool:
        try:
            wait_for([pool.submit(work, shared) for _ in range(threads)], shared, on_finished)
        except BaseException:
            shared[STOP] = 1
            raise
    return Ran(threads, bool(shared[STOP]))


def wait_for(futures: list[Any], shared: Array, on_finished: ProgressCallback) -> None:
    """Wait for all futures; Ctrl-C, also if raised by ``on_finished``, sets the stop flag, so that running iterations finish."""
    while True:
        try:
            unfinished = wait(futures, timeout=POLL).not_done
            if interrupted():
                shared[STOP] = 1
            if on_finished is not None and not shared[STOP]:
                on_finished(int(shared[ENDED]))
            if not unfinished:
                break
        except KeyboardInterrupt:
            shared[STOP] = 1
        except BaseException:  # raised by ``on_finished``; propagates once the threads have finished
            shared[STOP] = 1
            raise
    for future in futures:
        future.result()
