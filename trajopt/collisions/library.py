"""Collision kernels of the package's C library: gaps of capsules, choice of pairs, bounds along a motion.

The distances of a segment from cores are traced from :mod:`dynamics_backends.rigid_body.geometry.distances` when the library is
built.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from dynamics_backends.compiled.interface import (
    Argument,
    bound,
    chunked_function,
    kernel_text,
    kernels,
    prelude,
    structs_in,
    trace_expressions,
)
from dynamics_backends.rigid_body.geometry.distances import box_distance, cylinder_distance, triangle_distance
from dynamics_backends.symbols import ca

KINDS = {"box": box_distance, "cylinder": cylinder_distance, "triangle": triangle_distance}
"""Distance function of each kind of core; the kernels number the kinds in this order."""
_TEXT = kernel_text("trajopt.collisions", "gaps.h", "choice.h", "motion.h")
LONG = np.dtype(ctypes.c_long)
GapsData, ChoiceData, BoundsData = structs_in(_TEXT, "gaps_t", "choice_t", "bounds_t")


class CollisionKernels:
    """Functions of the C library, bound by ctypes."""

    def __init__(self) -> None:
        library = kernels()
        self.capsule_gaps = bound(library, "capsule_gaps", "p")
        self.chosen_pairs = bound(library, "chosen_pairs", "p")
        self.box_motion = bound(library, "box_motion", "lpppppp")
        self.raise_bounds = bound(library, "raise_bounds", "pp lll pdp")
        self.ball_motion = bound(library, "ball_motion", "ll ppp dpp")
        self.block_bounds = bound(library, "block_bounds", "p")


@lru_cache(maxsize=1)
def collision_kernels() -> CollisionKernels:
    """Shared kernels, which have no state."""
    return CollisionKernels()


def source() -> str:
    """C source of the kernels."""
    p, d, size = (ca.SX.sym(name, 3) for name in ("p", "d", "size"))
    rows = [[s[i] for i in range(3)] for s in (p, d, size)]
    arguments = [Argument(name, 3) for name in ("p", "d", "size")]
    traced = [
        chunked_function(f"segment_{kind}", trace_expressions([p, d, size], [distance(*rows)]), arguments, ["D"])
        for kind, distance in KINDS.items()
    ]
    work = max(workspace for _, workspace in traced)
    return "\n".join([prelude(), *(text for text, _ in traced), f"#define WORK {work}", _TEXT])
