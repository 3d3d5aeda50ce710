"""Direct multiple shooting with IPOPT (:mod:`trajopt.solvers.direct.transcription`, :mod:`trajopt.solvers.nlp.ipopt`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.results.status import StatusCode
from trajopt.solvers import termination
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.nlp import nlp_diagnosis
from trajopt.solvers.nlp.ipopt import Multipliers, solve_ipopt
from trajopt.solvers.nlp.nlp import NLPSolution
from trajopt.solvers.options import DMSOptions, SQPOptions


def dms(
    ocp: OCP,
    guess: Guess,
    options: DMSOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a valid problem by direct multiple shooting with IPOPT; the states of the guess need not satisfy the dynamics.

    multipliers: of an earlier solution of the same structure, for a warm start with a small ``barrier``. Feedback gains are those
    of an LQR along the solution. Raises MissingIpopt without cyipopt.
    """
    options = options or DMSOptions()
    program = transcribed(ocp, guess, options)
    warm = None if multipliers is None else warm_multipliers(program, multipliers)
    found = solve_ipopt(program, program.variables(*guess), options, callback, warm=warm, defects=program.N * program.n)
    return trajectory_solution(program, found, options)


def warm_multipliers(program: Transcription, multipliers: Mapping[str, Array]) -> Multipliers:
    """Return an earlier solution's multipliers in the order of a program; zero if a name is missing or a shape differs."""
    z = np.zeros(program.size)
    for name, places in (("bounds on x", program.ix), ("bounds on u", program.iu)):
        values = multipliers.get(name)
        if values is not None and values.shape == places.shape:
            z[places] = values
    return Multipliers(program.from_names(multipliers), z)


def transcribed(ocp: OCP, guess: Guess, options: DMSOptions) -> Transcription:
    """Return the program for IPOPT, with an exact Hessian if the options ask for it, else a Gauss-Newton one."""
    kind = "exact" if options.hessian == "exact" else "gauss_newton"
    return Transcription(ocp, guess, options.hold, kind)


def trajectory_solution(program: Transcription, found: NLPSolution, options: DMSOptions | SQPOptions) -> Solution:
    """Convert the solution of a transcription to a solution of the problem, with LQR gains (:mod:`trajopt.solvers.feedback`).

    The gains are zero after the time limit if a part of the problem runs in NumPy. A locally infeasible status names the most
    violated constraint (:func:`~trajopt.solvers.nlp.nlp_diagnosis.cause_of_violation`). With a first-order hold the last control
    goes to ``meta``, as does the kind of the Hessian.
    """
    ocp = program.original
    xs, us = program.trajectory(found.w)
    status, cost = found.status, found.objective
    if np.isnan(cost):  # sqp ended before its first iterate
        with np.errstate(all="ignore"):
            cost = program.evaluate(found.w)[0]
    if status.code is StatusCode.LOCALLY_INFEASIBLE:
        worst, in_rollout = nlp_diagnosis.cause_of_violation(program, found.w, program.simulated(found.w))
        if worst is not None:
            status = termination.infeasible_nearby(found.iterations, worst, in_rollout=in_rollout)
    N, has_gains = ocp.horizon, may_expand_again(ocp, options.time_limit)
    meta: dict[str, Any] = {"hessian": options.hessian}
    if len(us) > N:
        meta[LAST_CONTROL] = us[N].tolist()
    return Solution(
        xs,
        us[:N],
        tracking_gains(ocp, xs, us[:N]) if has_gains else np.zeros((N, ocp.nu, ocp.manifold.ndx)),
        np.zeros((N, ocp.nu)),
        status,
        cost,
        found.iterations,
        found.history,
        ocp.times,
        multipliers=multipliers_by_name(program, found),
        meta=meta,
    )


def multipliers_by_name(program: Transcription, found: NLPSolution) -> dict[str, Array]:
    """Return the multipliers by name: "dynamics", constraints, "bounds on x" (N + 1, n), "bounds on u" (N or N + 1, m)."""
    z = found.bound_multipliers
    named = program.by_name(found.multipliers)
    return named | {"bounds on x": z[program.ix], "bounds on u": z[program.iu]}
