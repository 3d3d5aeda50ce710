"""The sentences with which the interior-point method ends.

Names of constraints are those of :mod:`trajopt.solvers.direct.transcription`; it is made when something is to be named.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.ipm.feasibility import LEAST_VIOLATION, OUT, Restored
from trajopt.solvers.ipm.measure import Optimality
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.nlp import nlp_verdicts
from trajopt.solvers.options import IPMOptions

ACCEPTABLE = 1e-6
"""An end without a step is one at the limit of double precision below this error (acceptable_tol)."""
BOTTOM = -1e20


class End(IntEnum):
    """How a solve ends. NO_STEP: the search found none; CREEPS: for long only short ones. Steps for feasibility alone, which
    stand in Python, follow these two.
    """

    CONVERGED = 0
    STOPPED = 1
    PRECISION = 2
    INTERRUPTED = 3
    UNBOUNDED = 4
    NOT_FINITE = 5
    NO_STEP = 6
    CREEPS = 7


def contradiction(program: StageProgram) -> Status | None:
    """The verdict on bounds of which a lower one lies above its upper one, or None."""
    low, high = program.row_bounds
    if not (low > high).any() and not (program.lower > program.upper).any():
        return None
    return nlp_verdicts.contradiction(_named(program, None))


def verdict(
    end: End,
    program: StageProgram,
    p: Point | Guess,
    now: Optimality,
    iterations: int,
    o: IPMOptions,
    scale: float,
    objective: float,
) -> Status:
    """The words for an end at a point, but for NO_STEP and CREEPS."""
    if end is End.CONVERGED:
        return converged(iterations, now, scale)
    if end is End.STOPPED:
        return stopped(program, p, now, iterations, o, scale)
    if end is End.PRECISION:
        return precision(iterations, now, scale)
    if end is End.INTERRUPTED:
        return interrupted(iterations)
    if end is End.UNBOUNDED:
        return unbounded(iterations, objective)
    return non_finite(program, Guess(p.xs, p.us), "a derivative")


def converged(iterations: int, now: Optimality, scale: float) -> Status:
    """The optimality conditions hold."""
    return replace(nlp_verdicts.converged(iterations, now.gradient / scale, now.violation), kkt=now.error)


def precision(iterations: int, now: Optimality, scale: float) -> Status:
    """No step leads further from a point that is nearly a solution."""
    reason, advice = "Double precision allows no further progress", "Increase the tolerances, or scale the cost."
    status = nlp_verdicts.stopped(StatusCode.PRECISION_LIMIT, reason, _distance(now, scale), None, advice)
    return replace(status, kkt=now.error)


def stopped(
    program: StageProgram, p: Point | Guess, now: Optimality, iterations: int, o: IPMOptions, scale: float
) -> Status:
    """Iterations or time are used up."""
    if iterations >= o.max_iterations:
        code, reason = StatusCode.MAX_ITERATIONS, f"Stopped at max_iterations = {o.max_iterations}"
        advice = "Increase max_iterations, or start from a better guess."
    else:
        code, reason = StatusCode.TIME_LIMIT, f"Stopped at time_limit = {o.time_limit} s after {iterations} iterations"
        advice = "Increase time_limit, or start from a better guess."
    worst = _worst(program, p) if now.violation > o.constraint_tolerance else None
    return replace(nlp_verdicts.stopped(code, reason, _distance(now, scale), worst, advice), kkt=now.error)


def contradictory(program: StageProgram, p: Point, iterations: int) -> Status:
    """The violation cannot be reduced near a point."""
    simulated = _simulated_worst(program, p)
    return nlp_verdicts.infeasible(iterations, simulated or _worst(program, p), simulated=simulated is not None)


def restoration(
    found: Restored, program: StageProgram, iterations: int, o: IPMOptions, *, hopeless: bool = False
) -> Status:
    """Steps for feasibility alone did not lead back; hopeless: whether earlier ones have hardly reduced the violation."""
    if found.verdict == LEAST_VIOLATION or (found.verdict == OUT and hopeless):
        return contradictory(program, found.point, iterations)
    worst = _worst(program, found.point)
    distance = f"constraint violation {found.at.largest:.1e}"
    if found.verdict == OUT:
        code = StatusCode.MAX_ITERATIONS if iterations >= o.max_iterations else StatusCode.TIME_LIMIT
        reason = f"Stopped after {iterations} iterations during feasibility restoration"
        return nlp_verdicts.stopped(code, reason, distance, worst, "Increase the limit, or start from a better guess.")
    reason = "No step length was accepted, and feasibility restoration failed"
    return nlp_verdicts.stopped(StatusCode.LINE_SEARCH_FAILED, reason, distance, worst, nlp_verdicts.NO_STEP)


def unbounded(iterations: int, objective: float) -> Status:
    """The objective fell below any meaningful value."""
    return nlp_verdicts.unbounded(iterations, objective)


def interrupted(iterations: int) -> Status:
    """The user stopped it."""
    return Status(StatusCode.INTERRUPTED, f"Interrupted in iteration {iterations}; returning the last iterate.")


def non_finite(program: StageProgram, guess: Guess, what: str = "") -> Status:
    """NaN or infinity at a point."""
    nlp = _named(program, guess)
    w = nlp.variables(*guess)
    objective, g = nlp.evaluate(w)
    return nlp_verdicts.non_finite(nlp, w, objective, g, what)


def _distance(now: Optimality, scale: float) -> str:
    return f"gradient {now.gradient / scale:.1e}, constraint violation {now.violation:.1e}"


def _named(program: StageProgram, guess: Guess | None) -> Transcription:
    """The problem as a program whose rows have names; a verdict does not wait for a compiler."""
    ocp = program.ocp
    if guess is None:
        guess = Guess(np.repeat(ocp.x0[None], ocp.horizon + 1, axis=0), np.zeros((ocp.horizon, ocp.nu)))
    return Transcription(ocp, guess, hessian="gauss_newton", engine="numpy")


def _worst(program: StageProgram, p: Point | Guess) -> nlp_verdicts.Worst | None:
    nlp = _named(program, Guess(p.xs, p.us))
    w = nlp.variables(p.xs, p.us)
    return nlp_verdicts.worst_constraint(nlp, w, nlp.evaluate(w)[1])


def _simulated_worst(program: StageProgram, p: Point) -> nlp_verdicts.Worst | None:
    """What the motion under the controls found violates most: at a point of least violation the gaps take their share of it."""
    nlp = _named(program, Guess(p.xs, p.us))
    w = nlp.simulated(nlp.variables(p.xs, p.us))
    worst = nlp_verdicts.worst_constraint(nlp, w, nlp.evaluate(w)[1])
    return worst if worst is not None and np.isfinite(worst.violation) else None
