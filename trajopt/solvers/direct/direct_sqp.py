"""Direct multiple shooting with SQP (:mod:`trajopt.solvers.direct.transcription`, :mod:`trajopt.solvers.sqp.sqp`).

Riccati recursions solve the QPs by stages. Positive semidefinite Hessians of the program replace indefinite ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.direct.dms import trajectory_solution, warm_multipliers
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.sqp.sqp import solve_nlp
from trajopt.step.sensitivities import has_curvature


def sqp(
    ocp: OCP,
    guess: Guess,
    options: SQPOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a valid problem by SQP with direct multiple shooting; the states of the guess need not satisfy the dynamics.

    multipliers: of an earlier solution of the same structure; the first QP starts with their active set.

    hessian = "auto", the default, selects "exact" if all time steps have second derivatives, else "scqp". The latter includes the
    outer functions of constraints with a :class:`~trajopt.problem.constraints.Composition`; without any it equals "gauss_newton".
    Feedback gains are those of an LQR along the solution.
    """
    options = with_selected_hessian(ocp, options or SQPOptions())
    program = staged_program(ocp, guess, options)
    warm = None if multipliers is None else warm_multipliers(program, multipliers)
    found = solve_nlp(program, program.variables(*guess), options, callback, multipliers=warm)
    return trajectory_solution(found.nlp, found, options)  # type: ignore[arg-type]


def with_selected_hessian(ocp: OCP, options: SQPOptions) -> SQPOptions:
    """Return the options with hessian = "auto" replaced: "exact" if all time steps have second derivatives, else "scqp"."""
    if options.hessian != "auto":
        return options
    return replace(options, hessian="exact" if has_curvature(ocp) else "scqp")


def staged_program(ocp: OCP, guess: Guess, options: SQPOptions) -> Transcription:
    """Return the program of the SQP method; hessian = "auto" selects "scqp" here, as in real-time iterations."""
    return Transcription(ocp, guess, options.hold, "scqp" if options.hessian == "auto" else options.hessian)
