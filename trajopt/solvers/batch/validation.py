"""Validation of batches: an invalid problem gets a status with the findings of :mod:`trajopt.validation`, and is not solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.terms import QUATERNION_TOLERANCE, quaternion_errors
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch.solution import BatchSolution, gathered, guess_of, renumbered, rows_of
from trajopt.solvers.methods.delegation import not_begun
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.shooting.penalized import places
from trajopt.validation.validation import (
    InvalidProblem,
    contradictions,
    errors_of,
    require_valid,
    structure_errors,
    wrong_steps,
)


def require_structure(batch: Batch) -> None:
    """Raise InvalidProblem, with all errors of the first problem, if its shapes or sizes are wrong; all problems share these."""
    if structure_errors(batch[0]):
        raise InvalidProblem(errors_of(batch[0]))


def invalid_problems(batch: Batch, guess: tuple[Array, Array], flaws: Mapping[int, Status]) -> dict[int, Status]:
    """Return the status of each invalid problem by its number, except problems in ``flaws``.

    guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). flaws: result of :func:`~trajopt.solvers.batch.finite.invalid_values`. Raises
    InvalidProblem if all problems have the same errors, or if the first problem without a status has an error.
    """
    contradictory = _marked_problems(len(batch), _contradictory(batch))
    wrong = contradictory | _marked_problems(len(batch), _wrong(batch, guess[0]))
    wrong -= {i for i, flaw in flaws.items() if flaw.code is StatusCode.NON_FINITE}
    errors = {i: errors_of(batch[i], guess_of(guess, i, len(batch))) for i in sorted(wrong)}
    if len(errors) == len(batch) and all(found == errors[0] for found in errors.values()):
        raise InvalidProblem(errors[0])
    found = {}
    for i in wrong - flaws.keys():
        mistakes = "; ".join(finding.message for finding in errors[i])
        found[i] = termination.invalid(i, mistakes, contradictory=i in contradictory)
    first = next((i for i in range(len(batch)) if i not in flaws and i not in found), None)
    if first is not None:
        require_valid(batch[first], guess_of(guess, first, len(batch)))
    return found


def _marked_problems(n: int, found: Iterator[Array]) -> set[int]:
    """Return the indices of problems with a True entry in any of the masks (n or 1, ...)."""
    wrong = (np.broadcast_to(bad.reshape(len(bad), -1).any(axis=1), n) for bad in found)
    return {int(i) for rows in wrong for i in np.flatnonzero(rows)}


def _contradictory(batch: Batch) -> Iterator[Array]:
    """Yield masks (n or 1, ...) of the control bounds, and of constraint bounds that may differ, that no value satisfies."""
    limits = [batch.limits(place, place.count) for place in places(batch.ocp)] if batch.bounds_differ else []
    for lower, upper in [*([bounds] if (bounds := batch.bounds()) is not None else []), *limits]:
        yield from (bad for bad, _ in contradictions(lower, upper))


def _wrong(batch: Batch, xs: Array) -> Iterator[Array]:
    """Yield masks (n or 1, ...) of invalid quaternions in x0 and in the guess ``xs``, and of invalid time steps of each phase."""
    for x in (batch.x0(), xs):
        yield quaternion_errors(batch.ocp.manifold, x) > QUATERNION_TOLERANCE
    yield from (wrong_steps(phase, batch.steps(i)) for i, phase in enumerate(batch.ocp.phases))


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
    n, meta = len(batch), dict[str, Any](how="no problem was solved", seconds=0.0)
    valid = [i for i in range(n) if i not in flaws]
    whole = {}
    for i, status in flaws.items():
        whole[i] = replace(not_begun(batch.ocp, guess_of(guess, i, n)), status=status, meta={"solve_time": 0.0})
    if valid:
        report = None if on_finished is None else (lambda done: on_finished(len(flaws) + done))
        found = run(batch.subset(valid), rows_of(guess, valid, n), report)
        whole |= dict(zip(valid, found, strict=True))
        meta = renumbered(found.meta, valid)
    return gathered(batch, whole, gains=gains, meta=meta)
