"""Solver ``auto`` from one or several starts, each a sequence of attempts of :mod:`trajopt.solvers.auto`.

In order: the best of competing starts if the guess is at rest (:mod:`trajopt.solvers.competing_starts`), else the guess; beside
the guess, or the solution, if this is a saddle point; other starts if no motion is feasible. In single solves with checks follow,
for every solver: goals relaxed within their tolerance if they contradict each other (:mod:`trajopt.solvers.goal_tolerance`),
margins if ``between_knots`` is set; for ``auto`` then margins if inequalities are violated between the knots, more substeps if
the replay fails, and detours of the guess if margins or substeps do not help (:mod:`trajopt.solvers.solve`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trajopt.guesses.guesses import WarmStart, constant_guess
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.auto import Attempt, Try, attempts, in_turn, is_feasible
from trajopt.solvers.competing_starts import (
    MAX_ITERATIONS,
    TIME_SHARE,
    TOLERANCE,
    choose_starts,
    is_at_rest,
    may_compete,
    merge_factors,
    pushed,
)
from trajopt.solvers.direct.program_parts import runs_compiled
from trajopt.solvers.direct_motions import direct_motions
from trajopt.solvers.methods.delegation import Continued, iterations_of, not_begun
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.time_limits import enough_time, start_of_solve

SolveAttempt = Callable[[Attempt, WarmStart, AutoOptions, "Callback | None", "float | None"], Solution]
"""Solves by the method of an attempt. The last argument is the tolerance on the scaled KKT error, None for that of the options."""


def auto(solve: SolveAttempt, ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None) -> Solution:
    """Run ``auto``: from competing starts if the guess is at rest (:func:`may_compete`), else from the guess.

    If all end infeasible, other starts follow (:func:`_with_other_starts`). With options.starts = 1, or multipliers or a barrier
    in the warm start, it runs from the guess alone. Records of all attempts have continuous numbers.
    """
    report = None if callback is None else Continued(callback)
    found = _run_attempts(solve, ocp, warm, options, report)
    numbered = (r if r.iteration == i else replace(r, iteration=i) for i, r in enumerate(found.history))
    return replace(found, history=tuple(numbered))


def _run_attempts(
    solve: SolveAttempt, ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None
) -> Solution:
    """Run ``auto`` as in :func:`auto`; each attempt numbers its records in the history from 0."""
    if options.starts == 1 or warm.multipliers or warm.barrier is not None:
        return _in_turn(solve, ocp, warm, options, callback)
    competed = may_compete(ocp, warm.guess)
    found = (_from_best_start if competed else _in_turn)(solve, ocp, warm, options, callback)
    stayed = is_at_rest(ocp, warm.guess) and is_unmoved(found, warm.guess)
    if found.status.success and stayed:
        found = _off_saddle_point(solve, ocp, warm, found, options, callback, "The guess is")
    elif found.status.success and found.meta.get("indefinite"):
        own = replace(warm, guess=Guess(found.xs, found.us))
        found = _off_saddle_point(solve, ocp, own, found, options, callback, "From the guess, solves end at")
    return _with_other_starts(solve, ocp, warm.guess, found, options, callback)


UNMOVED, LOWER, SAME = 1e-6, 1e-6, 1e-6
"""Largest change of controls or states that counts as none, relative decrease of the cost that shows a saddle point, and relative
difference below which costs are the same."""


def is_unmoved(found: Solution, guess: Guess) -> bool:
    """True if a solution has the controls of its guess, or stays at x0, to UNMOVED."""
    same = np.abs(found.us - guess.us).max(initial=0.0) <= UNMOVED
    return bool(same or np.abs(found.xs - found.xs[0]).max() <= UNMOVED)


def _off_saddle_point(
    solve: SolveAttempt,
    ocp: OCP,
    warm: WarmStart,
    found: Solution,
    options: AutoOptions,
    callback: Callback | None,
    where: str,
) -> Solution:
    """Solve again from a slightly moved guess; return that solution if it is cheaper or unbounded, else ``found``.

    found: a solution that is the guess, or whose Hessian is indefinite. At a symmetric guess gradients may be zero although the
    cost falls to both sides. where: begins the sentence on the saddle point in the message.
    """
    again = _in_turn(solve, ocp, replace(warm, guess=pushed(ocp, warm.guess)), options, callback)
    both = iterations_of(found, again)
    if again.status.code is StatusCode.UNBOUNDED:
        return replace(again, **both)
    if not (again.status.success and again.cost < found.cost - LOWER * max(1.0, abs(found.cost))):
        return replace(found, **both)
    message = f"{again.status.message} {where} a saddle point (cost {found.cost:.4g}): the solve began beside it."
    return replace(again, status=replace(again.status, message=message), **both)


def _with_other_starts(
    solve: SolveAttempt, ocp: OCP, guess: Guess, found: Solution, options: AutoOptions, callback: Callback | None
) -> Solution:
    """Return ``found``, a solution of ``auto``; if it is infeasible, the first feasible one from other starts, if any.

    The starts are x0 at rest, if the guess moves, and then, for a compiled problem, the direct motions of
    :mod:`~trajopt.solvers.direct_motions`, these with the first attempt only. Ctrl-C and the time limit end them. Iterations,
    records and attempts are those of all starts; the status names the start that succeeded, or all. No starts without
    ``fallback`` or constraints, or after a status in _FINAL.
    """

    def good(s: Solution) -> bool:
        """True for a success and for a feasible motion."""
        return s.status.success or is_feasible(ocp, s)

    def starts() -> Iterator[tuple[str, Solution]]:
        """Solve from one start after the other; yield the name of each start and its solution."""
        rest = WarmStart(constant_guess(ocp))
        if not is_at_rest(ocp, guess):
            run = _from_best_start if may_compete(ocp, rest.guess) else _in_turn
            yield "x0 at rest", run(solve, ocp, rest, options, callback)
        once = replace(options, fallback=False)
        for motion in direct_motions(ocp, rest.guess) if runs_compiled(ocp) else ():
            yield "a direct motion to the goal", _in_turn(solve, ocp, WarmStart(motion), once, callback)

    first, names = found.status, list[str]()
    if not (options.fallback and ocp.constraints()) or first.code in _FINAL or good(found):
        return found
    others = starts()
    try:
        while enough_time(options.time_limit, start_of_solve()) and (other := next(others, None)) is not None:
            name, again = other
            names.append(name)
            attempts = [*found.meta.get("attempts", ()), *again.meta.get("attempts", ())]
            merged: dict[str, Any] = {
                "iterations": found.iterations + again.iterations,
                "history": (*found.history, *again.history),
                "meta": {**found.meta, "attempts": attempts},
            }
            if good(again):
                message = (
                    f"{again.status.message} This solve began from {name}, since the given guess led to {first.code}."
                )
                merged["meta"] = {**again.meta, "attempts": attempts}
                return replace(again, status=replace(again.status, message=message), **merged)
            found = replace(found, status=again.status if again.status.code in STOPPED else found.status, **merged)
            if found.status.code in STOPPED:
                return found
    except KeyboardInterrupt:
        return replace(found, status=termination.interrupted(found.iterations))
    if not names:
        return found
    message = f"{first.message} Solves from {', '.join(dict.fromkeys(names))} found no feasible motion either."
    return replace(found, status=replace(first, message=message))


_FINAL = (*STOPPED, StatusCode.UNBOUNDED, StatusCode.INFEASIBLE)
"""Statuses after which ``auto`` does not start again."""


def _in_turn(
    solve: SolveAttempt,
    ocp: OCP,
    warm: WarmStart,
    options: AutoOptions,
    callback: Callback | None,
    kkt_tolerance: float | None = None,
) -> Solution:
    """Run the solvers ("attempts") of ``auto`` from a guess, one after the other, until one succeeds.

    From a warm start with multipliers or a barrier parameter, the direct methods come first, with the multipliers at its guess.
    kkt_tolerance: tolerance on the scaled KKT error, in place of that of the options.
    """
    near = bool(warm.multipliers) or warm.barrier is not None

    def answer(request: Try) -> Solution:
        """Solve by an attempt from the guess and within the time limit of a request."""
        attempt, start, left = request
        limited = options if left is None else replace(options, time_limit=left)
        multipliers = warm.multipliers if start is warm.guess else {}
        own = WarmStart(start, multipliers=multipliers, barrier=warm.barrier)
        return solve(attempt, own, limited, callback, kkt_tolerance)

    plan = attempts(ocp, relaxed=not near)
    found: Solution = run_alone(in_turn(plan, lambda: ocp, warm.guess, options), answer)
    return found


def _from_best_start(
    solve: SolveAttempt, ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None
) -> Solution:
    """Run ``auto`` from each of the best competing starts, and from the guess if all fail, or if durations are free.

    With free durations the coarse motion of the guess may lead to another optimum than the guess, whose solve then uses no other
    methods if a start succeeded, and continues if it uses all its iterations and is feasible at a lower cost. This solve, if there
    are other starts, and a second competition on a finer grid need ``fallback``; the latter follows if motions are feasible on the
    coarse grid, but all solves from them fail.

    Returns the cheapest success, of those that agree to SAME that of the best start, else the last solution, with iterations and
    records of all solves on the problem's grid; meta["starts"] describes the competitions, which took meta["starts_seconds"]. No
    further start follows at a time limit or after Ctrl-C. Ctrl-C in the first competition returns the guess (:func:`not_begun`),
    in the second one the last solution, as interrupted.
    """
    limit = None if options.time_limit is None else TIME_SHARE * options.time_limit
    iterations = MAX_ITERATIONS if options.max_iterations is None else min(MAX_ITERATIONS, options.max_iterations)
    rough = replace(options, max_iterations=iterations, time_limit=limit, fallback=False)

    def solve_roughly(coarse: OCP, guess: Guess, cutoff: Callback | None) -> Solution:
        """Run ``auto`` on the coarse problem with few iterations and a large tolerance."""
        return _in_turn(solve, coarse, WarmStart(guess), rough, cutoff, TOLERANCE)

    solutions, records, tried, seconds = list[Solution](), list[dict[str, Any]](), False, 0.0
    for factor in merge_factors(ocp):
        has_time, began = partial(enough_time, limit, start_of_solve()), time.perf_counter()
        choice = choose_starts(ocp, warm.guess, options.starts, solve_roughly, has_time, factor)
        if choice.interrupted and not solutions:
            return not_begun(ocp, warm.guess)
        if choice.interrupted:
            status = termination.interrupted(sum(s.iterations for s in solutions))
            solutions[-1] = replace(solutions[-1], status=status)
            break
        records += [start.record for start in choice.starts]
        seconds += time.perf_counter() - began
        for guess, message in choice.guesses:
            if solutions and not enough_time(options.time_limit, start_of_solve()):
                break
            found = _in_turn(solve, ocp, replace(warm, guess=guess), options, callback)
            if message:
                found = replace(found, status=replace(found.status, message=f"{found.status.message} {message}"))
            solutions.append(found)
            tried = tried or guess is warm.guess
            if found.status.code in STOPPED:
                break
        ended = any(s.status.success or s.status.code in STOPPED for s in solutions)
        if ended or not (choice.any_feasible and options.fallback):
            break
    solved = any(s.status.success for s in solutions)
    stopped = tried or any(s.status.code in STOPPED for s in solutions)
    missing = options.fallback and not stopped and (ocp.in_scaled_time or not solved)
    if not solutions or (missing and enough_time(options.time_limit, start_of_solve())):
        once = replace(options, fallback=False) if solved else options
        least = min((s.cost for s in solutions if s.status.success), default=-np.inf)
        solutions.append(_in_turn(solve, ocp, warm, once, callback))
        last = solutions[-1]
        cheaper = last.cost < least - SAME * abs(least)
        if last.status.code is StatusCode.MAX_ITERATIONS and cheaper and is_feasible(ocp, last):
            solutions.append(_in_turn(solve, ocp, WarmStart(Guess(last.xs, last.us)), once, callback))
    successes = [s for s in solutions if s.status.success]
    best = successes[0] if successes else solutions[-1]
    for other in successes[1:]:
        best = other if other.cost < best.cost - SAME * abs(best.cost) else best
    return replace(
        best,
        iterations=sum(s.iterations for s in solutions),
        history=tuple(record for s in solutions for record in s.history),
        meta={**best.meta, "starts": records, "starts_seconds": seconds} if records else best.meta,
    )
