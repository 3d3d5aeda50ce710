"""Solve only the valid problems of a batch; invalid ones keep their guess and get an error status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers.batch.solution import BatchSolution, gathered, renumbered, rows_of
from trajopt.solvers.methods.driver import Told
from trajopt.solvers.problems.batch import Batch

Run = Callable[[Batch, tuple[Array, Array], Told], BatchSolution]


def solved_but(
    flaws: Mapping[int, Status], batch: Batch, guess: tuple[Array, Array], run: Run, told: Told, *, gains: bool
) -> BatchSolution:
    """Solve the problems without flaws and return the solutions of all problems, in order.

    A problem in ``flaws`` keeps its guess and gets the status in ``flaws``. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu).
    ``run`` solves a batch. ``told`` receives the number of finished problems, including those with flaws.
    """
    if not flaws:
        return run(batch, guess, told)
    n, meta, ocp = len(batch), dict[str, Any](how="no problem was solved", seconds=0.0), batch.ocp
    sound = [i for i in range(n) if i not in flaws]
    K, k = np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)), np.zeros((ocp.horizon, ocp.nu))
    whole = {}
    for i, status in flaws.items():
        (xs,), (us,) = rows_of(guess, [i], n)
        whole[i] = Solution(xs, us, K, k, status, np.nan, 0, (), ocp.times, {"solve_time": 0.0})
    if sound:
        tell = None if told is None else (lambda done: told(len(flaws) + done))
        found = run(batch.subset(sound), rows_of(guess, sound, n), tell)
        whole |= dict(zip(sound, found, strict=True))
        meta = renumbered(found.meta, sound)
    return gathered(batch, whole, gains=gains, meta=meta)
