"""Partial derivatives of any function by finite differences, and by complex step or forward AD, in the package's library.

The kernels in templates/differences call the value, or the slope along one direction: a tape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.kernel import prelude, template
from dynamics_backends.compiled.runtime.memory import address, code_of, structs_in
from dynamics_backends.compiled.sources.manifold_source import factor_array, factors_of
from dynamics_backends.machine import library as machine
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import DynamicsBackend, unwrapped
from dynamics_backends.scalar import STEP

POINTS = 8
"""Maximum number of points at which a tape is evaluated in one call: DIFFERENCES_POINTS in C."""
_KERNELS = "differences/partials_by_differences.h", "differences/partials_along.h"
_HEADERS = "lanes/function.h", "lanes/groups.h", *_KERNELS
_Differences, _Directions = structs_in("\n".join(map(template, _HEADERS)), "differences_t", "directions_t")
Function = tuple[int | None, int | None, int | None]
"""Members of function_t: addresses of a function, of its data, and of the function for several blocks."""


def differences_source() -> str:
    """C source, for the package's library, of derivatives by finite differences, complex step and forward AD, and of functions
    for many rows.
    """
    headers = "lanes/function.h", "lanes/groups.h", "lanes/function_rows.h"
    return "\n".join([prelude(), *map(template, (*headers, *_KERNELS))])


class PartialsKernel(NamedTuple):
    """Function dynamics_partials in the library, which calls a tape.

    function: addresses of this function and of its data. points: number of points that the workspace of the tape must hold. memory:
    objects that must live as long as the function is called.
    """

    function: tuple[int | None, int]
    points: int
    memory: Any


def by_differences(method: FiniteDifference, value: Function, sizes: Sequence[int], rows: int) -> PartialsKernel:
    """Partial derivatives by the differences of a method.

    value: function of the value. sizes: components of its inputs x, u, ... rows: number of its results.
    """
    map = unwrapped(method.map)
    factors, components = factor_array(factors_of(map.manifold)), np.array(sizes, np.int32)
    counts = len(sizes), map.manifold.ndx, map.nu, rows, int(method.scheme == "central"), method.step
    data = _Differences(*value, ctypes.addressof(factors), address(components), *counts)
    return _kernel(machine.kernels().partials_by_differences, data, value, (factors, components))


def by_directions(method: DynamicsBackend, along: Function, sizes: Sequence[int], rows: int) -> PartialsKernel:
    """Partial derivatives by the slopes along all directions.

    method: complex step, or forward AD. along: function of the value and the slope along its last input. sizes, rows: as in
    :func:`by_differences`, without that input.
    """
    n, m = method.map.manifold.ndx, method.map.nu
    components = np.array([*sizes, n + m], np.int32)
    step = STEP if method.name == "complex_step" else 1.0
    data = _Directions(*along, address(components), len(components), n, m, rows, step)
    return _kernel(machine.kernels().partials_along, data, along, components)


def _kernel(function: Any, data: Any, called: Function, memory: Any) -> PartialsKernel:
    """Kernel from its C function and data, and the function that it calls."""
    points = 1 if called[2] is None else POINTS
    return PartialsKernel((code_of(function), ctypes.addressof(data)), points, (data, memory))
