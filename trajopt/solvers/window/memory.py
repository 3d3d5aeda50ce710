"""The memory of slots, which is kept for later solves, and the text of what their kernels share."""

from __future__ import annotations

import threading
from importlib.resources import files

from dynamics_backends.compiled.interface.libraries import aligned, template
from dynamics_backends.protocol import Array

LINE = 8
"""Doubles in a line of the cache, where arrays begin."""
LENGTHS = 4
"""Number of lengths for which memory is cached."""
TRIALS, BLOCKS = 8, 4
"""Step lengths that are tried together behind the full one: at most so many, and as few as fill so many blocks of lanes."""


def trials_together(parts: int, lanes: int) -> int:
    """Number of step lengths that are tried together, for a given number of parallel parts: more would often be wasted."""
    return min(TRIALS, -(-BLOCKS * lanes // max(parts, 1)))


def common_source() -> str:
    """The C text of what the kernels of all slots share."""
    own = "trajopt.solvers.window"
    lq = [("trajopt.lq", name) for name in ("lq_types.h", "equality_types.h", "lq_functions.h")]
    kernels = *lq, ("trajopt.stage", "stage_types.h"), (own, "slot.h"), (own, "knots.h")
    return "\n".join(
        [template("lanes/vectors.h"), *((files(of) / "kernels" / name).read_text() for of, name in kernels)]
    )


class _Shelf:
    """Memory of solves that are over, by its length, for those to come; of the lengths that were used last."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self._held = threading.Lock()

    def take(self, doubles: int) -> Array:
        with self._held:
            free = self._free.get(doubles)
            if free:
                return free.pop()
        return aligned(doubles)

    def put_back(self, memory: Array) -> None:
        with self._held:
            free = self._free.pop(len(memory), [])
            self._free[len(memory)] = [*free[-1:], memory]
            if len(self._free) > LENGTHS:
                del self._free[next(iter(self._free))]


shelf = _Shelf()
