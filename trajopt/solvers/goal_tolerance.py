"""Tolerance on goals: equality constraints at the last knot that contradict other constraints by rounding.

A goal rounded to six digits may differ by 1e-7 from the values that dynamics, limits and other goals allow. No motion then
satisfies all equalities to the tolerance of a solver. If a solver fails with violations of that size, it solves again from its
last iterate, with each equality at the last knot replaced by bounds at a distance of ``SHARE * goal_tolerance``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.constraints import Constraint
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STATIONARY, Status, StatusCode
from trajopt.solvers.measures import largest_violation
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


def nearly_met(ocp: OCP, status: Status, xs: Array, us: Array, tolerance: float) -> bool:
    """Return True if a solve failed with violations small enough to be rounding errors of goals, or because bounds cross.

    The largest violation of dynamics, bounds and constraints has to lie between MIN_VIOLATION and NEAR times the tolerance.
    Failures: infeasible, locally infeasible, stalled, no step length, precision limit, or out of iterations with a scaled KKT
    error of at most STATIONARY. False for a trajectory that is not finite, unless bounds cross. tolerance: goal_tolerance of the
    solve.
    """
    used = status.code is StatusCode.MAX_ITERATIONS and status.kkt is not None and status.kkt <= STATIONARY
    if status.success or not (used or status.code in _FAILED):
        return False
    if status.code is StatusCode.INFEASIBLE:  # crossed bounds, which relaxation may separate
        return True
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return False
    worst = largest_violation(ocp, xs, us, tolerance)
    return worst is not None and worst.ratio * tolerance >= MIN_VIOLATION and worst.ratio <= NEAR


def with_goal_tolerance(
    ocp: OCP, warm: WarmStart, first: Solution, solve: Callable[[OCP, WarmStart], Solution], tolerance: float
) -> tuple[Solution, OCP]:
    """Solve again with relaxed goals if the first solve failed near its goals; return the solution and its problem.

    The second solve starts from the last iterate of the first, or from ``warm`` if it is not finite or has no iteration. If it
    fails or is not needed, the first solution and ``ocp`` are returned. meta["goal_tolerance"]: the tolerance, if it was used.
    """
    relaxed = None
    if nearly_met(ocp, first.status, first.xs, first.us, tolerance):
        relaxed = relaxed_goals(ocp, SHARE * tolerance)
    if relaxed is None:
        return first, ocp
    finite = np.isfinite(first.xs).all() and np.isfinite(first.us).all() and first.iterations > 0
    start = WarmStart(Guess(first.xs, first.us)) if finite else warm
    again = solve(relaxed, start)
    if not again.status.success:
        return first, ocp
    meta = {**again.meta, "goal_tolerance": tolerance}
    status = by_tolerance(again.status, first.iterations, tolerance)
    return replace(again, status=status, meta=meta, **iterations_of(first, again)), relaxed


def with_goals_of(ocp: OCP, solution: Solution) -> OCP:
    """Return the problem that a solution solves: with relaxed goals if meta["goal_tolerance"] is set, else ``ocp``."""
    tolerance = solution.meta.get("goal_tolerance")
    return ocp if tolerance is None else relaxed_goals(ocp, SHARE * tolerance) or ocp


def by_tolerance(status: Status, before: int, tolerance: float) -> Status:
    """Return the status of a solution with relaxed goals, with a sentence on the tolerance appended to its message.

    before: iterations of the solve with exact goals.
    """
    reason = (
        f"Goals hold to goal_tolerance = {tolerance:.0e}, because exact goals contradict other constraints; the solve with exact "
        f"goals took {before} iterations."
    )
    return replace(status, message=f"{status.message} {reason}")
