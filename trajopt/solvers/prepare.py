"""Preparation of a solve without solving: make the evaluators and programs of the solvers."""

from __future__ import annotations

from typing import Any

from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.auto import attempts
from trajopt.solvers.direct.program_parts import evaluated_stages
from trajopt.solvers.options import AutoOptions, DDPOptions, DMSOptions, IPMOptions, SLQOptions, SQPOptions
from trajopt.solvers.registry import attempt_options
from trajopt.stage.evaluators import evaluator_for


def prepare(ocp: OCP, guess: Guess, options: Any) -> None:
    """Trace and compile the functions for a solve with these options, for ``auto`` those of its first attempt, without solving.

    Later solves find them in memory and on disk. The problem is not validated; exceptions of tracing and compilation are raised.
    """
    if isinstance(options, AutoOptions):
        attempt = next(iter(attempts(ocp)))
        ocp, options = attempt.ocp, attempt_options(attempt, options)
    _PREPARED.get(type(options), _user_method)(ocp, guess, options)
    evaluated_stages(ocp)


def _prepare_shooting(ocp: OCP, guess: Guess, options: SLQOptions) -> None:
    """Make the evaluators of SLQ or DDP; with constraints, those of the augmented Lagrangian's problem.

    For DDP, also evaluates the second derivatives of the dynamics along the guess.
    """
    if ocp.constraints():
        from trajopt.solvers.shooting.penalized import augmented

        ocp = augmented(ocp, options.constraint_penalty)
    evaluator_for(ocp, options.hessian)
    if isinstance(options, DDPOptions):
        evaluator_for(ocp).knot_curvatures(guess.xs, guess.us)


def _dms(ocp: OCP, guess: Guess, options: DMSOptions) -> None:
    """Make the program for IPOPT and the evaluator of the feedback gains."""
    from trajopt.solvers.direct.dms import transcribed

    transcribed(ocp, guess, options)
    evaluator_for(ocp)


def _sqp(ocp: OCP, guess: Guess, options: SQPOptions) -> None:
    """Make the program of SQP, with the Hessian that "auto" selects, and the evaluator of the feedback gains."""
    from trajopt.solvers.direct.direct_sqp import staged_program, with_selected_hessian

    staged_program(ocp, guess, with_selected_hessian(ocp, options))
    evaluator_for(ocp)


def _ipm(ocp: OCP, guess: Guess, options: IPMOptions) -> None:
    """Make the workspace of the interior-point method and the evaluator of the feedback gains."""
    from trajopt.solvers.window.interior import program_of

    program_of(ocp, guess.us, options.hessian)
    evaluator_for(ocp)


def _user_method(ocp: OCP, guess: Guess, options: Any) -> None:
    """Make the evaluator of a registered method."""
    evaluator_for(ocp)


_PREPARED: dict[type, Any] = {
    SLQOptions: _prepare_shooting,
    DDPOptions: _prepare_shooting,
    DMSOptions: _dms,
    SQPOptions: _sqp,
    IPMOptions: _ipm,
}
