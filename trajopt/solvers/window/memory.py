"""Sizes of the memory of slots, and the C text that the kernels of all slots share."""

from __future__ import annotations

from dynamics_backends.compiled.loops.kernel import kernel_text, template

PACKAGE = "trajopt.solvers.window"
"""Package of the kernels of slots and windows."""
LINE = 8
"""Doubles in a cache line; arrays start on cache lines."""
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
