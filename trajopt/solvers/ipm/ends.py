"""How a solve by the interior-point method ends, in numbers, and the status of each end; the C of kernels/interior_loop.h has the
same ends.

Names of constraints are those of :mod:`trajopt.solvers.direct.transcription`; it is made when something is to be named.
"""

from __future__ import annotations

from enum import IntEnum

from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.ipm.feasibility import LEAST_VIOLATION, OUT, Restored
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.nlp import nlp_diagnosis
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.termination import Errors, Measured

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


def status_of(
    end: End, at: Measured, objective: float, o: IPMOptions, program: StageProgram, p: Point | Guess
) -> Status:
    """The status of an end other than NO_STEP and CREEPS at a point."""
    if end is End.CONVERGED:
        return termination.converged(at)
    if end is End.STOPPED:
        return _stopped(at, o, program, p)
    if end is End.PRECISION:
        return termination.precision_limit(at)
    if end is End.INTERRUPTED:
        return termination.interrupted(at.iterations)
    if end is End.UNBOUNDED:
        return termination.unbounded(at.iterations, objective)
    return non_finite(program, Guess(p.xs, p.us))


def crossed_bounds(program: StageProgram) -> Status | None:
    """The status of a program of which a lower bound lies above its upper one, or None."""
    low, high = program.row_bounds
    if not (low > high).any() and not (program.lower > program.upper).any():
        return None
    found = nlp_diagnosis.crossed_bounds(_named(program, constant_guess(program.ocp)))
    return None if found is None else termination.infeasible(found)


def locally_infeasible(program: StageProgram, p: Point, iterations: int) -> Status:
    """The status where the violation cannot be reduced near a point."""
    nlp = _named(program, Guess(p.xs, p.us))
    simulated = nlp_diagnosis.worst_in_rollout(nlp, nlp.simulated(nlp.variables(p.xs, p.us)))
    return termination.locally_infeasible(iterations, simulated or _worst(program, p), in_rollout=simulated is not None)


def restoration_failed(
    found: Restored, program: StageProgram, iterations: int, o: IPMOptions, *, hopeless: bool = False
) -> Status:
    """Steps for feasibility alone did not lead back; hopeless: whether earlier ones have hardly reduced the violation."""
    if found.verdict == LEAST_VIOLATION or (found.verdict == OUT and hopeless):
        return locally_infeasible(program, found.point, iterations)
    at = Measured(iterations, Errors(violation=found.at.largest), o.tolerances)
    if found.verdict == OUT:
        return _stopped(at, o, program, found.point)
    at = at._replace(worst=_worst(program, found.point))
    return termination.line_search_failed(termination.NO_RESTORATION, at)


def non_finite(program: StageProgram, guess: Guess) -> Status:
    """The status of a point with NaN or infinity."""
    nlp = _named(program, guess)
    w = nlp.variables(*guess)
    return termination.non_finite(nlp_diagnosis.non_finite_number(nlp, w, *nlp.evaluate(w)))


def _stopped(at: Measured, o: IPMOptions, program: StageProgram, p: Point | Guess) -> Status:
    """Iterations or time are used up."""
    if (at.errors.violation or 0.0) > o.constraint_tolerance:
        at = at._replace(worst=_worst(program, p))
    if at.iterations >= o.max_iterations:
        return termination.max_iterations(o.max_iterations, at)
    return termination.time_limit(o.time_limit, at)


def _named(program: StageProgram, guess: Guess) -> Transcription:
    """The problem as a program whose rows have names; a status does not wait for a compiler."""
    return Transcription(program.ocp, guess, hessian="gauss_newton", engine="numpy")


def _worst(program: StageProgram, p: Point | Guess) -> termination.WorstConstraint | None:
    nlp = _named(program, Guess(p.xs, p.us))
    w = nlp.variables(p.xs, p.us)
    return nlp_diagnosis.worst_constraint(nlp, w, nlp.evaluate(w)[1])
