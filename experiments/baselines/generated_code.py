"""CasADi functions as compiled C code and in CasADi's virtual machine, evaluated point by point.

A function becomes one block of straight-line code, whose compile time grows faster than its length. Code with more than OPTIMIZED
lines is compiled at -O1, code with more than MAX_LINES not at all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.deferred import deferred
from experiments.analysis.compiled_code import compiled_library

ca = deferred("casadi")
Array = np.ndarray
OPTIMIZED, MAX_LINES = 50_000, 200_000
LOW_OPTIMIZATION = "-O1"


class Generated(NamedTuple):
    """Compiled C code: lines of code, optimization level, library size [bytes], and a call that evaluates all points.

    size, call: None if the code was not compiled. why: reason for that, or a remark. output: results of the last point
    after a call, followed by those of the continuation.
    """

    lines: int
    level: str
    size: int | None
    call: Callable[[], Any] | None
    why: str
    output: Array | None = None


def interpreted_call(f: Any, point: Array) -> Callable[[], Any]:
    """Return a call of CasADi's virtual machine for one point."""
    return lambda: f(point)


class Continuation(NamedTuple):
    """C code that runs after a generated function. source: code of ``static void NAME(const double *in, double *out)``."""

    source: str
    name: str
    outputs: int


_LOOP = """
void many(long n, const double *x, double *y, long long *iw, double *w)
{{
    for (long i = 0; i < n; i++) {{
        const double *arg[{args}] = {{x + i * {nx}}};
        double *res[{results}] = {{y}};
        {name}(arg, res, iw, w, 0);
        {then}
    }}
}}
"""


def generated(
    f: Any, points: Array, patience: float, level: str = "-O3", then: Continuation | None = None
) -> Generated:
    """Compile a CasADi function of one column within ``patience`` seconds of processor time; the call computes all points (N, n).

    then: code that processes the function's output. Raises CompilerError if the compiler fails.
    """
    generator = ca.CodeGenerator("code.c")
    generator.add(f)
    sizes = {"args": f.sz_arg() + 1, "results": f.sz_res() + 1, "nx": f.numel_in(0)}
    after = "" if then is None else f"{then.name}(y, y + {f.numel_out(0)});"
    source = "" if then is None else then.source
    text = generator.dump() + source + _LOOP.format(name=f.name(), then=after, **sizes)
    lines = text.count("\n")
    if lines > MAX_LINES:
        return Generated(lines, "", None, None, f"not compiled: {lines:,} lines of C")
    level = LOW_OPTIMIZATION if lines > OPTIMIZED else level
    library = compiled_library(text, (level, "-march=native"), patience)
    if library is None:
        return Generated(lines, level, None, None, f"not compiled in {patience:.0f} s")
    many = ctypes.CDLL(str(library)).many
    size = f.numel_out(0) + (0 if then is None else then.outputs)
    y, w, iw = np.empty(size), np.empty(f.sz_w() + 1), np.empty(f.sz_iw() + 1, np.int64)
    points = np.ascontiguousarray(points)
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (points, y, iw, w)]

    def call(arrays_in_use: Any = (points, y, iw, w)) -> None:
        many(ctypes.c_long(len(points)), *arrays)

    why = f"{lines:,} lines of C at {level}" if lines > OPTIMIZED else ""
    return Generated(lines, level, library.stat().st_size, call, why, y)


def matrix(block: Any) -> Any:
    """Convert rows [i][j], lists or columns, to one CasADi matrix."""
    rows = [r if hasattr(r, "is_symbolic") else ca.vertcat(*r) for r in block]
    return ca.horzcat(*rows).T
