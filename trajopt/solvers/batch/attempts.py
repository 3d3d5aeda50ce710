"""Automatic solver choice for batches: the attempts of :mod:`trajopt.solvers.auto`, each run on all problems that request it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import chosen_coordinates
from trajopt.problem.ocp import OCP
from trajopt.solvers.auto import Attempt, Try, attempts, has_only_bounds, in_turn
from trajopt.solvers.batch.interrupts import interrupted
from trajopt.solvers.batch.solution import BatchSolution, gathered, guess_of, renumbered
from trajopt.solvers.methods.driver import Answers, ProgressCallback, run_together
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.registry import attempt_options

Run = Callable[[Batch, tuple[Array, Array], str, Any, ProgressCallback], BatchSolution]
"""Solves a batch from guesses xs (n, N + 1, nx), us (n, N, nu) with a named solver and its options; reports the finished count."""


def in_attempts(
    batch: Batch,
    guess: tuple[Array, Array],
    options: AutoOptions,
    run: Run,
    fits: Callable[[OCP, Any], bool],
    on_finished: ProgressCallback,
    *,
    gains: bool,
) -> BatchSolution | None:
    """Solve a batch by the sequence of solvers ("attempts") of ``auto``: each runs once, on all problems that still need it.

    Attempts on coarse time grids are left out. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). run: solves a batch with a
    named solver. ``fits(ocp, options)`` is true if the solver of these options solves many problems together; ``on_finished``
    receives the finished count. Returns None if no first attempt fits, or if the options have a time limit, which all attempts of
    a problem share.
    """
    began, n, plans, answers = time.perf_counter(), len(batch), _plans(batch), list[tuple[list[int], BatchSolution]]()
    firsts = {id(plan[0]): plan[0] for plan in plans}.values()
    if options.time_limit is not None or not any(fits(first.ocp, attempt_options(first, options)) for first in firsts):
        return None

    def answer(numbers: list[int], requests: list[Try], report: ProgressCallback) -> Answers:
        """Solve the problems ``numbers`` by the attempt that all of them request, without state bounds if it is relaxed."""
        attempt, own = requests[0].attempt, batch.subset(numbers)
        starts = np.array([r.guess.xs for r in requests]), np.array([r.guess.us for r in requests])
        limits = own.unconstrained() if attempt.relaxed else own
        found = run(limits, starts, attempt.solver, attempt_options(attempt, options), report)
        answers.append((numbers, found))
        return Answers(found, found.stopped)

    numbered = enumerate(plans)
    methods = [in_turn(p, partial(batch.__getitem__, i), guess_of(guess, i, n), options) for i, p in numbered]
    solutions, stopped = run_together(methods, answer, lambda i, request: id(request.attempt), on_finished, interrupted)
    numbers, most = max(answers, key=lambda pair: len(pair[0]))
    meta = {**renumbered(most.meta, numbers), "seconds": time.perf_counter() - began, "stopped": stopped}
    return gathered(batch, dict(enumerate(solutions)), gains=gains, meta=meta)


def _plans(batch: Batch) -> list[list[Attempt]]:
    """Return the attempts of ``auto`` for each problem, without coarse grids.

    All problems share one list, unless every constraint bounds state components and these bounds may differ: a problem with equal
    lower and upper bounds then has other attempts.
    """
    if not batch.bounds_differ or any(chosen_coordinates(c) is None for c in batch.ocp.constraints()):
        return [list(attempts(batch[0], coarse=False))] * len(batch)  # batch[0] includes bounds of members
    open_bounds = [has_only_bounds(batch[i]) for i in range(len(batch))]
    plans = {kind: list(attempts(batch[open_bounds.index(kind)], coarse=False)) for kind in set(open_bounds)}
    return [plans[kind] for kind in open_bounds]
