"""Augmented-Lagrangian batches for SLQ and DDP with constraints: each round runs the inner solves of all problems in lanes.

Multipliers, penalties and bounds differ between problems. They are weights and parameters of cost terms, hence run-time values.
Equality of a lower and an upper bound is compiled into the code, so problems that differ in it are solved in separate rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.batch.interrupts import interrupted
from trajopt.solvers.batch.solution import BatchSolution, gathered
from trajopt.solvers.methods.driver import Answers, ProgressCallback, run_together
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.shooting.augmented_lagrangian import Inner, Rounds
from trajopt.solvers.shooting.penalized import Augmented


def in_rounds(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    run: Callable[..., BatchSolution],
    *,
    gains: bool,
    on_finished: ProgressCallback,
) -> BatchSolution:
    """Solve a batch with constraints by the augmented Lagrangian: in each round, inner solves without constraints run together.

    A round contains problems with the same options and the same rows with equal bounds. guess: xs (n or 1, N + 1, nx), us (n or 1,
    N, nu). run: solves unconstrained batches.
    """
    began, rounds, first = time.perf_counter(), Rounds(batch, guess, options), dict[str, Any]()

    def answer(numbers: list[int], requests: list[Inner], report: ProgressCallback) -> Answers:
        """Run one round for the problems ``numbers`` and return the answers to their requests."""
        stopped = False

        def solve(own: Augmented, at: tuple[Array, Array], requests: Sequence[Inner]) -> BatchSolution:
            """Solve the unconstrained problems of a round from given trajectories, each with its own iteration limit."""
            nonlocal stopped
            limits = np.array([r.solve.max_iterations for r in requests])
            still = None if report is None else lambda _: report(0)
            found = run(own, at, requests[0].solve.options, on_finished=still, max_iterations=limits)
            first.update({} if first else {key: found.meta[key] for key in ("how", "lanes") if key in found.meta})
            stopped = found.stopped
            return found

        return Answers(rounds.answer(numbers, requests, solve), stopped)

    equal = [np.broadcast_to(part.equal, (len(batch), part.equal.shape[-1])) for part in rounds.parts]
    kinds = [row.tobytes() for row in np.concatenate(equal, axis=1)]
    ended, stopped = run_together(
        rounds.methods(), answer, lambda i, r: (kinds[i], r.solve.options), on_finished, interrupted
    )
    found = {i: rounds.solution(i, end) for i, end in enumerate(ended)}
    whole = gathered(batch, found, gains=gains, meta={**first, "rounds": rounds.count, "stopped": stopped})
    violations = np.maximum(whole.meta["defects"], rounds.violation).tolist()
    seconds = {"solve_times": rounds.seconds.tolist(), "seconds": time.perf_counter() - began}
    return replace(whole, meta={**whole.meta, **seconds, "violations": violations})
