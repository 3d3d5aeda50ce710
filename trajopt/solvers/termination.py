"""Statuses of all solvers, one function per termination reason.

A message states the result first, then the errors with their tolerances, then the constraint or component and its knot.
``iterations`` counts all iterations of the solution. The modules :mod:`trajopt.solvers.nlp.nlp_diagnosis` and
:mod:`trajopt.solvers.shooting.shooting_diagnosis` find the constraint or component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from trajopt.results.status import STATIONARY, Status, StatusCode, iterations_text


class Errors(NamedTuple):
    """Errors of an iterate, or tolerances on them; None for errors that a solver does not compute or test.

    kkt: scaled KKT error. gradient: largest entry of the gradient of the Lagrangian, in shooting of the reduced gradient.
    defect: largest defect of the dynamics. violation: largest violation of the constraints, in direct methods with the dynamics.
    """

    kkt: float | None = None
    gradient: float | None = None
    defect: float | None = None
    violation: float | None = None


class WorstConstraint(NamedTuple):
    """Name of the most violated constraint, with its knot, and its violation."""

    name: str
    violation: float


class CrossedBounds(NamedTuple):
    """Name of a component, with its knot, whose lower bound exceeds its upper bound, and both bounds."""

    name: str
    lower: float
    upper: float


class NonFinite(NamedTuple):
    """Component that is NaN or infinite. kind: prefix of its name in messages. knot: None if the name includes it."""

    component: str
    kind: str = ""
    knot: int | None = None


class Measured(NamedTuple):
    """Last iterate of a solve: number of iterations, errors, tolerances; worst: the most violated constraint."""

    iterations: int
    errors: Errors
    tolerances: Errors
    worst: WorstConstraint | None = None


class Failure(NamedTuple):
    """Reason why there is no step, with advice."""

    reason: str
    advice: str


_KINKS = "If a function has kinks, such as abs or max, minima may lie there: split |u| into a + b with u = a - b and a, b >= 0."
CHECK_DERIVATIVES = (
    f"Check the derivatives (trajopt check), start from a better guess, or try another hessian. {_KINKS}"
)
NO_STEP_LENGTH = Failure("No step length was accepted", CHECK_DERIVATIVES)
NO_RESTORATION = Failure("Feasibility restoration failed", "Start from a better guess, or relax a constraint.")
OPEN_DEFECTS = Failure(
    "Only short steps are accepted, and the defects do not close",
    "Try nonlinear gaps (solver = 'fddp'), or start from a better guess.",
)
UNSOLVED_QP = Failure(
    "The QP could not be solved", "Scale variables and constraints to similar magnitudes, or try another qp_solver."
)

UNBOUNDED_BELOW, LIKELY_UNBOUNDED = 1e10, 1e6
"""An objective that falls below minus this multiple of its size at the guess is unbounded (:class:`Descent`); the second one
is for the last objective of a solve that failed. The size is the largest of 1, the magnitude of the objective and that of the
entries of its gradient, by which it changes with a unit of a variable."""
SETTLED = 0.8
"""Fraction of the last objective that the one after half of the iterations of a bounded problem has reached."""
STILL_FALLING = 1e-3
"""Fall below the first objective under the limit, relative to it, that shows that this was not the optimum."""
MORE_ITERATIONS = (
    "Increase max_iterations if the errors are still decreasing; otherwise start from a better guess, or reduce the ratio between "
    "the largest and smallest weights. If the goal is out of reach, more iterations do not help."
)
EXACT_HESSIAN = " Or use hessian = 'exact': the current one omits second derivatives."
BOUNDING = "Add bounds, or a cost that grows far from the solution."
BETTER_GUESS = "Start from a better guess."
IN_DOMAIN = f"{BETTER_GUESS} If a function is not defined everywhere, bound the states that it reads (to.state_bounds)."
BETTER_ROLLOUT = "Start from a better guess, shorten dt or the horizon, or change the option shooting."
STALLED_ADVICE = (
    "Start from a better guess, raise max_iterations, or replace the named constraint by a cost (to.softened); if goals are "
    "rounded, raise goal_tolerance."
)
NOTHING_VIOLATED = (
    "Only defects of the dynamics stay open: start from another guess, use solver = 'auto' or 'ddp', or take shorter time steps "
    "(a smaller dt, more substeps)."
)
"""Advice after a failure without a violated constraint."""
DEPENDENT = (
    "Start from a better guess. If a constraint follows from others, as one of the goals for all entries of a unit vector, "
    f"remove it. {_KINKS}"
)
REST_OF_BATCH = "The other problems of the batch are not affected."


# -- solutions ----------------------------------------------------------------------------------------------------------
def converged(at: Measured) -> Status:
    """Status of a solve that meets its tolerances.

    The message omits tolerances of errors that did not decide, and a scaled KKT error above STATIONARY: it is large where a control
    vanishes at the optimum, and the checks decide about it.
    """
    pairs = zip(at.errors, at.tolerances, strict=True)
    decided = Errors(*(t if e is not None and t is not None and e <= t else None for e, t in pairs))
    errors = at.errors
    if errors.kkt is not None and errors.kkt > STATIONARY:
        errors = errors._replace(kkt=None)
    message = f"Converged{_after(at.iterations)}: {_numbers(errors, decided)}."
    return Status(StatusCode.CONVERGED, message, kkt=at.errors.kkt)


def cost_converged(iterations: int, decrease: float, tolerance: float, kkt: float) -> Status:
    """Status of a solve that stopped at a small relative decrease of the cost, "cost_converged".

    It counts as success for a small KKT error.
    """
    numbers = f"relative decrease {decrease:.1e} < cost_tolerance = {tolerance:.1e}"
    message = f"The cost converged{_after(iterations)}: {numbers}, {_numbers(Errors(kkt), Errors(STATIONARY))}."
    status = Status(StatusCode.COST_CONVERGED, message, advice="Lower cost_tolerance to continue.", kkt=kkt)
    return _without_advice(status)


def precision_limit(at: Measured) -> Status:
    """Status "precision_limit" of a solve that rounding errors stopped; a success if its scaled KKT error is small."""
    result = f"Double precision allows no further progress{_after(at.iterations)}"
    advice = "Increase the tolerances, or scale the cost; finite differences may limit the precision."
    return _without_advice(_ended(StatusCode.PRECISION_LIMIT, result, at, advice))


# -- limits -------------------------------------------------------------------------------------------------------------
def max_iterations(
    limit: int, at: Measured, advice: str = MORE_ITERATIONS, *, option: str = "max_iterations"
) -> Status:
    """Status of a solve that used all its iterations; option: name of the limit."""
    return _ended(StatusCode.MAX_ITERATIONS, f"Stopped at {option} = {limit}", at, advice)


def real_time_iteration() -> Status:
    """Status "max_iterations" of a real-time iteration, which ends after its single step."""
    return Status(StatusCode.MAX_ITERATIONS, "Stopped after 1 iteration, as a real-time iteration does.")


def defects_stay_open(iterations: int, first: float, last: float) -> Status:
    """Status "max_iterations" of a start stopped early because defects stay open: ``first`` in the guess, ``last`` now."""
    message = f"The defects of the guess, {first:.3g}, were still {last:.3g}{_after(iterations)}."
    return Status(StatusCode.MAX_ITERATIONS, message, advice=BETTER_GUESS)


def time_limit(limit: float | None, at: Measured) -> Status:
    """Status of a solve that reached its time limit [s] between iterations; it names the worst violated constraint."""
    result = f"Stopped at time_limit = {limit} s{_after(at.iterations)}"
    return _ended(StatusCode.TIME_LIMIT, result, at, f"Increase time_limit. {BETTER_GUESS}")


def no_time_left(limit: float | None, state: str) -> Status:
    """Status "time_limit" of a sequence whose earlier solves used the time limit [s]; state: its progress, without a full stop."""
    message = f"Stopped at time_limit = {limit} s, which all solves of a task share: {state}."
    return Status(StatusCode.TIME_LIMIT, message, advice="Increase time_limit.")


def interrupted(iterations: int) -> Status:
    """Status of a solve that Ctrl-C stopped; before the first step the result is the initial guess."""
    found = "the best iterate" if iterations else "the initial guess"
    when = _after(iterations) if iterations else " before the first step"
    return Status(StatusCode.INTERRUPTED, f"Interrupted{when}; returning {found}.")


def interrupted_competition(starts: int, guess: bool) -> Status:
    """Status of a solve that Ctrl-C stopped while starts competed, after some of them; guess: returns the initial guess."""
    found = "the initial guess" if guess else "the best motion of that grid"
    message = f"Interrupted while starts competed on a coarse time grid, after {starts} of them; returning {found}."
    return Status(StatusCode.INTERRUPTED, message)


def interrupted_at_limit(limit: float, iterations: int) -> Status:
    """Status "time_limit" of a solve that was interrupted at its limit [s] within an iteration, or before the first one."""
    when = f"within iteration {iterations + 1}; returning the best iterate" if iterations else "before the first step"
    message = f"Stopped at time_limit = {limit} s {when}."
    advice = (
        "Increase time_limit, which includes tracing. If a finding names functions that Python evaluates, follow its "
        "remedy."
    )
    return Status(StatusCode.TIME_LIMIT, message, advice=advice)


def unchecked_at_limit(status: Status, limit: float) -> Status:
    """Status of a solve that reached its time limit [s] before the checks: "time_limit" in place of a success; failures stay."""
    code = StatusCode.TIME_LIMIT if status.success else status.code
    advice = status.advice or "Increase time_limit, which includes the checks after a solve."
    return replace(
        status,
        code=code,
        message=f"{status.message} time_limit = {limit:g} s left no time for the checks.",
        advice=advice,
    )


def unchecked_at_interrupt(status: Status) -> Status:
    """Status of a solution of a batch that Ctrl-C stopped before its motion was checked; the message keeps that of the solver."""
    return replace(
        status, code=StatusCode.INTERRUPTED, message=f"{status.message} Interrupted before its motion was checked."
    )


def not_started() -> Status:
    """Status "interrupted" of a problem that Ctrl-C stopped before its solve started; it has no trajectory."""
    return Status(StatusCode.INTERRUPTED, "Interrupted before this problem started; it has no trajectory.")


# -- failures -----------------------------------------------------------------------------------------------------------
def no_step_length(non_finite_trials: int) -> Failure:
    """Failure of a line search without an acceptable step; states the number of trial points that were NaN or infinite, if any."""
    if not non_finite_trials:
        return NO_STEP_LENGTH
    points = f"{non_finite_trials} trial points were NaN or infinite"
    return NO_STEP_LENGTH._replace(reason=f"{NO_STEP_LENGTH.reason} ({points})")


def no_direction(library: str, code: int) -> Failure:
    """Failure of an external library that found no step and returned this code."""
    return Failure(f"{library} found no step (code {code})", CHECK_DERIVATIVES)


def line_search_failed(failure: Failure, at: Measured) -> Status:
    """Status "line_search_failed" of a solver that found no further step; reason and advice come from the failure."""
    result = f"{failure.reason}{_after(at.iterations)}"
    return _ended(StatusCode.LINE_SEARCH_FAILED, result, at, failure.advice)


def unstable_integration(knot: int, component: str, factor: float) -> Status:
    """Status "line_search_failed": no step length, because the time step at a knot multiplies a state component by -factor."""
    message = f"The integration is unstable: the time step at knot {knot} multiplies {component} by -{factor:.3g}."
    advice = "Reduce dt, increase substeps, or use an integrator with implicit damping."
    return Status(StatusCode.LINE_SEARCH_FAILED, message, knot, component, advice)


def max_penalty(code: StatusCode, at: Measured) -> Status:
    """Status of a solve whose penalty reached its limit at a violated constraint; code: of the last inner solve, which failed."""
    result = (
        f"The penalties reached max_constraint_penalty{_after(at.iterations)}, the last inner solve ended with {code}"
    )
    return _ended(code, result, at, "Start from a better guess, or use solver = 'dms'.")


def last_inner_solve(status: Status) -> Status:
    """Return the status of the last inner solve, its message prefixed because it counts only the iterations of that solve."""
    return replace(status, message=f"The last inner solve ended: {status.message}")


def not_positive_definite(knot: int, mu: float, hessian: str) -> Status:
    """Status of a solve whose Quu could not be factorized at a knot.

    mu: regularization. hessian: Hessian of the cost, "exact" or "gauss_newton".
    """
    message = f"Quu is not positive definite at knot {knot} with the regularization mu = {mu:.0e}."
    other = ", or use hessian = 'gauss_newton'" if hessian == "exact" else ""
    advice = f"Use a positive weight on every control{other}."
    return Status(StatusCode.NOT_POSITIVE_DEFINITE, message, knot, advice=advice)


def no_convex_problem(at: Measured) -> Status:
    """Status of a user-defined method that found no convex LQ problem."""
    advice = "Use a positive weight on every control, or increase the damping of the method."
    return _ended(StatusCode.NOT_POSITIVE_DEFINITE, f"No LQ problem was convex{_after(at.iterations)}", at, advice)


def ended_infeasible(at: Measured) -> Status:
    """Status "not_feasible" of a user-defined method that reported success at a point whose defects are not small."""
    result = f"The method reported success{_after(at.iterations)} at a point that violates the dynamics"
    return _ended(StatusCode.NOT_FEASIBLE, result, at, "Test the defect of the point before the method ends.")


def non_finite(found: NonFinite, advice: str = IN_DOMAIN) -> Status:
    """Status of a solve with a number that is NaN or infinite."""
    name = f"{found.kind} {found.component}".strip()
    where = "" if found.knot is None else f" at knot {found.knot}"
    message = f"NaN or infinity in {name}{where}."
    return Status(StatusCode.NON_FINITE, message, found.knot, found.component, advice)


def infeasible(bounds: CrossedBounds, advice: str = "Correct the bounds.") -> Status:
    """Status of a problem in which no value satisfies the bounds of a component."""
    name, lower, upper = bounds
    message = f"The bounds of {name} contradict each other: lower {lower:.6g} > upper {upper:.6g}."
    return Status(StatusCode.INFEASIBLE, message, component=name, advice=advice)


def impossible(reason: str) -> Status:
    """Status "infeasible" of a problem with a goal that no motion meets; reason: a sentence without its period."""
    return Status(StatusCode.INFEASIBLE, f"The solve was not started: {reason}.")


def overdetermined(at: Measured) -> Status:
    """Status "stalled" of a problem with more equations than variables; the equations may still agree."""
    result = f"There are more equations than free variables{_after(at.iterations)}"
    return _ended(StatusCode.STALLED, result, at, "Remove an equality, or free a variable.")


CERTAIN = 100.0
"""Factor on the tolerance: smaller violations are no certificate of local infeasibility."""
MIN_CERTAIN = 1e-4
"""Absolute minimum of such a violation: rounded goals and bounds contradict each other by less."""


def violation_remains(at: Measured, *, stationary: bool, in_rollout: bool = False) -> Status:
    """Status of a solve whose violation does not decrease: "locally_infeasible" with a certificate, else "stalled".

    The certificate is a stationary point with a violation above CERTAIN times its tolerance and MIN_CERTAIN. at: errors, with the
    largest violation and the worst constraint. stationary: True if the point is a stationary point of a norm of the violation
    within the bounds. in_rollout: True if the worst constraint is that of the rollout of the controls.
    """
    violation, tolerance = at.errors.violation or 0.0, at.tolerances.violation or 0.0
    if stationary and violation > max(CERTAIN * tolerance, MIN_CERTAIN):
        return infeasible_nearby(at.iterations, at.worst, in_rollout=in_rollout)
    if violation <= tolerance:
        result = f"Stalled{_after(at.iterations)}: the constraints hold, but the KKT error hardly decreases"
        return _ended(StatusCode.STALLED, result, at, DEPENDENT)
    result = f"Stalled{_after(at.iterations)}: the violation hardly decreases, without proof of local infeasibility"
    status = _ended(StatusCode.STALLED, result, at, STALLED_ADVICE if at.worst else NOTHING_VIOLATED)
    return (
        replace(status, message=f"{status.message[:-1]}{_IN_ROLLOUT}.") if in_rollout and status.component else status
    )


_IN_ROLLOUT = " in the rollout of the controls (the states have open defects)"


def infeasible_nearby(iterations: int, worst: WorstConstraint | None, *, in_rollout: bool = False) -> Status:
    """Status "locally_infeasible"; worst: the most violated constraint; in_rollout: True if it is that of the controls' rollout."""
    where = _largest(worst)
    where += _IN_ROLLOUT if where and in_rollout else ""
    result = f"No feasible point nearby{_after(iterations)}: a stationary point of the constraint violation"
    advice = "Relax the named constraint, or start from another guess: a feasible point may exist elsewhere."
    advice = advice if worst else NOTHING_VIOLATED
    return Status(StatusCode.LOCALLY_INFEASIBLE, f"{result}{where}.", component=_name(worst), advice=advice)


def unrefined(rounds: int, report: str) -> Status:
    """Status "not_feasible" of repeated solves whose last solution still fails the checks of its task; report: what fails."""
    advice = "Increase the margin or the number of knots, or start from another guess."
    return Status(StatusCode.NOT_FEASIBLE, f"After {rounds} solves: {report}.", advice=advice)


def not_run(solver: str, code: int) -> Status:
    """Status "error" of a solver of another library that returned before it evaluated the problem, with its return code."""
    advice = "Check the options that are passed on to it (`ipopt`), and that its linear solver is installed."
    return Status(StatusCode.ERROR, f"{solver} ended before it began, with the return code {code}.", advice=advice)


def unbounded(iterations: int, objective: float) -> Status:
    """Status of a solve whose objective decreased below any meaningful value at feasible points."""
    message = f"The objective is unbounded{_after(iterations)}: it decreased to {objective:.1e} along feasible points."
    return Status(StatusCode.UNBOUNDED, message, advice=BOUNDING)


def diverged(at: Measured) -> Status:
    """Status of a solve whose iterates grew without bound and are not feasible."""
    advice = "Set bounds on controls and states, or start from a better guess."
    return _ended(StatusCode.STALLED, f"The iterates diverged{_after(at.iterations)}", at, advice)


class Descent:
    """Test for an objective that is unbounded below at feasible points, by its value and largest gradient entry at the guess.

    The objective must fall below its limit (UNBOUNDED_BELOW) and go on falling there (STILL_FALLING). A gradient of NaN counts
    as zero.
    """

    def __init__(self, objective: float = 0.0, gradient: float = 0.0) -> None:
        self._limit, self._first = -UNBOUNDED_BELOW * max(1.0, abs(objective), gradient), 0.0

    def is_unbounded(self, objective: float) -> bool:
        """True if the objective of a feasible iterate, one call each, shows that the problem is unbounded."""
        if not objective < self._limit:
            return False
        self._first = self._first or objective
        return objective < self._first * (1.0 + STILL_FALLING)


NEARLY_FEASIBLE = 1e-3
"""Largest violation of an iterate, relative to its size, whose objective may show that a problem is unbounded."""
_NOT_UNBOUNDED = (
    StatusCode.UNBOUNDED,
    StatusCode.INTERRUPTED,
    StatusCode.ERROR,
    StatusCode.INFEASIBLE,
    StatusCode.LOCALLY_INFEASIBLE,
)
"""Statuses that a falling objective does not change."""


def may_be_unbounded(status: Status, last: float) -> bool:
    """True for a failure, not of a problem found infeasible nor at a small KKT error, whose last objective is very low."""
    stopped = status.success or status.code in _NOT_UNBOUNDED or (status.kkt is not None and status.kkt <= STATIONARY)
    return not stopped and last < -LIKELY_UNBOUNDED


def has_settled(costs: Sequence[float], last: float) -> bool:
    """True if an objective ``last`` < 0 is near that after half of the iterations, to the factor SETTLED; costs: of the records."""
    return len(costs) > 1 and last / SETTLED <= costs[len(costs) // 2] <= SETTLED * last


def fell_far(status: Status, first: float, gradient: float, last: float) -> Status:
    """Return "unbounded" for a failure whose last objective is below its limit (LIKELY_UNBOUNDED), else the status itself.

    first, gradient: objective at the guess and the largest entry of its gradient there. Both must be finite.
    """
    size = max(1.0, abs(first), gradient)
    if not (may_be_unbounded(status, last) and isfinite(first + gradient) and last < -LIKELY_UNBOUNDED * size):
        return status
    message = f"The objective seems unbounded: it fell from {first:.1e} to {last:.1e}. {status.message}"
    return replace(status, code=StatusCode.UNBOUNDED, message=message, advice=BOUNDING, component=None, knot=None)


# -- problems of a batch ------------------------------------------------------------------------------------------------
def non_finite_value(name: str, problem: int, *, may_be_infinite: bool) -> Status:
    """Status of a problem of a batch with a value that is NaN, or infinite although it must be finite."""
    number = "NaN" if may_be_infinite else "NaN or infinity"
    advice = f"Set finite numbers. {REST_OF_BATCH}"
    return Status(StatusCode.NON_FINITE, f"{number} in {name} of problem {problem}.", component=name, advice=advice)


def invalid(problem: int, mistakes: str, *, contradictory: bool) -> Status:
    """Status of an invalid problem of a batch: "infeasible" if its bounds are contradictory, else "error"."""
    code = StatusCode.INFEASIBLE if contradictory else StatusCode.ERROR
    return Status(code, f"Problem {problem} is invalid: {mistakes}.", advice=REST_OF_BATCH)


def error(raised: Exception) -> Status:
    """Status of a solve that raised an exception."""
    return Status(StatusCode.ERROR, f"{type(raised).__name__}: {raised}")


def process_died() -> Status:
    """Status of a solve whose process ended without a result."""
    return Status(StatusCode.ERROR, "The process of this problem died: out of memory, or an error in compiled code.")


# -- sentences ----------------------------------------------------------------------------------------------------------
def _ended(code: StatusCode, result: str, at: Measured, advice: str) -> Status:
    """Return a status with all errors; it names the worst constraint if that is violated by more than the tolerance."""
    worst = at.worst if at.worst is not None and at.worst.violation > (at.tolerances.violation or 0.0) else None
    message = f"{result}: {_numbers(at.errors, at.tolerances)}{_largest(worst)}."
    return Status(code, message, component=_name(worst), advice=advice, kkt=at.errors.kkt)


def _numbers(errors: Errors, tolerances: Errors) -> str:
    """Return all computed errors by name, each compared with its tolerance if there is one."""
    names = "scaled KKT error", "gradient", "defect", "constraint violation"
    return ", ".join(
        f"{name} {error:.1e}" + ("" if limit is None else f" {'<=' if error <= limit else '>'} {limit:.1e}")
        for name, error, limit in zip(names, errors, tolerances, strict=True)
        if error is not None
    )


def _largest(worst: WorstConstraint | None) -> str:
    """Return a clause on the most violated constraint for the end of a message, or "" for None."""
    return "" if worst is None else f"; largest violation: {worst.name}, {worst.violation:.3g}"


def _name(worst: WorstConstraint | None) -> str | None:
    """Return the name of the most violated constraint, or None."""
    return None if worst is None else worst.name


def _after(iterations: int) -> str:
    """Return the phrase " after n iterations"."""
    return f" after {iterations_text(iterations)}"


def _without_advice(status: Status) -> Status:
    """Return the status without advice if it is a success."""
    return replace(status, advice="") if status.success else status
