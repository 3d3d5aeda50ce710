"""Processor times of alternating calls, and calls of compiled rigid-body programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import CompiledKernel
from dynamics_backends.compiled.loops.loops import LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.unrolled import unrolled_kernel
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program

Array = np.ndarray
MIN_ROUND_TIME = 0.004
"""Minimum processor time of a call in one round [s]; the call is repeated until it takes this long."""
JOINTS = ("revolute", "prismatic", "floating")
"""Joint types of the loop kernels."""
SEED = 0


def interleaved_times(
    calls: Sequence[Callable[[], Any]], rounds: int, shortest: float = MIN_ROUND_TIME
) -> list[list[float]]:
    """Return the processor time [s] of each call in each round. Calls alternate, so that other load affects all of them."""

    def seconds(call: Callable[[], Any], repeats: int) -> float:
        start = time.process_time()
        for _ in range(repeats):
            call()
        return time.process_time() - start

    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, round(shortest / max(seconds(call, 1), 1e-6))))
    each = list(zip(calls, repeats, strict=True))
    table = [[seconds(call, n) / n for call, n in each] for _ in range(rounds)]
    return [list(column) for column in zip(*table, strict=True)]


def medians(calls: Sequence[Callable[[], Any]], rounds: int, shortest: float = MIN_ROUND_TIME) -> list[float]:
    """Return the median processor time [s] of each call over the rounds."""
    return [median(t) for t in interleaved_times(calls, rounds, shortest)]


def samples(model: Model, n: int, seed: int = SEED) -> tuple[Array, Array, Array]:
    """Draw q (n, nq), v (n, nv), and accelerations or forces (n, nv) at random."""
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, n), rng.standard_normal((n, model.nv)), rng.standard_normal((n, model.nv))


def joined_samples(model: Model, n: int) -> Array:
    """Return random samples as rows (n, nq + 2 nv)."""
    return np.concatenate(samples(model, n), axis=1)


def program_call(program: Program, model: Model, batch: int, *, unrolled: bool = False) -> Callable[[], Any]:
    """Return a function that runs a compiled program for a batch on one thread, into preallocated arrays."""
    source = unrolled_kernel(program, model) if unrolled else loop_kernel(program, JOINTS)
    return source_call(source, program, model, batch)


def source_call(source: LoopKernel, program: Program, model: Model, batch: int) -> Callable[[], Any]:
    """Compile a kernel's source and return a function that runs it for a batch on one thread."""
    order = {Axis.DOF: 1, Axis.MATRIX: 2, Axis.TENSOR: 3}
    kernel = CompiledKernel(source, model, [(model.nv,) * order[FIELDS[o].axis] for o in program.outputs])
    q, v, x = samples(model, batch)
    known = {"q": q, "v": v, "mu": v - x, "lam": v - x}
    inputs, out = [known.get(name, x) for name in program.arguments], kernel.buffers(batch)
    return lambda: kernel(*inputs, out=out, threads=1)
