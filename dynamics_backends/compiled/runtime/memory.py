"""Memory and threads for compiled code: aligned workspaces, addresses, ranges of knots."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dynamics_backends import environment

Array = np.ndarray
ALIGNMENT = 64
KNOTS_PER_THREAD = 64
"""Batches below twice this size run on the calling thread, for any time per knot."""
SECONDS_PER_THREAD = 2e-3
"""[s] Work shorter than twice this time runs on the calling thread: starting a thread can take milliseconds on a busy machine."""


def aligned(doubles: int) -> Array:
    """Zeroed array of doubles aligned to 64 bytes, as SIMD vectors need."""
    raw = np.zeros(doubles + ALIGNMENT // 8)
    return raw[(-raw.ctypes.data % ALIGNMENT) // 8 :][:doubles]


_C_TYPES = {"p": ctypes.c_void_p, "l": ctypes.c_long, "i": ctypes.c_int, "d": ctypes.c_double}


def bound(library: ctypes.CDLL, name: str, arguments: str, returns: type | None = None) -> Callable[..., Any]:
    """Function of a library with its argument types set: p pointer (an address), l long, i int, d double."""
    function = getattr(library, name)
    function.argtypes = [_C_TYPES[c] for c in arguments.replace(" ", "")]
    function.restype = returns
    return function


def address(array: Array) -> int:
    """Address of an array's data."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # faster than the array's own attributes
    except (TypeError, ValueError):  # read-only, strided or empty
        return array.__array_interface__["data"][0]


def code_of(function: Any) -> int | None:
    """Address of a function of a library."""
    return ctypes.cast(function, ctypes.c_void_p).value


def pointers(arrays: Sequence[Array]) -> ctypes.Array:
    """C array of the addresses of arrays."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*[address(a) for a in arrays])


def default_threads() -> int:
    """Return TRAJOPT_THREADS, or the number of processors. Raises InputError for a wrong value of the variable."""
    return environment.threads() or processors()


@lru_cache(maxsize=1)
def processors() -> int:
    """Number of processors that this process may use, cached because the system call takes longer than a small kernel."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (len(allowed(0)) if allowed else os.cpu_count()) or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="trajopt")


if hasattr(os, "register_at_fork"):  # a forked process has no threads: it makes a new pool
    os.register_at_fork(after_in_child=_pool.cache_clear)


def ranges(knots: int, lanes: int, threads: int, least: int = KNOTS_PER_THREAD) -> list[tuple[int, int]]:
    """Split knots into ranges (first, last) for the threads: whole lane blocks, at least ``least`` knots each."""
    blocks = -(-knots // lanes)
    count = max(1, min(threads, knots // least, blocks))
    cuts = [min(knots, lanes * (blocks * i // count)) for i in range(count + 1)]
    return list(pairwise(cuts))


class Workspaces:
    """Workspaces of one size: the i-th serves the i-th range of knots, and each calling thread has separate ones."""

    def __init__(self, doubles: int) -> None:
        self.doubles = doubles
        self._mine = threading.local()

    def __getitem__(self, i: int) -> Array:
        workspaces = self._mine.__dict__.setdefault("workspaces", [])
        while len(workspaces) <= i:
            workspaces.append(aligned(self.doubles))
        return workspaces[i]


def over_threads(
    work: Callable[[int, int, Array], None],
    knots: int,
    lanes: int,
    workspaces: Workspaces,
    threads: int | None = None,
    *,
    least: int = KNOTS_PER_THREAD,
) -> None:
    """Call work(first, last, workspace) for ranges of knots that cover all knots, on several threads where that is faster.

    threads: number of threads, each with at least ``least`` knots; default at most :func:`default_threads`, each with
    SECONDS_PER_THREAD of work.  The calling thread then evaluates the first knots, and its processor time predicts the rest.
    """
    done, count = 0, threads or default_threads()
    if threads is None and min(count, knots // least, -(-knots // lanes)) > 1:
        began, done = time.thread_time(), lanes * max(1, least // (4 * lanes))
        work(0, done, workspaces[0])
        left = (time.thread_time() - began) * (knots - done) / done
        count = max(1, min(count, int(left / SECONDS_PER_THREAD)))
    parts = [(done + first, done + last) for first, last in ranges(knots - done, lanes, count, least)]
    if len(parts) == 1:
        work(*parts[0], workspaces[0])
        return
    futures: list[Future] = []
    try:
        for i, (first, last) in enumerate(parts):
            futures.append(_pool().submit(work, first, last, workspaces[i]))
        for future in futures:
            future.result()
    finally:
        _settle(futures)


def _settle(futures: Sequence[Future]) -> None:
    """Wait for all futures despite interrupts: arrays must not be freed while compiled code still writes to them."""
    interrupt: KeyboardInterrupt | None = None
    while any(not future.done() for future in futures):
        try:
            wait(futures)
        except KeyboardInterrupt as again:
            interrupt = again
    if interrupt is not None:
        raise interrupt
