"""A batch by single solves in processes: for solvers that have no lanes.

The first problem is solved here, which compiles what is missing and tells what a solve takes; where the others would take little
time, or the problem cannot be sent to another process, they are solved here too, one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import default_threads
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.batch.batch import Batch
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.registry import solve

WORTH = 3.0
"""[s] of work from which on processes, which take about one to start, are worth it."""
_ONE_THREAD = dict.fromkeys(("TRAJOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
NOT_BEGUN = Status(StatusCode.INTERRUPTED, "Interrupted before this problem was begun; it has no trajectory.")


class Work:
    """The problems of a batch, solved by number; what processes are sent. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu)."""

    def __init__(self, batch: Batch, guess: tuple[Array, Array], solver: str, options: Any) -> None:
        self.batch, self.guess, self.solver, self.options = batch, guess, solver, options

    def __call__(self, i: int, stopped: Callable[[], bool] = lambda: False) -> Solution:
        def told(_: Any) -> None:
            if stopped():
                raise KeyboardInterrupt

        guess = Guess(*(rows[i if len(rows) == len(self.batch) else 0] for rows in self.guess))
        found = solve(self.batch[i], guess, self.options, told, self.solver, check=False)
        return replace(found, history=(), model=None)  # neither is asked for, and both would have to be sent


def in_processes(
    batch: Batch,
    guess: tuple[Array, Array],
    options: Any,
    solver: str,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
) -> BatchSolution:
    """Solve a batch by single solves."""
    work, n, began = Work(batch, guess, solver, options), len(batch), time.perf_counter()
    found: dict[int, Solution] = {}
    tell = told or (lambda done: None)
    workers = min(threads or default_threads(), max(n - 1, 1))
    how = "one after the other"
    try:
        found[0] = work(0)
        tell(1)
        first = float(found[0].meta["solve_time"])
        if found[0].status.code is StatusCode.INTERRUPTED:
            raise KeyboardInterrupt
        sent = _sendable(work) if workers > 1 and first * (n - 1) > WORTH else None
        if sent is not None:
            how = f"{workers} processes"
        solved = _here(work, n) if sent is None else _there(sent, n, workers)
        for i, solution in solved:
            found[i] = solution
            tell(len(found))
    except KeyboardInterrupt:
        pass
    meta = {"seconds": time.perf_counter() - began, "how": how}
    return _gathered(batch, found, gains=gains, meta=meta)


def _here(work: Work, n: int) -> Iterator[tuple[int, Solution]]:
    for i in range(1, n):
        solution = work(i)
        yield i, solution
        if solution.status.code is StatusCode.INTERRUPTED:
            raise KeyboardInterrupt


def _there(sent: bytes, n: int, workers: int) -> Iterator[tuple[int, Solution]]:
    """The others, in the order in which they are solved; Ctrl-C ends those that are being solved after their iteration."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with _environment(_ONE_THREAD):
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_take_up, initargs=(sent, stop))
        futures: dict[Future, int] = {pool.submit(_solved, i): i for i in range(1, n)}
    left = set(futures)
    try:
        for future in as_completed(futures):
            left.discard(future)
            yield futures[future], future.result()
    except (KeyboardInterrupt, GeneratorExit):
        stop.set()
        for future in left:
            future.cancel()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_work: dict[str, Any] = {}
"""In a process of the pool: what was sent."""


def _take_up(sent: bytes, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    os.environ.update(_ONE_THREAD)
    _work.update(work=pickle.loads(sent), stop=stop)


def _solved(i: int) -> Solution:
    found: Solution = _work["work"](i, _work["stop"].is_set)
    return found


def _sendable(work: Work) -> bytes | None:
    """The work as bytes; None for problems that hold functions of no module."""
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes which are started inside see."""
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


def _gathered(batch: Batch, found: Mapping[int, Solution], *, gains: bool, meta: Mapping[str, Any]) -> BatchSolution:
    """Solutions by number as arrays; what is missing was not begun."""
    ocp, n = batch.ocp, len(batch)
    N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
    xs, us, cost = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan), np.full(n, np.nan)
    iterations, status = np.zeros(n, int), [NOT_BEGUN] * n
    K, k = (np.zeros((n, N, nu, ndx)), np.zeros((n, N, nu))) if gains else (None, None)
    for i, s in found.items():
        xs[i], us[i], cost[i], iterations[i], status[i] = s.xs, s.us, s.cost, s.iterations, s.status
        if K is not None and k is not None:
            K[i], k[i] = s.K, s.k
    times = [found[i].meta.get("solve_time", np.nan) if i in found else np.nan for i in range(n)]
    return BatchSolution(xs, us, cost, iterations, tuple(status), batch.times(), K, k, {**meta, "solve_times": times})
