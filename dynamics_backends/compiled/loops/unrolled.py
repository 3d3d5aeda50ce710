"""Trace of a program for one robot: constants are folded and only the operations of its structure remain.

The unrolling driver runs the same program of passes on CasADi symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import unroll
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial.spatial import Struct, build, leaves, size
from dynamics_backends.symbols import ca
from dynamics_backends.trace import Trace, trace_expressions


def unrolled_trace(program: Program, model: Model, outputs: Sequence[str] | None = None) -> Trace:
    """Trace of a program for one model, a function of its arguments; ``outputs``: fields to compute, default the program's."""
    sizes = argument_sizes(program, model)
    symbols = {name: ca.SX.sym(name, n) for name, n in zip(program.arguments, sizes, strict=True)}
    fields = unroll(program, model, {n: _rows(n, s) for n, s in symbols.items()})
    return trace_expressions(list(symbols.values()), [column_of(fields[o]) for o in outputs or program.outputs])


def argument_sizes(program: Program, model: Model) -> list[int]:
    """Number of components of each argument of a program."""
    return [_size(name, model) for name in program.arguments]


def _size(name: str, model: Model) -> int:
    """Number of components of an argument of a program for a model."""
    rows = {Axis.Q: model.nq, Axis.BODY: model.nb}.get(FIELDS[name].axis, model.nv)
    return rows * size(FIELDS[name].kind)


def _rows(name: str, symbols: Any) -> list[Any]:
    """Symbols of an argument as rows, scalars or structs."""
    scalars = iter([symbols[i] for i in range(symbols.numel())])
    return [build(FIELDS[name].kind, scalars) for _ in range(symbols.numel() // size(FIELDS[name].kind))]


def column_of(field: Any) -> Any:
    """Field as one column of expressions, matrices and structs by rows."""
    if isinstance(field, Struct):
        return ca.vec(ca.horzcat(*map(ca.SX, leaves(field))).T)
    if isinstance(field, list) and field and not hasattr(field[0], "is_symbolic") and not isinstance(field[0], float):
        return ca.vertcat(*[column_of(r) for r in field])
    return ca.vertcat(*[ca.SX(x) for x in field]) if isinstance(field, list) else field
