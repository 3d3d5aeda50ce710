"""Findings about a solution, and advice on the most likely reason of a failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status, StatusCode
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.options import AutoOptions, DDPOptions, IPMOptions, SLQOptions, SQPOptions
from trajopt.solvers.registry import DEFAULT_SOLVER
from trajopt.solvers.scaling import Scaling
from trajopt.solvers.solution_checks import evaluators_of, exploited_quadrature
from trajopt.step.sensitivities import missing_curvature
from trajopt.validation.discontinuities import discontinuous_dynamics
from trajopt.validation.holonomic_constraints import open_constraints, redundancy_notes
from trajopt.validation.limit_violations import durations_at_bounds, weak_postures
from trajopt.validation.not_finite import explained
from trajopt.validation.running_costs import kinked_cost
from trajopt.validation.stability import stability_warnings
from trajopt.validation.validation import START_TOLERANCE, large_states, tiny_bounds, tiny_distances

NOTABLE_RISE = 0.01
"""Relative rise of the cost by margins between the knots above which a finding reports it."""
_WITHOUT_OPTIMUM = (StatusCode.MAX_ITERATIONS, StatusCode.LINE_SEARCH_FAILED, StatusCode.ACCEPTABLE)
"""Statuses for which a poor Hessian is the most likely reason, if the Hessian is poor."""
_OF_FUNCTIONS = (*_WITHOUT_OPTIMUM, StatusCode.STALLED, StatusCode.NOT_POSITIVE_DEFINITE)
"""Statuses for which kinks of costs, or numbers of very different sizes, may be the reason."""
_OF_UNSTABLE_STEPS = (
    StatusCode.NOT_POSITIVE_DEFINITE,
    StatusCode.LINE_SEARCH_FAILED,
    StatusCode.MAX_ITERATIONS,
    StatusCode.STALLED,
    StatusCode.NON_FINITE,
    StatusCode.UNBOUNDED,
    StatusCode.DOES_NOT_HOLD,
)
"""Statuses for which unstable time steps at x0 are the most likely reason, if there are any."""


def solution_findings(ocp: OCP, solution: Solution, *, check: bool) -> Iterator[str]:
    """Yield findings about a solution; without ``check`` only those about free durations and margins."""
    status, finite = solution.status, bool(np.isfinite(solution.xs).all())
    if ocp.in_scaled_time and finite and status.code not in STOPPED:
        yield from durations_at_bounds(ocp, solution.xs, beyond_only=status.code is StatusCode.MAX_ITERATIONS)
    rise = solution.meta.get("margins_rise", 0.0)
    if status.success and rise > NOTABLE_RISE:
        yield (
            f"margins for the motion between the knots raised the cost by {100.0 * rise:.3g} %: shorter time steps (to.refine, or "
            "more knots) need smaller ones"
        )
    yield from exploited_quadrature(solution)
    if check and not status.success and status.code is not StatusCode.INTERRUPTED:
        yield from redundancy_notes(ocp)
    if check and finite:
        yield from open_constraints(ocp, solution.xs)
        yield from weak_postures(ocp, solution.xs)


def number_findings(ocp: OCP, solver: str, guess: Guess, solution: Solution, scaling: Scaling | None) -> Iterator[str]:
    """Yield findings about numbers below tolerances, and about a guess that was not left, of the problem as it was solved.

    scaling: that of ``ocp``, if it is a scaled problem.
    """
    still = bool(np.abs(solution.xs[-1] - ocp.x0).max() <= START_TOLERANCE)
    yield from below_tolerances(ocp, scaling, distances=still)
    yield from _not_left(solver, ocp, guess, solution)


def below_tolerances(ocp: OCP, scaling: Scaling | None, *, distances: bool = True) -> Iterator[str]:
    """Yield findings about bounds and, with ``distances``, about goals that are nearer than the tolerances of the checks.

    scaling: that of ``ocp``, if it is a scaled problem; sentences then say so.
    """
    unit = "" if scaling is None else ", in scaled numbers"
    yield from (f"{finding}{unit}" for finding in (*(tiny_distances(ocp) if distances else ()), *tiny_bounds(ocp)))


def _not_left(solver: str, ocp: OCP, guess: Guess, solution: Solution) -> Iterator[str]:
    """Yield a finding on a solution that may be a saddle point or a maximum; the solver ``auto`` leaves those itself.

    Such are solutions with an indefinite Hessian, and guesses at rest, unless the cost is least: zero, of squares alone.
    """
    if solver == DEFAULT_SOLVER or not solution.status.success:
        return
    from trajopt.solvers.auto_starts import is_unmoved
    from trajopt.solvers.competing_starts import is_at_rest

    if solution.meta.get("indefinite"):
        yield (
            "the Hessian of the Lagrangian is indefinite at the solution, which may be a saddle point or a maximum: use "
            "solver = 'auto', or another guess"
        )
    if not (is_at_rest(ocp, guess) and is_unmoved(ocp, solution, guess)):
        return
    if solution.cost > 0.0 or not all(term.squared for term in ocp.terms()):
        yield (
            "the solver did not leave the guess, which is a stationary point, and may be a saddle point or a maximum: change its "
            "controls, or use solver = 'auto'"
        )


def final_status(ocp: OCP, guess: Guess, solver: str, options: Any, solution: Solution, *, check: bool) -> Status:
    """Return the status of a solution, with the first NaN or infinity named, and advice on the most likely reason of a failure.

    guess, solver, options: of the solve.
    """
    status = explained(solution.status, ocp, solution.xs, solution.us)
    if ocp.in_scaled_time and status.code in (StatusCode.LOCALLY_INFEASIBLE, StatusCode.STALLED):
        limits = (f"{limit[0].upper()}{limit[1:]}." for limit in durations_at_bounds(ocp, solution.xs))
        status = replace(status, advice=" ".join([*limits, status.advice]))
    if status.code in _WITHOUT_OPTIMUM:
        poor = approximated_hessian(ocp, solver, options) or no_curvature(ocp, solver, options, solution)
        status = replace(status, advice=f"{poor[0].upper()}{poor[1:]}.") if poor else status
    if check and status.code in _OF_FUNCTIONS and (kink := kinked_cost(ocp, solution.xs, solution.us)):
        status = replace(status, advice=f"{status.advice} {kink}".lstrip())
    if check and status.code in _OF_FUNCTIONS and (jump := discontinuous_dynamics(ocp, solution.xs, solution.us)):
        status = replace(status, advice=jump)
    scaled = "scaling" in solution.meta
    if check and status.code in _OF_FUNCTIONS and not scaled and (units := large_states(ocp, guess.xs)):
        status = replace(status, advice=f"{status.advice} {units}".lstrip())
    if check and status.code in _OF_UNSTABLE_STEPS and (unstable := next(stability_warnings(ocp, extremes=True), "")):
        status = replace(status, advice=f"{unstable[0].upper()}{unstable[1:]}.")
    return status


def approximated_hessian(ocp: OCP, solver: str, options: Any) -> str:
    """Return a warning if "auto", or IPM or SQP with hessian = "auto", approximates its Hessian, else "".

    They do if a time step has no second derivatives.
    """
    kinds = {AutoOptions: "gauss_newton", IPMOptions: "gauss_newton", SQPOptions: "scqp"}
    if type(options) not in kinds or getattr(options, "hessian", "auto") != "auto":
        return ""
    reason, kind = missing_curvature(ocp), kinds[type(options)]
    exact_later = type(options) is AutoOptions and missing_curvature(ocp, from_source=True) is None
    uses = "first uses" if exact_later else "uses"  # later attempts differentiate the source
    return (
        f"{reason}; until then {solver} {uses} hessian = {kind!r}, which may take many times the iterations"
        if reason
        else ""
    )


def no_curvature(ocp: OCP, solver: str, options: Any, solution: Solution) -> str:
    """Return a warning if a shooting solver without second derivatives of the dynamics has no curvature in some control, else "".

    The Hessian of the running cost, with the penalties of constraints, is zero in that control at all knots of the solution.
    """
    if not isinstance(options, SLQOptions) or isinstance(options, DDPOptions) or not np.isfinite(solution.xs).all():
        return ""
    if not may_expand_again(ocp, options.time_limit):
        return ""
    with evaluators_of(ocp, options) as (traced, evaluator):
        R = evaluator(traced, with_costs=True).expand(solution.xs, solution.us).lq.R
    names = [ocp.control_names[i] for i in np.flatnonzero(~R.any(axis=(0, 2)))]
    if not names:
        return ""
    where = ", ".join([*names[:2], *(["..."] if names[2:] else [])])
    return (
        f"the Hessian of the running cost is zero in {where}, and {solver} omits the "
        "second derivatives of the dynamics; choose solver = 'auto', 'ipm' or 'ddp', or add a cost of the controls"
    )
