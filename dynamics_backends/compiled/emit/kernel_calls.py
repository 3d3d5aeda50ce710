"""Calls of the package's kernels in traces: operations of a trace that a function of the C library evaluates.

A call is a CasADi function that is never inlined.  Its expression is NaN, so that a derivative by AD, which would not be the
kernel's, cannot pass unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """CasADi function (inputs,) -> (outputs,) whose calls are operations of a trace."""
    name = f"kernel_{next(_number)}"
    KERNELS[name] = kernel
    a = ca.SX.sym("a", kernel.inputs)
    return ca.Function(name, [a], [ca.repmat(np.nan * ca.sum1(a), kernel.outputs, 1)], {"never_inline": True})
