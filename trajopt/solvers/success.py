"""The contract of success: one set of checks on the final trajectory, the same after every solver and with any engine.

    (a) feasible     dynamics, bounds and constraint rows hold to ``FEASIBLE``; between the knots inequalities hold to the tolerance
                     of :mod:`trajopt.validation.between_knots`
    (b) optimal      scaled KKT error <= ``STATIONARY`` and cost sensitivity <= ``SENSITIVE`` (:mod:`trajopt.solvers.measures`)
    (c) it holds     the replay stays within the replay tolerance and meets the goals (:mod:`trajopt.validation.replay`)
    (d) goals        the trajectory meets the goals of the problem (:mod:`trajopt.problem.goals`)

Larger tolerances that a user gave the solver replace the first two.  The scaled KKT error is relative to the terms of each control,
or scaled as the solver does that has converged (IPOPT's E_0), whichever is smaller.

``converged`` is (a) to (d); ``acceptable`` is (a), (c) and (d).  Otherwise the first check that fails gives the code and the
sentence; where (a) fails and the solver did not claim success, its own reason says more and stays.  Without checks
(``check=False``, replanning, batches) (a) and (b) are decided by the numbers of the solver's last iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.collisions.self_collision import NOT_CHECKED
from trajopt.problem.goals import Goal
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STATIONARY, Status, StatusCode
from trajopt.solvers.measures import Measures, Violation, largest_violation, measures
from trajopt.validation.between_knots import BetweenKnots
from trajopt.validation.limit_violations import has_links, limit_violations
from trajopt.validation.reach import goals_of
from trajopt.validation.replay import Deviation, Replay

FEASIBLE = 1e-6
"""Tolerance on defects, bounds and constraint rows, in their units; relative where a bound is beyond 1."""
SENSITIVE = 1e-2
"""Tolerance on the cost sensitivity (:mod:`trajopt.solvers.measures`), as a share of the cost."""
_UNCHANGED = (
    StatusCode.INTERRUPTED,
    StatusCode.NON_FINITE,
    StatusCode.UNBOUNDED,
    StatusCode.INFEASIBLE,
    StatusCode.ERROR,
)
"""Codes that no check changes."""


class Tolerances(NamedTuple):
    """Tolerances that a user gave a solver: on violations, and on its scaled KKT error; 0 for the defaults."""

    constraints: float = 0.0
    kkt: float = 0.0


Replayed = Callable[[Callable[[Deviation], bool]], Replay | str]
"""The replay of a trajectory, given which runs of it suffice, or the reason why there is none."""


def assessed(
    ocp: OCP,
    solution: Solution,
    tolerances: Tolerances,
    replayed: Replayed,
    between: Callable[[], BetweenKnots | None],
    found: Measures | None = None,
    solved: OCP | None = None,
) -> Solution:
    """The solution with the status of the contract, and what the checks found in ``meta``.

    tolerances: of the solver that found it, where they are larger than the defaults. replayed: called once, for a trajectory
    that is finite. between: called once, the violations between the knots of a trajectory that is feasible. found: its measures,
    default those of :mod:`trajopt.solvers.measures`. solved: the problem with margins at whose optimum it is, if not this one.
    meta["measures"]: violation, kkt and sensitivity. meta["replay"]: see :func:`trajopt.validation.replay.as_meta`.
    meta["goals"]: report and missed, sentences about the goals. meta["limits"]: sentence and enforced of each limit exceeded,
    but for self-collision: meta["self_collision"] says that it was not checked.
    """
    xs, us, K = solution.xs, solution.us, solution.K
    if not (np.isfinite(xs).all() and np.isfinite(us).all() and np.isfinite(K).all()):
        return replace(solution, meta={**solution.meta, "replay": {"left_out": "the trajectory is not finite"}})
    limit = max(FEASIBLE, tolerances.constraints)
    found = found or measures(solved or ocp, xs, us, K, solution.multipliers, limit)
    if solved is not None and solved is not ocp:
        found = found._replace(violation=largest_violation(ocp, xs, us, limit))
    feasible = found.violation is None or found.violation.ratio <= 1.0
    excess = between() if feasible else None
    goals, times = goals_of(ocp), np.asarray(ocp.times_of(xs))
    missed = [s for goal in goals for s in goal.missed(xs, times)]
    report = [s for goal in goals for s in goal.report(xs, times)]
    broken: list[str] = []

    def holds(run: Deviation) -> bool:
        broken[:] = _failures(run, () if missed else goals)
        return not broken

    replay = replayed(holds)
    meta = {
        **solution.meta,
        "measures": _measures_meta(found),
        "replay": {"left_out": replay} if isinstance(replay, str) else replay.as_meta(ocp),
        "limits": [b.as_meta(()) for b in limit_violations(ocp, xs, us, self_collision=False)],
        "self_collision": NOT_CHECKED if has_links(ocp) else "",
        "goals": {"report": report, "missed": missed},
    }
    if excess is not None:
        meta["between_knots"] = {"sentence": excess.sentence(), "ratio": excess.ratio, "amount": excess.amount}
    violated = [excess.sentence()] if excess is not None and not excess.ratio <= 1.0 else []
    status = verdict(solution.status, found, broken, missed, max(STATIONARY, tolerances.kkt), violated)
    if status.code is StatusCode.VIOLATED_BETWEEN_KNOTS and "margins" in meta:
        status = replace(status, advice="Margins were not enough: use shorter time steps, or a weaker constraint.")
    return replace(solution, status=status, meta=meta)


def verdict(
    reason: Status,
    found: Measures,
    broken: Sequence[str],
    missed: Sequence[str],
    tolerance: float = STATIONARY,
    violated: Sequence[str] = (),
) -> Status:
    """The status by the contract.

    reason: why the solver stopped. broken: how the replay leaves the plan or misses goals. missed: goals that the plan misses.
    tolerance: on the scaled KKT error. violated: which inequalities are violated between the knots.
    """
    if reason.code in _UNCHANGED:
        return reason
    if found.violation is not None and not found.violation.ratio <= 1.0:
        if not reason.success:
            return reason
        message = f"Not feasible: {found.violation.sentence}. {reason.message}"
        return replace(reason, code=StatusCode.NOT_FEASIBLE, message=message, advice=_TIGHTER, kkt=found.kkt)
    for code, title, sentences in (
        (StatusCode.VIOLATED_BETWEEN_KNOTS, "Feasible at the knots only", violated),
        (StatusCode.DOES_NOT_HOLD, "The motion does not hold", broken),
        (StatusCode.GOAL_MISSED, "A goal is missed", missed),
    ):
        if sentences:
            message = f"{title}: {'; '.join(sentences)}. {reason.message}"
            return replace(reason, code=code, message=message, advice=_ADVICE.get(code, ""), kkt=found.kkt)
    kkt = found.kkt  # relative to the terms of each control; or by the scaling of the solver, such as IPOPT's
    if reason.code is StatusCode.CONVERGED and reason.kkt is not None:
        kkt = min(kkt, reason.kkt)
    ceiling = SENSITIVE * tolerance / STATIONARY
    if kkt <= tolerance and found.sensitivity <= ceiling:
        if reason.code is StatusCode.CONVERGED:
            return replace(reason, kkt=kkt)
        message = f"Optimal: scaled KKT error {kkt:.1e}, tolerance {tolerance:.0e}. {reason.message}"
        return replace(reason, code=StatusCode.CONVERGED, message=message, advice="", kkt=kkt)
    error = f"scaled KKT error {kkt:.1e}, tolerance {tolerance:.0e}"
    if kkt <= tolerance:
        error = _sensitive(found.sensitivity)
    message = f"Feasible, and the motion holds, but not yet optimal: {error}. {reason.message}"
    return replace(reason, code=StatusCode.ACCEPTABLE, message=message, kkt=kkt)


_TIGHTER = "Lower the solver's tolerances, or scale the constraint."
_ADVICE = {
    StatusCode.VIOLATED_BETWEEN_KNOTS: "Set between_knots = true, an option of every solver, or use shorter time steps.",
    StatusCode.DOES_NOT_HOLD: (
        "Use shorter time steps (a smaller dt with a larger horizon, or more substeps), or integrator = 'rk4'."
    ),
}


def solver_measures(solution: Solution, tolerance: float) -> Measures:
    """The measures by the numbers of the solver's last iteration, for controls that are not held over the time steps."""
    if not solution.history:
        return Measures(Violation(np.inf, "no iteration"), np.inf, np.inf)
    last = solution.history[-1]
    largest = max(last.defect, last.constraint_violation)
    violation = Violation(
        largest / tolerance, f"the largest violation of dynamics, bounds and constraints is {largest:.2g}"
    )
    kkt = solution.status.kkt if solution.status.kkt is not None else last.kkt
    sensitivity = last.gradient * float(np.abs(solution.us).max(initial=0.0)) / max(1.0, abs(solution.cost))
    return Measures(violation, *(v if np.isfinite(v) else np.inf for v in (kkt, sensitivity)))


def with_goals(ocp: OCP, solution: Solution) -> Solution:
    """A converged solution of a solve without checks, with the status of (d): the goals of the problem."""
    if not solution.status.success:
        return solution
    xs, times = solution.xs, np.asarray(ocp.times_of(solution.xs))
    missed = [s for goal in goals_of(ocp) for s in goal.missed(xs, times)]
    found = Measures(None, 0.0, 0.0)
    return replace(solution, status=verdict(solution.status, found, (), missed)) if missed else solution


def unchecked(solution: Solution) -> Solution:
    """The solution of a solve without checks: (a) and (b) by the numbers of its last iteration."""
    gradient = solution.history[-1].gradient if solution.history else 0.0
    return replace(solution, status=unchecked_status(solution.status, gradient, solution.us, solution.cost))


def unchecked_status(status: Status, gradient: float, us: Array, cost: float) -> Status:
    """The status by (a) and (b) of a solver that stopped at controls us (N, nu) with a gradient and a cost."""
    if not status.success:
        return status
    sensitivity = gradient * float(np.abs(us).max(initial=0.0)) / max(1.0, abs(cost))
    if sensitivity > SENSITIVE:
        message = f"Feasible, but not yet optimal: {_sensitive(sensitivity)}. {status.message}"
        return replace(status, code=StatusCode.ACCEPTABLE, message=message)
    return replace(status, code=StatusCode.CONVERGED, advice="")


def _sensitive(sensitivity: float) -> str:
    return f"a change of a control by its own size changes the cost by {100.0 * sensitivity:.2g} %"


def _measures_meta(found: Measures) -> dict[str, Any]:
    violation = found.violation
    return {
        "violation": "" if violation is None else violation.sentence,
        "violation_ratio": 0.0 if violation is None else violation.ratio,
        "kkt": found.kkt,
        "sensitivity": found.sensitivity,
    }


def _failures(run: Deviation, goals: Sequence[Goal]) -> list[str]:
    """Sentences about a run of the replay that leaves the plan, or misses goals that the plan meets."""
    if not run.ratio <= 1.0:
        return [run.sentence()]
    missed = [s for goal in goals for s in goal.missed(run.xs, run.times)]
    return [f"replayed {run.how}, {s}" for s in missed]
