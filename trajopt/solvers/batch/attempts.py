"""The default of batches: the attempts of :mod:`trajopt.solvers.auto`, each for all problems that the one before left unsolved.

What follows is what each problem would have gone through alone, but that the problems of an attempt are solved together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.constraints import chosen_coordinates
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.solvers.auto import Account, attempts, goes_on, has_only_bounds, start_of_next
from trajopt.solvers.batch.interrupts import interrupted
from trajopt.solvers.batch.solution import MEASURES, BatchSolution
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.problems.batch import Batch
from trajopt.solvers.registry import attempt_options
from trajopt.validation.broken_limits import constraint_violations

Told = Callable[[int], None]
Run = Callable[[Batch, tuple[Array, Array], str, Any, "Told | None"], BatchSolution]
"""Solves a batch from guesses xs (n, N + 1, nx), us (n, N, nu) by the solver of a name with options; told: how many have ended."""


def in_attempts(
    batch: Batch,
    guess: tuple[Array, Array],
    options: AutoOptions,
    run: Run,
    fits: Callable[[OCP, Any], bool],
    told: Told | None,
) -> BatchSolution | None:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu).

    fits: whether many problems are solved together by the solver of some options. None where the first attempt does not, where
    problems ask for different attempts, and where all attempts of a problem have one limit of time.
    """
    plan = list(attempts(batch[0]))  # which has the bounds that only members have
    first = plan[0]
    if options.time_limit is not None or not _alike(batch) or not fits(first.ocp, attempt_options(first, options)):
        return None
    began, n = time.perf_counter(), len(batch)
    xs, us = (np.array(np.broadcast_to(rows, (n, *rows.shape[1:]))) for rows in guess)
    accounts, pending = [Account() for _ in range(n)], list(range(n))
    whole, stopped = None, False
    for attempt in plan:
        own = batch.subset(pending)
        tell = _behind(told, n - len(pending))
        starts = xs[pending], us[pending]
        limits = own.unconstrained() if attempt.relaxed else own
        try:
            found = run(limits, starts, attempt.solver, attempt_options(attempt, options), tell)
        except (Exception, KeyboardInterrupt) as error:  # a compiler that is interrupted, too, raises another one
            if whole is None or not (interrupted() or isinstance(error, KeyboardInterrupt)):
                raise
            stopped = True
            break
        left: list[int] = []
        whole = found if whole is None else whole
        for i, solution in zip(pending, found, strict=True):
            broken = attempt.relaxed and solution.status.success
            broken = broken and any(constraint_violations(batch[i], solution.xs, solution.us))
            accounts[i].add(attempt, solution, float(solution.meta["solve_time"]), broken)
            if goes_on(solution, options, broken):
                left.append(i)
                given = Guess(*(rows[i if len(rows) == n else 0] for rows in guess))
                xs[i], us[i] = start_of_next(solution, given)
        pending, stopped = left, found.stopped or interrupted()
        if not pending or stopped:
            break
    assert whole is not None
    solutions = [account.solution(partial(batch.__getitem__, i)) for i, account in enumerate(accounts)]
    found = _told(whole, solutions, accounts, time.perf_counter() - began)
    return replace(found, meta={**found.meta, "stopped": True}) if stopped else found


def _alike(batch: Batch) -> bool:
    """Whether all problems ask for the same attempts: bounds on the state may leave room in one, and none in another."""
    if not batch.bounds_differ or any(chosen_coordinates(c) is None for c in batch.ocp.constraints()):
        return True
    return len({has_only_bounds(batch[i]) for i in range(len(batch))}) == 1


def _behind(told: Told | None, ended: int) -> Told | None:
    """What tells that so many more have ended."""
    return None if told is None else lambda done: told(ended + done)


def _told(first: BatchSolution, found: list[Solution], accounts: list[Account], seconds: float) -> BatchSolution:
    """The solutions of the problems, with the account of their attempts."""
    arrays: dict[str, Any] = {
        name: np.array([getattr(s, name) for s in found]) for name in ("xs", "us", "cost", "iterations")
    }
    if first.K is not None:
        arrays |= {name: np.array([getattr(s, name) for s in found]) for name in ("K", "k")}
    made = [account.attempts for account in accounts]
    spent = [sum(a["seconds"] for a in own) for own in made]
    meta = {**first.meta, "seconds": seconds, "solve_times": spent, "attempts": made}
    meta |= {f"{name}s": [s.meta.get(name, np.nan) for s in found] for name in MEASURES}
    return replace(first, **arrays, status=tuple(s.status for s in found), meta=meta)
