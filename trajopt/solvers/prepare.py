"""Compile and load the code of a solve without solving: evaluators of shooting methods, programs of direct methods."""

from __future__ import annotations

import time
from typing import Any

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.auto import attempts
from trajopt.solvers.options import AutoOptions, DDPOptions, DMSOptions, IPMOptions, SLQOptions, SQPOptions
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numerics import numerics_for

_KINDS: dict[str, Any] = {"ddp": DDPOptions, "slq": SLQOptions, "ipm": IPMOptions, "dms": DMSOptions, "sqp": SQPOptions}


def prepare(ocp: OCP, guess: Guess, options: Any) -> None:
    """Make ready for solving a problem from a guess by the solver that the options belong to; of several attempts the first.

    Raises what the solve would raise before its first iteration.
    """
    if isinstance(options, AutoOptions):
        attempt = next(iter(attempts(ocp)))
        ocp, options = attempt.ocp, _KINDS[attempt.solver](**attempt.needs)
    _PREPARED.get(type(options), _own_method)(ocp, guess, options)


def make_ready(ocp: OCP, guess: Guess, options: Any) -> float:
    """Compile and load all that a solve will call, without solving; the seconds that took.

    Later solves find it in memory, and on disk, so that they spend their time on solving. Raises what the solve would raise before
    its first iteration.
    """
    from trajopt.stage.start import starting

    began = time.perf_counter()
    with starting("compiled"):
        prepare(ocp, guess, options)
    return time.perf_counter() - began


def _shooting(ocp: OCP, guess: Guess, options: SLQOptions) -> None:
    if ocp.constraints():
        from trajopt.solvers.shooting.penalized import augmented

        ocp = augmented(ocp, options.constraint_penalty)
    numerics_for(ocp, options.hessian)
    if isinstance(options, DDPOptions):
        evaluator = numerics_for(ocp).evaluator
        if isinstance(evaluator, StageEvaluator):
            evaluator.knot_curvatures(guess.xs, guess.us)


def _dms(ocp: OCP, guess: Guess, options: DMSOptions) -> None:
    from trajopt.solvers.direct.dms import transcribed

    transcribed(ocp, guess, options)
    numerics_for(ocp)


def _sqp(ocp: OCP, guess: Guess, options: SQPOptions) -> None:
    from trajopt.solvers.direct.direct_sqp import chosen, staged_program, sweeper_of

    staged_program(ocp, guess, chosen(ocp, options))
    sweeper_of(ocp, options.hold)
    numerics_for(ocp)


def _ipm(ocp: OCP, guess: Guess, options: IPMOptions) -> None:
    from trajopt.solvers.ipm import prepared

    prepared(ocp, guess, options)
    numerics_for(ocp)


def _own_method(ocp: OCP, guess: Guess, options: Any) -> None:
    numerics_for(ocp)


_PREPARED: dict[type, Any] = {
    SLQOptions: _shooting,
    DDPOptions: _shooting,
    DMSOptions: _dms,
    SQPOptions: _sqp,
    IPMOptions: _ipm,
}
