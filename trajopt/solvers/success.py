"""Success checks of the final trajectory, equal for all solvers and engines.

    (a) feasible     dynamics, bounds and constraints hold to ``FEASIBLE``
    (b) optimal      scaled KKT error <= ``STATIONARY`` and cost sensitivity <= ``SENSITIVE`` (:mod:`trajopt.solvers.measures`)
    (c) holds        the replay stays within the replay tolerance, and meets constraints on velocities and the goals
                     (:mod:`trajopt.validation.replay`)
    (d) between      inequalities hold between the knots, to the tolerance of :mod:`trajopt.validation.between_knots`
    (e) goals        the trajectory meets the goals of the problem (:mod:`trajopt.problem.goals`)

Larger tolerances in the options of the solver replace ``FEASIBLE`` and ``STATIONARY``; ``SENSITIVE`` grows with the latter. The
scaled KKT error is relative to the terms of each control, or scaled as in the solver if that has converged (E_0 of IPOPT); the
smaller value counts.

``converged`` requires (a) to (e); ``acceptable`` all but (b). Otherwise the first failed check, in the order (a), (c), (d), (e),
defines code and message. If (a) fails and the solver reported no success, the status of the solver stays. Without checks
(``check=False``, replanning, batches) a success of the solver counts as (a) and as a small KKT error, and its last gradient
decides on the cost sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, NeedsScheme, unwrapped
from trajopt.collisions.self_collision import NOT_CHECKED
from trajopt.problem.goals import Goal
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.results.solution import Solution
from trajopt.results.status import STATIONARY, Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.measures import (
    FEASIBLE,
    Measures,
    Violation,
    is_feasible,
    is_finite,
    largest_violation,
    measures,
    size_at_guess,
)
from trajopt.solvers.rules.cost_size import cost_size
from trajopt.step.integrators import SCHEMES
from trajopt.validation.between_knots import BetweenKnots
from trajopt.validation.holonomic_constraints import LARGEST_ERROR, open_constraints
from trajopt.validation.limit_violations import has_links, limit_violations, violated_at_end
from trajopt.validation.reach import goals_of
from trajopt.validation.replay import Deviation, Replay, broken_constraints

SENSITIVE = 1e-2
"""Tolerance on the cost sensitivity (:mod:`trajopt.solvers.measures`), relative to the cost."""
_UNCHANGED = (
    StatusCode.INTERRUPTED,
    StatusCode.NON_FINITE,
    StatusCode.UNBOUNDED,
    StatusCode.INFEASIBLE,
    StatusCode.ERROR,
)
"""Status codes that checks do not change."""


class Tolerances(NamedTuple):
    """Tolerances of the options of a solver, on violations and on the scaled KKT error; 0 for the defaults of the checks."""

    constraints: float = 0.0
    kkt: float = 0.0


Replayed = Callable[[Callable[[Deviation], bool]], Replay | str]
"""Function of a test of replay runs; returns the replay of a trajectory, or the reason why there is none."""


def assessed(
    ocp: OCP,
    solution: Solution,
    tolerances: Tolerances,
    replayed: Replayed,
    between: Callable[[], BetweenKnots | None],
    found: Measures | None = None,
    solved: OCP | None = None,
) -> Solution:
    """Return the solution with the status of all checks, and their results in ``meta``.

    A trajectory or gains that are not finite are not checked: the status stays. So does a time limit before the first iteration,
    unless the guess is acceptable.

    tolerances: of the solver, used if larger than the defaults. replayed: replay, called once for a finite trajectory. between:
    returns the violations between the knots, called once for a feasible trajectory. found: errors of the trajectory; default: by
    :mod:`trajopt.solvers.measures`. solved: the problem with margins that was solved, if it differs from ``ocp``.

    meta["measures"]: violation, kkt and sensitivity. meta["replay"]: see :meth:`trajopt.validation.replay.Replay.as_meta`.
    meta["goals"]: sentences "report" and "missed" about the goals. meta["limits"]: "sentence" and "enforced" of each violated
    limit, without self-collision; meta["self_collision"] states that it was not checked, "" for a model without links.
    meta["between_knots"]: "sentence", "ratio" and "amount" of the worst violation between the knots, if ``between`` returns some.
    """
    xs, us, K = solution.xs, solution.us, solution.K
    if not (is_finite(xs, us) and np.isfinite(K).all()):
        return replace(solution, meta={**solution.meta, "replay": {"left_out": "the trajectory is not finite"}})
    limit = max(FEASIBLE, tolerances.constraints)
    found = found or measures(solved or ocp, xs, us, K, solution.multipliers, limit, cost_of_guess(solution))
    if solved is not None and solved is not ocp:
        found = found._replace(violation=largest_violation(ocp, xs, us, limit))
    if found.feasible and (outside := violated_at_end(ocp, xs[-1], limit)):
        found = found._replace(violation=Violation(np.inf, outside))
    excess = between() if found.feasible else None
    goals, times = goals_of(ocp), np.asarray(ocp.times_of(xs))
    missed = [s for goal in goals for s in goal.missed(xs, times)]
    report = [s for goal in goals for s in goal.report(xs, times)]
    broken: list[str] = []

    def holds(run: Deviation) -> bool:
        """True if a replay run stays within its tolerance, and meets constraints and goals; stores sentences on failures.

        If the plan misses a goal, no goal is tested.
        """
        broken[:] = _failures(run, () if missed else goals) or broken_constraints(ocp, xs, us, run)
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
    broken += open_constraints(ocp, xs, LARGEST_ERROR)
    status = checked_status(solution.status, found, broken, missed, max(STATIONARY, tolerances.kkt), violated)
    if solution.status.code is StatusCode.TIME_LIMIT and not (solution.iterations or status.acceptable):
        status = solution.status  # the trajectory is the guess
    return replace(solution, status=replace(status, advice=_advice(ocp, solution, status)), meta=meta)


def sentences_of_checks(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the sentences of the checks in the metadata of a solution, "" for a check that is met, by names of the checks."""
    found = {
        key: meta.get(name, {}).get(key, "") for name, key in (("measures", "violation"), ("between_knots", "sentence"))
    }
    found |= {key: meta["replay"][key]["sentence"] for key in ("open", "gains") if key in meta.get("replay", {})}
    return found | {f"goal {i}": sentence for i, sentence in enumerate(meta.get("goals", {}).get("missed", ()))}


def checked_status(
    reason: Status,
    found: Measures,
    broken: Sequence[str],
    missed: Sequence[str],
    tolerance: float = STATIONARY,
    violated: Sequence[str] = (),
) -> Status:
    """Return the status by the first check that fails: feasible, replays, between knots, goals, optimal; else "converged".

    A feasible trajectory that passes all but the last is "acceptable". A failure of the solver does not count against a feasible
    trajectory; its status stays if the trajectory is infeasible. Statuses of Ctrl-C, NaN, unbounded objectives, contradictory
    bounds and errors always stay.

    reason: status of the solver. found: errors of the trajectory. broken: sentences about replays that deviate or miss goals, and
    about constraints of the dynamics that are not met. missed: sentences about goals that the plan misses. tolerance: on the scaled
    KKT error. violated: sentences about inequalities violated between the knots.
    """
    if reason.code in _UNCHANGED:
        return reason
    if found.violation is not None and not found.feasible:
        if not reason.success:
            return reason
        message = f"Not feasible: {found.violation.sentence}. {reason.message}"
        return replace(reason, code=StatusCode.NOT_FEASIBLE, message=message, advice=_TIGHTER, kkt=found.kkt)
    for code, title, sentences in (
        (StatusCode.DOES_NOT_HOLD, "The motion does not hold", broken),
        (StatusCode.VIOLATED_BETWEEN_KNOTS, "Feasible at the knots only", violated),
        (StatusCode.GOAL_MISSED, "A goal is missed", missed),
    ):
        if sentences:
            message = f"{title}: {'; '.join(sentences)}. {reason.message}"
            advice = [*([] if reason.success else [reason.advice]), _ADVICE.get(code, "")]
            return replace(reason, code=code, message=message, advice=" ".join(filter(None, advice)), kkt=found.kkt)
    kkt = found.kkt
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
        error = _sensitive(found.sensitivity, ceiling)
    own = "The solver itself reports: " if reason.code is StatusCode.CONVERGED else ""
    message = f"Feasible, and the motion holds, but not yet optimal: {error}. {own}{reason.message}"
    return replace(reason, code=StatusCode.ACCEPTABLE, message=message, kkt=kkt)


LARGE = 1e6
"""Multipliers above this multiple of the cost, at least of 1, show that constraints follow from others."""


def _advice(ocp: OCP, solution: Solution, status: Status) -> str:
    """Return the advice of a checked status, more specific where the solution or the dynamics allow it."""
    if status.code is StatusCode.VIOLATED_BETWEEN_KNOTS and "margins" in solution.meta:
        return AFTER_MARGINS
    if status.code is StatusCode.DOES_NOT_HOLD:
        return status.advice.replace(_SHORTER_STEPS, _shorter_steps(ocp))
    if status.code is StatusCode.ACCEPTABLE and not status.advice:
        return _on_large_multipliers(solution) or (_SHARPER if solution.status.code is StatusCode.CONVERGED else "")
    return status.advice


def _on_large_multipliers(solution: Solution) -> str:
    """Return advice that names constraints with multipliers above LARGE, or "" if there are none."""
    limit = LARGE * max(1.0, abs(solution.cost))
    names = [name for name, y in solution.multipliers.items() if np.abs(y).max(initial=0.0) > limit]
    if not names:
        return ""
    other = "start from another guess" if "barrier_strategy" in solution.meta else "use solver = 'ipm'"
    return f"The multipliers of {', '.join(names)} are very large: remove rows that follow from others, or {other}."


AFTER_MARGINS = (
    "Margins were not enough: use shorter time steps, another guess (to.multi_start), or a weaker constraint."
)
"""Advice if inequalities are violated between the knots in spite of margins."""
_SHORTER_STEPS = "Use shorter time steps."
FINER = 4
"""Factor on the number of substeps in the advice for motions that do not hold."""


def _shorter_steps(ocp: OCP) -> str:
    """Return the advice for a motion that does not hold, with the number of substeps if it is known."""
    known = [p.dynamics.sampling.substeps for p in ocp.phases if p.dynamics.sampling is not None]
    more = f"substeps = {FINER * max(known)} instead of {max(known)}" if known else "more substeps"
    coarse = any(_could_use_rk4(phase.dynamics) for phase in ocp.phases)
    scheme = ", or rk4 in place of a scheme of lower order" if coarse else ""
    return f"Use shorter time steps ({more}, or a smaller dt with a larger horizon){scheme}."


def _could_use_rk4(dynamics: DiscreteMap) -> bool:
    """True if a step integrates by a scheme of lower order than rk4, which the system does not need."""
    own = dynamics.sampling
    if own is None or own.scheme not in SCHEMES or own.scheme == "rk4":
        return False
    return not isinstance(unwrapped(own.backend.map), NeedsScheme)


def with_descent(ocp: OCP, guess: Guess, solution: Solution) -> Solution:
    """Return a failure whose objective fell far below that of the guess at feasible points as "unbounded".

    The objective is bounded if all controls have bounds: then the states that can be reached are bounded, too. It does not count
    if dynamics or constraints are violated by more than ``termination.NEARLY_FEASIBLE``, relative to states and bounds beyond 1,
    nor if the records show that it has settled.
    """
    status, xs, us = solution.status, solution.xs, solution.us
    bounded = ocp.control_bounds is not None and bool(np.isfinite(ocp.control_bounds).all())
    bounded = bounded or termination.has_settled([record.cost for record in solution.history], solution.cost)
    if bounded or not (termination.may_be_unbounded(status, solution.cost) and is_finite(*guess)):
        return solution
    if is_finite(xs, us) and not is_feasible(ocp, xs, us, termination.NEARLY_FEASIBLE):
        return solution
    return replace(solution, status=termination.fell_far(status, *size_at_guess(ocp, *guess), solution.cost))


_SHARPER = "Lower gradient_tolerance to continue."
_TIGHTER = "Lower the solver's tolerances, or scale the constraint."
_ADVICE = {
    StatusCode.VIOLATED_BETWEEN_KNOTS: "Set between_knots = true, an option of every solver, or use shorter time steps.",
    StatusCode.DOES_NOT_HOLD: _SHORTER_STEPS,
}


def cost_of_guess(solution: Solution) -> float:
    """Return the cost of the initial guess: of the first competing start, else of the first record; 0 without records."""
    if starts := solution.meta.get("starts"):
        return float(starts[0]["cost_of_guess"])
    return solution.history[0].cost if solution.history else 0.0


def solver_measures(solution: Solution, tolerance: float) -> Measures:
    """Return the errors by the numbers of the solver, without evaluating the trajectory.

    Violation, and gradient for the cost sensitivity, come from the last record, the KKT error from the status, or else from the
    record. Infinite without records. tolerance: on the violation.
    """
    if not solution.history:
        return Measures(Violation(np.inf, "no iteration"), np.inf, np.inf)
    last = solution.history[-1]
    largest = max(last.defect, last.constraint_violation)
    violation = Violation(
        largest / tolerance, f"the largest violation of dynamics, bounds and constraints is {largest:.2g}"
    )
    kkt = solution.status.kkt if solution.status.kkt is not None else last.kkt
    size = cost_size(solution.cost, cost_of_guess(solution))
    sensitivity = last.gradient * float(np.abs(solution.us).max(initial=0.0)) / size
    return Measures(violation, *(v if np.isfinite(v) else np.inf for v in (kkt, sensitivity)))


def with_goals(ocp: OCP, solution: Solution) -> Solution:
    """Return the solution of a solve without checks, with status "goal_missed" if it succeeded but misses a goal."""
    if not solution.status.success:
        return solution
    xs, times = solution.xs, np.asarray(ocp.times_of(solution.xs))
    missed = [s for goal in goals_of(ocp) for s in goal.missed(xs, times)]
    found = Measures(None, 0.0, 0.0)
    status = checked_status(solution.status, found, (), missed)
    return replace(solution, status=replace(status, kkt=solution.status.kkt)) if missed else solution


def unchecked(solution: Solution, tolerance: float = 0.0) -> Solution:
    """Return the solution with its status decided by the numbers of its last record; see :func:`unchecked_status`."""
    gradient = solution.history[-1].gradient if solution.history else 0.0
    return replace(solution, status=unchecked_status(solution.status, gradient, solution.us, solution.cost, tolerance))


def with_end_held(ocp: OCP, status: Status, x: Array, tolerance: float = FEASIBLE) -> Status:
    """Return a success as "not_feasible" if the last state x (nx,) violates a constraint (:func:`violated_at_end`)."""
    if status.success and (outside := violated_at_end(ocp, x, tolerance)):
        return checked_status(status, Measures(Violation(np.inf, outside), 0.0, 0.0), (), ())
    return status


def unchecked_status(status: Status, gradient: float, us: Array, cost: float, tolerance: float = 0.0) -> Status:
    """Return a success as "converged", or as "acceptable" if the numbers of the solver do not confirm an optimum.

    They do not if the scaled KKT error, where the solver has one, is above STATIONARY and ``tolerance``, that of the solver, or the
    sensitivity |gradient u| / max(1, |cost|) is above SENSITIVE. Failures are not changed.
    """
    if not status.success:
        return status
    tolerance = max(STATIONARY, tolerance)
    sensitivity = gradient * float(np.abs(us).max(initial=0.0)) / max(1.0, abs(cost))
    reasons = []
    if status.kkt is not None and not status.kkt <= tolerance:
        reasons.append(f"scaled KKT error {status.kkt:.1e}, tolerance {tolerance:.0e}")
    if sensitivity > SENSITIVE:
        reasons.append(_sensitive(sensitivity))
    if reasons:
        message = f"Feasible, but not yet optimal: {'; '.join(reasons)}. {status.message}"
        return replace(status, code=StatusCode.ACCEPTABLE, message=message)
    return replace(status, code=StatusCode.CONVERGED, advice="")


def _sensitive(sensitivity: float, tolerance: float = SENSITIVE) -> str:
    """Return a phrase on a cost sensitivity and its tolerance, in percent."""
    return f"cost sensitivity {100.0 * sensitivity:.2g} %, tolerance {100.0 * tolerance:.2g} %"


def _measures_meta(found: Measures) -> dict[str, Any]:
    """Return the entries of meta["measures"]: violation sentence ("" if none) and ratio, kkt and sensitivity."""
    violation = found.violation
    return {
        "violation": "" if violation is None else violation.sentence,
        "violation_ratio": 0.0 if violation is None else violation.ratio,
        "kkt": found.kkt,
        "sensitivity": found.sensitivity,
    }


def _failures(run: Deviation, goals: Sequence[Goal]) -> list[str]:
    """Return a sentence if a replay run deviates from the plan beyond its tolerance, else one for each goal that it misses."""
    if not run.ratio <= 1.0:
        return [run.sentence()]
    missed = [s for goal in goals for s in goal.missed(run.xs, run.times)]
    return [f"replayed {run.how}, {s}" for s in missed]
