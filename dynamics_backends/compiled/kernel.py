"""Kernels: block functions wrapped in a loop over the batch, compiled, and called with arrays (N, n).

Public arrays are packed into lane blocks and unpacked in C.  A call releases the GIL; large batches are split over
threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np

from dynamics_backends.compiled.cache import load
from dynamics_backends.compiled.loops import LoopKernel, double_tables, int_tables
from dynamics_backends.compiled.memory import Rooms, address, bound, over_threads, pointers
from dynamics_backends.compiled.toolchain import find_toolchain
from dynamics_backends.rigid_body.model import Model


@lru_cache(maxsize=1)
def templates() -> str:
    """The C text in front of every kernel."""
    folder = files("dynamics_backends.compiled") / "templates"
    return "\n".join((folder / name).read_text() for name in ("prelude.h", "ltl.h"))


_ENTRY = """
__attribute__((visibility("default"))) long {name}_room(const int* head)
{{
const int nb = head[0], nv = head[1], nq = head[2]; (void)nb; (void)nv; (void)nq;
return {room};
}}
__attribute__((visibility("default"))) void {name}_run(
    const int* const* ti, const double* const* td, const double* const* in, double* const* out, long first, long last,
    V* room)
{{
const int nb = ti[0][0], nv = ti[0][1], nq = ti[0][2]; (void)nb; (void)nv; (void)nq;
{pointers}
for (long n = first; n < last; n += LANES) {{
    const int count = last - n < LANES ? last - n : LANES;
{packing}
    {name}(ti, td, {arguments}, room);
{unpacking}
}}
}}
"""


def entry(kernel: LoopKernel) -> str:
    """The exported functions of a block function: room (workspace in vectors) and run (knots first..last)."""
    sizes = [*kernel.input_sizes, *kernel.output_sizes]
    names = [f"x{i}" for i in range(len(kernel.inputs))] + [f"y{i}" for i in range(len(kernel.outputs))]
    pointers = "\n".join(f"V* {n} = room; room += {s};" for n, s in zip(names, sizes, strict=True))
    packing = "\n".join(f"    pack(in[{i}] + n * ({s}), {s}, count, x{i});" for i, s in enumerate(kernel.input_sizes))
    unpacking = "\n".join(
        f"    unpack(y{i}, {s}, count, out[{i}] + n * ({s}));" for i, s in enumerate(kernel.output_sizes)
    )
    room = " + ".join([*(f"({s})" for s in sizes), kernel.workspace])
    return _ENTRY.format(
        name=kernel.name, room=room, pointers=pointers, packing=packing, unpacking=unpacking, arguments=", ".join(names)
    )


_NO_TABLES: tuple[list[np.ndarray], list[np.ndarray]] = ([np.zeros(3, dtype=np.int32)], [])  # nb, nv, nq = 0


class CompiledKernel:
    """A loaded kernel bound to one model's tables; straight-line code reads none and needs no model."""

    def __init__(self, kernel: LoopKernel, model: Model | None, shapes: Sequence[tuple[int, ...]]) -> None:
        library = load("\n".join([templates(), kernel.source, entry(kernel)]))
        self._run = bound(library, f"{kernel.name}_run", "pppp ll p")
        room = bound(library, f"{kernel.name}_room", "p", ctypes.c_long)
        self.tables = _NO_TABLES if model is None else (int_tables(model), double_tables(model))
        self._ti, self._td = (pointers(t) for t in self.tables)
        self.shapes = list(shapes)
        self._lanes = find_toolchain().lanes
        self._rooms = Rooms(int(room(address(self.tables[0][0]))) * self._lanes)

    def buffers(self, n: int) -> list[np.ndarray]:
        """Arrays for the outputs of a batch of n: a caller that repeats keeps them, fresh memory costs more than many a kernel."""
        return [np.zeros((n, *shape)) for shape in self.shapes]

    def __call__(
        self, *inputs: np.ndarray, out: list[np.ndarray] | None = None, threads: int | None = None
    ) -> list[np.ndarray]:
        """Outputs (N, ...) from inputs (N, n), float64 and C-contiguous (converted where they are not)."""
        arrays = [np.ascontiguousarray(x, dtype=float) for x in inputs]
        n = len(arrays[0])
        results = [np.empty((n, *shape)) for shape in self.shapes] if out is None else out
        pin, pout = pointers(arrays), pointers(results)

        def part(first: int, last: int, room: np.ndarray) -> None:
            self._run(self._ti, self._td, pin, pout, first, last, address(room))

        over_threads(part, n, self._lanes, self._rooms, threads)
        return results
