"""Status of a solve by the interior point, and the culprit of a failure.

Constraint names come from :mod:`trajopt.solvers.direct.transcription`, which is built only when a status needs a name.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.methods.interior_point import InteriorEnd, InteriorEnded
from trajopt.solvers.nlp import nlp_diagnosis
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.termination import Errors, Measured


def status_of(ended: InteriorEnded, o: IPMOptions, program: StageProgram, p: Point | Guess) -> Status:
    """Return the status, with errors and tolerances, for the reason why a solve ended; p: its final point.

    KKT error and gradient are omitted if unknown. If the solve ended because constraints stay violated, the status names the
    worst one of the point without its defects, or of a rollout of the controls, or second derivatives that are not finite. A reason
    without a rule counts as non-finite values.
    """
    end, n = ended.end, ended.iterations
    known = isfinite(ended.error)  # unknown after feasibility steps
    gradient = ended.gradient / ended.scale if known else None
    errors = Errors(ended.error if known else None, gradient, violation=ended.violation)
    at = Measured(n, errors, o.tolerances)
    if end is InteriorEnd.CONVERGED:
        return termination.converged(at)
    if end is InteriorEnd.STOPPED:
        return _stopped(at, o, program, p)
    if end is InteriorEnd.PRECISION:
        return termination.precision_limit(at)
    if end is InteriorEnd.INTERRUPTED:
        return termination.interrupted(n)
    if end is InteriorEnd.UNBOUNDED:
        return termination.unbounded(n, ended.objective)
    if end in (InteriorEnd.LEAST_VIOLATION, InteriorEnd.STALLED, InteriorEnd.NO_STEP):  # no step: restoration failed
        if isinstance(p, Point) and not all(np.isfinite(block).all() for block in (p.Q, p.S, p.R)):
            return termination.non_finite(termination.NonFinite("an entry of the Hessian"))
        nlp = _named(program, Guess(p.xs, p.us))
        w = nlp.variables(p.xs, p.us)
        cause = nlp_diagnosis.cause_of_violation(nlp, w, nlp.simulated(w))
        at, least = at._replace(worst=cause.worst), end is InteriorEnd.LEAST_VIOLATION
        return termination.violation_remains(at, stationary=least, in_rollout=cause.in_rollout)
    return non_finite(program, Guess(p.xs, p.us))


def crossed_bounds(program: StageProgram) -> Status | None:
    """Return the status "infeasible", naming the bounds that cross most, if a lower bound exceeds its upper one; else None."""
    low, high = program.row_bounds
    if not (low > high).any() and not (program.lower > program.upper).any():
        return None
    found = nlp_diagnosis.crossed_bounds(_named(program, constant_guess(program.ocp)))
    return None if found is None else termination.infeasible(found)


def non_finite(program: StageProgram, guess: Guess) -> Status:
    """Evaluate a guess with NumPy; return the status "non_finite" with the name of the first value that is NaN or infinite."""
    nlp = _named(program, guess)
    w = nlp.variables(*guess)
    return termination.non_finite(nlp_diagnosis.non_finite_number(nlp, w, *nlp.evaluate(w)))


def _stopped(at: Measured, o: IPMOptions, program: StageProgram, p: Point | Guess) -> Status:
    """Return the status of a solve that reached its iteration limit, else its time limit; p: its final point.

    If the violation exceeds its tolerance, the status names the worst constraint.
    """
    if (at.errors.violation or 0.0) > o.constraint_tolerance:
        at = at._replace(worst=_worst(program, p))
    if at.iterations >= o.max_iterations:
        return termination.max_iterations(o.max_iterations, at)
    return termination.time_limit(o.time_limit, at)


def _named(program: StageProgram, guess: Guess) -> Transcription:
    """Return a transcription of the program's problem, for its constraint names.

    NumPy evaluates it with the Gauss-Newton Hessian, so that a status does not wait for a trace.
    """
    return Transcription(program.ocp, guess, hessian="gauss_newton", engine="numpy")


def _worst(program: StageProgram, p: Point | Guess) -> termination.WorstConstraint | None:
    """Return the most violated constraint at a point, None if none is violated."""
    nlp = _named(program, Guess(p.xs, p.us))
    w = nlp.variables(p.xs, p.us)
    return nlp_diagnosis.worst_constraint(nlp, w, nlp.evaluate(w)[1])
