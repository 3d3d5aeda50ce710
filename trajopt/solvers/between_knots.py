"""Solves that keep inequalities between the knots too, by margins.

Where the motion violates an inequality within time steps, its bound is tightened at the knots beside them by MARGIN times the
violation, and the problem is solved again from its solution.  Margins add up over at most ROUNDS solves; where one fails or does
not help, the solution before it is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import Continued, iterations_of
from trajopt.solvers.time_limits import counted, remaining
from trajopt.validation.between_knots import BetweenKnots, tightened

MARGIN, ROUNDS = 1.2, 8
"""By how many times a violation its bound is tightened, and how often at most."""
PROGRESS = 0.7
"""The largest violation falls below this share of the last one, or margins do not help."""
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
    solution, tight, rounds, least = first, ocp, 0, np.inf
    before, before_tight = solution, tight
    began = time.perf_counter() - spent
    near = replace(options, barrier=min(options.barrier, NEAR_BARRIER)) if hasattr(options, "barrier") else options
    told = None if callback is None else Continued(callback, len(first.history))
    while solution.status.success:
        found = measure(solution)
        if found is None or found.ratio <= 1.0:
            break
        if rounds == ROUNDS or found.ratio > PROGRESS * least:
            reason = "Larger margins for the motion between the knots do not help."
            return _ended(before, solution, rounds, reason), before_tight
        before, before_tight, least = solution, tight, found.ratio
        if options.time_limit is not None:
            near = replace(near, time_limit=remaining(options.time_limit, began))
        warm = WarmStart(Guess(solution.xs, solution.us), multipliers=solution.multipliers)
        tight = tightened(tight, found, MARGIN)
        with counted():
            again = run(tight, warm, near, told)
        solution = replace(again, **iterations_of(solution, again))
        if not again.status.success:
            reason = f"A solve with margins for the motion between the knots ended as {again.status}"
            ended = _ended(before, solution, rounds, reason)
            if again.status.code is StatusCode.INTERRUPTED:
                ended = replace(ended, status=termination.interrupted(ended.iterations))
            return ended, before_tight
        rounds += 1
    reason = f"It is the last of {rounds + 1} solves, with margins for the motion between the knots." if rounds else ""
    return _ended(solution, solution, rounds, reason), tight


def _ended(best: Solution, last: Solution, rounds: int, reason: str) -> Solution:
    """The best solution with the records of the last one, a sentence on how margins ended, and their number in ``meta``."""
    status = replace(best.status, message=f"{best.status.message} {reason}".strip())
    meta = {**best.meta, "margins": rounds}
    return replace(best, status=status, iterations=last.iterations, history=last.history, meta=meta)
