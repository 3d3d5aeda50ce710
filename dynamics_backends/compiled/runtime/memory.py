"""Data and threads for compiled code: structs as ctypes classes, aligned workspaces, addresses, ranges of knots.

The classes of structs are parsed from the C headers that declare them.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np

from dynamics_backends import environment

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_STRUCT = re.compile(r"typedef struct \{([^{}]*)\} (\w+);")
_NUMBER = re.compile(r"#define (\w+) (\d+)\b")
_FUNCTION = re.compile(r"\(\*(\w+)\)\(")
_MEMBER = re.compile(r"\s*(?:const |signed |unsigned )*(\w+)\s+(.*)", re.S)
_DECLARATOR = re.compile(r"\s*((?:\*|const|\s)*)(\w+)(?:\[(\w+)\])?\s*$")
_CODES = {ctypes.c_void_p: "P", ctypes.c_double: "d", ctypes.c_long: "l", ctypes.c_int: "i"}
_NUMBERS: dict[str, Any] = {"double": ctypes.c_double, "long": ctypes.c_long, "int": ctypes.c_int}


def structs_in(text: str, *names: str) -> Iterator[Any]:
    """Yield the named structs of a C text as ctypes classes; pointers are addresses.

    Members of nested structs and arrays get composed names: points_0_xs is member xs of points[0]. Setting an unknown member raises
    AttributeError. Raises KeyError for an unknown struct or type.
    """
    text = _COMMENT.sub("", text)
    bodies, numbers = {name: body for body, name in _STRUCT.findall(text)}, dict(_NUMBER.findall(text))
    for name in names:
        yield type(name, (ctypes.Structure,), {"__slots__": (), "_fields_": list(_members(bodies, numbers, name, ""))})


def packing(struct: type[ctypes.Structure]) -> Struct:
    """Packing of the members of a struct from :func:`structs_in`, in their order."""
    return Struct("".join(_CODES[field[1]] for field in struct._fields_))


def _members(
    bodies: Mapping[str, str], numbers: Mapping[str, str], struct: str, prefix: str
) -> Iterator[tuple[str, Any]]:
    """Yield names and ctypes of a struct's members, nested ones with composed names."""
    for member in filter(str.strip, bodies[struct].split(";")):
        if function := _FUNCTION.search(member):
            yield prefix + function[1], ctypes.c_void_p
            continue
        kind, declarators = _MEMBER.match(member).groups()  # type: ignore[union-attr]
        for declarator in declarators.split(","):
            stars, name, count = _DECLARATOR.match(declarator).groups()  # type: ignore[union-attr]
            places = [name] if count is None else [f"{name}_{i}" for i in range(int(numbers.get(count, count)))]
            for place in places:
                if "*" in stars:
                    yield prefix + place, ctypes.c_void_p
                elif kind in _NUMBERS:
                    yield prefix + place, _NUMBERS[kind]
                else:
                    yield from _members(bodies, numbers, kind, f"{prefix}{place}_")


Array = np.ndarray
ALIGNMENT = 64
KNOTS_PER_THREAD = 64
"""Batches below twice this size run on the calling thread, for any time per knot."""
SECONDS_PER_THREAD = 2e-3
"""[s] If :func:`over_threads` chooses the number of threads, remaining work of less than twice this time stays on the calling
thread: starting a thread can take milliseconds on a busy machine.
"""


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
    """C array of the addresses of arrays; one NULL if there are none."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*[address(a) for a in arrays])


def default_threads() -> int:
    """Return TRAJOPT_THREADS, or the number of processors if it is unset or 0. Raises InputError for a wrong value."""
    return environment.threads() or processors()


@lru_cache(maxsize=1)
def processors() -> int:
    """Number of processors that this process may use, cached because the system call takes longer than a small kernel."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (len(allowed(0)) if allowed else os.cpu_count()) or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Thread pool of the process, with a thread for each processor."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="trajopt")


if hasattr(os, "register_at_fork"):  # a forked process has no threads: it makes a new pool
    os.register_at_fork(after_in_child=_pool.cache_clear)


def ranges(knots: int, lanes: int, threads: int, least: int = KNOTS_PER_THREAD) -> list[tuple[int, int]]:
    """Split knots into at most ``threads`` and at most knots // least ranges (first, last) of nearly equal size, last excluded.

    There is at least one range. Each but the last consists of whole blocks of ``lanes`` knots.
    """
    blocks = -(-knots // lanes)
    count = max(1, min(threads, knots // least, blocks))
    cuts = [min(knots, lanes * (blocks * i // count)) for i in range(count + 1)]
    return list(pairwise(cuts))


class Workspaces:
    """Workspaces of ``doubles`` numbers: the i-th serves the i-th range of knots, and each calling thread has separate ones."""

    def __init__(self, doubles: int) -> None:
        self.doubles = doubles
        self._mine = threading.local()

    def __getitem__(self, i: int) -> Array:
        """Workspace i of the calling thread, allocated at its first use; workspaces begin as zeros and are reused."""
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
    """Call work(first, last, workspace), last excluded, for ranges that cover all knots, on several threads where that is faster.

    lanes: knots that compiled code evaluates together. threads: maximum number of threads, each with about ``least`` knots or more;
    default :func:`default_threads`, each also with SECONDS_PER_THREAD of work. By default, with enough knots for two threads, the
    calling thread first evaluates some knots, and its processor time predicts the time of the rest.
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
    """Wait for all futures despite interrupts, then raise the last KeyboardInterrupt, if any.

    Arrays must not be freed while compiled code still writes to them.
    """
    interrupt: KeyboardInterrupt | None = None
    while any(not future.done() for future in futures):
        try:
            wait(futures)
        except KeyboardInterrupt as again:
            interrupt = again
    if interrupt is not None:
        raise interrupt
