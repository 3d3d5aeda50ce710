"""Functions of the package's library (function_t), evaluated for many rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.runtime.memory import Workspaces, address, bound, over_threads, pointers, structs_in
from dynamics_backends.machine import library as machine
from dynamics_backends.protocol import Array

KERNEL = "lanes/function_rows.h"
(_Rows,) = structs_in("\n".join(map(template, ("lanes/function.h", KERNEL))), "rows_t")


class FunctionRows:
    """Function of the library for rows: the kernel templates/lanes/function_rows.h, with its data and workspaces.

    function: members of function_t, the addresses of the function, of its data, and of the function for several blocks. inputs,
    outputs: numbers of components of its arguments and results. workspace: vectors that the function needs. memory: objects that
    must live as long as the function is called.
    """

    def __init__(
        self,
        function: tuple[int | None, int | None, int | None],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        memory: Any,
    ) -> None:
        library, sizes = machine.kernels(), np.array([*inputs, *outputs], np.int32)
        self._data = _Rows(*function, address(sizes), len(inputs), len(outputs))
        self._memory = sizes, memory
        own = bound(library, "function_rows_workspace", "p", ctypes.c_long)(ctypes.addressof(self._data))
        self._workspaces = Workspaces((int(own) + workspace) * machine.lanes())
        self._run = bound(library, "function_rows", "pppp ll p")
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def __call__(self, arguments: Sequence[Array], results: Sequence[Array]) -> None:
        """Evaluate the function for each row of the arguments (N, n) and write the results (N, ...), float64, on several threads.

        Each row of a result must be contiguous. Raises ValueError for another shape.
        """
        arrays = [np.ascontiguousarray(a, dtype=float) for a in arguments]
        n = len(results[0])
        if [a.shape for a in arrays] != [(n, size) for size in self.inputs]:
            raise ValueError(
                f"the arguments have shapes {[a.shape for a in arrays]}; expected N = {n} rows of {self.inputs}"
            )
        if [(len(r), r[:1].size) for r in results] != [(n, size if n else 0) for size in self.outputs]:
            raise ValueError(
                f"the results have shapes {[r.shape for r in results]}; expected N = {n} rows of {self.outputs}"
            )
        given, written = pointers(arrays), pointers(results)
        strides = (ctypes.c_long * len(results))(*[r.strides[0] // r.itemsize for r in results])
        head = [ctypes.addressof(memory) for memory in (self._data, given, written, strides)]

        def part(first: int, last: int, workspace: Array) -> None:
            """Evaluate the function for rows first to last, last excluded."""
            self._run(*head, first, last, address(workspace))

        over_threads(part, n, machine.lanes(), self._workspaces)
