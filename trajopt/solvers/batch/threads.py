"""Thread pool of a batch, with progress reports and a stop flag for Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.batch.interrupts import interrupted, running
from trajopt.solvers.methods.driver import ProgressCallback

POLL = 0.02
"""Time [s] between checks of progress and of Ctrl-C."""


ENDED, STOP = range(2)
"""Indices into the integers that threads share: number of finished problems, stop flag."""


def run_workers(work: Callable[[Array], None], threads: int, on_finished: ProgressCallback) -> dict[str, bool]:
    """Run ``work(shared)`` on each of ``threads`` threads, and report progress; Ctrl-C sets the stop flag.

    Returns the metadata ``stopped`` if the stop flag is set.

    shared: integers at the indices ENDED (number of finished problems) and STOP. An exception of ``on_finished`` or
    of a thread also sets the stop flag, and is raised after all threads have finished.
    """
    shared = np.zeros(2, np.int64)
    with running(), ThreadPoolExecutor(threads, thread_name_prefix="batch") as pool:
        try:
            wait_for([pool.submit(work, shared) for _ in range(threads)], shared, on_finished)
        except BaseException:
            shared[STOP] = 1
            raise
    return {"stopped": True} if shared[STOP] else {}


def wait_for(futures: list[Any], shared: Array, on_finished: ProgressCallback) -> None:
    """Wait for all futures, and report shared[ENDED] to ``on_finished``; raises the exception of a future.

    Ctrl-C, also if raised by ``on_finished``, and an exception of a future set the stop flag, so that running iterations finish.
    Any other exception of ``on_finished`` also sets it and is raised.
    """
    while True:
        try:
            finished, unfinished = wait(futures, timeout=POLL, return_when=FIRST_EXCEPTION)
            if interrupted() or any(future.exception() for future in finished):
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
