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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from dynamics_backends.compiled.runtime.memory import default_threads
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch.interrupts import raising
from trajopt.solvers.batch.solution import BatchSolution, gathered, guess_of
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.solve import solve

loky: Any = deferred("loky") if find_spec("loky") else None
WORTH = 3.0
"""Minimum work [s] that justifies processes, which take about 1 s to start."""
ONE_THREAD = dict.fromkeys(("TRAJOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables that limit each worker process to one thread."""


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
    with suppress(KeyboardInterrupt), raising():
        for i, solution in _in_turn(work, range(n)):
            found[i] = solution
            report(len(found))
            if isinstance(solution, Solution):
                if solution.status.code is StatusCode.INTERRUPTED:
                    raise KeyboardInterrupt
                break
        rest = range(len(found), n)
        first = max(map(_seconds, found.values()), default=0.0)
        workers = min(threads or default_threads(), max(len(rest), 1))
        pool = None
        if workers > 1 and first * len(rest) > WORTH and not _is_worker():
            pool = _Pool.start(work, workers)
        if pool is not None:
            how = f"{workers} processes"
        for i, solution in _in_turn(work, rest) if pool is None else pool.solved(rest):
            found[i] = solution
            report(len(found))
        stopped = False
    if work.error is not None and not any(isinstance(s, Solution) for s in found.values()) and len(found) == n:
        raise work.error
    meta = {"seconds": time.perf_counter() - began, "how": how, "stopped": stopped}
    return gathered(batch, found, gains=gains, meta=meta)


def _in_turn(work: Work, numbers: Iterable[int]) -> Iterator[tuple[int, Solution | Status]]:
    """Solve problems one after the other in this process, and yield number and solution, or error status.

    Raises KeyboardInterrupt after yielding an interrupted solution.
    """
    for i in numbers:
        solution = work.tried(i)
        yield i, solution
        if isinstance(solution, Solution) and solution.status.code is StatusCode.INTERRUPTED:
            raise KeyboardInterrupt


def _seconds(solution: Solution | Status) -> float:
    """Return the solve time of a solution [s]; 0 for a status."""
    return float(solution.meta["solve_time"]) if isinstance(solution, Solution) else 0.0


def _is_worker() -> bool:
    """True in a process that multiprocessing started; such a process solves one problem after the other.

    Raises RuntimeError while a spawned process still imports its main script, which would start the batch again and again.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError("a script that solves in processes needs: if __name__ == '__main__':")
    return multiprocessing.parent_process() is not None


class _Pool:
    """Pool of processes that solve problems of a batch: from loky, which does not import the main script, else from Python.

    The pool has at most one running problem per process. If a process dies, the executor loses all running problems; the pool
    then repeats each of them alone.
    """

    def __init__(self, sent: bytes, workers: int) -> None:
        self._sent, self._workers = sent, workers
        self._pool: Any = None
        self._stop: Any = None

    @classmethod
    def start(cls, work: Work, workers: int) -> _Pool | None:
        """Start a pool and test one process; return None if the work cannot be pickled, unpickled or no process can start."""
        try:
            sent = _dumps(work)
        except (pickle.PicklingError, AttributeError, TypeError, ValueError):  # ctypes raises ValueError
            return None
        self = cls(sent, workers)
        try:
            self._start_workers()
            self._pool.submit(_has_work).result()
        except KeyboardInterrupt:
            self._end()
            raise
        except Exception:  # any failure to unpickle the work
            self._end()
            return None
        return self

    def _start_workers(self) -> None:
        """Start the executor, by loky if it is installed, else with spawned processes, each on one thread, and its stop event."""
        with _environment(ONE_THREAD):
            if loky is None:
                context = multiprocessing.get_context("spawn")
                self._stop = context.Event()
                given: dict[str, Any] = {"mp_context": context}
                kind: Any = ProcessPoolExecutor
            else:
                self._stop, given, kind = loky.backend.get_context("loky").Event(), {}, loky.ProcessPoolExecutor
            self._pool = kind(self._workers, initializer=_initialize_worker, initargs=(self._sent, self._stop), **given)

    def _end(self) -> None:
        """Shut the executor down, if there is one, and wait for its processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def solved(self, numbers: Iterable[int]) -> Iterator[tuple[int, Solution | Status]]:
        """Yield problem numbers with solutions or error statuses, in the order of completion.

        Problems that ran when a process died are repeated alone; one that then kills its process gets an error status. Ctrl-C stops
        running solves after their current iteration and is raised.
        """
        left, suspects = deque(numbers), deque[int]()
        running: dict[Future, int] = {}
        try:
            while left or suspects or running:
                alone = bool(suspects)
                source, most = (suspects, 1) if alone else (left, self._workers)
                with _environment(ONE_THREAD), suppress(BrokenExecutor):  # running problems report it
                    while source and len(running) < most:
                        running[self._pool.submit(_solved, source[0])] = source[0]
                        source.popleft()
                if not running:  # an idle process died
                    self._end()
                    self._start_workers()
                    continue
                done = wait(running, return_when=FIRST_COMPLETED).done
                broken = [future for future in done if isinstance(future.exception(), BrokenExecutor)]
                if broken:
                    wait(running)
                    done = set(running)
                for future in sorted(done, key=running.__getitem__):
                    i = running.pop(future)
                    if not isinstance(future.exception(), BrokenExecutor):
                        yield i, future.result()
                    elif alone:
                        yield i, termination.process_died()
                    else:
                        suspects.append(i)
                if broken:
                    self._end()
                    self._start_workers()
        except (KeyboardInterrupt, GeneratorExit):
            self._stop.set()
            raise
        finally:
            self._end()


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


def _solved(i: int) -> Solution | Status:
    """Solve problem i in a worker process, until the stop event is set; returns an error status after an exception."""
    found: Solution | Status = _work["work"].tried(i, _work["stop"].is_set)
    return found


def _dumps(work: Work) -> bytes:
    """Pickle the work; with loky by cloudpickle, which also pickles functions and classes of scripts."""
    if loky is None:
        return pickle.dumps(work)
    sent: bytes = importlib.import_module("cloudpickle").dumps(work)
    return sent


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
