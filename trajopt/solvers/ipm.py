"""Solver ``ipm``: interior-point method on the stages (:mod:`trajopt.solvers.methods.interior_point`), with feedback gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.window.interior import new_slot, solve_interior
from trajopt.solvers.window.interior_slot import InteriorSlot
from trajopt.stage.evaluators import cached_evaluator
from trajopt.stage.solver_cache import SolverCache, borrowed


def ipm(
    ocp: OCP,
    guess: Guess,
    options: IPMOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
    cache: SolverCache | None = None,
) -> Solution:
    """Solve a valid problem by an interior-point method; the states of the guess need not satisfy the dynamics.

    Feedback gains are those of an LQR along the solution; zero after the time limit if a part of the problem runs in NumPy.
    multipliers: of an earlier solution of the same structure, for a warm start with a small ``barrier``. cache: cache of
    workspaces; default: the cache of the thread. Raises MissingCapability for hessian = "exact" if a time step has no second
    derivatives.
    """
    options = options or IPMOptions()
    with borrowed(ocp, cache) as own, np.errstate(all="ignore"):  # the status reports non-finite numbers
        slot = InteriorSlot.reused(own, new_slot, ocp, guess.us, options.hessian)
        try:
            found = solve_interior(slot, guess, options, callback, multipliers)
        finally:
            slot.close()
        if not may_expand_again(ocp, options.time_limit):
            return found
        final = slot.program.final_equalities(slot.point)
        return replace(found, K=tracking_gains(ocp, found.xs, found.us, final, cached_evaluator(own, ocp)))
