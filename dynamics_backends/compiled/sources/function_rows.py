"""Functions of the package's library (function_t), evaluated for many rows."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.runtime.memory import (
    KNOTS_PER_THREAD,
    Workspaces,
    address,
    bound,
    over_threads,
    structs_in,
)
from dynamics_backends.machine import library as machine
from dynamics_backends.protocol import Array

KERNEL = "lanes/function_rows.h"
(_Rows,) = structs_in("\n".join(map(template, ("lanes/function.h", KERNEL))), "rows_t")
_POINTER = ctypes.sizeof(ctypes.c_ssize_t)


class FunctionRows:
    """Function of the library for rows: the kernel templates/lanes/function_rows.h, with its data and workspaces.

    function: members of function_t, the addresses of the function, of its data, and of the function for several blocks. sizes:
    number of components of each argument. shapes: shape of each result. workspace: vectors that the function needs, for all blocks.
    memory: objects that must live as long as the function is called.
    """

    def __init__(
        self,
        function: tuple[int | None, int | None, int | None],
        sizes: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        workspace: int,
        memory: Any,
    ) -> None:
        library, self._lanes = machine.kernels(), machine.lanes()
        numbers = np.array([*sizes, *map(math.prod, shapes)], np.int32)
        self._data = _Rows(*function, address(numbers), len(sizes), len(shapes))
        self._memory = numbers, memory
        self._at = ctypes.addressof(self._data)
        own = bound(library, "function_rows_workspace", "p", ctypes.c_long)(self._at)
        self._workspaces = Workspaces((int(own) + workspace) * self._lanes)
        self._run = bound(library, "function_rows", "pppp ll p")
        self.sizes, self.shapes = tuple(sizes), tuple(shapes)

    def __call__(self, inputs: Sequence[Array], threads: int | None = None) -> list[Array]:
        """Results (N, *shape) for the rows of arguments (N, n); other types are converted to float64.

        threads: maximum number of threads; by default measured work determines it, from 2 KNOTS_PER_THREAD rows on
        (:func:`~dynamics_backends.compiled.runtime.memory.over_threads`). Raises ValueError for arguments of another shape.
        """
        arrays = [_with_whole_rows(x) for x in inputs]
        n = len(arrays[0]) if arrays else 0
        if tuple([a.shape[1] for a in arrays]) != self.sizes or any(len(a) != n for a in arrays):
            raise ValueError(
                f"the inputs have shapes {[a.shape for a in arrays]}; expected {[(n, s) for s in self.sizes]}"
            )
        results = [np.empty((n, *shape)) for shape in self.shapes]
        run, at = self._run, self._at
        numbers = [*map(address, arrays), *[a.strides[0] // 8 for a in arrays], *map(address, results)]
        memory = (ctypes.c_ssize_t * len(numbers))(*numbers)
        read = ctypes.addressof(memory)
        strides, written = read + _POINTER * len(arrays), read + 2 * _POINTER * len(arrays)

        def part(first: int, last: int, workspace: Array) -> None:
            """Evaluate the function for rows first to last, last excluded."""
            run(at, read, strides, written, first, last, address(workspace))

        if n < 2 * KNOTS_PER_THREAD and threads is None:
            part(0, n, self._workspaces[0])
        else:
            over_threads(part, n, self._lanes, self._workspaces, threads)
        return results


def _with_whole_rows(x: Array) -> Array:
    """Array (N, n) of float64 whose rows are contiguous and any whole number of doubles apart; copied only if necessary.

    Raises ValueError unless the array is 2-D.
    """
    array = np.asarray(x, dtype=float)
    if array.ndim != 2:
        raise ValueError(f"an input has shape {array.shape}; expected rows (N, n)")
    whole = array.shape[1] <= 1 or array.strides[1] == 8
    return array if whole and array.strides[0] % 8 == 0 else np.ascontiguousarray(array)
