"""Sizes in the memory of slots, and the text of what their kernels share."""

from __future__ import annotations

from importlib.resources import files

LINE = 8
"""Doubles in a line of the cache, where arrays begin."""
TRIALS, BLOCKS = 8, 4
"""Step lengths that are tried together behind the full one: at most so many, and as few as fill so many blocks of lanes."""


def trials_together(parts: int, lanes: int) -> int:
    """How many step lengths are tried together, where each has so many parts side by side: more would often be found in vain."""
    return min(TRIALS, -(-BLOCKS * lanes // max(parts, 1)))


def common_source() -> str:
    """The C text of what the kernels of all slots share."""
    head = '#include <math.h>\n#include <string.h>\n#define EXPORT __attribute__((visibility("default")))'
    own = "trajopt.solvers.window"
    kernels = ("trajopt.lq", "lq_types.h"), ("trajopt.stage", "stage_types.h"), (own, "slot.h"), (own, "knots.h")
    texts = [(files(package) / "kernels" / name).read_text() for package, name in kernels]
    return "\n".join([head, *texts])
