"""CasADi functions as compiled C code and as calls of its virtual machine, for one point after another."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.toolchain import find_toolchain
from dynamics_backends.deferred import deferred

ca = deferred("casadi")
Array = np.ndarray


class Generated(NamedTuple):
    """C code: its lines, the bytes of its library, the seconds of generation and compilation, and a call for one point after
    another; bytes, seconds and call are None where the compiler took too long."""

    lines: int
    size: int | None
    seconds: float | None
    call: Callable[[], Any] | None


def interpreted_call(f: Any, point: Array) -> Callable[[], Any]:
    """A call of CasADi's virtual machine for one point."""
    return lambda: f(point)


_LOOP = """
void many(long n, const double *x, double *y, long long *iw, double *w)
{{
    for (long i = 0; i < n; i++) {{
        const double *arg[{args}] = {{x + i * {nx}}};
        double *res[{results}] = {{y}};
        {name}(arg, res, iw, w, 0);
    }}
}}
"""


def generated(f: Any, points: Array, patience: float, level: str = "-O3") -> Generated:
    """The C code of a function of one column, compiled; the call computes all points (N, n)."""
    began = time.perf_counter()
    generator = ca.CodeGenerator("code.c")
    generator.add(f)
    loop = _LOOP.format(args=f.sz_arg() + 1, results=f.sz_res() + 1, nx=f.numel_in(0), name=f.name())
    text = generator.dump() + loop
    y, w, iw = np.empty(f.numel_out(0)), np.empty(f.sz_w() + 1), np.empty(f.sz_iw() + 1, np.int64)
    points = np.ascontiguousarray(points)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "code.c", Path(folder) / "code.so"
        source.write_text(text)
        command = [*find_toolchain().command, level, "-march=native", "-fPIC", "-shared", "-w", str(source)]
        try:
            subprocess.run([*command, "-o", str(library), "-lm"], check=True, timeout=patience)
        except subprocess.TimeoutExpired:
            return Generated(text.count("\n"), None, None, None)
        many, size = ctypes.CDLL(str(library)).many, library.stat().st_size
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (points, y, iw, w)]

    def call(kept: Any = (points, y, iw, w)) -> None:
        many(ctypes.c_long(len(points)), *arrays)

    return Generated(text.count("\n"), size, time.perf_counter() - began, call)


def matrix(block: Any) -> Any:
    """[i][j], or rows that are lists or columns, as one matrix."""
    rows = [r if hasattr(r, "is_symbolic") else ca.vertcat(*r) for r in block]
    return ca.horzcat(*rows).T
