"""Solve only the valid problems of a batch; invalid ones keep their guess and get an error status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers.batch.solution import BatchSolution, gathered, renumbered, rows_of
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.problems.batch import Batch

Run = Callable[[Batch, tuple[Array, Array], ProgressCallback], BatchSolution]


def solve_valid_problems(
    flaws: Mapping[int, Status],
    batch: Batch,
    guess: tuple[Array, Array],
    run: Run,
    on_finished: ProgressCallback,
    *,
    gains: bool,
) -> BatchSolution:
    """Solve the problems without flaws and return the solutions of all problems, in order.

    A problem in ``flaws`` keeps its guess and gets the status in ``flaws``. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu).
    ``run`` solves a batch. ``on_finished`` receives the number of finished problems, including those with flaws.
    """
    if not flaws:
        return run(batch, guess, on_finished)
    n, meta, ocp = len(batch), dict[str, Any](how="no problem was solved", seconds=0.0), batch.ocp
    valid = [i for i in range(n) if i not in flaws]
    K, k = np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)), np.zeros((ocp.horizon, ocp.nu))
    whole = {}
    for i, status in flaws.items():
        (xs,), (us,) = rows_of(guess, [i], n)
        whole[i] = Solution(xs, us, K, k, status, np.nan, 0, (), ocp.times, {"solve_time": 0.0})
    if valid:
        report = None if on_finished is None else (lambda done: on_finished(len(flaws) + done))
        found = run(batch.subset(valid), rows_of(guess, valid, n), report)
        whole |= dict(zip(valid, found, strict=True))
        meta = renumbered(found.meta, valid)
    return gathered(batch, whole, gains=gains, meta=meta)
