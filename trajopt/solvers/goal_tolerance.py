"""Goals that hold to a tolerance: equations at the last knot that contradict other constraints by rounding.

A goal that is rounded to six digits lies some 1e-7 beside what the dynamics, a limit or another goal allow: no motion meets all
equations to the tolerance of a solver.  Where a solver fails with violations of that size, it solves again from there.  Bounds then
take the place of each equation at the last knot, ``SHARE`` of the option ``goal_tolerance`` on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STATIONARY, Status, StatusCode
from trajopt.solvers.measures import largest_violation
from trajopt.solvers.methods.delegation import iterations_of

SHARE = 0.9
"""The part of goal_tolerance that is given to the solver; the rest covers its own tolerance."""
LEAST, NEAR = 1e-9, 10.0
"""Violations from LEAST, in the units of the rows, to NEAR times goal_tolerance may come from rounded goals."""
_FAILED = (
    StatusCode.INFEASIBLE,
    StatusCode.LOCALLY_INFEASIBLE,
    StatusCode.STALLED,
    StatusCode.LINE_SEARCH_FAILED,
    StatusCode.PRECISION_LIMIT,
)


def relaxed_goals(ocp: OCP, tolerance: float) -> OCP | None:
    """The problem with bounds in place of equations at the last knot; None without such equations.

    tolerance: half the distance of the bounds, in the units of the rows.
    """
    relaxed = tuple(_relaxed(c, tolerance) for c in ocp.terminal_constraints)
    if all(new is old for new, old in zip(relaxed, ocp.terminal_constraints, strict=True)):
        return None
    return replace(ocp, terminal_constraints=relaxed)


def _relaxed(c: Constraint, tolerance: float) -> Constraint:
    equal = c.lower == c.upper
    if not np.any(equal):
        return c
    return replace(
        c,
        lower=np.where(equal, c.lower - tolerance, c.lower),
        upper=np.where(equal, c.upper + tolerance, c.upper),
    )


def nearly_met(ocp: OCP, status: Status, xs: Array, us: Array, tolerance: float) -> bool:
    """True where a failed solve may owe its end to goals that contradict other constraints by rounding."""
    used = status.code is StatusCode.MAX_ITERATIONS and status.kkt is not None and status.kkt <= STATIONARY
    if status.success or not (used or status.code in _FAILED):
        return False
    if status.code is StatusCode.INFEASIBLE:  # bounds that cross: relaxed ones may not
        return True
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return False
    worst = largest_violation(ocp, xs, us, tolerance)
    return worst is not None and worst.ratio * tolerance >= LEAST and worst.ratio <= NEAR


def with_goal_tolerance(
    ocp: OCP, warm: WarmStart, first: Solution, solve: Callable[[OCP, WarmStart], Solution], tolerance: float
) -> tuple[Solution, OCP]:
    """The solution and its problem: where the first one failed near its goals those with relaxed goals, if this problem is solved.

    meta["goal_tolerance"]: the tolerance, where it was needed.
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
    """The problem that a solution solves: with relaxed goals, if it needed them."""
    tolerance = solution.meta.get("goal_tolerance")
    return ocp if tolerance is None else relaxed_goals(ocp, SHARE * tolerance) or ocp


def by_tolerance(status: Status, before: int, tolerance: float) -> Status:
    """The status of a solution that meets its goals to the tolerance; before: iterations of the solve with exact goals."""
    reason = (
        f"This was the second solve, after {before} iterations with exact goals, which contradict other constraints: "
        f"goals hold to goal_tolerance = {tolerance:.0e}."
    )
    return replace(status, message=f"{status.message} {reason}")
