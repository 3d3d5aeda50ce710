"""Partial derivatives of any function by finite differences, and by complex or dual numbers, in the package's library.

The kernel of differences (templates/differences/partials_by_differences.h) calls the value, a tape.
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
_DIFFERENCES_KERNEL = "differences/partials_by_differences.h"
_HEADERS = "lanes/function.h", "lanes/groups.h", _DIFFERENCES_KERNEL
(_Differences,) = structs_in("\n".join(map(template, _HEADERS)), "differences_t")


def differences_source() -> str:
    """C source, for the package's library, of derivatives by finite differences and by complex and dual numbers, and of functions
    for many rows.
    """
    kernels = *_HEADERS, "lanes/rows.h", "lanes/function_rows.h", "differences/partials_along.h"
    return "\n".join([prelude(), *map(template, kernels)])


class Differences:
    """Function dynamics_partials by differences, in the library, with its data.

    function: addresses of this function and of its data. points: number of points that the workspace of the value must hold.
    value: members of function_t of the value: addresses of the function, of its data, and of the function for several blocks.
    sizes: components of its inputs x, u, ... rows: number of its results. lanes: SIMD lanes of the code that calls the functions.
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
        self.data = _Differences(
            *value,
            ctypes.addressof(factors),
            address(components),
            *_numbers(method, sizes, rows),
        )
        self.points = 1 if value[2] is None else POINTS
        self._memory = factors, components
        self.function = code_of(library.partials_by_differences), ctypes.addressof(self.data)


def _numbers(method: FiniteDifference, sizes: Sequence[int], rows: int) -> tuple[Any, ...]:
    """Members of differences_t behind its pointers: number of inputs, ndx, nu, rows, 1 for central differences, and the step."""
    map = unwrapped(method.map)
    return len(sizes), map.manifold.ndx, map.nu, rows, int(method.scheme == "central"), method.step
