"""Work on the knots of several phases that is done at the same time: threads take blocks of lanes of any phase."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

NUMBERS_PER_THREAD = 1_000_000
"""Work that fills fewer numbers than twice this is done on the calling thread. A number takes 1 to 3 ns; below this two threads are
slower than one, and cost the iteration that is one call."""


class Work(NamedTuple):
    """call(first, last, room) for ranges of ``knots``, in blocks of ``lanes``.

    numbers: that a knot fills. room: doubles of workspace.
    """

    knots: int
    lanes: int
    numbers: int
    room: int
    call: Callable[[int, int, np.ndarray], None]


class Pool:
    """Collects work, and does it."""

    def __init__(self) -> None:
        self._work: list[Work] = []

    def add(self, work: Work) -> None:
        """To be done in :meth:`run`."""
        self._work.append(work)

    def run(self) -> None:
        """Do what was added."""
        work, self._work = self._work, []
        if not work:
            return
        from dynamics_backends.compiled.interface.libraries import over_threads

        ends = np.cumsum([-(-w.knots // w.lanes) for w in work]).tolist()

        def part(first: int, last: int, room: np.ndarray) -> None:
            for w, begin, end in zip(work, [0, *ends], ends, strict=False):
                start, stop = max(first, begin) - begin, min(last, end) - begin
                if start < stop:
                    w.call(start * w.lanes, min(stop * w.lanes, w.knots), room)

        least = _least(work[0].lanes, work[0].numbers)
        over_threads(part, ends[-1], 1, _rooms(max(w.room for w in work)), least=least)


def numbers_filled(n: int, m: int) -> int:
    """Numbers of the first derivatives of a knot with n = ndx and m controls."""
    return 2 * n * n + 2 * n * m + m * m


def worth_sharing(blocks: int, lanes: int, numbers: int) -> bool:
    """True if blocks of knots that fill so many numbers each go to more than one thread."""
    from dynamics_backends.compiled.interface.libraries import default_threads

    return blocks >= 2 * _least(lanes, numbers) and default_threads() > 1


def _least(lanes: int, numbers: int) -> int:
    """Blocks for a thread."""
    return -(-NUMBERS_PER_THREAD // (lanes * numbers))


@lru_cache(maxsize=16)
def _rooms(doubles: int) -> Any:
    from dynamics_backends.compiled.interface.libraries import Rooms

    return Rooms(doubles)
