"""Driver of the package's library for rigid-body programs on arrays: loops that serve all robots; it needs no compiler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from dynamics_backends.compiled.loops.kernel_data import arrays_of, named, shapes_of
from dynamics_backends.compiled.loops.unrolled import argument_sizes
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.tape.kernel_driver import program_kernel
from dynamics_backends.tape.tape import Tape
from dynamics_backends.trace import RESULT, Operand, Operation, Trace

_tapes: WeakKeyDictionary[Model, dict[str, Tape]] = WeakKeyDictionary()


def by_library(program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a program from real arrays (rows, N), by its kernel in the library, which must contain it."""
    known = _tapes.setdefault(model, {})
    if program.name not in known:
        known[program.name] = kernel_tape(program, model)
    results = known[program.name].rows(*arrays_of([arguments[name] for name in program.arguments]))
    return named(program, model, results)


def kernel_tape(program: Program, model: Model) -> Tape:
    """Tape that calls the kernel of a program in the library, for one model."""
    kernel, shapes = program_kernel(program, model), shapes_of(program, model)
    sizes = argument_sizes(program, model)
    call = Operation(0, kernel.name, tuple((i, j) for i, size in enumerate(sizes) for j in range(size)))
    results = [Operation(1 + i, RESULT, (0, float(i))) for i in range(kernel.outputs)]
    indices = iter(range(1, 1 + kernel.outputs))
    outputs: list[list[Operand]] = [list(islice(indices, math.prod(shape))) for shape in shapes]
    return Tape.of(Trace([call, *results], outputs, {kernel.name: kernel}), sizes, shapes)
