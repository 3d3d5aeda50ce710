"""Compiled lower bounds on distances along a motion; without a compiler, NumPy code computes the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from dynamics_backends.compiled.interface.libraries import (
    CompilerError,
    bound,
    kernel_text,
    library,
    struct_of,
    templates,
)

bounds_struct = struct_of(
    "bounds_t",
    "blocks:l pairs:l parts:l count:l close:d firsts seconds rows_first rows_second centers turns radii halves places turned "
    "low high moved bounds",
)
"""The struct bounds_t of kernels/motion.h."""


class MotionKernels(NamedTuple):
    """Functions of kernels/motion.h."""

    box_motion: Callable[..., Any]
    raise_bounds: Callable[..., Any]
    ball_motion: Callable[..., Any]
    block_bounds: Callable[..., Any]


@lru_cache(maxsize=1)
def motion_kernels() -> MotionKernels | None:
    """Return the compiled functions, or None without a compiler."""
    try:
        found = library(_source, "bounds along a motion", kernel_text("trajopt.collisions", "motion.h"))
    except CompilerError:
        return None
    signatures = {"box_motion": "lpppppp", "raise_bounds": "pplllpdp", "ball_motion": "llpppdpp", "block_bounds": "p"}
    return MotionKernels(**{name: bound(found, name, kinds) for name, kinds in signatures.items()})


def _source() -> str:
    return "\n".join([templates(), kernel_text("trajopt.collisions", "motion.h")])
