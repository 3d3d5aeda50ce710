"""Kernels of programs that are built with the package: one kernel of a program serves all robots."""

from __future__ import annotations

from functools import lru_cache

from dynamics_backends.compiled.loops.fields import shapes_of
from dynamics_backends.compiled.loops.kernel import Entry, ModelKernel
from dynamics_backends.compiled.loops.sparsity import sparse_outputs
from dynamics_backends.machine import library as machine
from dynamics_backends.machine.library import ffi
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program


@lru_cache(maxsize=64)
def _entry(name: str, instructions: str) -> Entry | None:
    """Functions of a program in the package's library; None if the program is not in it."""
    loop = machine.library().loop_named(name.encode())
    if loop == ffi.NULL:
        return None
    cast, function, workspace = ffi.cast, loop.run, loop.workspace
    kinds = "const int *const *", "const double *const *", "double *const *", "const int *", "void *"
    integers, numbers, results, head_of, anything = map(ffi.typeof, kinds)

    def run(ti: int, td: int, inputs: int, outputs: int, first: int, last: int, memory: int) -> None:
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
