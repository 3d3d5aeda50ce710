"""C source of kernels: templates, headers, and the functions by which tapes call the loops of a program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from dynamics_backends.compiled.loops.loops import LoopKernel


@lru_cache(maxsize=1)
def templates() -> str:
    """C text that precedes every kernel: vectors, their functions and linear algebra."""
    return "\n".join([prelude(), *map(template, ("linear_algebra/ltl.h", "linear_algebra/tensors.h"))])


@lru_cache(maxsize=1)
def prelude() -> str:
    """C text of vectors over lanes and of their functions."""
    return "\n".join(template(f"lanes/{name}.h") for name in ("vectors", "vector_math", "prelude"))


def template(name: str) -> str:
    """C text of a file in the folder templates, by its path; headers that it includes must precede it."""
    return _without_includes((files("dynamics_backends.compiled") / "templates" / name).read_text())


def header(name: str) -> str:
    """Text of a header of the package's C library, by its name in the folder include; headers that it includes must precede it."""
    return _without_includes((files("dynamics_backends.machine") / "include" / name).read_text())


def kernel_text(package: str, *names: str) -> str:
    """C source of files in the folder kernels of a package; headers that they include must precede them."""
    folder = files(package) / "kernels"
    return "\n".join(_without_includes((folder / name).read_text()) for name in names)


def definitions(values: Mapping[str, Any]) -> str:
    """Macros of C for Python constants, by name."""
    return "\n".join(f"#define {name} {value!r}" for name, value in values.items())


def _without_includes(text: str) -> str:
    """C text without ``#pragma once`` and includes of the project's headers."""
    return re.sub(r'^#(pragma once|include ".*")\n', "", text, flags=re.M)


_ENTRY = """
static long {name}_workspace(const int* head)
{{
const int nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
return {workspace};
}}
static void {name}_run(const tables_t* tables, const void* in, void* out, void* workspace)
{{
const int* const* ti = tables->ti;
const double* const* td = tables->td;
const int *head = ti[0], nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
V *x = (V *)in, *y = out;
{places}
    {name}(ti, td, {arguments}, workspace);
}}
"""


def entry(kernel: LoopKernel) -> str:
    """Source of the C functions of a block function's loop_t: NAME_workspace and NAME_run."""
    sizes = [*kernel.input_sizes, *kernel.output_sizes]
    names = [f"x{i}" for i in range(len(kernel.inputs))] + [f"y{i}" for i in range(len(kernel.outputs))]
    places = "\n".join(f"V* {n} = {n[0]}; {n[0]} += {s};" for n, s in zip(names, sizes, strict=True))
    return _ENTRY.format(name=kernel.name, workspace=kernel.workspace, places=places, arguments=", ".join(names))


def text_of(kernel: LoopKernel) -> str:
    """Whole C source of a kernel: the templates, its loops, and the functions of its loop_t (loops.h must precede them)."""
    return "\n".join([templates(), kernel.source, entry(kernel)])
