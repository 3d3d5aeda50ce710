"""Who computes: processes of this machine (loky), a cluster (Dask distributed), or this process.

Each worker is a process with one thread, so that the machine is used by rows side by side. A pool has futures as those of
concurrent.futures; a worker that dies ends futures with an error for which ``died`` is true.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any, Protocol

from trajopt.solvers.batch.processes import ONE_THREAD
from trajopt.sweeps.extra import require

AHEAD = 2
"""Jobs under way for each worker, so that none waits for the next one."""


class Pool(Protocol):
    """Workers: how many jobs may be under way, and a job for one of them."""

    @property
    def most(self) -> int: ...

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future: ...

    def died(self, error: BaseException | None) -> bool:
        """True if a job ended because its worker, or another one, was killed; the pool is whole again afterwards."""
        ...

    def close(self) -> None:
        """End the workers, or let go of them, whatever they do."""
        ...


class Here:
    """This process: nothing runs side by side, and an error within C ends the study."""

    most = 1

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        future: Future = Future()
        future.set_result(job(*arguments))
        return future

    def died(self, error: BaseException | None) -> bool:
        return False

    def close(self) -> None:
        pass


class Processes:
    """Processes of this machine; default as many as there are processors for this one."""

    def __init__(self, count: int | None = None) -> None:
        self._loky = require("loky")
        self._count = count or self._loky.cpu_count()
        self.most = AHEAD * self._count
        self._executor = self._started()

    def _started(self) -> Any:
        return self._loky.ProcessPoolExecutor(self._count, initializer=_begin, initargs=(os.getpid(),), env=ONE_THREAD)

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        return self._executor.submit(job, *arguments)

    def died(self, error: BaseException | None) -> bool:
        if not isinstance(error, BrokenExecutor):
            return False
        if self._executor._flags.broken is not None:
            self.close()
            self._executor = self._started()
        return True

    def close(self) -> None:
        self._executor.shutdown(wait=True, kill_workers=True)


def _begin(parent: int) -> None:
    """What a process does first: leave Ctrl-C to its parent, and see to it that it ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Cluster:
    """Workers of Dask distributed, known by their scheduler: an address such as "tcp://host:8786", or a Client.

    Raises OSError where nobody answers, ValueError for workers of several threads.
    """

    def __init__(self, scheduler: Any, patience: float = 30.0) -> None:
        distributed = require("distributed")
        self._own = isinstance(scheduler, str)
        self._executor: Any = None
        try:
            self._client = distributed.Client(scheduler, timeout=patience) if self._own else scheduler
            self._client.wait_for_workers(1, timeout=None if not self._own else 10 * patience)
        except (OSError, TimeoutError) as error:
            raise OSError(
                f"no worker responds at the scheduler {scheduler}: {error or 'start one by dask worker'}"
            ) from error
        wide = [a for a, w in self._workers().items() if w["nthreads"] != 1]
        if wide:
            self.close()
            raise ValueError(
                f"the worker {wide[0]} has several threads: start workers with --nthreads 1, one for each processor"
            )
        self._client.register_plugin(_plugin(distributed))
        self._executor = self._client.get_executor(pure=False)
        self._died = distributed.KilledWorker

    def _workers(self) -> Any:
        return self._client.scheduler_info(n_workers=-1)["workers"]

    @property
    def most(self) -> int:
        return AHEAD * max(1, len(self._workers()))

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        return self._executor.submit(job, *arguments)

    def died(self, error: BaseException | None) -> bool:
        return isinstance(error, self._died)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        if self._own:
            self._client.close()


def _plugin(distributed: Any) -> Any:
    """What workers do when they join: one thread for each."""

    class OneThread(distributed.WorkerPlugin):
        name = "trajopt-one-thread"

        def setup(self, worker: Any) -> None:
            os.environ.update(ONE_THREAD)

    return OneThread()


def pool_of(workers: int | None, scheduler: Any) -> Pool:
    """The pool that is asked for; 0 workers: this process. Raises ValueError where both are given."""
    if scheduler is None:
        return Here() if workers == 0 else Processes(workers)
    if workers is not None:
        raise ValueError(
            f"workers = {workers} beside a scheduler: the cluster defines the number of workers; remove one of the two options"
        )
    return Cluster(scheduler)
