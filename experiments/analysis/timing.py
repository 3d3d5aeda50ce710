"""Processor times of alternating calls, and calls of rigid-body programs in the library and on tapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import median
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel_data import shapes_of
from dynamics_backends.compiled.loops.unrolled import argument_sizes, unrolled_trace
from dynamics_backends.machine.library import loop
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.driver import kernel_tape
from dynamics_backends.tape.tape import Tape
from .compiled_program import compiled_program

Array = np.ndarray
MIN_ROUND_TIME = 0.004
"""Minimum processor time of a call in one round [s]; the call is repeated until it takes this long."""
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


def program_call(
    program: Program, model: Model, batch: int, *, tape: bool = False, threads: int = 1
) -> Callable[[], Any]:
    """Return a function that runs a program for a batch: by its kernel, or on a tape without kernels.

    A program that the library does not contain is compiled.
    """
    q, v, x = samples(model, batch)
    known = {"q": q, "v": v, "mu": v - x, "lam": v - x}
    inputs = [known.get(name, x) for name in program.arguments]
    if tape:
        return partial(program_tape(program, model).rows, *inputs, threads=threads)
    if loop(program.name) is not None:
        return partial(kernel_tape(program, model).rows, *inputs, threads=threads)
    compiled = compiled_program(program, model)
    return partial(compiled.write, inputs, compiled.results(batch), threads)


@cache
def program_tape(program: Program, model: Model) -> Tape:
    """Tape of a program, unrolled for one model; cached."""
    with tracing:
        return Tape.of(unrolled_trace(program, model), argument_sizes(program, model), shapes_of(program, model))
