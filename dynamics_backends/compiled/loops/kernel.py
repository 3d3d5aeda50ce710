"""Kernels: C source of block functions in a loop over the batch, and calls of the built ones with arrays (N, n).

C code packs public arrays into lane blocks and unpacks them.  A call releases the GIL; large batches are split over threads. One
kernel of the package's library serves a program for all robots (:func:`library_kernel`).
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.kernel_data import INT_TABLES, double_tables, int_tables, shapes_of
from dynamics_backends.compiled.loops.loops import LoopKernel
from dynamics_backends.compiled.loops.sparsity import Sparse, sparse_outputs
from dynamics_backends.compiled.runtime.memory import Workspaces, address, aligned, over_threads, pointers
from dynamics_backends.machine import library as machine
from dynamics_backends.machine.library import ffi
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program


@lru_cache(maxsize=1)
def templates() -> str:
    """C text that precedes every kernel: vectors, their functions and linear algebra."""
    return "\n".join([prelude(), *map(template, ("linear_algebra/ltl.h", "linear_algebra/tensors.h"))])


@lru_cache(maxsize=1)
def prelude() -> str:
    """C text of vectors over lanes and of their functions."""
    return "\n".join(template(f"lanes/{name}.h") for name in ("vectors", "vector_math", "prelude"))


def template(name: str) -> str:
    """C text of a file in the folder templates, by its path; headers that it includes must precede it."""
    return _without_includes((files("dynamics_backends.compiled") / "templates" / name).read_text())


def header(name: str) -> str:
    """Text of a header of the package's C library, by its name in the folder include; headers that it includes must precede it."""
    return _without_includes((files("dynamics_backends.machine") / "include" / name).read_text())


def kernel_text(package: str, *names: str) -> str:
    """C source of files in the folder kernels of a package; headers that they include must precede them."""
    folder = files(package) / "kernels"
    return "\n".join(_without_includes((folder / name).read_text()) for name in names)


def definitions(values: Mapping[str, Any]) -> str:
    """Macros of C for Python constants, by name."""
    return "\n".join(f"#define {name} {value!r}" for name, value in values.items())


def _without_includes(text: str) -> str:
    """C text without ``#pragma once`` and includes of the project's headers."""
    return re.sub(r'^#(pragma once|include ".*")\n', "", text, flags=re.M)


_ENTRY = """
__attribute__((visibility("default"))) long {name}_workspace(const int* head)
{{
const int nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
return {workspace};
}}
__attribute__((visibility("default"))) void {name}_run(
    const int* const* ti, const double* const* td, const double* const* in, double* const* out, long first, long last,
    void* memory)
{{
V* workspace = memory;
const int *head = ti[0], nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
{pointers}
for (long n = first; n < last; n += LANES) {{
    const int count = last - n < LANES ? last - n : LANES;
{packing}
    {name}(ti, td, {arguments}, workspace);
{unpacking}
}}
}}
"""


_PACKED = """
static long {name}_packed_workspace(const int* head)
{{
const int nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
return {workspace};
}}
static void {name}_packed(const tables_t* tables, const void* in, void* out, void* workspace)
{{
const int* const* ti = tables->ti;
const double* const* td = tables->td;
const int *head = ti[0], nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
V *x = (V *)in, *y = out;
{places}
    {name}(ti, td, {arguments}, workspace);
}}
"""


def entry(kernel: LoopKernel) -> str:
    """Source of the exported C functions of a block function: NAME_workspace, its size in vectors, and NAME_run.

    run packs the arrays of knots first to last, last excluded, into blocks of lanes, calls the block function and unpacks the
    results.
    """
    sizes = [*kernel.input_sizes, *kernel.output_sizes]
    names = [f"x{i}" for i in range(len(kernel.inputs))] + [f"y{i}" for i in range(len(kernel.outputs))]
    pointers = "\n".join(f"V* {n} = workspace; workspace += {s};" for n, s in zip(names, sizes, strict=True))
    packing = "\n".join(f"    pack(in[{i}] + n * ({s}), {s}, count, x{i});" for i, s in enumerate(kernel.input_sizes))
    unpacking = "\n".join(_unpacking(kernel, i) for i in range(len(kernel.outputs)))
    workspace = " + ".join([*(f"({s})" for s in sizes), kernel.workspace, "LANES"])
    return _ENTRY.format(
        name=kernel.name,
        workspace=workspace,
        pointers=pointers,
        packing=packing,
        unpacking=unpacking,
        arguments=", ".join(names),
    )


def packed_entry(kernel: LoopKernel) -> str:
    """Source of the C functions NAME_packed_workspace and NAME_packed, which call a block function on vectors already packed."""
    sizes = [*kernel.input_sizes, *kernel.output_sizes]
    names = [f"x{i}" for i in range(len(kernel.inputs))] + [f"y{i}" for i in range(len(kernel.outputs))]
    places = "\n".join(f"V* {n} = {n[0]}; {n[0]} += {s};" for n, s in zip(names, sizes, strict=True))
    return _PACKED.format(name=kernel.name, workspace=kernel.workspace, places=places, arguments=", ".join(names))


def _unpacking(kernel: LoopKernel, i: int) -> str:
    """C call that unpacks the i-th output into rows; tables of sparse outputs follow the model's tables."""
    output, size = kernel.outputs[i], kernel.output_sizes[i]
    if output not in kernel.sparse:
        return f"    unpack(y{i}, {size}, count, out[{i}] + n * ({size}));"
    sparse = kernel.sparse[output]
    size = f"({sparse.entries})"
    table = f"ti[{len(INT_TABLES) + list(kernel.sparse).index(output)}]"
    return f"    unpack_blocks(y{i}, {size}, {table}, count, out[{i}] + n * PADDED({size}));"


def text_of(kernel: LoopKernel) -> str:
    """Whole C source of a kernel: the templates, its loops, and the exported functions."""
    return "\n".join([templates(), kernel.source, entry(kernel)])


class Entry(NamedTuple):
    """Functions of a kernel. run: takes addresses of tables ti, td and arrays in, out, knots first, last, and the workspace.

    workspace: size of the workspace of a robot in vectors, from the address of its first table. lanes: doubles in a vector.
    """

    run: Callable[..., None]
    workspace: Callable[[int], int]
    lanes: int


class ModelKernel:
    """Kernel of the library with the tables of one model. shapes: of a knot's outputs; sparse: those with structural zeros."""

    def __init__(
        self,
        entry: Entry,
        model: Model,
        outputs: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        sparse: Mapping[str, Sparse],
    ) -> None:
        self._run, workspace, self._lanes = entry
        self.tables = int_tables(model), double_tables(model)
        self.tables[0].extend(output.table(model, self._lanes) for output in sparse.values())
        self._sparse = [o in sparse for o in outputs]
        self._tables = [pointers(t) for t in self.tables]
        self._ti, self._td = map(ctypes.addressof, self._tables)
        self.shapes = list(shapes)
        self._workspaces = Workspaces(int(workspace(address(self.tables[0][0]))) * self._lanes)

    def _padded(self, n: int, *shape: int) -> np.ndarray:
        """Aligned array (n, *shape) in which the entries of each knot fill whole vectors."""
        size = math.prod(shape)
        padded = -(-size // self._lanes) * self._lanes
        return aligned(n * padded).reshape(n, padded)[:, :size].reshape(n, *shape)

    def __call__(self, *inputs: np.ndarray, threads: int | None = None) -> list[np.ndarray]:
        """Outputs (N, ...) from inputs (N, n), float64 and C-contiguous (other inputs are converted).

        threads: maximum number of threads; by default :func:`over_threads` chooses their number.
        """
        arrays = [np.ascontiguousarray(x, dtype=float) for x in inputs]
        results = self.results(len(arrays[0]))
        self.write(arrays, results, threads)
        return results

    def results(self, n: int) -> list[np.ndarray]:
        """New output arrays for n knots; those with structural zeros are zeroed."""
        return [
            self._padded(n, *shape) if sparse else np.empty((n, *shape))
            for shape, sparse in zip(self.shapes, self._sparse, strict=True)
        ]

    def write(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], threads: int | None = None) -> None:
        """Write the outputs for inputs (n, size), float64 and C-contiguous, to arrays from :meth:`results` (n).

        Arrays are not checked. Calls do not write all structural zeros of matrices and tensors.
        """
        pin, pout = pointers(arrays), pointers(results)
        at = ctypes.addressof(pin), ctypes.addressof(pout)

        def part(first: int, last: int, workspace: np.ndarray) -> None:
            """Run the kernel for knots first to last, last excluded."""
            self._run(self._ti, self._td, *at, first, last, address(workspace))

        over_threads(part, len(arrays[0]), self._lanes, self._workspaces, threads)


@lru_cache(maxsize=64)
def _entry(name: str, instructions: str) -> Entry | None:
    """Functions of a program in the package's library for the instruction set in use; None if the program is not in it.

    instructions: name of this set, the key of the cache.
    """
    loop = machine.library().loop_named(name.encode())
    if loop == ffi.NULL:
        return None
    cast, function, workspace = ffi.cast, loop.run, loop.workspace
    kinds = "const int *const *", "const double *const *", "double *const *", "const int *", "void *"
    integers, numbers, results, head_of, anything = map(ffi.typeof, kinds)

    def run(ti: int, td: int, inputs: int, outputs: int, first: int, last: int, memory: int) -> None:
        """Call the program's function with addresses of tables and arrays, a range of knots, and the workspace."""
        arrays = cast(integers, ti), cast(numbers, td), cast(numbers, inputs), cast(results, outputs)
        function(*arrays, first, last, cast(anything, memory))

    return Entry(run, lambda head: workspace(cast(head_of, head)), machine.lanes())


def is_in_library(name: str) -> bool:
    """True if the package's library contains the program of this name."""
    return _entry(name, machine.chosen_instructions()) is not None


def library_kernel(program: Program, model: Model) -> ModelKernel | None:
    """Kernel of a program for a model; None if the program is not in the package's library."""
    entry = _entry(program.name, machine.chosen_instructions())
    if entry is None:
        return None
    return ModelKernel(entry, model, program.outputs, shapes_of(program, model), sparse_outputs(program))
