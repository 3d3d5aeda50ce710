"""Solves that keep inequalities between the knots too, by margins.

Where the motion violates an inequality within time steps, its bound is tightened at the knots beside them by MARGIN times the
violation, and the problem is solved again from its solution.  Margins add up over at most ROUNDS solves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trajopt.guesses.guesses import Guess
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED
from trajopt.solvers.methods.delegation import Continued
from trajopt.solvers.options import LEAST_TIME
from trajopt.validation.between_knots import BetweenKnots, tightened

MARGIN, ROUNDS = 1.2, 8
"""By how many times a violation its bound is tightened, and how often at most."""
NEAR_BARRIER = 1e-4
"""The barrier parameter that a solve begins with near its solution."""

Run = Callable[[OCP, WarmStart, Any, "Callback | None"], Solution]


def keep_between_knots(
    ocp: OCP,
    first: Solution,
    run: Run,
    options: Any,
    callback: Callback | None,
    measure: Callable[[Solution], BetweenKnots | None],
    spent: float,
) -> tuple[Solution, OCP]:
    """The solution without violations between the knots, as far as ROUNDS allow, and the problem with margins that it solves.

    first: the solution without margins, found in ``spent`` seconds. measure: the violations of a solution between the knots.
    """
    solution, tight, rounds = first, ocp, 0
    began = time.perf_counter() - spent
    near = replace(options, barrier=min(options.barrier, NEAR_BARRIER)) if hasattr(options, "barrier") else options
    told = None if callback is None else Continued(callback, len(first.history))
    while solution.status.success and rounds < ROUNDS:
        found = measure(solution)
        if found is None or found.ratio <= 1.0:
            break
        if options.time_limit is not None:
            near = replace(near, time_limit=max(LEAST_TIME, options.time_limit - (time.perf_counter() - began)))
        tight, rounds = tightened(tight, found, MARGIN), rounds + 1
        warm = WarmStart(Guess(solution.xs, solution.us), multipliers=solution.multipliers)
        again = run(tight, warm, near, told)
        if again.status.code in STOPPED or not again.status.success:
            return _told(joined(solution, again), rounds), tight
        solution = joined(solution, again)
    return _told(solution, rounds), tight


def _told(solution: Solution, rounds: int) -> Solution:
    """A solution that says after how many solves with margins it was found."""
    if not rounds:
        return solution
    message = f"{solution.status.message} It is the last of {rounds + 1} solves, with margins for the motion between the knots."
    status = replace(solution.status, message=message)
    return replace(solution, status=status, meta={**solution.meta, "margins": rounds})


def joined(before: Solution, after: Solution) -> Solution:
    """A later solve with the iterations and records of the one before."""
    first = len(before.history)
    records = (replace(record, iteration=record.iteration + first) for record in after.history)
    return replace(after, iterations=before.iterations + after.iterations, history=(*before.history, *records))
