"""Tapes: traced functions as plain data, evaluated over rows by the interpreter of the package's C library."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dynamics_backends.compiled.runtime.memory import code_of
from dynamics_backends.compiled.sources.function_rows import FunctionRows
from dynamics_backends.machine import library as machine
from dynamics_backends.machine.library import ffi
from dynamics_backends.tape.encode import encode
from dynamics_backends.trace import Kernel, Trace

Array = np.ndarray
_BLOCK = 8
"""Largest block of the interpreter in vectors."""


@dataclass(frozen=True, eq=False)
class Tape:
    """Function of vectors with arrays as results, as data.

    code (int32), constants (float64): instructions and the constants that they name by index, see machine/include/tape.h. sizes:
    number of components of each input. shapes: shape of each output. values: number of registers, without the workspace of
    kernels. kernels: kernels of the library that the code calls by index.
    """

    code: Array
    constants: Array
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    values: int
    kernels: tuple[Kernel, ...] = ()

    @classmethod
    def of(cls, t: Trace, sizes: Sequence[int], shapes: Sequence[tuple[int, ...]] | None = None) -> Tape:
        """Encode a trace. sizes: number of components of each of its inputs. shapes: of its outputs, by default vectors.

        Raises UnknownOperation for an operation or a depth of calls that tapes do not support, ValueError for shapes that do not
        fit the outputs.
        """
        lengths = [len(output) for output in t.outputs]
        shapes = [(n,) for n in lengths] if shapes is None else list(shapes)
        if [math.prod(shape) for shape in shapes] != lengths:
            raise ValueError(f"the outputs have {lengths} components; shapes {shapes} do not fit")
        code, constants, values, kernels = encode(t)
        return cls(code, constants, tuple(sizes), tuple(shapes), values, kernels)

    def data(self) -> list[Any]:
        """Tape as a list that JSON can store, the argument of :meth:`from_data`; code and constants are base64 text."""
        texts = (b64encode(array.tobytes()).decode() for array in (self.code, self.constants))
        tables = list({id(k.tables): k.tables for k in self.kernels}.values())
        places = {id(t): i for i, t in enumerate(tables)}
        kernels = [
            (k.name, places[id(k.tables)], k.inputs, k.outputs, [tape.data() for tape in k.tapes]) for k in self.kernels
        ]
        numbers = [[[array.ravel().tolist() for array in arrays] for arrays in t] for t in tables]
        return [*texts, self.sizes, self.shapes, self.values, kernels, numbers]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> Tape:
        """Tape from a list that :meth:`data` returned, also after it was stored as JSON."""
        code, constants, sizes, shapes, values, kernels, numbers = data
        arrays = np.frombuffer(b64decode(code), np.int32), np.frombuffer(b64decode(constants), np.float64)
        tables = [([np.array(t, np.int32) for t in ti], [np.array(t, float) for t in td]) for ti, td in numbers]
        called = tuple(
            [
                Kernel(name, tables[i], inputs, outputs, tuple(map(cls.from_data, tapes)))
                for name, i, inputs, outputs, tapes in kernels
            ]
        )
        return cls(*arrays, tuple(sizes), tuple(map(tuple, shapes)), values, called)

    def rows(self, *inputs: Array, threads: int | None = None) -> list[Array]:
        """Outputs (N, *shape) from inputs (N, n), one for each input of the function; other types are converted to float64.

        threads: maximum number of threads; by default measured work determines it, from 2 KNOTS_PER_THREAD rows on
        (:func:`~dynamics_backends.compiled.runtime.memory.over_threads`). Raises ValueError for inputs of another shape.
        """
        return self._rows(inputs, threads)

    @property
    def address(self) -> int:
        """Address of the struct tape_t, valid in this process while the tape exists."""
        return int(ffi.cast("uintptr_t", self._struct[0]))

    @cached_property
    def registers(self) -> int:
        """Workspace, in vectors, for one block of lanes: ``values``, and the kernels' workspace."""
        return self.values + self._kernel_workspace

    @cached_property
    def _kernel_workspace(self) -> int:
        """Number of vectors for the inputs, outputs and workspace of that kernel which needs most; 0 without kernels."""
        return max(map(_workspace, self.kernels), default=0)

    @property
    def function(self) -> tuple[int | None, int, int | None]:
        """Members of function_t: addresses of the interpreter for one block of lanes, of the struct tape_t, and of the
        interpreter for several blocks.
        """
        library = machine.kernels()
        return code_of(library.tape_function), self.address, code_of(library.tape_blocks)

    @cached_property
    def _rows(self) -> FunctionRows:
        """Interpreter of this tape for rows; created at first use and not pickled."""
        return FunctionRows(self.function, self.sizes, self.shapes, _BLOCK * self.registers, self._struct)

    @property
    def _struct(self) -> tuple[Any, ...]:
        """Struct tape_t, and the arrays to which it points, which must live as long as it is in use; the same for all threads."""
        found: tuple[Any, ...] | None = self.__dict__.get("_cached_struct")
        return self.__dict__.setdefault("_cached_struct", self._new_struct()) if found is None else found

    def _new_struct(self) -> tuple[Any, ...]:
        """Return a new struct tape_t, and the arrays to which it points."""
        code, constants = ffi.from_buffer("int[]", self.code), ffi.from_buffer("double[]", self.constants)
        called = [_called(k) for k in self.kernels]
        kernels = ffi.new("tape_kernel_t[]", [struct for struct, _ in called])
        counts = len(self.code), self.registers, self._kernel_workspace
        return ffi.new("tape_t *", (code, constants, kernels, *counts)), code, constants, kernels, called

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without the interpreter and the sizes of workspaces, which belong to the process."""
        local = "_rows", "_cached_struct", "registers", "_kernel_workspace"
        return {key: value for key, value in self.__dict__.items() if key not in local}


def _workspace(kernel: Kernel) -> int:
    """Number of vectors for the inputs, outputs and workspace of a kernel, with that of its tapes for _BLOCK blocks of lanes."""
    own = machine.loop(kernel.name).workspace(ffi.from_buffer("int[]", kernel.tables[0][0]))
    return kernel.inputs + kernel.outputs + int(own) + _BLOCK * sum(tape.registers for tape in kernel.tapes)


def _called(kernel: Kernel) -> tuple[tuple[Any, ...], list[Any]]:
    """Members of the struct tape_kernel_t of a kernel, and the arrays that must live as long as the struct."""
    integers, doubles = kernel.tables
    ti = ffi.new("const int *[]", [ffi.from_buffer("int[]", t) for t in integers])
    td = ffi.new("const double *[]", [*(ffi.from_buffer("double[]", t) for t in doubles), ffi.NULL])
    tapes = ffi.new("const void *[]", [*(ffi.cast("void *", tape.address) for tape in kernel.tapes), ffi.NULL])
    struct = machine.loop(kernel.name).run, (ti, td, tapes), kernel.inputs, kernel.outputs
    return struct, [ti, td, tapes, integers, doubles]
