"""The memory of seats that take turns on a thread: kernels/seats.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    default_threads,
    find_toolchain,
    load,
    struct_of,
)
from dynamics_backends.protocol import Array
from trajopt.solvers.batch.threads import run_groups

STACK = 1 << 18
"""Bytes of a coroutine's stack: kernels run on the thread's."""
MEMORY = 1 << 30
"""Bytes that the seats of all groups may take; large problems on many processors get fewer seats."""
_LINE = 8

TurnsData = struct_of("turns_t", "seats count:l turn:l serve own busy_back:l busy_ahead:l all_back:l all_ahead:l")


class Use(NamedTuple):
    """How a batch was solved: threads, seats of all, the share of lanes at work in sweeps and roll-outs; whether it was stopped."""

    threads: int
    seats: int
    sweeps: float
    rollouts: float
    stopped: bool = False

    @property
    def told(self) -> dict[str, float]:
        """What the meta of a batch tells of it."""
        return {name: value for name, value in self._asdict().items() if name != "stopped"}

    @property
    def together(self) -> float:
        """Seats of a thread, whose problems take turns: what each took is its share of the time."""
        return self.seats / self.threads


def with_seats(text: str, kernels: Sequence[str]) -> ctypes.CDLL:
    """The library of a solver's text and of those that seat its problems, compiled or from the cache."""
    lanes = f"#ifndef LANES\n#define LANES {find_toolchain().lanes}\n#endif"
    return load(
        "\n".join(["#undef _FORTIFY_SOURCE", text, lanes, *map(_kernel, ("coroutines.h", "seats.h", *kernels))])
    )


@lru_cache(maxsize=8)
def _kernel(name: str) -> str:
    return (files("trajopt.solvers.batch") / "kernels" / name).read_text()


def how_many(total: int, threads: int | None, each: int, own: int, shared: int) -> tuple[int, int]:
    """Groups, one on a thread, and seats of each for ``total`` problems: at most ``each`` for a lane.

    own, shared: bytes of a seat, and of a group.
    """
    groups = min(threads or default_threads(), total)
    room = (MEMORY // groups - shared) // own
    return groups, max(1, min(each * find_toolchain().lanes, -(-total // groups), room))


class Seats:
    """Seats of one thread, and the turns that they take (``data``).

    code: the library of a solver. places: addresses of what it knows of each seat. stack: bytes of that of each.
    """

    def __init__(self, code: ctypes.CDLL, places: Sequence[int], stack: int = STACK) -> None:
        size = bound(code, "seats_size", "i", ctypes.c_long)
        if size(1) != ctypes.sizeof(TurnsData):
            raise RuntimeError("seats.h and seats.py disagree about their structs")
        count = len(places)
        self._seats, self._stacks = aligned(-(-count * size(0) // _LINE)), np.empty(count * stack, np.uint8)
        put = bound(code, "seats_place", "plppl")
        for i, place in enumerate(places):
            put(address(self._seats), i, place, self._stacks.ctypes.data + i * stack, stack)
        self.data = TurnsData(address(self._seats), count)


def run_parts(
    run: Callable[[int], None],
    make: Callable[[Array], Any],
    groups: int,
    seats: int,
    told: Callable[[int], None] | None,
) -> Use:
    """Run a function of C on groups of so many seats, each on a thread, and close them; the account of it.

    make: of the numbers that all share, a group with its ``address``, its ``group`` that has the fields of TurnsData, and
    ``close``.
    """
    parts: list[Any] = []

    def part(shared: Array) -> Any:
        parts.append(make(shared))
        return parts[-1]

    try:
        ran = run_groups(run, part, groups, told)
    finally:
        for made in parts:
            made.close()
    return _used([made.group for made in parts], seats)._replace(stopped=ran.stopped)


def _used(turns: Sequence[Any], seats: int) -> Use:
    """The account of groups of so many seats, of the TurnsData of each."""
    shares = []
    for of in ("back", "ahead"):
        busy, every = (sum(getattr(t, f"{name}_{of}") for t in turns) for name in ("busy", "all"))
        shares.append(busy / max(every, 1))
    return Use(len(turns), len(turns) * seats, *shares)
