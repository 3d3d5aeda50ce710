"""The least of many distances along a motion, by few of them.

A distance d of convex bodies a and b is that of two planes with a normal n, from a to b, which touch them. The distance of the
planes with the same normal that touch them at another time is a lower bound of the distance then. As b sees it, and a is held by a
box with center c and half edges h along axes e_j that turn with it,

    d(t) >= d - n'(c(t) - c) - sum_j h_j |n'(e_j(t) - e_j)|

(directional motion bounds: X. Zhang, M. Lee, Y. J. Kim, Interactive continuous collision detection for non-convex polyhedra, The
Visual Computer 22, 2006), so that a body that slides along another one is looked at seldom. What is not convex may move by n
in any direction. The next look is where the bound is least, of all pairs and times, until no bound is of interest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

AROUND = 240
"""A look bounds the distances at so many times before and after it."""


Looks = Callable[[int, int, slice, float, Array], float]
"""The distance [m] of a pair at a time, exact where it is not farther apart than the number after the slice; the lower bounds (M,)
of all times rise by it at times around."""


class Least(NamedTuple):
    """distance [m], of which pair, and at which time; near (M,): distances of interest at each time."""

    distance: float
    pair: int
    time: int
    near: Array


class Search:
    """Lower bounds of the distances of pairs at ``count`` times, the pair of the least one first.

    bounds (blocks, pairs): in blocks of so many times.
    """

    def __init__(self, bounds: Array, block: int, count: int, looks: Looks) -> None:
        self.bounds, self.block, self.count, self.looks = bounds, block, count, looks
        places = (block * bounds.argmin(axis=0)).tolist()
        self.pairs = list(zip(bounds.min(axis=0).tolist(), range(bounds.shape[1]), places, strict=True))
        self.lower: dict[int, Array] = {}
        heapq.heapify(self.pairs)

    @property
    def least(self) -> float:
        """The least bound [m]."""
        return self.pairs[0][0]

    def look(self, known: float) -> tuple[float, int, int]:
        """The distance where the bound is least, of which pair, and at which time; bounds around rise by it.

        What is farther apart than ``known`` need not be exact.
        """
        _, pair, k = self.pairs[0]
        lower = self.lower.get(pair)
        if lower is None:
            lower = self.lower[pair] = np.repeat(self.bounds[:, pair], self.block)[: self.count]
        around = slice(max(k - AROUND, 0), min(k + AROUND + 1, self.count))
        distance = self.looks(pair, k, around, known, lower)
        lower[k] = np.inf
        place = int(lower.argmin())
        heapq.heapreplace(self.pairs, (float(lower[place]), pair, place))
        return distance, pair, k


def least_distance(bounds: Array, block: int, count: int, looks: Looks, asked: float) -> Least:
    """The least distance, and all those below ``asked``, see :class:`Search`."""
    search, near = Search(bounds, block, count, looks), np.full(count, np.inf)
    best = np.inf, -1, -1
    while search.least < max(best[0], asked):
        found, pair, k = search.look(max(best[0], asked))
        if found < asked:
            near[k] = min(near[k], found)
        best = min(best, (found, pair, k))
    return Least(*best, near)


def touching(bounds: Array, block: int, count: int, looks: Looks) -> bool:
    """True if a distance is not above zero, see :class:`Search`."""
    search = Search(bounds, block, count, looks)
    while search.least <= 0.0:
        if search.look(0.0)[0] <= 0.0:
            return True
    return False
