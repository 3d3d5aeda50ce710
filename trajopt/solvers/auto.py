"""The method that a problem asks for, and other attempts where it fails.

    no constraints                       shooting, else direct methods from where it stopped
    bounds on numbers of the state       the same without them; where the solution breaks some, direct methods from it, with
                                         all of them.  A solution of the problem without them that keeps them solves it with them
                                         too, its multipliers of theirs being zero.
    any other constraint                 direct methods

Shooting is DDP, or SLQ where a time step has no second derivatives.  The direct methods are two, the second from where the first
stopped: IPM where there is a C compiler, then DMS with IPOPT, where a time step has no second derivatives with the Hessian of
Gauss-Newton, then SQP.  An attempt that ended without finding a step (ASTRAY) leaves
nothing worth going on from: the next one starts from the guess.  Where all attempts fail, the cheapest of the motions that keep the
constraints is the solution, the last one if there is none.  What was tried, and how it ended, is told by the status of
the solution and by ``meta["attempts"]``; the history holds the records of all attempts one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import has_compiler
from trajopt.guesses.guesses import Guess
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.measures import largest_violation
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.time_limits import remaining, start_of_solve
from trajopt.step.contraction import has_curvature
from trajopt.validation.broken_limits import constraint_violations

ASTRAY = (StatusCode.LINE_SEARCH_FAILED, StatusCode.NOT_POSITIVE_DEFINITE, StatusCode.NON_FINITE, StatusCode.UNBOUNDED)
ORDINALS = ("first", "second", "third")
ENOUGH_TIME = 0.1
"""Share of the time limit that has to be left for another attempt."""
KEPT = 1e-6
"""Dynamics and bounds off by less are kept by a motion of a failed attempt."""


class Attempt(NamedTuple):
    """A method for a problem, with options that it needs; relaxed: without the bounds on the state."""

    solver: str
    ocp: OCP
    needs: Mapping[str, Any]
    relaxed: bool = False


class Try(NamedTuple):
    """Request: make an attempt from a guess. time_limit: see :func:`~trajopt.solvers.time_limits.remaining`."""

    attempt: Attempt
    guess: Guess
    time_limit: float | None


def in_turn(
    plan: Iterable[Attempt], problem: Callable[[], OCP], guess: Guess, options: AutoOptions
) -> Generator[Try, Solution | None, Solution | Status]:
    """Attempts at a problem until one solves it; answers are solutions, or None where the solve was stopped before an attempt.

    Returns the last solution, or the best where that has failed too, with the account of all; the status of a problem without an
    attempt. problem: returns the problem.
    """
    began, solutions, account, start = start_of_solve(), list[Solution](), list[dict[str, Any]](), guess
    limit, out_of_time = options.time_limit, False
    for attempt in plan:
        at = time.perf_counter()
        if solutions and limit is not None and at - began > (1.0 - ENOUGH_TIME) * limit:
            out_of_time = True
            break
        found = yield Try(attempt, start, remaining(limit, began))
        if found is None:
            break
        broken = attempt.relaxed and found.status.success
        broken = broken and any(constraint_violations(problem(), found.xs, found.us))
        solutions.append(found)
        account.append(_entry(attempt, found, found.meta.get("solve_time", time.perf_counter() - at), broken))
        if not goes_on(found, options, broken):
            break
        start = start_of_next(found, guess)
    if not solutions:
        return termination.not_started()
    number = _best(solutions, problem)
    best, seconds = solutions[number], sum(entry["seconds"] for entry in account)
    return replace(
        best,
        status=_status(best.status, account, number, limit if out_of_time else None),
        iterations=sum(s.iterations for s in solutions),
        history=tuple(record for s in solutions for record in s.history),
        meta={**best.meta, "attempts": account, "solve_time": seconds},
    )


def goes_on(found: Solution, options: AutoOptions, broken: bool) -> bool:
    """Whether another attempt follows one; broken: whether its solution breaks bounds on the state that it left out."""
    solved = found.status.success and not broken
    return not solved and found.status.code not in STOPPED and (options.fallback or broken)


def attempts(ocp: OCP) -> Iterator[Attempt]:
    """The methods for a problem, in their order."""
    curved = has_curvature(ocp)
    if has_only_bounds(ocp):
        yield Attempt("ddp" if curved else "slq", ocp.unconstrained(), {}, relaxed=bool(ocp.constraints()))
    yield from _direct(ocp, curved)[:2]


def _direct(ocp: OCP, curved: bool) -> list[Attempt]:
    """The direct methods that this machine can run, in their order."""
    found = [Attempt("sqp", ocp, {})]
    if find_spec("cyipopt") is not None:
        found.insert(0, Attempt("dms", ocp, {} if curved else {"hessian": "gauss_newton"}))
    if has_compiler():
        found.insert(0, Attempt("ipm", ocp, {}))
    return found


def has_only_bounds(ocp: OCP) -> bool:
    """Whether all constraints are bounds on numbers of the state that leave room between."""
    return all(_is_bound(c) for c in ocp.constraints())


def _is_bound(c: Constraint) -> bool:
    return chosen_coordinates(c) is not None and bool((c.lower < c.upper).all())


def start_of_next(found: Solution, guess: Guess) -> Guess:
    """Where an attempt stopped, or the guess."""
    finite = np.isfinite(found.xs).all() and np.isfinite(found.us).all()
    return Guess(found.xs, found.us) if finite and found.status.code not in ASTRAY else guess


def _entry(attempt: Attempt, found: Solution, seconds: float, broken: bool) -> dict[str, Any]:
    """The account of an attempt; see :func:`goes_on` for ``broken``."""
    return {
        "solver": attempt.solver,
        "without": "bounds on the state" if attempt.relaxed else "",
        "breaks them": broken,
        "status": str(found.status.code),
        "message": found.status.message,
        "cost": float(found.cost),
        "iterations": found.iterations,
        "seconds": seconds,
    }


def _best(found: Sequence[Solution], problem: Callable[[], OCP]) -> int:
    """The number of the solution to return."""
    last, status = len(found) - 1, found[-1].status
    if not last or status.success or status.code in STOPPED:
        return last
    kept = [i for i, s in enumerate(found) if keeps(problem(), s)]
    return min(kept, key=lambda i: float(found[i].cost), default=last)


def _status(status: Status, account: Sequence[Mapping[str, Any]], number: int, limit: float | None) -> Status:
    """The status with an account of the attempts; limit: the time limit that left none for another one, else None [s]."""
    names = [a["solver"] for a in account]
    if limit is not None:
        status = replace(status, message=f"{status.message} time_limit = {limit:g} s left no time for another attempt.")
    if len(names) == 1:
        left_out = account[0]["without"] and status.success
        kept = " The solution satisfies the state limits, which were left out." if left_out else ""
        return replace(status, message=f"{names[0]}: {status.message}{kept}")
    ends = ", ".join(f"{a['solver']} {_end(a)}" for i, a in enumerate(account) if i != number)
    best = ", the best one" if number < len(names) - 1 else ""
    return replace(
        status, message=f"{names[number]}: {status.message} This was the {ORDINALS[number]} attempt{best}: {ends}."
    )


def keeps(ocp: OCP, s: Solution) -> bool:
    """True if a motion satisfies the dynamics, the bounds and the constraints of a problem."""
    if not (np.isfinite(s.cost) and np.isfinite(s.xs).all() and np.isfinite(s.us).all()):
        return False
    worst = largest_violation(ocp, s.xs, s.us, KEPT)
    return worst is None or worst.ratio <= 1.0


def _end(attempt: Mapping[str, Any]) -> str:
    """Why another attempt followed this one."""
    broke = attempt["breaks them"]
    return "violated state limits that were left out" if broke else f"ended with {attempt['status']}"
