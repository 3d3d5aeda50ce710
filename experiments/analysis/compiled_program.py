"""Programs compiled as C loops, for measurements and tests: the package's library contains only those that tapes call."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import header, text_of
from dynamics_backends.compiled.loops.kernel_data import double_tables, int_tables, shapes_of
from dynamics_backends.compiled.loops.loops import LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.sparsity import zero_masks
from dynamics_backends.compiled.loops.unrolled import argument_sizes
from dynamics_backends.compiled.runtime.memory import Workspaces, address, aligned, bound, over_threads, pointers
from dynamics_backends.environment import CompilerError
from dynamics_backends.machine.library import chosen_instructions, lanes
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program
from .compiled_code import compiled_library

Array = np.ndarray
USUAL_JOINTS = ("revolute", "prismatic", "floating")
"""Joint types of almost all robots."""
PATIENCE = 60.0
"""Maximum processor time of the compiler for a program [s]."""
ROWS = """
/* Stride in doubles between the n numbers of consecutive knots: a multiple of the lanes, so that all are aligned. */
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

/* LANES rows of n doubles each, PADDED(n) apart, <- blocks of LANES numbers of n vectors: blocks[0] is the number of blocks,
   then their indices. Other numbers of the rows are unchanged. */
static void unpack_blocks(const V *restrict x, long n, const int *restrict blocks, int count, double *restrict rows)
{{
    const long stride = PADDED(n);
    for (int b = 1; b <= blocks[0]; b++) {{
        const long i = (long)blocks[b] * LANES, rest = n - i < LANES ? n - i : LANES;
#if LANES == 8 || LANES == 4
        if (count == LANES) {{
            V t[LANES];
            transpose(x + i, t);
            for (int l = 0; l < LANES; l++) memcpy(rows + stride * l + i, &t[l], sizeof(V));
            continue;
        }}
#endif
        for (int l = 0; l < count; l++)
            for (long j = i; j < i + rest; j++) rows[stride * l + j] = ((const double *)x)[j * LANES + l];
    }}
}}

EXPORT long program_workspace(const int *head) {{ return {name}_workspace(head); }}

/* arrays, sizes: those of all inputs, then of all outputs. blocks: of each output, NULL for all numbers. */
EXPORT void program_rows(const tables_t *tables, double *const *arrays, const long *sizes, const int *const *blocks, long inputs,
                         long outputs, long first, long last, V *memory)
{{
    V *y = memory, *w;
    for (long i = 0; i < inputs; i++) y += sizes[i];
    w = y + LANES; /* unpack_blocks reads up to LANES vectors behind the outputs */
    for (long i = 0; i < outputs; i++) w += sizes[inputs + i];
    for (long n = first; n < last; n += LANES) {{
        const int count = last - n < LANES ? last - n : LANES;
        V *to = memory, *from = y;
        for (long i = 0; i < inputs; to += sizes[i++]) pack(arrays[i] + n * sizes[i], sizes[i], count, to);
        {name}_run(tables, memory, y, w);
        for (long i = 0; i < outputs; i++) {{
            const long size = sizes[inputs + i];
            if (blocks[i]) unpack_blocks(from, size, blocks[i], count, arrays[inputs + i] + n * PADDED(size));
            else unpack(from, size, count, arrays[inputs + i] + n * size);
            from += size;
        }}
    }}
}}
"""


def program_text(loops: LoopKernel) -> str:
    """Return the C source of a program with the functions program_workspace and program_rows."""
    return "\n".join([header("loops.h"), text_of(loops), ROWS.format(name=loops.name)])


class CompiledProgram:
    """Compiled program with the tables of one model.

    sizes: numbers of components of the inputs; shapes: of a knot's outputs; zeros: for each output the mask of its structural
    zeros, which calls do not write, or None.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        model: Model,
        sizes: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        zeros: Sequence[Array | None],
    ) -> None:
        self._run = bound(library, "program_rows", "pppp llll p")
        self._lanes, self.shapes, self._zeros = lanes(), list(shapes), list(zeros)
        integers, doubles = int_tables(model), double_tables(model)
        blocks = [None if mask is None else self._blocks(mask) for mask in zeros]
        places = (ctypes.c_void_p * len(blocks))(*(None if b is None else address(b) for b in blocks))
        rows = pointers(integers), pointers(doubles)
        tables = (ctypes.c_void_p * 3)(*map(ctypes.addressof, rows), None)
        counts = np.array([*sizes, *map(math.prod, shapes)], np.int_)
        self._memory = integers, doubles, blocks, rows, tables, places, counts
        own = int(bound(library, "program_workspace", "p", ctypes.c_long)(address(integers[0])))
        self._workspaces = Workspaces((int(counts.sum()) + self._lanes + own) * self._lanes)
        self._data = ctypes.addressof(tables), address(counts), ctypes.addressof(places), len(sizes), len(shapes)

    def _blocks(self, mask: Array) -> Array:
        """Return the count and the indices of the blocks of consecutive numbers, one for each lane, that are not all zeros."""
        padded = np.concatenate([mask.ravel(), np.ones(-mask.size % self._lanes, bool)])
        nonzero = np.flatnonzero(~padded.reshape(-1, self._lanes).all(axis=1))
        return np.array([len(nonzero), *nonzero], dtype=np.int32)

    def results(self, n: int) -> list[Array]:
        """Return output arrays for n knots; those with structural zeros are zero."""
        return [
            np.empty((n, *shape)) if mask is None else self._padded(n, shape)
            for shape, mask in zip(self.shapes, self._zeros, strict=True)
        ]

    def _padded(self, n: int, shape: tuple[int, ...]) -> Array:
        """Return zeros (n, *shape) in which the numbers of each knot fill whole vectors."""
        size = math.prod(shape)
        padded = -(-size // self._lanes) * self._lanes
        return aligned(n * padded).reshape(n, padded)[:, :size].reshape(n, *shape)

    def write(self, inputs: Sequence[Array], results: Sequence[Array], threads: int | None = None) -> None:
        """Write the outputs for inputs (n, size), float64 and C-contiguous, to arrays from :meth:`results`."""
        arrays = pointers([*inputs, *results])
        tables, *rest = self._data

        def part(first: int, last: int, workspace: Array) -> None:
            """Run the program for knots first to last, last excluded."""
            self._run(tables, ctypes.addressof(arrays), *rest, first, last, address(workspace))

        over_threads(part, len(inputs[0]), self._lanes, self._workspaces, threads)

    def __call__(self, *inputs: Any) -> list[Array]:
        """Return the outputs (n, ...) for inputs (n, size)."""
        arrays = [np.ascontiguousarray(x, dtype=float) for x in inputs]
        results = self.results(len(arrays[0]))
        self.write(arrays, results)
        return results


def compiled_program(program: Program, model: Model) -> CompiledProgram:
    """Return the compiled program for a model. Raises CompilerError, also if the compiler takes longer than PATIENCE."""
    text = f"#define LANES {lanes()}\n{program_text(loop_kernel(program, USUAL_JOINTS))}"
    file = compiled_library(text, ("-O3", "-fno-math-errno", f"-march={chosen_instructions() or 'native'}"), PATIENCE)
    if file is None:
        raise CompilerError(f"{program.name} was not compiled within {PATIENCE:g} s")
    zeros = zero_masks(program, model)
    of_outputs = [zeros.get(name) for name in program.outputs]
    return CompiledProgram(
        ctypes.CDLL(str(file)), model, argument_sizes(program, model), shapes_of(program, model), of_outputs
    )
