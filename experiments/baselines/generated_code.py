"""CasADi functions as compiled C code and as calls of its virtual machine, for one point after another.

One function becomes one block of straight lines, whose compilation takes a time that grows faster than its length: beyond
OPTIMIZED lines it is compiled at -O1, beyond MOST_LINES not at all.  Libraries are kept with the compiled kernels, and so is
the news that a compiler ran out of its time.
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
OPTIMIZED, MOST_LINES = 50_000, 200_000
QUICKLY = "-O1"


class Generated(NamedTuple):
    """C code: its lines, the option of its optimization, the bytes of its library, and a call for one point after another.

    size and call are None where it was not compiled; why: then a sentence about that, else what there is to tell, or nothing.
    output: the numbers of the last point after a call, those of the continuation last.
    """

    lines: int
    level: str
    size: int | None
    call: Callable[[], Any] | None
    why: str
    output: Array | None = None


def interpreted_call(f: Any, point: Array) -> Callable[[], Any]:
    """A call of CasADi's virtual machine for one point."""
    return lambda: f(point)


class Continuation(NamedTuple):
    """C code that a generated function is followed by. source: of ``static void NAME(const double *in, double *out)``."""

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
    """The C code of a function of one column, compiled in ``patience`` seconds of a processor; the call computes all points (N, n).

    then: code that is called with the function's output after it.

    Raises CompilerError where the compiler refuses it.
    """
    generator = ca.CodeGenerator("code.c")
    generator.add(f)
    sizes = {"args": f.sz_arg() + 1, "results": f.sz_res() + 1, "nx": f.numel_in(0)}
    after = "" if then is None else f"{then.name}(y, y + {f.numel_out(0)});"
    source = "" if then is None else then.source
    text = generator.dump() + source + _LOOP.format(name=f.name(), then=after, **sizes)
    lines = text.count("\n")
    if lines > MOST_LINES:
        return Generated(lines, "", None, None, f"not compiled: {lines:,} lines of C")
    level = QUICKLY if lines > OPTIMIZED else level
    library = _library(text, level, patience)
    if library is None:
        return Generated(lines, level, None, None, f"not compiled in {patience:.0f} s")
    many = ctypes.CDLL(str(library)).many
    size = f.numel_out(0) + (0 if then is None else then.outputs)
    y, w, iw = np.empty(size), np.empty(f.sz_w() + 1), np.empty(f.sz_iw() + 1, np.int64)
    points = np.ascontiguousarray(points)
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (points, y, iw, w)]

    def call(kept: Any = (points, y, iw, w)) -> None:
        many(ctypes.c_long(len(points)), *arrays)

    why = f"{lines:,} lines of C at {level}" if lines > OPTIMIZED else ""
    return Generated(lines, level, library.stat().st_size, call, why, y)


def _library(text: str, level: str, patience: float) -> Path | None:
    """The library of a source, kept or compiled; None where the compiler has run out of its time, now or before."""
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
        source, made = Path(place) / "code.c", Path(place) / "code.so"
        source.write_text(text)
        limited = ["sh", "-c", f'ulimit -t {patience:.0f}; exec "$@"', "sh", *toolchain.command]
        command = [*limited, *options, str(source), "-o", str(made), "-lm"]
        ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if ended.returncode == 0:
            made.chmod(FILE)
            made.replace(library)
            seal(library)
            return library
    if ended.returncode > 0 and not any(word in ended.stderr for word in ("CPU time limit", "Killed", "terminated")):
        raise CompilerError(f"{toolchain.command[0]} failed: {ended.stderr.strip()[:2000]}")
    write_value(folder / late, patience)
    return None


def matrix(block: Any) -> Any:
    """[i][j], or rows that are lists or columns, as one matrix."""
    rows = [r if hasattr(r, "is_symbolic") else ca.vertcat(*r) for r in block]
    return ca.horzcat(*rows).T
