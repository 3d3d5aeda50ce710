"""CasADi functions as compiled C code and in CasADi's virtual machine, evaluated point by point.

A function becomes one block of straight-line code, whose compile time grows faster than its length. Code with more than OPTIMIZED
lines is compiled at -O1, code with more than MAX_LINES not at all. The kernel cache stores the libraries, and failures by the time
limit.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.kept_files import cache_folder, intact, known_value, seal, write_value
from dynamics_backends.compiled.runtime.toolchain import CompilerError, find_toolchain
from dynamics_backends.deferred import deferred
from dynamics_backends.trusted_files import FILE, trusted_folder

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
    library = _library(text, level, patience)
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


def _library(text: str, level: str, patience: float) -> Path | None:
    """Return the cached or newly compiled library of a source, or None if the compiler exceeds the time limit, now or earlier."""
    toolchain = find_toolchain()
    options = (level, "-march=native", "-fPIC", "-shared", "-w")
    key = hashlib.sha256("\n".join([text, *options, toolchain.fingerprint]).encode()).hexdigest()[:32]
    folder = cache_folder()
    library, late = folder / f"{key}.so", f"{key}.late"
    if intact(library):
        return library
    if (known_value(late) or 0.0) >= patience:
        return None
    with tempfile.TemporaryDirectory(dir=trusted_folder(folder)) as place:
        source, built = Path(place) / "code.c", Path(place) / "code.so"
        source.write_text(text)
        limited = ["sh", "-c", f'ulimit -t {patience:.0f}; exec "$@"', "sh", *toolchain.command]
        command = [*limited, *options, str(source), "-o", str(built), "-lm"]
        process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if process.returncode == 0:
            built.chmod(FILE)
            built.replace(library)
            seal(library)
            return library
    if process.returncode > 0 and not any(
        word in process.stderr for word in ("CPU time limit", "Killed", "terminated")
    ):
        raise CompilerError(f"{toolchain.command[0]} failed: {process.stderr.strip()[:2000]}")
    write_value(folder / late, patience)
    return None


def matrix(block: Any) -> Any:
    """Convert rows [i][j], lists or columns, to one CasADi matrix."""
    rows = [r if hasattr(r, "is_symbolic") else ca.vertcat(*r) for r in block]
    return ca.horzcat(*rows).T
