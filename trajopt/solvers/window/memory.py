"""Memory pool of slots, for reuse by later solves, and the C text that the kernels of all slots share."""

from __future__ import annotations

import threading

from dynamics_backends.compiled.interface import aligned, kernel_text, template
from dynamics_backends.protocol import Array

PACKAGE = "trajopt.solvers.window"
"""Package of the kernels of slots and windows."""
LINE = 8
"""Doubles in a cache line; arrays start on cache lines."""
LENGTHS = 4
"""Maximum number of array lengths in the memory pool."""
TRIALS, BLOCKS = 8, 4
"""Step lengths per batch of trial steps after the full step: enough to fill BLOCKS blocks of lanes, but at most TRIALS."""


def trials_together(parts: int, lanes: int) -> int:
    """Return the number of step lengths to roll out in one batch, at least 1 and at most TRIALS.

    Up to TRIALS, it is the smallest number that fills at least BLOCKS blocks of SIMD lanes, with ``parts`` parallel parts in each
    rollout; more would be wasted work. lanes: numbers in one block.
    """
    return min(TRIALS, -(-BLOCKS * lanes // max(parts, 1)))


def common_source() -> str:
    """Return the C text that the kernels of all slots share: SIMD vectors, LQ problems, stage types, slots and knots."""
    lq = kernel_text("trajopt.lq", "lq_types.h", "equality_types.h", "lq_functions.h")
    own = kernel_text(PACKAGE, "slot.h", "knots.h")
    return "\n".join([template("lanes/vectors.h"), lq, kernel_text("trajopt.stage", "stage_types.h"), own])


class _MemoryPool:
    """Pool of memory of finished solves, by length; keeps the lengths stored last. Threads may share it."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self._held = threading.Lock()

    def take(self, doubles: int) -> Array:
        """Return an array of this length from the pool, with old contents, or a new aligned one if the pool has none."""
        with self._held:
            free = self._free.get(doubles)
            if free:
                return free.pop()
        return aligned(doubles)

    def put_back(self, memory: Array) -> None:
        """Store an array for reuse; the pool stores at most two of a length, and the LENGTHS lengths stored last."""
        with self._held:
            free = self._free.pop(len(memory), [])
            self._free[len(memory)] = [*free[-1:], memory]
            if len(self._free) > LENGTHS:
                del self._free[next(iter(self._free))]


memory_pool = _MemoryPool()
