"""Driver of traces: on symbols, a recursion that the package's library contains becomes a kernel call, others are unrolled.

The trace of a robot's map then holds these calls and what the map computes between them.  Derivatives of such a trace by AD are
not available, since a call has the value NaN for CasADi; the trace is for values and analytic derivatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.loops.kernel_data import double_tables, int_tables, shapes_of
from dynamics_backends.compiled.loops.sparsity import zero_masks
from dynamics_backends.compiled.loops.unrolled import argument_sizes, column_of
from dynamics_backends.machine import library as machine
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial.spatial import build, leaves
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
        scalars = iter([numbers[i] for i in range(numbers.numel())])
        zeros = zero_masks(program, model)
        return {name: _field(name, model, scalars, zeros.get(name)) for name in program.outputs}


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
    numbers = sum(int(np.prod(shape)) for shape in shapes_of(program, model))
    return Kernel(program.name, _tables[model], sum(argument_sizes(program, model)), numbers)


def _field(name: str, model: Model, scalars: Iterator[Any], zeros: np.ndarray | None) -> Any:
    """Field of this name, with components from the iterator ``scalars``, which is advanced.

    Fields of bodies or DoFs are lists of structs or scalars; a matrix is a list of its rows, each a column of symbols; the factor
    of a mass matrix is an ltl.Factor. zeros: mask of the entries of a matrix that are replaced by zeros; None replaces none.
    Raises ValueError for a tensor.
    """
    axis, kind, n = FIELDS[name].axis, FIELDS[name].kind, model.nv
    if axis is Axis.WHOLE:
        L = [[next(scalars) for _ in range(n)] for _ in range(n)]
        ancestors = ltl.ancestor_lists(model.dof_parent.tolist())
        rows = [{i: L[k][i] for i in above} for k, above in enumerate(ancestors)]
        return ltl.Factor(rows, [next(scalars) for _ in range(n)], ancestors)
    if axis is Axis.MATRIX:
        entries = [next(scalars) for _ in range(n * n)]
        if zeros is not None:
            entries = [0.0 if zero else x for x, zero in zip(entries, zeros.ravel(), strict=True)]
        return [ca.vertcat(*entries[i * n : (i + 1) * n]) for i in range(n)]
    if axis is Axis.TENSOR:
        raise ValueError(f"{name}: tensors are not results of kernels in traces")
    return [build(kind, scalars) for _ in range(model.nb if axis is Axis.BODY else n)]
