"""Smallest of many distances along a motion, from few distance evaluations.

The distance d of convex bodies a and b is that of two parallel planes with normal n, from a to b, which touch them. At another
time, the distance of the touching planes with the same normal is a lower bound. In the frame of b, if a lies in a box with center
c and half edges h along axes e_j that turn with it,

    d(t) >= d - n'(c(t) - c) - sum_j h_j |n'(e_j(t) - e_j)|

(directional motion bounds: X. Zhang, M. Lee, Y. J. Kim, Interactive continuous collision detection for non-convex polyhedra, The
Visual Computer 22, 2006). So a body that slides along another one needs few evaluations. For non-convex bodies, motion in any
direction counts. The search evaluates the pair and time with the smallest bound, until no bound is small enough.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

AROUND = 240
"""A distance evaluation updates the bounds at this many times before and after it."""


DistanceFunction = Callable[[int, int, slice, float, Array], float]
"""Distance [m] of a pair at a time: distance_of(pair, time, around, known, lower). It is exact if at most ``known``.
The call raises the lower bounds ``lower`` (M,) at the times in the slice ``around``."""


class SmallestDistance(NamedTuple):
    """Smallest distance [m], with its pair and its time index; near (M,): distances below the requested one at each time."""

    distance: float
    pair: int
    time: int
    near: Array


class Search:
    """Best-first search on lower bounds of the distances of pairs at ``count`` times.

    bounds (blocks, pairs): lower bounds [m] in blocks of ``block`` times.
    """

    def __init__(self, bounds: Array, block: int, count: int, distance_of: DistanceFunction) -> None:
        self.bounds, self.block, self.count, self.distance_of = bounds, block, count, distance_of
        places = (block * bounds.argmin(axis=0)).tolist()
        self.pairs = list(zip(bounds.min(axis=0).tolist(), range(bounds.shape[1]), places, strict=True))
        self.lower: dict[int, Array] = {}
        heapq.heapify(self.pairs)

    @property
    def smallest_bound(self) -> float:
        """Smallest lower bound [m]."""
        return self.pairs[0][0]

    def evaluate(self, known: float) -> tuple[float, int, int]:
        """Evaluate the distance with the smallest bound. Returns distance, pair and time index, and raises the nearby bounds.

        Distances above ``known`` may be inexact.
        """
        _, pair, k = self.pairs[0]
        lower = self.lower.get(pair)
        if lower is None:
            lower = self.lower[pair] = np.repeat(self.bounds[:, pair], self.block)[: self.count]
        around = slice(max(k - AROUND, 0), min(k + AROUND + 1, self.count))
        distance = self.distance_of(pair, k, around, known, lower)
        lower[k] = np.inf
        place = int(lower.argmin())
        heapq.heapreplace(self.pairs, (float(lower[place]), pair, place))
        return distance, pair, k


def minimum_distance(
    bounds: Array, block: int, count: int, distance_of: DistanceFunction, threshold: float
) -> SmallestDistance:
    """Find the smallest distance, and all distances below ``threshold``; see :class:`Search`."""
    search, near = Search(bounds, block, count, distance_of), np.full(count, np.inf)
    best = np.inf, -1, -1
    while search.smallest_bound < max(best[0], threshold):
        found, pair, k = search.evaluate(max(best[0], threshold))
        if found < threshold:
            near[k] = min(near[k], found)
        best = min(best, (found, pair, k))
    return SmallestDistance(*best, near)


def touching(bounds: Array, block: int, count: int, distance_of: DistanceFunction) -> bool:
    """True if any distance is at most zero; see :class:`Search`."""
    search = Search(bounds, block, count, distance_of)
    while search.smallest_bound <= 0.0:
        if search.evaluate(0.0)[0] <= 0.0:
            return True
    return False
