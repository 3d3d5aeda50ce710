"""Worker pools of a study: processes of this machine (loky), a Dask cluster, or this process.

Each worker is a process with one thread, so rows run in parallel. Pools return futures of concurrent.futures. If a worker dies,
its futures raise an error for which ``died`` is true.
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
from trajopt.sweeps.stored import require

JOBS_PER_WORKER = 2
"""Jobs queued per worker, so that no worker waits for its next job."""


class Pool(Protocol):
    """Pool of workers. max_jobs: maximum number of unfinished jobs. submit: starts a job, and returns its future."""

    @property
    def max_jobs(self) -> int: ...

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future: ...

    def died(self, error: BaseException | None) -> bool:
        """True if a job failed because a worker was killed; the pool is usable again afterwards."""
        ...

    def close(self) -> None:
        """Stop the workers, or disconnect from them, even while they work."""
        ...


class InProcess:
    """Run jobs in this process, one after the other. A crash in C code ends the study."""

    max_jobs = 1

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        future: Future = Future()
        future.set_result(job(*arguments))
        return future

    def died(self, error: BaseException | None) -> bool:
        return False

    def close(self) -> None:
        pass


class Processes:
    """Worker processes on this machine; default: one for each processor available to this process."""

    def __init__(self, count: int | None = None) -> None:
        self._loky = require("loky")
        self._count = count or self._loky.cpu_count()
        self.max_jobs = JOBS_PER_WORKER * self._count
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
    """Initialize a worker process: ignore Ctrl-C, which the parent handles, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Cluster:
    """Workers of Dask distributed. scheduler: an address such as "tcp://host:8786", or a Client.

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
    def max_jobs(self) -> int:
        return JOBS_PER_WORKER * max(1, len(self._workers()))

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
    """Return a Dask plugin that limits each worker to one thread."""

    class OneThread(distributed.WorkerPlugin):
        name = "trajopt-one-thread"

        def setup(self, worker: Any) -> None:
            os.environ.update(ONE_THREAD)

    return OneThread()


def pool_of(workers: int | None, scheduler: Any) -> Pool:
    """Return the pool for these options; 0 workers: this process. Raises ValueError if both options are set."""
    if scheduler is None:
        return InProcess() if workers == 0 else Processes(workers)
    if workers is not None:
        raise ValueError(
            f"workers = {workers} and a scheduler: the cluster defines the number of workers; remove one of the two options"
        )
    return Cluster(scheduler)
