"""Work on threads, which ends where Ctrl-C comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.batch.interrupts import interrupted, running
from trajopt.solvers.methods.driver import Told

POLL = 0.1
"""[s] between looks at what was done."""


class Ran(NamedTuple):
    """What did the work, and whether it was stopped."""

    threads: int
    stopped: bool

    @property
    def how(self) -> str:
        """The words for it."""
        return f"{self.threads} thread{'s' * (self.threads > 1)}"


def lanes_at_work(threads: int, stages: Sequence[Any]) -> dict[str, float]:
    """The threads, and the share of lanes that hold a knot in the expansions of some phases."""
    knots = [len(s.plain.t) for s in stages]
    blocks = [-(-count // s.library.lanes) * s.library.lanes for s, count in zip(stages, knots, strict=True)]
    return {"threads": threads, "expansions": sum(knots) / sum(blocks)}


ENDED, STOP = range(2)
"""The numbers that threads share: how many problems have ended, whether to stop."""


def run_workers(work: Callable[[Array], None], threads: int, told: Told) -> Ran:
    """Call a function of the numbers that threads share on each of some threads."""
    shared = np.zeros(2, np.int64)
    with running(), ThreadPoolExecutor(threads, thread_name_prefix="batch") as pool:
        try:
            wait_for([pool.submit(work, shared) for _ in range(threads)], shared, told)
        except BaseException:
            shared[STOP] = 1
            raise
    return Ran(threads, bool(shared[STOP]))


def wait_for(futures: list[Any], shared: Array, told: Told) -> None:
    """Until all are done; Ctrl-C, also one raised by ``told``, lets the iterations end."""
    while True:
        try:
            unfinished = wait(futures, timeout=POLL).not_done
            if interrupted():
                shared[STOP] = 1
            if told is not None and not shared[STOP]:
                told(int(shared[ENDED]))
            if not unfinished:
                break
        except KeyboardInterrupt:
            shared[STOP] = 1
        except BaseException:  # of ``told``: it goes on its way when the threads have ended
            shared[STOP] = 1
            raise
    for future in futures:
        future.result()
