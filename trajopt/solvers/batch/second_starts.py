"""Restarts, with nonlinear gaps, of batch problems that diverged with linear gaps (:mod:`trajopt.solvers.slq`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.batch.interrupts import interrupted
from trajopt.solvers.batch.solution import BatchSolution, gathered, rows_of
from trajopt.solvers.methods.delegation import SolveRequest
from trajopt.solvers.methods.driver import Answers, ProgressCallback, run_together
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.slq import with_nonlinear_gaps


def solve_twice(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    *,
    run: Callable[..., BatchSolution],
    on_finished: ProgressCallback,
    max_iterations: Array | None = None,
    **rest: Any,
) -> BatchSolution:
    """Solve a batch; solve a problem again with nonlinear gaps if linear gaps fail.

    They fail as in :func:`~trajopt.solvers.slq.with_nonlinear_gaps`. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). ``run``
    solves a batch. max_iterations (n,): limit of each problem over both solves; None for that of the options.
    meta["second_starts"] lists the problems that were solved again, if any.
    """
    began, n, found, starts = time.perf_counter(), len(batch), list[BatchSolution](), list[list[int]]()
    limits = np.full(n, options.max_iterations) if max_iterations is None else max_iterations
    referred = set[int]()

    def answer(numbers: list[int], requests: Sequence[SolveRequest], report: ProgressCallback) -> Answers:
        """Solve the problems ``numbers`` with the options that all of them request, and record which need a single solve."""
        inner, own = requests[0].options, batch if len(numbers) == n else batch.subset(numbers)
        if inner.time_limit is not None:  # the limit covers all problems of a call
            inner = replace(inner, time_limit=max(r.time_limit or 0.0 for r in requests))
        counts = np.array([r.max_iterations for r in requests])
        found.append(run(own, rows_of(guess, numbers, n), inner, on_finished=report, max_iterations=counts, **rest))
        starts.append(numbers)
        referred.update(numbers[j] for j in found[-1].meta.get("referred", ()))
        return Answers(found[-1], found[-1].stopped)

    methods = [with_nonlinear_gaps(options, int(limit)) for limit in limits]
    solutions, stopped = run_together(methods, answer, lambda i, r: r.options, on_finished, interrupted)
    if len(found) == 1 and len(found[0]) == n:
        return replace(found[0], meta={**found[0].meta, "stopped": True}) if stopped else found[0]
    counts = np.bincount(np.concatenate(starts), minlength=n)
    numbers = {"second_starts": np.flatnonzero(counts > 1).tolist(), "referred": sorted(referred)}
    meta = {**max(found, key=len).meta, **{name: own for name, own in numbers.items() if own}}
    meta |= {"seconds": time.perf_counter() - began, "stopped": stopped}
    return gathered(batch, dict(enumerate(solutions)), gains=rest["gains"], meta=meta)
