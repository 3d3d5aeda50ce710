"""Differential dynamic programming: SLQ with second derivatives of the dynamics, quadratically convergent.

By default, a problem is solved by Newton's method with a filter (:mod:`trajopt.solvers.methods.newton`, :func:`by_newton`). With
other options, each iteration solves the LQ problem of :mod:`trajopt.solvers.shooting.ddp_model` and searches along its solution.
Shooting nodes, box limits and globalization are those of SLQ. Far from the solution, Gauss-Newton steps are often longer: they
are tried first, and again if the exact Hessian gives a poor step. Records name the Hessian of each step. With search = "curve",
both steps are tried in every iteration once progress was slower than the option ``switch``, also along parabolas
(:mod:`trajopt.solvers.shooting.parabola`). If linearly closed defects diverge, the problem is solved again from the guess with
nonlinear closing (:mod:`trajopt.solvers.slq`); the status reports this.

D. Mayne, Int. J. Control 3, 1966; D. Jacobson, D. Mayne, Differential Dynamic Programming, 1970; box limits: Tassa et al.,
ICRA 2014; on real robots by contraction: J. Nganga, P. Wensing, RA-L 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.shooting.ddp_model import MixedModel, Model, NewtonModel, PlainModel, TrueModel
from trajopt.solvers.slq import solve_twice
from trajopt.solvers.window.newton import filtered, solve_newton
from trajopt.solvers.window.shooting import solve_shooting
from trajopt.stage.evaluators import cached_evaluator
from trajopt.stage.solver_cache import SolverCache, borrowed
from trajopt.step.sensitivities import missing_curvature
from trajopt.validation.validation import ERROR, Finding, InvalidProblem


def ddp(
    ocp: OCP,
    guess: Guess,
    options: DDPOptions | None = None,
    callback: Callback | None = None,
    *,
    cache: SolverCache | None = None,
) -> Solution:
    """Solve a valid problem without constraints by DDP from a guess, whose states need not satisfy the dynamics.

    A solve whose linearly closed defects diverge is repeated with nonlinear closing. cache: cache of workspaces;
    default: that of the thread. Raises InvalidProblem if a time step has no second derivatives.
    """
    options = options or DDPOptions()
    with borrowed(ocp, cache) as own:
        evaluator = cached_evaluator(own, ocp)
        require_contractions(ocp)
        convex = options.hessian == "gauss_newton"
        exact = evaluator if convex else cached_evaluator(own, ocp, options.hessian)
        Curved = NewtonModel if options.curvature == "newton" else TrueModel

        def run(options: DDPOptions, callback: Callback | None) -> Solution:
            """Solve once with given options: by Newton's method with a filter if they select it, else by search on a merit."""
            if by_newton(ocp, options):
                return solve_newton(ocp, guess, options, callback, evaluator, exact, cache=own)
            plain = PlainModel("gauss_newton", evaluator)
            if options.search == "curve":
                models: Sequence[Model] = (plain, MixedModel(exact, evaluator))
            else:
                models = plain, Curved(exact, evaluator)
            return solve_shooting(ocp, guess, options, callback, evaluator, models)

        found = solve_twice(run, options, callback)
        return replace(found, meta={**found.meta, "hessian": "mixed" if convex else "exact"})


def by_newton(ocp: OCP, options: DDPOptions) -> bool:
    """Return True for Newton's method with a filter: :func:`~trajopt.solvers.window.newton.filtered`, and curvature = "newton"."""
    return filtered(ocp, options) and options.curvature == "newton"


def require_contractions(ocp: OCP) -> None:
    """Raise InvalidProblem, with the remedy, if the dynamics of a phase provide no second derivatives."""
    reason = missing_curvature(ocp)
    if reason is not None:
        raise InvalidProblem([Finding(ERROR, reason)])
