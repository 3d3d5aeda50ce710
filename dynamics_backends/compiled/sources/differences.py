"""Partial derivatives by finite differences, in the package's library: templates/differences/partials_by_differences.h.

The kernel calls the value: a tape, or a function of the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import prelude, template
from dynamics_backends.compiled.runtime.memory import address, code_of, structs_in
from dynamics_backends.compiled.sources.manifold_source import factor_array, factors_of
from dynamics_backends.machine import library as machine
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import unwrapped

POINTS = 8
"""Maximum number of points at which a tape is evaluated in one call: DIFFERENCES_POINTS in C."""
_KERNEL = "differences/partials_by_differences.h"
_HEADERS = "lanes/function.h", "lanes/groups.h", _KERNEL
(_Data,) = structs_in("\n".join(map(template, _HEADERS)), "differences_t")


def source() -> str:
    """C source for the package's library, with the kernel of derivatives by complex and dual numbers."""
    kernels = *_HEADERS, "differences/rows_by_differences.h", "differences/partials_along.h"
    return "\n".join([prelude(), *map(template, kernels)])


class Differences:
    """Function of a value and its partial derivatives by differences, without a compiler.

    function: addresses of the derivatives' function and of its data. points: number of points that the value's workspace holds.
    value: members of function_t: addresses of the function, of its data, and of the function for several blocks. sizes: components
    of its inputs x, u, ... rows: computed rows. lanes: SIMD lanes of the code that calls the functions.
    """

    def __init__(
        self,
        method: FiniteDifference,
        value: tuple[int | None, int | None, int | None],
        sizes: Sequence[int],
        rows: int,
        lanes: int,
    ) -> None:
        map, library = unwrapped(method.map), machine.kernels(lanes)
        factors, components = factor_array(factors_of(map.manifold), lanes), np.array(sizes, np.int32)
        self.data = _Data(
            *value,
            ctypes.addressof(factors),
            address(components),
            *_numbers(method, sizes, rows),
        )
        self.points = 1 if value[2] is None else POINTS
        self._memory = factors, components
        self.function = code_of(library.partials_by_differences), ctypes.addressof(self.data)


def _numbers(method: FiniteDifference, sizes: Sequence[int], rows: int) -> tuple[Any, ...]:
    """Members of differences_t behind its pointers."""
    map = unwrapped(method.map)
    return len(sizes), map.manifold.ndx, map.nu, rows, int(method.scheme == "central"), method.step
