"""Tolerance on goals: equality constraints at the last knot that contradict other constraints by rounding.

A goal rounded to six digits may differ by 1e-7 from the values that dynamics, limits and other goals allow. No motion then
satisfies all equalities to the tolerance of a solver. If a solver fails with violations of that size, it solves again from its
last iterate, with each equality at the last knot replaced by bounds at a distance of ``SHARE * goal_tolerance``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trajopt.guesses.guesses import WarmStart
from trajopt.problem.constraints import Constraint
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STATIONARY, StatusCode, iterations_text
from trajopt.solvers.measures import is_finite, largest_violation
from trajopt.solvers.methods.delegation import iterations_of

SHARE = 0.9
"""Fraction of goal_tolerance in the bounds; the rest covers the tolerance of the solver."""
MIN_VIOLATION, NEAR = 1e-9, 10.0
"""Violations from MIN_VIOLATION to NEAR times goal_tolerance, in the units of the rows and relative to bounds beyond 1, may come
from rounded goals."""
_FAILED = (
    StatusCode.INFEASIBLE,
    StatusCode.LOCALLY_INFEASIBLE,
    StatusCode.STALLED,
    StatusCode.LINE_SEARCH_FAILED,
    StatusCode.PRECISION_LIMIT,
)


def relaxed_goals(ocp: OCP, tolerance: float) -> OCP | None:
    """Return the problem with bounds in place of the equalities among the terminal constraints, or None without such equalities.

    tolerance: distance of the bounds from the equality, in its units.
    """
    relaxed = tuple(_relaxed(c, tolerance) for c in ocp.terminal_constraints)
    if all(new is old for new, old in zip(relaxed, ocp.terminal_constraints, strict=True)):
        return None
    return replace(ocp, terminal_constraints=relaxed)


def _relaxed(c: Constraint, tolerance: float) -> Constraint:
    """Return a constraint with equal bounds moved apart by the tolerance on both sides; the same object if none are equal."""
    equal = c.lower == c.upper
    if not np.any(equal):
        return c
    return replace(
        c,
        lower=np.where(equal, c.lower - tolerance, c.lower),
        upper=np.where(equal, c.upper + tolerance, c.upper),
    )


def relaxed_problem(ocp: OCP, first: Solution, tolerance: float) -> OCP | None:
    """Return the problem with relaxed goals if its solve failed near its goals, or because bounds cross; else None.

    The largest violation of dynamics, bounds and constraints has to lie between MIN_VIOLATION and NEAR times the tolerance.
    Failures: infeasible, locally infeasible, stalled, no step length, precision limit, or out of iterations with a scaled KKT
    error of at most STATIONARY. None for a trajectory that is not finite, unless bounds cross. tolerance: goal_tolerance of the
    solve.
    """
    status = first.status
    used = status.code is StatusCode.MAX_ITERATIONS and status.kkt is not None and status.kkt <= STATIONARY
    if status.success or not (used or status.code in _FAILED):
        return None
    if status.code is not StatusCode.INFEASIBLE:  # else bounds cross, which relaxation may separate
        if not is_finite(first.xs, first.us):
            return None
        worst = largest_violation(ocp, first.xs, first.us, tolerance)
        if worst is None or worst.ratio * tolerance < MIN_VIOLATION or worst.ratio > NEAR:
            return None
    return relaxed_goals(ocp, SHARE * tolerance)


def last_iterate(first: Solution) -> Guess | None:
    """Return the trajectory of the first solve as a guess; None if it is not finite or has no iteration."""
    return Guess(first.xs, first.us) if is_finite(first.xs, first.us) and first.iterations > 0 else None


def merged(first: Solution, again: Solution, tolerance: float) -> Solution:
    """Return the solution with relaxed goals, with iterations and records of both solves, and meta["goal_tolerance"]."""
    reason = (
        f"Goals hold to goal_tolerance = {tolerance:.0e}, because exact goals contradict other constraints; the solve with exact "
        f"goals took {iterations_text(first.iterations)}."
    )
    status = replace(again.status, message=f"{again.status.message} {reason}")
    meta = {**again.meta, "goal_tolerance": tolerance}
    return replace(again, status=status, meta=meta, **iterations_of(first, again))


def with_goal_tolerance(
    ocp: OCP, warm: WarmStart, first: Solution, solve: Callable[[OCP, WarmStart], Solution], tolerance: float
) -> tuple[Solution, OCP]:
    """Solve again with relaxed goals if the first solve failed near its goals; return the solution and its problem.

    The second solve starts from the last iterate of the first, or from ``warm`` if it is not finite or has no iteration. If it
    fails or is not needed, the first solution and ``ocp`` are returned. meta["goal_tolerance"]: the tolerance, if it was used.
    """
    relaxed, start = relaxed_problem(ocp, first, tolerance), last_iterate(first)
    if relaxed is None:
        return first, ocp
    again = solve(relaxed, warm if start is None else WarmStart(start))
    return (merged(first, again, tolerance), relaxed) if again.status.success else (first, ocp)


def with_goals_of(ocp: OCP, solution: Solution) -> OCP:
    """Return the problem that a solution solves: with relaxed goals if meta["goal_tolerance"] is set, else ``ocp``."""
    tolerance = solution.meta.get("goal_tolerance")
    return ocp if tolerance is None else relaxed_goals(ocp, SHARE * tolerance) or ocp
