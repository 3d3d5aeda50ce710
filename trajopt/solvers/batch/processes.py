"""Batches by single solves in worker processes, for solvers without SIMD lanes.

The calling process solves the first problem, which compiles missing code and measures the time of a solve. It also solves the
others, one after the other, if they would take little time or cannot be pickled, or with one thread. A problem that raises an
exception, or whose process dies, gets an error status. An exception is raised only if all problems raise one.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

from dynamics_backends.compiled.runtime.memory import default_threads
from dynamics_backends.protocol import Array
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch import worker_pool
from trajopt.solvers.batch.interrupts import raising
from trajopt.solvers.batch.solution import BatchSolution, gathered, guess_of
from trajopt.solvers.batch.worker_pool import ONE_THREAD, Processes, run_jobs
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.solve import solve

WORTH = 3.0
"""Minimum work [s] that justifies processes, which take about 1 s to start."""


class Work:
    """Batch with its solver and guess, as sent to worker processes. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu)."""

    def __init__(
        self, batch: Batch, guess: tuple[Array, Array], solver: str, options: Any, max_iterations: Array | None = None
    ) -> None:
        self.batch, self.guess, self.solver, self.options = batch, guess, solver, options
        self.max_iterations = max_iterations  # (n,), or None for that of the options
        self.error: Exception | None = None  # the last one that was raised in this process

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"batch": _without_goals(self.batch), "error": None}

    def tried(self, i: int, stopped: Callable[[], bool] = lambda: False) -> Solution | Status:
        """Solve problem i; return its solution, or an error status if an exception was raised, which is stored in ``error``.

        stopped: called after each iteration; stops the solve if it returns True.
        """
        try:
            return self(i, stopped)
        except Exception as error:
            self.error = error
            return termination.error(error)

    def __call__(self, i: int, stopped: Callable[[], bool] = lambda: False) -> Solution:
        """Solve problem i without checks; return the solution without history, model and annotations.

        ``stopped``, called after each iteration, stops the solve if it returns True.
        """

        def on_finished(_: Any) -> None:
            """Raise KeyboardInterrupt after an iteration if ``stopped`` returns True."""
            if stopped():
                raise KeyboardInterrupt

        guess, limits = guess_of(self.guess, i, len(self.batch)), self.max_iterations
        options = self.options if limits is None else replace(self.options, max_iterations=int(limits[i]))
        found = solve(self.batch[i], guess, options, on_finished, self.solver, check=False)
        return replace(found, history=(), model=None, annotations=None)  # not needed, and costly to pickle


def _without_goals(batch: Batch) -> Batch:
    """Copy a batch without its goals, for pickling."""
    # solves with check=False read no goals, and goals may be local functions, which cannot be pickled
    other = copy(batch)
    other.ocp = replace(batch.ocp, goals=())
    other.members = None if batch.members is None else [replace(m, goals=()) for m in batch.members]
    return other


def in_processes(
    batch: Batch,
    guess: tuple[Array, Array],
    options: Any,
    solver: str,
    *,
    gains: bool,
    threads: int | None,
    on_finished: Callable[[int], None] | None,
    max_iterations: Array | None = None,
) -> BatchSolution:
    """Solve a batch by single solves: the first here, the rest in worker processes if that saves time and they can be pickled.

    The first one is repeated with the next problem until a solve raises no exception. Processes, at most ``threads``, start if
    the rest would take more than WORTH seconds one after the other, judging by the first. max_iterations (n,) overrides the limit
    of the options. Ctrl-C returns the finished solutions, with meta["stopped"] = True. Raises the last exception if every problem
    raised one.
    """
    work, n, began = Work(batch, guess, solver, options, max_iterations), len(batch), time.perf_counter()
    found: dict[int, Solution | Status] = {}
    report = on_finished or (lambda done: None)
    how, stopped = "one after the other", True

    def store(i: int, solution: Solution | Status) -> None:
        """Store a solution or error status and report the number of finished problems; Ctrl-C in its solve is raised."""
        found[i] = solution
        report(len(found))
        if isinstance(solution, Solution) and solution.status.code is StatusCode.INTERRUPTED:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), raising():
        for i in range(n):
            store(i, work.tried(i))
            if isinstance(found[i], Solution):
                break
        rest = range(len(found), n)
        first = max((s.meta["solve_time"] for s in found.values() if isinstance(s, Solution)), default=0.0)
        workers = min(threads or default_threads(), max(len(rest), 1))
        worth = workers > 1 and first * len(rest) > WORTH and not _is_worker()
        pool = _started(work, workers) if worth else None
        if pool is not None:
            how = f"{workers} processes"
        for i, solution in ((i, work.tried(i)) for i in rest) if pool is None else pool.solved(rest):
            store(i, solution)
        stopped = False
    if work.error is not None and not any(isinstance(s, Solution) for s in found.values()) and len(found) == n:
        raise work.error
    meta = {"seconds": time.perf_counter() - began, "how": how, "stopped": stopped}
    return gathered(batch, found, gains=gains, meta=meta)


def _is_worker() -> bool:
    """True in a process that multiprocessing started; such a process solves one problem after the other.

    Raises RuntimeError while a spawned process still imports its main script, which would start the batch again and again.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError("a script that solves in processes needs: if __name__ == '__main__':")
    return multiprocessing.parent_process() is not None


class _Solvers(Processes):
    """Processes that solve problems of a batch; at most one running problem in each.

    stop: event that ends running solves after their current iteration.
    """

    def __init__(self, sent: bytes, count: int) -> None:
        self._sent = sent
        super().__init__(count, count)

    def _initialization(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return the function that stores the work, with the work and a new stop event."""
        loky = worker_pool.loky
        self.stop = (multiprocessing.get_context("spawn") if loky is None else loky.backend.get_context("loky")).Event()
        return _initialize_worker, (self._sent, self.stop)

    def solved(self, numbers: Iterable[int]) -> Iterator[tuple[int, Solution | Status]]:
        """Yield problem numbers with solutions or error statuses, in the order of completion; then end the processes.

        A problem that kills its processes gets an error status. Ctrl-C stops running solves after their current iteration and is
        raised.
        """
        try:
            for (i,), solution in run_jobs(self, _solved, [range(i, i + 1) for i in numbers]):
                yield i, termination.process_died() if solution is None else solution
        except (KeyboardInterrupt, GeneratorExit):
            self.stop.set()
            raise
        finally:
            self.close()


def _started(work: Work, count: int) -> _Solvers | None:
    """Start processes and test one; return None if the work cannot be pickled, unpickled or no process can start."""
    try:
        pool = _Solvers(_dumps(work), count)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError):  # ctypes raises ValueError
        return None
    try:
        pool.submit(_has_work).result()
    except BaseException as error:
        pool.close()
        if isinstance(error, Exception):  # any failure to unpickle the work
            return None
        raise
    return pool


_work: dict[str, Any] = {}
"""The work and the stop event, in a process of the pool."""


def _initialize_worker(sent: bytes, stop: Any) -> None:
    """Initialize a worker process: ignore Ctrl-C, use one thread, and store the batch and the stop event."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    os.environ.update(ONE_THREAD)
    _work.update(work=pickle.loads(sent), stop=stop)


def _has_work() -> bool:
    """True in a worker process whose initialization has stored the work."""
    return "work" in _work


def _solved(rows: range) -> Solution | Status:
    """Solve the problem of one row in a worker process, until the stop event is set; return an error status after an exception."""
    return _work["work"].tried(rows[0], _work["stop"].is_set)


def _dumps(work: Work) -> bytes:
    """Pickle the work; with loky by cloudpickle, which also pickles functions and classes of scripts."""
    if worker_pool.loky is None:
        return pickle.dumps(work)
    return importlib.import_module("cloudpickle").dumps(work)
