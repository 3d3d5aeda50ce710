"""Straight-line code for one robot: constants are folded and only the operations of its structure remain.

The unrolling driver runs the same program of passes on CasADi symbols; the emitted code is cut into functions (emit.CHUNK).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, chunked_function
from dynamics_backends.compiled.emit.trace import Trace, trace_expressions
from dynamics_backends.compiled.loops.loops import LoopKernel
from dynamics_backends.compiled.loops.sparsity import sparse_outputs
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.passes.unroll import unroll
from dynamics_backends.rigid_body.spatial.spatial import Struct, build, leaves, size
from dynamics_backends.symbols import ca


def unrolled_trace(program: Program, model: Model, outputs: Sequence[str] | None = None) -> Trace:
    """Trace of a program for one model; ``outputs``: fields to compute, default the program's outputs."""
    sizes = argument_sizes(program, model)
    symbols = {name: ca.SX.sym(name, n) for name, n in zip(program.arguments, sizes, strict=True)}
    fields = unroll(program, model, {n: _rows(n, s) for n, s in symbols.items()})
    return trace_expressions(list(symbols.values()), [_column(fields[o]) for o in outputs or program.outputs])


def unrolled_kernel(program: Program, model: Model) -> LoopKernel:
    """Emit straight-line code of a program for this model."""
    sizes = argument_sizes(program, model)
    trace = unrolled_trace(program, model)
    source = straight_kernel(program.name, trace, program.arguments, program.outputs, sizes, into_zeros=True)
    return replace(source, sparse=sparse_outputs(program))


def argument_sizes(program: Program, model: Model) -> list[int]:
    """Number of components of each argument of a program."""
    return [_size(name, model) for name in program.arguments]


def _size(name: str, model: Model) -> int:
    rows = {Axis.Q: model.nq, Axis.BODY: model.nb}.get(FIELDS[name].axis, model.nv)
    return rows * size(FIELDS[name].kind)


def _rows(name: str, symbols: Any) -> list[Any]:
    """Symbols of an argument as rows, scalars or structs."""
    scalars = iter([symbols[i] for i in range(symbols.numel())])
    return [build(FIELDS[name].kind, scalars) for _ in range(symbols.numel() // size(FIELDS[name].kind))]


def straight_kernel(
    name: str,
    t: Trace,
    inputs: Sequence[str],
    outputs: Sequence[str],
    sizes: Sequence[int],
    *,
    into_zeros: bool = False,
) -> LoopKernel:
    """Block function of straight-line code from a trace; it does not read the tables.

    into_zeros: output arrays begin as zeros and only this function writes them, as in a kernel's workspace.
    """
    arguments = [Argument(f"i_{n}", s) for n, s in zip(inputs, sizes, strict=True)]
    source, room = chunked_function(f"{name}_code", t, arguments, [f"o_{o}" for o in outputs], into_zeros=into_zeros)
    head = ", ".join(
        ["const int* const* ti", "const double* const* td"]
        + [f"const V* restrict {a.name}" for a in arguments]
        + [f"V* restrict o_{o}" for o in outputs]
        + ["V* w"]
    )
    call = ", ".join([a.name for a in arguments] + [f"o_{o}" for o in outputs] + ["w"])
    source += f"static void {name}({head})\n{{\n(void)ti; (void)td;\n{name}_code({call});\n}}\n"
    output_sizes = [str(len(o)) for o in t.outputs]
    return LoopKernel(name, source, list(inputs), list(outputs), [str(s) for s in sizes], output_sizes, str(room))


def _column(field: Any) -> Any:
    """Field as one column of expressions, matrices by rows."""
    if isinstance(field, Struct):
        return ca.vertcat(*[ca.SX(x) for x in leaves(field)])
    if isinstance(field, list) and field and not hasattr(field[0], "is_symbolic") and not isinstance(field[0], float):
        return ca.vertcat(*[_column(r) for r in field])
    return ca.vertcat(*[ca.SX(x) for x in field]) if isinstance(field, list) else field
