"""Thread pool over the knots of all phases: threads take blocks of lanes of any phase."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

NUMBERS_PER_THREAD = 1_000_000
"""Minimum count of numbers written by a thread; work below twice this runs on the calling thread. A number takes 1 to 3 ns, so two
threads would be slower than one, and would prevent the compiled loop that runs an iteration as one call."""


class Work(NamedTuple):
    """Work on ``knots`` knots: call(first, last, workspace) evaluates the knots first to last - 1.

    lanes: knots of a block; ranges begin at a multiple of it. numbers: count of numbers written for a knot. workspace: its length
    in doubles.
    """

    knots: int
    lanes: int
    numbers: int
    workspace: int
    call: Callable[[int, int, np.ndarray], None]


class Pool:
    """Collects work on knots and runs it on threads."""

    def __init__(self) -> None:
        self._work: list[Work] = []

    def add(self, work: Work) -> None:
        """Add work for the next :meth:`run`."""
        self._work.append(work)

    def run(self) -> None:
        """Run all work added since the last run, on several threads if each gets enough (NUMBERS_PER_THREAD), and wait for it.

        Does nothing without work.
        """
        work, self._work = self._work, []
        if not work:
            return
        from dynamics_backends.compiled.interface import over_threads

        ends = np.cumsum([-(-w.knots // w.lanes) for w in work]).tolist()

        def part(first: int, last: int, workspace: np.ndarray) -> None:
            """Run the blocks of lanes ``first`` to ``last`` - 1, counted over all work."""
            for w, begin, end in zip(work, [0, *ends], ends, strict=False):
                start, stop = max(first, begin) - begin, min(last, end) - begin
                if start < stop:
                    w.call(start * w.lanes, min(stop * w.lanes, w.knots), workspace)

        least = _min_blocks(work[0].lanes, work[0].numbers)
        over_threads(part, ends[-1], 1, _workspaces(max(w.workspace for w in work)), least=least)


def numbers_filled(n: int, m: int) -> int:
    """Return the number of entries of A, B, Q, S and R of a knot with n = ndx and m controls."""
    return 2 * n * n + 2 * n * m + m * m


def worth_sharing(blocks: int, lanes: int, numbers: int) -> bool:
    """True if these blocks of knots are divided among threads: there is enough work for two, and more than one is available.

    lanes: knots of a block. numbers: entries written per knot.
    """
    from dynamics_backends.compiled.interface import default_threads

    return blocks >= 2 * _min_blocks(lanes, numbers) and default_threads() > 1


def _min_blocks(lanes: int, numbers: int) -> int:
    """Return the minimum number of blocks of ``lanes`` knots that a thread must get; numbers: entries written per knot."""
    return -(-NUMBERS_PER_THREAD // (lanes * numbers))


@lru_cache(maxsize=16)
def _workspaces(doubles: int) -> Any:
    """Return workspaces of this many doubles, one for each thread; cached by size."""
    from dynamics_backends.compiled.interface import Workspaces

    return Workspaces(doubles)
