"""Driver of traces: on symbols, a recursion that the package's library contains becomes a kernel call, others are unrolled.

The trace of a robot's map then holds these calls and what the map computes between them.  Derivatives of such a trace by AD are
not available, since a call has the value NaN for CasADi; the trace is for values and analytic derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.loops.kernel_data import double_tables, factor_of, int_tables, shapes_of
from dynamics_backends.compiled.loops.sparsity import zero_masks
from dynamics_backends.compiled.loops.unrolled import argument_sizes, column_of
from dynamics_backends.machine import library as machine
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial.spatial import leaves
from dynamics_backends.scalar import rows_of
from dynamics_backends.symbols import ca
from dynamics_backends.tape.constrained_kernel import directions_by_kernel
from dynamics_backends.tape.stepped_kernel import solved_by_kernel
from dynamics_backends.trace import Kernel, Tables, symbolic

_tables: WeakKeyDictionary[Model, Tables] = WeakKeyDictionary()
_functions: WeakKeyDictionary[Model, dict[str, Any]] = WeakKeyDictionary()


class _KernelDriver:
    """Driver that calls kernels on symbols: for recursions, time steps with contacts and derivatives of constrained motion."""

    solved_step = staticmethod(solved_by_kernel)
    directions = staticmethod(directions_by_kernel)

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of a program on symbols, by a call of its kernel, as :func:`_field` builds them.

        Arguments without symbols, and programs that the library does not contain, are evaluated by :func:`run` (NumPy, or
        unrolled).
        """
        values = [arguments[name] for name in program.arguments]
        symbolic_values = any(hasattr(leaf, "is_symbolic") for value in values for leaf in _scalars(value))
        if not symbolic_values or machine.loop(program.name) is None:
            return run(program, model, arguments)
        known = _functions.setdefault(model, {})
        if program.name not in known:
            known[program.name] = symbolic(program_kernel(program, model))
        numbers = known[program.name](ca.vertcat(*map(column_of, values)))
        shapes, scalars, zeros = shapes_of(program, model), iter(rows_of(numbers)), zero_masks(program, model)
        parts = (np.fromiter(scalars, object, math.prod(shape)).reshape(shape) for shape in shapes)
        named = zip(program.outputs, parts, strict=True)
        return {name: _field(name, model, part, zeros.get(name)) for name, part in named}


kernel_driver = _KernelDriver()


def _scalars(value: Any) -> list[Any]:
    """Leaves of an argument: of a struct, or of all entries of a list, also nested; other arguments are a leaf themselves."""
    if isinstance(value, list):
        return [x for part in value for x in _scalars(part)]
    return leaves(value)


def program_kernel(program: Program, model: Model) -> Kernel:
    """Kernel of a program with the tables of a model, which are cached."""
    if model not in _tables:
        _tables[model] = int_tables(model), double_tables(model)
    numbers = sum(map(math.prod, shapes_of(program, model)))
    return Kernel(program.name, _tables[model], sum(argument_sizes(program, model)), numbers)


def _field(name: str, model: Model, numbers: np.ndarray, zeros: np.ndarray | None) -> Any:
    """Field of this name from symbols, an array of its shape.

    Fields of bodies or DoFs are lists of structs or scalars; a matrix is a list of its rows, each a column of symbols; the factor
    of a mass matrix is an ltl.Factor. zeros: mask of the entries of a matrix that are replaced by zeros; None replaces none.
    Raises ValueError for a tensor.
    """
    axis, kind = FIELDS[name].axis, FIELDS[name].kind
    if axis is Axis.WHOLE:
        return factor_of(model, numbers)
    if axis is Axis.MATRIX:
        entries = numbers if zeros is None else np.where(zeros, 0.0, numbers)
        return [ca.vertcat(*row) for row in entries]
    if axis is Axis.TENSOR:
        raise ValueError(f"{name}: tensors are not results of kernels in traces")
    return list(numbers) if kind is None else [kind.build(*row) for row in numbers]
