"""Worker processes, and jobs that run again if a worker dies.

If a worker dies, its jobs run a second time. Jobs whose worker dies again run alone at the end, and are halved until the row that
kills its worker is found.
"""

from __future__ import annotations

import multiprocessing
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from dynamics_backends.deferred import deferred

loky: Any = deferred("loky") if find_spec("loky") else None
ONE_THREAD = dict.fromkeys(("TRAJOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables that limit each worker process to one thread."""


class Pool(Protocol):
    """Pool of workers. max_jobs: maximum number of unfinished jobs. submit: starts a job, and returns its future."""

    @property
    def max_jobs(self) -> int:
        """Maximum number of unfinished jobs."""

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        """Start a job, a function and its arguments, and return its future."""

    def died(self, error: BaseException | None) -> bool:
        """True if a job failed because a worker was killed; the pool is usable again afterwards.

        error: exception of the job, None for a job that did not fail (False).
        """

    def close(self) -> None:
        """Stop the workers, or disconnect from them, even while they work."""


class Processes(ABC):
    """Processes on this machine, each with one thread: of loky, which does not import the main script, else spawned by Python."""

    def __init__(self, count: int, max_jobs: int) -> None:
        self._count, self.max_jobs = count, max_jobs
        self._executor = self._start_executor()

    @abstractmethod
    def _initialization(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return a function that each process calls at its start, and its arguments."""

    def _start_executor(self) -> Any:
        """Return a new executor, which starts processes as jobs arrive."""
        initializer, arguments = self._initialization()
        given: dict[str, Any] = {"initializer": initializer, "initargs": arguments}
        if loky is not None:
            return loky.ProcessPoolExecutor(self._count, env=ONE_THREAD, **given)
        return ProcessPoolExecutor(self._count, multiprocessing.get_context("spawn"), **given)

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        """Start a job in a process, and return its future."""
        with _environment(ONE_THREAD):  # for processes that Python starts now
            return self._executor.submit(job, *arguments)

    def died(self, error: BaseException | None) -> bool:
        """True if a job failed because a process was killed; then also starts new processes if the executor is broken.

        error: exception of the job, None for a job that did not fail (False).
        """
        if not isinstance(error, BrokenExecutor):
            return False
        try:
            self.submit(int)
        except BrokenExecutor:
            self.close()
            self._executor = self._start_executor()
        return True

    def close(self) -> None:
        """End the processes after their running jobs."""
        self._executor.shutdown(wait=True)


def run_jobs(pool: Pool, job: Callable[[range], Any], jobs: Sequence[range]) -> Iterator[tuple[range, Any]]:
    """Call ``job`` for each range of rows, and yield rows and results as they arrive; None for a row whose workers died.

    A range whose worker dies runs again. If its worker dies again, the range runs alone after all others. If the worker dies even
    then, the range is halved, and its halves run alone in the same way.
    """
    waiting, suspects, again = deque(jobs), deque[range](), set[range]()
    running: dict[Future, range] = {}
    while waiting or running:
        while waiting and len(running) < pool.max_jobs:
            rows = waiting.popleft()
            running[_submitted(pool, job, rows)] = rows
        done = wait(running, return_when=FIRST_COMPLETED).done
        for future in sorted(done, key=lambda f: running[f].start):
            rows = running.pop(future)
            if not pool.died(future.exception()):
                yield rows, future.result()
            elif rows in again:
                suspects.append(rows)
            else:
                again.add(rows)
                waiting.append(rows)
    while suspects:
        rows = suspects.popleft()
        future = _submitted(pool, job, rows)
        if not pool.died(future.exception()):
            yield rows, future.result()
        elif len(rows) == 1:
            yield rows, None
        else:
            suspects.extend((rows[: len(rows) // 2], rows[len(rows) // 2 :]))


def _submitted(pool: Pool, job: Callable[[range], Any], rows: range) -> Future:
    """Submit a job and return its future. If workers died, the pool restarts and the job is submitted again; lost jobs are reported
    by their futures. Other errors of the pool are raised.
    """
    while True:
        try:
            return pool.submit(job, rows)
        except Exception as error:
            if not pool.died(error):
                raise


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Context manager that sets environment variables for processes started inside, and restores them at the end."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
