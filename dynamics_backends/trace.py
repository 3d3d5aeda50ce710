"""Tracing: a Python function of scalars becomes a list of operations in static single assignment.

The function is evaluated on CasADi SX symbols; CasADi folds constants.  This module does not depend on robots.  A preserved call
(:mod:`dynamics_backends.symbols`) is one operation named after the called function, and one RESULT operation, with the call
and a component number, for each component.

Calls of the package's kernels (:class:`Kernel`) are operations too.  Such a call is a CasADi function that is never inlined.  Its
expression is NaN, so that a derivative by AD, which would not be the kernel's, cannot pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from dynamics_backends.symbols import ca

Tables = tuple[list[np.ndarray], list[np.ndarray]]
"""Arrays of int32 and of float64 that a kernel reads."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """Kernel ``name`` of the library (loop_t in machine/include/loops.h) with its tables and numbers of inputs and outputs.

    tapes: tapes that it calls.
    """

    name: str
    tables: Tables = field(repr=False)
    inputs: int
    outputs: int
    tapes: tuple[Any, ...] = ()


KERNELS: dict[str, Kernel] = {}
"""Kernels by the names of the CasADi functions that stand for them."""
_number = count()


def symbolic(kernel: Kernel) -> Any:
    """CasADi function (inputs,) -> (outputs,) that represents a kernel in traces, with the value NaN; it is added to KERNELS.

    A trace holds its calls as operations.
    """
    name = f"kernel_{next(_number)}"
    KERNELS[name] = kernel
    a = ca.SX.sym("a", kernel.inputs)
    return ca.Function(name, [a], [ca.repmat(np.nan * ca.sum1(a), kernel.outputs, 1)], {"never_inline": True})


@lru_cache(maxsize=1)
def _names() -> dict[int, str]:
    """Names of CasADi's operations by number."""
    return {getattr(ca, name): name[3:] for name in dir(ca) if name.startswith("OP_")}


RESULT = "RESULT"
"""Name of the operation (call, component)."""

Operand = int | float | tuple[int, int]
"""Index of an earlier operation, a constant, or (i, j): component j of input i."""


@dataclass(slots=True)
class Operation:
    """Value number ``index`` = name(operands)."""

    index: int
    name: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Trace:
    """Operations in order, and the operand of each component of each output; structural zeros are 0.0.

    called: traces of called functions of one vector and one output, or kernels, by the name of their operation.
    """

    operations: list[Operation]
    outputs: list[list[Operand]]
    called: dict[str, Trace | Kernel] = field(default_factory=dict)

    def count(self) -> dict[str, int]:
        """Number of operations by name."""
        totals: dict[str, int] = {}
        for op in self.operations:
            totals[op.name] = totals.get(op.name, 0) + 1
        return totals


def trace(function: Callable[..., Sequence[Sequence[Any]]], input_sizes: Sequence[int]) -> Trace:
    """Trace ``function(*inputs)``, each input a list of scalar symbols, each result a list of scalars."""
    symbols = [ca.SX.sym(f"i{i}", n) for i, n in enumerate(input_sizes)]
    results = function(*[[s[j] for j in range(n)] for s, n in zip(symbols, input_sizes, strict=True)])
    return trace_expressions(symbols, [ca.vertcat(*[ca.SX(r) for r in result]) for result in results])


def trace_expressions(symbols: Sequence[Any], expressions: Sequence[Any]) -> Trace:
    """Trace SX expressions of SX column symbols; repeated operations on the same operands are merged."""
    dense = [ca.densify(e) for e in expressions]
    return _traced(ca.Function("traced", list(symbols), dense, {"live_variables": False}))


def _traced(f: Any) -> Trace:
    """Trace of a CasADi function of SX columns; equal operations on the same operands are merged, preserved calls remain calls."""
    names, operation, read, written = _names(), f.instruction_id, f.instruction_input, f.instruction_output
    current: dict[int, Operand] = {}
    done: dict[tuple[Any, ...], int] = {}
    operations: list[Operation] = []
    outputs: list[list[Operand]] = [[0.0] * f.numel_out(i) for i in range(f.n_out())]
    called: dict[str, Trace | Kernel] = {}
    nodes: Any = None

    def result_of(name: str, operands: tuple[Operand, ...]) -> int:
        """Index of an operation, which is added unless an equal one exists."""
        # Python compares operation 2 equal to the number 2.0, and 0.0 equal to -0.0; the keys must differ
        key = (name, *[x.hex() if type(x) is float else x for x in operands])
        at = done.setdefault(key, len(operations))
        if at == len(operations):
            operations.append(Operation(at, name, operands))
        return at

    for k in range(f.n_instructions()):
        name, to = names[operation(k)], written(k)
        if name == "CONST":
            current[to[0]] = float(f.instruction_constant(k))
        elif name == "INPUT":
            current[to[0]] = tuple(read(k))
        elif name == "OUTPUT":
            outputs[to[0]][to[1]] = current[read(k)[0]]
        elif name == "CALL":
            nodes = f.instructions_sx() if nodes is None else nodes
            function = nodes[k].which_function()
            if function.name() not in called:
                called[function.name()] = KERNELS.get(function.name()) or _traced(function)
            call = result_of(function.name(), tuple([current[i] for i in read(k)]))
            current |= {i: result_of(RESULT, (call, float(j))) for j, i in enumerate(to)}
        else:
            current[to[0]] = result_of(name, tuple([current[i] for i in read(k)]))
    return Trace(operations, outputs, called)
